"""Loads a file with robomimic's SequenceDataset and compares its items with the file.

See write_test.go.
"""

import json
import sys

import h5py
import numpy as np
import robomimic.utils.obs_utils as obs_utils
from robomimic.utils.dataset import SequenceDataset

path, low, rgb, depth, mask, following = sys.argv[1], *[json.loads(a) for a in sys.argv[2:7]]
obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": low, "rgb": rgb, "depth": depth}})
keys = low + rgb + depth
length = 3
d = SequenceDataset(
    path,
    obs_keys=keys,
    dataset_keys=["actions"],
    seq_length=length,
    load_next_obs=following,
    filter_by_attribute=mask,
    hdf5_use_swmr=True,
)
items = 0
# SequenceDataset opens the file in this mode, so a second open must use it too.
with h5py.File(path, "r", swmr=True, libver="latest") as f:
    demos = (
        sorted(f["data"], key=lambda n: int(n[5:]))
        if mask is None
        else [n.decode() for n in f["mask"][mask][:]]
    )
    assert d.n_demos == len(demos), (d.n_demos, demos)
    at = 0
    for name in demos:
        demo = f["data"][name]
        rows = int(demo.attrs["num_samples"])
        assert demo["actions"].shape[0] == rows
        for k in range(0, rows, max(rows // 5, 1)):
            item = d[at + k]
            for stride, side in ((0, "obs"), (1, "next_obs")) if following else ((0, "obs"),):
                for key in keys:
                    want = np.stack(
                        [demo["obs"][key][min(k + i + stride, rows - 1)] for i in range(length)]
                    )
                    got = np.asarray(item[side][key])
                    assert got.shape == want.shape and np.array_equal(got, want), (
                        side,
                        key,
                        got.shape,
                        want.shape,
                    )
            want = np.stack([demo["actions"][min(k + i, rows - 1)] for i in range(length)])
            assert np.array_equal(item["actions"], want)
            items += 1
        at += rows
    total = int(f["data"].attrs["total"])
    env = json.loads(f["data"].attrs["env_args"])
print(
    json.dumps(
        {
            "items": items,
            "demos": d.n_demos,
            "total": total,
            "control_freq": env["env_kwargs"].get("control_freq"),
        }
    )
)
