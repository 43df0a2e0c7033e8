"""MapDataset: samples by number, for torch.utils.data.DataLoader or a loop of one's own."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _config, _engine, _given, _keywords, _memory, _options, _scales, _statistics
from ._errors import Malformed, Misuse
from ._feature import Features
from .dataset import Dataset, opened
from .normalizer import Normalizer, again

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import SampleGroups

    _Base = object
else:
    try:  # to be an instance of what training frameworks check for
        from torch.utils.data import Dataset as _Base
    except ImportError:
        _Base = object

__all__ = ["MapDataset"]


def delivered(features: Features, fields: Iterable[Mapping[str, Any]]) -> Features:
    """The features with the units in which items or batches have them."""
    units = {f["key"]: f.get("unit", "") for f in fields}
    out = Features((k, replace(f, unit=units.get(k, f.unit))) for k, f in features.items())
    out.withheld = features.withheld
    return out


def _rows(v: Any, torch: Any) -> Sequence[Any]:
    """The rows of a batch, without a copy; in NumPy a row without axes stays an array."""
    return v.unbind(0) if torch is not None else [v[i, ...] for i in range(len(v))]


def _entries(v: Any, lengths: Any) -> list[Any]:
    """Each sample's own part of a ragged column, without a copy."""
    n = lengths.reshape(len(lengths), -1).sum(1).tolist()
    ends = list(itertools.accumulate(n))
    return [v[end - k : end] for k, end in zip(n, ends)]


