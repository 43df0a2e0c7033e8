"""Arguments of resample and fuse, and the errors for invalid ones.

test_ops_vectors.py tests the values with the conformance vectors.
"""

from __future__ import annotations

import subprocess
import threading

import numpy as np
import pytest

import robocache

S, T, D = 20, 13, 5


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def timestamps(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.cumsum(rng.integers(1, 50_000_000, shape), axis=-1)


def by_hand(data: np.ndarray, times: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Interpolates linearly with clamped ends, in float64."""
    return np.stack(
        [np.interp(targets, times, data[:, c].astype(np.float64)) for c in range(data.shape[1])], 1
    )


def test_values(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(S, D)).astype(np.float32), timestamps(rng, S)
    targets = np.linspace(times[0] - 1e7, times[-1] + 1e7, T).astype(np.int64)
    got, valid = robocache.resample(data, times, targets, return_valid=True)
    assert got.dtype == np.float32 and got.shape == (T, D) and valid.dtype == np.bool_
    np.testing.assert_allclose(got, by_hand(data, times, targets), rtol=1e-5, atol=1e-6)
    assert (valid == ((targets >= times[0]) & (targets <= times[-1]))).all()


def test_friendly_shapes(rng: np.random.Generator) -> None:
    """All shapes give the same rows.

    Times and targets may be shared, and the batch and channel axes may be missing.
    """
    data, times = rng.normal(size=(3, S, D)).astype(np.float32), timestamps(rng, S)
    targets = np.sort(rng.integers(times[0], times[-1], T))
    want = np.stack([robocache.resample(d, times, targets) for d in data])
    for t in (times, np.broadcast_to(times, (3, S)), np.stack([times] * 3)):
        for u in (targets, np.broadcast_to(targets, (3, T))):
            np.testing.assert_array_equal(robocache.resample(data, t, u), want)
    one = robocache.resample(data[0, :, 1], times, targets)
    assert one.shape == (T,)
    np.testing.assert_array_equal(one, want[0, :, 1])
    fused = robocache.fuse([(data[0], times), (data[1, :, 0], times)], targets)
    np.testing.assert_array_equal(fused, np.concatenate([want[0], want[1, :, :1]], 1))
    wrong = [
        (data, times, np.zeros((2, T), int)),
        (data[0], times, np.zeros((1, T), int)),
        (data, np.zeros((4, S), int), targets),
    ]
    for args in wrong:
        with pytest.raises(robocache.Misuse, match="Batch size mismatch"):
            robocache.resample(*args)


def test_lists_and_numbers() -> None:
    assert robocache.resample([[0.0], [2.0]], [0.0, 1.0], [0.25]).tolist() == [[0.5]]
    assert robocache.resample([0.0, 2.0], [0, 1_000_000_000], [250_000_000]).tolist() == [0.5]


def test_ragged(rng: np.random.Generator) -> None:
    """Lists, offsets and lengths are equivalent ways to pass ragged data."""
    lengths = [S, 0, 1, 7]
    data = [rng.normal(size=(n, D)).astype(np.float32) for n in lengths]
    times = [timestamps(rng, n) for n in lengths]
    targets = np.linspace(0, 10**9, T).astype(np.int64)
    got, valid = robocache.resample(data, times, targets, return_valid=True)
    for b in range(4):
        row, v = robocache.resample(data[b], times[b], targets, return_valid=True)
        np.testing.assert_array_equal(got[b], row)
        np.testing.assert_array_equal(valid[b], v)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    np.testing.assert_array_equal(
        robocache.resample(np.concatenate(data), np.concatenate(times), targets, offsets=offsets),
        got,
    )
    padded, clock = np.full((4, S, D), np.nan, np.float32), np.zeros((4, S), np.int64)
    for b, n in enumerate(lengths):
        padded[b, :n], clock[b, :n] = data[b], times[b]
    np.testing.assert_array_equal(robocache.resample(padded, clock, targets, lengths=lengths), got)
    both = robocache.fuse(
        [(data, times), (padded, clock, {"lengths": lengths, "mode": "previous"})], targets
    )
    np.testing.assert_array_equal(both[..., :D], got)
    with pytest.raises(robocache.Misuse, match="length mismatch"):
        robocache.resample(data, [*times[:3], times[3][:5]], targets)


def test_any_strides(rng: np.random.Generator) -> None:
    """Gaps, negative steps and expanded axes work without a copy."""
    base = rng.normal(size=(2, 2 * S, 3 * D)).astype(np.float32)
    times = timestamps(rng, 2 * S)
    targets = np.sort(rng.integers(times[0], times[-1], T))
    for view in (
        base[:, ::2, ::3],
        base[:, ::-2, ::-3],
        np.broadcast_to(base[:1, ::2, :1], (5, S, D)),
        base.transpose(0, 2, 1)[:, :S, :],
    ):
        clock = times[: view.shape[1]]
        np.testing.assert_array_equal(
            robocache.resample(view, clock, targets),
            robocache.resample(view.copy(), clock.copy(), targets.copy()),
        )
    np.testing.assert_array_equal(
        robocache.resample(base[:, :S], times[::2], targets[::-1]),
        robocache.resample(base[:, :S], times[::2].copy(), targets)[:, ::-1],
    )


def test_out(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(2, S, D)).astype(np.float32), timestamps(rng, S)
    targets = times[:T] + 1000
    want = robocache.resample(data, times, targets)
    wide = np.zeros((2, T, 2 * D), np.float32)
    for _ in range(2):  # the second call uses the cached plan
        assert robocache.resample(data, times, targets, out=wide[:, :, ::2]) is not None
        np.testing.assert_array_equal(wide[:, :, ::2], want)
        assert (wide[:, :, 1::2] == 0).all()
    half = np.zeros((2, T, D), np.float16)
    assert robocache.resample(data, times, targets, out=half) is half
    np.testing.assert_array_equal(half, want.astype(np.float16))
    locked = np.zeros((2, T, D), np.float32)
    locked.flags.writeable = False
    for out, phrase in (
        (np.zeros((2, T, D + 1), np.float32), "out has wrong shape"),
        (np.broadcast_to(np.zeros(1, np.float32), (2, T, D)), "read-only"),
        (locked, "read-only"),
        (data[:, :T, :], "out aliases"),
    ):
        with pytest.raises(robocache.Misuse, match=phrase):
            robocache.resample(data, times, targets, out=out)
    # A call with a cached plan checks for aliasing too.
    with pytest.raises(robocache.Misuse, match="aliases"):
        robocache.resample(wide[:, :, :D], times[:T], targets, out=wide[:, :, :D])
    with pytest.raises(robocache.Misuse, match="out has wrong dtype"):
        robocache.resample(data, times, targets, out=half, dtype="float32")


def test_numbers_are_seconds_and_units_are_named(rng: np.random.Generator) -> None:
    """1 and 1.0 are one second and "1ns" is a nanosecond.

    A cached plan of the other value must not be used.
    """
    data, times = rng.normal(size=(S, D)), np.arange(S) * 20_000_000
    for _ in range(2):
        assert not robocache.resample(
            data, times, times[:-1] + 5, max_gap="1ns", return_valid=True
        )[1].any()
        assert robocache.resample(data, times, times[:-1] + 5, max_gap=1.0, return_valid=True)[
            1
        ].all()
        assert robocache.resample(data, times, times[:-1] + 5, max_gap=1, return_valid=True)[
            1
        ].all()
        pair = [(data, times)]
        assert robocache.fuse(pair, times, mode="mean", window=1.0)[3] != pytest.approx(
            robocache.fuse(pair, times, mode="mean", window="1ns")[3]
        )
        assert np.array_equal(
            robocache.fuse(pair, times, mode="mean", window=1),
            robocache.fuse(pair, times, mode="mean", window=1.0),
        )
    np.testing.assert_array_equal(
        robocache.resample(data, times / 1e9, times / 1e9 + 0.003),
        robocache.resample(data, times, times + 3_000_000),
    )
    np.testing.assert_array_equal(
        robocache.resample(data, times.astype("m8[ns]"), times.astype("m8[ns]")), data
    )


def test_hz(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(S, D)), np.arange(S) / 30
    got, grid = robocache.resample(data, times, hz=50, return_times=True)
    assert (
        grid.dtype == np.int64
        and (np.diff(grid) == 20_000_000).all()
        and grid[0] == 0
        and grid[-1] <= 19 / 30 * 1e9 < grid[-1] + 20_000_000
    )
    np.testing.assert_array_equal(got, robocache.resample(data, times, grid))
    _, grid = robocache.fuse(
        [(data, times + 0.1), (data, times)], hz="30000/1001", return_times=True
    )
    assert grid[0] == 100_000_000 and grid[1] - grid[0] == 33_366_667 and grid[-1] <= 19 / 30 * 1e9
    # Entries with clocks of their own have a grid each. Rows after the end of a shorter clock are
    # not valid.
    clocks = np.stack([times, times + 1000])
    _, valid, grid = robocache.resample(
        np.stack([data] * 2), clocks, hz=50, lengths=[S, 10], return_valid=True, return_times=True
    )
    assert (
        grid.shape == valid.shape
        and grid[1, 0] == 1000 * 10**9
        and valid[0].all()
        and valid[1].sum() == int(9 / 30 * 50) + 1
    )
    with pytest.raises(robocache.Misuse, match="one of them"):
        robocache.resample(data, times, times, hz=50)
    with pytest.raises(robocache.Misuse, match="one of them"):
        robocache.resample(data, times)


def test_modes_and_options(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(S, 4)), timestamps(rng, S)
    targets = times[:-1] + 3
    np.testing.assert_array_equal(
        robocache.resample(data, times, targets, mode="previous"), data[:-1]
    )
    np.testing.assert_array_equal(robocache.resample(data, times, targets, mode="next"), data[1:])
    np.testing.assert_array_equal(
        robocache.resample(data, times, targets, mode="nearest"), data[:-1]
    )
    q = robocache.resample(data, times, targets, mode="slerp")
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, rtol=1e-12)
    mixed = robocache.resample(
        np.concatenate([data, data], 1), times, targets, mode="slerp", quats=[(4, 5, 6, 7)]
    )
    np.testing.assert_array_equal(mixed[:, 4:], q)
    np.testing.assert_array_equal(mixed[:, :4], robocache.resample(data, times, targets))
    deg = robocache.resample([[179.0], [-179.0]], [0.0, 1.0], [0.5], mode="angle", period=360)
    assert abs(deg[0, 0]) == 180
    mean = robocache.resample(
        np.arange(10.0), np.arange(10) * 100, [450], mode="mean", window=(200, 200)
    )
    assert mean.tolist() == [4.5]  # 300, 400, 500, 600
    x = robocache.resample(
        np.array([[0, 51, 255]], np.uint8), [0], [0], dtype="float32", normalize="unit"
    )
    assert x.tolist() == [[0, np.float32(0.2), 1]]
    norm = robocache.resample(
        data,
        times,
        times,
        normalize={"mean": data.mean(0), "std": data.std(0)},
        clip=(-1.0, 1.0),
        dtype=np.float32,
    )
    z = (data - np.float32(data.mean(0))) / (np.float32(data.std(0)) + np.float32(1e-8))
    np.testing.assert_allclose(norm, np.clip(z, -1, 1), rtol=1e-6)
    stats = {"min": data.min(0), "max": data.max(0), "mean": data.mean(0), "std": data.std(0)}
    np.testing.assert_allclose(
        robocache.resample(data, times, times, normalize=("min_max", stats)).max(0), 1, rtol=1e-6
    )
    with pytest.raises(robocache.Misuse, match="say which"):
        robocache.resample(data, times, times, normalize=stats)
    aug = {"seed": 5, "noise": 0.1, "scale": (0.9, 1.1), "dropout": 0.2, "samples": [3, 4]}
    two = np.stack([data, data]).astype(np.float32)
    noisy = robocache.resample(two, times, times, augment=aug)
    np.testing.assert_array_equal(noisy, robocache.resample(two, times, times, augment=aug))
    np.testing.assert_array_equal(
        noisy[1], robocache.resample(two[:1], times, times, augment={**aug, "samples": [4]})[0]
    )
    assert (noisy[0] != noisy[1]).any()


def test_types(rng: np.random.Generator) -> None:
    times = timestamps(rng, S)
    for dtype in ("float32", "float64", "float16"):
        assert (
            robocache.resample(rng.normal(size=(S, D)).astype(dtype), times, times).dtype == dtype
        )
    for dtype in ("int64", "uint8", "bool", "int16"):
        x = rng.integers(0, 2, (S, D)).astype(dtype)
        np.testing.assert_array_equal(robocache.resample(x, times, times, mode="nearest"), x)
        if dtype != "bool":
            with pytest.raises(robocache.Misuse, match="unsupported dtype"):
                robocache.resample(x, times, times)
            assert robocache.resample(x, times, times, dtype="float32").dtype == np.float32
    with pytest.raises(robocache.Misuse, match="Stream dtypes must match"):
        robocache.fuse([(np.zeros((S, 1), np.float32), times), (np.zeros((S, 1)), times)], times)
    assert (
        robocache.fuse(
            [(np.zeros((S, 1), np.float32), times), (np.zeros((S, 1)), times)],
            times,
            dtype="float32",
        ).dtype
        == np.float32
    )
    for bad in (
        np.zeros((S, D), complex),
        np.zeros((S, D), ">f4"),
        np.zeros((S, D), "U3"),
        "text",
        object(),
    ):
        with pytest.raises(robocache.Misuse):
            robocache.resample(bad, times, times)
    with pytest.raises(robocache.Misuse, match="unsupported dtype"):
        robocache.resample(np.zeros((S, D)), times.astype(np.int32), times)


def test_refusals(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(2, S, D)), timestamps(rng, 2, S)
    targets = times[0]
    bad_order, not_finite = times.copy(), times / 1e9
    bad_order[1, 5] = 0
    not_finite[1, 7] = np.nan
    for args, kw, kind, phrase in (
        ((data, times[:, 1:], targets), {}, robocache.Misuse, "Source length mismatch (length"),
        ((data, times[:1], targets), {}, robocache.Misuse, "Batch size mismatch (batch"),
        ((data, bad_order, targets), {}, robocache.Malformed, "timestamps must not decrease"),
        ((data, not_finite, targets), {}, robocache.Malformed, "not finite"),
        ((data, times, targets), {"mode": "linaer"}, robocache.Misuse, "Invalid mode"),
        ((data, times, targets), {"edge": "hold"}, robocache.Misuse, "Invalid edge"),
        (
            (data, times, targets + 10**12),
            {"edge": "error"},
            robocache.Error,
            "outside the source range",
        ),
        (
            (data, times, times[1] + 1),
            {"edge": "error", "max_gap": "1ns"},
            robocache.Error,
            "gap exceeds max_gap|outside the source range",
        ),
        ((data, times, targets), {"mode": "mean"}, robocache.Misuse, "window"),
        (
            (data, times, targets),
            {"mode": "slerp"},
            robocache.Misuse,
            "quaternions must have shape",
        ),
        (
            (data, times, targets),
            {"backend": "tpu"},
            robocache.Misuse,
            "Invalid backend 'tpu' (Unknown backend): expected 'cuda', 'pytorch', 'cpu', 'auto'",
        ),
        (
            (data, times, targets),
            {"backend": "cuda"},
            robocache.Unsupported,
            "CUDA backend requested but",
        ),
        ((data, times, targets), {"max_gaps": 1}, robocache.Misuse, "did you mean 'max_gap'"),
        ((data, times, targets), {"max_gap": "1 second"}, robocache.Misuse, "max_gap"),
        ((data, times, targets), {"max_gap": -1}, robocache.Misuse, "max_gap"),
        ((data, times, targets), {"clip": (2, 1)}, robocache.Misuse, "clip"),
        (
            (data, times, targets),
            {"normalize": {"mean": [0, 0], "std": [1, 1]}},
            robocache.Misuse,
            "length mismatch|statistics",
        ),
    ):
        with pytest.raises(kind) as e:
            robocache.resample(*args, **kw)
        text = str(e.value)
        assert any(p in text for p in phrase.split("|")), text
    where = pytest.raises(
        robocache.Malformed, robocache.resample, data, bad_order, targets
    ).value.where
    assert where["batch"] == 1 and where["index"] == 5
    assert isinstance(
        pytest.raises(robocache.Error, robocache.resample, data, times[:, 1:], targets).value,
        (RuntimeError, ValueError),
    )
    with pytest.raises(robocache.Misuse):
        robocache.fuse([], targets)
    with pytest.raises(robocache.Misuse, match="did you mean 'lengths'"):
        robocache.fuse([(data, times, {"length": 3})], targets)


def test_inputs_stay_as_they_are(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(S, D)), timestamps(rng, S)
    data.flags.writeable = times.flags.writeable = False
    before = data.copy()
    got = robocache.resample(data, times, times)
    assert got.flags.writeable and not np.shares_memory(got, data)
    np.testing.assert_array_equal(before, data)


def test_empty_extents() -> None:
    f = np.zeros
    i = np.int64
    assert robocache.resample(f((0, S, D)), f(S, i), f(T, i)).shape == (0, T, D)
    assert robocache.resample(f((2, S, D)), f(S, i), f(0, i)).shape == (2, 0, D)
    assert robocache.resample(f((2, S, 0)), f(S, i), f(T, i)).shape == (2, T, 0)
    got, valid = robocache.resample(f((2, 0, D)), f(0, i), f(T, i), return_valid=True)
    assert got.shape == (2, T, D) and not got.any() and not valid.any()
    got, valid = robocache.resample(
        np.ones((2, 1, D)), f(1, i), np.arange(T) * 10, return_valid=True
    )
    assert (got == 1).all() and valid.sum() == 2


def test_far_float32_timestamps_are_told_once(script) -> None:  # type: ignore[no-untyped-def]
    done = script("""
        import warnings
        import numpy as np, robocache
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            near = np.arange(5, dtype=np.float32)
            for _ in range(3):
                robocache.resample(np.zeros(5), near, near)
            assert not w
            for _ in range(3):
                robocache.resample(np.zeros(5), near + 2**18, near)
            assert len(w) == 1 and "float32" in str(w[0].message), w
    """)
    assert done.returncode == 0, done.stderr


def test_numpy_alone(script) -> None:  # type: ignore[no-untyped-def]
    done = script("""
        import sys
        import numpy as np, robocache
        robocache.resample(np.zeros((5, 2)), np.arange(5), np.arange(5))
        robocache.voxelize(np.zeros((5, 3)), grid_min=0, voxel_size=1, grid_size=4)
        assert "torch" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr


def test_many_threads(rng: np.random.Generator) -> None:
    """Many threads run one prepared operation at the same time."""
    data, times = rng.normal(size=(8, S, D)).astype(np.float32), timestamps(rng, S)
    want = [robocache.resample(data[b], times, times[:-1] + 1) for b in range(8)]
    wrong: list[int] = []

    def work(b: int) -> None:
        for _ in range(300):
            if not (robocache.resample(data[b], times, times[:-1] + 1) == want[b]).all():
                wrong.append(b)

    threads = [threading.Thread(target=work, args=(b,)) for b in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_after_a_fork(script) -> None:  # type: ignore[no-untyped-def]
    """A child process does not use the parent's prepared operation.

    The child prepares the operation again with its own engine.
    """
    done: subprocess.CompletedProcess[str] = script("""
        import os
        import numpy as np, robocache
        d, t = np.arange(10.0), np.arange(10)
        want = robocache.resample(d, t, t)
        pid = os.fork()
        ok = (robocache.resample(d, t, t) == want).all()
        if pid == 0:
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0 and ok
    """)
    assert done.returncode == 0, done.stderr


def test_many_shapes(rng: np.random.Generator) -> None:
    """With more shapes than the cache holds, old operations are closed and prepared again."""
    times = timestamps(rng, 1200)
    for n in (*range(1, 1200), 3, 4, 5):
        got = robocache.resample(times[:n].astype(np.float64), times[:n], times[:1])
        assert got[0] == times[0]


class Dlpack:
    """An array of another library that supports DLPack."""

    def __init__(self, a: np.ndarray) -> None:
        self.a = a

    def __dlpack__(self, **kw: object) -> object:
        return self.a.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.a.__dlpack_device__()

    def __array_namespace__(self) -> type:
        class Space:
            @staticmethod
            def from_dlpack(x: np.ndarray) -> Dlpack:
                return Dlpack(np.from_dlpack(x))

        return Space


def test_dlpack(rng: np.random.Generator) -> None:
    data, times = rng.normal(size=(S, D)), timestamps(rng, S)
    got, valid = robocache.resample(Dlpack(data), Dlpack(times), times, return_valid=True)
    assert isinstance(got, Dlpack) and isinstance(valid, Dlpack)
    np.testing.assert_array_equal(got.a, data)


def test_what_is_no_place_or_pair() -> None:
    """Wrong outputs, pairs and dtypes raise an error of ours instead of NumPy's."""
    s = np.arange(3.0)
    with pytest.raises(robocache.Misuse, match="to write into"):
        robocache.resample([1.0, 2.0, 3.0], s, s, out=[0.0, 0.0, 0.0])
    for streams in ([np.zeros((2, 3, 1)), np.zeros((2, 3, 1))], (np.zeros((2, 3)), s), {"a": 1}):
        with pytest.raises(robocache.Misuse, match=r"expected \(data, times\) pairs"):
            robocache.fuse(streams, s)
    for bad in (np.array(["a", "b", "c"]), np.array([None] * 3)):
        with pytest.raises(robocache.Misuse, match="unsupported dtype"):
            robocache.resample(bad, s, s, mode="previous")
    with pytest.raises(robocache.Misuse, match="unsupported dtype"):
        robocache.resample(s, s, s, dtype="float13")
    assert robocache.resample(np.zeros((2, 0, 3)), s[:0], hz=5).shape == (2, 0, 3)
    grid = {"grid_min": 0, "voxel_size": 1, "grid_size": 1}
    p, d, eye = np.zeros((1, 3), np.float32), np.ones((2, 2), np.float32), np.eye(4)
    for call in (
        lambda: robocache.voxelize(p, p, mode="max", fill="x", **grid),
        lambda: robocache.voxelize(p, layout="sparse", capacity="x", **grid),
        lambda: robocache.depth_to_points(d, "x"),
        lambda: robocache.depth_to_points(d, (1, 1, 0, 0), scale="x"),
        lambda: robocache.depth_to_points(d, (1, 1, 0, 0), pose="x"),
        lambda: robocache.tsdf_integrate(
            [[[0.0]]], [[[0.0]]], d, (1, 1, 0, 0), view=eye, grid_min=0, voxel_size=1, truncate=1
        ),
    ):
        with pytest.raises(robocache.Misuse):
            call()
