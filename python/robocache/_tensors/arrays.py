"""The inputs of operations as address, dtype, shape and strides.

Inputs are NumPy arrays, torch tensors and objects that support DLPack. The module uses torch only
if the process has imported it, and never imports it for a NumPy array.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._errors import Misuse, Unsupported

__all__ = ["HOST", "View", "imported_torch", "is_tensor", "view", "view_like", "writable_view"]

HOST = -1  # The device number of host memory, as Tensor.get_device() returns it.


def imported_torch() -> Any:
    """Returns torch if the process has imported it, else None."""
    return sys.modules.get("torch")


def is_tensor(x: Any) -> bool:
    """Reports whether x is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, getattr(torch, "Tensor", ()))


class View:
    """A strided view of memory.

    Attributes:
        name: The name of the argument in messages.
        array: The array or tensor, which keeps the memory alive.
        addr: The address of the first element.
    """

    __slots__ = ("name", "array", "dtype", "shape", "stride", "addr", "device", "tensor")

    def __init__(
        self,
        name: str,
        array: Any,
        dtype: str,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        addr: int,
        device: int,
        tensor: bool,
    ) -> None:
        self.name: str = name
        self.array: Any = array
        self.dtype: str = dtype  # The name of the dtype in NumPy.
        self.shape: tuple[int, ...] = shape
        self.stride: tuple[int, ...] = stride  # In elements.
        self.addr: int = addr
        self.device: int = device  # HOST, or the number of a CUDA device.
        self.tensor: bool = tensor  # Whether the array is a torch tensor.

    def batched(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shape and strides with `rank` axes: [S] and [S, D] become [1, S, D].

        Leading axes have one entry. A missing channel axis has one channel.
        """
        shape, stride = self.shape, self.stride
        if len(shape) == 1 and rank > 1:
            shape, stride = (*shape, 1), (*stride, 1)
        while len(shape) < rank:
            shape, stride = (1, *shape), (0, *stride)
        return shape, stride

    def describe(self) -> dict[str, Any]:
        """Returns the engine's description of the memory."""
        return {"dtype": self.dtype, "shape": list(self.shape), "stride": list(self.stride)}


def view(name: str, x: Any) -> View:
    """Returns x as memory.

    Lists, tuples and numbers become NumPy arrays. DLPack arrays are not copied.
    """
    if isinstance(x, np.ndarray):
        return _numpy_view(name, x)
    if is_tensor(x):
        return _torch_view(name, x)
    if hasattr(x, "__dlpack__"):
        return _dlpack_view(name, x)
    try:
        a = np.asarray(x)
    except (TypeError, ValueError):
        a = None
    if a is None or a.dtype.kind not in "biuf":
        raise Misuse(
            f"{name}: expected an array or a tensor, found {type(x).__name__}", {"tensor": name}
        )
    return _numpy_view(name, a)


def writable_view(name: str, x: Any) -> View:
    """Returns x as memory to write to.

    Raises Misuse if x is not writable memory of the caller, or if it requires a gradient.
    """
    if not hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray):
        raise Misuse(
            f"{name}: expected an array or a tensor to write into, found {type(x).__name__}",
            {"tensor": name},
        )
    if is_tensor(x):
        torch = sys.modules["torch"]
        if x.is_neg():
            raise Misuse(
                f"{name}: a view that negates its memory cannot be written",
                {"tensor": name},
                "use .resolve_neg()",
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise Misuse(
                f"{name} requires a gradient, which writing into it would lose",
                {"tensor": name},
                f"use {name}.detach(), or torch.no_grad()",
            )
    v = view(name, x)
    if not v.tensor and not v.array.flags.writeable:
        raise Misuse(f"{name} is read-only", {"tensor": name})
    return v


def view_like(name: str, x: Any, like: View) -> View:
    """Returns x as memory; lists and numbers are moved to the device of like."""
    if like.tensor and not hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray):
        a = view(name, x).array
        torch = imported_torch()
        return _torch_view(name, torch.from_numpy(np.ascontiguousarray(a)).to(like.array.device))
    return view(name, x)


