"""Batches on a CUDA device.

Without a device these tests skip; docs/gpu holds the output of a run on one.

To run this file alone, on a machine with a GPU and this package: python python/tests/test_cuda.py
PATH_OF_A_DATASET
"""

import os
import pathlib
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

import robocache  # noqa: E402

PATH = os.environ.get("ROBOCACHE_CUDA_SET") or str(
    pathlib.Path(
        os.environ.get(
            "ROBOCACHE_TESTDATA", pathlib.Path(__file__).parents[2].parent / "shared" / "data"
        )
    )
    / "g1_h264_v30"
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
    pytest.mark.skipif(not pathlib.Path(PATH).exists(), reason=f"no dataset at {PATH}"),
]


def open_loader(**kw):
    return robocache.Loader(PATH, **{"batch_size": 32, "seed": 3, **kw})


def epoch(**kw):
    with open_loader(**kw) as loader:
        return [dict(b) for b in loader]


def tensors(b):
    return {k: v for k, v in b.items() if not isinstance(v, list)}


@pytest.mark.parametrize("pin", [None, True, False])
def test_cuda_equals_cpu(pin):
    want = epoch()
    # All batches are kept, because a batch must not be overwritten after it was delivered.
    got = epoch(device=robocache.Device("cuda", pin_memory=pin))
    assert len(want) == len(got)
    for a, b in zip(want, got):
        assert list(a) == list(b)
        for k, v in a.items():
            if isinstance(v, list):
                assert v == b[k]
            else:
                assert b[k].is_cuda and b[k].dtype == v.dtype and torch.equal(b[k].cpu(), v), k


AUGMENT = {
    "random_crop": {"size": (90, 93), "pad": 3},
    "color_jitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.1},
    "hflip": {"p": 0.5, "negate": {"action": [0]}, "keep": ["observation.state"]},
    "noise": {"std": {"": 0.03, "action": 0.01}},
}
KEYS = ["action", "observation.state", "observation.images.cam_high"]
FINISHED = [
    {"keys": KEYS, "augment": robocache.Augment(**AUGMENT), "image_size": (96, 96)},
    {
        "keys": KEYS,
        "augment": robocache.Augment(**AUGMENT),
        "image_size": (96, 96),
        "images": robocache.Images(fit="letterbox", dtype="float32"),
        "normalize": "mean_std",
    },
    {
        "keys": KEYS,
        "augment": robocache.Augment(**{**AUGMENT, "random_crop": {"size": (64, 64)}}),
        "delta_timestamps": {"observation.images.cam_high": [-0.1, 0.0]},
        "images": robocache.Images(dtype="float32"),
    },
    {
        "keys": KEYS,
        "images": robocache.Images(
            transform=[
                {"letterbox": True},
                {"smallest_side": 100},
                {"random_crop": 230 / 256},
                {"smallest_side": 100},
                {"rotation": 10},
                {"color_jitter": {"brightness": 0.3, "hue": 0.1}},
            ],
            layout="hwc",
        ),
    },
    {
        "keys": KEYS,
        "images": robocache.Images(
            size=(64, 80), fit="letterbox", filter="pil-bilinear", layout="hwc", dtype="float32"
        ),
        "normalize": "mean_std",
    },
    {"images": robocache.Images(dtype="float32")},
    {"images": robocache.Images(dtype="float32"), "normalize": "mean_std"},
    {
        "hz": 20,
        "normalize": {"action": {"mode": "min_max", "clip": True}},
        "delta_timestamps": {"action": [0.0, 0.1], "observation.state": [-0.2, 0.0]},
    },
    {
        "hz": 50,
        "align": robocache.Align(edge="mask", extent="union"),
        "images": robocache.Images(dtype="float32"),
        "keys": ["action", "observation.state", "observation.images.cam_high"],
    },
]


@pytest.mark.parametrize("how", FINISHED, ids=str)
def test_the_device_finishes_batches(how):
    """Casts, normalisation and interpolation of stored bytes on the device give the host's bits."""
    if "observation.images.cam_high" not in robocache.open(PATH).features:
        if "augment" in how:
            pytest.skip("the dataset lacks cam_high, the camera to augment")
        how = {k: v for k, v in how.items() if k != "keys"}
    how = {"episodes": [0], "batch_size": 16, **how}
    want = epoch(**how)
    with open_loader(device="cuda", **how) as loader:
        got = [dict(b) for b in loader]
        where = loader.stats()
    assert where["finished_on"] == "cuda", where.get("not_on_device")
    for a, b in zip(want, got, strict=True):
        assert list(a) == list(b)
        for k, v in tensors(a).items():
            x = b[k].cpu()
            assert b[k].is_cuda and x.dtype == v.dtype and x.shape == v.shape, k
            assert torch.equal(x.reshape(-1).view(torch.uint8), v.reshape(-1).view(torch.uint8)), k


