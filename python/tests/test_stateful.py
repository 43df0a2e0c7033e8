"""States with torch's tools: StatefulDataLoader, plain DataLoader, epochs and persistent use.

StatefulDataLoader is used over a Loader and over a MapDataset.
"""

from __future__ import annotations

import io
import json

import pytest

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
StatefulDataLoader = stateful.StatefulDataLoader
KEYS = ["action", "index", "task"]


def loader(path: str, **kwargs) -> robocache.Loader:  # type: ignore[no-untyped-def]
    return robocache.Loader(
        path, **{"keys": KEYS, "batch_size": 32, "seed": 5, "threads": 2, **kwargs}
    )


def inside(path: str, **kwargs) -> StatefulDataLoader:  # type: ignore[no-untyped-def]
    return StatefulDataLoader(loader(path, **kwargs), batch_size=None, num_workers=0)


def flat(batches) -> list[int]:  # type: ignore[no-untyped-def]
    return sum((b["index"].tolist() for b in batches), [])


@pytest.mark.parametrize("stop", [0, 1, 7, 20, 40])
def test_resume_inside_a_stateful_dataloader(h264: str, stop: int) -> None:
    dl = inside(h264)
    assert len(dl) == len(loader(h264))
    it, got = iter(dl), []
    for _ in range(stop):
        got += next(it)["index"].tolist()
    file = io.BytesIO()
    torch.save(dl.state_dict(), file)  # checkpoints are written in this way
    file.seek(0)
    other = inside(h264, threads=1, runtime=robocache.Runtime(prefetch=1))
    other.load_state_dict(torch.load(file))
    assert got + flat(other) == loader(h264).order(0).tolist()
    assert flat(other) == loader(h264).order(1).tolist(), "the next epoch follows"


def test_state_at_the_end(h264: str) -> None:
    """A state taken after the last batch, or after the end, resumes with the whole next epoch."""
    for seen in (False, True):
        dl = inside(h264)
        it = iter(dl)
        for _ in range(len(dl)):
            next(it)
        if seen:
            with pytest.raises(StopIteration):
                next(it)
        state = json.loads(json.dumps(dl.state_dict()))
        other = inside(h264)
        other.load_state_dict(state)
        rest = flat(other)
        assert rest == loader(h264).order(1).tolist()


def test_another_batch_size_and_twice_in_a_row(h264: str) -> None:
    dl = inside(h264)
    it = iter(dl)
    got = flat([next(it) for _ in range(5)])
    for size in (16, 50, 32):
        state = dl.state_dict()
        dl = inside(h264, batch_size=size)
        dl.load_state_dict(state)
        it = iter(dl)
        got += flat([next(it) for _ in range(3)])
    assert got == loader(h264).order(0).tolist()[: len(got)] and len(got) == 5 * 32 + 3 * (
        16 + 50 + 32
    )


def test_epochs_differ_and_repeat(h264: str) -> None:
    dl = inside(h264)
    epochs = [flat(dl) for _ in range(3)]
    assert [sorted(e) for e in epochs] == [sorted(epochs[0])] * 3
    assert len({tuple(e) for e in epochs}) == 3, "persistent use replays no epoch"
    again = inside(h264)
    assert [flat(again) for _ in range(3)] == epochs
    assert flat(inside(h264, seed=6)) != epochs[0]
    it = iter(again)
    next(it)
    assert flat(again) == again.dataset.order(4).tolist(), (
        "a for that was left early counts as an epoch"
    )


def test_set_epoch_after_loading(h264: str) -> None:
    a = loader(h264)
    it = iter(a)
    next(it)
    state = a.state_dict()
    b = loader(h264)
    b.load_state_dict(state)
    b.set_epoch(0)  # as training loops do
    assert flat(b) == a.order(0)[32:].tolist()
    b.set_epoch(0)
    assert flat(b) == a.order(0).tolist()


def test_a_plain_dataloader(h264: str) -> None:
    dl = torch.utils.data.DataLoader(loader(h264), batch_size=None, num_workers=0)
    assert flat(dl) == loader(h264).order(0).tolist() and len(dl) == len(loader(h264))
    with pytest.raises(robocache.Misuse, match="needs no workers"):
        list(torch.utils.data.DataLoader(loader(h264), batch_size=None, num_workers=2))


@pytest.mark.slow
def test_map_dataset_in_a_stateful_dataloader(h264: str) -> None:
    def make() -> StatefulDataLoader:
        m = robocache.MapDataset(h264, keys=["index", "action"])
        return StatefulDataLoader(
            m,
            batch_size=16,
            shuffle=True,
            num_workers=2,
            generator=torch.Generator().manual_seed(3),
            multiprocessing_context="fork",
        )

    dl = make()
    it = iter(dl)
    for _ in range(3):
        next(it)
    state = dl.state_dict()
    rest = flat(it)
    other = make()
    other.load_state_dict(state)
    assert flat(other) == rest
