"""Mixtures of RLDS datasets for trainers such as OpenVLA and Octo, without TensorFlow.

make_interleaved_dataset and make_single_dataset have the arguments of OpenVLA's functions. Numbers
are standardized, counted and normalized once, when a dataset is opened. Images are decoded and
scaled by the engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks
from ._errors import Misuse, Unsupported
from .dataset import Dataset
from .loader import Loader
from .mapdataset import MapDataset
from .mix import Mix
from .options import Images, Mixture, Order, Windows

__all__ = [
    "SourceTable",
    "Trajectories",
    "Frames",
    "make_single_dataset",
    "make_interleaved_dataset",
]

NORMALIZATIONS = ("normal", "bounds", "bounds_q99")
_READ_ROWS = 4096  # Rows of numbers that are read at once.


def _quantile(x: np.ndarray, q: float) -> np.ndarray:
    """Returns np.quantile(x, q, axis=0) with the rounding of NumPy 1 for float32."""
    place = q * (len(x) - 1)
    low = int(place)
    below, above = np.partition(x, [low, min(low + 1, len(x) - 1)], axis=0)[low : low + 2][[0, -1]]
    step, part = (above - below).astype(np.float64), place - low
    return below + step * part if part < 0.5 else above - step * (1 - part)


class SourceTable:
    """The standardized and normalized numbers of one RLDS dataset, in memory.

    The arguments are those of OpenVLA's make_dataset_from_rlds, with these differences:

    Args:
        name: The folder of the dataset in data_dir, "name" or "name:version".
        data_dir: The folder of datasets, or a URI.
        train: Whether to use the training or the validation split. Without a split "val", the last
            5 % of the episodes of "train" are for validation.
        standardize_fn: Called once per episode with a nested dict of NumPy arrays (rows first), as
            OpenVLA's functions; those run too if TensorFlow is installed. Images are row numbers,
            so that the function can leave out rows. Default None: as stored.
        image_obs_keys: {name: key of the standardized observation, or None for black images}.
        state_obs_keys: Keys that are joined to "proprio". None: one zero.
        language_key: The key of the instruction. Default None: no instruction.
        action_proprio_normalization_type: "normal", "bounds" or "bounds_q99". Default "normal".
        dataset_statistics: As dataset_statistics of an earlier call, or a JSON file with them.
            Default None: of all splits, after standardize_fn.
        absolute_action_mask: True for actions that are repeated after the end of an episode. The
            others become 0. Default None: all become 0.
        action_normalization_mask: True for actions that are normalized. Default None: all.
        ignored: Options of TensorFlow, such as num_parallel_calls.

    Attributes:
        statistics: {"action" and "proprio": {"mean", "std", "min", "max", "q01", "q99"},
            "num_transitions", "num_trajectories"}.
        episodes: {episode: {"action", "proprio", "rows", "text"}} of the split.
    """

    def __init__(
        self,
        name: str,
        data_dir: Any,
        *,
        train: bool,
        standardize_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        image_obs_keys: Mapping[str, str | None] | None = None,
        depth_obs_keys: Mapping[str, str | None] | None = None,
        state_obs_keys: Sequence[str | None] = (),
        language_key: str | None = None,
        action_proprio_normalization_type: Any = "normal",
        dataset_statistics: Any = None,
        absolute_action_mask: Sequence[bool] | None = None,
        action_normalization_mask: Sequence[bool] | None = None,
        **ignored: Any,
    ) -> None:
        unknown = ignored.keys() - {"shuffle", "num_parallel_reads", "num_parallel_calls"}
        if unknown:
            raise Misuse(f"unknown keyword {min(unknown)!r} of a dataset", {"dataset": name})
        if depth_obs_keys:
            raise Unsupported("depth_obs_keys: depth is not delivered", {"dataset": name})
        self.name = name
        self._standardize = standardize_fn
        self._images = dict(image_obs_keys or {})
        self._states, self._language = list(state_obs_keys), language_key
        kind = getattr(
            action_proprio_normalization_type, "value", action_proprio_normalization_type
        )
        self._kind = _checks.check_choice("normalization_type", kind, NORMALIZATIONS)
        folder = os.path.join(_checks.path_text(data_dir), *name.split(":"))
        self.dataset: Dataset = Dataset(folder, format="rlds")
        self._cameras = [
            k.removeprefix("observation.")
            for k, f in self.dataset.features.items()
            if f.kind in ("image", "video")
        ]
        self.image_keys: dict[str, str] = {}
        all_episodes = self._read_episodes()
        stats = dataset_statistics
        if isinstance(stats, (str, os.PathLike)):
            stats = json.loads(Path(stats).read_text())
        self.statistics: dict[str, Any] = stats or self._count_statistics(all_episodes)
        width = next(iter(all_episodes.values()))["action"].shape[-1]
        self.absolute: Any = self._as_mask(
            "absolute_action_mask", absolute_action_mask, width, False
        )
        mask = self._as_mask("action_normalization_mask", action_normalization_mask, width, True)
        if action_normalization_mask is not None:
            self.statistics["action"]["mask"] = mask
        self.episodes: dict[int, dict[str, Any]] = {
            i: all_episodes[i] for i in self._split_episodes(train)
        }
        for episode in self.episodes.values():
            for key in ("action", "proprio"):
                episode[key] = self._normalized(key, episode[key])

    def _as_mask(self, option: str, mask: Any, width: int, default: bool) -> np.ndarray:
        """Returns a mask as a bool array of the width of the actions; None: default everywhere."""
        out = np.full(width, default) if mask is None else np.asarray(mask, bool)
        if out.shape != (width,):
            raise Misuse(f"{option}: {out.size} values for {width} actions", {"dataset": self.name})
        return out

    def _split_episodes(self, train: bool) -> list[int]:
        """Returns the indices of the episodes of the training or the validation split.

        Without a split "val", the last 5 % of "train" are for validation.
        """
        if "val" in self.dataset.splits:
            return self.dataset.split("train" if train else "val").episode_indices.tolist()
        indices = self.dataset.split("train").episode_indices.tolist()
        cut = round(len(indices) * 0.95)
        return indices[:cut] if train else indices[cut:]

    def _read_episodes(self) -> dict[int, dict[str, Any]]:
        """Returns the standardized numbers of all episodes, read in large steps."""
        keys = [k for k, f in self.dataset.features.items() if f.kind not in ("image", "video")]
        rows = MapDataset(self.dataset, keys=keys, split="all")
        lengths = self.dataset.episodes["lengths"].tolist()
        out: dict[int, dict[str, Any]] = {}
        # The episodes of the next read, with their lengths. `begin` is the first row of the read.
        begin, waiting = 0, []
        for index, n in zip(self.dataset.episode_indices.tolist(), lengths, strict=True):
            waiting.append((index, n))
            count = sum(n for _, n in waiting)
            is_last = len(out) + len(waiting) == len(lengths)
            if count < _READ_ROWS and not is_last:
                continue
            batch = rows.batch(range(begin, begin + count))
            arrays = {k: np.asarray(v) for k, v in batch.items()}
            start = 0
            for episode, n in waiting:
                part = {k: v[start : start + n].copy() for k, v in arrays.items()}
                out[episode] = self._standardized(episode, n, part)
                start += n
            begin, waiting = begin + count, []
        rows.close()
        return out

    def _standardized(self, index: int, n: int, arrays: dict[str, Any]) -> dict[str, Any]:
        """Returns the numbers of an episode after standardize_fn.

        standardize_fn receives row numbers in place of images. The row numbers in its result are
        the rows whose images belong to the actions.

        Args:
            index: The index of the episode.
            n: The number of its rows.
            arrays: The rows of its streams of numbers and texts.

        Returns:
            {"action": (T, D), "proprio": (T, P), "rows": (T,), "text": T texts}.
        """
        trajectory: dict[str, Any] = {}
        for key, feature in self.dataset.features.items():
            is_image = feature.kind in ("image", "video")
            value = np.arange(n, dtype=np.int64) if is_image else arrays[key]
            path = key.split(".")
            path = ["traj_metadata", *path] if path[0] == "episode_metadata" else path
            parent = trajectory  # The dict for the last part of the path.
            for part in path[:-1]:
                parent = parent.setdefault(part, {})
            parent[path[-1]] = value
        where = {"dataset": self.dataset.uri, "episode": index}
        try:
            standard = self._standardize(trajectory) if self._standardize else trajectory
            observation = standard["observation"]
            action = np.asarray(standard["action"], np.float32)
            states = [
                np.zeros((len(action), 1), np.float32)
                if k is None
                else np.asarray(observation[k], np.float32).reshape(len(action), -1)
                for k in self._states
            ]
            texts = standard[self._language] if self._language else [""] * len(action)
            cameras = [k for k in self._images.values() if k is not None] or [
                k for k in self._cameras if k in observation
            ]
            rows = [np.asarray(observation[k]) for k in cameras] or [np.arange(n)]
        except (KeyError, TypeError, ValueError, IndexError) as e:
            raise Misuse(f"standardize_fn: {type(e).__name__}: {e}", where) from e
        if len({r.tobytes() for r in rows}) > 1 or len(rows[0]) != len(action):
            raise Misuse("standardize_fn: images and actions have different rows", where)
        for name, key in self._images.items():
            if key is not None and name not in self.image_keys:
                self.image_keys[name] = self._stored_key(key)
        texts = [t.decode() if isinstance(t, bytes) else str(t) for t in np.asarray(texts).ravel()]
        proprio = np.concatenate(states, 1) if states else np.zeros_like(action)
        return {"action": action, "proprio": proprio, "rows": rows[0], "text": texts}

    def _stored_key(self, key: str) -> str:
        """Returns the key of a camera in the dataset."""
        found = [k for k in self.dataset.features if k in (f"observation.{key}", key)]
        if not found:
            raise Misuse(
                f"image_obs_keys: {key!r} is not a camera of the dataset",
                {"dataset": self.dataset.uri},
                "cameras keep their names in standardize_fn",
            )
        return found[0]

    def _count_statistics(self, episodes: Mapping[int, Any]) -> dict[str, Any]:
        """Returns the statistics of all episodes, with sums in float32 as in OpenVLA."""
        out: dict[str, Any] = {}
        for key in ("action", "proprio"):
            x = np.concatenate([e[key] for e in episodes.values()])
            out[key] = {
                "mean": x.mean(0),
                "std": x.std(0),
                "max": x.max(0),
                "min": x.min(0),
                "q01": _quantile(x, 0.01),
                "q99": _quantile(x, 0.99),
            }
            out[key] = {k: v.astype(np.float64) for k, v in out[key].items()}
        out["num_transitions"] = sum(len(e["action"]) for e in episodes.values())
        out["num_trajectories"] = len(episodes)
        return out

    def _normalized(self, key: str, x: np.ndarray) -> np.ndarray:
        """Returns actions or proprioception in the model's scale.

        TensorFlow computes this in float32, so each constant is rounded to float32 first.
        """
        stats = {k: np.asarray(v) for k, v in self.statistics[key].items()}
        single = {k: v.astype(np.float32) for k, v in stats.items()}
        mask = stats.get("mask", np.ones(x.shape[-1], bool))
        if self._kind == "normal":
            scale = (stats["std"] + 1e-8).astype(np.float32)
            return np.where(mask, (x - single["mean"]) / scale, x)
        low, high = ("min", "max") if self._kind == "bounds" else ("q01", "q99")
        scale = (stats[high] - stats[low] + 1e-8).astype(np.float32)
        two, one = np.float32(2), np.float32(1)
        out = np.where(mask, np.clip(two * (x - single[low]) / scale - one, -1, 1), x)
        return np.where(stats["min"] == stats["max"], np.float32(0), out)


class _Inputs:
    """Completes batches of images with the numbers of their episodes.

    Attributes:
        tables: The sources.
        window: The number of observations of a sample. The last one is the current step.
        future: The number of actions after the current step.
        names: The names of the cameras of all sources.
        size: (height, width) of the black images of a camera that no dataset has.
    """

    def __init__(self, tables: Sequence[SourceTable], window: int, future: int) -> None:
        self.tables: Sequence[SourceTable] = tables
        self.window: int = window
        self.future: int = future
        self.names: list[str] = list(dict.fromkeys(n for t in tables for n in t._images))
        self.size: tuple[int, int] = (1, 1)

    def complete(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the samples of a batch in OpenVLA's form, as NumPy arrays."""
        episodes = np.asarray(batch["episode_index"]).ravel().tolist()
        frames = np.asarray(batch["frame_index"]).ravel().tolist()
        sources = np.asarray(batch.get("dataset_index", [0] * len(frames))).ravel().tolist()
        offsets = np.arange(1 - self.window, 1 + self.future)
        actions, proprio, steps, texts, names = [], [], [], [], []
        for source, index, frame in zip(sources, episodes, frames, strict=True):
            table = self.tables[source]
            episode = table.episodes[index]
            t = int(np.searchsorted(episode["rows"], frame))  # The step of this row.
            wanted, last = t + offsets, len(episode["action"]) - 1
            chunk = episode["action"][np.clip(wanted, 0, last)]
            # After the end, absolute actions repeat the last one, and the others are 0.
            actions.append(np.where((wanted > last)[:, None] & ~table.absolute, 0, chunk))
            seen = np.clip(wanted[: self.window], 0, None)
            proprio.append(episode["proprio"][seen])
            steps.append(t)
            texts.append(episode["text"][t])
            names.append(table.name)
        # (B, window). Steps before the start of the episode are negative.
        observed = np.array(steps)[:, None] + offsets[: self.window]
        images = {n: self._images(n, batch, observed) for n in self.names}
        observation = {f"image_{n}": pixels for n, (pixels, _) in images.items()}
        observation["timestep"] = np.maximum(observed, 0).astype(np.int32)
        observation["pad_mask"] = observed >= 0
        if any(t._states for t in self.tables):
            observation["proprio"] = np.stack(proprio)
        observation["pad_mask_dict"] = {
            f"image_{n}": is_frame for n, (_, is_frame) in images.items()
        }
        return {
            "observation": observation,
            "task": {"language_instruction": texts},
            "action": np.stack(actions),
            "dataset_name": names,
        }

    def _images(self, name: str, batch: Mapping[str, Any], observed: np.ndarray) -> Any:
        """Returns the images of a camera, and whether its dataset has the camera.

        Args:
            name: The name of the camera.
            batch: The batch of the loader.
            observed: The steps of the images, (B, window). Negative: before the episode.

        Returns:
            (uint8 (B, window, H, W, 3), bool (B, window)).
        """
        if f"image_{name}" not in batch:  # A camera that no dataset has.
            black = np.zeros((*observed.shape, *self.size, 3), np.uint8)
            return black, np.zeros(observed.shape, bool)
        pixels = np.asarray(batch[f"image_{name}"])
        if self.window == 1 and pixels.ndim == 4:
            pixels = pixels[:, None]
        pixels = pixels if observed.min() >= 0 else pixels.copy()
        # Before the first step, the loader delivers padding or rows that standardize_fn left out.
        # The image of the first step replaces them.
        for i, before in enumerate((observed < 0).sum(1).tolist()):
            pixels[i, :before] = pixels[i, before]
        is_pad = np.asarray(batch.get(f"image_{name}_is_pad", np.zeros(len(observed), bool)))
        has_camera = ~is_pad.reshape(len(observed), -1).all(1)
        return pixels, np.repeat(has_camera[:, None], self.window, 1)