@pytest.mark.parametrize("shuffle", [False, "pool"])
def test_filters_of_frames_that_the_device_decodes(shuffle):
    """The device decodes, the host scales by the filter, and the device finishes: the same bits."""
    key = "observation.images.cam_high"
    if key not in robocache.open(PATH).features:
        pytest.skip("the dataset lacks cam_high")
    for images in (
        {"size": (96, 96), "fit": "letterbox", "filter": "pil-bilinear", "layout": "hwc"},
        {"transform": [{"letterbox": True}, {"smallest_side": 96}, {"random_crop": 0.9}]},
    ):
        how = {"keys": [key], "shuffle": shuffle, "images": robocache.Images(**images)}
        got = epoch(device=robocache.Device("cuda", decode="gpu"), **how)
        for a, b in zip(epoch(**how), got, strict=True):
            assert b[key].is_cuda and torch.equal(a[key], b[key].cpu())


def test_pinned_on_the_host():
    """The buffers of the engine are page-locked, so batches are pinned without a copy."""
    with open_loader(device=robocache.Device(pin_memory=True)) as loader:
        got = [dict(b) for b, _ in zip(loader, range(3))]
        assert loader.stats()["pinned"] and loader.pin_memory
    want = epoch()
    for a, b in zip(want, got):
        for k, v in tensors(b).items():
            assert v.is_pinned() and torch.equal(a[k], v), k
    # The tensors outlive the loader, and each buffer is released on its own.
    del got


def test_copies_of_a_user_may_be_late():
    """Page-locked memory of a dropped batch is not reused while copies still read it.

    The copies wait behind earlier work of the stream when the batch is dropped.
    """
    want = epoch(seed=9)
    got = []
    with open_loader(seed=9, device=robocache.Device(pin_memory=True)) as loader:
        for b in loader:
            torch.cuda._sleep(20_000_000)  # cycles: about 10 ms
            got.append({k: v.to("cuda", non_blocking=True) for k, v in tensors(b).items()})
            del b
    for a, b in zip(want, got, strict=True):
        for k, v in b.items():
            assert torch.equal(a[k], v.cpu()), k


def test_pinned_by_default_with_a_device():
    with open_loader(device="cuda") as loader:
        assert loader.pin_memory and next(iter(loader))["index"].is_cuda
    with open_loader(device=robocache.Device("cuda", pin_memory=False)) as loader:
        assert not loader.pin_memory and next(iter(loader))["index"].is_cuda


def test_on_the_callers_stream():
    """A batch is ready on the current stream, and its memory is not reused too early."""
    want = epoch()
    stream = torch.cuda.Stream()
    sums = []
    with open_loader(device="cuda") as loader, torch.cuda.stream(stream):
        for b in loader:
            torch.cuda._sleep(2_000_000)  # this stream lags behind the copies
            # The tensors are used after this delay and dropped at once. Until then their memory
            # must not hold another batch.
            sums.append({k: v.double().sum() for k, v in tensors(b).items()})
            del b
    stream.synchronize()
    assert len(sums) == len(want)
    for a, s in zip(want, sums):
        for k, v in tensors(a).items():
            assert torch.allclose(v.double().sum(), s[k].cpu(), rtol=1e-12), k


