"""MapDataset and Loader: items, order, state, ranks and memory.

Images are compared with those of an independent decoder.
"""

from __future__ import annotations

import gc
import itertools
import json
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
SMALL = (48, 64)


def equal(a: dict, b: dict) -> None:
    assert list(a) == list(b)
    for k in a:
        assert torch.equal(a[k], b[k]) if isinstance(a[k], torch.Tensor) else a[k] == b[k], k


# Tests of MapDataset.


def test_map_items(h264: str) -> None:
    m = robocache.MapDataset(
        h264,
        image_size=SMALL,
        delta_timestamps={"action": [0.0, 1 / 30], "observation.images.cam_high": [-1 / 30, 0.0]},
    )
    item = m[0]
    assert (
        list(item) == m.keys
        and isinstance(m, torch.utils.data.Dataset)
        and len(m) == m.dataset.num_frames
    )
    assert item["observation.images.cam_high"].dtype == torch.uint8 and item[
        "observation.images.cam_high"
    ].shape == (2, 3, *SMALL)
    assert item["observation.images.cam_high_is_pad"].tolist() == [True, False]
    # edge rows are repeated
    assert torch.equal(
        item["observation.images.cam_high"][0], item["observation.images.cam_high"][1]
    )
    equal(m[-1], m[len(m) - 1])
    equal(m[np.int64(7)], m[torch.tensor(7)])
    many = m.__getitems__([9, 3, 9])
    for i, x in zip([9, 3, 9], many, strict=True):
        equal(x, m[i])
    for x, y in zip(m[4:10:3], [m[4], m[7]], strict=True):
        equal(x, y)
    equal(
        {k: v for k, v in m.batch([5]).items() if k != "task"},
        {k: v[None] for k, v in m[5].items() if k != "task"},
    )
    for i in (len(m), -len(m) - 1):
        with pytest.raises(IndexError):
            m[i]
    assert m.__getitems__([]) == [] and m[0:0] == []


def test_map_selection(h264: str) -> None:
    m = robocache.MapDataset(h264, episodes=[2, 0], keys=["episode_index", "action"])
    e = m.batch(range(len(m)))["episode_index"]
    # episodes are in file order, whatever the order of the list
    assert sorted(set(e.tolist())) == [0, 2] and (e.diff() >= 0).all()
    assert m.keys == ["action", "episode_index"] or m.keys == ["episode_index", "action"]
    f = robocache.MapDataset(
        h264,
        image_size=SMALL,
        images=robocache.Images(dtype="float32"),
        keys=["observation.images.cam_high"],
    )[3]
    u = robocache.MapDataset(h264, image_size=SMALL, keys=["observation.images.cam_high"])[3]
    assert torch.equal(
        f["observation.images.cam_high"], u["observation.images.cam_high"].float() / 255
    )


def test_map_on_a_timeline(h264: str) -> None:
    m = robocache.MapDataset(
        h264,
        hz=15,
        episodes=[0],
        keys=["action", "observation.images.cam_high"],
        image_size=SMALL,
        align=robocache.Align(max_gap=0.5),
    )
    rows = robocache.MapDataset(
        h264, episodes=[0], keys=["action", "observation.images.cam_high"], image_size=SMALL
    )
    assert abs(len(m) - len(rows) / 2) <= 1
    item = m[4]
    assert item["action_is_pad"].ndim == 0 and not item["action_is_pad"]
    assert torch.equal(item["observation.images.cam_high"], rows[8]["observation.images.cam_high"])
    assert torch.allclose(item["action"], rows[8]["action"], atol=1e-5)
    twin = robocache.MapDataset(
        h264, hz=15, align=robocache.Align(edge="clamp"), episodes=[0], keys=["action"]
    )
    assert len(twin) == len(m)


