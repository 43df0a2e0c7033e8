"""Arrays and tensors over memory of the engine, without a copy. The memory goes back when the last array, tensor, view or slice over it dies.

The engine describes tensors as DLPack. Capsules of all tensors of a batch are made in one call that no signal handler interrupts; each gives its
memory back by a C function when it dies, also in a forked child, where that does not enter the engine.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _engine

_torch: Any = None
_looked = False

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


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


def converter(torch: Any) -> Any:
    """What makes a tensor of torch out of a capsule."""
    return getattr(torch._C, "_from_dlpack", None) or torch.utils.dlpack.from_dlpack


class _Span:
    """What NumPy asks of a tensor's memory. As the array's base it keeps the capsule, which gives the memory back."""

    __slots__ = ("__array_interface__", "capsule")

    def __init__(self, capsule: Any, typestr: str, shape: tuple[int, ...]) -> None:
        self.capsule = capsule
        # DLManagedTensor begins with it
        data = ctypes.c_void_p.from_address(_pointer(capsule, b"dltensor")).value or 0
        self.__array_interface__ = {
            "data": (data, False),
            "typestr": typestr,
            "shape": shape,
            "version": 3,
        }


_TYPESTR = {
    "bool": "|b1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "float64": "<f8",
}


def array(capsule: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A capsule as an array; bfloat16, which NumPy lacks, as its uint16 bits."""
    return np.asarray(_Span(capsule, _TYPESTR[dtype], shape))


def entries(capsule: Any) -> int:
    """The first extent of a tensor, as its DLTensor says: data, device, ndim and dtype take 24 bytes, then comes the shape's address."""
    shape = ctypes.c_void_p.from_address(_pointer(capsule, b"dltensor") + 24).value
    return ctypes.c_int64.from_address(shape).value  # type: ignore[arg-type]


def values(answer: Mapping[str, Any], torch: Any = None, parsed: bool = False) -> dict[str, Any]:
    """A batch of an answer as arrays (tensors where torch is given) and lists of text, in its order. parsed: JSON texts become what they say."""
    e, batch = _engine.engine(), answer["batch"]
    try:
        capsules = iter(e.capsules(batch) if batch else ())
    finally:
        if batch:
            e.arrived(batch)
    out: dict[str, Any] = {}
    for d in answer["entries"]:
        if d.get("text"):
            v = d.get("values") or []
            out[d["key"]] = [json.loads(s) for s in v] if parsed and d["dtype"] == "json" else v
        elif torch is None:
            out[d["key"]] = array(next(capsules), d["dtype"], tuple(d["shape"]))
        else:
            out[d["key"]] = converter(torch)(next(capsules))
    return out
