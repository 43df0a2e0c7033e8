"""Batches on a device, without one: a stand-in for torch.cuda whose copies run late, when the test says so.

What a real device does is in test_cuda.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import json
import types

import pytest

import robocache
from robocache import _device, _finish, _memory

torch = pytest.importorskip("torch", reason="torch is not installed")
KEYS = ["action", "index", "task"]
CAMERA_KEYS = ["action", "observation.state", "observation.images.cam_high"]
AUGMENT = {
    "random_crop": {"size": (90, 93), "pad": 3},
    "color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1},
    "hflip": {"p": 0.5, "negate": {"action": [0]}, "keep": ["observation.state"]},
    "noise": {"std": {"": 0.03, "action": 0.01}},
}


class Stream:
    """Work in order; it runs when somebody waits for it."""

    def __init__(self, device: object = None) -> None:
        self.work: list = []
        self.cuda_stream = 0

    def run(self, n: int | None = None) -> None:
        n = len(self.work) if n is None else n
        for f in self.work[:n]:
            f()
        del self.work[:n]

    def wait_event(self, event: Event) -> None:
        self.work.append(event.waiter())

    def synchronize(self) -> None:
        self.run()


class Caller(Stream):
    """Of a test, which reads what it is given at once."""

    def wait_event(self, event: Event) -> None:
        event.synchronize()


class Event:
    """As a device's: where it is recorded anew, it stands for the later place, and who waits already waits for the earlier."""

    def __init__(self, blocking: bool = False) -> None:
        self.places: list[Place] = []

    def record(self, stream: Stream) -> None:
        self.places = [Place(stream)]

    def query(self) -> bool:
        return all(p.done for p in self.places)

    def waiter(self):  # type: ignore[no-untyped-def]
        return lambda places=self.places: [p.reach() for p in places]

    def synchronize(self) -> None:
        self.waiter()()


class Place:
    """In the work of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.done, self.stream = False, stream
        stream.work.append(lambda: setattr(self, "done", True))

    def reach(self) -> None:
        while not self.done:
            self.stream.run(1)


class Late(_device.Device):
    """Copies that read the host's memory as late as a device may."""

    def _move(self, to, host) -> None:  # type: ignore[no-untyped-def]
        for out, v in zip(to, host, strict=True):
            self._stream.work.append(lambda to=out.data_ptr(), place=(v.data_ptr(), v.nbytes): ctypes.memmove(to, *place))  # addresses: the tensors may be gone by then

    def _in_use(self, v, stream) -> None:  # type: ignore[no-untyped-def]
        assert stream is caller.stream
        used.append(v)


def empty(shape, dtype, device):  # type: ignore[no-untyped-def]
    return torch.full(shape, dtype != torch.bool and 77, dtype=dtype)


class LateFinisher(_finish.Finisher):
    """The launch too runs when somebody waits for its stream."""

    def _launch(self, plan, moved, made, stream) -> None:  # type: ignore[no-untyped-def]
        launch = super()._launch
        assert all(m.dtype == torch.uint8 for m in moved)
        self.queue.append(lambda: launch(plan, moved, made, stream))