def test_a_caller_who_changes_streams():
    """A batch is safe on a stream other than the one that its copy began for.

    record_stream is called for such a batch, and for no other.
    """
    want, streams, sums, noted = epoch(), [torch.cuda.Stream() for _ in range(2)], [], []
    with open_loader(device="cuda") as loader:
        batches = iter(loader)
        for n in range(len(loader)):
            with torch.cuda.stream(streams[n // 3 % 2]):
                before = len(noted)
                b = next(batches)
                if n == 0:
                    real = loader._batches._record_use
                    loader._batches._record_use = lambda v, stream: (
                        noted.append(v.nbytes),
                        real(v, stream),
                    )
                assert n % 3 == 0 or len(noted) == before, n
                torch.cuda._sleep(2_000_000)
                sums.append({k: v.double().sum() for k, v in tensors(b).items()})
                del b
    torch.cuda.synchronize()
    assert noted, "no copy was pending when the stream changed"
    for a, s in zip(want, sums, strict=True):
        for k, v in tensors(a).items():
            assert torch.allclose(v.double().sum(), s[k].cpu(), rtol=1e-12), k


def test_state_counts_what_was_given():
    with open_loader(device="cuda") as a, open_loader() as b:
        for step, (x, y) in enumerate(zip(a, b)):
            if step + 1 < len(b):
                assert a.state_dict() == b.state_dict(), step
            if step == 5:
                state = a.state_dict()
        with open_loader(device="cuda", seed=3) as c:
            c.load_state_dict(state)
            rest = [x["index"].cpu() for x in c]
    with open_loader() as b:
        want = [x["index"] for x in b][6:]
    assert all(torch.equal(x, y) for x, y in zip(rest, want, strict=True))


def test_copies_overlap():
    """The next batch is copied while the device works on the current one."""
    with open_loader(
        device="cuda",
        keys=["observation.images.cam_high", "index"],
        batch_size=64,
        runtime=robocache.Runtime(prefetch=8),
    ) as loader:
        it = iter(loader)
        next(it)
        time.sleep(1.0)  # the engine has prepared the next batches by then
        next(it)
        torch.cuda.synchronize()
        ahead = loader._batches._pending
        assert len(ahead) == 1 and ahead[0].copy.event.query(), "the copy is complete by then"


def test_memory_comes_back():
    with open_loader(device="cuda", batch_size=16) as loader:
        for _ in range(2):
            for b in loader:
                pass
        del b
        peak = loader.stats()["buffer_peak_bytes"]
        for _ in range(3):
            for _ in loader:
                pass
        assert loader.stats()["buffer_peak_bytes"] <= peak * 1.5
    torch.cuda.synchronize()


def test_several_devices():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    b = next(iter(open_loader(device="cuda:1")))
    assert all(v.device.index == 1 for v in tensors(b).values())
    with pytest.raises(robocache.Unsupported):
        open_loader(device=f"cuda:{torch.cuda.device_count()}")


def rates():
    for kw in ({}, {"device": robocache.Device("cuda", pin_memory=False)}, {"device": "cuda"}):
        for keys in (None, ["action", "observation.state", "index"]):
            with robocache.Loader(PATH, batch_size=32, seed=3, keys=keys, **kw) as loader:
                for _ in loader:
                    pass
                torch.cuda.synchronize()
                start, cpu, n = time.perf_counter(), time.process_time(), 0
                for _ in range(3 if keys is None else 30):
                    for b in loader:
                        n += len(b["index"])
                torch.cuda.synchronize()
                took = time.perf_counter() - start
                print(
                    f"{kw or 'cpu'}, {'all keys' if keys is None else 'no images'}: "
                    f"{n / took:.0f} samples/s, "
                    f"{(time.process_time() - cpu) / n * 1000:.4f} CPU s a 1,000, "
                    f"{loader.stats()['wait_data_seconds']:.2f} s waited for data, "
                    f"pinned {loader.pin_memory}"
                )


def kept_rates():
    """Prints the cost of delivery to the device with pools and caches, where decoding is cheap."""
    normal = {"images": robocache.Images(dtype="float32"), "normalize": "mean_std"}
    for kw in (
        {"shuffle": "pool"},
        {"cache": "ram"},
        {"cache": "ram", **normal},
        {"cache": "ram", "image_size": (224, 224)},
        {"cache": "ram", "image_size": (224, 224), **normal},
    ):
        for device in (
            {},
            {"device": robocache.Device("cuda", pin_memory=False)},
            {"device": "cuda"},
        ):
            with robocache.Loader(PATH, batch_size=64, seed=3, **kw, **device) as loader:
                for _ in loader:
                    pass
                torch.cuda.synchronize()
                start, cpu, n, size = time.perf_counter(), time.process_time(), 0, 0
                for _ in range(20 if "cache" in kw else 2):
                    for b in loader:
                        n += len(b["index"])
                        size += sum(v.numel() * v.element_size() for v in tensors(b).values())
                torch.cuda.synchronize()
                took = time.perf_counter() - start
                print(
                    f"{kw}, {device or 'cpu'}: {n / took:.0f} samples/s, "
                    f"{(time.process_time() - cpu) / n * 1000:.3f} CPU s a 1,000, "
                    f"{size / took / 1e9:.2f} GB/s"
                )


ON_ENGINES = {
    "global": {},
    "pool": {"shuffle": "pool"},
    "scaled": {"image_size": (96, 128)},
    "floats": {"images": robocache.Images(dtype="float32"), "image_size": (96, 128)},
    "cached": {"cache": "device", "memory_budget": "1GiB"},
    "cached pool": {"cache": "device", "memory_budget": "1GiB", "shuffle": "pool"},
    "cached, scaled": {"cache": "device", "memory_budget": "1GiB", "image_size": (96, 128)},
    "a part cached": {"cache": "device", "memory_budget": "40MiB"},
}


@pytest.mark.parametrize("how", ON_ENGINES)
@pytest.mark.parametrize("decode", ["gpu", "auto"])
def test_decode_on_device_equals_cpu(decode, how):
    options = dict(ON_ENGINES[how])  # memory_budget limits device memory
    memory = options.pop("memory_budget", None)
    epochs = 3 if "cache" in options else 1
    with open_loader(device="cuda", **{k: v for k, v in options.items() if k != "cache"}) as loader:
        want = [dict(b) for _ in range(epochs) for b in loader]
    with open_loader(
        device=robocache.Device("cuda", decode=decode, memory_budget=memory), **options
    ) as loader:
        n, done = 0, []
        for _ in range(epochs):
            for b in loader:
                for k, v in tensors(want[n]).items():
                    assert torch.equal(v, b[k]), k
                n += 1
            done.append(loader.stats()["frames_decoded"])
        stats = loader.stats()
    assert n == len(want)
    did = stats["decoding"][0]
    assert did["gpu_failed"] == 0 and (did["gpu_frames"] > 0 or did.get("on_cpu")), did
    if "cache" in options and how != "a part cached":
        assert done[-1] == done[0], f"decoded again: {done}"


LOST = """
import sys, time, torch, robocache
loader = robocache.Loader(
    sys.argv[1], batch_size=32, seed=3, shuffle=sys.argv[3],
    device=robocache.Device("cuda", decode=sys.argv[2]),
    order=robocache.Order(on_bad_episode="skip"),
    runtime=robocache.Runtime(prefetch=2),
)
batches = iter(loader)
next(batches)
# A device-side assertion: the context is lost.
bad = torch.zeros(4, device="cuda")[torch.full((4,), 1 << 20, device="cuda")]
begin = time.monotonic()
try:
    for _ in range(10_000):
        next(batches, None) or next(batches := iter(loader))
    print("no error")
except robocache.Error as e:
    bad = len(loader.stats().get("bad_episodes", []))
    # flush: the process may abort when it exits.
    print(type(e).__name__, f"{time.monotonic() - begin:.1f} s", "bad episodes:", bad, e, flush=True)
"""


@pytest.mark.parametrize(
    "decode, shuffle", [("gpu", "global"), ("gpu", "pool"), ("auto", "global"), ("cpu", "global")]
)
def test_a_lost_device_is_an_error(decode, shuffle):
    r = subprocess.run(
        [sys.executable, "-c", LOST, PATH, decode, shuffle],
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = next((x for x in r.stdout.splitlines() if x.startswith("Temporary")), "")
    print(said[:300])
    assert "bad episodes: 0" in said, r.stdout + r.stderr[-2000:]


SHARED = """
import sys, time, robocache
rank, world, decode, shuffle = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
loader = robocache.Loader(
    sys.argv[1], batch_size=64, seed=3, rank=rank, world_size=world, shuffle=shuffle,
    device=robocache.Device("cuda", decode=decode), keys=None, threads=8,
)
seen = sorted(int(i) for b in loader for i in b["index"].cpu())
end, n, begin = float(sys.argv[6]), 0, None
while time.time() < end + 3:
    for b in loader:
        if time.time() < end:
            continue
        if begin is None:
            begin = time.time()
        elif time.time() < end + 3:
            n += len(b["index"])
print(",".join(map(str, seen)), n / (time.time() - begin))
"""


@pytest.mark.parametrize("shuffle", ["global", "pool"])
def test_ranks_share_a_device(shuffle):
    """Two processes share a device. Together they deliver an epoch, and both make progress."""
    start = time.time() + 15
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SHARED, PATH, str(r), "2", "gpu", shuffle, str(start)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    said = [p.communicate(timeout=120)[0].split() for p in ranks]
    seen = [int(i) for s in said for i in s[0].split(",")]
    rates = [float(s[1]) for s in said]
    print(shuffle, "samples/s of each:", [round(r) for r in rates])
    # ranks repeat samples at the end of an epoch
    assert set(seen) == set(range(max(seen) + 1)) and len(seen) - len(set(seen)) < 2 * 64
    assert min(rates) > max(rates) / 3


if __name__ == "__main__":
    PATH = sys.argv[1]
    print(torch.__version__, torch.cuda.get_device_name(), robocache.versions())
    for pin in (None, True, False):
        test_cuda_equals_cpu(pin)
        print("equal to the CPU's batches, pin_memory =", pin)
    for how in FINISHED:
        test_the_device_finishes_batches(how)
        print("finished on the device:", how)
    for test in (
        test_pinned_on_the_host,
        test_pinned_by_default_with_a_device,
        test_on_the_callers_stream,
        test_a_caller_who_changes_streams,
        test_state_counts_what_was_given,
        test_copies_overlap,
        test_memory_comes_back,
    ):
        test()
        print(test.__name__, "ok")
    if torch.cuda.device_count() > 1:
        test_several_devices()
        print("several devices ok")
    rates()
    kept_rates()
