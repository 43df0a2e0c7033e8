"""The operations on a CUDA device.

Without a device these tests skip; docs/gpu holds the output of a run on one.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import robocache  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

B, S, T, D = 5, 40, 33, 12
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    if torch.cuda.is_available() and not robocache.is_cuda_available():
        pytest.skip(str(robocache.check_installation()["reasons"]))


def make(
    dtype: Any = torch.float32, d: int = D, b: int = B, s: int = S, seed: int = 0
) -> tuple[Any, Any, Any]:
    g = torch.Generator().manual_seed(seed)
    data = torch.randn(b, s, d, generator=g, dtype=torch.float64).to(dtype)
    times = torch.randint(0, 1000, (b, s), generator=g).sort(1).values
    targets = torch.randint(-50, 1050, (b, T), generator=g)
    return data, times, targets


def same(got: Any, want: Any) -> None:
    """Asserts that both are equal to the bit. All NaNs are equal."""
    assert got.is_cuda and got.dtype == want.dtype and got.shape == want.shape
    got = got.cpu()
    if got.dtype.is_floating_point:
        assert torch.equal(got.isnan(), want.isnan())
        got, want = got.nan_to_num(), want.nan_to_num()
        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.element_size()]
        got, want = got.contiguous().view(kind), want.contiguous().view(kind)
    assert torch.equal(got, want), f"{(got != want).sum()} of {got.numel()} differ"


@pytest.mark.parametrize(
    "mode", ["linear", "nearest", "previous", "next", "angle", "mean", "slerp"]
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_equal_to_the_cpu(mode: str, dtype: Any) -> None:
    for edge, gap, d, sorted_, seed in itertools.product(
        ("clamp", "mask", "extrapolate"), (None, "60ns"), (4, 7, 12, 64), (True, False), (0,)
    ):
        if mode == "slerp" and d % 4:
            continue
        data, times, targets = make(dtype, d, seed=seed)
        targets = targets.sort(1).values if sorted_ else targets
        kw: dict[str, Any] = {"mode": mode, "edge": edge, "max_gap": gap, "return_valid": True}
        if mode == "mean":
            kw["window"] = (50, 60)
        want, valid = robocache.resample(data, times, targets, **kw)
        got, mask = robocache.resample(data.cuda(), times.cuda(), targets.cuda(), **kw)
        assert torch.equal(mask.cpu(), valid), (edge, gap, d)
        if mode == "slerp":
            assert torch.allclose(
                got.cpu().double(),
                want.double(),
                rtol=2.0**-7 if dtype == torch.bfloat16 else 2.0**-10,
                atol=1e-3,
                equal_nan=True,
            )
        else:
            same(got, want)


@pytest.mark.parametrize(
    "dtype", (torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, *FLOATS), ids=str
)
def test_moves_of_any_type(dtype: Any) -> None:
    data, times, targets = make()
    data = (data * 50).to(dtype)
    for mode, d in itertools.product(("previous", "next", "nearest"), (1, 3, 12)):
        same(
            robocache.resample(data[..., :d].cuda(), times.cuda(), targets.cuda(), mode=mode),
            robocache.resample(data[..., :d], times, targets, mode=mode),
        )


def test_layouts() -> None:
    """Each layout gives the CPU's result and that of contiguous data.

    Covers times and targets that are shared, expanded, or in seconds, and sliced data.
    """
    base, times, targets = make(d=3 * D, s=2 * S)
    line = times[0]
    for view in (
        base[:, ::2, ::3],
        base[:1, ::2, :1].expand(B, S, D),
        base.transpose(1, 2)[:, :D, ::2].transpose(1, 2),
        base[:, :S, 1 : D + 1],
    ):
        clock = line[: view.shape[1]]
        for t in (
            clock,
            clock.expand(B, -1),
            clock.double() / 1e9,
            clock.float().expand(B, -1) / 1e9,
        ):
            for u in (targets, targets[0], targets[:1].expand(B, -1), targets.double() / 1e9):
                want = robocache.resample(view, t, u)
                device = (
                    view.cuda()
                    if view.is_contiguous()
                    else base.cuda().as_strided(view.shape, view.stride(), view.storage_offset())
                )
                same(
                    robocache.resample(
                        device,
                        t.cuda() if t.is_contiguous() else t[:1].cuda().expand(B, -1),
                        u.cuda(),
                    ),
                    want,
                )
    assert robocache.resample(base[0, :, 0].cuda(), line.cuda(), targets[0].cuda()).shape == (T,)


def test_ragged() -> None:
    lengths = [S, 0, 1, 7]
    data = [torch.randn(n, D) for n in lengths]
    times = [torch.arange(n) * 10 for n in lengths]
    at = torch.arange(-3, 60) * 7
    want, valid = robocache.resample(data, times, at, return_valid=True)
    got, mask = robocache.resample(
        [d.cuda() for d in data], [t.cuda() for t in times], at.cuda(), return_valid=True
    )
    same(got, want)
    assert torch.equal(mask.cpu(), valid)
    padded = torch.zeros(4, S, D)
    for b, n in enumerate(lengths):
        padded[b, :n] = data[b]
    same(
        robocache.resample(
            padded.cuda(),
            torch.arange(S).cuda() * 10,
            at.cuda(),
            lengths=torch.tensor(lengths).cuda(),
        ),
        want,
    )


def test_fuse() -> None:
    streams, device = [], []
    for i, (s, d) in enumerate(((30, 512), (100, 64), (200, 12), (50, 3))):
        data, times, _ = make(torch.bfloat16, d, s=s, seed=i)
        options = {
            "mode": ("linear", "nearest", "linear", "previous")[i],
            "edge": ("clamp", "mask", "extrapolate", "clamp")[i],
        }
        streams.append((data, times, options))
        device.append((data.cuda(), times.cuda(), options))
    targets = torch.arange(0, 1000, 20)
    for kw in ({}, {"dtype": torch.float32}, {"clip": (-0.5, 0.5)}, {"max_gap": "30ns"}):
        want, valid = robocache.fuse(streams, targets, return_valid=True, **kw)
        got, mask = robocache.fuse(device, targets.cuda(), return_valid=True, **kw)
        same(got, want)
        assert torch.equal(mask.cpu(), valid)
    norm = [
        {"normalize": {"mean": torch.randn(s[0].shape[2]), "std": torch.rand(s[0].shape[2])}}
        for s in streams
    ]
    want = robocache.fuse([(d, t, {**o, **n}) for (d, t, o), n in zip(streams, norm)], targets)
    same(
        robocache.fuse([(d, t, {**o, **n}) for (d, t, o), n in zip(device, norm)], targets.cuda()),
        want,
    )
    # more streams than one launch table holds
    same(robocache.fuse(device * 12, targets.cuda()), robocache.fuse(streams * 12, targets))


def test_augment() -> None:
    data, times, targets = make()
    for aug in (
        {"seed": 3, "scale": (0.5, 1.5)},
        {"seed": 3, "dropout": 0.3, "samples": torch.arange(B) + 7},
    ):
        moved = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in aug.items()}
        same(
            robocache.resample(data.cuda(), times.cuda(), targets.cuda(), augment=moved),
            robocache.resample(data, times, targets, augment=aug),
        )
    aug = {"seed": 3, "noise": 0.1}
    got, want = (
        robocache.resample(data.cuda(), times.cuda(), targets.cuda(), augment=aug).cpu(),
        robocache.resample(data, times, targets, augment=aug),
    )
    assert torch.allclose(got, want, rtol=1e-6, atol=1e-6)


def test_torch_operators_agree() -> None:
    """backend="pytorch" is the reference on the device."""
    for mode, edge, dtype, norm in itertools.product(
        ("linear", "nearest", "previous", "next"),
        ("clamp", "mask", "extrapolate"),
        FLOATS,
        (False, True),
    ):
        data, times, targets = (x.cuda() for x in make(dtype))
        kw = {
            "mode": mode,
            "edge": edge,
            "max_gap": "60ns",
            "return_valid": True,
            "normalize": {"mean": list(range(D)), "std": list(range(D))} if norm else None,
        }
        got, valid = robocache.resample(data, times, targets, **kw)
        want, mask = robocache.resample(data, times, targets, backend="pytorch", **kw)
        assert torch.equal(valid, mask)
        if dtype == torch.float64:
            assert torch.allclose(got, want, rtol=1e-13, atol=1e-13)
        else:
            assert torch.equal(got, want)


def test_nothing_is_copied() -> None:
    data, times, targets = (x.cuda() for x in make(d=512, b=64, s=400))
    view = data[:, ::2, ::2]
    clock = times[:1, ::2].expand(64, -1)
    robocache.resample(view, clock, targets)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = robocache.resample(view, clock, targets)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before <= out.numel() * 4 + 512


def test_out() -> None:
    data, times, targets = make()
    want = robocache.resample(data, times, targets)
    wide = torch.zeros(B, T, 2 * D, device="cuda")
    for out in (
        wide[..., :D],
        wide[..., ::2],
        torch.empty(B, T, D, device="cuda"),
        torch.empty(T, B, D, device="cuda").transpose(0, 1),
    ):
        for _ in range(2):
            out.zero_()
            assert robocache.resample(data.cuda(), times.cuda(), targets.cuda(), out=out) is out
            same(out, want)
    half = torch.empty(B, T, D, device="cuda", dtype=torch.bfloat16)
    same(robocache.resample(data.cuda(), times.cuda(), targets.cuda(), out=half), want.bfloat16())
    d = data.cuda()
    for _ in range(2):
        with pytest.raises(robocache.Misuse, match="aliases"):
            robocache.resample(d[:, :T], times[:, :T].cuda(), targets.cuda(), out=d[:, :T])
    with pytest.raises(robocache.Misuse, match="same device"):
        robocache.resample(d, times.cuda(), targets.cuda(), out=torch.empty(B, T, D))


def test_on_the_callers_stream() -> None:
    data, times, targets = make(d=64)
    want = robocache.resample(data, times, targets)
    stream = torch.cuda.Stream()
    d, t, u = (x.cuda() for x in (data, times, targets))
    late = torch.zeros_like(d)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # cycles: about 30 ms in which late is not yet written
        late.copy_(d, non_blocking=True)
        start = time.perf_counter()
        got = robocache.resample(late, t, u)
        assert time.perf_counter() - start < 0.02, "it waited"
    stream.synchronize()
    same(got, want)


def test_in_a_graph() -> None:
    """A replayed graph uses the current contents of the captured tensors."""
    data, times, targets = make(d=64)
    d, t, u = (x.cuda() for x in (data, times, targets))
    out = torch.empty(B, T, 64, device="cuda")
    p = torch.rand(1000, 3, device="cuda")
    grid = {"grid_min": 0, "voxel_size": 0.125, "grid_size": 8, "mode": "count"}

    def work() -> tuple[Any, Any, Any]:
        return (
            robocache.resample(d, t, u, out=out),
            robocache.fuse([(d, t), (d, t)], u, return_valid=True)[0],
            robocache.voxelize(p, **grid),
        )

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, fused, voxels = work()
    for seed in (1, 2):
        data, times, targets = make(d=64, seed=seed)
        d.copy_(data), t.copy_(times), u.copy_(targets), p.copy_(torch.rand(1000, 3))
        graph.replay()
        torch.cuda.synchronize()
        same(out, robocache.resample(data, times, targets))
        same(fused, robocache.fuse([(data, times), (data, times)], targets))
        same(voxels, robocache.voxelize(p.cpu(), **grid))


def test_checks_of_values() -> None:
    data, times, targets = (x.cuda() for x in make())
    bad = times.clone()
    bad[3, 7] = -5
    with pytest.raises(robocache.Malformed, match="timestamps must not decrease") as e:
        robocache.resample(data, bad, targets, validate=True)
    assert e.value.where["batch"] == 3 and e.value.where["index"] == 7
    robocache.resample(data, bad, targets)  # validate=False: no error and no crash
    with pytest.raises(robocache.Malformed, match="not finite"):
        robocache.resample(
            data,
            torch.where(times == times[1, 2], float("nan"), times.double()),
            targets.double(),
            validate=True,
        )
    with pytest.raises(robocache.Error, match="outside the source range"):
        robocache.resample(data, times, targets + 5000, edge="error")
    torch.cuda.synchronize()


def test_devices() -> None:
    data, times, targets = make()
    d = data.cuda()
    # times are moved to the device of the data
    same(robocache.resample(d, times, targets), robocache.resample(data, times, targets))
    same(
        robocache.resample(d, times.numpy(), targets.tolist()),
        robocache.resample(data, times, targets),
    )
    with pytest.raises(robocache.Misuse, match="must be on the same device"):
        robocache.fuse([(d, times.cuda()), (data, times)], targets.cuda())
    with pytest.raises(robocache.Unsupported, match="CUDA backend requested but"):
        robocache.resample(data, times, targets, backend="cuda")
    with pytest.raises(robocache.Misuse):
        robocache.resample(d, times, targets, backend="cpu")
    if torch.cuda.device_count() > 1:
        here = torch.cuda.current_device()
        same(
            robocache.resample(data.cuda(1), times.cuda(1), targets.cuda(1)),
            robocache.resample(data, times, targets),
        )
        assert torch.cuda.current_device() == here


def test_gradients() -> None:
    for dtype, mode, edge in itertools.product(
        FLOATS, ("linear", "nearest", "previous"), ("clamp", "mask", "extrapolate")
    ):
        data, times, targets = make(dtype)
        g = torch.randn(B, T, D, dtype=torch.float64).to(dtype)
        back = []
        for move in (lambda x: x, lambda x: x.cuda()):
            x = move(data).clone().requires_grad_()
            out = robocache.resample(
                x, move(times), move(targets.sort(1).values), mode=mode, edge=edge
            )
            back.append(torch.autograd.grad(out, x, move(g))[0])
        same(back[1], back[0])
    x = torch.randn(2, 9, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    t, u = torch.arange(9).cuda() * 10, torch.randint(-5, 95, (2, 11)).cuda()
    assert torch.autograd.gradcheck(lambda x: robocache.resample(x, t, u), (x,))
    assert torch.autograd.gradgradcheck(lambda x: robocache.resample(x, t, u), (x,))


def test_compiled() -> None:
    data, times, targets = (x.cuda() for x in make())

    def work(x: Any, t: Any, u: Any) -> Any:
        return robocache.fuse([(x * 2, t), (x, t, {"mode": "previous"})], u) + 1

    compiled = torch.compile(work, fullgraph=True)
    assert torch.equal(compiled(data, times, targets), work(data, times, targets))
    options = '{"series": [{"has": [], "name": "data"}]}'
    torch.library.opcheck(
        torch.ops.robocache.resample.default,
        (data.clone().requires_grad_(), times, targets, [], options, None, True),
    )


GRID: dict[str, Any] = {
    "grid_min": (-1.0, -1.5, 0.0),
    "voxel_size": (0.21, 0.3, 0.17),
    "grid_size": (11, 7, 13),
}


@pytest.mark.parametrize("mode", ["occupancy", "count", "sum", "mean", "max", "min", "first"])
def test_voxels(mode: str) -> None:
    g = torch.Generator().manual_seed(3)
    for n, batch, f, outside in (
        (0, None, 3, "drop"),
        (5000, None, 1, "drop"),
        (3000, 4, 8, "clip"),
        (70_000, None, 5, "drop"),
    ):
        shape = (n,) if batch is None else (batch, n)
        p = torch.randn(*shape, 3, generator=g)
        if n:
            p.view(-1, 3)[5] = float("nan")
        x = torch.randn(*shape, f, generator=g) if mode not in ("occupancy", "count") else None
        kw = {**GRID, "mode": mode, "outside": outside, "return_stats": True}
        want, counts = robocache.voxelize(p, x, **kw)
        got, stats = robocache.voxelize(p.cuda(), None if x is None else x.cuda(), **kw)
        same(got, want)
        assert torch.equal(stats.cpu(), counts)
        again = robocache.voxelize(p.cuda(), None if x is None else x.cuda(), **kw)[0]
        assert torch.equal(got, again), "two runs differ"
        want = robocache.voxelize(p, x, layout="sparse", **GRID, mode=mode, outside=outside)
        got = robocache.voxelize(
            p.cuda(),
            None if x is None else x.cuda(),
            layout="sparse",
            **GRID,
            mode=mode,
            outside=outside,
        )
        assert got.found == want.found
        same(got.coords, want.coords)
        same(got.counts, want.counts)
        if x is not None:
            same(got.features, want.features)
            oracle = robocache.voxelize(
                p.cuda(), x.cuda(), backend="pytorch", **GRID, mode=mode, outside=outside
            )
            assert torch.allclose(
                robocache.voxelize(p.cuda(), x.cuda(), **GRID, mode=mode, outside=outside),
                oracle,
                rtol=1e-6,
                atol=1e-6,
            )
        if n:
            few = robocache.voxelize(
                p.cuda(),
                None if x is None else x.cuda(),
                layout="sparse",
                capacity=10,
                **GRID,
                mode=mode,
                outside=outside,
            )
            assert int(few.found) == want.found and len(few.coords) == 10
            same(few.coords, want.coords[:10])


def test_depth_and_tsdf() -> None:
    depth = (
        (torch.rand(3, 60, 80) * 4000).to(torch.int32).to(torch.uint16)
        if hasattr(torch, "uint16")
        else None
    )
    camera, pose = (70.0, 71.0, 40.0, 30.0), np.eye(4)
    pose[:3, 3] = (0.1, -0.2, 0.3)
    for d in (depth, torch.rand(60, 80) * 4):
        want, valid = robocache.depth_to_points(d, camera, pose=pose, return_valid=True)
        got, mask = robocache.depth_to_points(d.cuda(), camera, pose=pose, return_valid=True)
        same(got, want)
        assert torch.equal(mask.cpu(), valid)
    results = []
    for device in ("cpu", "cuda"):
        value, weight = (
            torch.zeros(24, 20, 22, device=device),
            torch.zeros(24, 20, 22, device=device),
        )
        for i in range(3):
            d = (torch.rand(60, 80, generator=torch.Generator().manual_seed(i)) * 4).to(device)
            robocache.tsdf_integrate(
                value,
                weight,
                d,
                camera,
                view=pose,
                grid_min=(-2, -2, 0.5),
                voxel_size=0.2,
                truncate=0.4,
            )
        results.append((value, weight))
    same(results[1][1], results[0][1])
    seen = results[0][1] > 0
    same(results[1][0] * seen.cuda(), results[0][0] * seen)


def test_beyond_2_31_elements() -> None:
    if torch.cuda.get_device_properties(0).total_memory < 12 << 30:
        pytest.skip("less than 12 GiB")
    n = (1 << 31) + 8
    data = torch.zeros(2, n // 8, 4, dtype=torch.uint8, device="cuda")
    data[1, -1] = 7
    times = torch.arange(n // 8, device="cuda")
    got = robocache.resample(
        data, times, torch.tensor([0, n // 8 - 1], device="cuda"), mode="nearest"
    )
    assert got.tolist() == [[[0] * 4] * 2, [[0] * 4, [7] * 4]]


def test_self_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert robocache.self_test()
    assert "kernel CUDA" in capsys.readouterr().out


def best(f: Any, n: int = 300, rounds: int = 30) -> float:
    """Returns the host time per call in µs, the best of several rounds.

    The device is idle before each round.
    """
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            f()
        times.append((time.perf_counter() - start) / n)
    torch.cuda.synchronize()
    return min(times) * 1e6


def test_host_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the host time of one small call, without asserting a limit.

    `robocache-bench ops` measures the same as a row, with a bar of 10 µs.
    """
    data, times, targets = (x.cuda() for x in make(d=8, b=4))
    out = torch.empty(4, T, 8, device="cuda")
    p = torch.rand(500, 3, device="cuda")
    told = {
        "torch.add": best(lambda: torch.add(data, data)),
        "torch.add out=": best(lambda: torch.add(data, data, out=data)),
        "torch.empty": best(
            lambda: torch.empty((4, T, 8), dtype=torch.float32, device=data.device)
        ),
        "resample": best(lambda: robocache.resample(data, times, targets)),
        "resample out=": best(lambda: robocache.resample(data, times, targets, out=out)),
        "resample and validity": best(
            lambda: robocache.resample(data, times, targets, return_valid=True)
        ),
        "fuse of three": best(
            lambda: robocache.fuse([(data, times), (data, times), (data, times)], targets)
        ),
        "torch.ops.robocache.resample": best(
            lambda: torch.ops.robocache.resample(
                data, times, targets, [], '{"series": [{"has": [], "name": "data"}]}', None, False
            )
        ),
    }
    with capsys.disabled():
        print("\nhost time of one call, µs: " + ", ".join(f"{k} {v:.2f}" for k, v in told.items()))
        print(
            "voxelize "
            f"{best(lambda: robocache.voxelize(p, grid_min=0, voxel_size=0.1, grid_size=10)):.2f}"
        )
