"""Operations on torch tensors on the CPU.

Covers strides, gradients, compilation, special tensors, and torch's own operators as a reference.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import robocache  # noqa: E402

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
OPTIONS = '{"series": [{"has": [], "name": "data"}]}'


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def make(dtype: Any = torch.float64, s: int = 12, d: int = 3) -> tuple[Any, Any, Any]:
    return (
        torch.randn(2, s, d, dtype=torch.float64).to(dtype),
        torch.randint(0, 500, (2, s)).sort(1).values,
        torch.randint(-50, 550, (2, 17)),
    )


def test_as_numpy_does() -> None:
    for mode, dtype in itertools.product(
        ("linear", "nearest", "slerp", "angle"), (torch.float32, torch.float64)
    ):
        data, times, targets = make(dtype, d=4)
        got, valid = robocache.resample(data, times, targets, mode=mode, return_valid=True)
        want, mask = robocache.resample(
            data.numpy(), times.numpy(), targets.numpy(), mode=mode, return_valid=True
        )
        np.testing.assert_array_equal(got.numpy(), want)
        np.testing.assert_array_equal(valid.numpy(), mask)
        assert isinstance(got, torch.Tensor) and valid.dtype == torch.bool
    # the result has the type of the first argument
    assert isinstance(robocache.resample(data.numpy(), times, targets), np.ndarray)
    assert isinstance(robocache.resample(data, times.numpy(), targets.tolist()), torch.Tensor)


def test_nothing_is_copied_and_nothing_is_shared() -> None:
    base, times, targets = make(torch.float32, s=24, d=8)
    for view in (
        base[:, ::2, ::2],
        base[:1, ::2].expand(2, -1, -1),
        base.transpose(1, 2)[:, :12, :4],
    ):
        clock = times[:, : view.shape[1]]
        got = robocache.resample(view, clock, targets)
        assert torch.equal(got, robocache.resample(view.contiguous(), clock.contiguous(), targets))
        assert got.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()


def test_ragged() -> None:
    parts = [torch.randn(n, 3) for n in (5, 0, 9)]
    times = [torch.arange(len(p)) * 10 for p in parts]
    targets = torch.arange(0, 100, 7)
    want = robocache.resample(parts, times, targets)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert torch.equal(robocache.resample(jagged, torch.cat(times), targets), want)
    assert torch.equal(
        robocache.resample(jagged, torch.nested.nested_tensor(times, layout=torch.jagged), targets),
        want,
    )
    offsets = torch.tensor([0, 5, 5, 14])
    assert torch.equal(
        robocache.resample(torch.cat(parts), torch.cat(times), targets, offsets=offsets), want
    )
    for b in range(3):
        assert torch.equal(want[b], robocache.resample(parts[b], times[b], targets))
    points = [torch.rand(n, 3) for n in (50, 0, 7)]
    grid: dict[str, Any] = {"grid_min": 0, "voxel_size": 0.25, "grid_size": 4, "mode": "count"}
    got = robocache.voxelize(points, **grid)
    assert got.shape == (3, 4, 4, 4)
    assert all(torch.equal(got[b], robocache.voxelize(points[b], **grid)) for b in range(3))
    assert torch.equal(
        robocache.voxelize(torch.nested.nested_tensor(points, layout=torch.jagged), **grid), got
    )


@pytest.mark.parametrize("mode", ["linear", "nearest", "previous", "next"])
@pytest.mark.slow
def test_gradients(mode: str) -> None:
    data, times, targets = make(s=6)
    # targets before, in and after the data; each derivative is checked by finite differences
    targets = targets[:, :8]
    assert (targets < times[:, :1]).any() and (targets > times[:, -1:]).any()
    data.requires_grad_()
    for edge, more in itertools.product(
        ("clamp", "mask", "extrapolate"),
        (
            {},
            {"max_gap": "60ns"},
            {"normalize": {"mean": [1, 2, 3], "std": [2, 0, 4]}},
            {"lengths": [3, 6]},
        ),
    ):

        def f(x: Any) -> Any:
            return robocache.resample(x, times, targets, mode=mode, edge=edge, **more)

        assert torch.autograd.gradcheck(f, (data,))
        assert torch.autograd.gradgradcheck(f, (data,))


def test_gradients_of_friendly_shapes() -> None:
    t, u = torch.arange(9) * 10, torch.randint(0, 80, (5,))
    x = torch.randn(9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: robocache.resample(x, t, u), (x,))
    parts = [torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (4, 9)]
    assert torch.autograd.gradcheck(
        lambda *p: robocache.resample(list(p), [t[: len(q)] for q in p], u), tuple(parts)
    )
    y = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, y: robocache.fuse([(x, t), (y, t, {"mode": "previous"})], u), (x, y)
    )
    assert torch.autograd.gradcheck(lambda y: robocache.resample(y, t, hz=1e8), (y,))
    for norm in ("unit", {"min": [0, 1], "max": [2, 5]}):
        assert torch.autograd.gradcheck(
            lambda y, norm=norm: robocache.resample(y, t, u, normalize=norm), (y,)
        )
    with torch.no_grad():
        assert robocache.resample(y, t, u).grad_fn is None
    for kw, kind, phrase in (
        ({"mode": "slerp", "quats": []}, robocache.Unsupported, "no gradient"),
        ({"mode": "angle"}, robocache.Unsupported, "no gradient"),
        ({"clip": (0, 1)}, robocache.Unsupported, "clip= has no gradient"),
        (
            {"out": torch.empty(5, 2, dtype=torch.float64)},
            robocache.Misuse,
            "out= keeps no gradient",
        ),
    ):
        with pytest.raises(kind, match=phrase):
            robocache.resample(y, t, u, **kw)
    with pytest.raises(robocache.Unsupported, match="no gradient"):
        robocache.voxelize(torch.rand(9, 3), y, grid_min=0, voxel_size=1, grid_size=1, mode="mean")


def test_gradient_of_repeated_reads() -> None:
    """The gradient of a sample is the sum over all rows that read it, in order."""
    x = torch.zeros(4, 1, requires_grad=True)
    robocache.resample(x, torch.arange(4) * 10, torch.tensor([5, 5, 10, -3, 99])).sum().backward()
    # half of two rows and the row before; half of two rows and the hit; none; the row after
    assert x.grad.flatten().tolist() == [2, 2, 0, 1]


@pytest.mark.slow
def test_opcheck() -> None:
    data, times, targets = make()
    lengths = torch.tensor([3, 12])
    two = (
        '{"series": [{"has": ["lengths"], "name": "a"}, {"has": [], "name": "b", "mode": '
        '"previous"}]}'
    )
    ops = torch.ops.robocache
    torch.library.opcheck(
        ops.resample.default,
        (data.clone().requires_grad_(), times, targets, [], OPTIONS, None, True),
    )
    torch.library.opcheck(
        ops.fuse.default,
        (
            [data.clone().requires_grad_(), data],
            [times, times],
            targets,
            [lengths],
            two,
            None,
            True,
        ),
    )
    torch.library.opcheck(
        ops.resample_backward.default,
        (
            torch.randn(2, 17, 3, dtype=torch.float64, requires_grad=True),
            times,
            targets,
            [],
            [2, 12, 3],
            OPTIONS,
            torch.float64,
        ),
    )


def test_opcheck_of_voxels() -> None:
    options = (
        '{"grid_min": [0, 0, 0], "voxel_size": [1, 1, 1], "grid_size": [2, 2, 2], "mode": '
        '"mean", "out_dtype": "float32"}'
    )
    torch.library.opcheck(
        torch.ops.robocache.voxelize.default,
        (torch.rand(9, 3), torch.rand(9, 2), None, None, options),
    )


GAP, STATS = 0.25, {"mean": [1.0, 2.0, 3.0], "std": [2.0, 1.0, 4.0]}


@pytest.mark.parametrize("dynamic", [False, True, None])
@pytest.mark.slow
def test_compiled_whole(dynamic: bool | None) -> None:
    data, times, targets = make(torch.float32)

    def one(x: Any, t: Any, u: Any) -> Any:
        return robocache.resample(x * 2, t, u) + 1

    def many(x: Any, t: Any, u: Any) -> Any:
        return robocache.fuse(
            [(x, t), (x[..., :1], t, {"mode": "nearest"})], u, return_valid=True, max_gap=GAP
        )

    def options(x: Any, t: Any, u: Any) -> Any:
        return robocache.resample(
            x, t, u, max_gap=GAP, clip=(-GAP, GAP), normalize=STATS, dtype=torch.bfloat16
        )

    def flat(x: Any, t: Any, u: Any) -> Any:
        return robocache.resample(x[0, :, 0], t[0], u[0])

    def voxels(x: Any, t: Any, u: Any) -> Any:
        return robocache.voxelize(
            x.reshape(-1, 3), grid_min=(-1, -1, -1), voxel_size=GAP, grid_size=8, mode="count"
        )

    for f in (one, many, options, flat, voxels):
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for n in (2, 1):
            args = data[:n], times[:n], targets[:n, : 10 + n]
            for a, b in zip(as_tuple(compiled(*args)), as_tuple(f(*args)), strict=True):
                assert torch.equal(a, b), f.__name__


def as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


@pytest.mark.slow
def test_compiled_by_inductor() -> None:
    # Probes of the vector units, a precompiled header and worker processes take most of the time.
    from torch._inductor import config

    data, times, targets = make(torch.float32)

    def work(x: Any) -> Any:
        return (robocache.resample(x * 2, times, targets, mode="linear") ** 2).sum()

    a, b = data.clone().requires_grad_(), data.clone().requires_grad_()
    with config.patch(
        {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False, "compile_threads": 1}
    ):
        torch.compile(work, fullgraph=True)(a).backward()
    work(b).backward()
    assert torch.allclose(a.grad, b.grad)


def test_refused_where_compiled() -> None:
    data, times, targets = make(torch.float32)
    stats = {"mean": torch.zeros(3), "std": torch.ones(3)}
    for f in (
        lambda x: robocache.resample(x, times, hz=50),
        lambda x: robocache.resample(x, times, targets, normalize=stats),
    ):
        with pytest.raises(Exception, match="compile|numbers"):
            torch.compile(f, fullgraph=True, backend="eager")(data)


def test_exported_and_fake() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    data, times, targets = make(torch.float32)
    with FakeTensorMode() as mode:
        got = robocache.resample(
            mode.from_tensor(data),
            mode.from_tensor(times),
            mode.from_tensor(targets),
            dtype=torch.bfloat16,
        )
        assert got.shape == (2, 17, 3) and got.dtype == torch.bfloat16

    class Model(torch.nn.Module):
        def forward(self, x: Any, t: Any, u: Any) -> Any:
            return robocache.resample(x, t, u)

    program = torch.export.export(Model(), (data, times, targets))
    assert torch.equal(
        program.module()(data, times, targets), robocache.resample(data, times, targets)
    )


@pytest.mark.parametrize("first", ["robocache, torch", "torch, robocache"])
@pytest.mark.slow
def test_saved_program_in_a_new_process(first: str, script: Any, tmp_path: Path) -> None:
    """A saved program runs in a new process that imports both packages.

    The operators and their fakes are registered before the first call. `import robocache` imports
    neither torch nor torch's compiler.
    """
    data, times, targets = make(torch.float32)

    class Model(torch.nn.Module):
        def forward(self, x: Any, t: Any, u: Any) -> Any:
            cells = robocache.voxelize(
                x.reshape(-1, 3), grid_min=(-1, -1, -1), voxel_size=0.5, grid_size=4, mode="count"
            )
            return (
                robocache.resample(x, t, u),
                robocache.fuse([(x, t), (x, t, {"mode": "nearest"})], u),
                cells,
            )

    # The entry point of an installed package, which torch calls at the end of its own import.
    installed = tmp_path / "robocache-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: robocache\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "[torch.backends]\nrobocache = robocache._torch:register\n"
    )
    torch.export.save(
        torch.export.export(Model(), (data, times, targets)), tmp_path / "program.pt2"
    )
    torch.save((data, times, targets, Model()(data, times, targets)), tmp_path / "want.pt")
    done = script(
        f"""
        import importlib, sys
        first, second = "{first}".split(", ")
        importlib.import_module(first)
        assert first == "torch" or "torch" not in sys.modules
        importlib.import_module(second)
        assert "torch._dynamo" not in sys.modules
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        options = '{{"grid_min": [0, 0, 0], "voxel_size": [1, 1, 1], "grid_size": [2, 3, 4], "mode": "mean", "out_dtype": "float32"}}'
        with FakeTensorMode() as mode:
            p = mode.from_tensor(torch.rand(9, 3))
            assert torch.ops.robocache.voxelize(p, p, None, None, options)[0].shape == (2, 3, 4, 3)
        *inputs, want = torch.load(sys.argv[2])
        program = torch.export.load(sys.argv[1])
        for a, b in zip(program.module()(*inputs), want, strict=True):
            assert torch.equal(a, b)
        """,
        str(tmp_path / "program.pt2"),
        str(tmp_path / "want.pt"),
    )
    assert done.returncode == 0, done.stderr


class Logged(torch.Tensor):
    """A subclass that records each torch function called with it."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_and_parameters() -> None:
    data, times, targets = make(torch.float32)
    want = robocache.resample(data, times, targets)
    got = robocache.resample(data.as_subclass(Logged), times, targets)
    assert (
        isinstance(got, Logged)
        and any("robocache" in s for s in Logged.seen)
        and torch.equal(got.as_subclass(torch.Tensor), want)
    )
    assert torch.equal(
        robocache.resample(torch.nn.Parameter(data, requires_grad=False), times, targets), want
    )
    assert robocache.resample(torch.nn.Parameter(data), times, targets).requires_grad


