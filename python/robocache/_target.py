"""Target is the device on which the batches of a Loader arrive."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from . import _memory, _checks, options
from ._errors import Misuse, Unsupported
from ._checks import is_integer


@dataclass
class Target:
    """The device on which batches arrive.

    Attributes:
        name: The name of the device.
        pin: The caller's choice of page-locked memory; None for the default.
        device: The torch.device, or None for the host.
        config: The part of the engine's configuration that depends on the device.
        kernels: The arguments of the kernels that complete raw batches.
    """

    name: str
    pin: bool | None
    device: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    kernels: dict[str, Any] = field(default_factory=dict)


def _describe_target(name: str, pin: bool | None) -> str:
    """Returns a device and the choice of page-locked memory as text for messages."""
    return f"device={name!r}" if pin is None else f"device={name!r}, pin_memory={pin}"


def _refuse_cuda_options(where: options.Device, decode: str | None) -> None:
    """Raises Misuse if options of a CUDA device are given for another device."""
    given: dict[str, Any] = {}
    if decode not in (None, "cpu"):
        given["decode"] = decode
    if where.memory_budget is not None:
        given["memory_budget"] = where.memory_budget
    for name, value in given.items():  # The first option is reported; the hint has all.
        fields = ", ".join(
            f"{k}={json.dumps(v, default=int)}" for k, v in {"decode": "gpu", **given}.items()
        )
        raise Misuse(
            f"Device.{name}={value!r} with device={str(where.name)!r}",
            hint=f'device=robocache.Device("cuda", {fields}) decodes and keeps images on the GPU',
        )


def find_target(where: options.Device, decode: str | None) -> Target:
    """Returns the device that device= names.

    Raises Misuse or Unsupported if it is not available.

    Args:
        where: device= of the caller.
        decode: Where images are decoded, as the caller chose it; None: the default.
    """
    pin = (
        None
        if where.pin_memory is None
        else _checks.check_flag("Device.pin_memory", where.pin_memory)
    )
    name = int(where.name) if is_integer(where.name) else where.name
    target = Target(str(name), pin)
    if target.name == "cpu" and not pin:
        _refuse_cuda_options(where, decode)
        return target
    torch = _memory.torch_module()
    if torch is None:
        if isinstance(name, str) and not name.startswith("cuda"):
            _refuse_cuda_options(where, decode)
        what = _describe_target(target.name, pin)
        raise Unsupported(f"{what}: torch is not installed", hint="pip install torch")
    try:
        d = torch.device(name)
    except (RuntimeError, TypeError, ValueError):
        raise Misuse(
            f"device={name!r}: torch knows no such device", hint='use "cpu", "cuda" or "cuda:1"'
        ) from None
    target.name = str(d)
    what = _describe_target(target.name, pin)
    if d.type != "cuda":
        _refuse_cuda_options(where, decode)
    if d.type not in ("cpu", "cuda"):
        raise Unsupported(f"{what}: batches go to CPU or CUDA", hint="move the batch yourself")
    if d.type == "cpu" and not pin:
        return target
    if not torch.cuda.is_available():
        raise Unsupported(
            f"{what}: torch finds no CUDA device", hint='use device="cpu", without pin_memory'
        )
    if d.index is not None and d.index >= torch.cuda.device_count():
        raise Unsupported(f"{what}: torch finds {torch.cuda.device_count()} CUDA devices")
    index = torch.cuda.current_device() if d.index is None else d.index
    if d.type == "cuda":
        target.config.update(decode_device=index, raw=True)
        target.device = torch.device("cuda", index)
        target.kernels = {"backend": "cuda", "device": index}
    if pin is not False:
        target.config.update(pin_memory=True, pin_device=index)
    return target
