"""Opens the sources of a Loader: one dataset, or those of a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _config
from ._errors import Error, Misuse, Unsupported
from ._feature import Features
from ._option_values import OptionValues, derive_streams
from .dataset import Dataset, as_dataset
from .mapdataset import MapDataset
from .mix import Mix
from .normalizer import Normalizer


@dataclass
class Sources:
    """The open sources of a Loader.

    Attributes:
        mix: The sources of a mixture; None for one dataset.
        datasets: The dataset of each source.
        features: The streams of all sources by key.
        inherited: The options of a MapDataset that was given as the source.
    """

    mix: list[Mix] | None
    datasets: list[Dataset]
    features: Features
    inherited: dict[str, Any] = field(default_factory=dict)


def _open_source(position: int, source: Any) -> Mix:
    """Returns a source of a mixture as an open Mix. An error names its position."""
    try:
        mix = source if isinstance(source, Mix) else Mix(source)
        mix.dataset  # Raises the error of a path that could not be opened.
    except Error as e:
        name = source.name if isinstance(source, Mix) else None
        raise e.within({"source": position, **({} if name is None else {"name": name})}) from None
    return mix


def open_sources(source: Any, how: dict[str, Any], derive: Any, given: OptionValues) -> Sources:
    """Opens the source of a Loader.

    Args:
        source: The first argument of Loader.
        how: The options for opening a path.
        derive: The functions of derived streams, or None.
        given: The options of the Loader.
    """
    if derive is not None and isinstance(source, (list, tuple, Mix)):
        raise Misuse("derive= of a mixture", hint="give it to each robocache.Mix")
    if isinstance(source, (list, tuple)):
        if not source:
            raise Misuse("a mixture of no datasets")
        return _mixture_sources([_open_source(i, s) for i, s in enumerate(source)], how)
    if isinstance(source, Mix):
        return _mixture_sources([_open_source(0, source)], how)
    inherited: dict[str, Any] = {}
    if isinstance(source, MapDataset):
        if getattr(source, "image_transforms", None) is not None:
            raise Unsupported(
                "image_transforms are Python code, and a Loader runs none per sample",
                hint="apply them to the batch, on its device",
            )
        inherited = dict(source._config)
        source = source.dataset
    dataset = as_dataset(source, how)
    if "follow" in given and dataset is not source:
        dataset._args["growing"] = True  # Its recorder may be at work.
    if derive is not None:
        dataset = derive_streams(dataset, derive, given, inherited)
    return Sources(None, [dataset], dataset.features, inherited)


def _mixture_sources(mix: list[Mix], how: dict[str, Any]) -> Sources:
    """Returns the sources of a mixture. Raises Misuse if only some have a weight."""
    if how:
        raise Misuse("open= of a mixture", hint="give it to each robocache.Mix")
    weighted = sum(m.weight is not None for m in mix)
    if weighted not in (0, len(mix)):
        raise Misuse(
            f"{weighted} of {len(mix)} sources have a weight",
            hint="give every Mix a weight=, or none: then shares go by size",
        )
    features = Features()
    for m in mix:
        features.update((k, f) for k, f in m.features.items() if k not in features)
    features.withheld = {
        k: why for m in mix for k, why in m.features.withheld.items() if k not in features
    }
    return Sources(mix, [m.dataset for m in mix], features)


def share_normalizer(mix: list[Mix], v: Any) -> Any:
    """Gives each source its part of another mixture's normalizer, and returns the common part."""
    n = v if isinstance(v, (str, Mapping)) else getattr(v, "normalizer", v)
    if not isinstance(n, Normalizer) or not n.sources:
        return v
    if len(n.sources) != len(mix):
        raise Misuse(
            f"normalize: the normalizer of {len(n.sources)} sources for a mixture of {len(mix)}",
            hint="give each Mix its own: normalize=normalizer[name]",
        )
    for i, m in enumerate(mix):
        part = n[m.name if m.name in n.sources else i]
        m._config.setdefault(
            "normalize", _config.SAMPLE["normalize"]("normalize", part, m.features)
        )
        _config.drop_unselected_normalizers(m._config)
    return None
