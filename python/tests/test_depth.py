"""Depth and pictures of rows that are not there, through Python."""

import os
from pathlib import Path

import numpy as np
import pytest
import robocache

h5py = pytest.importorskip("h5py")


def test_units_and_empty_episodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    metres = rng.normal(size=(4, 12, 9)).astype(np.float32)
    codes = rng.integers(0, 65536, (4, 12, 9, 1), dtype=np.uint16)
    with h5py.File(tmp_path / "depth.hdf5", "w") as f:
        for name, n in (("demo_0", 4), ("demo_1", 0)):
            g = f.create_group(f"data/{name}")
            g["actions"] = np.zeros((n, 2), np.float32)
            g["obs/depth"], g["obs/codes"] = metres[:n, ..., None], codes[:n]
            g["obs/cam"] = np.zeros((n, 12, 9, 3), np.uint8)
    uri = os.fspath(tmp_path / "depth.hdf5")
    ds = robocache.open(uri, rows_hz=10)
    depth = ds[0].streams["observation.depth"]
    # Float metres: as stored, to the bit, or rounded millimetres.
    assert depth.frames(depth_unit="m").tobytes() == metres.tobytes()
    assert np.array_equal(depth.frames()[:, 0], metres * np.float32(1000))
    assert np.array_equal(depth.frames([2, 0], depth_unit="m")[:, 0], metres[[2, 0]])
    assert np.array_equal(ds[0].streams["observation.codes"].frames()[:, 0], codes[..., 0])
    batch = next(iter(robocache.Loader(uri, rows_hz=10, batch_size=4, shuffle=False, depth_unit="m")))
    assert np.asarray(batch["observation.depth"]).tobytes() == metres.tobytes()
    with pytest.raises(robocache.Misuse):
        depth.frames(depth_unit="cm")
    # No rows: arrays of none, of the kind that rows would have.
    for key, shape, dtype in (("depth", (0, 1, 12, 9), "float32"), ("codes", (0, 1, 12, 9), "uint16"), ("cam", (0, 3, 12, 9), "uint8")):
        for got in (ds[1].streams[f"observation.{key}"].frames(), ds[0].streams[f"observation.{key}"].frames([])):
            assert got.shape == shape and got.dtype == dtype
