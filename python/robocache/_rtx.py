"""Open X-Embodiment (RLDS) as sequences of fixed length, and loaders over them."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from . import _keywords, _checks, _stream_roles
from ._errors import Misuse, NotFound
from ._checks import check_rate
from ._rtx_episodes import RLDSEpisode
from ._sequences import SequenceDataset, SequenceLoader
from .dataset import Dataset
from .dataset import open as open_dataset
from .loader import Loader

__all__ = ["RTXDataset", "RTXDataLoader", "create_rtx_dataloader"]

_warned = False


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


class RTXDataset(SequenceDataset):
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


class RTXDataLoader(SequenceLoader):
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
    loader = SequenceLoader.__new__(SequenceLoader)
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
