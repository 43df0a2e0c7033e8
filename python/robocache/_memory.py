"""Arrays and tensors over the engine's memory, without a copy.

The memory is freed when the last array, tensor, view or slice over it is garbage collected. The
engine describes tensors as DLPack. One call makes the capsules of all tensors of a batch, and no
signal handler interrupts it. A capsule frees its memory with a C function. This also works in a
forked child, because the function does not enter the engine.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _engine
from ._errors import Unsupported

_torch: Any = None
_import_tried = False

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def torch_module() -> Any:
    """Returns torch, imported at the first call, or None if it is not installed."""
    global _torch, _import_tried
    if not _import_tried:
        try:
            import torch
        except ImportError:
            pass
        else:
            _torch = torch
        _import_tried = True
    return _torch


def torch_release(torch: Any) -> tuple[int, int]:
    """Returns the first two numbers of torch's version."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def require_torch(user: str) -> None:
    """Raises Unsupported unless torch 2.1 or later is installed."""
    torch = torch_module()
    if torch is None or torch_release(torch) < (2, 1):
        found = "is not installed" if torch is None else f"is {torch.__version__}"
        raise Unsupported(
            f"{user}: torch {found}",
            hint="it needs Python 3.10 and torch 2.1 or later: pip install 'torch>=2.1'",
        )


def dlpack_converter(torch: Any) -> Any:
    """Returns the function of torch that makes a tensor from a DLPack capsule."""
    convert = getattr(torch._C, "_from_dlpack", None) or torch.utils.dlpack.from_dlpack
    return convert if torch_release(torch) >= (2, 3) else _BoolAsBytes(torch, convert)


class _BoolAsBytes:
    """Makes tensors from DLPack capsules with a version of torch that rejects bool.

    A bool tensor is received as uint8 and viewed as bool.
    """

    def __init__(self, torch: Any, convert: Any) -> None:
        self._bool, self._convert = torch.bool, convert

    def __call__(self, capsule: Any) -> Any:
        """Returns the tensor of a capsule."""
        # data, device and ndim take 20 bytes of a DLTensor. The code of the dtype follows.
        code = ctypes.c_uint8.from_address(_capsule_pointer(capsule, b"dltensor") + 20)
        if code.value != 6:  # kDLBool
            return self._convert(capsule)
        code.value = 1  # kDLUInt
        return self._convert(capsule).view(self._bool)


class _ArrayInterface:
    """Describes the memory of a tensor to NumPy.

    NumPy keeps the object as the base of the array. So the capsule, which owns the memory, lives as
    long as the array.
    """

    __slots__ = ("__array_interface__", "capsule")

    def __init__(self, capsule: Any, typestr: str, shape: tuple[int, ...]) -> None:
        self.capsule = capsule
        # DLManagedTensor begins with the address of the data.
        data = ctypes.c_void_p.from_address(_capsule_pointer(capsule, b"dltensor")).value or 0
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


def capsule_to_array(capsule: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns a capsule as an array. NumPy has no bfloat16, so its bits are returned as uint16."""
    return np.asarray(_ArrayInterface(capsule, _TYPESTR[dtype], shape))


def first_extent(capsule: Any) -> int:
    """Returns the first extent of a tensor, read from its DLTensor.

    data, device, ndim and dtype take 24 bytes. The address of the shape follows.
    """
    shape = ctypes.c_void_p.from_address(_capsule_pointer(capsule, b"dltensor") + 24).value
    return ctypes.c_int64.from_address(shape).value  # type: ignore[arg-type]


def batch_values(
    answer: Mapping[str, Any], torch: Any = None, parsed: bool = False
) -> dict[str, Any]:
    """Returns the batch of an answer as arrays and lists of text, in the order of the answer.

    Args:
        answer: The answer of the engine.
        torch: The torch module, to return tensors. Default None: NumPy arrays.
        parsed: Whether to parse JSON texts. Default False.
    """
    e = _engine.current_engine()
    batch = answer["batch"]
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
            out[d["key"]] = capsule_to_array(next(capsules), d["dtype"], tuple(d["shape"]))
        else:
            out[d["key"]] = dlpack_converter(torch)(next(capsules))
    return out
