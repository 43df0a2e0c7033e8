"""The option values of a call, by the engine's names, and the short forms of cache= and device=."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import options
from ._errors import Misuse
from ._checks import parse_bytes, is_integer
from .options import Cache, Device

if TYPE_CHECKING:
    from .dataset import Dataset


class OptionValues(dict[str, Any]):
    """Option values by the engine's names, without those that are None.

    Attributes:
        labels: How messages name the options of groups, such as "Windows.rows". The keys are
            the engine's names.
    """

    def __init__(self, plain: Mapping[str, Any], groups: Mapping[str, Any]) -> None:
        super().__init__((k, v) for k, v in plain.items() if v is not None)
        self.labels: dict[str, str] = {}
        for keyword, group in groups.items():
            if group is not None:
                self._add_group(keyword, group)

    def _add_group(self, keyword: str, group: Any) -> None:
        """Adds the fields of a group that are set. Raises Misuse if an option was already set.

        The engine has a group of options.NESTED as one option, whose value is a dict.
        """
        fields = {f.name: getattr(group, f.name) for f in dataclasses.fields(group)}
        fields = {k: v for k, v in fields.items() if v is not None}
        if keyword in options.NESTED:
            nested = self[keyword] = OptionValues(fields, {})
            nested.labels = {k: f"{type(group).__name__}.{k}" for k in fields}
            return
        for field, value in fields.items():
            name = options.engine_name(keyword, field)
            if name in self:
                raise Misuse(f"{name}= and {options.spelled(keyword, field)}: expected one of them")
            self[name] = value
            self.labels[name] = f"{type(group).__name__}.{field}"

    def pop_group(self, keyword: str) -> dict[str, Any]:
        """Removes the options of a group and returns them."""
        names = [
            options.engine_name(keyword, f.name)
            for f in dataclasses.fields(options.GROUPS[keyword])
        ]
        return {k: self.pop(k) for k in names if k in self}

    def refuse_unknown(self, known: Iterable[str], owner: str, hint: str) -> None:
        """Raises Misuse if an option that came from a group is not in known.

        Options that were given as plain keywords are not checked.

        Args:
            known: The engine's names of the options that the owner accepts.
            owner: The class or function that received the options, for the message.
            hint: The hint of the error.
        """
        for name, label in self.labels.items():
            if name in self and name not in known:
                raise Misuse(f"{label} is not for robocache.{owner}", hint=hint)


def derive_streams(
    dataset: Dataset,
    derive: Any,
    given: Mapping[str, Any],
    inherited: Mapping[str, Any] | None = None,
) -> Dataset:
    """Returns a dataset with the streams of derive=, for the episodes that options choose."""
    from ._derive import derived_dataset  # No loader without derive= needs it.

    inherited = inherited or {}
    cache_location = given.get("cache")
    keeps_files = cache_location is not None and cache_location not in ("ram", "device")
    return derived_dataset(
        dataset,
        derive,
        episodes=given.get("episodes", inherited.get("episodes")),
        split=given.get("split", inherited.get("split")),
        folder=os.fspath(cache_location) if keeps_files else None,
        skip_bad=given.get("on_bad_episode") == "skip",
        budget=parse_bytes("memory_budget", given.get("memory_budget", "4GiB")) // 8,
    )


def as_cache(v: Any) -> Cache | None:
    """Returns cache= as a Cache; a number is the budget of a cache in RAM."""
    if isinstance(v, Cache) or v is None or v is False:
        return v or None
    return Cache("ram", budget=int(v)) if is_integer(v) else Cache(v)


def refuse_size_as_path(where: Any) -> None:
    """Raises Misuse if the location of a cache is a size such as "8GiB".

    Text with a path separator is a directory.
    """
    if not isinstance(where, str) or "/" in where or os.sep in where:
        return
    try:
        parse_bytes("cache", where)
    except Misuse:
        return
    raise Misuse(
        f"cache={where!r}: expected a place, found a number of bytes",
        hint=f'robocache.Cache("ram", budget="{where}"); a directory of that name is "./{where}"',
    )


def as_device(v: Any) -> Device:
    """Returns device= as a Device. Raises Misuse if it does not name a device."""
    device = v if isinstance(v, Device) else Device(v)
    torch = sys.modules.get("torch")  # A torch.device exists only if torch has been imported.
    if isinstance(device.name, str) or is_integer(device.name):
        return device
    if torch is not None and isinstance(device.name, torch.device):
        return device
    label = "device" if device is not v else "Device.name"
    raise Misuse(
        f"{label}={device.name!r}: expected 'cpu', 'cuda', 'cuda:1', a number or a torch.device",
        hint='device="cuda", or device=robocache.Device("cuda", …)',
    )
