"""MapDataset: samples by number, for torch.utils.data.DataLoader or a loop of one's own."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _config, _engine, _keywords, _memory, _options, _scales
from ._errors import Malformed, Misuse
from ._feature import Features
from .dataset import Dataset, opened
from .normalizer import Normalizer, again

if TYPE_CHECKING:
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

    source: a path or URI, or an open Dataset.
    split: the episodes of one split; default "train" (or "training") where the dataset names one, which is logged; "all": all of them.
    episodes: indices (Dataset.episode_indices), in place of a split; the samples come in file order. keys: the streams that a sample holds (others are not read); "episode_id", where it is
        named, is the index of the sample's episode, as text; "index", "episode_index" and "frame_index" are LeRobot's columns, and are made where a dataset has none (index: the number
        of the row among those of all episodes; with hz or anchor= that of the sample, as locate takes it).
    delta_timestamps: {key: [seconds, …]}, windows with `<key>_is_pad`, by lerobot's rules; with several clocks in time, by the align rule.
    delta_indices: {key: [rows, …]}, the same windows in rows from the sample: no rate is needed. They are for streams on the samples' rows (the
        dataset's own, or anchor='s); with hz rows of the timeline.
    windows: {key: window} at a stream's own rate, in seconds. A list of offsets: the samples there (images and point clouds the nearest,
        everything else the previous, unless align= chooses a mode), with `<key>_is_pad`. A tuple (from, to): all samples timestamped from there to
        there, both ends included: an item has (N, …), a batch (ΣN, …) and `<key>_lengths`; `<key>_times` are their times, int64 ns after the sample's.
        Images and rows of varying length (clouds) of such a span lie in K positions, (B, K, …), as many as the fullest span of the selected
        episodes needs, filled from the first; `<key>_is_pad` and `<key>_times` are (B, K), `<key>_lengths` (B,) counts the images; clouds stay
        one after the other, and their `<key>_lengths` (B, K) counts the points in each position. A tuple (from, to, count): so many times
        evenly from end to end, by the align rule (floats linear), with `<key>_is_pad`.
    hz, align: samples on a uniform timeline; align takes the keywords of Episode.align, and dtypes: {key: "float32" …} to cast to.
    anchor: of a dataset with several clocks, the stream whose rows are the samples (default the dataset's own rows). Streams on other clocks
        are brought to its timestamps by their align rules, with `<key>_is_pad`.
    image_dtype: "uint8" or "float32" in [0, 1]. image_size: (height, width), to which images come while they are decoded; image_resize: how, where their
        shape is another: "stretch" (default), "letterbox" (the whole image by one factor, in the middle, the rest zeros) or "crop" (by one factor
        so that it covers, its middle). depth_unit: depth in "mm" (default: what the dataset was opened
        with, else "mm") or "m": as stored, to the bit, where it is kept in that unit as uint16 or float32; else, and of coded video, float32.
        features[key].unit says the unit.
    tolerance_s: where given, offsets and image times are checked against it; frames are found by their number in any case.
        Seconds may be text with a unit, as "50ms", here and in windows. A number beyond a day is refused,
        because it is likely to be nanoseconds.
    normalize, stats: as of Loader; `normalizer` does and undoes it.
    format, map, options, rows_hz, follow_links: how a path is opened, as robocache.open takes them.
    threads: for one batch; default the cores. memory_budget: bytes, or "4GiB", for decoders, tables and a batch.
    on_bad_episode: files that opening could not read are an "error" (Malformed, by name), or the samples leave them out ("skip"). What is met later is
        an error of the item that wants it.
    on_nan, missing: as of Loader.

    Works in a DataLoader under fork, forkserver and spawn, also after this process has used it. Items are dicts of torch tensors
    (NumPy arrays without torch); text is str. Images are (C, H, W), windows (T, …).
    """

    _told: tuple[int, list[Any]] | None = None
    _settled: dict[str, Any] | None = None  # the configuration that makes it again

    @_keywords.checked
    def __init__(
        self, source: Any, episodes: Iterable[int] | None = None, delta_timestamps: Mapping[str, Sequence[float | str]] | None = None, hz: Any = None,
        align: Mapping[str, Any] | None = None, keys: Iterable[str] | None = None, image_dtype: str = "uint8", image_size: Sequence[int] | None = None,
        tolerance_s: float | str | None = None, *, threads: int | None = None, memory_budget: int | str | None = None, format: str | None = None, rows_hz: Any = None,
        map: Any = None, options: Mapping[str, Any] | None = None, split: str | None = None, follow_links: bool | None = None,
        delta_indices: Mapping[str, Sequence[int]] | None = None, windows: Mapping[str, Any] | None = None, anchor: str | None = None,
        depth_unit: str | None = None, image_resize: str | None = None, normalize: Any = None, stats: Any = None, on_bad_episode: str = "error",
        on_nan: str | None = None, missing: str | None = None,
    ) -> None:  # fmt: skip
        self.dataset: Dataset = opened(source, format=format, rows_hz=rows_hz, map=map, options=options, follow_links=follow_links)
        self._config = _config.sample(self.dataset.features, locals())
        _config.normalize_selected(self._config)
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
        # Opened again in another process: a camera whose files are gone by now must not drop out of the items silently.
        if self._told is not None and self._told != told:
            raise Malformed("the dataset has changed since it was first opened", {"dataset": self.dataset.uri}, "make the MapDataset again")
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
        return _memory.values(self._map.call("robocache_map_items", {"indices": [self._index(i) for i in indices]}), _memory.torch_module(), True)

    def _items(self, indices: list[int]) -> list[dict[str, Any]]:
        torch = _memory.torch_module()
        columns = _memory.values(self._map.call("robocache_map_items", {"indices": indices}), torch, True)
        ragged = [f["key"] for f in self._map.open().info["fields"] if f.get("ragged")]
        lengths = {k: columns[(k if k + "_lengths" in columns else k.removesuffix("_times")) + "_lengths"] for k in ragged}
        rows = {k: v if isinstance(v, list) else _entries(v, lengths[k]) if k in ragged else _rows(v, torch) for k, v in columns.items()}
        return [{k: v[i] for k, v in rows.items()} for i in range(len(indices))]

    def close(self) -> None:
        """Gives decoders and indexes back. Items that were taken stay valid."""
        self._map.close()

    def __repr__(self) -> str:
        return f"<robocache.{type(self).__name__} of {self.dataset.uri!r}>"
