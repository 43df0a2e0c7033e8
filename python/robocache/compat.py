"""The names of the earlier RoboCache on the new kernels, with the old signatures and clock.

The old clock differs from the new one. Float times are seconds and are not rounded to nanoseconds.
An interval is open on the left, t0 < t <= t1. The denominator of the interpolation is (t1 - t0) +
epsilon seconds; epsilon=0 turns this off. int64 times are nanoseconds and follow the new rules.
Rows outside the data take the first or last sample. New code uses resample, fuse and voxelize;
docs/migration.md lists the replacements.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np

from . import _engine, _checks, voxels
from ._tensors import arrays as _arrays, rules as _rules
from ._errors import Misuse, Unsupported
from ._tensors.family import deliver
from ._version import __version__
from .ops import general_call as _resampled

__all__ = [
    "resample_trajectories",
    "fuse_multimodal",
    "fuse_multimodal_alignment",
    "fused_multimodal_alignment",
    "voxelize_pointcloud",
    "voxelize_point_cloud",
    "voxelize_occupancy",
    "set_device",
    "enable_jit_cache",
    "is_cuda_available",
    "check_installation",
    "print_installation_info",
]

_device: Any = None


def _move_to_device(x: Any, device: Any) -> Any:
    """Returns x as a tensor on a device, or unchanged if device is None."""
    if device is None or x is None:
        return x
    try:
        import torch
    except ImportError:
        raise Unsupported(
            f"device={device!r} needs torch, which is not installed", hint="pip install torch"
        ) from None
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError):
        raise Misuse(f"device={device!r}: expected 'cpu', 'cuda' or 'cuda:1'") from None
    if (
        device.type == "cuda"
        and not torch.compiler.is_compiling()
        and not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count())
    ):
        raise Unsupported(
            f"CUDA backend requested but device={str(device)!r} is not here: "
            f"torch sees {torch.cuda.device_count()} CUDA devices"
        )
    if isinstance(x, torch.Tensor):
        return x.to(device)
    return torch.as_tensor(
        np.asarray(x)
        if not hasattr(x, "__dlpack__") or isinstance(x, np.ndarray)
        else torch.from_dlpack(x)
    ).to(device)


def _input_device(x: Any, device: Any) -> Any:
    """Returns the device for the inputs of a call.

    This is device= if given, else the device of set_device for inputs on the host.
    """
    if device is not None or _device is None:
        return device
    on_host = not _arrays.is_tensor(x) or x.device.type == "cpu"
    return _device if on_host else None


def _check_times(t: Any) -> tuple[Any, bool]:
    """Returns times in a dtype that the engine takes, and whether they are seconds."""
    if not hasattr(t, "dtype"):
        t = np.asarray(t)
    kind = str(t.dtype).removeprefix("torch.")
    if kind in ("float16", "bfloat16"):
        return (t.float() if _arrays.is_tensor(t) else t.astype(np.float32)), True
    return t, kind.startswith("float")


def _resample_old(
    streams: list[tuple[str, Any, Any]],
    target_times: Any,
    *,
    single: bool,
    epsilon: float,
    mode: Any,
    edge: Any,
    max_gap: Any,
    out: Any,
    return_valid: bool,
    validate: Any,
    backend: Any,
    first: Mapping[str, Any] | None = None,
) -> Any:
    """Checks the old options and calls resample or fuse.

    Args:
        streams: The name, data and times of each stream.
        target_times: The target times.
        single: Whether to call resample.
        epsilon: Seconds added to the denominator of the interpolation.
        mode, edge, max_gap, out, return_valid, validate, backend: As in resample.
        first: The options of the first stream; None: those of the others.
    """
    if isinstance(epsilon, (np.floating, np.integer)):
        epsilon = float(epsilon)
    if (
        isinstance(epsilon, bool)
        or not isinstance(epsilon, (int, float))
        or not 0 <= epsilon < float("inf")
    ):
        raise Misuse(f"epsilon={epsilon!r}: expected seconds, 0 or more")
    rule = {"mode": mode, "edge": edge, "max_gap": max_gap}
    target_times, all_seconds = _check_times(target_times)
    calls: list[tuple[str, Any, Any, Mapping[str, Any]]] = []
    for i, (name, data, times) in enumerate(streams):
        times, are_seconds = _check_times(times)
        all_seconds = all_seconds and are_seconds
        calls.append((name, data, times, first if first is not None and i == 0 else rule))
    # If all times are float seconds, the result is computed in seconds, as the old functions did.
    # Otherwise it is computed in int64 nanoseconds.
    uses_seconds = all_seconds and mode != "mean"
    clock: dict[str, Any] = {"clock": "given", "epsilon": float(epsilon)} if uses_seconds else {}
    return _resampled(
        calls,
        target_times,
        None,
        single,
        hz=None,
        out=out,
        dtype=None,
        want_valid=return_valid,
        return_times=False,
        validate=validate,
        backend=backend,
        **clock,
    )


def resample_trajectories(
    source_data: Any,
    source_times: Any,
    target_times: Any,
    device: Any = None,
    backend: str | None = None,
    *,
    mode: str = "linear",
    edge: str = "clamp",
    max_gap: float | None = None,
    epsilon: float = 1e-8,
    return_valid: bool = False,
    validate: bool | None = None,
    out: Any = None,
) -> Any:
    """Interpolates rows at new times. New code uses robocache.resample.

    As in resample, the inputs may lack the batch dimension, and times may be shared by the batch.

    Args:
        source_data: [B, S, D], an array or tensor.
        source_times: [B, S], int64 nanoseconds or float seconds.
        target_times: [B, T], in the unit of source_times.
        device: The device to which all three are moved first. Default None: they stay.
        backend: As in resample.
        mode: As in resample. Default "linear".
        edge: As in resample. Default "clamp".
        max_gap: The longest gap that is interpolated, in seconds. Default None: no limit.
        epsilon: Seconds added to the denominator of the interpolation. Default 1e-8.
        return_valid: Whether to also return the validity, bool [B, T]. Default False.
        validate: As in resample.
        out: An array or tensor for the result.

    Returns:
        [B, T, D] with the dtype and device of source_data.

    Raises:
        Misuse: A shape, dtype or option is invalid.
        Malformed: Times decrease.
        Unsupported: The device or back end is not available.
    """
    home = _input_device(source_data, device)
    data, times, target_times = (
        _move_to_device(x, home) for x in (source_data, source_times, target_times)
    )
    return _resample_old(
        [("source_data", data, times)],
        target_times,
        single=True,
        epsilon=epsilon,
        mode=mode,
        edge=edge,
        max_gap=max_gap,
        out=out,
        return_valid=return_valid,
        validate=validate,
        backend=backend,
    )


_PAIRS = ("stream1", "stream2", "stream3", "primary", "secondary")


def fuse_multimodal(
    *tensors: Any,
    target_times: Any = None,
    backend: str | None = None,
    out: Any = None,
    mode: str = "linear",
    edge: str = "clamp",
    max_gap: float | None = None,
    epsilon: float = 1e-8,
    return_valid: bool = False,
    validate: bool | None = None,
    device: Any = None,
    **named: Any,
) -> Any:
    """Interpolates several streams at the same times. New code uses robocache.fuse.

    Args:
        tensors: Pairs of data and times. An odd number of tensors ends with the target times. With
            an even number, the clock of the first pair is the target, and the data of this pair is
            copied. A pair None, None is left out.
        target_times: The target times, in place of the last tensor.
        backend: As in resample.
        out: An array or tensor for the result.
        mode: As in resample. Default "linear".
        edge: As in resample. Default "clamp".
        max_gap: The longest gap that is interpolated, in seconds. Default None: no limit.
        epsilon: Seconds added to the denominator of the interpolation. Default 1e-8.
        return_valid: Whether to also return the validity, bool [B, T, N]. Default False.
        validate: As in resample.
        device: The device to which the inputs are moved first. Default None: they stay.
        named: Pairs by name: stream1_data and stream1_times, stream2_..., stream3_..., primary_...,
            secondary_....

    Returns:
        [B, T, sum of D], the streams in the given order.

    Raises:
        Misuse: A pair is incomplete, or a shape, dtype or option is invalid.
        Malformed: Times decrease.
        Unsupported: The device or back end is not available.
    """
    listed = list(tensors)
    if len(listed) % 2 == 1:
        if target_times is not None:
            raise Misuse(
                "fuse_multimodal: target_times was given twice",
                hint="an odd number of tensors ends with the target times",
            )
        target_times = listed.pop()
    pairs = list(zip(listed[::2], listed[1::2], strict=True))
    for p in _PAIRS:
        data, times = named.pop(f"{p}_data", None), named.pop(f"{p}_times", None)
        if data is not None or times is not None:
            pairs.append((data, times))
    if named:
        name = next(iter(named))
        raise Misuse(
            f"unknown keyword {name!r} of fuse_multimodal",
            hint=_checks.nearest_names(
                name, [f"{p}_{what}" for p in _PAIRS for what in ("data", "times")]
            ),
        )
    if any((d is None) != (t is None) for d, t in pairs):
        raise Misuse(
            "fuse_multimodal: data without times, or times without data",
            hint="a stream that is not there is the pair None, None",
        )
    pairs = [p for p in pairs if p[0] is not None]
    if not pairs:
        raise Misuse("fuse_multimodal: expected at least one pair (data, times)")
    home = _input_device(pairs[0][0], device)
    pairs = [(_move_to_device(d, home), _move_to_device(t, home)) for d, t in pairs]
    streams = [(f"stream {i}", d, t) for i, (d, t) in enumerate(pairs)]
    options: dict[str, Any] = {
        "epsilon": epsilon,
        "mode": mode,
        "edge": edge,
        "max_gap": max_gap,
        "return_valid": return_valid,
        "validate": validate,
        "backend": backend,
    }
    if target_times is not None:
        return _resample_old(
            streams, _move_to_device(target_times, home), single=False, out=out, **options
        )
    return _fuse_onto_first(streams, out, options)


# The options with which the first stream passes through: each target is one of its timestamps, and
# "nearest" accepts data of any type.
_COPY_RULE: dict[str, Any] = {"mode": "nearest", "edge": "clamp", "max_gap": None}


def _fuse_onto_first(streams: list[tuple[str, Any, Any]], out: Any, options: dict[str, Any]) -> Any:
    """Returns the first stream unchanged and the others at its times.

    The first stream is resampled with the others, so that all inputs are checked in the usual way.
    Then its data is copied over the result.
    """
    name, like, clock = streams[0]
    if isinstance(like, (list, tuple)) and any(hasattr(x, "shape") for x in like):
        raise Misuse(
            "fuse_multimodal: a ragged batch has no clock that all share", hint="give target_times="
        )
    # Checks the options, which the first stream does not use.
    _rules.series_rule(
        **{k: options[k] for k in ("mode", "edge", "max_gap")},
        window=1 if options["mode"] == "mean" else None,
    )
    first = (
        like
        if isinstance(like, np.ndarray) or _arrays.is_tensor(like)
        else _arrays.view(name, like).array
    )
    got = _resample_old(
        [(name, first, clock), *streams[1:]],
        clock,
        single=False,
        out=out,
        first=_COPY_RULE,
        **options,
    )
    got, valid = got if options["return_valid"] else (got, None)
    got[..., : first.shape[-1] if first.ndim > 1 else 1] = (
        first[:, None] if first.ndim == 1 else first
    )
    if valid is not None:
        valid[..., 0] = True
    return deliver((got, valid), like)


fuse_multimodal_alignment = fuse_multimodal
fused_multimodal_alignment = fuse_multimodal


def voxelize_pointcloud(
    points: Any,
    features: Any = None,
    grid_min: Any = (-10.0, -10.0, -10.0),
    voxel_size: Any = 0.1,
    grid_size: Any = (128, 128, 128),
    mode: str = "occupancy",
    backend: str | None = None,
    *,
    outside: str = "drop",
    layout: str = "dense",
    return_stats: bool = False,
) -> Any:
    """Sorts points into a grid. New code uses robocache.voxelize, whose occupancy is uint8.

    Args:
        points: [N, 3] or [B, N, 3], floating point.
        features: [..., F], one row per point. Default None.
        grid_min: The lower corner of the grid, in the unit of points. Default (-10, -10, -10).
        voxel_size: The edge of a voxel. Default 0.1.
        grid_size: Voxels per axis. Default (128, 128, 128).
        mode: "occupancy" (default), "count", "mean", "max", "min", "sum" or "first".
        backend: As in voxelize.
        outside: As in voxelize. Default "drop".
        layout: As in voxelize. Default "dense".
        return_stats: As in voxelize. Default False.

    Returns:
        occupancy and count: int32 [(B,) X, Y, Z]. The other modes: float32 [(B,) X, Y, Z, F].

    Raises:
        Misuse: A shape or option is invalid.
    """
    home = _input_device(points, None)
    return voxels.voxelize(
        _move_to_device(points, home),
        _move_to_device(features, home),
        grid_min=grid_min,
        voxel_size=voxel_size,
        grid_size=grid_size,
        mode=mode,
        outside=outside,
        layout=layout,
        return_stats=return_stats,
        backend=backend,
        dtype="int32" if mode == "occupancy" and layout == "dense" else None,
    )


def voxelize_point_cloud(
    points: Any, grid_size: Any, voxel_size: Any, origin: Any, backend: str | None = None
) -> Any:
    """Returns the occupancy of a grid as float32 0 and 1. New code uses robocache.voxelize.

    Args:
        points: [N, 3] or [B, N, 3], floating point.
        grid_size: Voxels per axis.
        voxel_size: The edge of a voxel.
        origin: The lower corner of the grid.
        backend: As in voxelize.

    Returns:
        float32 [X, Y, Z] or [B, X, Y, Z].

    Raises:
        Misuse: A shape or option is invalid.
    """
    home = _input_device(points, None)
    return voxels.voxelize(
        _move_to_device(points, home),
        grid_min=origin,
        voxel_size=voxel_size,
        grid_size=grid_size,
        dtype="float32",
        backend=backend,
    )


voxelize_occupancy = voxelize_point_cloud


def set_device(device: Any) -> None:
    """Sets the device to which the old functions move host inputs.

    Their results are on the same device.

    Args:
        device: "cpu", "cuda" or "cuda:1". None: inputs stay where they are.

    Raises:
        Misuse: device is not one of these.
        Unsupported: There is no such device.
    """
    global _device
    if device is None:
        _device = None
        return
    name = str(device)
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or number and not number.isdigit():
        raise Misuse(f"set_device({device!r}): expected 'cpu', 'cuda' or 'cuda:1'")
    if kind == "cuda":
        found = _cuda_report()
        if int(number or 0) >= len(found["devices"]):
            raise Unsupported(
                "CUDA backend requested but "
                f"{found.get('reason') or 'there is no device ' + (number or '0')}"
            )
    _device = name


def enable_jit_cache(flag: bool = True) -> str:
    """Lets the CUDA driver keep compiled kernels on disk. Call it before all other functions.

    The driver compiles kernels for GPUs for which the package has no machine code.

    Args:
        flag: False disables the cache. Default True.

    Returns:
        The directory of the cache.
    """
    os.environ["CUDA_CACHE_DISABLE"] = "0" if flag else "1"
    return os.environ.get("CUDA_CACHE_PATH") or os.path.expanduser("~/.nv/ComputeCache")


def _cuda_report() -> dict[str, Any]:
    """Returns the CUDA part of the engine's report on back ends."""
    return _engine.call_engine("robocache_backends")["cuda"]  # type: ignore[no-any-return]


