"""Checks of arguments.

A wrong argument fails at once, and the message names the nearest valid value. The checks in the
tables of _config take (name, value).
"""

from __future__ import annotations

import difflib
import logging
import math
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ._errors import Misuse


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the known names nearest to name, or with all of them if none is near."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.6)
    if not near:  # People often remember a part of a dotted key.
        near = [k for k in known if str(name) and str(name) in k][:3]
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    return "known: " + ", ".join(known)


_logged_notes: set[str] = set()


def log_notes(answer: Mapping[str, Any]) -> None:
    """Logs the choices that the engine made by default, each text once per process."""
    for text in answer.get("notes") or []:
        if text not in _logged_notes:
            _logged_notes.add(text)
            logging.getLogger("robocache").warning(text)


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Returns value if it is one of the allowed values. Raises Misuse otherwise."""
    allowed = list(allowed)
    if value not in allowed:
        raise Misuse(
            f"{name}={value!r}: expected one of {', '.join(map(repr, allowed))}",
            hint=nearest_names(str(value), [str(a) for a in allowed]),
        )
    return value


def check_key(name: str, known: Iterable[str], what: str = "stream") -> str:
    """Returns name if it is one of the known keys. Raises Misuse otherwise."""
    known = list(known)
    if name not in known:
        raise Misuse(
            f"unknown {what} {name!r}",
            {"stream" if what.startswith("key") else what: name},
            nearest_names(name, known),
        )
    return name


def is_integer(v: Any) -> bool:
    """Reports whether v is an integer of Python, NumPy or torch. Booleans are not integers."""
    if isinstance(v, (bool, np.bool_)):
        return False
    if isinstance(v, numbers.Integral):
        return True
    dtype = getattr(v, "dtype", None)  # A scalar of torch or NumPy.
    return dtype is not None and getattr(v, "ndim", 0) == 0 and "int" in str(dtype)


def check_flag(name: str, v: Any) -> bool:
    """Returns v as a bool. Other types are rejected, because bool("no") is True."""
    if isinstance(v, (bool, np.bool_)) or (is_integer(v) and int(v) in (0, 1)):
        return bool(v)
    raise Misuse(f"{name}={v!r}: expected True or False")


def check_integer(name: str, v: Any) -> int:
    """Returns v as an int that fits into int64."""
    if not is_integer(v) or not -(2**63) <= int(v) < 2**63:
        raise Misuse(f"{name}={v!r}: expected an integer")
    return int(v)


def check_whole(name: str, v: Any, least: int = 1) -> int:
    """Returns v as an int of at least `least`."""
    if not is_integer(v) or int(v) < least:
        raise Misuse(f"{name}={v!r}: expected an integer of at least {least}")
    return int(v)


def check_real(
    name: str,
    v: Any,
    want: str = "a finite number",
    least: float = -math.inf,
    above: float = -math.inf,
) -> float:
    """Returns v as a finite float, at least `least` and greater than `above`."""
    try:
        f = float(v)
    except (TypeError, ValueError):
        f = math.nan
    if isinstance(v, (bool, np.bool_)) or not (f >= least and f > above and f < math.inf):
        raise Misuse(f"{name}={v!r}: expected {want}")
    return f


def check_positive(name: str, v: Any) -> float:
    """Returns v as a finite float above 0."""
    return check_real(name, v, "a finite number above 0", above=0)


def check_nonnegative(name: str, v: Any) -> float:
    """Returns v as a finite float of at least 0."""
    return check_real(name, v, "a number of at least 0", least=0)


def check_rate(name: str, v: Any) -> Any:
    """Returns a rate for the engine.

    Args:
        name: The name of the option, for messages.
        v: A number, a Fraction, or text such as "30000/1001", in Hz.
    """
    if isinstance(v, str):
        try:
            v = Fraction(v)
        except (ValueError, ZeroDivisionError):
            raise Misuse(f"{name}={v!r}: expected a rate in Hz") from None
    if isinstance(v, Fraction) and v > 0:
        return v.numerator if v.denominator == 1 else f"{v.numerator}/{v.denominator}"
    f = check_real(name, v, "a rate above 0 Hz", above=0)
    return int(v) if is_integer(v) else f


def parse_rate(v: Any) -> Any:
    """Returns a rate from the engine: int if it is whole, else float; None if there is no rate."""
    if v is None:
        return None
    f = Fraction(v) if isinstance(v, str) else v
    return int(f) if f == int(f) else float(f)


_TIME_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION = "seconds as a number, or text with a unit, as '50ms'"


def to_nanoseconds(name: str, v: Any) -> int:
    """Returns a duration in nanoseconds, from seconds or text with a unit.

    Raises Misuse for a number of more than a day, which is probably meant as nanoseconds.
    """
    return _time_to_ns(name, v, lambda s: abs(s) <= 86_400)


def duration_text(name: str, v: Any) -> str:
    """Returns a duration as text in nanoseconds, which the engine reads without loss."""
    return f"{to_nanoseconds(name, v)}ns"


def check_seconds(name: str, v: Any) -> Any:
    """Returns a duration as seconds, or as text in whole nanoseconds.

    Accepts the same values as to_nanoseconds(). A number stays seconds with all its digits; text
    becomes nanoseconds.
    """
    ns = to_nanoseconds(name, v)
    return f"{ns}ns" if isinstance(v, str) else float(v)


def moment_text(name: str, v: Any) -> str:
    """Returns a moment on a clock as text in nanoseconds.

    Accepts moments within a year of zero, and Unix seconds from 2001 to 2286.
    """
    return f"{_time_to_ns(name, v, lambda s: abs(s) <= 3.2e7 or 1e9 <= s <= 1e10)}ns"


def _time_to_ns(name: str, v: Any, plausible: Callable[[float], bool]) -> int:
    """Returns v in nanoseconds. Raises Misuse if it is not plausible as seconds."""
    if isinstance(v, str):
        text = v.strip()
        unit = next((u for u in sorted(_TIME_UNITS, key=len, reverse=True) if text.endswith(u)), "")
        try:
            if not unit:
                raise ValueError
            ns = round(Fraction(text[: -len(unit)].strip()) * _TIME_UNITS[unit])
        except (ValueError, ZeroDivisionError):
            raise Misuse(f"{name}={v!r}: expected {_DURATION}") from None
    else:
        f = check_real(name, v, _DURATION)
        if not plausible(f):
            n = f"{f:.0f}" if f == int(f) else repr(f)
            raise Misuse(
                f"{name}={v!r} is {n} s ({_format_days(f)}), and as nanoseconds {_format_ns(f)}",
                hint=f"write {n + 'ns'!r} or {f / 1e9:g} for nanoseconds, "
                f"or {n + 's'!r} if seconds are meant",
            )
        ns = int(v) * 10**9 if is_integer(v) else int(np.rint(f * 1e9))
    if abs(ns) >= 2**62:
        raise Misuse(f"{name}={v!r}: expected less than 2^62 ns")
    return ns


def _format_days(s: float) -> str:
    """Returns seconds as text in days or years."""
    return f"{s / 86_400:.1f} days" if abs(s) < 86_400_000 else f"{s / 86_400 / 365.25:.3g} years"


def _format_ns(ns: float) -> str:
    """Returns nanoseconds as text in a readable unit."""
    for unit, n in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= n:
            return f"{ns / n:.10g} {unit}"
    return f"{ns:.10g} ns"


def timestamps_ns(name: str, v: Any) -> np.ndarray:
    """Returns timestamps as int64 nanoseconds.

    Raises Misuse for implausible values; the message shows them in both units.

    Args:
        name: The name of the option, for messages.
        v: An array of integer nanoseconds or of float seconds, with one dimension.
    """
    a = np.asarray(v)
    if a.ndim != 1:
        raise Misuse(f"{name}: expected one dimension, found {a.ndim}")
    if a.dtype.kind in "iu":
        most = max(abs(int(a.min())), abs(int(a.max()))) if a.size else 0
        if 0 < most < 10**6:
            raise Misuse(
                f"{name}: integers are nanoseconds, and these lie within {_format_ns(most)} of 0; "
                f"as seconds they reach {most} s",
                hint="pass float seconds, or int64 nanoseconds",
            )
        return a.astype(np.int64)
    if a.dtype.kind == "f":
        if not np.isfinite(a).all():
            raise Misuse(f"{name}: times must be finite")
        most = float(np.abs(a).max()) if a.size else 0.0
        if most > 9.2e9:
            raise Misuse(
                f"{name}: floats are seconds, and these reach {most:g} s ({_format_days(most)}); "
                f"as nanoseconds they reach {_format_ns(most)}",
                hint="pass nanoseconds as int64: times.astype('int64')",
            )
        return np.rint(a.astype(np.float64) * 1e9).astype(np.int64)
    raise Misuse(f"{name}: expected int64 nanoseconds or float seconds, found {a.dtype}")


def check_frame_size(name: str, v: Any) -> list[int]:
    """Returns the size of images as [height, width], or [smallest side]."""
    if is_integer(v) and v >= 1:
        return [int(v)]
    try:
        size = [operator.index(x) for x in v]
    except TypeError:
        size = []
    if len(size) != 2 or min(size) < 1:
        raise Misuse(f"{name}={v!r}: expected (height, width)")
    return size


def path_text(v: Any) -> str:
    """Returns a path or URI as text."""
    try:
        s = os.fspath(v)
    except TypeError:
        raise Misuse(f"expected a path or URI, found {type(v).__name__}") from None
    s = s.decode() if isinstance(s, bytes) else s
    if s == "":
        raise Misuse("empty path or URI")
    return os.path.expanduser(s) if s.startswith("~") else s


_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def parse_bytes(name: str, v: Any) -> int:
    """Returns a size in bytes, from a number or text such as "4GiB" or "512MB"."""
    if is_integer(v):
        n = int(v)
    else:
        text = str(v).strip().replace(" ", "").upper()
        digits = text.rstrip("KMGTIB")
        try:
            n = int(float(digits) * _UNITS[text[len(digits) :]])
        except (ValueError, KeyError, OverflowError):
            raise Misuse(f"{name}={v!r}: expected bytes, or text such as '4GiB'") from None
    if n <= 0:
        raise Misuse(f"{name}={v!r}: expected more than zero bytes")
    return n
