"""Mix is one dataset of a mixture, with its own options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _config, _option_values, _keywords, _checks, _statistics
from ._errors import Error, Misuse
from ._feature import Features
from .dataset import Dataset, as_dataset
from .mapdataset import MapDataset
from .vectors import Vector

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import MixGroups

__all__ = ["Mix"]


# The options of a source. The other options of a sample belong to the Loader.
_OWN = {
    **{
        k: _config.SAMPLE[k]
        for k in (
            "episodes",
            "split",
            "where",
            "weight_by",
            "episode_weights",
            "hz",
            "align",
            "keys",
            "image_size",
            "image_resize",
            "image_filter",
            "image_transform",
            "anchor",
            "augment",
            "normalize",
            "vectors",
        )
    },
    "weight": _checks.check_nonnegative,
    "primary": _checks.check_flag,
    "name": _config.as_text,
    "dims": _config.by_key(
        _config.list_of(partial(_checks.check_whole, least=0), "a list of positions")
    ),
}


def _check_constants(v: Any) -> dict[str, Any]:
    """Returns {key: number or list of numbers} with plain Python numbers."""
    if not isinstance(v, Mapping):
        raise Misuse(f"constants={v!r}: expected a dict by key of numbers or lists of numbers")
    out = {}
    for key, value in v.items():
        numbers = np.asarray(value)
        if numbers.ndim > 1 or numbers.size == 0 or numbers.dtype.kind not in "biuf":
            raise Misuse(f"constants[{key!r}]={value!r}: expected a number, or a list of numbers")
        if not np.isfinite(numbers).all():
            raise Misuse(f"constants[{key!r}]={value!r}: expected finite numbers")
        numbers = numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64)
        out[str(key)] = numbers.tolist()
    return out


class Mix:
    """One dataset of a mixture: Loader([Mix(a, weight=3), Mix(b, weight=1, rename={...}), ...]).

    A batch has the keys of all sources, each with one dtype and shape, and `dataset_index` (int64).
    robocache.Windows(missing=...) decides about keys that a source lacks. If a path cannot be
    opened, the error is raised when the Mix is used: by Loader, which adds the position of the
    source, or by .dataset or .features.

    Args:
        source: A path or URI, or an open Dataset.
        weight: The share of the samples relative to the other weights, independent of the size.
            Either all sources have a weight, or none; without weights, the sizes are the shares. At
            every prefix of the epoch, the counts differ from the shares by at most a few samples.
            Default None.
        rename: {key of the source: key of the batch}. The following arguments and the options of
            the Loader use the keys of the batch. Default None.
        hz: The rate of the source's timeline in Hz, so that windows in seconds have the same
            meaning for all sources. Default None.
        normalize: As in Loader, for this source only.
        image_size: As in Loader, for this source only.
        episodes: As in Loader, for this source only.
        keys: As in Loader, for this source only.
        split: As in Loader, for this source only.
        where: As in Loader, for this source only, by keys of the batch.
        weight_by: As in Order, for this source only: an expression such as "q.score" whose value
            for an episode is its weight within the source. The source's own weight is weight=.
            Default None.
        episode_weights: As in Order, for this source only: {episode: weight}. Default None.
        name: The name in errors, statistics and states. Default None: the number of the source.
        dims: {key: [position, ...]}, with Windows(missing="pad") of the Loader: the position of
            each number of the source in the padded row, without duplicates. Default None: the
            leading positions.
        vectors: As in Loader, for this source only; their sizes must equal those of other sources.
        primary: True: the epoch ends when all primary sources have been delivered completely, or
            with Mixture(stop="first") when one has. Default False.
        constants: {key: number or list of numbers}, keys of the batch that hold the same value for
            each sample of the source, such as an embodiment id: int64 or float32, of shape (B,), or
            (B, D) for a list of D numbers. Default None.
        derive: As in Loader, for this source only, with its own keys.
        windows: A robocache.Windows with anchor: the stream whose rows are the samples of the
            source.
        align: A robocache.Align: how the source's streams are put on one timeline.
        images: A robocache.Images with size, fit, filter and transform. A size replaces transform
            of the Loader, and transform replaces its size and fit.
        augment: As in Loader, for this source only. robocache.Augment() turns augmentation off.
        statistics: A robocache.Statistics in place of the source's own, by its own keys or those of
            the batch. Statistics are never pooled over sources.
        open: A robocache.Open: how a path is opened.

    Raises:
        Misuse: An option is unknown or out of range; .hint names the nearest valid one.

    Example:
        first = robocache.Mix("a", weight=3)
        second = robocache.Mix("b", weight=1, rename={"cam": "camera"})
        loader = robocache.Loader([first, second], hz=20)
    """

    @_keywords.accept_groups("windows", "align", "images", "augment", "statistics", "open")
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
        where: str | None = None,
        weight_by: str | None = None,
        episode_weights: Mapping[int, float] | None = None,
        name: str | None = None,
        dims: Mapping[str, Sequence[int]] | None = None,
        vectors: Mapping[str, Vector] | None = None,
        primary: bool = False,
        constants: Mapping[str, float | Sequence[float]] | None = None,
        derive: Mapping[str, Callable[..., Any]] | None = None,
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
            "where": where,
            "weight_by": weight_by,
            "episode_weights": episode_weights,
            "name": name,
            "dims": dims,
            "primary": primary or None,
            "vectors": vectors,
        }
        given = _option_values.OptionValues(plain, groups)
        if isinstance(source, Mix):
            raise Misuse("a Mix of a Mix", hint="give its path, URI or Dataset")
        if isinstance(source, MapDataset):
            raise Misuse(
                "a Mix of a MapDataset",
                hint="give its .dataset; windows are the Loader's delta_timestamps=, "
                "the rest are keywords here",
            )
        self._failure: Error | None = None
        self._config: dict[str, Any] = {
            k: v for k, v in (("name", name), ("weight", weight)) if v is not None
        }
        self._dataset: Dataset = as_dataset(source, given.pop_group("open"))
        given.refuse_unknown(
            [*_OWN, "stats", "compute_stats"], "Mix", "give it to the robocache.Loader"
        )
        try:
            if derive is not None:
                self._dataset = _option_values.derive_streams(self._dataset, derive, given)
            self._configure(rename, given)
            if constants is not None:
                self._config["constants"] = _check_constants(constants)
        except Misuse as e:
            raise e.within({"dataset": self.dataset.uri}) from None
        except Error as e:
            self._failure = e

    def _configure(
        self, rename: Mapping[str, str] | None, given: _option_values.OptionValues
    ) -> None:
        """Checks the keywords against the dataset's features."""
        if rename is not None and not isinstance(rename, Mapping):
            raise Misuse(f"rename={rename!r}: expected a dict of its keys to the batch's")
        names = dict(rename or {})
        for old, to in names.items():
            _checks.check_key(old, self.dataset.features, "key of rename")
            if not isinstance(to, str) or not to:
                raise Misuse(f"rename[{old!r}]={to!r}: expected a key")
        self._features = Features()
        self._features.withheld = self.dataset.features.withheld
        for k, f in self.dataset.features.items():
            to = names.get(k, k)
            if to in self.features:
                raise Misuse(f"rename: two keys of {self.dataset.uri!r} are {to!r}")
            self._features[to] = f
        self._config = _config.check_options(_OWN, given, [*self.features, *self.features.withheld])
        if names:
            self._config["rename"] = names
        own_names = [k for k in names if k not in self.features]
        self._config.update(_statistics.statistics_config(given, [*self.features, *own_names]))

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
        """The weight, or None."""
        return self._config.get("weight")

    @property
    def name(self) -> str | None:
        """The name, or None."""
        return self._config.get("name")

    def _engine_source(self) -> dict[str, Any]:
        """Returns the engine's configuration of the source."""
        return {"dataset": self.dataset._handle.number, **self._config}

    def __repr__(self) -> str:
        more = "".join(f", {k}={v!r}" for k, v in self._config.items() if k in ("name", "weight"))
        if self._failure is not None:
            return f"<robocache.Mix that could not be opened: {self._failure}{more}>"
        return f"<robocache.Mix of {self.dataset.uri!r}{more}>"
