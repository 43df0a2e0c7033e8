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

    Args:
        datasets: The dataset of each source of the loader.
        configs: The configuration of each source.
        normalizers: The engine's description of the normalization of each source.
    """
    for ds, config, normalizer in zip(datasets, configs, normalizers):
        part = _describe_part(ds, config)
        seen = _seen.setdefault(ds.uri, {})
        stored_keys = {to: own for own, to in config.get("rename", {}).items()}
        differing = []
        for key, one in normalizer["keys"].items():
            stored_key = stored_keys.get(key, key)
            other_part, other = seen.setdefault(stored_key, (part, one))
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
            i = next((i for i, (a, b) in enumerate(numbers) if a != b), 0)  # The column to show.
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
