"""Mixtures of RLDS datasets for trainers such as OpenVLA and Octo, without TensorFlow.

make_interleaved_dataset and make_single_dataset have the arguments of OpenVLA's functions. Episodes
are standardized once, when a dataset is opened. The engine normalizes numbers and cuts windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import Misuse, Unsupported
from ._rlds_source import SourceTable
from .loader import Loader
from .mapdataset import MapDataset
from .mix import Mix
from .options import Images, Mixture, Windows

__all__ = [
    "SourceTable",
    "Trajectories",
    "Frames",
    "make_single_dataset",
    "make_interleaved_dataset",
]

_TRAJECTORY = {
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


def _repeat_first(x: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Returns windows (B, T, ...) in which the rows before the first step repeat it.

    Args:
        x: The windows.
        before: The number of rows before the first step, (B,).
    """
    rows = np.maximum(np.arange(x.shape[1]), before[:, None])
    return x[np.arange(len(x))[:, None], rows] if before.any() else x


class _Samples:
    """The options of samples in OpenVLA's form, and the completion of their batches.

    The arguments are those of make_interleaved_dataset.

    Attributes:
        tables: The sources.
        windows: The rows of images, and the rule for rows outside an episode.
        images: The shape of images.
    """

    def __init__(
        self,
        kwargs: Sequence[Mapping[str, Any]],
        train: bool,
        trajectory: Mapping[str, Any] | None,
        frame: Mapping[str, Any] | None,
    ) -> None:
        options: dict[str, Any] = _TRAJECTORY | dict(trajectory or {})
        if unknown := options.keys() - _TRAJECTORY.keys():
            raise Misuse(f"traj_transform_kwargs: unknown option {min(unknown)!r}")
        for name in ("goal_relabeling_strategy", "task_augment_strategy"):
            if options[name] is not None:
                raise Unsupported(f"traj_transform_kwargs: {name}={options[name]!r}")
        self.images: Images = _image_options(frame or {}, train)
        self.window: int = options["window_size"]
        self.future: int = options["future_action_window_size"]
        self.tables: list[SourceTable] = [SourceTable(**k, train=train) for k in kwargs]
        limit = options["subsample_length"]
        for t in self.tables:
            t.keep(options["skip_unlabeled"], options["max_action"], options["max_proprio"])
            if train and limit is not None and max(t.lengths.values()) > limit:
                where = {"dataset": t.name}
                raise Unsupported(f"subsample_length={limit}: an episode has more steps", where)
        self._names = list(dict.fromkeys(n for t in self.tables for n in t.images))

    def windows(self, keys: Iterable[str], **more: Any) -> Windows:
        """Returns the windows of images with the given keys."""
        rows = {k: range(1 - self.window, 1) for k in keys}
        return Windows(rows=rows, beyond={"step": "drop"}, **more)

    def complete(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the samples of a batch in OpenVLA's form, as NumPy arrays."""
        x = {k: v if isinstance(v, list) else np.asarray(v) for k, v in batch.items()}
        step, code = x["step"][:, 1].astype(np.int64).T
        sources = [self.tables[i] for i in x.get("dataset_index", step * 0).tolist()]
        observed = step[:, None] + np.arange(1 - self.window, 1)  # Before the first step: negative.
        before = (observed < 0).sum(1)
        observation: dict[str, Any] = {}
        pads = {}
        for key in (f"image_{name}" for name in self._names):
            if key in x:
                observation[key] = _repeat_first(x[key], before)
                pad = x.get(f"{key}_is_pad", observed < 0)
                # A window of a camera has its last row. A source without the camera has none.
                pads[key] = np.repeat(~pad[:, -1:], self.window, 1)
            else:  # A camera that no dataset has.
                size = self.images.size or (1, 1)
                observation[key] = np.zeros((*observed.shape, *size, 3), np.uint8)
                pads[key] = np.zeros(observed.shape, bool)
        observation["timestep"] = np.maximum(observed, 0).astype(np.int32)
        observation["pad_mask"] = observed >= 0
        if any(t.states for t in self.tables):
            observation["proprio"] = _repeat_first(x["proprio"], before)
        observation["pad_mask_dict"] = pads
        texts = [t.texts[i] for t, i in zip(sources, code.tolist(), strict=True)]
        return {
            "observation": observation,
            "task": {"language_instruction": texts},
            "action": _repeat_first(x["action"], before),
            "dataset_name": [t.name for t in sources],
        }


class Trajectories:
    """The trajectories of one dataset: iteration delivers each as a batch of its steps."""

    def __init__(self, samples: _Samples) -> None:
        self._samples, (table,) = samples, samples.tables
        self._names = {key: f"image_{name}" for name, key in table.image_keys.items()}
        self._lengths = table.lengths
        self._rows = MapDataset(
            table.dataset,
            keys=[*self._names, "frame_index"],
            episodes=list(table.lengths),
            vectors=table.vectors(samples.window, samples.future),
            windows=samples.windows(self._names),
            images=samples.images,
        )

    def __len__(self) -> int:
        """Returns the number of trajectories."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begin = 0
        for n in self._lengths.values():
            batch = self._rows.batch(range(begin, begin := begin + n))
            yield self._samples.complete({self._names.get(k, k): v for k, v in batch.items()})


class Frames:
    """Batches of steps of a mixture, without end. Each epoch has dataset_len steps.

    Attributes:
        loader: The robocache.Loader. Its state_dict() and load_state_dict() continue exactly.
        sample_weights: The shares of the datasets.
    """

    def __init__(self, samples: _Samples, loader: Loader, sample_weights: np.ndarray) -> None:
        self._samples = samples
        self.loader: Loader = loader
        self.sample_weights: np.ndarray[Any, Any] = sample_weights

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            yield from map(self._samples.complete, self.loader)

    def as_numpy_iterator(self) -> Iterator[dict[str, Any]]:
        """Returns iter(self), as tf.data's method of this name."""
        return iter(self)


def _image_options(frame: Mapping[str, Any], train: bool) -> Images:
    """Returns Images for frame_transform_kwargs, with TensorFlow's Lanczos filter, as dlimp has."""
    known = {"resize_size", "depth_resize_size", "num_parallel_calls", "image_augment_kwargs"}
    if unknown := frame.keys() - known:
        raise Misuse(f"frame_transform_kwargs: unknown option {min(unknown)!r}")
    if train and frame.get("image_augment_kwargs"):
        raise Unsupported(
            "image_augment_kwargs: TensorFlow's changes of images are not available",
            hint="Pass augment=robocache.Augment(…), which has torchvision's.",
        )
    sizes = frame.get("resize_size") or {}
    sizes = set(map(tuple, sizes.values())) if isinstance(sizes, Mapping) else {tuple(sizes)}
    if len(sizes) > 1:
        raise Unsupported(f"resize_size: cameras of different sizes: {sorted(sizes)}")
    size = next(iter(sizes), None)
    return Images(layout="hwc", size=size, filter="tf-lanczos3" if size else None)


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
    samples = _Samples([dataset_kwargs], train, traj_transform_kwargs, frame_transform_kwargs)
    statistics = samples.tables[0].statistics
    return Trajectories(samples), statistics["num_trajectories"], statistics


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

    The order is an exact permutation, not a buffer.

    Args:
        dataset_kwargs_list: Arguments of SourceTable, one dict per dataset.
        sample_weights: The share of each dataset. Default None: equal.
        train: Whether to use the training or the validation split.
        shuffle_buffer_size: No effect, as traj_transform_threads and traj_read_threads.
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
    samples = _Samples(dataset_kwargs_list, train, traj_transform_kwargs, frame_transform_kwargs)
    tables = samples.tables
    weights = np.asarray(sample_weights or [1.0] * len(tables), np.float64)
    if weights.shape != (len(tables),):
        raise Misuse(f"sample_weights: {weights.size} weights for {len(tables)} datasets")
    sizes = np.array([t.statistics["num_transitions"] for t in tables])
    primary = weights == 1.0  # As in OpenVLA, these datasets set the length of an epoch.
    # OpenVLA counts the steps of all splits. Mixture(balance_weights=True) counts the samples.
    weights = weights * sizes if balance_weights else weights
    weights = weights / weights.sum()
    if not primary.any():
        raise Misuse("sample_weights: no dataset has the weight 1.0, which sets the epoch")
    length = int((sizes / weights)[primary].max())
    cameras = list(dict.fromkeys(f"image_{name}" for t in tables for name in t.image_keys))
    vectors = [t.vectors(samples.window, samples.future) for t in tables]
    sources = [
        Mix(
            t.dataset,
            weight=float(w),
            episodes=list(t.lengths),
            rename={key: f"image_{name}" for name, key in t.image_keys.items()},
            vectors=v,
        )
        for t, w, v in zip(tables, weights, vectors, strict=True)
    ]
    loader = Loader(
        sources,
        keys=[*cameras, "frame_index"],
        batch_size=batch_size,
        vectors=vectors[0],  # The rule for "step" needs its key here. Each source has its own.
        windows=samples.windows(cameras, missing="pad"),
        images=samples.images,
        mixture=Mixture(epoch_size=length),
        **options,
    )
    return Frames(samples, loader, weights), length, {t.name: t.statistics for t in tables}