class Trajectories:
    """The trajectories of one dataset: iteration delivers each as a batch of its steps."""

    def __init__(self, inputs: _Inputs, options: Mapping[str, Any]) -> None:
        self._inputs, (table,) = inputs, inputs.tables
        images = table.image_keys
        self._names = {key: f"image_{name}" for name, key in images.items()}
        window = {"windows": Windows(rows={k: range(1 - inputs.window, 1) for k in self._names})}
        self._rows = MapDataset(
            table.dataset,
            keys=[*images.values(), "episode_index", "frame_index"],
            split="all",
            **(window if inputs.window > 1 else {}),
            **options,
        )
        lengths = table.dataset.episodes["lengths"]
        begins = np.cumsum(lengths) - lengths
        self._begins = dict(zip(table.dataset.episode_indices.tolist(), begins.tolist()))

    def __len__(self) -> int:
        """Returns the number of trajectories."""
        return len(self._inputs.tables[0].episodes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index, episode in self._inputs.tables[0].episodes.items():
            batch = self._rows.batch((self._begins[index] + episode["rows"]).tolist())
            yield self._inputs.complete({self._names.get(k, k): v for k, v in batch.items()})


class Frames:
    """Batches of steps of a mixture, without end. Each epoch has dataset_len steps.

    Attributes:
        loader: The robocache.Loader. Its state_dict() and load_state_dict() continue exactly.
        sample_weights: The shares of the datasets.
    """

    def __init__(self, inputs: _Inputs, loader: Loader, sample_weights: np.ndarray) -> None:
        self._inputs = inputs
        self.loader: Loader = loader
        self.sample_weights: np.ndarray[Any, Any] = sample_weights

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            for batch in self.loader:
                yield self._inputs.complete(batch)

    def as_numpy_iterator(self) -> Iterator[dict[str, Any]]:
        """Returns iter(self), as tf.data's method of this name."""
        return iter(self)


def _open_tables(
    kwargs: Sequence[Mapping[str, Any]], train: bool, traj_transform_kwargs: Mapping[str, Any]
) -> _Inputs:
    """Returns the sources, without the episodes that traj_transform_kwargs leaves out.

    Args:
        kwargs: Arguments of SourceTable, one dict per dataset.
        train: Whether to use the training or the validation split.
        traj_transform_kwargs: As in make_single_dataset.
    """
    options: dict[str, Any] = {
        "num_parallel_calls": None,
        "subsample_length": None,
        "task_augment_strategy": None,
        "goal_relabeling_strategy": None,
        "skip_unlabeled": False,
        "window_size": 1,
        "future_action_window_size": 0,
        "max_action": None,
        "max_proprio": None,
    }
    if unknown := traj_transform_kwargs.keys() - options.keys():
        raise Misuse(f"traj_transform_kwargs: unknown option {min(unknown)!r}")
    options |= dict(traj_transform_kwargs)
    for name in ("goal_relabeling_strategy", "subsample_length", "task_augment_strategy"):
        if options[name] is not None:
            raise Unsupported(f"traj_transform_kwargs: {name}={options[name]!r} is not available")

    def is_kept(episode: Mapping[str, Any]) -> bool:
        """Reports whether an episode has the required text and no value above the limits."""
        if options["skip_unlabeled"] and not any(episode["text"]):
            return False
        for key, limit in (("action", options["max_action"]), ("proprio", options["max_proprio"])):
            if limit and (abs(episode[key]) > limit).any():
                return False
        return True

    tables = [SourceTable(**k, train=train) for k in kwargs]
    for table in tables:
        if options["skip_unlabeled"] and not table._language:
            raise Misuse("skip_unlabeled=True without language_key", {"dataset": table.name})
        table.episodes = {i: e for i, e in table.episodes.items() if is_kept(e)}
        if not table.episodes:
            raise Misuse("no episode is left for this split", {"dataset": table.name})
    return _Inputs(tables, options["window_size"], options["future_action_window_size"])


def _image_options(frame: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {"images": Images} for frame_transform_kwargs.

    Images are scaled with TensorFlow's Lanczos filter, as dlimp does.
    """
    known = {"resize_size", "depth_resize_size", "num_parallel_calls"}
    if unknown := frame.keys() - known:
        raise Unsupported(
            f"frame_transform_kwargs: {min(unknown)!r} is not available",
            hint="pass augment=robocache.Augment(...) for changes of images",
        )
    sizes = frame.get("resize_size") or {}
    sizes = set(map(tuple, sizes.values())) if isinstance(sizes, Mapping) else {tuple(sizes)}
    if len(sizes) > 1:
        raise Unsupported(f"resize_size: cameras of different sizes: {sorted(sizes)}")
    scaled = {"size": size, "filter": "tf-lanczos3"} if (size := next(iter(sizes), None)) else {}
    return {"images": Images(layout="hwc", **scaled)}


def make_single_dataset(
    dataset_kwargs: Mapping[str, Any],
    *,
    train: bool,
    traj_transform_kwargs: Mapping[str, Any] | None = None,
    frame_transform_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Trajectories, int, dict[str, Any]]:
    """Returns (trajectories, number of trajectories, statistics), as OpenVLA's function.

    Args:
        dataset_kwargs: Arguments of SourceTable.
        train: Whether to use the training or the validation split.
        traj_transform_kwargs: window_size, future_action_window_size, skip_unlabeled, max_action
            and max_proprio. Default None: single steps.
        frame_transform_kwargs: resize_size. Default None: as recorded.

    Raises:
        Misuse: An option is unknown, or standardize_fn fails.
        Unsupported: An option is not available: goal relabelling, subsampling, augmentation, depth.
    """
    inputs = _open_tables([dataset_kwargs], train, traj_transform_kwargs or {})
    statistics = inputs.tables[0].statistics
    options = _image_options(frame_transform_kwargs or {})
    inputs.size = options["images"].size or inputs.size
    made = Trajectories(inputs, options)
    return made, statistics["num_trajectories"], statistics


def make_interleaved_dataset(
    dataset_kwargs_list: Sequence[Mapping[str, Any]],
    sample_weights: Sequence[float] | None = None,
    *,
    train: bool,
    shuffle_buffer_size: int | None = None,
    traj_transform_kwargs: Mapping[str, Any] | None = None,
    frame_transform_kwargs: Mapping[str, Any] | None = None,
    batch_size: int = 1,
    balance_weights: bool = False,
    traj_transform_threads: int | None = None,
    traj_read_threads: int | None = None,
    **options: Any,
) -> tuple[Frames, int, dict[str, Any]]:
    """Returns (batches of steps, steps of an epoch, {name: statistics}), as OpenVLA's function.

    The order is an exact permutation, not a buffer: shuffle_buffer_size has no effect.

    Args:
        dataset_kwargs_list: Arguments of SourceTable, one dict per dataset.
        sample_weights: The share of each dataset. Default None: equal.
        train: Whether to use the training or the validation split.
        shuffle_buffer_size: No effect.
        traj_transform_kwargs: As in make_single_dataset.
        frame_transform_kwargs: As in make_single_dataset.
        batch_size: Steps per batch. Default 1.
        balance_weights: Whether to multiply the weights by the numbers of steps. Default False.
        traj_transform_threads: No effect; options may have threads.
        traj_read_threads: No effect.
        options: Other options of robocache.Loader, such as threads, seed or shuffle="pool".

    Raises:
        Misuse: An option is unknown, or standardize_fn fails.
        Unsupported: An option is not available: goal relabelling, subsampling, augmentation, depth.

    Example:
        data, steps, statistics = make_interleaved_dataset(
            [{"name": "bridge_dataset", "data_dir": "data", "image_obs_keys": {"primary": "image_0"}}],
            train=True, frame_transform_kwargs={"resize_size": (224, 224)}, batch_size=32)
    """
    inputs = _open_tables(dataset_kwargs_list, train, traj_transform_kwargs or {})
    tables = inputs.tables
    weights = np.asarray(sample_weights or [1.0] * len(tables), np.float64)
    if weights.shape != (len(tables),):
        raise Misuse(f"sample_weights: {weights.size} weights for {len(tables)} datasets")
    sizes = np.array([t.statistics["num_transitions"] for t in tables])
    primary = weights == 1.0  # As in OpenVLA, these datasets set the length of an epoch.
    weights = weights * sizes if balance_weights else weights
    weights = weights / weights.sum()
    if not primary.any():
        raise Misuse("sample_weights: no dataset has the weight 1.0, which sets the epoch")
    length = int((sizes / weights)[primary].max())
    stored = {name for t in tables for name in t.image_keys}
    cameras = [f"image_{name}" for name in inputs.names if name in stored]
    images = _image_options(frame_transform_kwargs or {})
    inputs.size = images["images"].size or inputs.size
    window = {k: range(1 - inputs.window, 1) for k in cameras} if inputs.window > 1 else None
    loader = Loader(
        [
            Mix(
                t.dataset,
                weight=float(w),
                episodes=list(t.episodes),
                rename={key: f"image_{name}" for name, key in t.image_keys.items()},
            )
            for t, w in zip(tables, weights, strict=True)
        ],
        keys=[*cameras, "episode_index", "frame_index"],
        batch_size=batch_size,
        windows=Windows(rows=window, missing="pad"),
        order=_trim_episodes(tables),
        mixture=Mixture(epoch_size=length),
        **images,
        **options,
    )
    return Frames(inputs, loader, weights), length, {t.name: t.statistics for t in tables}


def _trim_episodes(tables: Sequence[SourceTable]) -> Order:
    """Returns the Order that leaves out the rows that each standardize_fn leaves out.

    Raises Unsupported if episodes differ in the number of rows that are left out at their ends.
    """
    first, last = set(), set()  # The numbers of rows left out at the start and at the end.
    for table in tables:
        lengths = table.dataset.episodes["lengths"]
        length = dict(zip(table.dataset.episode_indices.tolist(), lengths.tolist()))
        for index, episode in table.episodes.items():
            rows = episode["rows"]
            if len(rows) == 0 or not np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
                raise Unsupported("standardize_fn leaves out rows inside an episode")
            first.add(int(rows[0]))
            last.add(length[index] - 1 - int(rows[-1]))
    if len(first) > 1 or len(last) > 1:
        raise Unsupported("standardize_fn leaves out different numbers of rows at the ends")
    return Order(drop_n_first_frames=first.pop(), drop_n_last_frames=last.pop())
