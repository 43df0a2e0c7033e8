"""Delivery of batches from the engine to Python.

Covers signals, release of memory, strings, arrays without torch, and forks.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import pytest

import robocache
from robocache import _engine
from robocache._batches import HostBatches

torch = pytest.importorskip("torch", reason="torch is not installed")
NUMBERS = ["action", "index", "observation.state", "task"]


def test_a_batch_that_did_not_arrive_is_given_again(
    h264: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = robocache.Loader(h264, batch_size=16, keys=NUMBERS, seed=4)
    order = loader.order(0).tolist()
    it = iter(loader)
    assert next(it)["index"].tolist() == order[:16]
    e = loader._batches._engine
    real, hits = e.arrived, []

    def interrupted(batch: int) -> None:
        hits.append(batch)
        raise KeyboardInterrupt

    for _ in range(3):
        monkeypatch.setattr(e, "arrived", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(it)
        monkeypatch.setattr(e, "arrived", real)
        assert loader.state_dict()["position"] == 16, "an interrupted batch does not count"
    assert len(set(hits)) == 1, "the same batch is redelivered each time"
    gc.collect()
    again = next(it)
    assert again["index"].tolist() == order[16:32] and loader.state_dict()["position"] == 32
    # If a batch was delivered but never acknowledged, set_epoch and close release its memory.
    monkeypatch.setattr(e, "arrived", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(it)
    monkeypatch.setattr(e, "arrived", real)
    loader.set_epoch(3)
    assert next(iter(loader))["index"].tolist() == loader.order(3)[:16].tolist()
    del again
    gc.collect()
    with pytest.raises(robocache.Misuse, match="taken|closed|moved"):
        taken = loader._batches
        monkeypatch.setattr(taken, "_engine", _Closing(e, loader))
        taken.next()


class _Closing:
    """An engine whose loader is closed by another thread before the tensors are made."""

    def __init__(self, engine: _engine.Engine, loader: robocache.Loader) -> None:
        self.engine, self.loader = engine, loader

    def capsules(self, batch: int) -> list:
        self.loader.close()
        return self.engine.capsules(batch)


@pytest.mark.slow
def test_signals_at_any_moment(script, h264: str) -> None:  # type: ignore[no-untyped-def]
    """No signal causes a lost or repeated batch.

    A handler raises an exception every half millisecond, at any place. No batch may be delivered
    twice. A batch that the caller did not receive must be counted in the position.
    """
    r = script(
        """
        import gc, signal, sys, time, torch, robocache
        loader = robocache.Loader(sys.argv[1], batch_size=8, keys=["index", "action", "task"], seed=1, threads=2)
        order = {e: loader.order(e).tolist() for e in range(600)}
        class Hit(Exception): pass
        armed = False
        def strike(*a):
            global armed
            if armed:
                # Python 3.10 handles signals inside a handler, so one at a time.
                armed = False
                raise Hit
        signal.signal(signal.SIGALRM, strike)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        hits = gaps = given = ends = 0
        t = time.monotonic()
        while (hits <= 2000 or given <= 100 or ends <= 1) and time.monotonic() - t < 60 and ends < 590:
            it = iter(loader)
            epoch, at = loader.epoch, 0
            while True:
                b = None
                try:
                    armed = True
                    b = next(it, False)
                    armed = False
                except Hit:
                    armed = False
                    hits += 1
                if b is False:
                    break
                if b is None:
                    s = loader.state_dict()
                    here = s["position"] if s["epoch"] == epoch else len(order[epoch])
                    gaps += here != at     # acknowledged, but interrupted before next() returned
                    assert at <= here <= at + 8, (at, here)
                    at = here
                    continue
                got = b["index"].tolist()
                assert got == order[epoch][at:at + 8] and len(b["task"]) == len(got), (epoch, at, got)
                at += len(got); given += 1
            assert at == len(order[epoch]), "the epoch ended early"
            ends += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        del b, it; gc.collect()
        used = loader.stats()["buffer_bytes"]
        loader.close()
        print("hits", hits, "gaps", gaps, "given", given, "ends", ends, "bytes", used)
        assert hits > 100 and given > 100 and ends > 1 and used < 4 << 20
        """,
        h264,
    )
    assert r.returncode == 0, r.stdout + r.stderr


def test_memory_comes_back_tensor_by_tensor(h264: str) -> None:
    """A small tensor that is kept does not keep the images of its batch in memory."""
    cam = "observation.images.cam_high"
    loader = robocache.Loader(
        h264,
        batch_size=16,
        keys=[cam, "index"],
        runtime=robocache.Runtime(prefetch=1),
        drop_last=True,
    )
    batches = [b for b, _ in zip(iter(loader), range(6))]
    held = loader.stats()["buffer_bytes"]
    size = batches[0][cam].nbytes
    assert size >= 128 << 10
    kept = [b.pop("index") for b in batches]
    del batches
    gc.collect()
    deadline = time.monotonic() + 60
    while loader.stats()["buffer_bytes"] > held - 5 * size and time.monotonic() < deadline:
        time.sleep(0.05)
    assert loader.stats()["buffer_bytes"] <= held - 5 * size
    assert torch.cat(kept).tolist() == loader.order(0)[: 16 * 6].tolist()


def test_tensors_are_the_users(h264: str) -> None:
    """Tensors are writable, own their storage, outlive the loader; any thread can free them."""
    loader = robocache.Loader(h264, batch_size=8, keys=NUMBERS)
    b = next(iter(loader))
    other = next(iter(loader))
    assert b["action"].untyped_storage().nbytes() == b["action"].nbytes, (
        "a saved tensor must not contain others"
    )
    b["action"].add_(1)
    before = {k: v.clone() for k, v in b.items() if k != "task"}
    loader.close()
    del other
    gc.collect()
    assert all(torch.equal(v, b[k]) for k, v in before.items())
    t = threading.Thread(target=b.clear)
    t.start()
    t.join()
    assert not b


@pytest.mark.slow
def test_without_torch_as_with_it(script, h264: str) -> None:  # type: ignore[no-untyped-def]
    text = """
        import hashlib, sys
        if sys.argv[2] == "numpy": sys.modules["torch"] = None
        import numpy as np, robocache
        h = hashlib.sha256()
        with robocache.Loader(sys.argv[1], batch_size=24, seed=3, image_size=(24, 32), delta_timestamps={"action": [0.0, 1/30]}) as loader:
            batches = [dict(b) for b, _ in zip(loader, range(5))]
        for b in batches:
            for k, v in b.items():
                if not isinstance(v, list):
                    a = np.asarray(v)
                    assert a.flags.c_contiguous and (not isinstance(v, np.ndarray) or v.flags.writeable)
                    h.update(str((k, a.dtype, a.shape)).encode() + a.tobytes())
                else:
                    h.update(repr((k, v)).encode())
        print(h.hexdigest())
        """
    with_it, without = script(text, h264, "torch"), script(text, h264, "numpy")
    assert with_it.returncode == 0 and without.returncode == 0, with_it.stderr + without.stderr
    assert with_it.stdout == without.stdout and len(with_it.stdout) > 60


def test_texts() -> None:
    """Strings have the binary layout that robocache.h documents."""
    import struct

    def column(values: list[str]) -> bytes:
        distinct = list(dict.fromkeys(values))
        raw = [t.encode() for t in distinct]
        blob = struct.pack("<ii", len(raw), sum(map(len, raw))) + struct.pack(
            f"<{len(raw)}i", *map(len, raw)
        )
        if len(raw) > 1:
            blob += struct.pack(f"<{len(values)}i", *map(distinct.index, values))
        blob += b"".join(raw)
        return blob + b"\0" * (-len(blob) % 4)

    b = HostBatches.__new__(HostBatches)
    b._texts = [(1, False), (2, True), (3, False)]
    tasks, events, empty = (
        ["größer", "öl", "größer"],
        ['{"a": [1]}', '{"a": [1]}', "null"],
        ["", "", ""],
    )
    out: list = ["tensor"]
    for place, values in b._read_texts(3, column(tasks) + column(events) + column(empty)):
        out.insert(place, values)
    assert out == ["tensor", tasks, [{"a": [1]}, {"a": [1]}, None], empty]
    out[2][0]["a"].append(2)
    assert out[2][1] == {"a": [1]}, "rows must not share objects"


def test_tensors_in_a_forked_child(h264: str) -> None:
    """A forked child may hold and drop the parent's tensors without releasing their memory."""
    loader = robocache.Loader(h264, batch_size=8, keys=NUMBERS)
    b = next(iter(loader))
    want = b["action"].sum().item()
    pid = os.fork()
    if pid == 0:
        ok = b["action"].sum().item() == want
        b.clear()
        gc.collect()
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert b["action"].sum().item() == want and len(next(iter(loader))["index"]) == 8


