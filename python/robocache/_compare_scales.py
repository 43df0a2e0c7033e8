"""Compares the normalization of loaders over parts of one dataset, and warns about differences."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset import Dataset

_MAX_DATASETS = 256  # The most datasets that are remembered.

# {URI of the dataset: {key: (part, normalization)}} of the first loader that normalized the key.
# A part is the text of _describe_part.
_seen: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {}
_warned: set[tuple[str, str]] = set()


def warn_if_scales_differ(
    datasets: Sequence[Dataset],
    configs: Sequence[Mapping[str, Any]],
    normalizers: Sequence[Mapping[str, Any]],
) -> None:
    """Warns about keys that another part of the same dataset normalizes with different numbers.

    Compares the loaders that were created in this process.
    """
    for ds, config, normalizer in zip(datasets, configs, normalizers):
        part = _describe_part(ds, config)
        before = _seen.setdefault(ds.uri, {})
        own_keys = {to: own for own, to in config.get("rename", {}).items()}
        differing = []
        for key, one in normalizer["keys"].items():
            name = own_keys.get(key, key)
            other_part, other = before.setdefault(name, (part, one))
            if (
                other_part != part
                and other["mode"] == one["mode"]
                and (other["shift"], other["scale"]) != (one["shift"], one["scale"])
            ):
                differing.append((key, other, one))
        while len(_seen) > _MAX_DATASETS:
            del _seen[next(iter(_seen))]
        if differing and (ds.uri, part) not in _warned:
            _warned.add((ds.uri, part))
            key, other, one = differing[0]
            numbers = zip(zip(one["shift"], one["scale"]), zip(other["shift"], other["scale"]))
            i = next((i for i, (a, b) in enumerate(numbers) if a != b), 0)
            warnings.warn(
                f"normalize: {ds.uri!r}: this part has other numbers than another part for "
                f"{', '.join(repr(k) for k, _, _ in differing)} "
                f"({key}[{i}]: shift {one['shift'][i]:g} and scale {one['scale'][i]:g} here, "
                f"{other['shift'][i]:g} and {other['scale'][i]:g} there). "
                "Pass normalize=train.normalizer to the loader that validates",
                UserWarning,
                stacklevel=2,
            )


def _describe_part(ds: Dataset, config: Mapping[str, Any]) -> str:
    """Returns text that identifies the episodes that a loader reads from a dataset."""
    chosen = {k: config[k] for k in ("split", "episodes") if config.get(k) is not None}
    return repr((ds._args.get("split"), ds._args.get("episodes"), sorted(chosen.items())))