def test_negated_views() -> None:
    data, times, targets = make()
    z = torch.complex(torch.zeros_like(data), data).conj().imag
    assert z.is_neg()
    for _ in range(2):
        assert torch.equal(
            robocache.resample(z, times, targets), robocache.resample(-data, times, targets)
        )


def test_what_is_no_memory() -> None:
    _, times, targets = make()
    for bad in (
        torch.zeros(2, 12, 3, device="meta"),
        torch.zeros(2, 12, 3).to_sparse(),
        torch.zeros(2, 12, 3, dtype=torch.complex64),
        torch.quantize_per_tensor(torch.zeros(2, 12, 3), 0.1, 0, torch.quint8),
    ):
        for call in (
            lambda bad=bad: robocache.resample(bad, times, targets),
            lambda bad=bad: robocache.voxelize(bad, grid_min=0, voxel_size=1, grid_size=2),
        ):
            with pytest.raises(robocache.Misuse):
                call()
    with pytest.raises(robocache.Misuse, match="must be a|wrong dtype|unsupported dtype"):
        robocache.resample(
            torch.zeros(2, 12, 3), times, targets, out=torch.zeros(2, 17, 3), dtype=torch.float64
        )


def test_torch_operators_agree() -> None:
    """The operations equal the reference made of torch's operators, to the bit.

    float64 may differ by 1e-13.
    """
    from robocache._tensors import arrays as _arrays, oracle as _oracle, resampling as _resampling

    norm = {"mean": [1, 2, 3], "std": [2, 0, 3]}
    for mode, edge, dtype, gap, clock in itertools.product(
        ("linear", "previous", "next", "nearest"),
        ("clamp", "mask", "extrapolate"),
        FLOATS,
        (None, "60ns"),
        ("ns", "given"),
    ):
        data, times, targets = make(dtype)
        if clock == "given":
            times, targets = times.double() / 500, targets.double() / 500
            gap = gap and 0.12
        for more in ({}, {"normalize": norm}, {"lengths": [0, 7]}):
            rule = {"mode": mode, "edge": edge, "max_gap": gap, **more}
            got, ok, _, _ = _resampling.run_call(
                [("data", data, times, rule)],
                targets,
                single=True,
                want_valid=True,
                clock=clock,
                epsilon=1e-8 if clock == "given" else 0.0,
            )
            s = _resampling.make_series("data", data, times, rule)
            want, valid = _oracle.fuse(
                [s], _arrays.view("targets", targets), None, {"clock": clock, "epsilon": 1e-8}
            )
            assert torch.equal(ok, valid[..., 0]), rule
            same = (
                torch.allclose(got, want, rtol=1e-13, atol=1e-13)
                if dtype == torch.float64
                else torch.equal(got, want)
            )
            assert same, (rule, dtype, clock)