def test_two_threads_take_turns(h264: str) -> None:
    loader = robocache.Loader(h264, batch_size=8, keys=["index"], threads=2)
    it, got = iter(loader), []

    def take() -> None:
        for b in it:
            got.append(b["index"].tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert sorted(sum(got, [])) == list(range(loader.num_samples))


def test_a_late_thread_gets_nothing_of_the_next_epoch(
    h264: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed thread receives no batch of the next epoch.

    The thread requests the first batch and is then suspended while another thread consumes the
    epoch.
    """
    loader = robocache.Loader(h264, batch_size=8, keys=["index"], threads=2)
    it, got, asked, go, take = (
        iter(loader),
        [],
        threading.Event(),
        threading.Event(),
        loader._next_batch,
    )

    def held_up(epoch: int) -> Any:
        if not asked.is_set():
            asked.set()
            go.wait(60)
        return take(epoch)

    monkeypatch.setattr(loader, "_next_batch", held_up)
    late, other = (
        threading.Thread(target=lambda: got.extend(i for b in it for i in b["index"].tolist()))
        for _ in range(2)
    )
    late.start()
    asked.wait(60)
    other.start()
    other.join(1)
    go.set()
    late.join(60)
    other.join(60)
    assert sorted(got) == list(range(loader.num_samples))
