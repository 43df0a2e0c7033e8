"""Mix: one dataset of a mixture, and what is special about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _config, _given, _keywords, _options, _statistics
from ._errors import Error, Misuse
from ._feature import Features
from .dataset import Dataset, opened
from .mapdataset import MapDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import MixGroups

__all__ = ["Mix"]


# The options of a source. The rest of a sample is the Loader's.
_OWN = {
    **{
        k: _config.SAMPLE[k]
        for k in (
            "episodes",
            "split",
            "hz",
            "align",
            "keys",
            "image_size",
            "image_resize",
            "anchor",
            "augment",
            "normalize",
        )
    },
    "weight": _options.number,
    "name": _config.text,
    "dims": _config.by_key(_config.listed(partial(_options.whole, least=0), "a list of positions")),
}


class Mix:
    """One dataset of a mixture: Loader([Mix(a, weight=3), Mix(b, weight=1, rename={...}), ...]).

    A batch holds the keys of all sources, each with one dtype and shape, and `dataset_index`
    (int64). Keys that a source lacks: see missing of robocache.Windows. A path that cannot be
    opened is an error when the Mix is used: by Loader, whose error names the position of the source
    in the mixture, or by .dataset or .features.

    Args:
        source: A path or URI, or an open Dataset.
        weight: Its share of the samples beside the other weights, whatever its size. All sources
            have one, or none: then shares go by size. At every prefix of the epoch the counts stay
            within a few samples of the shares.
        rename: {its key: the batch's key}. What follows, and the options of the Loader, use the
            batch's keys.
        hz: The rate of its timeline in Hz, so that windows in seconds mean the same at every
            source's rate.
        normalize: As of Loader, for this source alone.
        image_size: As of Loader, for this source alone.
        episodes: As of Loader, for this source alone.
        keys: As of Loader, for this source alone.
        split: As of Loader, for this source alone.
        name: In errors, statistics and states. Default: its number.
        dims: {key: [position, ...]}, with Windows(missing="pad") of the Loader: where each of its
            own numbers of a row stands in the padded row, each position once. Default: the leading
            ones, in their order.
        windows: A robocache.Windows, of which anchor applies: the stream whose rows are its
            samples.
        align: A robocache.Align: how its streams come onto one timeline.
        images: A robocache.Images, of which size and fit apply.
        augment: As of Loader, for this source alone; robocache.Augment() is none.
        statistics: A robocache.Statistics in place of its own, by its own keys or by the batch's.
            Statistics are never pooled over sources.
        open: A robocache.Open: how a path is opened.

    Raises:
        Misuse: an option is unknown or out of range; .hint names the nearest.

    Example:
        robocache.Loader([robocache.Mix(a, weight=3), robocache.Mix(b, weight=1, rename={"cam":
        "camera"})], hz=20)
    """

    @_keywords.grouped("windows", "align", "images", "augment", "statistics", "open")
    def __init__(
        self,
        source: Any,
        *,
        weight: float | None = None,
        rename: Mapping[str, str] | None = None,
        hz: Any = None,
        normalize: Any = None,
        image_size: Sequence[int] | None = None,
        episodes: Iterable[int] | None = None,
        keys: Iterable[str] | None = None,
        split: str | None = None,
        name: str | None = None,
        dims: Mapping[str, Sequence[int]] | None = None,
        **groups: Unpack[MixGroups],
    ) -> None:
        plain = {
            "weight": weight,
            "hz": hz,
            "normalize": normalize,
            "image_size": image_size,
            "episodes": episodes,
            "keys": keys,
            "split": split,
            "name": name,
            "dims": dims,
        }
        given = _given.Given(plain, groups)
        if isinstance(source, Mix):
            raise Misuse("a Mix of a Mix", hint="give its path, URI or Dataset")
        if isinstance(source, MapDataset):
            raise Misuse(
                "a Mix of a MapDataset",
                hint="give its .dataset; windows are the Loader's delta_timestamps=, the rest are keywords here",
            )
        self._failure: Error | None = None
        self._config: dict[str, Any] = {
            k: v for k, v in (("name", name), ("weight", weight)) if v is not None
        }
        self._dataset: Dataset = opened(source, given.pop_group("open"))
        given.refuse_unknown(
            [*_OWN, "stats", "compute_stats"], "Mix", "give it to the robocache.Loader"
        )
        try:
            self._configure(rename, given)
        except Misuse as e:
            raise e.within({"dataset": self.dataset.uri}) from None
        except Error as e:
            self._failure = e

    def _configure(self, rename: Mapping[str, str] | None, given: _given.Given) -> None:
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
        own_names = [k for k in names if k not in self.features]
        self._config.update(_statistics.asked(given, [*self.features, *own_names]))

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
