"""Allocates the results of an operation with the caller's library, and runs the operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import arrays as _arrays
from .arrays import HOST, View
from .._errors import Misuse
from .prepared import Prepared, raw_stream

__all__ = [
    "AllocatingOp",
    "check_out",
    "dense_strides",
    "device_name",
    "native_dtype",
    "require_same_device",
]


def dense_strides(shape: Sequence[int]) -> list[int]:
    """Returns the strides of C order, in elements."""
    out = []
    n = 1
    for d in reversed(shape):
        out.append(n)
        n *= max(d, 1)
    return out[::-1]


def device_name(v: View) -> str:
    """Returns the name of the device of a view."""
    return "cpu" if v.device == HOST else f"cuda:{v.device}"


def require_same_device(views: Sequence[View]) -> None:
    """Raises Misuse unless all views are on one device."""
    first = views[0]
    for v in views:
        if v.device != first.device:
            raise Misuse(
                f"{v.name} must be on the same device as {first.name}: "
                f"expected {device_name(first)}, found {device_name(v)}",
                {"tensor": v.name},
            )


def check_out(name: str, x: Any, shape: Sequence[int], dtype: str | None, like: View) -> View:
    """Returns a result that the caller gave, as memory to write to."""
    v = _arrays.writable_view(name, x)
    if v.shape != tuple(shape):
        raise Misuse(
            f"{name} has wrong shape: expected {list(shape)}, found {list(v.shape)}",
            {"tensor": name},
        )
    if dtype is not None and v.dtype != dtype:
        raise Misuse(f"{name} has wrong dtype: expected {dtype}, found {v.dtype}", {"tensor": name})
    require_same_device([like, v])
    return v


def native_dtype(dtype: str, like: View) -> Any:
    """Returns a dtype of the caller's library."""
    if like.tensor:
        torch = _arrays.imported_torch()
        made = getattr(torch, dtype, None)
        if not isinstance(made, torch.dtype):
            raise Misuse(f"dtype={dtype!r}: unsupported dtype", hint="torch has no such type")
        return made
    if dtype == like.dtype:
        return like.array.dtype
    try:
        return np.dtype(dtype)
    except TypeError:
        raise Misuse(
            f"dtype={dtype!r}: unsupported dtype",
            hint="NumPy has no such type: give torch tensors, or import ml_dtypes",
        ) from None


class AllocatingOp:
    """A prepared operation and the results that each run allocates.

    A result is (shape, dtype), or None if the caller gives it. With zeroed, the first result is
    allocated from fresh pages, which the system fills with zeros when they are first used.
    """

    __slots__ = ("op", "results", "zeroed", "device", "cuda")

    def __init__(
        self,
        op: Prepared,
        results: list[tuple[tuple[int, ...], Any] | None],
        like: View,
        zeroed: Any = None,
    ) -> None:
        self.op = op
        self.results = results
        self.zeroed = zeroed  # The NumPy dtype of the zeroed result.
        self.device = like.array.device if like.tensor else None
        self.cuda = like.device

    def run(self, inputs: Sequence[int], given: Sequence[Any] = ()) -> list[Any]:
        """Runs the operation and returns the results.

        Args:
            inputs: The addresses of the inputs.
            given: The arrays of the results that the caller gives.
        """
        addresses = list(inputs)
        mine = iter(given)
        out: list[Any] = []
        torch = None if self.device is None else _arrays.imported_torch()
        for r in self.results:
            if self.zeroed is not None and not out and r is not None:
                fresh = np.zeros(r[0], self.zeroed)
                a = fresh if torch is None else torch.from_numpy(fresh)
                addresses.append(fresh.__array_interface__["data"][0])
            elif torch is None:
                a = next(mine) if r is None else np.empty(r[0], r[1])
                addresses.append(a.__array_interface__["data"][0])
            else:
                a = next(mine) if r is None else torch.empty(r[0], dtype=r[1], device=self.device)
                addresses.append(a.data_ptr())
            out.append(a)
        if self.op.scratch and torch is not None:
            # This function drops the tensor before the operation has ended. torch reuses its memory
            # only for later work on the same stream.
            scratch = torch.empty(self.op.scratch, dtype=torch.uint8, device=self.device)
            addresses.append(scratch.data_ptr())
        self.op.run(raw_stream(self.cuda) if self.cuda >= 0 else 0, *addresses)
        return out
