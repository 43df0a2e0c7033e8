"""Batches on a device, tested without a device: copies and launches run late.

The replacement for torch.cuda runs its work when a caller waits for it. test_cuda.py tests a real
device.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import json
import types
import weakref

import pytest

import robocache
from robocache import _device, _finisher

from fake_cuda import Caller, Event, Stream

torch = pytest.importorskip("torch", reason="torch is not installed")
KEYS = ["action", "index", "task"]
CAMERA_KEYS = ["action", "observation.state", "observation.images.cam_high"]
AUGMENT = {
    "random_crop": {"size": (90, 93), "pad": 3},
    "color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1},
    "hflip": {"p": 0.5, "negate": {"action": [0]}, "keep": ["observation.state"]},
    "noise": {"std": {"": 0.03, "action": 0.01}},
}


class Late(_device.DeviceBatches):
    """Batches whose copies read host memory as late as a device may."""

    def _move(self, to, host) -> None:  # type: ignore[no-untyped-def]
        for out, v in zip(to, host, strict=True):
            # the copy uses addresses, because the tensors may be freed by then
            self._stream.work.append(
                lambda to=out.data_ptr(), place=(v.data_ptr(), v.nbytes): ctypes.memmove(to, *place)
            )

    def _record_use(self, v, stream) -> None:  # type: ignore[no-untyped-def]
        assert stream is caller.stream
        used.append(v)


def empty(shape, dtype, device):  # type: ignore[no-untyped-def]
    return torch.full(shape, dtype != torch.bool and 77, dtype=dtype)


class LateFinisher(_finisher.Finisher):
    """A finisher whose launch also runs when a caller waits for its stream."""

    def _launch_kernels(self, plan, moved, made, stream) -> None:  # type: ignore[no-untyped-def]
        launch = super()._launch_kernels
        assert all(m.dtype == torch.uint8 for m in moved)
        self.queue.append(lambda: launch(plan, moved, made, stream))


main = Caller()
caller = types.SimpleNamespace(stream=main)
used: list = []


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Returns a function that opens a loader whose batches are delivered through Late."""
    cuda = types.SimpleNamespace(
        Stream=Stream,
        Event=Event,
        stream=lambda s: contextlib.nullcontext(),
        current_stream=lambda d: caller.stream,
    )
    used.clear()
    main.run()

    def make(  # type: ignore[no-untyped-def]
        path: str, raw: bool = False, **kwargs
    ) -> robocache.Loader:
        loader = robocache.Loader(path, **{"keys": KEYS, "batch_size": 32, "seed": 5, **kwargs})
        if raw:
            loader._config["raw"] = True
            loader._target.kernels = {"backend": "cpu", "device": 0}
            loader._reset_state()
        real = robocache.Loader._batch_source

        def taker(self):  # type: ignore[no-untyped-def]
            if not isinstance(self._batches, Late):
                batches = real(self)
                finisher = None
                if self._raw:
                    finisher = LateFinisher(self._open(), torch, "cpu", self._target.kernels)
                self._batches = Late(
                    batches, types.SimpleNamespace(cuda=cuda, empty=empty), "device", finisher
                )
                if finisher is not None:
                    finisher.queue = self._batches._stream.work
            return self._batches

        monkeypatch.setattr(loader, "_batch_source", taker.__get__(loader))
        return loader

    return make


def plain(path: str, **kwargs) -> robocache.Loader:  # type: ignore[no-untyped-def]
    return robocache.Loader(path, **{"keys": KEYS, "batch_size": 32, "seed": 5, **kwargs})


def surely_ahead(loader: robocache.Loader) -> None:
    """Makes sure that the next batch is pending and its copy has begun.

    If the engine had not finished that batch in time, this function waits for it.
    """
    d = loader._batches
    if not d._pending:
        d._batches.next(0, into=d._pending)
        d._start_copy(d._pending[0], main)


