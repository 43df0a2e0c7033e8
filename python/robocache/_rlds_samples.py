"""The samples of OpenVLA's mixtures: the options of a loader, and the completion of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks
from ._errors import Misuse, Unsupported
from ._rlds_augment import ImageAugmentation
from ._rlds_source import GOAL_STEP, SourceTable
from .options import Images, Windows

__all__ = ["Samples"]

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


class Samples:
    """The options of samples in OpenVLA's form, and the completion of their batches.

    The arguments are those of make_interleaved_dataset.

    Attributes:
        tables: The sources.
        windows: The rows of images, and the rule for rows outside an episode.
        images: The shape of images.
        subsample_length: The most steps of a trajectory in an epoch. None: no limit.
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
        known = {"goal_relabeling_strategy": (None, "uniform"), "task_augment_strategy": (None,)}
        for name, values in known.items():
            if options[name] not in values:
                raise Unsupported(f"traj_transform_kwargs: {name}={options[name]!r}")
        self._has_goal = options["goal_relabeling_strategy"] is not None
        self.images: Images = _image_options(frame or {})
        changes = (frame or {}).get("image_augment_kwargs") if train else None
        self._augmentations = _augmentations_of(changes)  # By camera; "": all others.
        self.window: int = options["window_size"]
        self.future: int = options["future_action_window_size"]
        self.tables: list[SourceTable] = [SourceTable(**k, train=train) for k in kwargs]
        limit = options["subsample_length"] if train else None
        self.subsample_length: int | None = (
            None if limit is None else _checks.check_whole("subsample_length", limit)
        )
        for t in self.tables:
            t.keep(options["skip_unlabeled"], options["max_action"], options["max_proprio"])
        self._names = list(dict.fromkeys(n for t in self.tables for n in t.images))

    @property
    def has_augmentation(self) -> bool:
        """Whether images change at random."""
        return bool(self._augmentations)

    def episode_weights(self, table: SourceTable) -> dict[int, float] | None:
        """Returns the weights that leave subsample_length steps of longer episodes in an epoch."""
        limit = self.subsample_length
        if limit is None:
            return None
        return {e: limit / n for e, n in table.lengths.items() if n > limit}

    def windows(self, keys: Mapping[str, str], **more: Any) -> Windows:
        """Returns the windows and the goals of images, {key of the stream: image_<name>}."""
        if self._has_goal:
            goals = {f"goal_{image}": key for key, image in keys.items()}
            more["goal"] = goals | {"goal_step": GOAL_STEP}
        rows = {k: range(1 - self.window, 1) for k in keys}
        return Windows(rows=rows, beyond={"step": "drop"}, **more)

    def complete(self, batch: Mapping[str, Any], seed: Sequence[int] = ()) -> dict[str, Any]:
        """Returns the samples of a batch in OpenVLA's form, as NumPy arrays.

        Args:
            batch: The batch of a loader.
            seed: The seed of the batch's random changes of images. They depend only on the seed,
                the position in the batch and the camera.
        """
        columns = {k: v if isinstance(v, list) else np.asarray(v) for k, v in batch.items()}
        step, codes = columns["step"][:, 1].astype(np.int64).T
        sources = [self.tables[i] for i in columns.get("dataset_index", step * 0).tolist()]
        observed = step[:, None] + np.arange(1 - self.window, 1)  # Before the first step: negative.
        before = (observed < 0).sum(1)
        observation: dict[str, Any] = {}
        pads = {}
        for key in (f"image_{name}" for name in self._names):
            if key in columns:
                observation[key] = _repeat_first(columns[key], before)
                pad = columns.get(f"{key}_is_pad", observed < 0)
                # A window of a camera has its last row. A source without the camera has none.
                pads[key] = np.repeat(~pad[:, -1:], self.window, 1)
            else:  # A camera that no dataset has.
                size = self.images.size or (1, 1)
                observation[key] = np.zeros((*observed.shape, *size, 3), np.uint8)
                pads[key] = np.zeros(observed.shape, bool)
        observation["timestep"] = np.maximum(observed, 0).astype(np.int32)
        observation["pad_mask"] = observed >= 0
        if any(t.states for t in self.tables):
            observation["proprio"] = _repeat_first(columns["proprio"], before)
        observation["pad_mask_dict"] = pads
        texts = [t.texts[i] for t, i in zip(sources, codes.tolist(), strict=True)]
        task: dict[str, Any] = {"language_instruction": texts}
        action = _repeat_first(columns["action"], before)
        if self._has_goal:
            goal = columns["goal_step"].reshape(-1)
            absolute = np.stack([t.absolute for t in sources])
            action = self._neutral_after(action, goal - step, absolute)
            task["timestep"] = goal.astype(np.int32)
            task["pad_mask_dict"] = {"language_instruction": np.array([t != "" for t in texts])}
            for key, has_image in pads.items():
                black = np.zeros((len(goal), *observation[key].shape[2:]), np.uint8)
                task[key] = columns.get(f"goal_{key}", black)
                task["pad_mask_dict"][key] = has_image[:, 0]
        for camera, name in enumerate(self._names):
            augment = self._augmentations.get(name, self._augmentations.get(""))
            for i in np.nonzero(pads[f"image_{name}"][:, 0])[0] if augment else ():
                # As in OpenVLA, observation and goal share the draws of a camera.
                for images in (observation, task):
                    if (frames := images.get(f"image_{name}")) is not None:
                        rng = np.random.default_rng([*seed, int(i), camera])
                        shown = frames[i] if images is observation else frames[i, None]
                        frames[i] = augment(shown, rng).reshape(frames[i].shape)
        return {
            "observation": observation,
            "task": task,
            "action": action,
            "dataset_name": [t.name for t in sources],
        }

    def _neutral_after(self, action: Any, limit: np.ndarray, absolute: np.ndarray) -> np.ndarray:
        """Returns actions that are neutral after the goal: 0, or repeated if they are absolute.

        Args:
            action: The windows of actions, (B, T, D).
            limit: The steps from the sample to its goal, (B,).
            absolute: The absolute columns, (B, D).
        """
        rows = np.arange(action.shape[1])
        last = (limit + self.window - 1)[:, None]
        held = action[np.arange(len(action))[:, None], np.minimum(rows, last)]
        return np.where((rows > last)[..., None] & ~absolute[:, None], np.float32(0), held)


def _augmentations_of(kwargs: Any) -> dict[str, ImageAugmentation]:
    """Returns the random changes by camera, from arguments for all cameras or by camera."""
    if not kwargs:
        return {}
    if not isinstance(kwargs, Mapping) or "augment_order" in kwargs:
        return {"": ImageAugmentation(kwargs)}
    return {name: ImageAugmentation(one) for name, one in kwargs.items()}


def _image_options(frame: Mapping[str, Any]) -> Images:
    """Returns Images for frame_transform_kwargs, with TensorFlow's Lanczos filter, as dlimp has."""
    known = {"resize_size", "depth_resize_size", "num_parallel_calls", "image_augment_kwargs"}
    if unknown := frame.keys() - known:
        raise Misuse(f"frame_transform_kwargs: unknown option {min(unknown)!r}")
    sizes = frame.get("resize_size") or {}
    sizes = set(map(tuple, sizes.values())) if isinstance(sizes, Mapping) else {tuple(sizes)}
    if len(sizes) > 1:
        raise Unsupported(f"resize_size: cameras of different sizes: {sorted(sizes)}")
    size = next(iter(sizes), None)
    return Images(layout="hwc", size=size, filter="tf-lanczos3" if size else None)
