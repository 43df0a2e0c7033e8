"""fork, forkserver and spawn: datasets work in child processes.

This also holds if the parent has used the engine. Objects that cannot be used in a child raise a
clear error.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable

import pytest

import robocache

# Python warns about each fork of a process with threads. These tests check that such forks work.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
torch = pytest.importorskip("torch", reason="torch is not installed")
from torch.utils.data import DataLoader  # noqa: E402


def in_child(f: Callable[[], object], timeout: float = 300) -> object:
    """Returns the result of f in a forked child. A child that hangs is killed and fails."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(w, pickle.dumps(f()))
            os._exit(0)
        except BaseException as e:  # noqa: BLE001 - the child must not return into pytest
            os.write(w, pickle.dumps(e))
            os._exit(1)
    os.close(w)
    chunks: list[bytes] = []
    reader = threading.Thread(target=lambda: chunks.extend(iter(lambda: os.read(r, 1 << 16), b"")))
    reader.start()
    reader.join(timeout)
    hung = reader.is_alive()
    if hung:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    reader.join()
    os.close(r)
    assert not hung, "the child hangs"
    value = pickle.loads(b"".join(chunks))
    if isinstance(value, BaseException):
        raise value
    return value


def small(path: str, **kwargs: object) -> robocache.MapDataset:
    return robocache.MapDataset(path, image_size=(48, 64), **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.slow
def test_dataloader_workers(h264: str, method: str) -> None:
    """Two workers and two epochs give the same batches as no workers.

    Before that, the parent reads an item and has a Loader running.
    """
    ds = small(h264, episodes=[0, 1], delta_timestamps={"action": [0.0, 1 / 30]})
    first = ds[0]
    with robocache.Loader(h264, batch_size=4, threads=2) as running:
        next(iter(running))
        dl = DataLoader(
            ds,
            batch_size=32,
            num_workers=2,
            multiprocessing_context=method,
            shuffle=False,
            persistent_workers=True,
        )
        for _ in range(2):
            n = 0
            for b in dl:
                if n == 0:
                    for k, v in first.items():
                        assert b[k][0] == v if isinstance(v, str) else torch.equal(b[k][0], v), k
                assert torch.equal(b["index"], torch.arange(n, n + len(b["index"])))
                n += len(b["index"])
            assert n == len(ds)
        del dl
        assert next(iter(running))["index"].shape == (4,)
    assert torch.equal(ds[0]["index"], first["index"])


@pytest.mark.slow
def test_several_epochs_of_fresh_workers(h264: str) -> None:
    ds = small(h264, episodes=[0])
    _ = ds[3]
    for _ in range(3):
        assert sum(
            len(b["index"])
            for b in DataLoader(ds, batch_size=50, num_workers=2, multiprocessing_context="fork")
        ) == len(ds)


def test_everything_reopens_in_a_child(h264: str) -> None:
    ds = robocache.open(h264)
    ep = ds.episode(1)
    m, lr = small(h264), robocache.LeRobotDataset(h264, image_size=(48, 64))
    state = ep.streams["observation.state"].values
    item, theirs = m[5]["observation.state"], lr[5]["observation.state"]

    def child() -> bool:
        import numpy as np

        fresh = robocache.open(h264)
        return (
            np.array_equal(ep.streams["observation.state"].values, state)
            and torch.equal(m[5]["observation.state"], item)
            and torch.equal(lr[5]["observation.state"], theirs)
            and lr.hf_dataset[5]["index"].item() == 5
            and fresh.num_frames == ds.num_frames
            and len(ds.stats) > 0
        )

    assert in_child(child)
    assert torch.equal(m[5]["observation.state"], item)


@pytest.mark.slow
def test_nested_forks_while_goroutines_run(h264: str) -> None:
    """Workers start workers of their own repeatedly while the parent decodes."""
    m = small(h264)
    want = m[7]["action"]
    stop = threading.Event()

    def busy() -> None:
        with robocache.Loader(h264, batch_size=8, threads=2, image_size=(48, 64)) as loader:
            while not stop.is_set():
                for _ in loader:
                    if stop.is_set():
                        break

    t = threading.Thread(target=busy)
    t.start()

    def nested(depth: int) -> bool:
        good = torch.equal(m[7]["action"], want)
        return good and (depth == 0 or bool(in_child(lambda: nested(depth - 1))))

    try:
        for _ in range(6):
            assert in_child(lambda: nested(3))
    finally:
        stop.set()
        t.join()
    assert torch.equal(m[7]["action"], want)


def test_a_loader_in_use_does_not_cross(h264: str) -> None:
    loader = robocache.Loader(h264, batch_size=16, keys=["action", "index"])
    it = iter(loader)
    batch = next(it)
    kept = batch["action"].clone()

    def child() -> bool:
        for use in (
            lambda: next(it),
            lambda: loader.state_dict(),
            lambda: next(iter(loader)),
            loader.stats,
        ):
            with pytest.raises(robocache.ForkError) as e:
                use()
            assert "child" in e.value.hint
        # the child can read the memory of a batch that the parent received
        return torch.equal(batch["action"], kept)

    assert in_child(child)
    assert next(it)["action"].shape == batch["action"].shape
    loader.close()


def test_an_unused_loader_starts_in_the_child(h264: str) -> None:
    loader = robocache.Loader(h264, batch_size=16, keys=["index"], seed=4)
    want = robocache.Loader(h264, batch_size=16, keys=["index"], seed=4)
    expected = next(iter(want))["index"]
    assert in_child(lambda: torch.equal(next(iter(loader))["index"], expected))


def test_finalizers_of_inherited_objects_do_nothing(h264: str) -> None:
    """Finalizers of inherited objects do not call the parent's engine in the child."""
    held = [robocache.open(h264), small(h264), small(h264)[0], robocache.Loader(h264, batch_size=4)]
    held.append(next(iter(held[3])))

    def child() -> bool:
        import gc

        held.clear()
        gc.collect()
        return robocache.open(h264).num_episodes > 0

    assert in_child(child)
    assert len(held) == 5


def test_pickle(h264: str) -> None:
    m = small(h264, episodes=[1], keys=["action", "task"])
    assert len(pickle.dumps(m)) < 20_000
    twin = pickle.loads(pickle.dumps(m))
    assert len(twin) == len(m) and torch.equal(twin[3]["action"], m[3]["action"])
    lr = pickle.loads(pickle.dumps(robocache.LeRobotDataset(h264)))
    assert lr[2]["index"] == 2 and lr.fps == 30
    assert pickle.loads(pickle.dumps(robocache.open(h264))).num_episodes > 0
    loader = pickle.loads(
        pickle.dumps(robocache.Loader(h264, batch_size=8, keys=["index"], seed=3))
    )
    assert torch.equal(
        next(iter(loader))["index"],
        next(iter(robocache.Loader(h264, batch_size=8, keys=["index"], seed=3)))["index"],
    )


def test_without_memfd(h264: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel gives no executable memfd, the private copy is a temporary file.

    The file is removed at once.
    """
    import tempfile

    m = small(h264, keys=["index"])
    _ = m[0]
    monkeypatch.setattr(
        os, "memfd_create", lambda *a: (_ for _ in ()).throw(PermissionError("no memfd"))
    )
    assert in_child(lambda: int(m[4]["index"])) == 4
    assert not [f for f in os.listdir(tempfile.gettempdir()) if f.startswith("librobocache-")]


def test_a_lock_held_at_the_fork(h264: str) -> None:
    """A lock held by another thread at the fork does not block the child.

    The thread that holds it does not exist in the child.
    """
    from robocache import _engine

    m = small(h264, keys=["index"])
    handle = m._map
    _ = m[0]
    with_lock = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with handle._mutex, _engine._lock:
            with_lock.set()
            done.wait(30)

    t = threading.Thread(target=hold)
    t.start()
    with_lock.wait()
    try:
        assert in_child(lambda: int(m[2]["index"])) == 2
    finally:
        done.set()
        t.join()


def test_worker_errors_name_their_place(  # type: ignore[no-untyped-def]
    h264: str, tmp_path
) -> None:
    """Our exceptions keep their class when a DataLoader worker raises them."""
    import shutil

    copy = tmp_path / "broken"
    shutil.copytree(h264, copy)
    ds = small(str(copy))
    for f in copy.rglob("*.mp4"):
        f.unlink()
    with pytest.raises(robocache.Malformed, match="it has no video file"):
        for _ in DataLoader(ds, batch_size=4, num_workers=1, multiprocessing_context="fork"):
            pass


@pytest.mark.slow
def test_worker_errors_of_one_file(h264: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import shutil

    copy = tmp_path / "truncated"
    shutil.copytree(h264, copy)
    for f in copy.rglob("*.mp4"):
        f.write_bytes(f.read_bytes()[: f.stat().st_size * 2 // 3])
    with pytest.raises(robocache.Error) as e:  # the error is raised at opening or at an item
        ds = small(str(copy))
        for _ in DataLoader(ds, batch_size=64, num_workers=1, multiprocessing_context="fork"):
            pass
    assert "mp4" in str(e.value)


@pytest.mark.slow
def test_many_forks_leave_nothing(h264: str) -> None:
    m = small(h264, keys=["index"])
    _ = m[0]
    before = len(os.listdir("/proc/self/fd"))
    for i in range(10):
        assert in_child(lambda i=i: int(m[i]["index"])) == i
    assert len(os.listdir("/proc/self/fd")) <= before + 1