def _numpy_view(name: str, array: np.ndarray) -> View:
    """Returns a NumPy array as memory. Raises Misuse for unsupported dtypes and strides."""
    kind = array.dtype.kind
    if kind in "mM":  # timedelta64 and datetime64 become nanoseconds.
        array = array.astype(f"{kind}8[ns]", copy=False).view(np.int64)
    elif kind in "OSUT":
        raise Misuse(
            f"{name}: unsupported dtype {array.dtype}",
            {"tensor": name},
            "use an array of numbers or booleans",
        )
    elif kind == "c":
        raise Misuse(
            f"{name}: unsupported dtype {array.dtype}: complex numbers are not computed with",
            {"tensor": name},
            "use .real and .imag",
        )
    elif not array.dtype.isnative:
        raise Misuse(
            f"{name}: unsupported dtype {array.dtype.str}: bytes of the other order",
            {"tensor": name},
            "use .astype(a.dtype.newbyteorder('='))",
        )
    size = array.itemsize
    if size == 0 or any(s % size for s in array.strides):
        raise Misuse(
            f"{name}: strides of {array.strides} bytes are no multiples of the element's {size}",
            {"tensor": name},
            "use numpy.ascontiguousarray",
        )
    return View(
        name,
        array,
        array.dtype.name,
        array.shape,
        tuple(s // size for s in array.strides),
        array.__array_interface__["data"][0],
        HOST,
        False,
    )


def _torch_view(name: str, t: Any) -> View:
    """Returns a torch tensor as memory.

    Raises Misuse or Unsupported for layouts and devices that the kernels cannot use.
    """
    torch = sys.modules["torch"]
    problem = None
    if t.layout is not torch.strided:
        problem = f"a tensor of layout {t.layout}".replace("torch.", ""), "use .to_dense()"
    elif t.device.type == "meta":
        problem = "a meta tensor has no memory", "give it a device"
    elif t.is_quantized:
        problem = "a quantised tensor", "use .dequantize()"
    elif t.is_complex():
        problem = (
            f"unsupported dtype {_tensor_dtype(t)}: complex numbers are not computed with",
            "use .real and .imag",
        )
    if problem:
        raise Misuse(f"{name}: {problem[0]}", {"tensor": name}, problem[1])
    if t.is_neg():
        t = t.resolve_neg()
    if t.device.type not in ("cpu", "cuda"):
        raise Unsupported(
            f"{name}: a tensor on {t.device}: the kernels run on cpu and cuda",
            {"tensor": name},
            "use .cpu()",
        )
    if torch.is_grad_enabled() and t.requires_grad:
        t = t.detach()
    return View(
        name, t, _tensor_dtype(t), tuple(t.shape), t.stride(), t.data_ptr(), t.get_device(), True
    )


def _tensor_dtype(t: Any) -> str:
    """Returns the name of a tensor's dtype in NumPy."""
    return str(t.dtype).removeprefix("torch.")


def _dlpack_view(name: str, x: Any) -> View:
    """Returns an array of another library as memory.

    Host memory becomes a NumPy array. Device memory becomes a torch tensor, which shares the memory
    and waits for the stream of its library.
    """
    try:
        kind = int(x.__dlpack_device__()[0])
    except Exception as e:
        raise Misuse(f"{name}: its __dlpack_device__ failed: {e}", {"tensor": name}) from e
    try:
        if kind == 1:  # kDLCPU.
            try:
                return _numpy_view(name, np.from_dlpack(x))
            except (BufferError, RuntimeError, TypeError):
                # NumPy lacks some types, such as bfloat16. torch is tried if it was imported.
                if "torch" not in sys.modules:
                    raise
        if kind in (1, 2, 3, 13):  # kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged.
            try:
                import torch
            except ImportError:
                raise Unsupported(
                    f"{name}: memory of a CUDA device needs torch, which is not installed",
                    {"tensor": name},
                    "pip install torch",
                ) from None
            return _torch_view(name, torch.from_dlpack(x))
    except (BufferError, RuntimeError, TypeError) as e:
        if isinstance(e, (Misuse, Unsupported)):
            raise
        raise Misuse(f"{name}: its __dlpack__ failed: {e}", {"tensor": name}) from e
    raise Unsupported(
        f"{name}: memory of DLPack device {kind}: the kernels run on cpu and cuda",
        {"tensor": name},
        "copy it to the host",
    )
