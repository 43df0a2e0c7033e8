"""Target: where the batches of a Loader arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import _memory, _options, options
from ._errors import Misuse, Unsupported


@dataclass
class Target:
    """A place of batches.

    device is torch's device, None for the host. pin is the user's choice of page-locked memory.
    config is the part of the engine's configuration, and kernels are the arguments of the kernels
    that finish raw batches.
    """

    name: str
    pin: bool | None
    device: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    kernels: dict[str, Any] = field(default_factory=dict)


def find_target(where: options.Device, decode: str | None) -> Target:
    """Returns the place that device= names. Raises Misuse or Unsupported if it is absent."""
    pin = None if where.pin_memory is None else _options.flag("Device.pin_memory", where.pin_memory)
    target = Target(str(where.name), pin)
    if decode not in (None, "cpu") and not target.name.startswith("cuda"):
        raise Misuse(
            f"Device.decode={decode!r} with device={target.name!r}",
            hint=f'device=robocache.Device("cuda", decode={decode!r}) has the engines that decode',
        )
    if target.name == "cpu" and not pin:
        return target
    torch = _memory.torch_module()
    what = f"device={target.name!r}" if pin is None else f"device={target.name!r}, pin_memory={pin}"
    if torch is None:
        raise Unsupported(f"{what}: torch is not installed", hint="pip install torch")
    try:
        d = torch.device(where.name)
    except (RuntimeError, TypeError) as e:
        raise Misuse(f"device={where.name!r}: {e}") from None
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
