"""The old names: signatures, types and clock (docs/migration.md).

Also covers the errors of the earlier RoboCache (specs: kernels, section 8).
"""

from __future__ import annotations

import importlib.util
import io
import itertools

import numpy as np
import pytest

import robocache


def old(data: np.ndarray, times: np.ndarray, targets: np.ndarray, epsilon: float) -> np.ndarray:
    """Computes the earlier rule sample by sample.

    The rule is t0 < t <= t1 and (t - t0) / ((t1 - t0) + epsilon). Targets outside the data get the
    edge sample.
    """
    out = np.empty((*targets.shape, data.shape[2]))
    for b in range(len(data)):
        s, v = times[b].astype(np.float64), data[b].astype(np.float64)
        for i, t in enumerate(targets[b].astype(np.float64)):
            k = int(np.searchsorted(s, t, side="left"))
            if k == 0 or k == len(s):
                out[b, i] = v[min(k, len(s) - 1)]
            else:
                w = (t - s[k - 1]) / (s[k] - s[k - 1] + epsilon)
                out[b, i] = v[k - 1] + w * (v[k] - v[k - 1])
    return out


def case(b: int, s: int, t: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.random((b, s)), axis=1).astype(np.float32)
    targets = np.sort(rng.random((b, t)), axis=1).astype(np.float32)
    n = min(s, t) // 2
    targets[:, :n] = times[:, :n]  # targets that equal a sample's timestamp
    return rng.normal(size=(b, s, d)).astype(np.float32), times, np.sort(targets, axis=1)


CASES = list(itertools.product((1, 4, 8), (10, 50, 100), (5, 25, 80), (1, 3, 16)))


def test_reference_a() -> None:
    """Reference A: epsilon 1e-8 on the left-open interval, rtol 1e-5, atol 1e-6.

    All 81 cases pass with the earlier rule, and some fail with the new rule.
    """
    new = 0
    for i, (b, s, t, d) in enumerate(CASES):
        data, times, targets = case(b, s, t, d, i)
        want = old(data, times, targets, 1e-8)
        np.testing.assert_allclose(
            robocache.resample_trajectories(data, times, targets), want, rtol=1e-5, atol=1e-6
        )
        new += not np.allclose(robocache.resample(data, times, targets), want, rtol=1e-5, atol=1e-6)
    assert new > 0, "these cases do not distinguish the two rules"


def test_reference_b() -> None:
    """Reference B: epsilon 1e-9 at rtol 1e-4.

    All cases pass if epsilon=1e-9 is given. Some fail with the default epsilon, which reference A
    needs.
    """
    default = 0
    for i, (b, s, t, d) in enumerate(CASES[::3]):
        data, times, targets = case(b, s, t, d, 100 + i)
        want = old(data, times, targets, 1e-9)
        np.testing.assert_allclose(
            robocache.resample_trajectories(data, times, targets, epsilon=1e-9),
            want,
            rtol=1e-4,
            atol=1e-7,
        )
        default += not np.allclose(
            robocache.resample_trajectories(data, times, targets), want, rtol=1e-4, atol=1e-9
        )
    assert default > 0


def test_reference_c() -> None:
    """Reference C: the new names without epsilon, at rtol 1e-5.

    float64 times are rounded to whole nanoseconds.
    """
    for i, (b, s, t, d) in enumerate(CASES[::3]):
        data, times, targets = case(b, s, t, d, 200 + i)
        times, targets = (
            np.unique(np.rint(times.astype(np.float64) * 1e9), axis=1) / 1e9
            if b == 1
            else np.rint(x.astype(np.float64) * 1e9) / 1e9
            for x in (times, targets)
        )
        if times.shape[1] != s:
            continue
        np.testing.assert_allclose(
            robocache.resample(data, times, targets),
            old(data, times, targets, 0),
            rtol=1e-5,
            atol=1e-6,
        )
        np.testing.assert_allclose(
            robocache.resample_trajectories(data, times, targets, epsilon=0),
            old(data, times, targets, 0),
            rtol=1e-5,
            atol=1e-6,
        )


