"""Sequences of fixed length for the datasets of the earlier RoboCache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from . import _option_values, _checks, _stream_roles, options
from ._errors import Misuse
from ._checks import check_rate
from .dataset import Dataset
from .loader import Loader
from .mapdataset import MapDataset, _Base

__all__ = ["SequenceDataset", "SequenceLoader"]


def _cache_bytes(v: Any) -> int:
    """Returns cache_in_memory in bytes; 0 if nothing is kept."""
    if v is False or v is None:
        return 0
    return 4 << 30 if v is True else _checks.parse_bytes("cache_in_memory", v)


def _sample_bytes(v: Any) -> int:
    """Returns the bytes of a sample's tensors and texts."""
    if isinstance(v, Mapping):
        return sum(_sample_bytes(x) for x in v.values())
    return len(v) if isinstance(v, str) else int(getattr(v, "nbytes", 0))


class SequenceDataset(_Base):
    """Sequences of fixed length, with the streams under the names of their roles.

    The engine's part is a MapDataset on a timeline with one sample per sequence.
    """

    dataset: Dataset
    sequence_length: int
    target_hz: Any

    def _open_sequences(
        self,
        dataset: Dataset,
        roles: Mapping[str, Sequence[str]],
        *,
        language: bool,
        sequence_length: int,
        target_hz: Any,
        episodes: Iterable[int] | None,
        image_size: Any,
        image_dtype: str = "float32",
        cache: Any = False,
        threads: int | None = None,
        memory_budget: Any = None,
    ) -> None:
        """Creates the MapDataset of the sequences.

        Args:
            dataset: The open dataset.
            roles: The streams of each role.
            language: Whether samples have the task text.
            sequence_length: Rows of a sequence.
            target_hz: The rate of the rows in Hz; None: the dataset's own rate.
            episodes: The indices of the episodes; None: all.
            image_size: (height, width), or None: as recorded.
            image_dtype: "float32" or "uint8".
            cache: cache_in_memory= of the caller.
            threads: As in MapDataset.
            memory_budget: As in MapDataset.
        """
        self.dataset = dataset
        self.sequence_length = _checks.check_whole("sequence_length", sequence_length)
        hz = target_hz if target_hz is not None else dataset.info.get("fps")
        if hz is None:
            raise Misuse(
                f"the rate of {dataset.uri!r} is not known",
                {"dataset": dataset.uri},
                "give target_hz=, and rows_hz= where the format keeps no clock",
            )
        exact = Fraction(str(check_rate("target_hz", hz)))
        self.target_hz = float(exact)
        self.roles: dict[str, list[str]] = {k: list(v) for k, v in roles.items()}
        self._free_bytes = _cache_bytes(cache)  # The bytes that may still be kept.
        # The bound in bytes that the caller gave; 0 if the caller gave True.
        self._cache_limit = 0 if cache is True else self._free_bytes
        self._kept_items: dict[int, Any] | None = {} if self._free_bytes else None
        features = dataset.features
        streams = list(dict.fromkeys(k for keys in self.roles.values() for k in keys))
        # One sample of the MapDataset per sequence: its rate is that of the sequences, and each
        # stream has a window of sequence_length rows.
        span = (0.0, float((self.sequence_length - 1) / exact), self.sequence_length)
        self._task = "task" if language and dataset.info.get("tasks") else None
        align: dict[str, Any] = {
            "dtypes": {
                k: "float32"
                for k in streams
                if _stream_roles.is_numeric(features[k]) and features[k].dtype != "float32"
            },
            "modes": {k: "previous" for k in self.roles.get("rewards", ())},
        }
        self.map: MapDataset = MapDataset(
            dataset,
            episodes=None if episodes is None else list(episodes),
            hz=exact / self.sequence_length,
            keys=[*streams, *([self._task] if self._task else []), "episode_id"],
            windows=options.Windows(seconds={k: span for k in streams}),
            align=options.Align(**{k: v for k, v in align.items() if v}),
            images=options.Images(dtype=image_dtype),  # type: ignore[arg-type]
            image_size=image_size,
            threads=threads,
            memory_budget=memory_budget,
            split="all" if episodes is None else None,
        )

    def __len__(self) -> int:
        return len(self.map)

    def __getitem__(self, i: int) -> dict[str, Any]:
        if self._kept_items is None:
            return self._make_item(self.map[i])
        position = self.map._index(i)
        item = self._kept_items.get(position)
        if item is None:
            item = self._make_item(self.map[position])
            size = _sample_bytes(item)
            if size <= self._free_bytes:
                self._free_bytes -= size
                self._kept_items[position] = item
        return dict(item)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def _make_item(self, got: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a sample in the form of the class."""
        return self._streams_by_role(got, 1)

    def _streams_by_role(self, got: Mapping[str, Any], axes: int) -> dict[str, Any]:
        """Returns the streams of a sample or batch by role.

        Args:
            got: The sample or batch of the engine.
            axes: 1 for a sample [T, ...], 2 for a batch [B, T, ...].
        """
        out: dict[str, Any] = {}
        for role, keys in self.roles.items():
            if _stream_roles.is_numeric(self.dataset.features[keys[0]]):
                v = _stream_roles.join_streams([got[k] for k in keys], axes)
                out[role] = v[..., 0] if role == "rewards" and v.shape[-1] == 1 else v
            else:
                out[role] = got[keys[0]]
        # The streams of vectors, not of images.
        fused = [
            out[r] for r in ("vision", "proprio") if r in out and len(out[r].shape) == axes + 1
        ]
        if fused:
            out["fused"] = _stream_roles.join_streams(fused, axes)
        texts = got[self._task] if self._task else None
        if axes == 1:
            out["language"] = "" if texts is None else texts
        elif texts is None:
            out["language"] = [""] * len(got["episode_id"])
        else:
            out["language"] = list(texts)
        out["episode_id"] = got["episode_id"]
        for role, keys in self.roles.items():
            out[role + "_is_pad"] = _stream_roles.any_mask([got[k + "_is_pad"] for k in keys])
        return out

    @property
    def features(self) -> Mapping[str, Any]:
        """The dataset's streams, by its own keys."""
        return self.dataset.features

    def close(self) -> None:
        """Releases decoders and files. Samples that were returned stay valid."""
        self.map.close()

    def __repr__(self) -> str:
        return (
            f"<robocache.datasets.{type(self).__name__} of {self.dataset.uri!r}: "
            f"{self.sequence_length} rows at {self.target_hz:g} Hz>"
        )


class SequenceLoader(Loader):
    """A Loader whose batches use the names of roles.

    It has all methods of Loader: state_dict, set_epoch, stats, close and so on.
    """

    sequences: SequenceDataset

    def _start_loader(
        self,
        sequences: SequenceDataset,
        form: Callable[[dict[str, Any]], dict[str, Any]],
        **how: Any,
    ) -> None:
        """Creates the loader of the sequences.

        Args:
            sequences: The sequences.
            form: Converts the engine's batch to the batch of the caller.
            how: The keywords of Loader.
        """
        self.sequences, self._form = sequences, form
        if sequences._kept_items is not None:
            cache = _option_values.as_cache(how.get("cache", "ram"))
            if (
                cache is not None
                and cache.where == "ram"
                and cache.budget is None
                and sequences._cache_limit
            ):
                # cache_in_memory does not bound a cache in a directory or a disabled cache.
                cache = replace(cache, budget=sequences._cache_limit)
            how["cache"] = cache
        super().__init__(sequences.map, **how)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._form, super().__iter__())