def is_cuda_available() -> bool:
    """Reports whether a CUDA driver and a device exist and the kernels load on the device.

    If not, check_installation()["reasons"] has the reason.
    """
    return bool(_cuda_report()["devices"])


def check_installation() -> dict[str, Any]:
    """Reports which parts of RoboCache work on this machine.

    Returns:
        A dict with cuda_extension_available, pytorch_available, gpu_name, version, cpu_features,
        driver and further entries. "reasons" maps each missing part to the reason.
    """
    import importlib.util

    found = _engine.call_engine("robocache_backends")
    cuda = found["cuda"]
    has_cuda = bool(cuda["devices"])
    reasons = {}
    if not has_cuda:
        reasons["cuda"] = cuda.get("reason") or "no device"
    torch = importlib.util.find_spec("torch") is not None
    if not torch:
        reasons["pytorch"] = "not installed: arrays are NumPy arrays"
    return {
        "cuda_extension_available": has_cuda,
        "multimodal_extension_available": has_cuda,
        "voxelize_extension_available": has_cuda,
        "pytorch_available": torch,
        "cuda_device_available": has_cuda,
        "gpu_name": cuda["devices"][0] if has_cuda else None,
        "version": __version__,
        "cpu_features": found["cpu"],
        "driver": cuda.get("driver"),
        "reasons": reasons,
    }


def print_installation_info(stream: TextIO | None = None) -> None:
    """Prints check_installation() as text.

    Args:
        stream: The file to print to. Default None: sys.stdout.
    """
    info: Mapping[str, Any] = check_installation()
    to = sys.stdout if stream is None else stream
    print("RoboCache Installation Info", file=to)
    for k, v in info.items():
        if k != "reasons":
            print(
                f"  {k}: "
                f"{', '.join(f'{n} {x}' for n, x in v.items()) if isinstance(v, dict) else v}",
                file=to,
            )
    for k, v in info["reasons"].items():
        print(f"  no {k}: {v}", file=to)