def test_clock() -> None:
    x, t = np.array([[[0.0], [1.0], [3.0]]]), np.array([[0.0, 1.0, 2.0]])
    half = robocache.resample_trajectories(x, t, np.array([[0.5]]))
    assert half[0, 0, 0] == 0.5 / (1 + 1e-8)
    hit = robocache.resample_trajectories(x, t, np.array([[0.0, 1.0]]))[0, :, 0]
    # the target belongs to the interval that ends there, so the sample is not exact
    assert hit[0] == 0 and hit[1] == 1 / (1 + 1e-8)
    assert robocache.resample_trajectories(x, t, np.array([[1.0]]), epsilon=0)[0, 0, 0] == 1
    # int64 times are nanoseconds and use the new rule: a hit returns the sample.
    ns = (t * 1e9).astype(np.int64)
    assert robocache.resample_trajectories(x, ns, ns)[0, :, 0].tolist() == [0, 1, 3]
    # Floating-point times are used as given, without rounding to nanoseconds.
    fine = np.array([[0.0, 1e-10, 2e-10]])
    got = robocache.resample_trajectories(x, fine, np.array([[0.5e-10]]), epsilon=0)
    assert got[0, 0, 0] == pytest.approx(0.5)
    with pytest.raises(robocache.Misuse, match="epsilon"):
        robocache.resample_trajectories(x, t, t, epsilon=-1)
    with pytest.raises(robocache.Malformed, match="timestamps must not decrease"):
        robocache.resample_trajectories(x, t[:, ::-1].copy(), t)


