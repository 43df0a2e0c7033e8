"""Target times from hz=: a grid from when all streams have begun to when the first one ends."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import View
from .._errors import Misuse
from .._checks import check_rate

__all__ = ["even_step", "parse_frequency", "period_ns", "uniform_grid"]


def parse_frequency(hz: Any) -> Fraction:
    """Returns hz as a fraction of its decimal text; 29.97 is 2997/100."""
    f = Fraction(str(check_rate("hz", hz)))
    if f.denominator > 10**9 or f.numerator > 10**18:
        raise Misuse(f"hz={hz!r}: expected a rate of at most 9 decimals, or a fraction")
    return f


def period_ns(f: Fraction) -> int:
    """Returns the time of row 1 in ns; row 0 is at 0."""
    return _row_times_ns(np.array([1]), f)[0].item()


def _row_times_ns(k: np.ndarray, f: Fraction) -> np.ndarray:
    """Returns round(k * 1e9 / f), with halves rounded up, in integers."""
    step = 2 * 10**9 * f.denominator
    # Python integers, if int64 would overflow.
    if len(k) and int(k[-1]) * step + f.numerator >= 1 << 63:
        k = k.astype(object)
    return np.asarray((k * step + f.numerator) // (2 * f.numerator), dtype=np.int64)


def _to_host(v: View) -> np.ndarray:
    """Returns the values of a tensor on the host. This waits for a device."""
    return v.array.cpu().numpy() if v.tensor else v.array


def _first_and_last(
    times: View, lengths: View | None, offsets: View | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and last timestamp of each entry, in ns.

    An entry without samples ends before it begins.
    """
    t = _to_host(times)
    if t.dtype.kind == "f":
        t = np.rint(t.astype(np.float64) * 1e9).astype(np.int64)
    if offsets is not None:
        bounds = _to_host(offsets)
        begin = bounds[:-1]
        end = bounds[1:]
    else:
        t = t.reshape(int(np.prod(t.shape[:-1])), t.shape[-1])
        begin = np.arange(len(t)) * t.shape[1]
        n = np.full(len(t), t.shape[1]) if lengths is None else _to_host(lengths)
        if len(n) != len(t):  # The entries share one clock.
            begin = np.zeros(len(n), np.int64)
            t = t[:1]
        end = begin + n
    t = t.reshape(-1)
    if len(t) == 0:
        return np.ones(len(begin), np.int64), np.zeros(len(begin), np.int64)
    first = t[np.minimum(begin, len(t) - 1)]
    last = t[np.maximum(end - 1, 0)]
    return first, np.where(end > begin, last, first - 1)


def uniform_grid(streams: list[tuple[View, View | None, View | None]], f: Fraction) -> np.ndarray:
    """Returns the target times, [T], or [B, T] if entries have their own clocks.

    T is the number of rows of the longest entry. The rows after the end of a shorter entry are not
    valid.
    """
    starts, ends = zip(*(_first_and_last(*s) for s in streams))
    first = np.max(np.broadcast_arrays(*starts), axis=0)
    last = np.min(np.broadcast_arrays(*ends), axis=0)
    longest = int(np.max(last - first, initial=-1))
    if longest < 0:
        rows = 0
    else:
        rows = int(longest * f / 10**9) + 2  # At least the number of rows that fit.
        while rows > 0 and _row_times_ns(np.array([rows - 1]), f)[0] > longest:
            rows -= 1
    out = first[:, None] + _row_times_ns(np.arange(rows), f)[None, :]
    is_shared = all(
        len(times.shape) == 1 and lengths is None and offsets is None
        for times, lengths, offsets in streams
    )
    return np.ascontiguousarray(out[0]) if is_shared else out


def even_step(targets: Any) -> int:
    """Returns the period of evenly spaced target times in ns; 0 for others.

    The spacing may vary by the rounding of the times. For times on a device, the result is 0.
    """
    if getattr(targets, "is_cuda", False):
        return 0
    try:
        t = np.asarray(targets)
    except (TypeError, ValueError, RuntimeError):
        return 0
    if t.ndim == 0 or t.shape[-1] < 2 or t.dtype.kind not in "iuf" or not np.isfinite(t).all():
        return 0
    ns = (
        t.astype(np.int64)
        if t.dtype.kind in "iu"
        else np.rint(t.astype(np.float64) * 1e9).astype(np.int64)
    )
    steps = np.diff(ns.reshape(-1, ns.shape[-1]), axis=1)
    step = round(float(steps.mean())) if steps.size else 0
    is_exact = t.dtype.kind in "iu" or t.dtype.itemsize > 4  # float32 seconds are not.
    tolerance = 1 if is_exact else step // 1000
    is_even = step > 0 and (np.abs(steps - step) <= tolerance).all()
    return step if is_even else 0
