"""openpi's dataset, normalization statistics and data loader, made by RoboCache.

LeRobotDataset and LeRobotDatasetMetadata replace lerobot's classes in openpi's data loader.
DataLoader delivers the inputs of the model, norm_stats their statistics. Neither openpi nor JAX is
imported before its own objects are used.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks, _lerobotmeta, lerobot
from ._errors import Misuse, Unsupported
from ._openpi_config import Config, number_vectors, read_config, read_statistics
from ._openpi_droid import droid_segments
from ._views import JaxBatches, NumpyBatches
from ._window_statistics import window_statistics
from .dataset import Dataset
from .loader import Loader
from .options import Images, Order, Windows

__all__ = [
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "Config",
    "DataLoader",
    "droid_segments",
    "norm_stats",
    "read_config",
]

# Prefixes of keys of the batch: numbers that transforms receive, and one of several streams.
_UNPADDED, _DRAWN = "unpadded.", "drawn."


class TaskTable(dict[int, str]):
    """The tasks of a dataset: {task_index: text}, with the attributes of lerobot's table.

    tasks.get(0) and tasks.items() act as in lerobot 0.1, tasks.loc[text], tasks.index and
    tasks["task_index"] as in later versions.
    """

    def __init__(self, texts: Mapping[int, str], table: Any) -> None:
        super().__init__(texts)
        self._table = table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    def __missing__(self, key: Any) -> Any:
        return self._table[key]


class LeRobotDatasetMetadata(_lerobotmeta.LeRobotDatasetMetadata):
    """robocache.LeRobotDatasetMetadata whose tasks are also a dict {task_index: text}."""

    @cached_property
    def tasks(self) -> Any:
        """A TaskTable, or None if the dataset has no tasks."""
        table = super().tasks
        return None if table is None else TaskTable(self._dataset.tasks, table)


class LeRobotDataset(lerobot.LeRobotDataset):
    """robocache.LeRobotDataset whose meta.tasks is also a dict {task_index: text}.

    Example:
        import robocache.openpi as lerobot_dataset  # in openpi/training/data_loader.py
    """

    _metadata_class = LeRobotDatasetMetadata


def _all_devices() -> Any:
    """Returns JAX's sharding of the first axis over all devices."""
    import jax

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("B",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("B"))


def _as_tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """Returns a batch of arrays as torch tensors. Texts stay arrays."""
    import torch

    return {k: v if v.dtype.kind == "U" else torch.as_tensor(v) for k, v in batch.items()}


