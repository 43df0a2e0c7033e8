"""MapDataset returns samples by number, for torch.utils.data.DataLoader or a custom loop."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import (
    _config,
    _engine,
    _option_values,
    _keywords,
    _memory,
    _checks,
    _compare_scales,
    _statistics,
)
from ._errors import Malformed, Misuse
from ._feature import Features
from .dataset import Dataset, as_dataset
from .normalizer import Normalizer, settled_config
from .vectors import Vector

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import SampleGroups

    _Base = object
else:
    try:  # Training frameworks check for an instance of torch's Dataset.
        from torch.utils.data import Dataset as _Base
    except ImportError:
        _Base = object

__all__ = ["MapDataset"]


def with_delivered_units(features: Features, fields: Iterable[Mapping[str, Any]]) -> Features:
    """Returns the features with the units that items or batches use."""
    units = {f["key"]: f.get("unit", "") for f in fields}
    out = Features((k, replace(f, unit=units.get(k, f.unit))) for k, f in features.items())
    out.withheld = features.withheld
    return out


def _split_rows(v: Any, torch: Any) -> Sequence[Any]:
    """Returns the rows of a batch without a copy. In NumPy, a scalar row stays an array."""
    return v.unbind(0) if torch is not None else [v[i, ...] for i in range(len(v))]


def _split_entries(v: Any, lengths: Any) -> list[Any]:
    """Returns the part of each sample in a ragged column, without a copy.

    Args:
        v: The values of all samples, one after the other.
        lengths: The number of values of each sample, or of each row of its window.
    """
    counts = lengths.reshape(len(lengths), -1).sum(1).tolist()
    ends = list(itertools.accumulate(counts))
    return [v[end - n : end] for n, end in zip(counts, ends)]


class MapDataset(_Base):
    """Returns samples by number: len(ds), ds[i], ds[a:b], with negative indices.

    __getitems__ decodes a whole batch at once. A MapDataset works in a DataLoader under fork,
    forkserver and spawn, also after this process has used it. Items are dicts of torch tensors
    (NumPy arrays without torch), and text is str. Images are (C, H, W), windows (T, ...).

    Args:
        source: A path or URI, or an open Dataset.
        episodes: Indices of episodes (Dataset.episode_indices), in place of a split. The samples
            are in the order of the files. Default None.
        delta_timestamps: {key: [seconds, ...]}, windows with `<key>_is_pad`, by lerobot's rules. If
            streams have several clocks, windows are aligned in time. Seconds may be text with a
            unit, such as "50ms". A number of more than a day raises Misuse, because it is probably
            meant as nanoseconds. Default None.
        hz: The rate of a uniform timeline of samples, in Hz. Default None: the rows of the dataset.
        keys: The streams of a sample; other streams are not read. Default None: all. "episode_id"
            is the index of the sample's episode, as text. "index", "episode_index" and
            "frame_index" are LeRobot's columns, and are generated if the dataset lacks them.
        image_size: (height, width) in pixels, scaled during decoding. Default None: as recorded.
        normalize: As in Loader; `normalizer` applies and inverts it elsewhere. Default None.
        split: Use only the episodes of this split. Default None: "train" (or "training") if the
            dataset has this split, with a log message, else all. "all": all episodes.
        where: An expression such as "length < 600 and q.idle < 0.3", as in robocache.find: of the
            selected episodes, only those for which it is true. Evaluated at opening. Default None.
        threads: Threads for one batch. Default None: one per core.
        memory_budget: Bytes, or text such as "4GiB", for decoders, tables and a batch. Default
            None: chosen by the engine.
        vectors: {key: robocache.Vector}, as in Loader, without dropout. Default None.
        derive: As in Loader: {key: function of the arrays of an episode}. Default None.
        windows: A robocache.Windows, all fields except dtype.
        align: A robocache.Align: how streams are put on one timeline.
        images: A robocache.Images: the dtype and shape of images, and the unit of depth.
        order: A robocache.Order with drop_n_first_frames, drop_n_last_frames, pad_before,
            pad_after, segments, on_bad_episode, on_nan, require_text, episode_weights and weight_by
            (only 0, which leaves an episode out). on_bad_episode="skip" leaves out the samples of files that
            could not be read at opening. An episode that fails later is an error of the item.
        statistics: A robocache.Statistics: the statistics for normalize=.
        open: A robocache.Open: how a path is opened.

    Raises:
        Misuse: An option is unknown or out of range; .hint names the nearest valid one.
        NotFound: The source or a split does not exist.
        Malformed: An episode violates the format; .where has the place.
        Unsupported: RoboCache cannot read the source.

    Example:
        ds = robocache.MapDataset("path", delta_timestamps={"action": [0, 0.1]})
        print(ds[7]["action"].shape)
    """

    _first_answer: tuple[int, list[Any]] | None = None
    # The configuration that creates the same object again, without computing statistics.
    _settled_config: dict[str, Any] | None = None

    @_keywords.accept_groups("windows", "align", "images", "order", "statistics", "open")
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
        where: str | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        vectors: Mapping[str, Vector] | None = None,
        derive: Mapping[str, Callable[..., Any]] | None = None,
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
            "where": where,
            "threads": threads,
            "memory_budget": memory_budget,
            "vectors": vectors,
        }
        given = _option_values.OptionValues(plain, groups)
        self.dataset: Dataset = as_dataset(source, given.pop_group("open"))
        if derive is not None:
            self.dataset = _option_values.derive_streams(self.dataset, derive, given)
        given.refuse_unknown(
            [*_config.SAMPLE, "stats", "compute_stats"], "MapDataset", "robocache.Loader takes it"
        )
        self._config = _config.sample_config(self.dataset.features, given)
        _config.drop_unselected_normalizers(self._config)
        _statistics.refuse_unused(self._config)
        self._open_map()

    @classmethod
    def _configured(cls, dataset: Dataset, config: dict[str, Any]) -> MapDataset:
        """Opens a MapDataset with options that were checked before."""
        out = cls.__new__(cls)
        out.dataset, out._config = dataset, config
        out._open_map()
        return out

    def _open_map(self) -> None:
        """Creates the engine's object."""
        self._map = _engine.Handle(self._create_map)
        self._map.open()

    def _create_map(self) -> tuple[int, Any]:
        """Creates the engine's object.

        Raises Malformed if the dataset has changed since the first time.
        """
        answer = self.dataset._handle.call(
            "robocache_map_new", self._settled_config or self._config
        )
        if self._first_answer is None:
            _checks.log_notes(answer)
            _compare_scales.warn_if_scales_differ(
                [self.dataset], [self._config], answer["normalizers"]
            )
        layout = (answer["len"], answer["fields"])
        # Another process creates the object again. If the files of a camera have disappeared since,
        # the camera must not silently be missing in the items.
        if self._first_answer is not None and self._first_answer != layout:
            raise Malformed(
                "the dataset has changed since it was first opened",
                {"dataset": self.dataset.uri},
                "make the MapDataset again",
            )
        self._first_answer = layout
        self._settled_config = settled_config(self._config, answer["settled"][0])
        return answer["map"], answer

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_map"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map = _engine.Handle(self._create_map)  # Opened at the first item.

    @property
    def keys(self) -> list[str]:
        """The keys of an item, in their order."""
        return [f["key"] for f in self._map.open().info["fields"]]

    @property
    def features(self) -> Features:
        """The dataset's streams by key. For the streams of an item, unit is that of the item."""
        return with_delivered_units(self.dataset.features, self._map.open().info["fields"])

    @property
    def fps(self) -> Any:
        """Rows per second of the dataset; None if its streams have no common rate."""
        return self.dataset.fps

    @property
    def normalizer(self) -> Normalizer:
        """The normalization as a Normalizer, which needs no dataset."""
        return Normalizer.of(self._map.open().info["normalizers"])

    def __len__(self) -> int:
        return self._map.open().info["len"]

    def _index(self, i: Any) -> int:
        """Returns i as an index of at least 0. Raises IndexError if it is out of range."""
        try:
            index = operator.index(i)
        except TypeError:
            raise Misuse(f"index {i!r}: expected an integer or a slice") from None
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"index {index} of a dataset of {n} samples")
        return index % n

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.__getitems__(list(range(*i.indices(len(self)))))
        return self._items([self._index(i)])[0]

    def __getitems__(self, indices: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns several items. Each image is decoded once, even if several windows contain it.

        Args:
            indices: Sample numbers; negative numbers count from the end.
        """
        wanted = [self._index(i) for i in indices]
        return self._items(wanted) if wanted else []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def batch(self, indices: Sequence[Any]) -> dict[str, Any]:
        """Returns several items stacked: one tensor per key, as in a Loader's batch.

        Args:
            indices: Sample numbers; negative numbers count from the end.
        """
        return _memory.batch_values(
            self._map.call("robocache_map_items", {"indices": [self._index(i) for i in indices]}),
            _memory.torch_module(),
            True,
        )

    def _items(self, indices: list[int]) -> list[dict[str, Any]]:
        """Returns the samples at indices of at least 0.

        The engine answers with one column per key, which is split into the values of the samples.
        """
        torch = _memory.torch_module()
        columns = _memory.batch_values(
            self._map.call("robocache_map_items", {"indices": indices}), torch, True
        )
        ragged = [f["key"] for f in self._map.open().info["fields"] if f.get("ragged")]
        values: dict[str, Sequence[Any]] = {}  # The values of all samples by key.
        for key, column in columns.items():
            if isinstance(column, list):
                values[key] = column
            elif key in ragged:
                # <key>_times has the lengths of <key>.
                has_lengths = key + "_lengths" in columns
                stream = key if has_lengths else key.removesuffix("_times")
                values[key] = _split_entries(column, columns[stream + "_lengths"])
            else:
                values[key] = _split_rows(column, torch)
        return [{k: v[i] for k, v in values.items()} for i in range(len(indices))]

    def close(self) -> None:
        """Releases decoders and indexes. Items that were returned stay valid."""
        self._map.close()

    def __repr__(self) -> str:
        return f"<robocache.{type(self).__name__} of {self.dataset.uri!r}>"