def test_voxels_of_torch_operators_agree() -> None:
    from robocache import voxels
    from robocache._tensors import oracle as _oracle

    for mode, outside, shape in itertools.product(
        voxels.VOXEL_MODES, ("drop", "clip"), ((900,), (2, 400))
    ):
        points, features = torch.randn(*shape, 3), torch.randn(*shape, 2)
        points.view(-1, 3)[3] = float("nan")
        kw: dict[str, Any] = {"grid_min": -1, "voxel_size": (0.3, 0.5, 0.7), "grid_size": (6, 5, 4)}
        got, stats = robocache.voxelize(
            points, features, mode=mode, outside=outside, return_stats=True, **kw
        )
        call = voxels._VoxelCall(points, features, mode, "dense", None, None)
        want, counts = _oracle.voxelize(
            call,
            voxels._voxel_spec(call, *kw.values(), outside, 0.0, False, True, None),
            dtype=None,
            capacity=None,
            return_stats=True,
            out=None,
        )
        assert torch.equal(stats, counts) and torch.allclose(
            got.double(), want.double(), rtol=1e-6, atol=1e-7
        ), (mode, outside, shape)


def test_dlpack_families_come_back() -> None:
    """Arrays of other libraries return through their own from_dlpack."""
    x = torch.arange(12.0).reshape(6, 2)

    class Other:
        def __init__(self, t: Any) -> None:
            self.t = t

        def __dlpack__(self, **kw: Any) -> Any:
            return self.t.__dlpack__(**kw)

        def __dlpack_device__(self) -> Any:
            return self.t.__dlpack_device__()

        def __array_namespace__(self) -> Any:
            return type(
                "space", (), {"from_dlpack": staticmethod(lambda r: Other(torch.from_dlpack(r)))}
            )

    # bfloat16, which NumPy lacks
    got = robocache.resample(Other(x.bfloat16()), np.arange(6), np.arange(6))
    assert isinstance(got, Other) and torch.equal(got.t, x.bfloat16())


