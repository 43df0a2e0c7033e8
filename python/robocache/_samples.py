"""Samples is the dataset of a Loader with a length in samples, as frameworks expect it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import _config
from .dataset import Dataset
from .mapdataset import MapDataset

_ITEM = frozenset(
    {
        *_config.SAMPLE,
        "stats",
        "compute_stats",
        "dtype",
    }
) - {"augment"}


class Samples(Dataset):
    """A Dataset whose length and items are samples.

    len() is the number of samples of the Loader's epoch, over all ranks: training code divides by
    len(loader.dataset) to average over samples. [i] is sample i as Loader.order numbers it, without
    augmentation. episode(i) and `episodes` return episodes.
    """

    def __init__(
        self, dataset: Dataset, config: Mapping[str, Any], count: Callable[[], int]
    ) -> None:
        self.__dict__.update(dataset.__dict__)
        self._count = count
        self._item_config = {k: v for k, v in config.items() if k in _ITEM}
        if "vectors" in config:  # Items have no random draws.
            vectors = config["vectors"]
            self._item_config["vectors"] = {k: {**v, "dropout": 0} for k, v in vectors.items()}
        self._items: MapDataset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "items": self._item_config, "length": len(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        length = state["length"]
        self._count = lambda: length
        self._item_config = state["items"]
        self._items = None

    def __len__(self) -> int:
        return self._count()

    def _opened_items(self) -> MapDataset:
        """Returns the MapDataset of the samples, created at the first call."""
        if self._items is None:
            self._items = MapDataset._configured(self, self._item_config)
        return self._items

    def __getitem__(self, i: Any) -> Any:
        return self._opened_items()[i if isinstance(i, slice) else operator.index(i)]

    def __getitems__(self, indices: Any) -> list[dict[str, Any]]:
        return self._opened_items().__getitems__(indices)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<the {len(self)} samples of {super().__repr__()}>"
