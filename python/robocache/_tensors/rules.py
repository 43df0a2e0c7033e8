"""Converts a caller's options for values (mode, edge, gaps, normalization) to the engine's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import _checks
from .._errors import Misuse, Unsupported

__all__ = [
    "BACKENDS",
    "EDGES",
    "MODES",
    "RULE_NAMES",
    "choose_backend",
    "dtype_name",
    "per_stream",
    "series_rule",
    "statistic_values",
]

MODES = ("linear", "nearest", "previous", "next", "slerp", "angle", "mean")
EDGES = ("clamp", "mask", "extrapolate", "error")
BACKENDS = ("cuda", "pytorch", "cpu", "auto")

# The options that each stream of a fuse may have.
RULE_NAMES = (
    "mode",
    "edge",
    "max_gap",
    "window",
    "period",
    "lo",
    "quats",
    "sign",
    "normalize",
    "clip",
    "augment",
    "lengths",
    "offsets",
)

# For each normalization: its two statistics, and the name of its formula in the engine.
_NORMS = {
    "mean_std": ("mean", "std", "mean_std"),
    "min_max": ("min", "max", "min_max"),
    "quantiles": ("q01", "q99", "min_max"),
    "quantile10": ("q10", "q90", "min_max"),
}


def series_rule(
    mode: Any = "linear",
    edge: Any = "clamp",
    max_gap: Any = None,
    window: Any = None,
    period: Any = None,
    lo: Any = None,
    quats: Any = None,
    sign: Any = None,
    normalize: Any = None,
    clip: Any = None,
    augment: Any = None,
    *,
    channels: int = 1,
    step: int = 0,
) -> dict[str, Any]:
    """Returns the options of a stream in the engine's form.

    The arguments are those of resample, and:

    Args:
        channels: The number of columns of the data.
        step: The period of the targets in ns, which is the default window of "mean"; 0 if it is not
            known.
    """
    out: dict[str, Any] = {}
    if mode == "sum":
        raise Unsupported(
            "mode='sum' is of align=, Loader(hz=) and convert(hz=), not of resample and fuse",
            hint="align the episode: episode.align(hz=…)",
        )
    if mode not in MODES:
        raise Misuse(
            f"Invalid mode {mode!r}: expected {', '.join(MODES)}",
            hint=_checks.nearest_names(str(mode), MODES),
        )
    if edge not in EDGES:
        raise Misuse(
            f"Invalid edge {edge!r}: expected {', '.join(EDGES)}",
            hint=_checks.nearest_names(str(edge), EDGES),
        )
    if mode != "linear":
        out["mode"] = mode
    if edge != "clamp":
        out["edge"] = edge
    if max_gap is not None:
        gap = _checks.to_nanoseconds("max_gap", max_gap)
        if gap < 0:
            raise Misuse(f"max_gap={max_gap!r}: expected a duration; 0 or None sets no limit")
        out["max_gap"] = gap
    _add_window(out, mode, window, step)
    if mode == "angle":
        if period is not None:
            out["period"] = _checks.check_positive("invalid period", period)
        if lo is not None:
            out["lo"] = _checks.check_real("invalid lo", lo)
    elif period is not None or lo is not None:
        raise Misuse("period= and lo= belong to mode='angle'")
    if quats is not None:
        if mode != "slerp":
            raise Misuse("quats= belongs to mode='slerp'")
        out["quats"] = [_check_quat(q) for q in quats]
    if sign is not None:
        if mode != "slerp" or sign != "continuous":
            raise Misuse(f"sign={sign!r}: expected 'continuous', with mode='slerp'")
        out["continuous"] = True
    if normalize is not None:
        _add_norm(normalize, channels, out)
    if clip is not None:
        try:
            low, high = (float(c) for c in clip)
        except (TypeError, ValueError):
            raise Misuse(f"invalid clip {clip!r}: expected (lowest, highest)") from None
        if not low <= high:
            raise Misuse(f"invalid clip {clip!r}: expected the lowest value first")
        out["clip"] = [low, high]
    if augment is not None:
        out["augment"] = _check_augment(augment)
    return out


def _add_window(out: dict[str, Any], mode: str, window: Any, step: int) -> None:
    """Adds the window of "mean" to out: the ns before and after each target.

    Args:
        out: The options in the engine's form.
        mode: The mode of the stream.
        window: A duration, (before, after), or None: the period of the targets.
        step: The period of the targets in ns; 0 if it is not known.
    """
    if mode != "mean":
        if window is not None:
            raise Misuse("window= belongs to mode='mean'")
        return
    if window is None:
        if step <= 0:
            raise Misuse(
                "mean needs a window: window= seconds around each target",
                hint="give window=, or hz= in place of target times; "
                "evenly spaced targets on the CPU have a period of their own",
            )
        window = f"{step}ns"
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise Misuse(f"window={window!r}: expected a duration, or (before, after)")
        before, after = (_checks.to_nanoseconds("window", w) for w in window)
    else:
        whole = _checks.to_nanoseconds("window", window)
        before = whole // 2
        after = whole - whole // 2
    if before < 0 or after < 0 or before + after <= 0:
        raise Misuse(f"mean needs a window: window={window!r}: expected a duration above 0")
    out["before"], out["after"] = before, after


def _check_quat(q: Any) -> list[int]:
    """Returns a group of four channels."""
    channels = [int(c) for c in q]
    if len(channels) != 4:
        raise Misuse(f"quats: expected groups of four channels, found {q!r}")
    return channels


def statistic_values(name: str, v: Any) -> list[float]:
    """Returns statistics as a list of floats. Waits for the device of a tensor.

    Args:
        name: The name of the statistic, for messages.
        v: The numbers: an array, a tensor or a list.
    """
    try:
        a = v.detach().cpu().double().numpy() if hasattr(v, "detach") else np.asarray(v, np.float64)
    except (TypeError, ValueError):
        raise Misuse(f"normalize: {name} is no array of numbers: {v!r}") from None
    return [float(x) for x in a.ravel()]


def _add_norm(v: Any, channels: int, out: dict[str, Any]) -> None:
    """Adds normalize= to out.

    Args:
        v: "unit", statistics, or (name of the normalization, statistics).
        channels: The number of columns of the data.
        out: The options in the engine's form.
    """
    if isinstance(v, str) and v == "unit":
        out["unit"] = True
        return
    name, stats = v if isinstance(v, (tuple, list)) and len(v) == 2 else (None, v)
    if not isinstance(stats, Mapping):
        raise Misuse(
            f"normalize={v!r}: expected 'unit' (x/255), statistics such as "
            "{'mean': …, 'std': …}, or (name, statistics)",
            hint=f"names: {', '.join(_NORMS)}",
        )
    if name is None:
        found = [n for n, (a, b, _) in _NORMS.items() if a in stats and b in stats]
        if len(found) != 1:
            raise Misuse(
                f"normalize: the statistics {sorted(stats)} fit "
                f"{' and '.join(found) or 'no normalisation'}",
                hint=f"say which: (name, statistics), with one of {', '.join(_NORMS)}",
            )
        name = found[0]
    if name not in _NORMS:
        raise Misuse(
            f"normalize: unknown name {name!r}", hint=_checks.nearest_names(str(name), _NORMS)
        )
    a, b, kind = _NORMS[name]
    for k in (a, b):
        if k not in stats:
            raise Misuse(
                f"normalize={name!r} needs the statistic {k!r}", hint=f"there is {sorted(stats)}"
            )
    one, two = statistic_values(a, stats[a]), statistic_values(b, stats[b])
    if len(one) != len(two):
        raise Misuse(
            f"normalize: length mismatch: {len(one)} values of {a!r} and {len(two)} of {b!r}"
        )
    # Statistic i applies to `plane` adjacent columns, such as all pixels of one channel. A single
    # statistic applies to all columns.
    plane = stats.get("plane", channels if len(one) == 1 else 1)
    if plane != 1:
        out["plane"] = max(int(plane), 1)
    if stats.get("unit"):
        out["unit"] = True  # x / 255 is computed first.
    out["norm"] = {"kind": kind, "a": one, "b": two}


_AUGMENT = ("seed", "epoch", "op", "samples", "noise", "dropout", "scale")


def _check_augment(v: Any) -> dict[str, Any]:
    """Returns augment= in the engine's form."""
    if not isinstance(v, Mapping) or "seed" not in v:
        raise Misuse(f"augment={v!r}: expected {{'seed': …}} and some of {', '.join(_AUGMENT[1:])}")
    for k in v:
        if k not in _AUGMENT:
            raise Misuse(f"augment: unknown key {k!r}", hint=_checks.nearest_names(k, _AUGMENT))
    out: dict[str, Any] = {k: int(v.get(k, 0)) for k in ("seed", "epoch", "op")}
    for k, bits in (("seed", 64), ("epoch", 64), ("op", 32)):
        if not 0 <= out[k] < 1 << bits:
            raise Misuse(f"augment: {k}={out[k]} is outside 0 … 2^{bits}-1")
    noise, dropout = float(v.get("noise", 0)), float(v.get("dropout", 0))
    low, high = (float(s) for s in v.get("scale") or (0, 0))
    out.update(noise=noise, dropout=dropout, scale=[low, high])
    return out


