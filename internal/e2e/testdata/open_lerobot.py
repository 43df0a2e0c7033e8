"""Opens LeRobot datasets with lerobot and prints what it finds: python open_lerobot.py ROOT..."""
import json
import sys

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

for root in sys.argv[1:]:
    ds = LeRobotDataset("converted/test", root=root)
    out = {"root": root, "rows": len(ds), "episodes": ds.num_episodes, "fps": ds.fps, "cameras": sorted(ds.meta.camera_keys), "sums": {}, "tasks": []}
    for i in sorted({0, len(ds) // 2, len(ds) - 1}):
        item = ds[i]
        out["tasks"].append(item["task"])
        for key, value in item.items():
            if key in ds.meta.camera_keys:
                value = np.asarray(value, np.float64)
                assert value.ndim == 3 and value.std() >= 0, (key, value.shape)
                out["sums"].setdefault(key, []).append(float(value.mean()))
            elif hasattr(value, "numpy") and key in ds.meta.features:
                out["sums"].setdefault(key, []).append(float(np.asarray(value, np.float64).sum()))
    print(json.dumps(out))