class MapDataset(_Base):
    """Samples by number: len, [i], [a:b], negative indices, and __getitems__, which decodes a whole batch at once.

    Works in a DataLoader under fork, forkserver and spawn, also after this process has used it.
    Items are dicts of torch tensors (NumPy arrays without torch); text is str. Images are (C, H,
    W), windows (T, ...).

    Args:
        source: A path or URI, or an open Dataset.
        episodes: Indices (Dataset.episode_indices), in place of a split. The samples come in file
            order.
        delta_timestamps: {key: [seconds, ...]}, windows with `<key>_is_pad`, by lerobot's rules;
            with several clocks in time, by the align rule. Seconds may be text with a unit, as
            "50ms". A number beyond a day is Misuse, because it is likely to be nanoseconds.
        hz: Samples lie on a uniform timeline of this rate, in Hz. Default: the dataset's rows.
        keys: The streams of a sample; others are not read. Default: all. "episode_id", if named, is
            the index of the sample's episode, as text; "index", "episode_index" and "frame_index"
            are LeRobot's columns, and are made if the dataset has none.
        image_size: (height, width) in pixels, to which images come while they are decoded. Default:
            as recorded.
        normalize: As of Loader; `normalizer` does and undoes it elsewhere. Default: none.
        split: The episodes of one split. Default "train" (or "training") if the dataset names one,
            which is logged; "all": all of them.
        threads: Threads for one batch. Default: the cores.
        memory_budget: Bytes, or "4GiB", for decoders, tables and a batch.
        windows: A robocache.Windows, all fields but dtype.
        align: A robocache.Align: how streams come onto one timeline.
        images: A robocache.Images.
        order: A robocache.Order, of which on_bad_episode and on_nan apply. With
            on_bad_episode="skip" the samples leave out the files that opening could not read; an
            episode that fails later is an error of the item.
        statistics: A robocache.Statistics: those that normalize= takes.
        open: A robocache.Open: how a path is opened.

    Raises:
        Misuse: an option is unknown or out of range; .hint names the nearest.
        NotFound, Malformed, Unsupported: the source, or an episode of it; .where says which.

    Example:
        robocache.MapDataset("path", delta_timestamps={"action": [0, 0.1]})[7]
    """

    _told: tuple[int, list[Any]] | None = None
    _settled: dict[str, Any] | None = None  # the configuration that makes it again

    @_keywords.grouped("windows", "align", "images", "order", "statistics", "open")
    def __init__(
        self,
        source: Any,
        *,
        episodes: Iterable[int] | None = None,
        delta_timestamps: Mapping[str, Sequence[float | str]] | None = None,
        hz: Any = None,
        keys: Iterable[str] | None = None,
        image_size: Sequence[int] | None = None,
        normalize: Any = None,
        split: str | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        **groups: Unpack[SampleGroups],
    ) -> None:
        plain = {
            "episodes": episodes,
            "delta_timestamps": delta_timestamps,
            "hz": hz,
            "keys": keys,
            "image_size": image_size,
            "normalize": normalize,
            "split": split,
            "threads": threads,
            "memory_budget": memory_budget,
        }
        given = _given.Given(plain, groups)
        self.dataset: Dataset = opened(source, given.pop_group("open"))
        given.refuse_unknown(
            [*_config.SAMPLE, "stats", "compute_stats"], "MapDataset", "robocache.Loader takes it"
        )
        self._config = _config.sample(self.dataset.features, given)
        _config.normalize_selected(self._config)
        _statistics.refuse_unused(self._config)
        self._start()

    @classmethod
    def _configured(cls, dataset: Dataset, config: dict[str, Any]) -> MapDataset:
        """Opens one from options that were checked already."""
        made = cls.__new__(cls)
        made.dataset, made._config = dataset, config
        made._start()
        return made

    def _start(self) -> None:
        self._map = _engine.Handle(self._make)
        self._map.open()

    def _make(self) -> tuple[int, Any]:
        answer = self.dataset._handle.call("robocache_map_new", self._settled or self._config)
        if self._told is None:
            _options.note(answer)
            _scales.compare([self.dataset], [self._config], answer["normalizers"])
        told = (answer["len"], answer["fields"])
        # Opened again in another process: a camera whose files are gone by now must not drop out of
        # the items silently.
        if self._told is not None and self._told != told:
            raise Malformed(
                "the dataset has changed since it was first opened",
                {"dataset": self.dataset.uri},
                "make the MapDataset again",
            )
        self._told = told
        self._settled = again(self._config, answer["settled"][0])
        return answer["map"], answer

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_map"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map = _engine.Handle(self._make)  # opened at the first item

    @property
    def keys(self) -> list[str]:
        """The keys of an item, in its order."""
        return [f["key"] for f in self._map.open().info["fields"]]

    @property
    def features(self) -> Features:
        """The dataset's streams by key; the unit of those of an item is the one in which they come."""
        return delivered(self.dataset.features, self._map.open().info["fields"])

    @property
    def fps(self) -> Any:
        return self.dataset.fps

    @property
    def normalizer(self) -> Normalizer:
        """What normalize= does, to be done and undone elsewhere; it needs no dataset."""
        return Normalizer.of(self._map.open().info["normalizers"])

    def __len__(self) -> int:
        return self._map.open().info["len"]

    def _index(self, i: Any) -> int:
        try:
            k = operator.index(i)
        except TypeError:
            raise Misuse(f"index {i!r}: expected an integer or a slice") from None
        n = len(self)
        if not -n <= k < n:
            raise IndexError(f"index {k} of a dataset of {n} samples")
        return k % n

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.__getitems__(list(range(*i.indices(len(self)))))
        return self._items([self._index(i)])[0]

    def __getitems__(self, indices: Sequence[Any]) -> list[dict[str, Any]]:
        """Several items at once: each image is decoded once, however many windows hold it."""
        wanted = [self._index(i) for i in indices]
        return self._items(wanted) if wanted else []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def batch(self, indices: Sequence[Any]) -> dict[str, Any]:
        """Several items stacked: one tensor a key, as a Loader's batch."""
        return _memory.values(
            self._map.call("robocache_map_items", {"indices": [self._index(i) for i in indices]}),
            _memory.torch_module(),
            True,
        )

    def _items(self, indices: list[int]) -> list[dict[str, Any]]:
        torch = _memory.torch_module()
        columns = _memory.values(
            self._map.call("robocache_map_items", {"indices": indices}), torch, True
        )
        ragged = [f["key"] for f in self._map.open().info["fields"] if f.get("ragged")]
        lengths = {
            k: columns[(k if k + "_lengths" in columns else k.removesuffix("_times")) + "_lengths"]
            for k in ragged
        }
        rows = {
            k: v
            if isinstance(v, list)
            else _entries(v, lengths[k])
            if k in ragged
            else _rows(v, torch)
            for k, v in columns.items()
        }
        return [{k: v[i] for k, v in rows.items()} for i in range(len(indices))]

    def close(self) -> None:
        """Gives decoders and indexes back. Items that were taken stay valid."""
        self._map.close()

    def __repr__(self) -> str:
        return f"<robocache.{type(self).__name__} of {self.dataset.uri!r}>"