main = Caller()
caller = types.SimpleNamespace(stream=main)
used: list = []


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Loaders of the test give their batches through Late."""
    cuda = types.SimpleNamespace(Stream=Stream, Event=Event, stream=lambda s: contextlib.nullcontext(), current_stream=lambda d: caller.stream)
    used.clear()
    main.run()

    def make(path: str, raw: bool = False, **kwargs) -> robocache.Loader:  # type: ignore[no-untyped-def]
        loader = robocache.Loader(path, **{"keys": KEYS, "batch_size": 32, "seed": 5, **kwargs})
        if raw:
            loader._config["raw"] = True
            loader._kernels = {"backend": "cpu", "device": 0}
            loader._fresh()
        real = robocache.Loader._taker

        def taker(self):  # type: ignore[no-untyped-def]
            if not isinstance(self._batches, Late):
                batches = real(self)
                finisher = None
                if self._raw:
                    finisher = LateFinisher(self._open(), torch, "cpu", self._kernels)
                self._batches = Late(batches, types.SimpleNamespace(cuda=cuda, empty=empty), "device", finisher)
                if finisher is not None:
                    finisher.queue = self._batches._stream.work
            return self._batches

        monkeypatch.setattr(loader, "_taker", taker.__get__(loader))
        return loader

    return make


def plain(path: str, **kwargs) -> robocache.Loader:  # type: ignore[no-untyped-def]
    return robocache.Loader(path, **{"keys": KEYS, "batch_size": 32, "seed": 5, **kwargs})


def surely_ahead(loader: robocache.Loader) -> None:
    """One batch ahead, its copy begun, also where it was not finished in time."""
    d = loader._batches
    if not d._ahead:
        d._batches.next(0, into=d._ahead)
        d._send(d._ahead[0], main)


def test_batches_are_those_of_the_host(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    loader, twin = late(h264), plain(h264)
    for _ in range(2):
        n = 0
        for a, b in zip(loader, twin, strict=True):
            assert list(a) == list(b) and a["task"] == b["task"]
            assert all(torch.equal(a[k], b[k]) for k in ("action", "index"))
            n += 1
        assert n == len(loader)
    assert not used, "their memory is the caller's stream's"


def test_a_caller_who_changes_the_stream(h264: str, late, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """A batch whose copy was begun for one stream is noted on the one that it is given on."""
    loader = late(h264)
    it = iter(loader)
    next(it)
    for want in loader.order(0)[32:320].reshape(-1, 32).tolist():
        surely_ahead(loader)
        began = loader._batches._ahead[0].copy.stream
        monkeypatch.setattr(caller, "stream", Caller())
        used.clear()
        b = next(it)
        assert b["index"].tolist() == want
        assert began is not caller.stream and len(used) == 2 and used[0] is b["action"] and used[1] is b["index"]


def test_copies_come_after_what_the_caller_began(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    """The memory of a batch that was dropped is given out again while work that reads it is still to be done."""
    loader = late(h264)
    it = iter(loader)
    next(it)
    device, log = loader._batches, []
    real = device._move

    def move(to, host) -> None:  # type: ignore[no-untyped-def]
        device._stream.work.append(lambda step=step: log.append(("copy", step)))
        real(to, host)

    device._move = move
    for step in range(20):
        main.work.append(lambda step=step: log.append(("step", step)))
        next(it)
    device._stream.run()
    copies = [(at, step) for at, (what, step) in enumerate(log) if what == "copy"]
    assert len(copies) >= 20
    assert all(("step", step) in log[:at] for at, step in copies)


@pytest.mark.parametrize("place", ["_send", "_copy", "_in_use"])
def test_a_lost_device_is_temporary(h264: str, late, place: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264)
    it = iter(loader)
    next(it)
    monkeypatch.setattr(caller, "stream", Caller())
    said = ["CUDA error: device-side assert triggered"]

    def fail(*args: object) -> None:
        raise RuntimeError(said[0])

    with monkeypatch.context() as m:
        m.setattr(loader._batches, place, fail)
        if place == "_in_use":
            surely_ahead(loader)
        with pytest.raises(robocache.Temporary, match="device-side assert") as e:
            next(it)
        assert "state_dict" in e.value.hint
        for other in ("CUDA out of memory", "CUDA error: operation not permitted when stream is capturing"):
            said[0] = other
            with pytest.raises(RuntimeError, match=other) as e:
                next(it)
            assert not isinstance(e.value, robocache.Error)
    assert next(it)["index"].tolist() == loader.order(0)[32:64].tolist()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"image_dtype": "float32"},
        {"image_dtype": "float32", "normalize": "mean_std"},
        {"hz": 20, "normalize": {"action": {"mode": "min_max", "clip": True}}, "delta_timestamps": {"action": [0.0, 0.1], "observation.state": [-0.2, 0.0]}},
        {"cache": "ram", "image_dtype": "float32"},
        {"keys": CAMERA_KEYS, "augment": AUGMENT, "image_size": (96, 96)},
        {"keys": CAMERA_KEYS, "augment": AUGMENT, "image_size": (96, 96), "image_dtype": "float32", "normalize": "mean_std"},
        {"keys": CAMERA_KEYS, "augment": AUGMENT, "image_size": (96, 96), "image_dtype": "float32", "hz": 20, "align": {"edge": "mask", "extent": "union"}},
    ],
    ids=str,
)
def test_raw_batches_become_those_of_the_host(h264: str, late, how) -> None:  # type: ignore[no-untyped-def]
    """Stored bytes are moved once, and one launch makes the batch of them: equal to the bit to what the host makes."""
    how = {"keys": None, "batch_size": 16, "threads": 2, "episodes": [0], **how}
    loader, twin = late(h264, raw=True, **how), plain(h264, **how)
    for _ in range(2):
        n = 0
        for a, b in zip(loader, twin, strict=True):
            assert list(a) == list(b)
            for k, v in b.items():
                if isinstance(v, list):
                    assert a[k] == v
                    continue
                assert a[k].dtype == v.dtype and a[k].shape == v.shape, k
                assert torch.equal(a[k].view(torch.uint8) if v.is_floating_point() and v.dim() else a[k], v.view(torch.uint8) if v.is_floating_point() and v.dim() else v), k
            n += 1
        assert n == len(loader)
    assert loader.stats()["normalization"] == twin.stats()["normalization"] if "normalization" in twin.stats() else True


def test_raw_mixtures(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    how = {"keys": None, "batch_size": 16, "threads": 2, "image_dtype": "float32", "normalize": "mean_std"}
    mix = [robocache.Mix(h264, weight=2, name="a"), robocache.Mix(h264, weight=1, name="b", hz=15)]
    loader, twin = late(mix, raw=True, **how), plain(mix, **how)
    for n, (a, b) in enumerate(zip(loader, twin, strict=True)):
        for k, v in b.items():
            assert a[k] == v if isinstance(v, list) else torch.equal(a[k], v), k
        if n == 4:
            break


def test_raw_mixtures_of_two_widths(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    """Keys that are padded are finished on the host, beside others that are not."""
    how = {"keys": ["action", "observation.state"], "batch_size": 16, "threads": 2, "normalize": "mean_std", "missing": "pad"}
    dims = {"action": [*range(1, 26), 30]}
    mix = [robocache.Mix(h264, weight=2, name="a"), robocache.Mix(h264, weight=1, name="b", dims=dims)]
    loader, twin = late(mix, raw=True, **how), plain(mix, **how)
    for a, b in itertools.islice(zip(loader, twin, strict=True), 4):
        assert a["action"].shape == (16, 31) and a["action_dim_is_pad"].sum() == 16 * 5
        assert list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in b)


def test_host_memory_stays_until_it_was_read(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    """The copy of the batch ahead reads its source long after; by then the engine has made many others."""
    loader = late(h264, batch_size=8, prefetch=8)
    want = [b["index"].clone() for b in plain(h264, batch_size=8)]
    got = []
    for b in loader:
        got.append(b["index"])
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert len(loader._batches._behind) <= 2


def test_a_host_far_ahead_of_the_device(h264: str, late, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Copies wait for the caller's stream, whose work nobody waits for here: what they are copied from stays, and is not collected."""
    loader = late(h264, batch_size=8, prefetch=8)
    monkeypatch.setattr(caller, "stream", Stream())
    got = []
    for b in loader:
        got.append(b)  # whole: memory of torch's here is not given out in the order of a stream
        assert len(loader._batches._behind) <= 3
    caller.stream.run()
    assert torch.cat([b["index"] for b in got]).tolist() == loader.order(0).tolist()


