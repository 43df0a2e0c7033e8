"""voxelize as an operator of torch, for tracing: a dense grid and its counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import voxels
from . import torchops as _torchops
from .._errors import Unsupported

__all__ = ["run_traced_voxelize"]

_library = torch.library.Library("robocache", "FRAGMENT")
_library.define(
    "voxelize(Tensor points, Tensor? features, Tensor? lengths, Tensor? offsets, str options) "
    "-> (Tensor, Tensor)"
)


def _run_voxelize(points: Any, features: Any, lengths: Any, offsets: Any, options: str) -> Any:
    """Runs voxelize."""
    with torch.no_grad():
        kw = dict(json.loads(options))
        kw.pop("out_dtype")
        return voxels.voxelize(
            points, features, lengths=lengths, offsets=offsets, return_stats=True, **kw
        )


for _key in ("CPU", "CUDA"):
    _library.impl("voxelize", _run_voxelize, _key)


@torch.library.register_fake("robocache::voxelize", lib=_library)
def _fake_voxelize(points: Any, features: Any, lengths: Any, offsets: Any, options: str) -> Any:
    """Returns results of voxelize without data, for tracing."""
    kw = json.loads(options)
    batch = (offsets.shape[0] - 1,) if offsets is not None else points.shape[:-2]
    shape = (
        *batch,
        *kw["grid_size"],
        *((features.shape[-1],) if kw["mode"] not in ("occupancy", "count") else ()),
    )
    return points.new_empty(shape, dtype=getattr(torch, kw["out_dtype"])), points.new_empty(
        (3,), dtype=torch.int64
    )


@_torchops.constant_result
def _options_text(grid: Any, mode: str, dtype: Any, rest: Any) -> str:
    """Returns the options that select the operation, as text.

    Tracing calls it once, with constants.
    """
    grid_min, voxel_size, grid_size = grid
    kw: dict[str, Any] = {
        "grid_min": voxels.three_numbers("grid_min", grid_min),
        "voxel_size": voxels.three_numbers("voxel_size", voxel_size),
        "grid_size": [int(g) for g in voxels.three_numbers("grid_size", grid_size)],
        "mode": mode,
        **dict(rest),
    }
    kind = {"occupancy": "uint8", "count": "int32"}.get(mode, "float32")
    if dtype is not None:
        kw["dtype"] = kind = str(dtype).removeprefix("torch.")
    return json.dumps({**kw, "out_dtype": kind})


def _plain_value(v: Any) -> Any:
    """Returns an array or tensor as a list. A tensor under torch.compile stays a tensor."""
    if isinstance(v, np.ndarray):
        return v.tolist()
    if isinstance(v, torch.Tensor) and not torch.compiler.is_compiling():
        return v.tolist()
    return v


def run_traced_voxelize(
    points: Any,
    features: Any,
    *,
    grid_min: Any,
    voxel_size: Any,
    grid_size: Any,
    mode: str,
    layout: str,
    outside: str,
    fill: float,
    dtype: Any,
    bits: bool,
    deterministic: bool,
    lengths: Any,
    offsets: Any,
    out: Any,
    return_stats: bool,
    backend: Any,
) -> Any:
    """Runs voxelize with one operator of torch."""
    if layout != "dense" or bits or out is not None or isinstance(points, (list, tuple)):
        raise Unsupported(
            "where torch records operations voxelize makes new dense grids of one tensor",
            hint="leave layout=, bits= and out= out",
        )
    if (
        mode not in ("occupancy", "count")
        and features is not None
        and features.requires_grad
        and torch.is_grad_enabled()
    ):
        raise Unsupported(
            "voxelize has no gradient", hint="use features.detach(), or torch.no_grad()"
        )
    grid = tuple(_torchops.as_constant(_plain_value(g)) for g in (grid_min, voxel_size, grid_size))
    rest = _torchops.as_constant(
        {"outside": outside, "fill": fill, "deterministic": deterministic, "backend": backend}
    )
    options = _options_text(grid, mode, None if dtype is None else str(dtype), rest)
    features = None if mode in ("occupancy", "count") else features
    extra: Sequence[Any] = [
        None if x is None else _torchops.tensor_like(n, x, points)
        for n, x in (("lengths", lengths), ("offsets", offsets))
    ]
    got, stats = torch.ops.robocache.voxelize(
        points.detach(), features, extra[0], extra[1], options
    )
    return (got, stats) if return_stats else got


voxels.traced_voxelize = run_traced_voxelize
