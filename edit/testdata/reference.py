"""Opens datasets with LeRobot itself and compares the items of a result with those of its source.

reference.py RESULT SOURCE MAP: MAP is a JSON file: {"index": [row of the source for each row of the result], "rename": {key: key in the source},
"task": [text of each row] or null, "skip": [keys], "stride": compare every so many images, "tolerance": of images in levels}.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset

result, source, mapping = sys.argv[1:4]
m = json.loads(Path(mapping).read_text())
OWN = {"index", "episode_index", "frame_index", "timestamp", "task_index", "task"}


def opened(root, backend):
    return LeRobotDataset("local/set", root=root, video_backend=backend)


compared = 0
for backend in m.get("backends", ["torchcodec"]):
    ds, src = opened(result, backend), opened(source, backend)
    assert len(ds) == len(m["index"]), (len(ds), len(m["index"]))
    stride = m.get("stride", 1)
    for i in range(0, len(ds), stride):
        a, b = ds[i], src[m["index"][i]]
        assert int(a["index"]) == i, (i, a["index"])
        for key, value in a.items():
            old = m.get("rename", {}).get(key, key)
            if key in OWN or key in m.get("skip", []):
                continue
            want = b[old]
            if torch.is_tensor(value) and value.ndim == 3 and m.get("tolerance", 0):
                assert (value - want).abs().mean() * 255 <= m["tolerance"], (
                    backend,
                    i,
                    key,
                    float((value - want).abs().mean() * 255),
                )
            elif torch.is_tensor(value):
                assert value.dtype == want.dtype and torch.equal(value, want), (
                    backend,
                    i,
                    key,
                    float((value.double() - want.double()).abs().max()),
                )
            else:
                assert value == want, (backend, i, key, value, want)
            compared += 1
        if m.get("task"):
            assert a["task"] == m["task"][i], (i, a["task"], m["task"][i])
        elif m.get("task", 0) is None:
            assert a["task"] == b["task"], (i, a["task"], b["task"])
ds = opened(result, "pyav")
# Statistics are numpy's of the rows.
for key, f in ds.meta.features.items():
    if f["dtype"] in ("video", "image", "string", "language") or key not in ds.meta.stats:
        continue
    values = np.asarray(ds.hf_dataset.with_format("numpy")[key][:], dtype=np.float64).reshape(
        len(ds), -1
    )
    s = ds.meta.stats[key]
    for name, want in {
        "min": values.min(0),
        "max": values.max(0),
        "mean": values.mean(0),
        "std": values.std(0),
    }.items():
        assert np.allclose(np.ravel(s[name]), want, rtol=1e-6, atol=1e-9), (
            key,
            name,
            s[name],
            want,
        )
    for q in (1, 10, 50, 90, 99):
        if f"q{q:02d}" in s:
            assert np.allclose(
                np.ravel(s[f"q{q:02d}"]), np.quantile(values, q / 100, axis=0), rtol=1e-6, atol=1e-9
            ), (key, q)
    assert int(np.ravel(s["count"])[0]) == len(ds), (key, s["count"])
print(f"{compared} values equal, {len(ds)} rows")
