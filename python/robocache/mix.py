"""Mix: one dataset of a mixture, and what is special about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from . import _config, _keywords, _options, _statistics
from ._errors import Error, Misuse
from ._feature import Features
from .dataset import Dataset, opened
from .mapdataset import MapDataset

__all__ = ["Mix"]


# What a source has of its own; the rest of a sample is the Loader's.
_OWN = {
    **{k: _config.SAMPLE[k] for k in ("episodes", "split", "hz", "align", "keys", "image_size", "image_resize", "anchor", "augment", "normalize")},
    "weight": _options.number, "name": _config.text, "dims": _config.by_key(_config.listed(partial(_options.whole, least=0), "a list of positions")),
}  # fmt: skip


class Mix:
    """One dataset of a mixture: Loader([Mix(a, weight=3), Mix(b, weight=1, rename={...}), ...]).

    source: a path or URI, or an open Dataset.
    weight: its share of the samples beside the other weights, whatever its size. All sources have one, or none: then shares go by size.
        At every prefix of the epoch the realised counts stay within a few samples of the shares.
    rename: {its key: the batch's key}. What follows, and keys=, delta_timestamps=, delta_indices=, align= and normalize= of the Loader, use the batch's keys.
    hz, align, anchor: its timeline, so that windows in seconds mean the same at every source's rate; or the stream whose rows are its samples.
    stats: statistics in place of its own, {key: {mean, std, min, max, q01 ...}}, as Dataset.stats and Dataset.compute_stats() give them (by its
        own keys or by the batch's), or a stats.json; or "compute", as of Loader. Statistics are never pooled over sources.
    dims: {key: [position, …]} with the Loader's missing="pad": where each of its own numbers of a row stands in the padded row, each position once.
        Without an entry they are the leading ones, in their order.
    normalize, image_size, image_resize, augment, episodes, split, keys: as of Loader, for this source alone; augment={} is none.
    name: in errors, statistics and states; default its number.
    format, map, options, rows_hz, follow_links: how a path is opened, as robocache.open takes them.

    A path that cannot be opened is an error when the Mix is used: by Loader, whose error names the position of the source in the mixture, or by
    .dataset or .features.

    A batch holds the keys of all sources, each with one dtype and shape, and `dataset_index` (int64). Keys that a source lacks: see
    missing= of Loader.
    """

    @_keywords.checked
    def __init__(
        self, source: Any, weight: float | None = None, rename: Mapping[str, str] | None = None, hz: Any = None, align: Mapping[str, Any] | None = None,
        stats: Any = None, normalize: Any = None, image_size: Sequence[int] | None = None, episodes: Iterable[int] | None = None,
        keys: Iterable[str] | None = None, name: str | None = None, *, format: str | None = None, rows_hz: Any = None, map: Any = None,
        options: Mapping[str, Any] | None = None, follow_links: bool | None = None, anchor: str | None = None, image_resize: str | None = None,
        dims: Mapping[str, Sequence[int]] | None = None, augment: Mapping[str, Any] | None = None, split: str | None = None,
    ) -> None:  # fmt: skip
        given = locals()
        if isinstance(source, Mix):
            raise Misuse("a Mix of a Mix", hint="give its path, URI or Dataset")
        if isinstance(source, MapDataset):
            raise Misuse("a Mix of a MapDataset", hint="give its .dataset; windows are the Loader's delta_timestamps=, the rest are keywords here")
        self._failure: Error | None = None
        self._config: dict[str, Any] = {k: v for k, v in (("name", name), ("weight", weight)) if v is not None}
        self._dataset: Dataset = opened(source, format=format, rows_hz=rows_hz, map=map, options=options, follow_links=follow_links)
        try:
            self._configure(rename, stats, given)
        except Misuse as e:
            raise e.within({"dataset": self.dataset.uri}) from None
        except Error as e:
            self._failure = e

    def _configure(self, rename: Mapping[str, str] | None, stats: Any, given: dict[str, Any]) -> None:
        """Checks the keywords against the dataset."""
        if rename is not None and not isinstance(rename, Mapping):
            raise Misuse(f"rename={rename!r}: expected a dict of its keys to the batch's")
        names = dict(rename or {})
        for old, to in names.items():
            _options.key(old, self.dataset.features, "key of rename")
            if not isinstance(to, str) or not to:
                raise Misuse(f"rename[{old!r}]={to!r}: expected a key")
        self._features = Features()
        self._features.withheld = self.dataset.features.withheld
        for k, f in self.dataset.features.items():
            to = names.get(k, k)
            if to in self.features:
                raise Misuse(f"rename: two keys of {self.dataset.uri!r} are {to!r}")
            self._features[to] = f
        self._config = _config.settle(_OWN, given, [*self.features, *self.features.withheld])
        if names:
            self._config["rename"] = names
        self._config.update(_statistics.asked(stats, [*self.features, *(k for k in names if k not in self.features)]))

    @property
    def dataset(self) -> Dataset:
        """The dataset. Raises the error of opening it."""
        if self._failure is not None:
            raise self._failure
        return self._dataset

    @property
    def features(self) -> Features:
        """The features by the keys of the batch. Raises the error of opening the dataset."""
        if self._failure is not None:
            raise self._failure
        return self._features

    @property
    def weight(self) -> float | None:
        return self._config.get("weight")

    @property
    def name(self) -> str | None:
        return self._config.get("name")

    def _source(self) -> dict[str, Any]:
        """For the engine: which dataset, and how."""
        return {"dataset": self.dataset._handle.number, **self._config}

    def __repr__(self) -> str:
        more = "".join(f", {k}={v!r}" for k, v in self._config.items() if k in ("name", "weight"))
        if self._failure is not None:
            return f"<robocache.Mix that could not be opened: {self._failure}{more}>"
        return f"<robocache.Mix of {self.dataset.uri!r}{more}>"
