"""One RLDS dataset with the numbers that a trainer's standardization function makes of it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks
from ._derive import EpisodeArrays, derived_dataset
from ._errors import Misuse, Unsupported
from ._window_statistics import window_statistics
from .dataset import Dataset
from .mapdataset import MapDataset
from .options import Windows
from .vectors import Part, Vector

__all__ = ["GOAL_STEP", "SourceTable"]

_KEY = "standardized"  # The derived stream: actions, proprioception, the step and the text.
GOAL_STEP = "step_of_row"  # The derived stream with the step of each row.
_NORMS = {
    "normal": ("mean_std", {"mean": "mean", "std": "std"}),
    "bounds": ("min_max", {"low": "min", "high": "max"}),
    "bounds_q99": ("quantiles", {"low": "q01", "high": "q99"}),
}


class SourceTable:
    """One RLDS dataset with its standardized numbers as a derived stream.

    The arguments are those of OpenVLA's make_dataset_from_rlds, with these differences:

    Args:
        name: The folder of the dataset in data_dir, "name" or "name:version".
        data_dir: The folder of datasets, or a URI.
        train: Whether to use the training or the validation split. Without a split "val", the last
            5 % of the episodes of "train" are for validation.
        standardize_fn: Called once per episode with a nested dict of NumPy arrays (rows first), as
            OpenVLA's functions; those run too if TensorFlow is installed. Images are row numbers,
            so that the function can leave out rows at both ends. Default None: as stored.
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
        dataset: The dataset with the derived stream.
        images: image_obs_keys.
        states: state_obs_keys.
        image_keys: {name: key of the dataset}, of the images that it has.
        statistics: {"action" and "proprio": {"mean", "std", "min", "max", "q01", "q99"},
            "num_transitions", "num_trajectories"}.
        lengths: {episode: steps} of the split.
        texts: The instructions, by number.
        absolute: bool (D,): the actions that are repeated after the end of an episode.
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
        kind = action_proprio_normalization_type
        kind = _checks.check_choice("normalization_type", getattr(kind, "value", kind), _NORMS)
        self._norm = _NORMS[kind]
        self.name = name
        self._standardize = standardize_fn
        self.images: dict[str, str | None] = dict(image_obs_keys or {})
        self.states: list[str | None] = list(state_obs_keys)
        self._language = language_key
        folder = os.path.join(_checks.path_text(data_dir), *name.split(":"))
        self._stored = Dataset(folder, format="rlds")
        self._codes = {"": 0}  # {instruction: its number}.
        self._labeled: set[int] = set()  # The episodes with an instruction.
        self._margins: tuple[int, int] | None = None  # Rows left out at the start and at the end.
        self._widths = [0, 0]  # The numbers of actions and of proprioception.
        self.image_keys: dict[str, str] = {}
        derive = {_KEY: self._standard_rows, GOAL_STEP: self._steps}
        self.dataset: Dataset = derived_dataset(self._stored, derive, split="all")
        self.texts: list[str] = list(self._codes)
        stats = dataset_statistics
        if isinstance(stats, (str, os.PathLike)):
            stats = json.loads(Path(stats).read_text())
        self.statistics: dict[str, Any] = stats or self._count_statistics()
        absolute = self._as_mask("absolute_action_mask", absolute_action_mask, False)
        self.absolute: np.ndarray[Any, Any] = absolute
        mask = self._as_mask("action_normalization_mask", action_normalization_mask, True)
        if action_normalization_mask is not None:
            self.statistics["action"]["mask"] = mask
        lengths = self._stored.episodes["lengths"] - sum(self._margins or ())
        counts = dict(zip(self._stored.episode_indices.tolist(), lengths.tolist()))
        self.lengths: dict[int, int] = {i: counts[i] for i in self._split_episodes(train)}

    def _as_mask(self, option: str, mask: Any, default: bool) -> np.ndarray:
        """Returns a mask of the actions as a bool array; None: default everywhere."""
        width = self._widths[0]
        out = np.full(width, default) if mask is None else np.asarray(mask, bool)
        if out.shape != (width,):
            raise Misuse(f"{option}: {out.size} values for {width} actions", {"dataset": self.name})
        return out

    def _split_episodes(self, train: bool) -> list[int]:
        """Returns the indices of the episodes of the training or the validation split."""
        if "val" in self._stored.splits:
            return self._stored.split("train" if train else "val").episode_indices.tolist()
        indices = self._stored.split("train").episode_indices.tolist()
        cut = round(len(indices) * 0.95)
        return indices[:cut] if train else indices[cut:]

    def _standard_rows(self, arrays: EpisodeArrays) -> np.ndarray:
        """Returns the derived rows of an episode: actions, proprioception, step, text.

        The last step is in the last row, so that rows after it are outside the episode.
        """
        episode, stored_rows = arrays.episode, len(arrays.episode)
        trajectory: dict[str, Any] = {}
        for key, feature in self._stored.features.items():
            is_image = feature.kind in ("image", "video")
            # Row numbers stand for images.
            value = np.arange(stored_rows) if is_image else np.array(episode.streams[key].values)
            *path, last = key.split(".")
            path = ["traj_metadata", *path] if key.startswith("episode_metadata.") else path
            parent = trajectory
            for part in path:
                parent = parent.setdefault(part, {})
            parent[last] = value
        try:
            action, proprio, rows, texts = self._read_standard(trajectory, stored_rows)
        except (KeyError, TypeError, ValueError, IndexError) as e:
            raise Misuse(f"standardize_fn: {type(e).__name__}: {e}") from e
        if any(len(r) != len(action) or not np.array_equal(r, rows[0]) for r in rows):
            raise Misuse("standardize_fn: images and actions have different rows")
        margins = int(rows[0][0]), stored_rows - 1 - int(rows[0][-1])
        if not np.array_equal(rows[0], np.arange(margins[0], stored_rows - margins[1])):
            raise Unsupported("standardize_fn leaves out rows inside an episode")
        if margins != (self._margins or margins):
            raise Unsupported("standardize_fn leaves out different numbers of rows at the ends")
        self._margins, self._widths = margins, [action.shape[1], proprio.shape[1]]
        if any(texts):
            self._labeled.add(episode.index)
        codes = [self._codes.setdefault(t, len(self._codes)) for t in texts]
        steps = np.stack([np.arange(len(codes)), codes], 1)
        values = np.concatenate([action, proprio, steps], 1, dtype=np.float32)
        return values[np.maximum(np.arange(stored_rows) - sum(margins), 0)]

    def _steps(self, arrays: EpisodeArrays) -> np.ndarray:
        """Returns the step of each stored row."""
        return np.arange(len(arrays.episode)) - (self._margins or (0,))[0]

    def _read_standard(self, trajectory: dict[str, Any], n: int) -> tuple[Any, Any, Any, Any]:
        """Returns actions, proprioception, the rows of each camera, and texts of n stored rows."""
        standard = self._standardize(trajectory) if self._standardize else trajectory
        observation = standard["observation"]
        action = np.asarray(standard["action"], np.float32)
        parts = [
            np.zeros((len(action), 1), np.float32)
            if k is None
            else np.asarray(observation[k], np.float32).reshape(len(action), -1)
            for k in self.states
        ]
        texts = standard[self._language] if self._language else [""] * len(action)
        texts = [t.decode() if isinstance(t, bytes) else str(t) for t in np.asarray(texts).ravel()]
        features = self._stored.features
        cameras = [k for k, f in features.items() if f.kind in ("image", "video")]
        used = {name: k for name, k in self.images.items() if k is not None}
        names = (k.removeprefix("observation.") for k in cameras)
        shown = [*used.values()] or [k for k in names if k in observation]
        rows = [np.asarray(observation[k]) for k in shown] or [np.arange(n)]
        for name, key in used.items():
            found = [k for k in (f"observation.{key}", key) if k in features]
            if not found:
                hint = "Keep the names of cameras in standardize_fn."
                raise Misuse(f"image_obs_keys: {key!r} is not a camera of the dataset", hint=hint)
            self.image_keys[name] = found[0]
        proprio = np.concatenate(parts, 1) if parts else np.zeros_like(action)
        return action, proprio, rows, texts

    def _columns(self, key: str) -> range:
        """Returns the columns of "action" or "proprio" in the derived stream."""
        width, more = self._widths
        return range(width) if key == "action" else range(width, width + more)

    def _count_statistics(self) -> dict[str, Any]:
        """Returns the statistics of all episodes, with sums in float32 as in OpenVLA."""
        one = {
            key: Vector(parts=[Part(_KEY, columns=self._columns(key), precision="float32")])
            for key in ("action", "proprio")
        }
        dropped = sum(self._margins or ())
        found = window_statistics(self.dataset, one, drop_n_first_frames=dropped, single_sums=True)
        names = ("mean", "std", "max", "min", "q01", "q99")
        out: dict[str, Any] = {k: {n: s[n] for n in names} for k, s in found.items()}
        steps = int(found["action"]["count"][0])
        return out | {"num_transitions": steps, "num_trajectories": len(self._stored)}

    def _parts(self, key: str) -> list[Part]:
        """Returns the parts of "action" or "proprio", normalized in float32 as in TensorFlow."""
        stats = {k: np.asarray(v) for k, v in self.statistics[key].items()}
        columns = self._columns(key)
        mask = stats.get("mask", np.ones(len(columns), bool))
        mode, names = self._norm
        is_bounded = mode != "mean_std"
        is_constant = is_bounded & (stats["min"] == stats["max"])
        kinds = np.where(is_constant, "zero", np.where(mask, "scaled", "kept")).tolist()
        relative = ~self.absolute if key == "action" else np.zeros(len(columns), bool)
        parts = []
        for kind, run in itertools.groupby(range(len(columns)), kinds.__getitem__):
            own = list(run)
            norm: Any = {n: stats[s][own] for n, s in names.items()}
            norm |= {"mode": mode, "epsilon": 1e-8, "clip": is_bounded}
            if kind == "zero":
                norm = {"mode": "affine", "scale": [0.0] * len(own), "offset": [0.0] * len(own)}
            parts.append(
                Part(
                    _KEY,
                    name=f"{key}_{own[0]}",
                    columns=[columns[i] for i in own],
                    beyond="neutral",
                    pad_normalized=True,
                    is_relative=[j for j, i in enumerate(own) if relative[i]],
                    precision="float32",
                    norm=None if kind == "kept" else norm | {"precision": "float32"},
                )
            )
        return parts

    def vectors(self, window: int = 1, future: int = 0) -> dict[str, Vector]:
        """Returns the vectors of samples of window observations and future further actions.

        Windows(beyond={"step": "drop"}) then drops the rows that standardize_fn leaves out.
        """
        first, last = self._margins or (0, 0)
        seen = range(1 - window + last, 1 + last)
        return {
            "action": Vector(
                parts=self._parts("action"), rows=range(seen.start, seen.stop + future)
            ),
            "proprio": Vector(parts=self._parts("proprio"), rows=seen),
            "step": Vector(parts=[Part(_KEY, sum(self._widths))], rows=[-first, last]),
        }

    @cached_property
    def episodes(self) -> dict[int, dict[str, Any]]:
        """The normalized numbers of each episode: {episode: {"action", "proprio"}}, (T, D)."""
        rows = MapDataset(
            self.dataset,
            keys=["frame_index"],
            episodes=list(self.lengths),
            vectors=self.vectors(),
            windows=Windows(beyond={"step": "drop"}),
        )
        out, begin = {}, 0
        for episode, n in self.lengths.items():
            batch = rows.batch(range(begin, begin + n))
            out[episode] = {k: np.asarray(batch[k])[:, 0] for k in ("action", "proprio")}
            begin += n
        rows.close()
        return out

    def keep(self, is_labeled: bool, max_action: float | None, max_proprio: float | None) -> None:
        """Leaves out episodes without an instruction, or with a normalized value above a limit."""
        if is_labeled and not self._language:
            raise Misuse("skip_unlabeled=True without language_key", {"dataset": self.name})
        kept = [i for i in self.lengths if not is_labeled or i in self._labeled]
        for key, limit in (("action", max_action), ("proprio", max_proprio)):
            if limit:
                kept = [i for i in kept if not (abs(self.episodes[i][key]) > limit).any()]
        self.lengths = {i: self.lengths[i] for i in kept}
        if not kept:
            raise Misuse("no episode is left for this split", {"dataset": self.name})
