"""openpi's dataset, normalization statistics and data loader, made by RoboCache.

LeRobotDataset and LeRobotDatasetMetadata replace lerobot's classes in openpi's data loader.
DataLoader delivers the inputs of the model, norm_stats their statistics. Neither openpi nor JAX is
imported before its own objects are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks, _lerobotmeta, lerobot
from ._errors import Malformed, Misuse, NotFound
from ._openpi_config import Config, read_config
from ._window_statistics import window_statistics
from .dataset import Dataset
from .loader import Loader
from .options import Images, Windows

__all__ = [
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "Config",
    "DataLoader",
    "norm_stats",
    "read_config",
]


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


def _read_statistics(given: Any) -> dict[str, dict[str, np.ndarray]]:
    """Returns {"state" and "actions": {statistic: array}} from any form of Config.norm_stats."""
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        path = path / "norm_stats.json" if path.is_dir() else path
        try:
            given = json.loads(path.read_text())["norm_stats"]
        except FileNotFoundError:
            raise NotFound(
                f"norm_stats: there is no {path}",
                hint="write it with robocache.openpi.norm_stats",
            )
        except (ValueError, KeyError, TypeError) as e:
            raise Malformed(f"norm_stats: {path} is not a norm_stats.json: {e!r}") from None
    return {
        key: {
            name: np.asarray(value)
            for name, value in (stats if isinstance(stats, Mapping) else vars(stats)).items()
            if value is not None
        }
        for key, stats in given.items()
    }


def _as_tensors(x: Any) -> Any:
    """Returns a tree of arrays as torch tensors. Texts stay arrays."""
    import torch

    if isinstance(x, dict):
        return {key: _as_tensors(value) for key, value in x.items()}
    return x if x.dtype.kind == "U" else torch.as_tensor(x)


class DataLoader:
    """Delivers the inputs of an openpi model without end, as openpi's create_data_loader.

    Batches are made by the engine's threads. State and actions are then differenced, normalized and
    padded per batch, with openpi's formulas and rounding, and are float32. With an openpi
    TrainConfig, each step is (Observation, actions). With a Config, it is {"image": {name: uint8
    (B, H, W, 3)}, "image_mask": {name: bool (B,)}, "state": (B, D), "actions": (B, T, D), "prompt":
    str (B,)}; framework="jax" leaves out the prompt, because JAX has no text.

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
        self._framework = _checks.check_choice("framework", framework, ("jax", "pytorch", "numpy"))
        if c.norm_stats is None and not skip_norm_stats:
            raise Misuse(
                "DataLoader without norm_stats",
                {"dataset": c.repo_id},
                "compute them with robocache.openpi.norm_stats(config), or pass skip_norm_stats=True",
            )
        self._stats = {} if skip_norm_stats else _read_statistics(c.norm_stats)
        fields = ("q01", "q99") if c.use_quantile_norm else ("mean", "std")
        for key, stats in self._stats.items():
            if missing := [f for f in fields if f not in stats]:
                raise Misuse(f"norm_stats[{key!r}] has no {missing[0]!r}", {"dataset": c.repo_id})
        # The key of the prompts; None if the prompt is a fixed text.
        self._prompt_key = None if c.prompt.startswith("=") else c.prompt
        cameras = [k for k in c.images.values() if k is not None]
        rank, world_size = self._jax_processes(sharding)
        self.loader: Loader = Loader(
            _lerobotmeta.locate_dataset(c.repo_id, None),
            keys=list(dict.fromkeys([c.state, c.actions, *cameras, self._prompt_key or c.state])),
            batch_size=c.batch_size // world_size,
            shuffle="global" if shuffle is True else shuffle,
            seed=c.seed,
            split="all",
            drop_last=True,
            windows=Windows(rows={c.actions: range(c.action_horizon)}),
            images=Images(size=c.resolution, fit="letterbox", filter="pil-bilinear", layout="hwc"),
            rank=rank,
            world_size=world_size,
            **options,
        )

    def _jax_processes(self, sharding: Any) -> tuple[int, int]:
        """Returns the index and the number of JAX's processes, and sets the sharding."""
        if self._framework != "jax":
            return 0, 1
        import jax

        if sharding is None:
            mesh = jax.sharding.Mesh(np.array(jax.devices()), ("B",))
            sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("B"))
        self._sharding = sharding
        return jax.process_index(), jax.process_count()

    def data_config(self) -> Any:
        """Returns openpi's DataConfig, or the Config."""
        t = self._train_config
        return self.config if t is None else t.data.create(t.assets_dirs, t.model)

    def __len__(self) -> int:
        """Returns the number of batches of an epoch on this process."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        remaining = self._num_batches  # None: no end.
        while True:
            for batch in self.loader:
                if remaining == 0:
                    return
                remaining = None if remaining is None else remaining - 1
                yield self._deliver(self._model_inputs(batch))

    def _normalized(self, key: str, x: np.ndarray) -> np.ndarray:
        """Returns state or actions in the scale of the model: not clipped, in openpi's precision."""
        stats = {k: v[..., : x.shape[-1]] for k, v in self._stats.get(key, {}).items()}
        if not stats:
            return x
        if self.config.use_quantile_norm:
            return (x - stats["q01"]) / (stats["q99"] - stats["q01"] + 1e-6) * 2.0 - 1.0
        return (x - stats["mean"]) / (stats["std"] + 1e-6)

    def _model_inputs(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the model as NumPy arrays."""
        c = self.config
        state, actions = np.asarray(batch[c.state]), np.asarray(batch[c.actions]).copy()
        if c.delta_mask is not None:
            mask = np.asarray(c.delta_mask)
            subtracted = np.where(mask, state[..., : len(mask)], 0)
            actions[..., : len(mask)] -= subtracted[:, None]
        numbers = {"state": self._normalized("state", state)}
        numbers["actions"] = self._normalized("actions", actions)
        rows = len(state)
        prompts = batch[self._prompt_key] if self._prompt_key else [c.prompt[1:]] * rows
        out: dict[str, Any] = {"image": {}, "image_mask": {}}
        for name, camera in c.images.items():
            if camera is None:
                out["image"][name] = np.zeros((rows, *c.resolution, 3), np.uint8)
            else:
                out["image"][name] = np.asarray(batch[camera])
            out["image_mask"][name] = np.full(rows, c.image_mask.get(name, camera is not None))
        if not c.transforms:
            out["prompt"] = np.asarray(prompts)
        # The transforms of openpi process one sample at a time.
        for i in range(rows if c.transforms else 0):
            item = {**{k: v[i] for k, v in numbers.items()}, "prompt": np.asarray(prompts[i])}
            for transform in c.transforms:
                item = transform(item)
            for key in item.keys() - numbers.keys():
                out.setdefault(key, []).append(item[key])
        out = {k: np.stack(v) if isinstance(v, list) else v for k, v in out.items()}
        for key, x in numbers.items():
            padding = max(c.action_dim or 0, x.shape[-1]) - x.shape[-1]
            out[key] = np.pad(x.astype(np.float32), [(0, 0)] * (x.ndim - 1) + [(0, padding)])
        return out

    def _deliver(self, inputs: dict[str, Any]) -> Any:
        """Returns the inputs in the arrays of the framework, as openpi's loader does."""
        if self._framework == "jax":
            import jax

            inputs.pop("prompt", None)
            make = jax.make_array_from_process_local_data
            inputs = jax.tree.map(lambda x: make(self._sharding, x), inputs)
        elif self._framework == "pytorch":
            inputs = _as_tensors(inputs)
        if self._train_config is None:
            return inputs
        from openpi.models.model import Observation

        return Observation.from_dict(inputs), inputs["actions"]


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
    mask = list(c.delta_mask or ())
    with Dataset(_lerobotmeta.locate_dataset(c.repo_id, None)) as dataset:
        _checks.check_key(c.actions, dataset.features, "actions")
        width = int(np.prod(dataset.features[c.actions].shape))
        absolute = [i for i in range(width) if i >= len(mask) or not mask[i]]
        single = {"precision": "float32"}
        actions: dict[str, Any] = {"key": c.actions, **single}
        if any(mask):
            reference = {"key": c.state, "start": 0}
            actions |= {"relative": "difference", "reference": reference, "absolute": absolute}
        vectors = {
            "state": {"parts": [{"key": c.state, **single}]},
            "actions": {"parts": [actions], "rows": list(range(c.action_horizon))},
        }
        found = window_statistics(dataset, vectors, exact=exact, batch_size=c.batch_size)
    names = ("mean", "std", "q01", "q99")
    stats = {key: {n: found[key][n].tolist() for n in names} for key in ("state", "actions")}
    if out is not None:
        path = Path(out) / "norm_stats.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"norm_stats": stats}, indent=2))
    return stats
