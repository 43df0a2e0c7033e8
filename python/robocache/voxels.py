"""Grids from points and depth images: voxelize, depth_to_points and tsdf_integrate.

Inputs and results are as in robocache.ops.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _checks, ops
from ._tensors import arrays as _arrays, resampling as _resampling, rules as _rules
from ._tensors.arrays import HOST, View
from ._errors import Misuse, Unsupported
from ._tensors.family import deliver
from ._tensors.prepared import Recent, prepare
from ._tensors.results import (
    AllocatingOp,
    dense_strides,
    native_dtype,
    require_same_device,
    check_out,
)

__all__ = ["voxelize", "depth_to_points", "tsdf_integrate", "SparseVoxels"]

VOXEL_MODES = ("occupancy", "count", "sum", "mean", "max", "min", "first")
OUTSIDE = ("drop", "clip", "error")
# The voxelize of torch's operators, for traced calls. _tensors.torchvoxels sets it when it
# registers the operators.
traced_voxelize: Any = None
_NAMES = (
    "points",
    "features",
    "grid_min",
    "voxel_size",
    "grid_size",
    "mode",
    "layout",
    "outside",
    "fill",
    "dtype",
    "bits",
    "deterministic",
    "lengths",
    "offsets",
    "capacity",
    "out",
    "return_stats",
    "memory_budget",
    "backend",
    "validate",
)


class SparseVoxels(NamedTuple):
    """The occupied voxels in ascending order.

    With capacity=, only the first `found` rows are valid, and found is a tensor, so that nothing
    waits for the device.

    Attributes:
        coords: int32 [M, 4]: b, x, y, z.
        features: float32 [M, F]; None for the modes occupancy and count.
        counts: int32 [M], the number of points of each voxel.
        found: M. With capacity=, int64 [1] on the device, also if it exceeds the capacity.
    """

    coords: Any
    features: Any
    counts: Any
    found: Any


def three_numbers(name: str, v: Any, phrase: str = "") -> list[float]:
    """Returns three numbers, from three or from one for all axes."""
    try:
        a = np.asarray(v.detach().cpu() if hasattr(v, "detach") else v, np.float64).ravel()
    except (TypeError, ValueError):
        a = np.empty(0)
    if a.size == 1:
        a = np.repeat(a, 3)
    if a.size != 3:
        raise Misuse(f"{phrase or name + ': '}expected three numbers for {name}, found {v!r}")
    return [float(x) for x in a]


_recent_plans: Recent[Any] = Recent()


def voxelize(
    points: Any,
    features: Any = None,
    *,
    grid_min: Any,
    voxel_size: Any,
    grid_size: Any,
    mode: str = "occupancy",
    layout: str = "dense",
    outside: str = "drop",
    fill: float = 0.0,
    dtype: Any = None,
    bits: bool = False,
    deterministic: bool = True,
    lengths: Any = None,
    offsets: Any = None,
    capacity: int | None = None,
    out: Any = None,
    return_stats: bool = False,
    memory_budget: int | str | None = None,
    backend: str | None = None,
    validate: bool | None = None,
    **unknown: Any,
) -> Any:
    """Sorts points into the voxels of a grid.

    The index of a point p is floor((p - grid_min) / voxel_size), computed in float32. Voxels are
    half-open intervals. Points with NaN or infinity are dropped. docs/kernels.md has the details.

    Args:
        points: [N, 3], [B, N, 3], a list of [N, 3], or [sum of N, 3] with offsets=. Floating point,
            with any strides.
        features: [..., F], one row per point, for the modes sum, mean, max, min and first. Default
            None.
        grid_min: The lower corner of the grid: three numbers, or one for all axes, in the unit of
            points.
        voxel_size: The edge of a voxel: three numbers, or one for all axes, in the unit of points.
        grid_size: Voxels per axis: three integers, or one for all axes.
        mode: "occupancy" (default, uint8), "count" (int32), "sum", "mean", "max", "min" or "first"
            (float32).
        layout: "dense" (default) or "sparse".
        outside: The rule for points outside the grid: "drop" (default), "clip" (into the nearest
            voxel) or "error".
        fill: The value of empty voxels for the modes max, min and first. Default 0.
        dtype: The dtype of occupancy: uint8 (default), bool, int32 or float32.
        bits: Whether occupancy has one bit per voxel. Default False.
        deterministic: False allows sums in float32 in any order. Default True.
        lengths: int64 [B], the number of valid points of each entry of [B, N, 3]. Default None.
        offsets: int64 [B + 1], the first point of each entry of a ragged batch. Default None.
        capacity: The number of rows of a sparse result. Default None: the number of occupied
            voxels, for which a GPU waits.
        out: An array or tensor for a dense result. Default None: a new one.
        return_stats: Whether to also return int64 [3]: the numbers of points inside, outside and
            not finite. Default False.
        memory_budget: The most bytes of a dense grid, such as "4GiB". Default None: the memory of
            the machine or the device.
        backend: None or "auto" (by the device of points), "cpu", "cuda" or "pytorch".
        validate: Whether to check lengths and offsets. Default None: only on the host, because a
            GPU must wait for the result.

    Returns:
        layout "dense": [(B,) X, Y, Z], or [(B,) X, Y, Z, F] with features. layout "sparse":
        SparseVoxels. With return_stats, a tuple.

    Raises:
        Misuse: A shape, dtype or option is invalid.
        ResourceLimit: The grid exceeds memory_budget.
        Unsupported: The device or back end is not available.

    Example:
        grid = robocache.voxelize(points, grid_min=-1, voxel_size=0.02, grid_size=100)
    """
    if unknown:
        name = next(iter(unknown))
        raise Misuse(
            f"unknown keyword {name!r} of voxelize", hint=_checks.nearest_names(name, _NAMES)
        )
    key = None
    if lengths is None and offsets is None and out is None and memory_budget is None:
        options = (
            "voxelize",
            mode,
            layout,
            outside,
            fill,
            str(dtype),
            bits,
            deterministic,
            capacity,
            return_stats,
            backend,
            validate,
        )
        key, plan, addresses = _find_recent(
            (points,) if features is None else (points, features),
            options,
            (grid_min, voxel_size, grid_size),
        )
        if plan is not None:
            return plan.run(addresses, points)
    torch: Any = sys.modules.get("torch")
    if torch is not None and features is not None and not torch.compiler.is_compiling():
        ops.reject_tangents(torch, [features])
    if torch is not None and (
        ops.needs_torch_operators(torch, [("points", points, features, {})], None)
        or getattr(features, "requires_grad", False)
        and torch.is_grad_enabled()
    ):
        return traced_voxelize(
            points,
            features,
            grid_min=grid_min,
            voxel_size=voxel_size,
            grid_size=grid_size,
            mode=mode,
            layout=layout,
            outside=outside,
            fill=fill,
            dtype=dtype,
            bits=bits,
            deterministic=deterministic,
            lengths=lengths,
            offsets=offsets,
            out=out,
            return_stats=return_stats,
            backend=backend,
        )
    call = _VoxelCall(points, features, mode, layout, lengths, offsets)
    spec = _voxel_spec(
        call, grid_min, voxel_size, grid_size, outside, fill, bits, deterministic, memory_budget
    )
    chosen = _rules.choose_backend(backend, call.points.device, "points")
    if chosen == "pytorch":
        from ._tensors import oracle as _oracle

        return _oracle.voxelize(
            call, spec, dtype=dtype, capacity=capacity, return_stats=return_stats, out=out
        )
    spec["backend"] = chosen
    if validate or call.points.device == HOST:
        spec["validate"] = True
    if layout == "sparse":
        if out is not None or dtype is not None or bits:
            raise Misuse("layout='sparse' makes its own results: leave out=, dtype= and bits= out")
        plan = _prepare_sparse(call, spec, capacity, return_stats)
    else:
        if capacity is not None:
            raise Misuse("capacity= belongs to layout='sparse'")
        plan = _prepare_dense(call, spec, dtype, out, return_stats)
    if key is not None:
        _recent_plans.put(key, plan)
    return plan.run(call.addresses(), points, out)


def _find_recent(
    arrays: tuple[Any, ...], options: tuple[Any, ...], grid: tuple[Any, ...]
) -> tuple[Any, Any, list[int]]:
    """Finds the plan of an earlier call with other addresses.

    Args:
        arrays: The points, and the features if there are any.
        options: The options of the call.
        grid: grid_min, voxel_size and grid_size.

    Returns:
        (key, plan, addresses of the arrays). The plan is None if there is none. The key is that for
        keeping the plan of this call; None if it was kept before or cannot be kept.
    """
    kind: Any = type(arrays[0])
    is_tensor = kind is ops._tensor
    if is_tensor:
        is_plain = not (ops._compiling() or ops._dual._current_level >= 0)
    else:
        is_plain = kind is np.ndarray
    if not is_plain:
        return None, None, []
    for g in grid:
        if isinstance(g, (list, tuple)):
            g = tuple(g)
        elif not isinstance(g, (int, float)):
            return None, None, []
        options += (g,)
    try:
        if not is_tensor:
            if any(type(a) is not kind for a in arrays):
                return None, None, []
            key = (options, *((a.dtype, a.shape, a.strides) for a in arrays))
            return key, _recent_plans.get(key), [a.__array_interface__["data"][0] for a in arrays]
        for check, plan in ops.guarded_plans.get(options) or ():
            if check(*arrays):
                return None, plan, [a.data_ptr() for a in arrays]
        key, plan = ops.find_plan(options, arrays, _recent_plans)
        return key, plan, [] if plan is None else [a.data_ptr() for a in arrays]
    except TypeError:  # An option cannot be hashed.
        return None, None, []


def _is_integer_list(points: Any, view: View) -> bool:
    """Reports whether points is a Python sequence whose view has no float dtype."""
    return view.dtype not in ("float32", "float16", "bfloat16", "float64") and not hasattr(
        points, "dtype"
    )


def _batch_size(points: View, offsets: View | None) -> int | None:
    """Returns the number of point clouds, or None if the points have no batch dimension."""
    if offsets is not None:
        return offsets.shape[0] - 1
    return points.shape[0] if len(points.shape) == 3 else None


class _VoxelCall:
    """The checked inputs of voxelize.

    Attributes:
        mode: The mode.
        featured: Whether the mode reads features.
        points: The points, [N, 3] or [B, N, 3].
        features: The features, or None.
        lengths: The number of valid points of each entry, or None.
        offsets: The first point of each entry of a ragged batch, or None.
        batch: The number of entries; None without a batch.
        total: The number of points of all entries.
        width: The number of features per point; 0 without features.
    """

    def __init__(
        self, points: Any, features: Any, mode: Any, layout: Any, lengths: Any, offsets: Any
    ) -> None:
        if mode not in VOXEL_MODES:
            raise Misuse(
                f"Invalid mode {mode!r}: expected {', '.join(VOXEL_MODES)}",
                hint=_checks.nearest_names(str(mode), VOXEL_MODES),
            )
        _checks.check_choice("layout", layout, ("dense", "sparse"))
        self.mode = mode
        self.featured: bool = mode not in ("occupancy", "count")
        if self.featured and features is None:
            raise Misuse(f"features required for mean/max modes: mode={mode!r} reads them")
        if _resampling.is_ragged(points):
            if offsets is not None or lengths is not None:
                raise Misuse(
                    "points: a ragged batch has lengths of its own: leave lengths= and offsets= out"
                )
            points, offsets = _resampling.join_ragged("points", points)
            if self.featured:
                features, other = _resampling.join_ragged("features", features)
                if other != offsets:
                    raise Misuse(
                        "length mismatch of points and features: "
                        f"{np.diff(offsets).tolist()} and {np.diff(other).tolist()}"
                    )
        elif _resampling.is_jagged(points):
            offsets = points.offsets()
            points = points.values()
            features = features.values() if _resampling.is_jagged(features) else features
        self.points = _arrays.view("points", points)
        is_empty_list = self.points.shape == (0,) and not self.points.tensor
        if len(self.points.shape) == 0 or is_empty_list:
            self.points = _arrays.view("points", np.empty((0, 3), np.float32))
        if _is_integer_list(points, self.points):
            self.points: _arrays.View = _arrays.view("points", np.asarray(points, np.float64))
        if len(self.points.shape) not in (2, 3) or self.points.shape[-1] != 3:
            raise Misuse(
                f"points must have shape [N, 3] or [B, N, 3], found {list(self.points.shape)}",
                {"tensor": "points"},
            )
        self.features: _arrays.View | None = (
            _arrays.view_like("features", features, self.points) if self.featured else None
        )
        self.lengths: _arrays.View | None = (
            None if lengths is None else _resampling.index_view("lengths", lengths, self.points)
        )
        self.offsets: _arrays.View | None = (
            None if offsets is None else _resampling.index_view("offsets", offsets, self.points)
        )
        require_same_device(self.views())
        shape = self.points.shape
        self.batch: int | None = _batch_size(self.points, self.offsets)
        self.total: int = shape[0] if len(shape) == 2 else shape[0] * shape[1]
        self.width: int = (
            self.features.shape[-1] if self.features is not None and self.features.shape else 0
        )

    def views(self) -> list[View]:
        """Returns the inputs in the order of the operation's tensors."""
        return [
            v for v in (self.points, self.features, self.lengths, self.offsets) if v is not None
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Returns the engine's descriptions of the inputs."""
        return [v.describe() for v in self.views()]

    def addresses(self) -> list[int]:
        """Returns the addresses of the inputs."""
        return [v.addr for v in self.views()]


def _voxel_spec(
    call: _VoxelCall,
    grid_min: Any,
    voxel_size: Any,
    grid_size: Any,
    outside: Any,
    fill: float,
    bits: bool,
    deterministic: bool,
    memory_budget: Any,
) -> dict[str, Any]:
    """Returns the engine's specification of a voxelize, without its tensors."""
    _checks.check_choice("outside", outside, OUTSIDE)
    size = three_numbers("voxel_size", voxel_size, "voxel_size must be positive: ")
    grid = three_numbers("grid_size", grid_size, "Invalid grid dimensions: ")
    if any(not s > 0 or s == float("inf") for s in size):
        raise Misuse(
            "voxel_size must be positive (a voxel size must be positive and finite): "
            f"found {voxel_size!r}"
        )
    # int() fails for NaN and infinities, which the first two conditions exclude.
    if not all(g == g and abs(g) < 2**62 and g == int(g) and g > 0 for g in grid):
        raise Misuse(
            "Invalid grid dimensions (invalid grid dimensions): "
            f"expected whole numbers above 0, found {grid_size!r}",
            hint="grid_size is voxels an axis",
        )
    budget = (
        _checks.parse_bytes("memory_budget", memory_budget)
        if memory_budget is not None
        else _total_memory(call.points)
    )
    return {
        "op": "voxelize",
        "device": max(call.points.device, 0),
        "mode": call.mode,
        "outside": outside,
        "min": three_numbers("grid_min", grid_min),
        "size": size,
        "grid": [int(g) for g in grid],
        "fill": _check_fill(fill),
        "bits": bool(bits),
        "fast": not deterministic,
        "budget": budget,
        "has": [
            n
            for n, v in (
                ("features", call.features),
                ("lengths", call.lengths),
                ("offsets", call.offsets),
            )
            if v is not None
        ],
    }


def _check_fill(v: Any) -> float:
    """Returns fill= as a float."""
    try:
        return float(v)
    except (TypeError, ValueError):
        raise Misuse(f"fill={v!r}: expected a number") from None


def _total_memory(like: View) -> int:
    """Returns all memory of the machine or the device, the default budget."""
    if like.device == HOST:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(_arrays.imported_torch().cuda.get_device_properties(like.device).total_memory)


def dense_shape(
    call: _VoxelCall, spec: Mapping[str, Any], dtype: Any, out: Any
) -> tuple[tuple[int, ...], str]:
    """Returns the shape and the dtype of a dense result. With bits, it is a flat array of bytes."""
    kind = {"occupancy": "uint8", "count": "int32"}.get(call.mode, "float32")
    if dtype is not None:
        kind = _rules.dtype_name(dtype)
    elif out is not None and call.mode == "occupancy" and not spec["bits"]:
        kind = _arrays.view("out", out).dtype
    if spec["bits"]:
        entries = 1 if call.batch is None else call.batch
        cells = int(np.prod([entries, *spec["grid"]], dtype=object))
        return ((cells + 7) // 8,), kind
    shape = [] if call.batch is None else [call.batch]
    return (*shape, *spec["grid"], *([call.width] if call.featured else [])), kind


def _add_stats(
    spec: dict[str, Any], tensors: list[Any], results: list[Any], call: _VoxelCall, wanted: bool
) -> None:
    """Adds the statistics of points to the results, if they are wanted."""
    if wanted:
        spec["has"].append("stats")
        tensors.append({"dtype": "int64", "shape": [3], "stride": [1]})
        results.append(((3,), native_dtype("int64", call.points)))


class _DensePlan:
    """A prepared dense grid; only addresses are missing."""

    def __init__(self, op: AllocatingOp, out: View | None) -> None:
        """Stores the operation, and the memory that the caller gave for the result, if any."""
        self.op = op
        self.given = [] if out is None else [out.array]

    def run(self, addresses: list[int], like: Any, out: Any = None) -> Any:
        """Runs the plan on the addresses of the inputs."""
        got = self.op.run(addresses, self.given)
        if out is not None:
            got[0] = out
        return deliver(tuple(got), like)


# The bytes from which new memory comes from the system, which fills it with zeros.
FRESH_MEMORY = 1 << 20


def _prepare_dense(
    call: _VoxelCall, spec: dict[str, Any], dtype: Any, out: Any, return_stats: bool
) -> _DensePlan:
    """Prepares a dense grid."""
    shape, kind = dense_shape(call, spec, dtype, out)
    into = None if out is None else check_out("out", out, shape, kind, call.points)
    tensors = [
        *call.describe(),
        {
            "dtype": kind,
            "shape": list(shape),
            "stride": dense_strides(shape) if into is None else list(into.stride),
        },
    ]
    spec["has"] += ["out"]
    results: list[Any] = [None if into is not None else (shape, native_dtype(kind, call.points))]
    _add_stats(spec, tensors, results, call, return_stats)
    spec["tensors"] = tensors
    zeroed = None
    if (
        into is None
        and call.points.device == HOST
        and np.dtype(kind).itemsize * float(np.prod(shape, dtype=float)) >= FRESH_MEMORY
    ):
        zeroed = spec["zeroed"] = True
    return _DensePlan(
        AllocatingOp(prepare(spec), results, call.points, np.dtype(kind) if zeroed else None), into
    )


def _prepare_sparse(
    call: _VoxelCall, spec: dict[str, Any], capacity: int | None, return_stats: bool
) -> _SparsePlan:
    """Prepares a sparse grid."""
    cells = int(np.prod([1 if call.batch is None else call.batch, *spec["grid"]], dtype=object))
    if capacity is not None and not hasattr(capacity, "__index__"):
        raise Misuse(f"capacity={capacity!r}: expected a number of rows")
    rows = min(call.total, cells) if capacity is None else int(capacity)
    if rows < 0:
        raise Misuse(f"capacity={capacity!r}: expected a number of rows")
    # The name, dtype and shape of each result. "found" is the number of occupied voxels.
    outputs: list[tuple[str, str, tuple[int, ...]]] = [("coords", "int32", (rows, 4))]
    if call.featured:
        outputs.append(("rows", "float32", (rows, call.width)))
    outputs += [("counts", "int32", (rows,)), ("found", "int64", (1,))]
    spec["has"] += [name for name, _, _ in outputs]
    tensors = call.describe() + [
        {"dtype": d, "shape": list(s), "stride": dense_strides(s)} for _, d, s in outputs
    ]
    results: list[Any] = [(s, native_dtype(d, call.points)) for _, d, s in outputs]
    _add_stats(spec, tensors, results, call, return_stats)
    spec["tensors"] = tensors
    return _SparsePlan(
        AllocatingOp(prepare(spec), results, call.points),
        capacity is None,
        return_stats,
        call.featured,
        rows,
        call.points.tensor,
    )


class _SparsePlan:
    """A prepared sparse grid; only addresses are missing.

    Attributes:
        op: The operation and its results.
        trim: Whether the result has as many rows as voxels were found. Otherwise it has `rows`.
        stats: Whether the statistics of points are returned too.
        featured: Whether voxels have features.
        rows: The number of rows that are allocated.
        tensor: Whether the results are torch tensors.
    """

    def __init__(
        self, op: AllocatingOp, trim: bool, stats: bool, featured: bool, rows: int, tensor: bool
    ) -> None:
        self.op = op
        self.trim = trim
        self.stats = stats
        self.featured = featured
        self.rows = rows
        self.tensor = tensor

    def run(self, addresses: list[int], like: Any, out: Any = None) -> Any:
        """Runs the plan on the addresses of the inputs."""
        got = self.op.run(addresses)
        stats = got.pop() if self.stats else None
        found = got.pop()
        if self.trim:
            count = int(found[0])  # On a GPU this waits.
            got = [a[:count] for a in got]
            if count < self.rows // 2:
                # A view of few rows would keep the whole buffer in memory.
                got = [a.clone() if self.tensor else a.copy() for a in got]
            found = count
        sparse = SparseVoxels(
            deliver((got[0],), like),
            deliver((got[1],), like) if self.featured else None,
            deliver((got[-1],), like),
            found if self.trim else deliver((found,), like),
        )
        return sparse if stats is None else (sparse, deliver((stats,), like))


def _float_array(v: Any) -> Any:
    """Returns v as a float64 array, or as an empty array if v has no numbers."""
    try:
        return np.asarray(v.detach().cpu() if hasattr(v, "detach") else v, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def camera_of(v: Any) -> list[float]:
    """Returns fx, fy, cx, cy, from four numbers or a 3x3 matrix."""
    a = _float_array(v)
    if a.shape == (3, 3):
        a = np.array([a[0, 0], a[1, 1], a[0, 2], a[1, 2]])
    if a.shape != (4,) or not np.isfinite(a).all() or a[0] == 0 or a[1] == 0:
        raise Misuse(f"camera={v!r}: expected (fx, fy, cx, cy), or a 3×3 matrix of intrinsics")
    return [float(x) for x in a]


def pose_of(name: str, v: Any) -> list[float]:
    """Returns the first three rows of a 4x4 or 3x4 matrix."""
    a = _float_array(v)
    if a.shape not in ((3, 4), (4, 4)) or not np.isfinite(a).all():
        raise Misuse(f"{name}: expected a finite matrix of 3×4 or 4×4, found shape {list(a.shape)}")
    return [float(x) for x in a[:3].ravel()]


def _no_gradient(op: str, *tensors: Any) -> None:
    """Raises Unsupported if a tensor needs a gradient: the results are new memory without one."""
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.compiler.is_compiling():
        return
    if torch.is_grad_enabled() and any(getattr(t, "requires_grad", False) for t in tensors):
        raise Unsupported(f"{op} has no gradient", hint="use .detach(), or torch.no_grad()")


def depth_to_points(
    depth: Any,
    camera: Any,
    *,
    scale: float | None = None,
    pose: Any = None,
    out: Any = None,
    return_valid: bool = False,
    backend: str | None = None,
) -> Any:
    """Computes the points of depth images with the pinhole model.

    z = depth * scale, x = (u - cx) * z / fx and y = (v - cy) * z / fy, in camera coordinates. Then
    the pose is applied. docs/kernels.md has the details.

    Args:
        depth: [H, W] or [B, H, W], uint16 or floating point.
        camera: (fx, fy, cx, cy) in pixels, or the 3x3 matrix of intrinsics.
        scale: Metres per unit of depth. Default None: 0.001 for uint16, 1 for floating point.
        pose: 4x4 or 3x4, camera to world. Default None: camera coordinates.
        out: An array or tensor for the result. Default None: a new one.
        return_valid: Whether to also return bool [(B,) H, W], True for pixels with depth. Default
            False.
        backend: None or "auto" (by the device of depth), "cpu" or "cuda".

    Returns:
        float32 [(B,) H, W, 3]. Pixels without depth (0 or not finite) are NaN. .reshape(-1, 3)
        gives points for voxelize, which drops NaN.

    Raises:
        Misuse: A shape, dtype or option is invalid.
        Unsupported: The device is not available, or depth requires a gradient.

    Example:
        points = robocache.depth_to_points(depth, (525, 525, 319.5, 239.5)).reshape(-1, 3)
    """
    d = _arrays.view("depth", depth)
    if len(d.shape) not in (2, 3):
        raise Misuse(
            f"depth must have shape [H, W] or [B, H, W], found {list(d.shape)}", {"tensor": "depth"}
        )
    chosen = _rules.choose_backend(backend, d.device, "depth")
    _no_gradient("depth_to_points", depth)
    shape = (*d.shape, 3)
    into = None if out is None else check_out("out", out, shape, "float32", d)
    tensors = [
        d.describe(),
        {
            "dtype": "float32",
            "shape": list(shape),
            "stride": dense_strides(shape) if into is None else list(into.stride),
        },
    ]
    spec: dict[str, Any] = {
        "op": "unproject",
        "backend": "cuda" if chosen == "pytorch" else chosen,
        "device": max(d.device, 0),
        "camera": camera_of(camera),
        "has": [],
    }
    if scale is not None:
        spec["scale"] = _checks.check_positive("scale", scale)
    if pose is not None:
        spec["pose"] = pose_of("pose", pose)
    results: list[Any] = [None if into is not None else (shape, native_dtype("float32", d))]
    if return_valid:
        spec["has"].append("valid")
        tensors.append({"dtype": "uint8", "shape": list(d.shape), "stride": dense_strides(d.shape)})
        results.append((d.shape, native_dtype("bool", d)))
    spec["tensors"] = tensors
    got = AllocatingOp(prepare(spec), results, d).run(
        [d.addr], [] if into is None else [into.array]
    )
    if out is not None:
        got[0] = out
    return deliver(tuple(got), depth)


def tsdf_integrate(
    value: Any,
    weight: Any,
    depth: Any,
    camera: Any,
    *,
    view: Any,
    grid_min: Any,
    voxel_size: Any,
    truncate: float,
    max_weight: float = 64.0,
    scale: float | None = None,
    backend: str | None = None,
) -> tuple[Any, Any]:
    """Integrates one depth image into a truncated signed distance field, in place.

    The formulas are those of Curless and Levoy, "A volumetric method for building complex models
    from range images" (1996); docs/kernels.md has the details. Begin with zeros in weight.

    Args:
        value: float32 [X, Y, Z], the distances divided by truncate. It is undefined for voxels that
            no image has observed.
        weight: float32 [X, Y, Z], the weights; 0 for voxels that no image has observed.
        depth: [H, W], uint16 or floating point.
        camera: (fx, fy, cx, cy) in pixels, or the 3x3 matrix of intrinsics.
        view: 4x4 or 3x4, world to camera.
        grid_min: The lower corner of the grid, in metres.
        voxel_size: The edge of a voxel, in metres.
        truncate: The distance that counts as 1, in metres.
        max_weight: The limit of the weights. Default 64.
        scale: Metres per unit of depth. Default None: 0.001 for uint16, 1 for floating point.
        backend: None or "auto" (by the device of depth), "cpu" or "cuda".

    Returns:
        (value, weight), the same arrays.

    Raises:
        Misuse: A shape, dtype or option is invalid.
        Unsupported: The device is not available, or depth requires a gradient.
    """
    d = _arrays.view("depth", depth)
    if len(d.shape) != 2:
        raise Misuse(f"depth must have shape [H, W], found {list(d.shape)}", {"tensor": "depth"})
    chosen = _rules.choose_backend(backend, d.device, "depth")
    _no_gradient("tsdf_integrate", depth)
    v = _arrays.view("value", value)
    if len(v.shape) != 3:
        raise Misuse(f"value must have shape [X, Y, Z], found {list(v.shape)}", {"tensor": "value"})
    v = check_out("value", value, v.shape, "float32", d)
    w = check_out("weight", weight, v.shape, "float32", d)
    spec: dict[str, Any] = {
        "op": "integrate",
        "backend": "cuda" if chosen == "pytorch" else chosen,
        "device": max(d.device, 0),
        "camera": camera_of(camera),
        "pose": pose_of("view", view),
        "min": three_numbers("grid_min", grid_min),
        "size": three_numbers("voxel_size", voxel_size),
        "truncate": _checks.check_positive("truncate", truncate),
        "max_weight": _checks.check_positive("max_weight", max_weight),
        "tensors": [d.describe(), v.describe(), w.describe()],
    }
    if scale is not None:
        spec["scale"] = _checks.check_positive("scale", scale)
    AllocatingOp(prepare(spec), [], d).run([d.addr, v.addr, w.addr])
    return value, weight
