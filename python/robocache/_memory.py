"""Arrays over memory of the engine, without a copy. The memory goes back when the last array, tensor, view or slice over it dies."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ._engine import Engine

_torch: Any = None
_looked = False


def torch_module() -> Any:
    """torch, imported at the first tensor; None where it is not installed."""
    global _torch, _looked
    if not _looked:
        try:
            import torch
        except ImportError:
            pass
        else:
            _torch = torch
        _looked = True
    return _torch


def _release(engine: Engine, batch: int, index: int) -> None:
    if engine.ours:
        engine.lib.robocache_release(batch, index)


class Memory:
    """One tensor of a batch of the engine: alive as long as anything looks at it."""

    __slots__ = ("__weakref__",)

    def __init__(self, engine: Engine, batch: int, index: int) -> None:
        # Not at exit: at that point the process's end gives all memory back, and arrays may still be in use.
        weakref.finalize(self, _release, engine, batch, index).atexit = False


class _Span:
    """What NumPy asks of one tensor's memory; as the array's base it keeps the memory alive."""

    __slots__ = ("__array_interface__", "memory")

    def __init__(self, memory: Memory, ptr: int, typestr: str, shape: tuple[int, ...]) -> None:
        self.memory = memory
        self.__array_interface__ = {"data": (ptr, False), "typestr": typestr, "shape": shape, "version": 3}


TYPESTR = {
    "bool": "|b1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "|u1", "uint16": "<u2", "uint32": "<u4",
    "uint64": "<u8", "float16": "<f2", "bfloat16": "<u2", "float32": "<f4", "float64": "<f8",
}  # fmt: skip


def array(memory: Memory, d: dict[str, Any]) -> np.ndarray:
    """The tensor that a descriptor names; bfloat16, which NumPy lacks, as its uint16 bits."""
    return np.asarray(_Span(memory, d["ptr"], TYPESTR[d["dtype"]], tuple(d["shape"])))


def tensor(memory: Memory, d: dict[str, Any], torch: Any) -> Any:
    """As array, but a torch tensor where torch is given."""
    a = array(memory, d)
    if torch is None:
        return a
    t = torch.from_numpy(a)
    return t.view(torch.bfloat16) if d["dtype"] == "bfloat16" else t