def test_state_counts_what_was_given(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    loader, twin = late(h264), plain(h264)
    a, b = iter(loader), iter(twin)
    for step in range(len(twin) - 1):
        next(a), next(b)
        assert loader.state_dict() == twin.state_dict(), step
        assert loader.epoch == twin.epoch
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [x["index"].tolist() for x in a]
    again = late(h264)
    again.load_state_dict(state)
    assert [x["index"].tolist() for x in again] == rest
    assert loader.state_dict() == again.state_dict()


def test_going_elsewhere_drops_what_was_ahead(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264)
    it = iter(loader)
    next(it), next(it)
    loader.set_epoch(0)
    assert torch.equal(next(iter(loader))["index"], next(iter(plain(h264)))["index"])
    second = [b["index"].tolist() for b in loader]  # that `for` was left early: the next epoch
    assert sum(second, []) == loader.order(1).tolist()
    state = loader.state_dict()
    next(iter(loader))
    loader.load_state_dict(state)
    assert next(iter(loader))["index"].tolist() == loader.order(2)[:32].tolist()
    loader.close()
    assert not loader._batches


def test_a_for_that_stops_at_the_last_batch(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    """range() beside the loader never asks for the end: the next `for` is the next epoch, not the one after."""
    for loader in (late(h264), plain(h264)):
        for e in range(3):
            got = [b["index"].tolist() for _, b in zip(range(len(loader)), loader)]
            assert sum(got, []) == loader.order(e).tolist()


def test_the_next_epoch_begins_ahead(h264: str, late, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """From the second epoch on the copy of the next one's first batch is under way with this one's last; a state, epoch and set_epoch do not tell."""
    loader, twin = late(h264, batch_size=64), plain(h264, batch_size=64)
    ahead = []
    for e in range(6):
        if e % 2:
            loader.set_epoch(e)
        a, b = iter(loader), iter(twin)
        for k, (x, y) in enumerate(zip(range(len(twin)), b)):
            batch = next(a)
            if e == k == 0:  # what is taken ahead is waited for
                source = loader._batches._batches
                monkeypatch.setattr(source, "next", lambda epoch=-1, wait=True, into=None, real=source.next: real(epoch, True, into))
            assert torch.equal(batch["index"], y["index"])
            assert loader.epoch == twin.epoch and loader.state_dict() == twin.state_dict(), (e, k)
        ahead.append(loader._batches.waiting)
        if e % 3:  # else, as Lightning does, the end is not asked for
            assert next(a, None) is None and next(a, None) is None
        assert next(b, None) is None
        assert loader.epoch == twin.epoch == e + 1 and loader.state_dict() == twin.state_dict()
    assert ahead == [None, 2, 3, 4, 5, 6]
    loader.set_epoch(6)
    assert next(iter(loader))["index"].tolist() == loader.order(6)[:64].tolist()
    loader.set_epoch(6)
    assert next(iter(loader))["index"].tolist() == loader.order(6)[:64].tolist()
    loader.set_epoch(9)
    assert next(iter(loader))["index"].tolist() == loader.order(9)[:64].tolist()


def test_exceptions_lose_nothing(h264: str, late, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264, batch_size=16)
    want = loader.order(0).tolist()
    it = iter(loader)
    got = next(it)["index"].tolist()
    device = loader._batches
    real = device._move

    def strike(*args: object) -> None:
        raise KeyboardInterrupt

    def half(to, host) -> None:  # type: ignore[no-untyped-def]
        real(to[:1], host[:1])
        raise KeyboardInterrupt

    strikes = [("_send", strike), ("_in_use", strike), ("_copy", strike), ("_move", half)]
    for n in range(40):
        place, how = strikes[n % 4]
        if place == "_in_use":
            surely_ahead(loader)
        with monkeypatch.context() as m:
            m.setattr(device, place, how)
            m.setattr(caller, "stream", Caller())  # or nothing is noted there
            try:
                b = next(it)
            except KeyboardInterrupt:
                assert loader.state_dict()["position"] == len(got)
                assert place != "_move" or not device._stream.work, "a copy is under way into memory that may be given out again"
            else:
                assert device._ahead == [] or place != "_in_use", "the strike had no effect"
                got += b["index"].tolist()
    got += sum((b["index"].tolist() for b in it), [])
    assert got == want


def test_an_error_ahead_comes_with_its_own_batch(h264: str, late, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264)
    it = iter(loader)
    next(it)
    surely_ahead(loader)
    source = loader._batches._batches
    real = source.next

    def failing(*args: object, **kwargs: object) -> object:
        raise robocache.Temporary("the store is away")

    monkeypatch.setattr(source, "next", failing)
    next(it)  # it was ahead already
    with pytest.raises(robocache.Temporary):
        next(it)
    monkeypatch.setattr(source, "next", real)
    assert next(it)["index"].tolist() == loader.order(0)[64:96].tolist()


def test_unsent_batches_and_collected_loaders(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264)
    next(iter(loader))
    surely_ahead(loader)
    stream = loader._batches._stream
    assert stream.work, "a copy is under way"
    loader._batches = None  # as when the loader is collected, which the stand-in keeps
    gc.collect()
    assert not stream.work, "it was waited for before its source went"


@pytest.mark.parametrize("view", [False, True])
def test_page_locked_batches_stay_until_late_copies_have_read_them(h264: str, view: bool) -> None:
    """pin_memory=True on the host, and v.to(device, non_blocking=True) by the user, who drops the batch at once."""
    main.run()
    loader = plain(h264, batch_size=8, threads=1, prefetch=1)
    cuda = types.SimpleNamespace(Event=Event, current_stream=lambda d: main, synchronize=lambda d: main.run())
    held = loader._batches = _device.PageLocked(loader._taker(), types.SimpleNamespace(cuda=cuda, _C=torch._C, empty=torch.empty), 0)
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
        main.work.append(lambda out=out, at=t.data_ptr(), size=t.nbytes: ctypes.memmove(out.data_ptr(), at, size))
        got.append(out)
        del t
        if n % 6 == 5:
            main.run()
        assert len(held._left) <= 8 and len(held._given) <= 8 * 4, "what was read goes back"
    del b
    loader.close()
    assert not main.work, "closing waits for the device"
    assert all(torch.equal(a, w) for a, w in zip(got, want)) and len(want) > 20
    assert len(set(late)) < len(late), "buffers are used again"
    assert not held._given and not held._left


def test_tensors_that_a_user_collects_are_looked_at_in_turns(h264: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device.PageLocked, "_LOOKED_AT", 4)
    loader = plain(h264, batch_size=8)
    cuda = types.SimpleNamespace(Event=Event, current_stream=lambda d: main, synchronize=lambda d: main.run())
    held = loader._batches = _device.PageLocked(loader._taker(), types.SimpleNamespace(cuda=cuda, _C=torch._C, empty=torch.empty), 0)
    mine = [b["index"] for b in loader]
    assert len(held._older) > 8
    n = len(mine)
    mine.clear()
    for _ in range(n):
        held._let_go()
        main.run()
    assert len(held._given) + len(held._older) == 0


def test_asking_for_a_device_that_is_not_there(h264: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    for kwargs in ({"device": "cuda"}, {"device": "cuda:3"}, {"pin_memory": True}, {"device": torch.device("cuda")}):
        with pytest.raises(robocache.Unsupported, match="CUDA"):
            robocache.Loader(h264, **kwargs)
    with pytest.raises(robocache.Unsupported, match="CPU or CUDA"):
        robocache.Loader(h264, device="meta")
    with pytest.raises(robocache.Misuse):
        robocache.Loader(h264, device="gpu")
    assert robocache.Loader(h264, pin_memory=False).pin_memory is False


def test_page_locked_by_default_where_the_driver_gives_it(h264: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device page-locked memory is asked for; where there is no driver for it, ordinary memory does, unless it was wished for."""
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    loader = robocache.Loader(h264, device="cuda", keys=KEYS)
    assert loader._target == torch.device("cuda", 1) and not loader.pin_memory and loader.stats()["pinned"] is False
    with pytest.raises(robocache.Unsupported, match="driver"):
        robocache.Loader(h264, device="cuda", pin_memory=True, keys=KEYS)
    with pytest.raises(robocache.Unsupported, match="2 CUDA devices"):
        robocache.Loader(h264, device="cuda:2", keys=KEYS)
    assert _memory.torch_module() is torch