def dtype_name(dtype: Any) -> str:
    """Returns the NumPy name of a dtype of NumPy or torch."""
    if isinstance(dtype, str):
        name = dtype
    elif type(dtype).__module__ == "torch":
        name = str(dtype).removeprefix("torch.")
    else:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            raise Misuse(
                f"dtype={dtype!r}: unsupported dtype", hint="one of NumPy's or torch's"
            ) from None
    return {"float": "float32", "double": "float64", "half": "float16"}.get(name, name)


def choose_backend(backend: Any, device: int, what: str = "the data") -> str:
    """Returns the back end for memory on a device: "cpu", "cuda", "pytorch" or "reference".

    Args:
        backend: backend= of the caller. "reference", for tests and benchmarks, needs host memory.
        device: The number of the CUDA device; -1: the host.
        what: What is in this memory, for messages.
    """
    if backend is not None and backend not in BACKENDS and backend != "reference":
        raise Misuse(
            f"Invalid backend {backend!r} (Unknown backend): "
            f"expected {', '.join(map(repr, BACKENDS))}"
        )
    if device < 0:
        if backend == "cuda":
            raise Unsupported(
                f"CUDA backend requested but {what} is in host memory",
                hint="move it with .cuda(), or leave backend= out",
            )
        return "reference" if backend == "reference" else "cpu"
    if backend in ("cpu", "reference"):
        raise Misuse(
            f"backend={backend!r}, but {what} is on cuda:{device}",
            hint="move it with .cpu(), or leave backend= out",
        )
    return "pytorch" if backend == "pytorch" else "cuda"


def per_stream(name: str, v: Any, n: int) -> Sequence[Any]:
    """Returns an option of fuse for each of n streams. A list has one entry per stream."""
    if isinstance(v, list):
        if len(v) != n:
            raise Misuse(f"{name}: {len(v)} entries for {n} streams")
        return v
    return [v] * n
