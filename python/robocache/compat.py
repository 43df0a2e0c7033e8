"""The names of the earlier RoboCache, on the new kernels: its signatures, defaults, result types, and its clock.

Its clock: float times are seconds as they are (never rounded to nanoseconds), the interval is open on the left, t0 < t <= t1, and the denominator is
(t1 - t0) + epsilon seconds; epsilon=0 turns that off. int64 times are nanoseconds and follow the new rules. Rows outside the data take the edge sample
on both sides. New code uses resample, fuse and voxelize; docs/migration.md has the table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np

from . import _engine, _options, voxels
from ._tensors import arrays as _arrays, rules as _rules
from ._errors import Misuse, Unsupported
from ._tensors.family import deliver
from ._version import __version__
from .ops import _call as _resampled

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


def _move(x: Any, device: Any) -> Any:
    """x as a tensor on a device; as it is where none was asked for."""
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
            f"CUDA backend requested but device={str(device)!r} is not here: torch sees {torch.cuda.device_count()} CUDA devices"
        )
    if isinstance(x, torch.Tensor):
        return x.to(device)
    return torch.as_tensor(
        np.asarray(x)
        if not hasattr(x, "__dlpack__") or isinstance(x, np.ndarray)
        else torch.from_dlpack(x)
    ).to(device)


def _home(x: Any, device: Any) -> Any:
    """Where a call's inputs go: where it says, else where set_device said for inputs of the host."""
    if device is not None or _device is None:
        return device
    on_host = not _arrays.is_tensor(x) or x.device.type == "cpu"
    return _device if on_host else None


def _times(t: Any) -> tuple[Any, bool]:
    """Times as the engine takes them, and whether they are seconds."""
    if not hasattr(t, "dtype"):
        t = np.asarray(t)
    kind = str(t.dtype).removeprefix("torch.")
    if kind in ("float16", "bfloat16"):
        return (t.float() if _arrays.is_tensor(t) else t.astype(np.float32)), True
    return t, kind.startswith("float")