class DataLoader:
    """Delivers the inputs of an openpi model without end, as openpi's create_data_loader.

    The engine makes the batches, with openpi's formulas and rounding. With an openpi TrainConfig,
    each step is (Observation, actions). With a Config, it is {"image": {name: uint8 (B, H, W, 3)},
    "image_mask": {name: bool (B,)}, "state": float32 (B, D), "actions": float32 (B, T, D),
    "prompt": str (B,)}; framework="jax" leaves out the prompt, because JAX has no text. Masks and
    black images are the same arrays in each batch.

    Args:
        config: A TrainConfig of openpi, or a Config.
        sharding: The sharding of JAX arrays. Default None: the first axis over all devices.
        shuffle: As in robocache.Loader; True is "global". Default False.
        num_batches: The number of batches of one iteration. Default None: no end.
        skip_norm_stats: Whether to deliver numbers that are not normalized. Default False.
        framework: "jax" (default), "pytorch" or "numpy".
        options: Other options of robocache.Loader, such as threads or cache.

    Attributes:
        config: The Config.
        loader: The robocache.Loader. Its state_dict() and load_state_dict() continue exactly.

    Raises:
        Misuse: An option is invalid, or statistics are missing.
        Unsupported: The configuration has no equivalent. LeRobotDataset works with every one.

    Example:
        data_loader = robocache.openpi.DataLoader(config, sharding=sharding, shuffle=True)
    """

    def __init__(
        self,
        config: Any,
        *,
        sharding: Any = None,
        shuffle: Any = False,
        num_batches: int | None = None,
        skip_norm_stats: bool = False,
        framework: str = "jax",
        **options: Any,
    ) -> None:
        c = config if isinstance(config, Config) else read_config(config)
        self.config: Config = c
        self._train_config = None if c is config else config  # openpi's TrainConfig, if given.
        self._num_batches = num_batches
        _checks.check_choice("framework", framework, ("jax", "pytorch", "numpy"))
        if c.norm_stats is None and not skip_norm_stats:
            raise Misuse(
                "DataLoader without norm_stats",
                {"dataset": c.repo_id},
                "compute them with robocache.openpi.norm_stats(config), or pass skip_norm_stats=True",
            )
        statistics = {} if skip_norm_stats else read_statistics(c)
        dataset = Dataset(_lerobotmeta.locate_dataset(c.repo_id, None))
        vectors = number_vectors(c, dataset.features, statistics)
        padded = {k: replace(v, dtype="float32") for k, v in vectors.items()}
        # Transforms receive numbers before padding.
        unpadded = {_UNPADDED + k: replace(v, width=None) for k, v in vectors.items()}
        self._has_prompt = framework != "jax"  # JAX has no text.
        # Keys of the batch: those of which one is drawn for each sample have names of their own.
        sources: dict[str, Any] = {**c.images, "prompt": c.prompt}
        drawn = {_DRAWN + n: list(k) for n, k in sources.items() if isinstance(k, (list, tuple))}
        keys = {n: _DRAWN + n if _DRAWN + n in drawn else k for n, k in sources.items()}
        prompt = keys.pop("prompt")
        self._fixed_prompt = prompt[1:] if prompt.startswith("=") else None
        reads_text = self._fixed_prompt is None and (c.transforms or self._has_prompt)
        self._prompt_key = prompt if reads_text else None
        self._cameras = keys
        if not reads_text:
            drawn.pop(prompt, None)
        if c.idle_filter is not None:
            order = options.get("order") or Order()
            if order.segments is not None:
                raise Misuse("DataLoader with segments and idle_filter", {"dataset": c.repo_id})
            segments = droid_segments(dataset, c.idle_filter or None)
            options["order"] = replace(order, segments=segments)
        self.loader: Loader = Loader(
            dataset,
            keys=[
                k for k in dict.fromkeys([*keys.values(), self._prompt_key]) if k and k not in drawn
            ],
            windows=Windows(choose=drawn or None),
            vectors={**padded, **(unpadded if c.transforms else {})},
            batch_size=c.batch_size,
            shuffle="global" if shuffle is True else shuffle,
            seed=c.seed,
            split="all",
            drop_last=True,
            images=Images(size=c.resolution, fit="letterbox", filter="pil-bilinear", layout="hwc"),
            **options,
        )
        # The batches, and the function from NumPy arrays to those of the framework.
        self._batches: NumpyBatches = self.loader.as_numpy()
        self._convert: Callable[[dict[str, Any]], dict[str, Any]] = dict
        if framework == "jax":
            arrays = self.loader.as_jax(_all_devices() if sharding is None else sharding)
            self._convert = arrays.convert
            self._batches = self._batches if c.transforms else arrays
        elif framework == "pytorch":
            self._convert = _as_tensors
        rows = self.loader.batch_size = c.batch_size // self.loader.world_size
        # The masks and black images of all batches.
        cameras = keys.items()
        masks = {n: np.full(rows, c.image_mask.get(n, k is not None)) for n, k in cameras}
        black = {n: np.zeros((rows, *c.resolution, 3), np.uint8) for n, k in cameras if k is None}
        self._masks, self._black = self._convert(masks), self._convert(black)

    def data_config(self) -> Any:
        """Returns openpi's DataConfig, or the Config."""
        t = self._train_config
        return self.config if t is None else t.data.create(t.assets_dirs, t.model)

    def __len__(self) -> int:
        """Returns the number of batches of an epoch on this process."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = itertools.chain.from_iterable(itertools.repeat(self._batches))
        return map(self._model_inputs, itertools.islice(batches, self._num_batches))

    def _model_inputs(self, batch: dict[str, Any]) -> Any:
        """Returns the inputs of the model; with a TrainConfig, (Observation, actions)."""
        config, more = self.config, {}
        prompts = batch.pop(self._prompt_key, None) or [self._fixed_prompt] * self.loader.batch_size
        if config.transforms:
            more = self._transform(batch, prompts)
        elif self._has_prompt:
            more = {"prompt": np.array(prompts)}
        if not isinstance(self._batches, JaxBatches):
            batch, more = self._convert(batch), self._convert(more)
        images = {n: self._black[n] if k is None else batch[k] for n, k in self._cameras.items()}
        numbers = {k: batch[k] for k in ("state", "actions")}
        inputs = {"image": images, "image_mask": dict(self._masks), **numbers, **more}
        if self._train_config is None:
            return inputs
        from openpi.models.model import Observation

        return Observation.from_dict(inputs), inputs["actions"]

    def _transform(self, batch: dict[str, Any], prompts: list[str]) -> dict[str, np.ndarray]:
        """Returns the new keys of the transforms, which process one sample at a time."""
        numbers = {k: batch.pop(_UNPADDED + k) for k in ("state", "actions")}
        out: dict[str, list[Any]] = {}
        for i, prompt in enumerate(prompts):
            item = {**{k: v[i] for k, v in numbers.items()}, "prompt": np.asarray(prompt)}
            for transform in self.config.transforms:
                item = transform(item)
            for key in item.keys() - numbers.keys():
                out.setdefault(key, []).append(item[key])
        if not self._has_prompt:
            out.pop("prompt", None)
        return {k: np.stack(v) for k, v in out.items()}


def norm_stats(
    config: Any, out: Any = None, *, exact: bool = True
) -> dict[str, dict[str, list[float]]]:
    """Computes openpi's normalization statistics without decoding video.

    The statistics are of the states and of the windows of actions. Actions in delta_mask are first
    made relative to the state.

    Args:
        config: A TrainConfig of openpi, or a Config.
        out: The folder for norm_stats.json. Default None: no file.
        exact: Whether quantiles are exact and all windows count. False: quantiles come from running
            histograms over whole batches, as in openpi's compute_norm_stats.py. Default True.

    Returns:
        {"state" and "actions": {"mean", "std", "q01", "q99": list of D}}.

    Raises:
        Misuse: A stream does not exist.
        Unsupported: The configuration has no equivalent.

    Example:
        robocache.openpi.norm_stats(config, config.assets_dirs / config.data.repo_id)
    """
    c = config if isinstance(config, Config) else read_config(config)
    if c.idle_filter is not None:
        raise Unsupported(
            "norm_stats of rows that an idle filter selects",
            {"dataset": c.repo_id},
            "use the statistics that openpi publishes, or count all rows: idle_filter=None",
        )
    with Dataset(_lerobotmeta.locate_dataset(c.repo_id, None)) as dataset:
        vectors = number_vectors(c, dataset.features, {})
        found = window_statistics(dataset, vectors, exact=exact, batch_size=c.batch_size)
    names = ("mean", "std", "q01", "q99")
    stats = {key: {n: found[key][n].tolist() for n in names} for key in ("state", "actions")}
    if out is not None:
        path = Path(out) / "norm_stats.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"norm_stats": stats}, indent=2))
    return stats
