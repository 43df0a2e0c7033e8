"""Page-locked batches on the host, tested without a device.

test_cuda.py tests a real device.
"""

from __future__ import annotations

import ctypes
import types

import pytest

import robocache
from robocache import _device, _memory

from fake_cuda import Caller, Event

torch = pytest.importorskip("torch", reason="torch is not installed")
KEYS = ["action", "index", "task"]
main = Caller()


@pytest.mark.parametrize("view", [False, True])
def test_page_locked_batches_stay_until_late_copies_have_read_them(h264: str, view: bool) -> None:
    """With pin_memory=True a buffer is not reused before late copies have read it.

    The user calls v.to(device, non_blocking=True) and drops the batch at once.
    """
    main.run()
    loader = robocache.Loader(
        h264, keys=KEYS, batch_size=8, threads=1, runtime=robocache.Runtime(prefetch=1)
    )
    cuda = types.SimpleNamespace(
        Event=Event, current_stream=lambda d: main, synchronize=lambda d: main.run()
    )
    held = loader._batches = _device.PinnedBatches(
        loader._batch_source(), types.SimpleNamespace(cuda=cuda, _C=torch._C, empty=torch.empty), 0
    )
    want, got, late, at_user = [], [], [], []
    for n, b in enumerate(loader):
        assert loader._batches is held
        at_user.append(b["index"][2:] if view else b["index"])
        if len(at_user) <= 3:
            continue
        t = at_user.pop(0)  # three batches later
        want.append(t.clone())
        out = torch.zeros_like(t)
        late.append(t.data_ptr())
        main.work.append(
            lambda out=out, at=t.data_ptr(), size=t.nbytes: ctypes.memmove(out.data_ptr(), at, size)
        )
        got.append(out)
        del t
        if n % 6 == 5:
            main.run()
        assert len(held._releasing) <= 8 and len(held._delivered) <= 8 * 4, (
            "buffers are released after the copy"
        )
    del b
    loader.close()
    assert not main.work, "closing waits for the device"
    assert all(torch.equal(a, w) for a, w in zip(got, want)) and len(want) > 20
    assert len(set(late)) < len(late), "buffers are reused"
    assert not held._delivered and not held._releasing


def test_tensors_that_a_user_collects_are_looked_at_in_turns(
    h264: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_device.PinnedBatches, "_MAX_EXAMINED", 4)
    loader = robocache.Loader(h264, keys=KEYS, batch_size=8)
    cuda = types.SimpleNamespace(
        Event=Event, current_stream=lambda d: main, synchronize=lambda d: main.run()
    )
    held = loader._batches = _device.PinnedBatches(
        loader._batch_source(), types.SimpleNamespace(cuda=cuda, _C=torch._C, empty=torch.empty), 0
    )
    mine = [b["index"] for b in loader]
    assert len(held._older) > 8
    n = len(mine)
    mine.clear()
    for _ in range(n):
        held._release_unused()
        main.run()
    assert len(held._delivered) + len(held._older) == 0


def test_asking_for_a_device_that_is_not_there(h264: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    for kwargs in (
        {"device": "cuda"},
        {"device": "cuda:3"},
        {"device": robocache.Device(pin_memory=True)},
        {"device": torch.device("cuda")},
    ):
        with pytest.raises(robocache.Unsupported, match="CUDA"):
            robocache.Loader(h264, **kwargs)
    with pytest.raises(robocache.Unsupported, match="CPU or CUDA"):
        robocache.Loader(h264, device="meta")
    with pytest.raises(robocache.Misuse):
        robocache.Loader(h264, device="gpu")
    assert robocache.Loader(h264, device=robocache.Device(pin_memory=False)).pin_memory is False


def test_page_locked_by_default_where_the_driver_gives_it(
    h264: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a device, page-locked memory is the default if the driver provides it.

    Without a driver ordinary memory is used, unless page-locked memory was requested explicitly.
    """
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    loader = robocache.Loader(h264, device="cuda", keys=KEYS)
    assert (
        loader._target.device == torch.device("cuda", 1)
        and not loader.pin_memory
        and loader.stats()["pinned"] is False
    )
    with pytest.raises(robocache.Unsupported, match="driver"):
        robocache.Loader(h264, device=robocache.Device("cuda", pin_memory=True), keys=KEYS)
    with pytest.raises(robocache.Unsupported, match="2 CUDA devices"):
        robocache.Loader(h264, device="cuda:2", keys=KEYS)
    assert _memory.torch_module() is torch
