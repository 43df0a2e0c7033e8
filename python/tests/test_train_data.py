"""The plain reader of `bench train` gives what the engine gives: also where timestamps do not begin at 0, and demos are not numbered from 0."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import robocache

torch = pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "runners"))
import train_data  # noqa: E402


def test_streams(tmp_path):
    rng, path = np.random.default_rng(0), str(tmp_path / "set.hdf5")
    with h5py.File(path, "w") as f:
        data = f.create_group("data")
        data.attrs["timestamps_suffix"] = "_timestamps"
        for n in (10, 3):
            demo = data.create_group(f"demo_{n}")
            demo["actions"], demo["actions_timestamps"] = rng.random((30, 2), "f4"), 1000.5 + n + np.arange(30) / 10
            demo["obs/p"], demo["obs/p_timestamps"] = rng.random((250, 3), "f4"), 1000.513 + n + np.arange(250) / 100
    with robocache.open(path) as ds:
        spec = train_data.spec(ds, "diffusion-lowdim")
    options = train_data.loader_options(spec)
    m = robocache.MapDataset(path, split="all", **options)
    loader = robocache.Loader(path, batch_size=4, split="all", **options)
    where = loader.locate(np.arange(len(m)))
    plain = train_data.Streams(path, SimpleNamespace(spec=spec, episode=where.episode, row=where.row))
    for i in (0, 7, len(m) // 2, len(m) - 1):
        got, want = plain[i], m[i]
        np.testing.assert_allclose(got["state"], want["observation.p"], atol=1e-5)
        np.testing.assert_allclose(got["action"], want["action"], atol=1e-5)
        np.testing.assert_array_equal(got["action_is_pad"], want["action_is_pad"])
    loader.close()