def test_batches_are_those_of_the_host(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    loader, twin = late(h264), plain(h264)
    for _ in range(2):
        n = 0
        for a, b in zip(loader, twin, strict=True):
            assert list(a) == list(b) and a["task"] == b["task"]
            assert all(torch.equal(a[k], b[k]) for k in ("action", "index"))
            n += 1
        assert n == len(loader)
    assert not used, "their memory belongs to the caller's stream"


def test_a_caller_who_changes_the_stream(  # type: ignore[no-untyped-def]
    h264: str, late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is recorded on the stream that receives it, not on the one its copy began for."""
    loader = late(h264)
    it = iter(loader)
    next(it)
    for want in loader.order(0)[32:320].reshape(-1, 32).tolist():
        surely_ahead(loader)
        began = loader._batches._pending[0].copy.stream
        monkeypatch.setattr(caller, "stream", Caller())
        used.clear()
        b = next(it)
        assert b["index"].tolist() == want
        assert (
            began is not caller.stream
            and len(used) == 2
            and used[0] is b["action"]
            and used[1] is b["index"]
        )


def test_copies_come_after_what_the_caller_began(  # type: ignore[no-untyped-def]
    h264: str, late
) -> None:
    """Memory of a dropped batch is not overwritten before earlier work that reads it.

    Copies into reused memory wait for the work that the caller queued before.
    """
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
    surely_ahead(loader)
    device._stream.run()
    copies = [(at, step) for at, (what, step) in enumerate(log) if what == "copy"]
    assert len(copies) >= 20
    assert all(("step", step) in log[:at] for at, step in copies)


@pytest.mark.parametrize("place", ["_start_copy", "_copy", "_record_use"])
def test_a_lost_device_is_temporary(
    h264: str, late, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264)
    it = iter(loader)
    next(it)
    monkeypatch.setattr(caller, "stream", Caller())
    said = ["CUDA error: device-side assert triggered"]

    def fail(*args: object) -> None:
        raise RuntimeError(said[0])

    with monkeypatch.context() as m:
        m.setattr(loader._batches, place, fail)
        if place == "_record_use":
            surely_ahead(loader)
        with pytest.raises(robocache.Temporary, match="device-side assert") as e:
            next(it)
        assert "state_dict" in e.value.hint
        for other in (
            "CUDA out of memory",
            "CUDA error: operation not permitted when stream is capturing",
        ):
            said[0] = other
            with pytest.raises(RuntimeError, match=other) as e:
                next(it)
            assert not isinstance(e.value, robocache.Error)
    assert next(it)["index"].tolist() == loader.order(0)[32:64].tolist()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"images": robocache.Images(dtype="float32")},
        {"images": robocache.Images(dtype="float32"), "normalize": "mean_std"},
        {
            "hz": 20,
            "normalize": {"action": {"mode": "min_max", "clip": True}},
            "delta_timestamps": {"action": [0.0, 0.1], "observation.state": [-0.2, 0.0]},
        },
        {"cache": "ram", "images": robocache.Images(dtype="float32")},
        {"keys": CAMERA_KEYS, "augment": robocache.Augment(**AUGMENT), "image_size": (96, 96)},
        {
            "keys": CAMERA_KEYS,
            "augment": robocache.Augment(**AUGMENT),
            "image_size": (96, 96),
            "images": robocache.Images(dtype="float32"),
            "normalize": "mean_std",
        },
        {
            "keys": CAMERA_KEYS,
            "augment": robocache.Augment(**AUGMENT),
            "image_size": (96, 96),
            "images": robocache.Images(dtype="float32"),
            "hz": 20,
            "align": robocache.Align(edge="mask", extent="union"),
        },
    ],
    ids=str,
)
def test_raw_batches_become_those_of_the_host(  # type: ignore[no-untyped-def]
    h264: str, late, how
) -> None:
    """Stored bytes are copied once, and one launch computes the batch from them.

    The result equals the host's, to the bit.
    """
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
                assert torch.equal(
                    a[k].view(torch.uint8) if v.is_floating_point() and v.dim() else a[k],
                    v.view(torch.uint8) if v.is_floating_point() and v.dim() else v,
                ), k
            n += 1
        assert n == len(loader)
    assert (
        loader.stats()["normalization"] == twin.stats()["normalization"]
        if "normalization" in twin.stats()
        else True
    )


def test_raw_mixtures(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    how = {
        "keys": None,
        "batch_size": 16,
        "threads": 2,
        "images": robocache.Images(dtype="float32"),
        "normalize": "mean_std",
    }
    mix = [robocache.Mix(h264, weight=2, name="a"), robocache.Mix(h264, weight=1, name="b", hz=15)]
    loader, twin = late(mix, raw=True, **how), plain(mix, **how)
    for n, (a, b) in enumerate(zip(loader, twin, strict=True)):
        for k, v in b.items():
            assert a[k] == v if isinstance(v, list) else torch.equal(a[k], v), k
        if n == 4:
            break


def test_raw_mixtures_of_two_widths(h264: str, late) -> None:  # type: ignore[no-untyped-def]
    """Keys that need padding are finished on the host, together with keys that do not."""
    how = {
        "keys": ["action", "observation.state"],
        "batch_size": 16,
        "threads": 2,
        "normalize": "mean_std",
        "windows": robocache.Windows(missing="pad"),
    }
    dims = {"action": [*range(1, 26), 30]}
    mix = [
        robocache.Mix(h264, weight=2, name="a"),
        robocache.Mix(h264, weight=1, name="b", dims=dims),
    ]
    loader, twin = late(mix, raw=True, **how), plain(mix, **how)
    for a, b in itertools.islice(zip(loader, twin, strict=True), 4):
        assert a["action"].shape == (16, 31) and a["action_dim_is_pad"].sum() == 16 * 5
        assert list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in b)


def test_host_memory_stays_until_it_was_read(  # type: ignore[no-untyped-def]
    h264: str, late
) -> None:
    """Host memory is not reused before the pending copy has read it.

    The copy runs long after the engine has made many other batches.
    """
    loader = late(h264, batch_size=8, runtime=robocache.Runtime(prefetch=8))
    want = [b["index"].clone() for b in plain(h264, batch_size=8)]
    got = []
    for b in loader:
        got.append(b["index"])
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert len(loader._batches._copying) <= 2


def test_a_host_far_ahead_of_the_device(  # type: ignore[no-untyped-def]
    h264: str, late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources of waiting copies stay alive, and their number is limited.

    The copies wait for the caller's stream, which runs its work only at the end of this test.
    """
    loader = late(h264, batch_size=8, runtime=robocache.Runtime(prefetch=8))
    monkeypatch.setattr(caller, "stream", Stream())
    got = []
    for b in loader:
        got.append(b)  # the whole batch is kept: memory of the CPU is not reused in stream order
        assert len(loader._batches._copying) <= 3
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


def test_going_elsewhere_drops_what_was_ahead(  # type: ignore[no-untyped-def]
    h264: str, late
) -> None:
    loader = late(h264)
    it = iter(loader)
    next(it), next(it)
    loader.set_epoch(0)
    assert torch.equal(next(iter(loader))["index"], next(iter(plain(h264)))["index"])
    # the earlier `for` was left, so this one starts the next epoch
    second = [b["index"].tolist() for b in loader]
    assert sum(second, []) == loader.order(1).tolist()
    state = loader.state_dict()
    next(iter(loader))
    loader.load_state_dict(state)
    assert next(iter(loader))["index"].tolist() == loader.order(2)[:32].tolist()
    loader.close()
    assert not loader._batches


def test_a_for_that_stops_at_the_last_batch(  # type: ignore[no-untyped-def]
    h264: str, late
) -> None:
    """range() in zip() never requests the end of the epoch. The next `for` is the next epoch."""
    for loader in (late(h264), plain(h264)):
        for e in range(3):
            got = [b["index"].tolist() for _, b in zip(range(len(loader)), loader)]
            assert sum(got, []) == loader.order(e).tolist()


def test_the_next_epoch_begins_ahead(  # type: ignore[no-untyped-def]
    h264: str, late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second epoch on, the first batch of the next epoch is copied ahead.

    Its copy runs while the last batch of this epoch is delivered. The state, epoch and set_epoch do
    not show this.
    """
    loader, twin = late(h264, batch_size=64), plain(h264, batch_size=64)
    ahead = []
    for e in range(6):
        if e % 2:
            loader.set_epoch(e)
        a, b = iter(loader), iter(twin)
        for k, (x, y) in enumerate(zip(range(len(twin)), b)):
            batch = next(a)
            if e == k == 0:  # wait for the batch that is taken ahead
                source = loader._batches._batches
                monkeypatch.setattr(
                    source,
                    "next",
                    lambda epoch=-1, wait=True, into=None, real=source.next: real(
                        epoch, True, into
                    ),
                )
            assert torch.equal(batch["index"], y["index"])
            assert loader.epoch == twin.epoch and loader.state_dict() == twin.state_dict(), (e, k)
        ahead.append(loader._batches.pending_epoch)
        if e % 3:  # otherwise the end is not requested, as in Lightning
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


def test_exceptions_lose_nothing(  # type: ignore[no-untyped-def]
    h264: str, late, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    source = device._batches
    # no batch is taken ahead unless the test requests it
    monkeypatch.setattr(
        source,
        "next",
        lambda epoch=-1, wait=True, into=None, real=source.next: wait and real(epoch, into=into),
    )
    for place, how in [
        ("_start_copy", strike),
        ("_record_use", strike),
        ("_copy", strike),
        ("_move", half),
    ] * 10:
        if place == "_record_use":
            surely_ahead(loader)
        with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
            m.setattr(device, place, how)
            m.setattr(caller, "stream", Caller())  # otherwise no tensor is recorded on the stream
            next(it)
        assert loader.state_dict()["position"] == len(got)
        assert place != "_move" or not device._stream.work, (
            "a running copy writes to memory that may be reused"
        )
        got += next(it)["index"].tolist()
    got += sum((b["index"].tolist() for b in it), [])
    assert got == want


def test_what_copies_write_to_stays_until_they_are_over(
    h264: str, late, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    """Destination tensors stay alive until the running copy and launch are complete.

    The test interrupts the return of the finisher, when no other object holds these tensors.
    """
    loader = late(
        h264, raw=True, keys=CAMERA_KEYS, images=robocache.Images(dtype="float32"), episodes=[0]
    )
    it = iter(loader)
    next(it)
    device, owners, alive = loader._batches, [], []
    real, wait = device._finisher, device._stream.synchronize

    def interrupted(*args):  # type: ignore[no-untyped-def]
        owners.extend(map(weakref.ref, real(*args)[1]))
        raise KeyboardInterrupt

    def synchronize() -> None:
        alive.extend(r() is not None for r in owners)
        wait()

    device.drop_pending()
    # the pending launch of the test stream would hold them too
    monkeypatch.setattr(real, "_launch_kernels", lambda *args: None)
    monkeypatch.setattr(device, "_finisher", interrupted)
    monkeypatch.setattr(device._stream, "synchronize", synchronize)
    with pytest.raises(KeyboardInterrupt):
        next(it)
    assert len(alive) > 1 and all(alive)


def test_an_error_ahead_comes_with_its_own_batch(
    h264: str, late, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    loader = late(h264)
    it = iter(loader)
    next(it)
    surely_ahead(loader)
    source = loader._batches._batches
    real = source.next

    def failing(*args: object, **kwargs: object) -> object:
        raise robocache.Temporary("the store is away")

    monkeypatch.setattr(source, "next", failing)
    next(it)  # this batch was pending before the error
    with pytest.raises(robocache.Temporary):
        next(it)
    monkeypatch.setattr(source, "next", real)
    assert next(it)["index"].tolist() == loader.order(0)[64:96].tolist()


def test_unsent_batches_and_collected_loaders(  # type: ignore[no-untyped-def]
    h264: str, late
) -> None:
    loader = late(h264)
    next(iter(loader))
    surely_ahead(loader)
    stream = loader._batches._stream
    assert stream.work, "a copy must be pending"
    loader._batches = None  # as if the loader were collected; the fixture still refers to it
    gc.collect()
    assert not stream.work, "the copy completes before its source is freed"