def test_no_derivative_is_lost() -> None:
    """An operation that cannot carry a derivative raises an error instead of returning zero."""
    x, t, u = torch.randn(2, 6, 3), torch.arange(6.0), torch.tensor([0.5, 2.25])
    p = torch.rand(4, 3)
    grid = {"grid_min": 0, "voxel_size": 1, "grid_size": 1, "mode": "mean"}
    calls = (
        lambda a: robocache.resample(a, t, u),
        lambda a: robocache.fuse([(a, t), (x, t)], u),
        lambda a: robocache.voxelize(p, a[0, :4], **grid),
    )
    for f in calls:
        for _ in range(3):
            f(x)  # with a cached plan too
        with pytest.raises(robocache.Unsupported, match="forward mode"):
            torch.func.jvp(f, (x,), (x,))
        with torch.autograd.forward_ad.dual_level():
            f(x)
            with pytest.raises(robocache.Unsupported, match="forward mode"):
                f(torch.autograd.forward_ad.make_dual(x, x))
        f(x)
    depth = torch.rand(3, 4)
    with pytest.raises(robocache.Unsupported, match="no gradient"):
        robocache.depth_to_points(depth.clone().requires_grad_(), (1, 1, 0, 0))
    assert robocache.depth_to_points(
        depth.clone().requires_grad_().detach(), (1, 1, 0, 0)
    ).shape == (3, 4, 3)


def test_results_that_cannot_be_written() -> None:
    x, t, u = torch.randn(2, 6, 3), torch.arange(6.0), torch.tensor([0.5, 2.25])
    negated = torch.zeros(2, 2, 3, dtype=torch.complex64).conj().imag
    leaf = torch.empty(2, 2, 3, requires_grad=True)
    for _ in range(2):  # the second call uses the cached plan
        with pytest.raises(robocache.Misuse, match="negates"):
            robocache.resample(x, t, u, out=negated)
        with pytest.raises(robocache.Misuse, match="requires a gradient"):
            robocache.resample(x, t, u, out=leaf)
        assert robocache.resample(x, t, u, out=leaf.detach()).isfinite().all()
    with pytest.raises(robocache.Misuse, match="requires a gradient"):
        robocache.voxelize(
            torch.zeros(1, 3),
            torch.ones(1, 1),
            grid_min=0,
            voxel_size=1,
            grid_size=1,
            mode="sum",
            out=torch.zeros(1, 1, 1, 1, requires_grad=True),
        )
    robocache.resample(x, t, u)
    for _ in range(2):
        with pytest.raises(robocache.Misuse, match="meta tensor"):
            robocache.resample(x.to("meta"), t, u)