def _run(
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
    if isinstance(epsilon, (np.floating, np.integer)):
        epsilon = float(epsilon)
    if (
        isinstance(epsilon, bool)
        or not isinstance(epsilon, (int, float))
        or not 0 <= epsilon < float("inf")
    ):
        raise Misuse(f"epsilon={epsilon!r}: expected seconds, 0 or more")
    rule = {"mode": mode, "edge": edge, "max_gap": max_gap}
    target_times, seconds = _times(target_times)
    whole: list[tuple[str, Any, Any, Mapping[str, Any]]] = []
    for name, data, times in streams:
        times, own = _times(times)
        seconds = seconds and own
        whole.append((name, data, times, rule if first is None or whole else first))
    clock: dict[str, Any] = (
        {"clock": "given", "epsilon": float(epsilon)} if seconds and mode != "mean" else {}
    )
    return _resampled(
        whole,
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
    """source_data [B, S, D] at source_times [B, S] brought onto target_times [B, T]: [B, T, D] of source_data's dtype, on its device.

    device= moves all three first. Shapes without a batch and times shared by it are taken too, as in robocache.resample, which new code uses.
    """
    home = _home(source_data, device)
    data, times, target_times = (_move(x, home) for x in (source_data, source_times, target_times))
    return _run(
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
    """Streams side by side on one clock: [B, T, sum of D].

    An odd number of tensors is pairs (data, times) and the target times; an even number is pairs, and the first one's clock is the target: its data is
    copied. Pairs may also be named: stream1_data, stream1_times … stream3_times, primary_data …, secondary_times. A pair None, None is left out.
    New code uses robocache.fuse.
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
            hint=_options.nearest(
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
    home = _home(pairs[0][0], device)
    pairs = [(_move(d, home), _move(t, home)) for d, t in pairs]
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
        return _run(streams, _move(target_times, home), single=False, out=out, **options)
    return _onto_first(streams, out, options)


# moves any type, asks for nothing
_COPIED: dict[str, Any] = {"mode": "nearest", "edge": "clamp", "max_gap": None}


def _onto_first(streams: list[tuple[str, Any, Any]], out: Any, options: dict[str, Any]) -> Any:
    """The first stream as it is, the others on its clock. It is resampled with them, so that all is checked as everywhere, and then copied over."""
    name, like, clock = streams[0]
    if isinstance(like, (list, tuple)) and any(hasattr(x, "shape") for x in like):
        raise Misuse(
            "fuse_multimodal: a ragged batch has no clock that all share", hint="give target_times="
        )
    _rules.rule(
        **{k: options[k] for k in ("mode", "edge", "max_gap")},
        window=1 if options["mode"] == "mean" else None,
    )
    first = (
        like
        if isinstance(like, np.ndarray) or _arrays.is_tensor(like)
        else _arrays.view(name, like).array
    )
    got = _run(
        [(name, first, clock), *streams[1:]], clock, single=False, out=out, first=_COPIED, **options
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
    """points [N, 3] or [B, N, 3] in a grid: count and occupancy int32 [(B,) X, Y, Z]; mean, max, min, sum, first float32 [..., F].

    New code uses robocache.voxelize, whose occupancy is uint8.
    """
    home = _home(points, None)
    return voxels.voxelize(
        _move(points, home),
        _move(features, home),
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
    """Occupancy as float32 0 and 1: [X, Y, Z], or [B, X, Y, Z]. New code uses robocache.voxelize."""
    home = _home(points, None)
    return voxels.voxelize(
        _move(points, home),
        grid_min=origin,
        voxel_size=voxel_size,
        grid_size=grid_size,
        dtype="float32",
        backend=backend,
    )


voxelize_occupancy = voxelize_point_cloud


def set_device(device: Any) -> None:
    """Where the old names above put inputs of the host, and so their results: "cpu", "cuda", "cuda:1"; None: they stay where they are."""
    global _device
    if device is None:
        _device = None
        return
    name = str(device)
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or number and not number.isdigit():
        raise Misuse(f"set_device({device!r}): expected 'cpu', 'cuda' or 'cuda:1'")
    if kind == "cuda":
        found = _cuda()
        if int(number or 0) >= len(found["devices"]):
            raise Unsupported(
                f"CUDA backend requested but {found.get('reason') or 'there is no device ' + (number or '0')}"
            )
    _device = name


def enable_jit_cache(flag: bool = True) -> str:
    """Lets the driver keep on disk what it compiles (chips that the package has no machine code for); returns the directory. Call it first of all."""
    os.environ["CUDA_CACHE_DISABLE"] = "0" if flag else "1"
    return os.environ.get("CUDA_CACHE_PATH") or os.path.expanduser("~/.nv/ComputeCache")


def _cuda() -> dict[str, Any]:
    return _engine.call("robocache_backends")["cuda"]  # type: ignore[no-any-return]


def is_cuda_available() -> bool:
    """Whether there is a driver and a device, and our kernels load on it. check_installation()["reasons"] says why not."""
    return bool(_cuda()["devices"])


def check_installation() -> dict[str, Any]:
    """What is here, and why the rest is not."""
    import importlib.util

    found = _engine.call("robocache_backends")
    cuda = found["cuda"]
    there = bool(cuda["devices"])
    reasons = {}
    if not there:
        reasons["cuda"] = cuda.get("reason") or "no device"
    torch = importlib.util.find_spec("torch") is not None
    if not torch:
        reasons["pytorch"] = "not installed: arrays are NumPy arrays"
    return {
        "cuda_extension_available": there,
        "multimodal_extension_available": there,
        "voxelize_extension_available": there,
        "pytorch_available": torch,
        "cuda_device_available": there,
        "gpu_name": cuda["devices"][0] if there else None,
        "version": __version__,
        "cpu_features": found["cpu"],
        "driver": cuda.get("driver"),
        "reasons": reasons,
    }


def print_installation_info(stream: TextIO | None = None) -> None:
    """check_installation() as text."""
    info: Mapping[str, Any] = check_installation()
    to = sys.stdout if stream is None else stream
    print("RoboCache Installation Info", file=to)
    for k, v in info.items():
        if k != "reasons":
            print(
                f"  {k}: {', '.join(f'{n} {x}' for n, x in v.items()) if isinstance(v, dict) else v}",
                file=to,
            )
    for k, v in info["reasons"].items():
        print(f"  no {k}: {v}", file=to)
