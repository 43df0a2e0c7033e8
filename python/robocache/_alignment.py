"""The keywords of an alignment, checked, as the engine wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import _options
from ._errors import Misuse

__all__ = ["align_args"]


def align_args(
    features: Iterable[str],
    modes: Any = None,
    edge: Any = None,
    max_gap: Any = None,
    offset: Any = None,
    clock: Any = None,
    latency: Any = None,
    drift: Any = None,
    rotations: Any = None,
) -> dict[str, Any]:
    """The common keywords of an alignment, checked, as the engine wants them: durations in int nanoseconds."""
    args: dict[str, Any] = {}
    for name, table in (("modes", modes), ("edge", edge), ("max_gap", max_gap), ("offset", offset), ("clock", clock), ("latency", latency), ("drift", drift), ("rotations", rotations)):
        if isinstance(table, Mapping):
            for k in table:
                _options.key(k, features)
        elif name in ("modes", "offset", "clock", "latency", "drift", "rotations") and table is not None:
            raise Misuse(f"{name}={table!r}: expected a dict by stream key")
    all_modes = ("linear", "nearest", "previous", "next", "slerp", "angle", "mean")
    if modes:
        args["modes"] = {k: _options.choice(f"modes[{k!r}]", v, all_modes) for k, v in modes.items()}
    if edge is not None:
        edges = ("clamp", "mask", "extrapolate", "error")
        args["edge"] = {k: _options.choice("edge", v, edges) for k, v in edge.items()} if isinstance(edge, Mapping) else _options.choice("edge", edge, edges)
    if max_gap is not None:
        args["max_gap"] = (
            {k: _options.nanoseconds("max_gap", v) for k, v in max_gap.items()} if isinstance(max_gap, Mapping) else _options.nanoseconds("max_gap", max_gap)
        )
    if offset:
        args["offset"] = {k: _options.nanoseconds("offset", v) for k, v in offset.items()}
    if latency:
        args["latency"] = {k: _options.nanoseconds("latency", v) for k, v in latency.items()}
    if drift:
        args["drift"] = {k: _drift(k, v) for k, v in drift.items()}
    if clock:
        args["clock"] = dict(clock)
    if rotations:
        args["rotations"] = {k: _rotations(k, v) for k, v in rotations.items()}
    return args


def _rotations(key: str, v: Any) -> list[dict[str, Any]]:
    """One entry of rotations= as the engine wants it."""
    out = []
    for r in [(0, v)] if isinstance(v, str) else v if isinstance(v, (list, tuple)) else [v]:
        at, form = (r["at"], r["form"]) if isinstance(r, Mapping) and set(r) == {"at", "form"} else r if isinstance(r, (tuple, list)) and len(r) == 2 else (None, None)
        if not _options.is_integer(at) or not isinstance(form, str):
            raise Misuse(f"rotations[{key!r}]={v!r}: expected a form, or a list of (first channel, form)", {"stream": key})
        out.append({"at": int(at), "form": form})
    return out


def _drift(key: str, v: Any) -> Any:
    """One entry of drift= as the engine wants it."""
    at = None
    if isinstance(v, Mapping) and "ppm" in v and set(v) <= {"ppm", "at"}:
        v, at = v["ppm"], v.get("at")
    elif isinstance(v, (tuple, list)) and len(v) == 2:
        v, at = v
    try:
        ppm = float(v)
    except (TypeError, ValueError):
        ppm = float("nan")
    if isinstance(v, bool) or not abs(ppm) <= 1e5:
        raise Misuse(f"drift[{key!r}]={v!r}: expected parts in a million within ±100000, or (ppm, at)", {"stream": key})
    return ppm if at is None else {"ppm": ppm, "at": _options.nanoseconds(f"drift[{key!r}] at", at)}
