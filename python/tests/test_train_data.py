"""The plain reader of `robocache-bench train` returns what the engine returns.

This also holds if timestamps do not begin at 0, and if demos are not numbered from 0.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import robocache

torch = pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "runners"))
from robocache_bench import train_data  # noqa: E402


def test_streams(tmp_path):
    rng, path = np.random.default_rng(0), str(tmp_path / "set.hdf5")
    with h5py.File(path, "w") as f:
        data = f.create_group("data")
        data.attrs["timestamps_suffix"] = "_timestamps"
        for n in (10, 3):
            demo = data.create_group(f"demo_{n}")
            demo["actions"], demo["actions_timestamps"] = (
                rng.random((30, 2), "f4"),
                1000.5 + n + np.arange(30) / 10,
            )
            demo["obs/p"], demo["obs/p_timestamps"] = (
                rng.random((250, 3), "f4"),
                1000.513 + n + np.arange(250) / 100,
            )
    with robocache.open(path) as ds:
        spec = train_data.spec(ds, "diffusion-lowdim")
    options = train_data.loader_options(spec)
    m = robocache.MapDataset(path, split="all", **options)
    loader = robocache.Loader(path, batch_size=4, split="all", **options)
    where = loader.locate(np.arange(len(m)))
    plain = train_data.Streams(
        path, SimpleNamespace(spec=spec, episode=where.episode, row=where.row)
    )
    for i in (0, 7, len(m) // 2, len(m) - 1):
        got, want = plain[i], m[i]
        np.testing.assert_allclose(got["state"], want["observation.p"], atol=1e-5)
        np.testing.assert_allclose(got["action"], want["action"], atol=1e-5)
        np.testing.assert_array_equal(got["action_is_pad"], want["action_is_pad"])
    loader.close()


def test_compared_batches(tmp_path):
    rng, p = np.random.default_rng(0), train_data.Plan.__new__(train_data.Plan)
    p.spec, p.compared = dict(image_size=None), str(tmp_path / "compared.npz")

    def batch(change=lambda b: None):
        r = np.random.default_rng(1)
        b = dict(
            index=np.arange(64),
            state=r.random((64, 1, 5), "f4"),
            action=r.random((64, 8, 2), "f4"),
            action_is_pad=r.random((64, 8)) > 0.5,
            frames=dict(cam=r.integers(0, 250, (64, 1, 3, 48, 64), "u1")),
        )
        change(b)
        return p.part(b)

    assert p.compare({0: batch()}) == dict(batches_checked=0)  # there is no batch to compare with

    def near(b):
        b["frames"]["cam"][:] += 2
        b["state"][:] += 5e-6

    assert p.compare({0: batch(near)})["batches_wrong"] == 0

    def far(b):
        b["frames"]["cam"][40] = rng.integers(0, 255, (1, 3, 48, 64), "u1")  # one frame of 64

    for change in (
        far,
        # one pixel of a frame that is kept whole
        lambda b: b["frames"]["cam"].__setitem__((3, 0, 0, 1, 1), 255),
        lambda b: b["state"].__setitem__((63, 0, 4), b["state"][63, 0, 4] + 1e-3),
        lambda b: b["action_is_pad"].__setitem__((9, 7), ~b["action_is_pad"][9, 7]),
        lambda b: b["index"].__setitem__(5, 4),
    ):
        assert p.compare({0: batch(change)})["batches_wrong"] == 1


def job(tmp_path, uri, **more):
    from robocache_bench import common

    return common.Job(
        dict(
            uri=uri,
            runner="robocache",
            model="diffusion-lowdim",
            device="cpu",
            batch_size=16,
            seed=3,
            shuffle="global",
            warmup_batches=3,
            steps=200,
            plan=str(tmp_path / "plan.npz"),
            rank=0,
            world=1,
            workers=0,
            **more,
        )
    )


def test_the_last_rows_start_no_sample(tmp_path, exact):
    """The last 7 rows of an episode start no sample, and `index` is the row.

    The plain reader, lerobot's rows and the engine agree on them.
    """
    a = job(tmp_path, exact)
    train_data.plan(a)
    p = train_data.Plan(a.plan)
    lengths = robocache.open(exact).episodes["lengths"]
    rows = np.concatenate(
        [np.arange(n - 7) + lo for n, lo in zip(lengths, lengths.cumsum() - lengths)]
    )
    assert (
        set(p.orders[0, 0].tolist()) <= set(rows.tolist())
        and p.orders.shape[2] == len(rows) // 16 * 16
    )
    batches, loader = train_data.robocache_batches(exact, p, a)
    kept = {k: next(batches) for k in range(11)}
    assert p.covered(np.stack([[b["index"].numpy()] for b in kept.values()])) == dict(
        order_wrong=0, samples_doubled=0
    )
    assert p.compare(
        {
            k: {n: v.numpy() for n, v in p.part(b).items()}
            for k, b in kept.items()
            if k in train_data.COMPARED
        }
    ) == dict(batches_checked=3, batches_wrong=0, wrong=[])
    loader.close()


def test_a_set_that_is_too_small(tmp_path, exact):
    a = job(tmp_path, exact)
    a.steps = 10**6
    with pytest.raises(
        RuntimeError,
        match="the set is too small: an epoch of its 1270 samples has 79 steps, "
        "and 12661 epochs would be needed",
    ):
        train_data.plan(a)