@pytest.mark.parametrize(
    "kwargs,words",
    [
        ({"keys": ["acton"]}, "'action'"),
        ({"keys": "action"}, "list"),
        ({"delta_timestamps": {"actions": [0.0]}}, "'action'"),
        ({"delta_timestamps": {"action": [0.017]}}, "action"),
        ({"delta_timestamps": {"task": [0.0]}}, "task"),
        ({"image_size": 64}, "height, width"),
        ({"image_size": (0, 5)}, "height, width"),
        ({"image_size": "x"}, "height, width"),
        ({"image_size": (1.5, 2)}, "height, width"),
        ({"windows": robocache.Windows(seconds={"action": [float("nan")]})}, "offsets"),
        ({"windows": robocache.Windows(seconds={"action": (float("-inf"), 0.0)})}, "offsets"),
        ({"delta_timestamps": {"action": [float("nan")]}, "hz": 10}, "list of seconds"),
        ({"images": robocache.Images(dtype="float16")}, "uint8"),
        ({"episodes": [10_000]}, "episode"),
        ({"hz": 0}, "rate"),
        ({"hz": 10, "align": robocache.Align(modes={"action": "cubic"})}, "linear"),
        (
            {"align": {"modes": {}}},
            r"expected a robocache.Align; hint: align=robocache.Align\(modes=…\)",
        ),
        ({"batch_size": 3}, "unknown keyword"),
    ],
)
def test_map_misuse(h264: str, kwargs: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as e:
        robocache.MapDataset(h264, **kwargs)
    assert isinstance(e.value, robocache.Misuse)


# Tests of Loader.


def indices(loader: robocache.Loader) -> list[list[int]]:
    return [b["index"].tolist() for b in loader]


def index_loader(path: str, **kwargs) -> robocache.Loader:
    return robocache.Loader(path, keys=["index"], **kwargs)


def test_coverage_and_order(h264: str) -> None:
    loader = index_loader(h264, batch_size=37, seed=5)
    n = loader.num_samples
    epochs = [indices(loader) for _ in range(3)]
    for e, batches in enumerate(epochs):
        flat = sum(batches, [])
        assert sorted(flat) == list(range(n)), "every sample once"
        assert flat == loader.order(e).tolist(), "batches follow order()"
        assert len(batches) == len(loader)
    assert epochs[0] != epochs[1]
    assert (
        indices(
            index_loader(
                h264, batch_size=37, seed=5, threads=1, runtime=robocache.Runtime(prefetch=1)
            )
        )
        == epochs[0]
    )
    assert indices(index_loader(h264, batch_size=37, seed=6)) != epochs[0]
    assert sum(indices(index_loader(h264, batch_size=50, shuffle=False)), []) == list(range(n))
    dropped = index_loader(h264, batch_size=50, drop_last=True)
    assert all(len(b["index"]) == 50 for b in dropped) and len(dropped) == n // 50


def test_batches_equal_items(h264: str) -> None:
    deltas = {"action": [0.0, 1 / 30, 2 / 30], "observation.images.cam_high": [-2 / 30, 0.0]}
    m = robocache.MapDataset(h264, delta_timestamps=deltas, image_size=SMALL)
    loader = robocache.Loader(m, batch_size=24, seed=2)
    order, at = loader.order(0), 0
    for k, b in enumerate(itertools.islice(loader, 9)):
        assert list(b) == m.keys and b["observation.images.cam_high"].is_contiguous()
        if k % 4 == 0:
            rows = len(b["task"])
            want = m.__getitems__(order[at : at + rows].tolist())
            for r in (0, rows // 2, rows - 1):
                equal({x: v[r] for x, v in b.items()}, want[r])
        at += len(b["task"])
    assert at == 9 * 24


def test_every_for_is_an_epoch(h264: str) -> None:
    loader = index_loader(h264, batch_size=64)
    assert loader.epoch == 0
    first = next(iter(loader))["index"]
    assert loader.state_dict()["position"] == 64
    # the first `for` was left early, so this is the next epoch
    assert sum(indices(loader), []) == loader.order(1).tolist()
    loader.set_epoch(0)
    assert torch.equal(next(iter(loader))["index"], first)
    it = iter(loader)
    other = iter(loader)
    next(other)
    with pytest.raises(robocache.Misuse, match="another"):
        next(it)


def test_resume(h264: str) -> None:
    def fresh(**kw) -> robocache.Loader:
        return index_loader(h264, seed=9, **{"batch_size": 32, **kw})

    whole = fresh()
    want = sum((sum(indices(whole), []) for _ in range(2)), [])
    rng = random.Random(1)
    for _ in range(4):
        stop = rng.randrange(0, 2 * len(whole))
        a, got = fresh(), []
        for _ in range(2):
            for b in a:
                if stop == 0:
                    break
                got += b["index"].tolist()
                stop -= 1
                if stop == 0:
                    state = json.loads(json.dumps(a.state_dict()))
                    break
            else:
                continue
            break
        if stop:
            continue
        if not got:
            state, a = json.loads(json.dumps(a.state_dict())), fresh()
        b = fresh(
            threads=rng.choice([1, 2]),
            runtime=robocache.Runtime(prefetch=rng.choice([1, 7])),
            batch_size=rng.choice([32, 16, 50]),
        )
        b.load_state_dict(state)
        while len(got) < len(want):
            for x in b:
                got += x["index"].tolist()
        assert got[: len(want)] == want
    # At the end of an epoch, and before the first batch.
    a = fresh()
    b = fresh()
    b.load_state_dict(a.state_dict())
    assert indices(a) == indices(b)
    b.load_state_dict(a.state_dict())
    assert sum(indices(b), []) == a.order(1).tolist()
    b.load_state_dict(a.state_dict())
    b.set_epoch(1)  # as training loops do after resuming: it keeps the position
    assert sum(indices(b), []) == a.order(1).tolist()


def test_state_of_other_data(h264: str) -> None:
    state = index_loader(h264).state_dict()
    with pytest.raises(robocache.Misuse, match="episodes"):
        index_loader(dataset_path("g1_h264_v30_bigdrift")).load_state_dict(state)
    with pytest.raises(robocache.Misuse):
        index_loader(h264, episodes=[0]).load_state_dict(state)
    with pytest.raises(robocache.Misuse):
        index_loader(h264).load_state_dict({"colour": 1})


def test_state_of_equal_lengths(tmp_path: Path) -> None:
    """A state does not load into another dataset with episodes of the same number and lengths.

    It loads into a copy of the same dataset in another folder.
    """
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    for name, offset in (("one", 0.0), ("copy", 0.0), ("other", 1.0)):
        with h5py.File(tmp_path / f"{name}.hdf5", "w") as f:
            for e in range(3):
                g = f.create_group(f"data/demo_{e}")
                g["actions"] = np.arange(20, dtype=np.float32).reshape(10, 2) + e + offset
    one, copy, other = (
        robocache.Loader(tmp_path / f"{n}.hdf5", open=robocache.Open(rows_hz=10), batch_size=4)
        for n in ("one", "copy", "other")
    )
    for _ in range(2):
        next(iter(one))
    state = json.loads(json.dumps(one.state_dict()))
    copy.load_state_dict(state)
    assert copy.state_dict()["fingerprint"] == state["fingerprint"]
    with pytest.raises(robocache.Misuse, match="values of action differ") as e:
        other.load_state_dict(state)
    assert "force=True" in e.value.hint
    other.load_state_dict(state, force=True)
    for name in ("stream", "values"):  # a state of an earlier version
        del state["fingerprint"][name]
    other.load_state_dict(state)


@pytest.mark.parametrize("shuffle", ["global", "pool", False])
def test_order_of_a_rank(h264: str, shuffle: object) -> None:
    how = {"batch_size": 64, "shuffle": shuffle, "keys": ["index"], "world_size": 2}
    ranks = [robocache.Loader(h264, rank=r, **how) for r in range(2)]
    for r, loader in enumerate(ranks):
        given = np.concatenate([np.asarray(b["index"]) for b in loader])
        assert np.array_equal(given, ranks[0].order(0, rank=r))
    union = np.concatenate([ranks[0].order(0, rank=r) for r in range(2)])
    assert set(union.tolist()) == set(ranks[0].order(0).tolist())
    with pytest.raises(robocache.Misuse, match="rank"):
        ranks[0].order(0, rank=2)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks(h264: str, world: int) -> None:
    loaders = [
        index_loader(h264, batch_size=20, rank=r, world_size=world, seed=3) for r in range(world)
    ]
    per_rank = [indices(x) for x in loaders]
    assert len({len(b) for b in per_rank}) == 1, "all ranks have the same number of batches"
    n = loaders[0].num_samples
    assert set(sum((sum(b, []) for b in per_rank), [])) == set(range(n))
    steps = [sum((b[t] for b in per_rank), []) for t in range(len(per_rank[0]))]
    assert (
        sum(steps, [])[:n] == index_loader(h264, batch_size=20 * world, seed=3).order(0).tolist()
    ), "ranks together form the batches of one process"


def test_place_from_the_environment(h264: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (index_loader(h264).rank, index_loader(h264).world_size) == (1, 2)
    assert index_loader(h264, rank=0, world_size=1).world_size == 1
    monkeypatch.delenv("RANK")
    for kwargs in (
        {"rank": 2, "world_size": 2},
        {"world_size": 4},
        {"rank": 3},
        {"rank": -1, "world_size": 2},
    ):
        with pytest.raises(robocache.Misuse):
            index_loader(h264, **kwargs)


def test_memory_lives_as_long_as_a_view(h264: str) -> None:
    """A batch that is kept is never overwritten. Released memory returns to the engine."""
    loader = robocache.Loader(h264, batch_size=8, image_size=SMALL, seed=1)
    it = iter(loader)
    batch = next(it)
    key = "observation.images.cam_high"
    kept = batch[key][3, :, ::2]  # a view of a view
    copy = kept.clone()
    assert batch[key].data_ptr() % 64 == 0
    del batch
    for _ in range(12):
        next(it)
    gc.collect()
    assert torch.equal(kept, copy)
    before = loader.stats()["buffer_bytes"]
    loader.close()
    assert torch.equal(kept, copy) and before > 0
    kept += 1  # the tensor belongs to the user and is writable
    assert not torch.equal(kept, copy)


def test_peak_memory_is_flat(h264: str) -> None:
    loader = robocache.Loader(
        h264,
        batch_size=16,
        episodes=[0, 1],
        keys=["observation.images.cam_high"],
        image_size=SMALL,
        runtime=robocache.Runtime(prefetch=2),
        shuffle=False,
    )
    for _ in loader:
        pass
    peak = loader.stats()["buffer_peak_bytes"]
    for _ in range(3):
        for _ in loader:
            pass
    assert loader.stats()["buffer_peak_bytes"] <= peak * 1.5
    s = loader.stats()
    assert (
        s["samples"] == 4 * loader.num_samples and s["samples_per_second"] > 0 and s["epoch"] == 4
    )


def test_no_copy_and_no_python_per_sample(h264: str) -> None:
    """The number of Python calls per batch depends on its keys, not on its samples.

    A batch of 128 samples needs as many calls as a batch of 8.
    """

    def calls(batch_size: int) -> int:
        loader = robocache.Loader(
            h264, batch_size=batch_size, keys=["action", "index", "observation.state"], threads=1
        )
        it = iter(loader)
        next(it)
        count = 0

        def tick(frame, event, arg):  # type: ignore[no-untyped-def]
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(tick)
        try:
            next(it)
        finally:
            sys.setprofile(None)
        return count

    assert abs(calls(8) - calls(128)) <= 4


def test_normalize(h264: str) -> None:
    raw = robocache.Loader(
        h264, batch_size=256, shuffle=False, keys=["action", "observation.state"]
    )
    norm = robocache.Loader(
        h264,
        batch_size=256,
        shuffle=False,
        keys=["action", "observation.state"],
        normalize={"action": "mean_std"},
    )
    st = raw.dataset.stats["action"]
    a, b = next(iter(raw)), next(iter(norm))
    want = (a["action"].double() - torch.tensor(st["mean"])) / (torch.tensor(st["std"]) + 1e-8)
    good = torch.tensor(st["std"]) > 1e-6
    assert torch.allclose(b["action"].double()[:, good], want[:, good], atol=1e-4)
    assert torch.equal(a["observation.state"], b["observation.state"])


def test_epochs_count_from_0(h264: str) -> None:
    loader = robocache.Loader(h264, keys=["index"])
    for bad in (-1, "1", 1.0, True, None):
        with pytest.raises(robocache.Misuse, match="epoch="):
            loader.set_epoch(bad)
    for bad in (None, 5, "state"):
        with pytest.raises(robocache.Misuse, match="state_dict"):
            loader.load_state_dict(bad)


def test_seconds_may_have_a_unit(h264: str) -> None:
    """Windows and tolerances accept text with a unit, as the hint for implausible numbers says."""
    numbers = robocache.Loader(
        h264,
        keys=["action"],
        batch_size=4,
        delta_timestamps={"action": [0, 0.1]},
        windows=robocache.Windows(tolerance_s=0.02),
    )
    text = robocache.Loader(
        h264,
        keys=["action"],
        batch_size=4,
        delta_timestamps={"action": [0, "100ms"]},
        windows=robocache.Windows(tolerance_s="20ms"),
    )
    assert torch.equal(next(iter(numbers))["action"], next(iter(text))["action"])
    span = robocache.Loader(
        h264,
        keys=["action"],
        batch_size=4,
        windows=robocache.Windows(seconds={"action": ("-100ms", 0, 2)}),
    )
    assert next(iter(span))["action"].shape[:2] == (4, 2)
    rows = robocache.Loader(
        h264,
        keys=["action"],
        batch_size=4,
        windows=robocache.Windows(rows={"action": [0, 100_000]}),
    )
    assert next(iter(rows))["action"].shape[:2] == (4, 2)
    with pytest.raises(robocache.Misuse) as e:
        robocache.Loader(h264, windows=robocache.Windows(seconds={"action": [0, 33_333_333]}))
    assert "'33333333ns'" in e.value.hint and "'33333333s'" in e.value.hint


@pytest.mark.parametrize(
    "kwargs,cls,words",
    [
        ({"shuffle": "globl"}, robocache.Misuse, "global"),
        ({"order": robocache.Order(pool_size="1GiB")}, robocache.Misuse, "shuffle='pool'"),
        (
            {"shuffle": "pool", "order": robocache.Order(pool_size="lots")},
            robocache.Misuse,
            "pool_size",
        ),
        (
            {"shuffle": "pool", "order": robocache.Order(pool_episodes=0)},
            robocache.Misuse,
            "Order.pool_episodes=0",
        ),
        (
            {"shuffle": "pool", "order": robocache.Order(pool_shards=1.5)},
            robocache.Misuse,
            "pool_shards",
        ),
        ({"order": robocache.Order(uneven="ragged")}, robocache.Misuse, "wrap"),
        ({"cache": True}, robocache.Misuse, "directory"),
        ({"cache": robocache.Cache(budget="1GiB")}, robocache.Misuse, "without a place"),
        ({"cache": robocache.Cache("ram", format="png")}, robocache.Misuse, "yuv"),
        ({"runtime": robocache.Runtime(io_threads=0)}, robocache.Misuse, "at least 1"),
        ({"cache": "RAM"}, robocache.Misuse, "did you mean 'ram'"),
        ({"cache": "s3://bucket/cache"}, robocache.Misuse, "disk of this machine"),
        ({"cache": 1.5}, robocache.Misuse, "directory"),
        ({"seed": "a"}, robocache.Misuse, "seed='a'"),
        ({"seed": 2**64}, robocache.Misuse, "seed=18446744073709551616"),
        ({"rank": "0", "world_size": 2}, robocache.Misuse, "rank='0'"),
        ({"runtime": robocache.Runtime(deadline_s="soon")}, robocache.Misuse, "deadline_s='soon'"),
        (
            {"device": robocache.Device(decode="gpu")},
            robocache.Misuse,
            r'Device\("cuda", decode=.*decodes and keeps images on the GPU',
        ),
        ({"device": robocache.Device(decode="npu")}, robocache.Misuse, "'cpu', 'auto', 'gpu'"),
        (
            {"runtime": robocache.Runtime(deadline_s=float("nan"))},
            robocache.Misuse,
            "deadline_s=nan",
        ),
        ({"shuffle": 0}, robocache.Misuse, "shuffle=0"),
        ({"shuffle": ["global"]}, robocache.Misuse, "shuffle="),
        ({"drop_last": "no"}, robocache.Misuse, "drop_last='no'"),
        ({"device": robocache.Device(pin_memory="no")}, robocache.Misuse, "pin_memory='no'"),
        ({"normalize": {"action": 5}}, robocache.Misuse, "a mode"),
        ({"normalize": {"action": {"mean": "abc"}}}, robocache.Misuse, "numbers"),
        ({"windows": robocache.Windows(tolerance_s="x")}, robocache.Misuse, "tolerance_s='x'"),
        (
            {"windows": robocache.Windows(tolerance_s=33_000_000)},
            robocache.Misuse,
            "and as nanoseconds 33 ms",
        ),
        (
            {"delta_timestamps": {"action": [0, 33_333_333]}},
            robocache.Misuse,
            "days.*and as nanoseconds 33.333333 ms",
        ),
        (
            {"windows": robocache.Windows(seconds={"action": [0, 33_333_333]})},
            robocache.Misuse,
            "days.*and as nanoseconds 33.333333 ms",
        ),
        (
            {"windows": robocache.Windows(seconds={"action": (0, 33_333_333)})},
            robocache.Misuse,
            "days.*and as nanoseconds 33.333333 ms",
        ),
        ({"delta_timestamps": {"action": "x"}}, robocache.Misuse, "seconds"),
        ({"episodes": 5}, robocache.Misuse, "episodes=5"),
        ({"rename": {"a": "b"}}, robocache.Unsupported, "Mix"),
        ({"batch_size": 0}, robocache.Misuse, "at least 1"),
        ({"threads": 0}, robocache.Misuse, "at least 1"),
        ({"runtime": robocache.Runtime(prefetch=1.5)}, robocache.Misuse, "integer"),
        ({"memory_budget": "4 lots"}, robocache.Misuse, "4GiB"),
        ({"normalize": "z"}, robocache.Misuse, "mean_std"),
        ({"normalize": {"acton": "mean_std"}}, robocache.Misuse, "'action'"),
        ({"order": robocache.Order(on_bad_episode="ignore")}, robocache.Misuse, "skip"),
        ({"batchsize": 4}, robocache.Misuse, "batch_size"),
        ({"keys": ["acton"]}, robocache.Misuse, "'action'"),
    ],
)
def test_loader_misuse(h264: str, kwargs: dict, cls: type, words: str) -> None:
    with pytest.raises(cls, match=words):
        robocache.Loader(h264, **kwargs)


def test_unsupported_sources(h264: str) -> None:
    with pytest.raises(robocache.Unsupported, match="image_transforms"):
        robocache.Loader(robocache.LeRobotDataset(h264, image_transforms=lambda x: x))
    if not torch.cuda.is_available():
        for kwargs in ({"device": "cuda"}, {"device": robocache.Device(pin_memory=True)}):
            with pytest.raises(robocache.Unsupported, match="CUDA"):
                robocache.Loader(h264, **kwargs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda(h264: str) -> None:
    for pin in (False, True):
        b = next(
            iter(
                robocache.Loader(
                    h264,
                    batch_size=8,
                    device=robocache.Device("cuda", pin_memory=pin),
                    shuffle=False,
                    image_size=SMALL,
                )
            )
        )
        c = next(iter(robocache.Loader(h264, batch_size=8, shuffle=False, image_size=SMALL)))
        assert all(
            v.is_cuda and torch.equal(v.cpu(), c[k])
            for k, v in b.items()
            if isinstance(v, torch.Tensor)
        )


def test_closing_while_another_thread_waits(exact: str) -> None:
    loader = robocache.Loader(exact, batch_size=256, threads=1)
    seen: list[BaseException | int] = []

    def run() -> None:
        try:
            for b in loader:
                seen.append(len(b["task"]))
        except BaseException as e:  # noqa: BLE001
            seen.append(e)

    t = threading.Thread(target=run)
    t.start()
    time.sleep(0.2)
    loader.close()
    t.join(120)
    assert not t.is_alive() and isinstance(seen[-1], robocache.Error)
    with pytest.raises(robocache.Misuse, match="closed"):
        loader.state_dict()
    loader.close()


def test_cache_on_a_device_is_refused_without_one(h264, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        robocache.Error, match='robocache.Device."cuda", decode="gpu", memory_budget="1GiB".'
    ):
        robocache.Loader(h264, cache="device", device=robocache.Device(memory_budget="1GiB"))
    with pytest.raises(robocache.Misuse, match=r"Device..cuda., memory_budget=….: expected"):
        robocache.Loader(h264, cache="device")
    with pytest.raises(robocache.Misuse, match="did you mean 'device'"):
        robocache.Loader(h264, cache="Device")
    assert not list(tmp_path.iterdir())
    robocache.Loader(h264, cache="./device").close()
    assert (tmp_path / "device").is_dir()
