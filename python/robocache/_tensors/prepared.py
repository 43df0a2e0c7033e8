"""Prepared operations of the engine, cached by their specification.

A call with the same shapes runs a prepared operation with new addresses.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import weakref
from typing import Any, Generic, TypeVar

from .. import _engine
from .._errors import Unsupported, from_engine

__all__ = ["Prepared", "Recent", "clear_caches", "prepare", "raw_stream"]

V = TypeVar("V")


class Recent(Generic[V]):
    """A cache of recently used values, at most twice `size` of them.

    There are two dicts. A value that is used moves to the newer one, so a hit usually costs one
    lookup. When the newer dict is full, it becomes the older one, whose values are dropped.
    """

    __slots__ = ("_new", "_old", "_size", "__weakref__")

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._new: dict[Any, V] = {}
        self._old: dict[Any, V] = {}
        _all_caches.add(self)

    def get(self, key: Any) -> V | None:
        """Returns the value of a key, or None."""
        v = self._new.get(key)
        if v is None:
            v = self._old.get(key)
            if v is not None:
                self.put(key, v)
        return v

    def put(self, key: Any, v: V) -> None:
        """Stores a value."""
        if len(self._new) >= self._size:
            self._old = self._new
            self._new = {}
        self._new[key] = v

    def clear(self) -> None:
        """Removes all values."""
        self._new, self._old = {}, {}


_all_caches: weakref.WeakSet[Recent[Any]] = weakref.WeakSet()


def clear_caches() -> None:
    """Clears all caches: a forked child must not use the operations of its parent's engine."""
    for r in list(_all_caches):
        r.clear()


os.register_at_fork(after_in_child=clear_caches)

_packers = [struct.Struct(f"={n}q").pack for n in range(200)]


class Prepared:
    """A checked operation with its shapes, types and options; only addresses are missing."""

    __slots__ = ("engine", "number", "scratch", "count", "pack", "start", "__weakref__")

    def __init__(
        self, engine: _engine.Engine, number: int, tensors: int, scratch: int, keeps_gil: bool
    ) -> None:
        """Stores an operation of the engine, which is closed when this object is freed.

        Args:
            engine: The engine of the operation.
            number: The number of the operation in the engine.
            tensors: The number of tensors, without the scratch memory.
            scratch: The bytes of scratch memory, which is the last tensor. 0: none.
            keeps_gil: Whether run() keeps the GIL. Only for launches, which do not wait.
        """
        self.engine = engine
        self.number = number
        self.scratch = scratch
        self.count = tensors + (scratch > 0)
        self.pack = (
            _packers[self.count]
            if self.count < len(_packers)
            else struct.Struct(f"={self.count}q").pack
        )
        # A launch does not wait, so it keeps the GIL. An operation that computes or waits releases
        # the GIL. start(number, addresses, count, stream, address of the error text or None)
        # returns 0 or the status of an error.
        self.start = self.engine.launch if keeps_gil else self.engine.lib.robocache_op_run
        weakref.finalize(self, _engine.close_object, self.engine, self.number).atexit = False

    def run(self, stream: int, *addresses: int) -> None:
        """Runs the operation on addresses, in the order of its tensors.

        Args:
            stream: The CUDA stream; ignored on the host.
            addresses: The addresses of the tensors.
        """
        out = ctypes.c_void_p()
        if (
            self.start(
                self.number, self.pack(*addresses), self.count, stream, ctypes.addressof(out)
            )
            != 0
        ):
            raise from_engine(self.engine.answer(out) or {})


_prepared: Recent[Prepared] = Recent()


def prepare(spec: dict[str, Any]) -> Prepared:
    """Returns the prepared operation for a specification, as robocache.h describes it."""
    key = json.dumps(spec, sort_keys=True)
    p = _prepared.get(key)
    if p is None:
        try:
            e = _engine.current_engine()
            made = e.call("robocache_op_new", 0, spec)[1]
            # A launch does not wait, unless the engine also checks the values.
            is_launch = spec["backend"] == "cuda" and not spec.get("validate")
            p = Prepared(e, made["op"], len(spec["tensors"]), made["scratch"], is_launch)
        except Unsupported as why:
            # The prefix states that the caller chose the CUDA back end.
            if spec["backend"] != "cuda" or str(why).startswith("CUDA backend"):
                raise
            raise Unsupported(f"CUDA backend requested but {why}", why.where, why.hint) from None
        _prepared.put(key, p)
    return p


def raw_stream(device: int) -> int:
    """Returns the caller's current stream on a CUDA device."""
    return sys.modules["torch"]._C._cuda_getCurrentRawStream(device)  # type: ignore[no-any-return]
