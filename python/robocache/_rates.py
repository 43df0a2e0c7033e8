"""Rates as the engine tells and takes them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from . import _options
from ._errors import Misuse

__all__ = ["number", "rate"]


def number(v: Any) -> Any:
    """A rate as the engine tells it: int where it is whole, else float; None where there is none."""
    if v is None:
        return None
    f = Fraction(v) if isinstance(v, str) else v
    return int(f) if f == int(f) else float(f)


def rate(name: str, v: Any) -> Any:
    """A rate for the engine: a number, a Fraction, or text such as "30000/1001"."""
    if isinstance(v, str):
        try:
            v = Fraction(v)
        except (ValueError, ZeroDivisionError):
            raise Misuse(f"{name}={v!r}: expected a rate in Hz") from None
    if isinstance(v, Fraction):
        return v.numerator if v.denominator == 1 else f"{v.numerator}/{v.denominator}"
    if _options.is_integer(v):
        v = int(v)
    else:
        try:
            v = float(v)
        except (TypeError, ValueError):
            raise Misuse(f"{name}={v!r}: expected a rate in Hz") from None
    if not v > 0 or v == float("inf"):
        raise Misuse(f"{name}={v!r}: expected a rate above 0 Hz")
    return v