def test_signatures(torch) -> None:  # type: ignore[no-untyped-def]
    x, t, u = (
        torch.randn(2, 10, 3),
        torch.arange(10.0).expand(2, -1),
        torch.linspace(0, 9, 7).expand(2, -1),
    )
    want = robocache.resample_trajectories(x, t, u)
    assert want.dtype == x.dtype and want.shape == (2, 7, 3)
    assert torch.equal(
        robocache.resample_trajectories(
            source_data=x, source_times=t, target_times=u, backend="pytorch"
        ),
        want,
    )
    assert torch.equal(robocache.resample_trajectories(x, t, u, "cpu", "cpu"), want)
    assert isinstance(
        robocache.resample_trajectories(x.numpy(), t.numpy(), u.numpy(), device="cpu"), torch.Tensor
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert robocache.resample_trajectories(x.to(dtype), t, u).dtype == dtype
    assert torch.equal(
        robocache.resample_trajectories(x, t.half(), u.bfloat16().float()),
        robocache.resample_trajectories(x, t.half().float(), u.bfloat16().float()),
    )
    y = torch.randn(2, 5, 4)
    s = torch.linspace(0, 9, 5).expand(2, -1)
    odd = robocache.fuse_multimodal(x, t, y, s, u)
    assert odd.shape == (2, 7, 7) and torch.equal(odd[..., :3], want)
    even = robocache.fuse_multimodal(x, t, y, s)
    assert (
        even.shape == (2, 10, 7)
        and torch.equal(even[..., :3], x)
        and torch.equal(even[..., 3:], robocache.resample_trajectories(y, s, t))
    )
    named = {"stream1_data": x, "stream1_times": t, "stream2_data": y, "stream2_times": s}
    assert torch.equal(robocache.fuse_multimodal(**named, target_times=u), odd)
    assert torch.equal(
        robocache.fuse_multimodal(
            primary_data=x, primary_times=t, secondary_data=y, secondary_times=s
        ),
        even,
    )
    assert torch.equal(robocache.fuse_multimodal_alignment(x, t, y, s, None, None, u), odd)
    assert robocache.fused_multimodal_alignment is robocache.fuse_multimodal_alignment
    out = torch.empty(2, 7, 7)
    assert robocache.fuse_multimodal(x, t, y, s, u, out=out) is out and torch.equal(out, odd)
    out = torch.empty(2, 10, 7)
    assert robocache.fuse_multimodal(x, t, y, s, out=out) is out and torch.equal(out, even)
    g = x.clone().requires_grad_()
    robocache.resample_trajectories(g, t, u).sum().backward()
    assert g.grad.shape == x.shape
    for bad in ((x, None, u), (None, None, u), (x, t, y, s, u, u)):
        with pytest.raises(robocache.Misuse):
            robocache.fuse_multimodal(*bad)
    with pytest.raises(robocache.Misuse, match="did you mean 'stream1_data'"):
        robocache.fuse_multimodal(stream1_dat=x, target_times=u)
    with pytest.raises(ValueError, match="Invalid backend 'triton'.*Unknown backend"):
        robocache.resample_trajectories(x, t, u, backend="triton")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA backend requested but"):
            robocache.resample_trajectories(x, t, u, backend="cuda")
    with pytest.raises(RuntimeError, match="Batch size mismatch"):
        robocache.resample_trajectories(x, t[:1], u)
    with pytest.raises(ValueError, match="Source length mismatch"):
        robocache.resample_trajectories(x, t[:, :5], u)
    with pytest.raises(robocache.Misuse, match="Stream dtypes must match"):
        robocache.fuse_multimodal(x, t, y.double(), s, u)


def test_voxel_types(torch) -> None:  # type: ignore[no-untyped-def]
    p = torch.randn(50, 3)
    assert robocache.voxelize_pointcloud(p).dtype == torch.int32 and robocache.voxelize_pointcloud(
        p
    ).shape == (128, 128, 128)
    assert robocache.voxelize_pointcloud(p, mode="count").dtype == torch.int32
    for mode in ("mean", "max", "min", "sum", "first"):
        got = robocache.voxelize_pointcloud(p, torch.randn(50, 2), [-2.0] * 3, 0.5, [8, 8, 8], mode)
        assert got.dtype == torch.float32 and got.shape == (8, 8, 8, 2)
    assert robocache.voxelize_pointcloud(p.expand(3, 50, 3), grid_size=[8, 9, 10]).shape == (
        3,
        8,
        9,
        10,
    )
    assert isinstance(robocache.voxelize_pointcloud(p.tolist(), grid_size=(4, 4, 4)), np.ndarray)
    for f in (robocache.voxelize_occupancy, robocache.voxelize_point_cloud):
        got = f(p, (8, 8, 8), 0.5, (-2.0, -2.0, -2.0))
        assert (
            got.dtype == torch.float32
            and set(got.unique().tolist()) <= {0.0, 1.0}
            and got.shape == (8, 8, 8)
        )
        assert f(p[None], torch.tensor([8, 8, 8]), 0.5, torch.tensor([-2.0, -2, -2])).shape == (
            1,
            8,
            8,
            8,
        )
    for kw, phrase in (
        ({"voxel_size": 0.0}, "voxel_size must be positive"),
        ({"voxel_size": float("nan")}, "voxel_size must be positive"),
        ({"grid_size": [0, 1, 1]}, "Invalid grid dimensions"),
        ({"mode": "mean"}, "features required for mean/max modes"),
        ({"mode": "median"}, "Invalid mode"),
        ({"points": torch.zeros(5, 4)}, "points must have shape"),
    ):
        with pytest.raises(robocache.Misuse, match=phrase):
            robocache.voxelize_pointcloud(**{"points": p, **kw})


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_was_wrong(torch, device: str) -> None:  # type: ignore[no-untyped-def]
    """Checks each row of the table of earlier errors, on each device."""
    if device == "cuda" and not (torch.cuda.is_available() and robocache.is_cuda_available()):
        pytest.skip("no CUDA device")
    on = {"device": device}
    x = torch.randn(32, 20, 6, **on)
    line = torch.linspace(0, 1, 20, **on)
    u = torch.linspace(0, 1, 9, **on)
    for f in (robocache.resample, robocache.resample_trajectories):
        full = f(x, line.expand(32, -1).contiguous(), u.expand(32, -1).contiguous())
        assert torch.equal(f(x, line.expand(32, -1), u.expand(32, -1)), full)
        wide = torch.randn(32, 20, 12, **on)
        assert torch.equal(f(wide[:, :, ::2], line, u), f(wide[:, :, ::2].contiguous(), line, u))
        ends = f(
            torch.tensor([[[0.0], [1.0]]], **on),
            torch.tensor([[0.0, 1.0]], **on),
            torch.tensor([[2.0, -1.0]], **on),
        )
        assert ends.flatten().tolist() == [1, 0]
    ends = robocache.fuse_multimodal(
        *[torch.tensor([[[0.0], [1.0]]], **on), torch.tensor([[0.0, 1.0]], **on)] * 2,
        torch.tensor([[2.0, -1.0]], **on),
    )
    assert ends.tolist() == [[[1, 1], [0, 0]]]
    epoch = torch.tensor([0, 100_000_000, 50_000_000_000], **on) + 1_760_000_000_000_000_000
    assert robocache.resample(torch.tensor([1.0, 2.0, 3.0], **on), epoch, epoch).tolist() == [
        1,
        2,
        3,
    ]
    many = torch.linspace(0, 1, 70_000, **on)
    assert torch.equal(
        robocache.fuse([(x[:1], line), (x[:1], line)], many)[..., :6],
        robocache.resample(x[:1], line, many),
    )
    grid = {"grid_min": 0, "voxel_size": 1.0}
    assert not robocache.voxelize(torch.zeros(0, 3, **on), grid_size=4, **grid).any()
    for size in ((4, 4, 4), (2, 3, 5)):
        assert robocache.voxelize(
            torch.tensor([[0.5, 1.5, 3.5]], **on), grid_size=size, **grid
        ).nonzero().tolist() == [[0, 1, 3]]
    two = torch.tensor([[0.5, 0.5, 0.5]] * 2, **on)
    assert (
        robocache.voxelize(
            two, torch.tensor([[-3.0], [-1.0]], **on), grid_size=1, mode="max", **grid
        ).item()
        == -1
    )
    got, stats = robocache.voxelize(
        torch.tensor([[float("nan"), 0, 0], [9, 9, 9]], **on),
        grid_size=4,
        return_stats=True,
        **grid,
    )
    assert not got.any() and stats.tolist() == [0, 1, 1]
    p, f = torch.rand(20_000, 3, **on), torch.randn(20_000, 4, **on)
    runs = [
        robocache.voxelize(p, f, grid_min=0, voxel_size=0.25, grid_size=4, mode="mean")
        for _ in range(5)
    ]
    assert all(torch.equal(r, runs[0]) for r in runs)
    got, valid = robocache.resample(x[:, :0], line[:0], u, return_valid=True)
    assert not got.any() and not valid.any()
    for dtype in (torch.float16, torch.float64, torch.bfloat16):
        assert robocache.fuse([(x.to(dtype), line), (x.to(dtype), line)], u).dtype == dtype
    right = robocache.resample(x, line, u)
    # times are moved to the device of the data
    assert torch.equal(robocache.resample(x, line.cpu(), u.cpu()), right)
    bad = line.clone()
    bad[3] = 5
    with pytest.raises(robocache.Malformed):
        robocache.resample(x, bad, u, validate=True)
    bad[3] = float("nan")
    with pytest.raises(robocache.Malformed):
        robocache.resample(x, bad, u, validate=True)


def test_set_device(torch) -> None:  # type: ignore[no-untyped-def]
    x, t = np.zeros((1, 3, 2), np.float32), np.arange(3.0)[None]
    try:
        robocache.set_device("cpu")
        assert isinstance(robocache.resample_trajectories(x, t, t), torch.Tensor)
        if torch.cuda.is_available() and robocache.is_cuda_available():
            robocache.set_device("cuda")
            assert robocache.resample_trajectories(x, t, t).is_cuda
        else:
            with pytest.raises(robocache.Unsupported, match="CUDA backend requested but"):
                robocache.set_device("cuda")
        with pytest.raises(robocache.Misuse):
            robocache.set_device("tpu")
    finally:
        robocache.set_device(None)
    assert isinstance(robocache.resample_trajectories(x, t, t), np.ndarray)


def test_information(monkeypatch: pytest.MonkeyPatch) -> None:
    info = robocache.check_installation()
    assert {
        "cuda_extension_available",
        "multimodal_extension_available",
        "voxelize_extension_available",
        "pytorch_available",
        "cuda_device_available",
        "gpu_name",
        "version",
        "cpu_features",
        "driver",
        "reasons",
    } <= set(info)
    assert (
        robocache.is_cuda_available()
        == info["cuda_extension_available"]
        == ("cuda" not in info["reasons"])
    )
    text = io.StringIO()
    robocache.print_installation_info(text)
    assert (
        text.getvalue().startswith("RoboCache Installation Info\n")
        and info["version"] in text.getvalue()
    )
    monkeypatch.setenv("CUDA_CACHE_PATH", "/somewhere")
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    assert robocache.enable_jit_cache() == "/somewhere"


def test_old_names() -> None:
    for name in robocache._OLD:
        assert callable(getattr(robocache, name))
    with pytest.raises(AttributeError, match="did you mean"):
        robocache.resample_trajectorie  # noqa: B018


def test_onto_the_first_clock(torch) -> None:  # type: ignore[no-untyped-def]
    """With an even number of tensors the first stream is copied, and all arguments are checked."""
    x, t = torch.randn(2, 10, 3), torch.arange(10.0).expand(2, -1)
    y, s = torch.randn(2, 5, 4), torch.linspace(0, 9, 5).expand(2, -1)
    f = robocache.fuse_multimodal
    nan = t.clone()
    nan[1, 4] = float("nan")
    for error, phrase, args, kw in (
        (robocache.Misuse, "Stream dtypes must match", (x, t, y.double(), s), {}),
        (robocache.Misuse, "Source length mismatch", (x, t[:, :5], y, s), {}),
        (robocache.Misuse, "Source length mismatch", (x, t[:, :5]), {}),
        (robocache.Misuse, "Batch size mismatch", (x, t, y[:1], s[:1]), {}),
        (robocache.Malformed, "timestamps must not decrease", (x, t.flip(1), y, s), {}),
        (robocache.Malformed, "not finite", (x, nan), {}),
        (robocache.Misuse, "Invalid backend 'x'", (x, t), {"backend": "x"}),
        (robocache.Unsupported, "CUDA backend requested but", (x, t), {"backend": "cuda"}),
        (robocache.Misuse, "Invalid mode", (x, t), {"mode": "cubic"}),
        (
            robocache.Misuse,
            "out has wrong shape",
            (x[:1], t[:1], y[:1], s[:1]),
            {"out": torch.empty(2, 10, 7)},
        ),
        (robocache.Misuse, "out aliases", (x, t), {"out": x}),
        (robocache.Misuse, "complex", (x + 0j, t), {}),
        (robocache.Misuse, "target_times", ([x[0], x[1, :4]], t), {}),
    ):
        with pytest.raises(error, match=phrase):
            f(*args, **kw)
    want = f(x, t, y, s)
    for a, b in ((x, t.numpy()), (x, t)):
        # the result has the type of the first argument
        assert torch.equal(f(a, b, y.numpy(), s), want)
    assert isinstance(f(x.numpy(), t, y, s), np.ndarray) and np.array_equal(
        f(x.numpy(), t, y, s), want
    )
    assert f(x[0, :, 0], t[0], y[0, :, 0], s[0]).shape == (10, 2)
    got, valid = f(x, t, y, s, return_valid=True)
    assert torch.equal(got, want) and valid[..., 0].all()
    assert f(x, t, return_valid=True)[1].all()
    twice = torch.tensor([[0.0, 1, 1, 2]])  # samples with equal timestamps keep their values
    assert torch.equal(f(x[:1, :4], twice), x[:1, :4])
    g, h = x.clone().requires_grad_(), y.clone().requires_grad_()
    f(g, t, h, s).sum().backward()
    assert torch.equal(g.grad, torch.ones_like(x)) and h.grad.abs().sum() > 0
    assert torch.equal(
        f(x, t, y, s, epsilon=np.float32(1e-8)), f(x, t, y, s, epsilon=float(np.float32(1e-8)))
    )


def test_devices_that_are_not_here(torch) -> None:  # type: ignore[no-untyped-def]
    x, t = torch.zeros(1, 3, 2), torch.arange(3.0)[None]
    with pytest.raises(robocache.Misuse, match="'cuda:1'"):
        robocache.resample_trajectories(x, t, t, device="tpu")
    with pytest.raises(robocache.Unsupported, match="CUDA backend requested but"):
        robocache.resample_trajectories(x, t, t, device=f"cuda:{torch.cuda.device_count()}")


def test_other_imports_fail_as_ever() -> None:
    for statement in (
        "import robocache.nothing",
        "from robocache import Loadr",
        "from robocache.datasets import RTXDatset",
    ):
        with pytest.raises(ImportError) as e:
            exec(statement)
        assert not isinstance(e.value, robocache.Error)
    assert importlib.util.find_spec("robocache.nothing") is None
    with pytest.raises(AttributeError, match="did you mean 'RTXDataset'"):
        robocache.datasets.RTXDatset  # noqa: B018
