"""The datasets of diffusion_policy and UMI over Zarr replay buffers, and a fast loader for them.

from robocache.diffusion_policy import ImageDataset as PushTImageDataset  # or in `_target_:`
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _checks, _memory
from ._errors import Misuse
from ._linear_normalizer import Field, Normalizer, fit_field, image_field
from .dataset import Dataset, as_dataset
from .loader import Loader as _Loader
from .mapdataset import MapDataset
from .options import Images, Order, Windows
from .vectors import Part, Vector

_LinearNormalizer: Any = None
if TYPE_CHECKING:
    _ImageBase = _LowdimBase = object
else:
    try:  # The workspaces of diffusion_policy check for these classes.
        from diffusion_policy.dataset.base_dataset import BaseImageDataset as _ImageBase
        from diffusion_policy.dataset.base_dataset import BaseLowdimDataset as _LowdimBase
        from diffusion_policy.model.common.normalizer import LinearNormalizer as _LinearNormalizer
    except ImportError:
        from .mapdataset import _Base as _ImageBase, _Base as _LowdimBase

__all__ = ["ImageDataset", "LowdimDataset", "Loader", "Field", "Normalizer"]

Source = str | tuple[str, int, int]  # A key, or a key with the first and the end column.


def _train_episodes(count: int, ratio: float, seed: int, most: int | None) -> np.ndarray:
    """Returns which episodes are for training, as diffusion_policy draws them."""
    train = np.ones(count, bool)
    if ratio > 0:
        n = min(max(1, round(count * ratio)), count - 1)
        train[np.random.default_rng(seed).choice(count, n, replace=False)] = False
    if most is not None and train.sum() > most:
        left = np.random.default_rng(seed).choice(np.nonzero(train)[0], int(most), replace=False)
        train = np.isin(np.arange(count), left)
    return train


class _SequenceDataset:
    """Windows of `horizon` rows; rows outside the episode repeat its first or last row.

    The constructor is diffusion_policy's. A sample is a dict with "obs" and "action", float32.

    Args:
        zarr_path: A path, a URI or a Dataset. Other formats than Zarr work too.
        horizon: Rows of a window. Default 1.
        pad_before: Rows before an episode in which windows begin. Default 0.
        pad_after: Rows behind an episode in which windows end. Default 0.
        seed: The seed that selects episodes. Default 42.
        val_ratio: The part of the episodes that only get_validation_dataset() has. Default 0.
        max_train_episodes: The most episodes of this dataset. Default None: no limit.
        obs: {name: source}, or for a LowdimDataset [source, ...]. A source is a key, or (key, first
            column, end column). Default: those of the PushT datasets.
        action: The source of the actions. Default "action".
        n_obs_steps: Deliver only the first rows of observations; later images are not decoded
            (key_first_k). Default None: all.

    Attributes:
        train_mask: bool (episodes,): the episodes of this dataset.
        indices: int64 (samples, 5): the position of the episode, the first row and the end of the
            rows in the buffer, and the first and the end of these rows in the window.
    """

    _default_obs: Mapping[str, Source] | Sequence[Source]
    _is_joined: bool  # Whether sample["obs"] is one tensor.

    def __init__(
        self,
        zarr_path: Any,
        horizon: int = 1,
        pad_before: int = 0,
        pad_after: int = 0,
        seed: int = 42,
        val_ratio: float = 0.0,
        max_train_episodes: int | None = None,
        *,
        obs: Mapping[str, Source] | Sequence[Source] | None = None,
        action: Source = "action",
        n_obs_steps: int | None = None,
    ) -> None:
        _memory.require_torch("robocache.diffusion_policy")
        self.horizon: int = _checks.check_whole("horizon", horizon)
        # A longer padding would make windows without a recorded row.
        self.pad_before: int = min(max(operator.index(pad_before), 0), horizon - 1)
        self.pad_after: int = min(max(operator.index(pad_after), 0), horizon - 1)
        steps = horizon if n_obs_steps is None else n_obs_steps
        self.n_obs_steps: int = min(_checks.check_whole("n_obs_steps", steps), horizon)
        self.dataset: Dataset = as_dataset(zarr_path, {})
        self._ends = np.cumsum([0, *map(len, self.dataset)])
        sources = self._default_obs if obs is None else obs
        named = sources if isinstance(sources, Mapping) else dict(enumerate(sources))
        parts = {name: self._resolve(source) for name, source in named.items()}
        kinds = {k: f.kind for k, f in self.dataset.features.items()}
        is_image = {name: kinds[p.key] in ("image", "video") for name, p in parts.items()}
        numbers = {f"obs.{n}": [p] for n, p in parts.items() if not is_image[n]}
        if self._is_joined:
            numbers = {"obs": list(parts.values())}
        # {name in the observation: key of a batch}.
        self._keys = {n: p.key if is_image[n] else f"obs.{n}" for n, p in parts.items()}
        self._images = {p.key: range(self.n_obs_steps) for n, p in parts.items() if is_image[n]}
        self._vectors = {
            **{k: Vector(parts=v, rows=range(self.n_obs_steps)) for k, v in numbers.items()},
            "action": Vector(parts=[self._resolve(action)], rows=range(horizon)),
        }
        self._select(_train_episodes(len(self._ends) - 1, val_ratio, seed, max_train_episodes))

    def _resolve(self, source: Source) -> Part:
        """Returns the columns of a source."""
        key, *bounds = (source,) if isinstance(source, str) else source
        for name in (key, f"observation.{key}"):
            if name in self.dataset.features:
                return Part(name, *bounds)
        raise Misuse(
            f"the replay buffer has no {key!r}",
            {"dataset": self.dataset.uri, "stream": key},
            f"pass obs= and action= with its keys: {', '.join(self.dataset.features)}",
        )

    def _select(self, mask: np.ndarray) -> None:
        """Sets `indices` to the samples of the episodes in mask.

        A row of `indices` is one window: the episode, the first recorded row and the end of the
        recorded rows in the buffer, and the same two positions in the window.
        """
        self.train_mask: np.ndarray[Any, Any] = mask
        self.__dict__.pop("_samples", None)
        found = []
        for e in np.nonzero(mask)[0]:
            start, end = self._ends[e : e + 2]
            length = end - start
            # The rows are relative to the episode. Negative ones are padding.
            first = np.arange(-self.pad_before, length - self.horizon + self.pad_after + 1)
            low = np.maximum(first, 0)
            high = np.minimum(first + self.horizon, length)
            bounds = [low + start, high + start, low - first, high - first]
            found.append(np.stack([np.full_like(low, e), *bounds], 1))
        self.indices: np.ndarray[Any, Any] = np.concatenate([np.zeros((0, 5), np.int64), *found])

    def _options(self) -> dict[str, Any]:
        """Returns the options of a MapDataset or a Loader of the samples."""
        return {
            "episodes": self.dataset.episode_indices[self.train_mask].tolist(),
            "keys": [*self._images],
            "vectors": self._vectors,
            "windows": Windows(rows=self._images),
            "images": Images(dtype="float32"),
            "order": Order(pad_before=self.pad_before, pad_after=self.pad_after),
        }

    @cached_property
    def _samples(self) -> MapDataset:
        """The samples by number."""
        return MapDataset(self.dataset, **self._options())

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        """All rows of the buffer by the key of the vector, float32, (rows, D)."""
        vectors = {k: replace(v, rows=None) for k, v in self._vectors.items()}
        rows = MapDataset(self.dataset, keys=[], vectors=vectors, split="all")
        batch = rows.batch(range(len(rows)))
        rows.close()
        return batch

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self.__getitems__([i])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Returns several samples. Each image is decoded once, even if several windows have it."""
        return [self._assemble(item) for item in self._samples.__getitems__(indices)]

    def _assemble(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a sample, or a batch of them, in diffusion_policy's form."""
        obs = (
            values.get("obs") if self._is_joined else {n: values[k] for n, k in self._keys.items()}
        )
        return {"obs": obs, "action": values["action"]}

    def get_validation_dataset(self) -> Any:
        """Returns the dataset of all other episodes."""
        other = copy.copy(self)
        other._select(~self.train_mask)
        return other

    def get_all_actions(self) -> Any:
        """Returns the actions of all rows of the buffer: float32, (rows, D)."""
        return self._numbers["action"]

    def get_normalizer(
        self,
        mode: str = "limits",
        output_max: float = 1.0,
        output_min: float = -1.0,
        range_eps: float = 1e-4,
    ) -> Any:
        """Returns the normalization of the observations and the action.

        It is fitted in float32 on all rows of the buffer, as diffusion_policy does.

        Args:
            mode: "limits" (default): from output_min to output_max; a column whose range is below
                range_eps is only shifted. "gaussian": mean 0 and standard deviation 1.
            output_max, output_min: The outputs of "limits". Default 1 and -1.
            range_eps: The range or deviation below which a column is constant. Default 1e-4.

        Returns:
            diffusion_policy's LinearNormalizer if that package is installed, else a Normalizer.
            Images have a fixed normalization from [0, 1] to [-1, 1].
        """
        if mode not in ("limits", "gaussian"):
            raise Misuse(f"mode={mode!r}", hint='use "limits" or "gaussian"')
        data = {k.removeprefix("obs."): x for k, x in self._numbers.items()}
        args = (mode, output_min, output_max, range_eps)
        normalizer = Normalizer((key, fit_field(x, *args)) for key, x in data.items())
        normalizer.update((n, image_field()) for n, k in self._keys.items() if k in self._images)
        if _LinearNormalizer is None:
            return normalizer
        converted = _LinearNormalizer()
        converted.load_state_dict(normalizer.state_dict())
        return converted


class ImageDataset(_SequenceDataset, _ImageBase):
    """Replaces PushTImageDataset and other datasets of images over a replay buffer.

    sample["obs"] is a dict of float32 tensors: images (T, C, H, W) in [0, 1], and numbers (T, D).

    Example:
        data = ImageDataset("pusht.zarr", horizon=16, pad_before=1, pad_after=7, val_ratio=0.02)
    """

    _default_obs = {"image": "img", "agent_pos": ("state", 0, 2)}
    _is_joined = False


class LowdimDataset(_SequenceDataset, _LowdimBase):
    """Replaces PushTLowdimDataset: sample["obs"] is one float32 tensor (T, D), its sources joined.

    Its constructor is that of ImageDataset.
    """

    _default_obs = ["keypoint", ("state", 0, 2)]
    _is_joined = True


class Loader(_Loader):
    """Delivers batches of an ImageDataset or a LowdimDataset, as torch's DataLoader stacks them.

    Args:
        dataset: The ImageDataset or LowdimDataset.
        **kwargs: The keywords of robocache.Loader. num_workers, persistent_workers and pin_memory
            are accepted, and not used: there are no worker processes.

    Example:
        loader = robocache.diffusion_policy.Loader(dataset, batch_size=64, cache="ram")
    """

    def __init__(self, dataset: _SequenceDataset, **kwargs: Any) -> None:
        for name in ("num_workers", "persistent_workers", "pin_memory"):
            kwargs.pop(name, None)
        if not dataset.train_mask.any():
            raise Misuse("the dataset has no episodes", hint="pass val_ratio=")
        super().__init__(dataset.dataset, **dataset._options(), **kwargs)
        self._assemble = dataset._assemble

    def _next_batch(self, epoch: int) -> Any:
        """Returns the next batch in diffusion_policy's form, or None at the end of the epoch."""
        taken = super()._next_batch(epoch)
        if taken is not None:
            taken.batch = self._assemble(taken.batch)
        return taken
