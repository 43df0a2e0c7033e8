"""The datasets of the earlier RoboCache: sequences of fixed length from RLDS, CALVIN and robomimic.

    from robocache.datasets import RTXDataset, CALVINDataset, RoboMimicDataset
    from robocache.datasets import RTXDataLoader, create_rtx_dataloader

A sample is `sequence_length` rows of one episode at `target_hz`, by default the dataset's own rate.
The sequences of an episode follow each other without overlap. The last sequence of an episode may
be too short. Its missing rows repeat the last row, or are 0 for relative actions, and
`<name>_is_pad` marks them. episode_id is the index of the episode in `.dataset`, as text.

The engine opens, decodes and aligns the data by its rules: floats are linear, images nearest, and
rewards previous. New code uses robocache.open, MapDataset and Loader; docs/migration.md lists the
replacements.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from . import _option_values, _keywords, _checks, _stream_roles, options
from ._errors import Misuse, NotFound
from ._checks import check_rate
from .dataset import Dataset, Episode
from .dataset import open as open_dataset
from .loader import Loader
from .mapdataset import MapDataset, _Base

__all__ = [
    "RTXDataset",
    "RTXDataLoader",
    "RLDSStep",
    "RLDSEpisode",
    "RTXEpisode",
    "create_rtx_dataloader",
    "CALVINDataset",
    "RoboMimicDataset",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'robocache.datasets' has no attribute {name!r}: {_checks.nearest_names(name, __all__)}"
    )


_warned = False


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


def _warn_use_robocache(use_robocache: Any) -> None:
    """Warns once per process that use_robocache=False has no effect.

    The keyword once selected another reader. It is still accepted.
    """
    global _warned
    if _checks.check_flag("use_robocache", use_robocache) or _warned:
        return
    _warned = True
    warnings.warn(
        "use_robocache=False: there is one path, the engine's; the keyword changes nothing",
        UserWarning,
        stacklevel=4,
    )


class _SequenceDataset(_Base):
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


class _SequenceLoader(Loader):
    """A Loader whose batches use the names of roles.

    It has all methods of Loader: state_dict, set_epoch, stats, close and so on.
    """

    sequences: _SequenceDataset

    def _start_loader(
        self,
        sequences: _SequenceDataset,
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


@dataclass
class RLDSStep:
    """One step of an episode.

    Attributes:
        observation: {"rgb": float32 [H, W, C] in [0, 1], "proprio": float32 [D], "depth": float32
            [H, W, 1] in mm}, as far as they were recorded.
        action: float32 [D].
        reward: The reward; 0 if none was recorded.
        is_terminal: Whether the episode ends with this step.
        language_instruction: The instruction, or None.
        metadata: The metadata of the episode, or None.
        timestamp_ms: The timestamp of the action in milliseconds.
    """

    observation: dict[str, Any]
    action: Any
    reward: float
    is_terminal: bool
    language_instruction: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp_ms: float | None = None


@dataclass
class RLDSEpisode:
    """An episode as a list of steps. len() is the number of steps.

    Attributes:
        steps: The steps.
        episode_id: The index of the episode, as text.
        dataset_name: The name of the dataset.
        success: Whether the episode succeeded; None if the dataset does not record it.
        language_instruction: The first instruction, or None.
        scene_description: The description of the scene, or None.
    """

    steps: list[RLDSStep]
    episode_id: str
    dataset_name: str
    success: bool | None
    language_instruction: str | None = None
    scene_description: str | None = None

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def of(
        cls,
        episode: Episode,
        streams: Mapping[str, Any] | None = None,
        *,
        image_size: tuple[int, int] | None = None,
    ) -> RLDSEpisode:
        """Returns the rows of an episode as recorded, at their own rate.

        Args:
            episode: An episode of robocache.open.
            streams: As in RTXDataset.
            image_size: (height, width) in pixels. Default None: as recorded.
        """
        return cls(**_stream_roles.episode_fields(episode, streams, image_size, RLDSStep))

    def to_tensor_dict(self) -> dict[str, Any]:
        """Returns the steps as tensors.

        Returns:
            {"observations": {name: [T, ...]}, "actions": [T, D], "rewards": float32 [T],
            "terminals": bool [T], "episode_id": str, "success": bool or None}.

        Raises:
            Misuse: The episode has no steps.
        """
        if not self.steps:
            raise Misuse(f"episode {self.episode_id!r} has no steps")
        return {
            "observations": {
                k: _stream_roles.stack_rows([s.observation[k] for s in self.steps])
                for k in self.steps[0].observation
            },
            "actions": _stream_roles.stack_rows([s.action for s in self.steps]),
            "rewards": _stream_roles.number_array([s.reward for s in self.steps], "float32"),
            "terminals": _stream_roles.number_array([s.is_terminal for s in self.steps], "bool"),
            "episode_id": self.episode_id,
            "success": self.success,
        }


@dataclass
class RTXEpisode:
    """The streams of an episode with their own times, as resample_trajectories takes them.

    len() is the number of actions. Times are float64 seconds, one per row.

    Attributes:
        episode_id: The index of the episode, as text.
        vision: uint8 [T, C, H, W], or vectors float32 [T, D]; None if not recorded.
        vision_times: The times of vision.
        actions: float32 [T, D].
        action_times: The times of actions.
        proprio: float32 [T, D]; None if not recorded.
        proprio_times: The times of proprio.
    """

    episode_id: str
    vision: Any
    vision_times: Any
    actions: Any
    action_times: Any
    proprio: Any = None
    proprio_times: Any = None

    def __len__(self) -> int:
        return len(self.action_times)

    @classmethod
    def of(cls, episode: Episode, streams: Mapping[str, Any] | None = None) -> RTXEpisode:
        """Returns the streams of an episode as recorded.

        Args:
            episode: An episode of robocache.open.
            streams: As in RTXDataset.
        """
        return cls(**_stream_roles.stream_fields(episode, streams))


class RTXDataset(_SequenceDataset):
    """Open X-Embodiment (RLDS) as sequences of fixed length, read lazily and without TensorFlow.

    A sample is a dict of torch tensors (NumPy arrays without torch):

    - "observations": {"rgb": float32 [T, H, W, C], "proprio": float32 [T, D], "depth": float32 [T,
      H, W, 1] in mm}.
    - "actions": float32 [T, D].
    - "rewards": float32 [T]. Zeros, with rewards_is_pad True, if none were recorded.
    - "language" and "episode_id": str.
    - "<name>_is_pad": bool [T].

    Args:
        dataset_name: A folder in data_dir.
        data_dir: The folder of the datasets, or of one dataset. Default None: TFDS_DATA_DIR, else
            ~/tensorflow_datasets.
        split: "train" (default), "val", "train+val" and so on. None: all.
        max_episodes: Read only this number of episodes. Default None: all.
        sequence_length: T, the rows of a sample. Default 50.
        image_size: (height, width) in pixels. Default (224, 224). None: as recorded.
        use_robocache: No effect; False warns once.
        cache_in_memory: The bytes of samples to keep in memory: a number, text such as "512MiB", or
            True for "4GiB". A kept sample is returned again with the same tensors. Other samples
            are made again each time. Default False.
        path: The dataset's folder, or any folder above it, in place of dataset_name and data_dir.
        modalities: Some of "vision" (or "rgb"), "depth", "proprio", "rewards" and "language".
            Default None: all that were recorded. Actions are always included.
        target_hz: The rate of the rows in Hz. Default None: the dataset's own rate.
        episode_length_sec: The duration of a sample in seconds, in place of sequence_length.
        streams: {"rgb": key, "depth": key, "proprio": [keys], "actions": [keys], "rewards": key},
            if the choice by names is wrong. Several numeric streams are joined. Other names become
            observations: {"wrist_rgb": "observation.wrist_image"}.
        rows_hz: The recorded rate in Hz, if RoboCache's table does not have it.
        map: As in robocache.open.
        options: As in robocache.open.
        image_dtype: "float32" (default) in [0, 1], or "uint8".
        threads: As in MapDataset.
        memory_budget: As in MapDataset.
        follow_links: As in robocache.open.

    Raises:
        NotFound: There is no such folder or dataset; the hint lists those that exist.
        Misuse: split, modalities, streams or another argument is invalid.
        Malformed: The dataset violates its format.

    Example:
        ds = robocache.datasets.RTXDataset("bridge_dataset", data_dir="data", sequence_length=16)
        print(ds[0]["observations"]["rgb"].shape)
    """

    @_keywords.check_keywords
    def __init__(
        self,
        dataset_name: str | None = None,
        data_dir: Any = None,
        split: str | None = "train",
        max_episodes: int | None = None,
        sequence_length: int = 50,
        image_size: Sequence[int] | None = (224, 224),
        use_robocache: bool = True,
        cache_in_memory: bool | int | str = False,
        *,
        path: Any = None,
        modalities: Iterable[str] | None = None,
        target_hz: Any = None,
        episode_length_sec: float | None = None,
        streams: Mapping[str, Any] | None = None,
        rows_hz: Any = None,
        map: Any = None,
        options: Mapping[str, Any] | None = None,
        image_dtype: str = "float32",
        threads: int | None = None,
        memory_budget: int | str | None = None,
        follow_links: bool | None = None,
    ) -> None:
        _warn_use_robocache(use_robocache)
        how: dict[str, Any] = {
            "format": "rlds",
            "rows_hz": rows_hz,
            "map": map,
            "follow_links": follow_links,
            "options": {**(options or {}), **({"split": split} if split is not None else {})},
        }
        wanted, language = _stream_roles.parse_modalities(modalities)
        ds = _find_dataset(dataset_name, data_dir, path, how)
        self.dataset_name: str = dataset_name or _stream_roles.dataset_name(ds)
        self.split = split
        if episode_length_sec is not None:
            hz = target_hz if target_hz is not None else ds.fps
            seconds = _checks.check_nonnegative("episode_length_sec", episode_length_sec)
            if seconds == 0:
                raise Misuse(
                    f"episode_length_sec={episode_length_sec!r}: expected more than 0 seconds"
                )
            sequence_length = max(
                1, round(float(Fraction(str(check_rate("target_hz", hz)))) * seconds)
            )
        n = (
            ds.num_episodes
            if max_episodes is None
            else min(_checks.check_whole("max_episodes", max_episodes), ds.num_episodes)
        )
        self._open_sequences(
            ds,
            _stream_roles.find_roles(ds, streams, wanted),
            language=language,
            sequence_length=sequence_length,
            target_hz=target_hz,
            episodes=None if n == ds.num_episodes else ds.episode_indices[:n].tolist(),
            image_size=image_size,
            image_dtype=image_dtype,
            cache=cache_in_memory,
            threads=threads,
            memory_budget=memory_budget,
        )
        self._streams = streams
        self.num_episodes: int = n

    def _make_item(self, got: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a sample with observations in their own dict."""
        return _stream_roles.nested_item(self._streams_by_role(got, 1), self.roles)

    def _nested_batch(self, got: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch with observations in their own dict."""
        return _stream_roles.nested_item(self._streams_by_role(got, 2), self.roles)

    def _flat_batch(self, got: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch with vision, proprio and fused, which are None if they are absent."""
        return {"vision": None, "proprio": None, "fused": None, **self._streams_by_role(got, 2)}

    def episode(self, i: int) -> RLDSEpisode:
        """Returns the episode at position i with all its steps, at its own rate."""
        return RLDSEpisode.of(self.dataset[i], self._streams)

    @property
    def episodes(self) -> Iterator[RLDSEpisode]:
        """The episodes, read one by one."""
        return (self.episode(i) for i in range(self.num_episodes))


def _find_dataset(name: str | None, data_dir: Any, path: Any, how: Mapping[str, Any]) -> Dataset:
    """Returns the dataset that the name, the folder or the path selects."""
    if path is not None:
        if data_dir is not None:
            raise Misuse("path= and data_dir=: expected one of them")
        return open_dataset(path, **how)
    if name is None and data_dir is None:
        raise Misuse("RTXDataset: expected dataset_name=, data_dir= or path=")
    root = _checks.path_text(
        data_dir
        if data_dir is not None
        else os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    )
    if name is None or "://" in root:
        return open_dataset(root if name is None else f"{root.rstrip('/')}/{name}", **how)
    if not isinstance(name, str) or not name:
        raise Misuse(f"dataset_name={name!r}: expected a name")
    folder = Path(root)
    if not folder.is_dir():
        raise NotFound(
            f"no folder {root}",
            {"dataset": root},
            "data_dir= is where datasets lie, or the folder of one",
        )
    if (folder / name).is_dir():
        return open_dataset(folder / name, **how)
    # The folder may itself be the dataset, or contain its versions.
    is_dataset = (folder / "features.json").is_file() or any(folder.glob("*/features.json"))
    if is_dataset and (data_dir is not None or folder.name == name):
        return open_dataset(folder, **how)
    known = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    hint = _checks.nearest_names(name, known) if known else "the folder is empty"
    raise NotFound(f"no dataset {name!r} in {root}", {"dataset": f"{root}/{name}"}, hint)


class RTXDataLoader(_SequenceLoader):
    """Batches of RTXDataset, made by the engine's Loader without worker processes.

    A batch is a dict:

    - "observations": {"rgb": float32 [B, T, H, W, C], "proprio": float32 [B, T, D], "depth":
      float32 [B, T, H, W, 1] in mm}.
    - "actions": float32 [B, T, D].
    - "rewards": float32 [B, T].
    - "language" and "episode_id": lists of str.
    - "<name>_is_pad": bool [B, T].

    Args:
        dataset_name: As in RTXDataset.
        batch_size: Samples per batch. Default 32.
        num_workers: Threads. 0: one per core. Default 4.
        split: As in RTXDataset. "train" (default) is shuffled.
        kw: Keywords of Loader, such as shuffle=, seed=, drop_last=, device= and rank=. All others
            go to RTXDataset. cache_in_memory=True keeps decoded images in RAM (cache="ram").

    Raises:
        NotFound: There is no such dataset.
        Misuse: An argument is invalid.
    """

    def __init__(
        self,
        dataset_name: str | None = None,
        batch_size: int = 32,
        num_workers: int = 4,
        split: str | None = "train",
        **kw: Any,
    ) -> None:
        # Keywords of both classes belong to RTXDataset.
        dataset_keywords = inspect.signature(RTXDataset.__init__).parameters
        of_loader = {
            k: kw.pop(k)
            for k in list(kw)
            if k not in dataset_keywords and k in inspect.signature(Loader.__init__).parameters
        }
        sequences = RTXDataset(dataset_name, split=split, **kw)
        of_loader.setdefault("shuffle", "global" if split == "train" else False)
        of_loader = {
            **_thread_option(num_workers),
            **{k: kw[k] for k in ("threads", "memory_budget") if kw.get(k) is not None},
            **of_loader,
        }
        self._start_loader(sequences, sequences._nested_batch, batch_size=batch_size, **of_loader)


def _thread_option(num_workers: Any) -> dict[str, Any]:
    """Returns the keyword threads= for num_workers=."""
    n = _checks.check_whole("num_workers", num_workers, least=0)
    return {"threads": n} if n else {}


class _EncodeVision:
    """Converts a batch of the engine, and replaces frames by vectors of the caller's encoder."""

    def __init__(self, sequences: RTXDataset, encoder: Callable[[Any], Any]) -> None:
        self.sequences, self.encoder = sequences, encoder

    def __call__(self, got: dict[str, Any]) -> dict[str, Any]:
        """Returns the batch in the form of create_rtx_dataloader, with vectors as vision."""
        batch = self.sequences._flat_batch(got)
        frames = batch["vision"]
        if frames is None or frames.ndim != 5:
            raise Misuse(
                "vision_encoder= is for frames, and there are none",
                {"dataset": self.sequences.dataset.uri},
            )
        batch["vision"] = _stream_roles.encode_frames(frames, self.encoder)
        parts = [batch["vision"]]
        if batch["proprio"] is not None:
            parts.append(batch["proprio"])
        batch["fused"] = _stream_roles.join_streams(parts, 2)
        return batch


@_keywords.check_keywords
def create_rtx_dataloader(
    data_dir: Any,
    batch_size: int = 32,
    target_hz: Any = 50.0,
    episode_length_sec: float = 5.0,
    num_workers: int = 0,
    use_robocache: bool = True,
    device: Any = "cuda",
    *,
    vision_encoder: Callable[[Any], Any] | None = None,
    split: str | None = "train",
    image_size: Sequence[int] | None = None,
    image_dtype: str = "float32",
    modalities: Iterable[str] | None = None,
    streams: Mapping[str, Any] | None = None,
    rows_hz: Any = None,
    max_episodes: int | None = None,
    shuffle: Any = "global",
    seed: int = 0,
    drop_last: bool = False,
    memory_budget: int | str = "4GiB",
) -> Loader:
    """Returns a Loader over an RLDS dataset, with sequences of a fixed duration.

    A sequence has T = target_hz * episode_length_sec rows. A batch, on the device:

    - "vision": frames float32 [B, T, C, H, W] in [0, 1], or as recorded with image_dtype="uint8".
      Vectors [B, T, D] if the dataset stores vectors or vision_encoder= is given.
    - "proprio" and "actions": float32 [B, T, D].
    - "fused": float32 [B, T, D], proprio and vectors of vision joined.
    - "language" and "episode_id": lists of str.
    - "rewards" and "depth", if they were recorded.
    - "<name>_is_pad": bool [B, T], True for rows after the end of the episode.

    vision, proprio and fused are None if the dataset lacks them.

    Args:
        data_dir: The dataset's folder.
        batch_size: Samples per batch. Default 32.
        target_hz: The rate of the rows in Hz. Default 50.
        episode_length_sec: The duration of a sample in seconds. Default 5.
        num_workers: Threads. 0 (default): one per core.
        use_robocache: No effect; False warns once.
        device: The device of the batches. Default "cuda".
        vision_encoder: Called without gradients with the frames of one sample, [T, C, H, W];
            returns [T, D]. Default None.
        split: As in RTXDataset. Default "train".
        image_size: (height, width) in pixels. Default None: as recorded.
        image_dtype: "float32" (default) or "uint8".
        modalities: As in RTXDataset.
        streams: As in RTXDataset.
        rows_hz: As in RTXDataset.
        max_episodes: As in RTXDataset.
        shuffle: As in Loader. Default "global".
        seed: As in Loader. Default 0.
        drop_last: As in Loader. Default False.
        memory_budget: As in Loader. Default "4GiB".

    Raises:
        NotFound: data_dir does not exist.
        Unsupported: The device is not available. "cpu" always is.
        ResourceLimit: A batch of float32 frames does not fit into memory_budget. Use image_size= or
            image_dtype="uint8".
        Misuse: An argument is invalid.
    """
    _warn_use_robocache(use_robocache)
    if vision_encoder is not None and not callable(vision_encoder):
        raise Misuse(
            f"vision_encoder={vision_encoder!r}: expected a function of frames [T, C, H, W]"
        )
    sequences = RTXDataset(
        data_dir=data_dir,
        split=split,
        max_episodes=max_episodes,
        image_size=image_size,
        target_hz=target_hz,
        episode_length_sec=episode_length_sec,
        modalities=modalities,
        streams=streams,
        rows_hz=rows_hz,
        image_dtype="float32" if vision_encoder is not None else image_dtype,
    )
    form = (
        sequences._flat_batch
        if vision_encoder is None
        else _EncodeVision(sequences, vision_encoder)
    )
    loader = _SequenceLoader.__new__(_SequenceLoader)
    loader._start_loader(
        sequences,
        form,
        batch_size=batch_size,
        device=device,
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
        memory_budget=memory_budget,
        **_thread_option(num_workers),
    )
    return loader


class CALVINDataset(_SequenceDataset):
    """CALVIN as sequences of fixed length, with one or more cameras.

    A sample is a dict:

    - "vision": float32 [T, C, H, W] in [0, 1] of the first camera; "vision_<camera>" of the others.
    - "depth" and "depth_<camera>": float32 [T, 1, H, W] in mm, with depth=True.
    - "proprio": float32 [T, 15], and "actions": float32 [T, 7].
    - "fused": the numeric streams, joined.
    - "language" and "episode_id": str.
    - "<name>_is_pad": bool [T].

    Args:
        path: The folder with training/ and validation/, or one of these two.
        tasks: ["all"] (default): all annotated windows, each as one episode, or the runs of a
            dataset without annotations. Names such as ["lift_red_block"]: the windows of these
            tasks. None: the runs as recorded.
        cameras: Some of "static", "gripper", "tactile.0" and "tactile.1". Default "static" and
            "gripper".
        target_hz: The rate of the rows in Hz. Default None: the recorded rate.
        split: "training", "validation" or "all". Default None: "training" if it exists, else all.
        sequence_length: T, the rows of a sample. Default 50.
        depth: Whether to include the depth images of the cameras. Default False.
        image_size: (height, width) in pixels. Default None: as recorded.
        image_dtype: "float32" (default) or "uint8".
        streams: As in RTXDataset. {"actions": "rel_actions"} selects the relative actions.
        rows_hz: The recorded rate in Hz. Default None: 30.
        options: As in robocache.open.
        threads: As in MapDataset.
        memory_budget: As in MapDataset.
        follow_links: As in robocache.open.

    Raises:
        NotFound: There is no dataset at path.
        Misuse: tasks, cameras, split, streams or another argument is invalid.
        Malformed: The dataset violates its format.
    """

    @_keywords.check_keywords
    def __init__(
        self,
        path: Any,
        tasks: Iterable[str] | None = ("all",),
        cameras: Iterable[str] = ("static", "gripper"),
        target_hz: Any = None,
        *,
        split: str | None = None,
        sequence_length: int = 50,
        depth: bool = False,
        image_size: Sequence[int] | None = None,
        image_dtype: str = "float32",
        streams: Mapping[str, Any] | None = None,
        rows_hz: Any = None,
        options: Mapping[str, Any] | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        follow_links: bool | None = None,
    ) -> None:
        chosen = _stream_roles.name_list("tasks", tasks)
        ds = open_dataset(
            path,
            format="calvin",
            rows_hz=rows_hz,
            follow_links=follow_links,
            options={**(options or {}), **({} if chosen is None else {"language": "episodes"})}
            or None,
        )
        self.tasks = chosen
        picked = _stream_roles.split_episodes(ds, split, "training")
        if chosen is not None and "all" not in chosen:
            picked = _stream_roles.episodes_with_tasks(ds, picked, chosen, "language_task")
        roles = _stream_roles.find_roles(
            ds,
            {
                **_stream_roles.calvin_cameras(ds, cameras, _checks.check_flag("depth", depth)),
                **(streams or {}),
            },
            ("proprio",),
        )
        self._open_sequences(
            ds,
            roles,
            language=True,
            sequence_length=sequence_length,
            target_hz=target_hz,
            episodes=picked,
            image_size=image_size,
            image_dtype=image_dtype,
            threads=threads,
            memory_budget=memory_budget,
        )


class RoboMimicDataset(_SequenceDataset):
    """robomimic HDF5 files as sequences of fixed length.

    A sample is a dict:

    - "proprio": float32 [T, D], all numeric observations joined in the order of the file.
    - "vision": float32 [T, C, H, W] in [0, 1] of the first camera; "vision_<name>" of the others.
    - "actions": float32 [T, D].
    - "rewards": float32 [T], if they were recorded.
    - "fused": the numeric streams, joined.
    - "language" and "episode_id": str.
    - "<name>_is_pad": bool [T].

    Args:
        path: A file, or a folder of files that form one dataset.
        tasks: Only demos of these tasks: names of env_args, or instructions. Default None: all.
        obs_modality: "low_dim" (default) reads only numbers. "rgb" or "image" also reads the
            cameras, "depth" also reads depth images. Or a list of these.
        target_hz: The rate of the rows in Hz. Default None: the recorded rate.
        split: A mask, such as "train" or "valid". Default None: all demos, as in robomimic without
            a filter key.
        sequence_length: T, the rows of a sample. Default 50.
        image_size: (height, width) in pixels. Default None: as recorded.
        image_dtype: "float32" (default) or "uint8".
        streams: As in RTXDataset. {"proprio": [keys]} selects the observations.
        rows_hz: The recorded rate in Hz, if env_args lacks it.
        options: As in robocache.open.
        threads: As in MapDataset.
        memory_budget: As in MapDataset.
        follow_links: As in robocache.open.

    Raises:
        NotFound: There is no file at path.
        Misuse: tasks, obs_modality, split, streams or another argument is invalid.
        Malformed: A file violates its format.
    """

    @_keywords.check_keywords
    def __init__(
        self,
        path: Any,
        tasks: Iterable[str] | None = None,
        obs_modality: str | Iterable[str] = "low_dim",
        target_hz: Any = None,
        *,
        split: str | None = None,
        sequence_length: int = 50,
        image_size: Sequence[int] | None = None,
        image_dtype: str = "float32",
        streams: Mapping[str, Any] | None = None,
        rows_hz: Any = None,
        options: Mapping[str, Any] | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        follow_links: bool | None = None,
    ) -> None:
        known = ("low_dim", "rgb", "image", "depth")
        kinds = {
            _checks.check_choice("obs_modality", m, known)
            for m in ([obs_modality] if isinstance(obs_modality, str) else obs_modality)
        }
        chosen = _stream_roles.name_list("tasks", tasks)
        ds = open_dataset(
            path, format="robomimic", rows_hz=rows_hz, options=options, follow_links=follow_links
        )
        self.tasks = chosen
        picked = _stream_roles.split_episodes(ds, split, "all")
        if chosen is not None and "all" not in chosen:
            picked = _stream_roles.episodes_with_tasks(ds, picked, chosen, None)
        imgs = _stream_roles.camera_roles(
            ds, colour=bool(kinds & {"rgb", "image"}), depth="depth" in kinds
        )
        self._open_sequences(
            ds,
            _stream_roles.find_roles(
                ds, {**imgs, **(streams or {})}, ("proprio", "rewards"), everything=True
            ),
            language=True,
            sequence_length=sequence_length,
            target_hz=target_hz,
            episodes=picked,
            image_size=image_size,
            image_dtype=image_dtype,
            threads=threads,
            memory_budget=memory_budget,
        )
