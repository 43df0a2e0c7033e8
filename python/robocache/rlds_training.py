"""Mixtures of RLDS datasets for trainers such as OpenVLA and Octo, without TensorFlow.

make_interleaved_dataset and make_single_dataset have the arguments of OpenVLA's functions. Episodes
are standardized once, when a dataset is opened. The engine normalizes numbers and cuts windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import Misuse
from ._rlds_samples import Samples
from ._rlds_source import SourceTable
from .loader import Loader
from .mapdataset import MapDataset
from .mix import Mix
from .options import Mixture

__all__ = [
    "SourceTable",
    "Trajectories",
    "Frames",
    "make_single_dataset",
    "make_interleaved_dataset",
]


class Trajectories:
    """The trajectories of one dataset: iteration delivers each as a batch of its steps."""

    def __init__(self, samples: Samples) -> None:
        self._samples, (table,) = samples, samples.tables
        self._names = {key: f"image_{name}" for name, key in table.image_keys.items()}
        self._lengths = table.lengths
        self._pass_number = 0  # Of the draws of subsample_length.
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
        begin, pass_number = 0, self._pass_number
        self._pass_number += 1
        for episode, n in self._lengths.items():
            batch = self._rows.batch(self._steps(begin, n, [pass_number, episode]))
            begin += n
            yield self._samples.complete({self._names.get(k, k): v for k, v in batch.items()})

    def _steps(self, begin: int, n: int, seed: list[int]) -> Sequence[int]:
        """Returns the samples of a trajectory: all in their order, or subsample_length at random.

        Args:
            begin: The first sample of the trajectory.
            n: The number of its samples.
            seed: The seed of the draw.
        """
        limit = self._samples.subsample_length
        if limit is None or n <= limit:
            return range(begin, begin + n)
        return (begin + np.random.default_rng(seed).permutation(n)[:limit]).tolist()


class Frames:
    """Batches of steps of a mixture, without end. Each epoch has dataset_len steps.

    Attributes:
        loader: The robocache.Loader. Its state_dict() and load_state_dict() continue exactly.
        sample_weights: The shares of the datasets.
    """

    def __init__(self, samples: Samples, loader: Loader, sample_weights: np.ndarray) -> None:
        self._samples = samples
        self.loader: Loader = loader
        self.sample_weights: np.ndarray[Any, Any] = sample_weights

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            for batch in self.loader:
                yield self._samples.complete(batch, self._augmentation_seed())

    def _augmentation_seed(self) -> list[int]:
        """Returns the seed of the random changes of the newest batch: its place in the order."""
        if not self._samples.has_augmentation:
            return []
        state = self.loader.state_dict()
        return [state[k] for k in ("seed", "epoch", "position", "rank")]

    def as_numpy_iterator(self) -> Iterator[dict[str, Any]]:
        """Returns iter(self), as tf.data's method of this name."""
        return iter(self)


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
        traj_transform_kwargs: window_size, future_action_window_size, skip_unlabeled, max_action,
            max_proprio, subsample_length and goal_relabeling_strategy="uniform". Default None:
            single steps.
        frame_transform_kwargs: resize_size and image_augment_kwargs. Default None: as recorded.

    Raises:
        Misuse: An option is unknown, or standardize_fn fails.
        Unsupported: An option is not available, such as depth.
    """
    samples = Samples([dataset_kwargs], train, traj_transform_kwargs, frame_transform_kwargs)
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
        Unsupported: An option is not available, such as depth.

    Example:
        data, steps, statistics = make_interleaved_dataset(
            [{"name": "bridge_dataset", "data_dir": "data", "image_obs_keys": {"primary": "image_0"}}],
            train=True, frame_transform_kwargs={"resize_size": (224, 224)}, batch_size=32)
    """
    samples = Samples(dataset_kwargs_list, train, traj_transform_kwargs, frame_transform_kwargs)
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
            episode_weights=samples.episode_weights(t),
        )
        for t, w, v in zip(tables, weights, vectors, strict=True)
    ]
    loader = Loader(
        sources,
        keys=[*cameras, "frame_index"],
        batch_size=batch_size,
        # windows has a rule for the vector "step", so the Loader must know a vector of this name.
        # The vectors of each Mix replace these.
        vectors=vectors[0],
        windows=samples.windows(dict(zip(cameras, cameras)), missing="pad"),
        images=samples.images,
        mixture=Mixture(epoch_size=length),
        **options,
    )
    return Frames(samples, loader, weights), length, {t.name: t.statistics for t in tables}
