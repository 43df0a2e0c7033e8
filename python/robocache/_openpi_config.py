"""Config describes the samples of an openpi model. read_config makes it from openpi's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks, _lerobotmeta
from ._errors import Malformed, Misuse, NotFound, Unsupported
from ._feature import Features
from .dataset import Dataset
from .vectors import Part, Vector


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the rows of a dataset become the inputs of a model. read_config makes it from openpi's.

    Attributes:
        repo_id: A path, a URI, or the name of a LeRobot dataset on this disk.
        images: {name in the model: camera}. Of a list of cameras, one is drawn for each sample. None:
            a black image that the mask marks as absent.
        image_mask: {name in the model: bool}, where the mask differs from "has a camera".
        state: The key of the state, or keys whose columns are joined. Default "observation.state".
        actions: The same of the actions. Default "action".
        delta_mask: True for each action that becomes a difference from the state of its sample.
            Actions beyond its end stay absolute. Default None: all stay absolute.
        action_horizon: The number of actions of a sample, at the rate of the rows. Default 50.
        action_dim: The width of state and actions after padding with zeros. Default 32; None: no
            padding.
        norm_stats: {"state": statistics, "actions": statistics}, or a norm_stats.json or its
            folder. Default None: no normalization.
        use_quantile_norm: Whether to use q01 and q99 instead of mean and std. Default True.
        resolution: (height, width) of images in pixels: uint8 (H, W, 3) with black borders.
            Default (224, 224).
        prompt: The key of the text, or "=" and a fixed text. Of a list of keys, one is drawn for
            each sample. Default "task".
        transforms: Functions called per sample with {"state", "actions", "prompt"} before padding,
            such as tokenizers. Their new keys are stacked. Default ().
        batch_size: Samples per batch over all processes. Default 32.
        seed: The seed of the order. Default 42.

    Example:
        robocache.openpi.Config(repo_id="data/g1", images={"base_0_rgb": "observation.images.head"})
    """

    repo_id: str
    images: Mapping[str, str | Sequence[str] | None]
    image_mask: Mapping[str, bool] = field(default_factory=dict)
    state: str | Sequence[str] = "observation.state"
    actions: str | Sequence[str] = "action"
    delta_mask: Sequence[bool] | None = None
    action_horizon: int = 50
    action_dim: int | None = 32
    norm_stats: Any = None
    use_quantile_norm: bool = True
    resolution: tuple[int, int] = (224, 224)
    prompt: str | Sequence[str] = "task"
    transforms: Sequence[Callable[[dict[str, Any]], dict[str, Any]]] = ()
    batch_size: int = 32
    seed: int = 42


# The mode of a norm and its two statistics, by Config.use_quantile_norm.
NORMS = {
    True: ("quantiles", {"low": "q01", "high": "q99"}),
    False: ("mean_std", {"mean": "mean", "std": "std"}),
}


def read_statistics(c: Config) -> dict[str, dict[str, np.ndarray]]:
    """Returns {"state" and "actions": {statistic: array}} from any form of Config.norm_stats."""
    given, fields = c.norm_stats, NORMS[c.use_quantile_norm][1].values()
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
    out = {}
    for key, stats in given.items():
        stats = stats if isinstance(stats, Mapping) else vars(stats)
        if missing := [f for f in fields if stats.get(f) is None]:
            raise Misuse(f"norm_stats[{key!r}] has no {missing[0]!r}", {"dataset": c.repo_id})
        out[key] = {f: np.asarray(stats[f]) for f in fields}
    return out


def _as_list(keys: str | Sequence[str]) -> list[str]:
    """Returns one key or several as a list."""
    return [keys] if isinstance(keys, str) else list(keys)


def number_vectors(
    c: Config, features: Features, statistics: Mapping[str, Any]
) -> dict[str, Vector]:
    """Returns the vectors "state" and "actions" in openpi's precision, not clipped.

    Args:
        c: The configuration.
        features: The streams of the dataset.
        statistics: Those of read_statistics, or none: the numbers are not normalized.
    """
    out = {}
    states = _as_list(c.state)
    for key, streams in (("state", states), ("actions", _as_list(c.actions))):
        numbers = list(statistics.get(key, {}).values())
        is_single = all(v.dtype == np.float32 for v in numbers)
        mode, names = NORMS[c.use_quantile_norm]
        norm: dict[str, Any] = {"mode": mode, "precision": "float32" if is_single else "float64"}
        # NumPy adds a Python number to float32 in float32.
        norm["epsilon"] = float(np.float32(1e-6)) if is_single else 1e-6
        parts, end = [], 0
        for i, stream in enumerate(streams):
            _checks.check_key(stream, features, key)
            start, end = end, end + int(np.prod(features[stream].shape))
            mask = [*(c.delta_mask or ()), *[False] * end][start:end]
            more: dict[str, Any] = {}
            if key == "actions" and any(mask):
                if len(states) != len(streams):
                    raise Misuse("delta_mask: state and actions are not equally many streams")
                absolute = [k for k, is_delta in enumerate(mask) if not is_delta]
                more = {"relative": "difference", "reference": (states[i], 0), "absolute": absolute}
            if numbers:
                more["norm"] = norm | {k: v[..., start:end] for k, v in zip(names, numbers)}
            parts.append(Part(stream, precision="float32", **more))
        out[key] = Vector(
            parts=parts,
            rows=range(c.action_horizon) if key == "actions" else None,
            width=max(end, c.action_dim or 0),
            dtype="float32" if is_single else "float64",
        )
    return out


_TASK = "the text of the task"  # The prompt of items that probe a configuration.


class _Probe:
    """Finds the streams that the transforms of an openpi configuration read.

    The transforms are called with an item in lerobot's form, whose images are tiny. All numbers are
    random, so an output equals an input only if the transforms deliver it unchanged.
    """

    def __init__(self, transforms: Sequence[Any], data: Any, features: Mapping[str, Any]) -> None:
        self.data, self.features = data, features
        generator, self.item = np.random.default_rng(0), {}
        if data.prompt_from_task:
            self.item["prompt"] = _TASK
        for key, feature in features.items():
            if feature.kind in ("video", "image"):
                self.item[key] = generator.integers(1, 256, (3, 2, 3)).astype(np.float32) / 255
            else:
                chunk = (2,) if key in data.action_sequence_keys else ()
                self.item[key] = generator.random((*chunk, *feature.shape)).astype(np.float32)
        self.output = {k: np.array(v) for k, v in self.item.items()}
        for transform in transforms:
            self.output = transform(self.output)

    def camera(self, name: str) -> str | None:
        """Returns the camera of an image of the model, or None if the image is black."""
        image = np.asarray(self.output["image"][name])
        for key, feature in self.features.items():
            if feature.kind in ("video", "image"):
                pixels = np.rint(255 * self.item[key]).astype(np.uint8).transpose(1, 2, 0)
                if np.array_equal(image, pixels):
                    return key
        if not image.any():
            return None
        raise _unsupported(self.data.repo_id, f"image {name!r} is not a camera as recorded")

    def stream(self, name: str) -> str:
        """Returns the key of the stream that is the output `name`: the state or the actions."""
        for key, value in self.item.items():
            if np.array_equal(value, self.output[name]):
                return key
        raise _unsupported(self.data.repo_id, f"the {name} are not a stream as recorded")


def _unsupported(repo_id: str, why: str) -> Unsupported:
    """Returns the error for a configuration without an equivalent."""
    hint = "use robocache.openpi.LeRobotDataset in openpi's data loader; it takes any configuration"
    return Unsupported(f"robocache.openpi: {why}", {"dataset": repo_id}, hint)


def read_config(config: Any) -> Config:
    """Returns the Config of an openpi TrainConfig.

    The transforms of the data are called once with random numbers, to find the streams that they
    deliver unchanged.

    Args:
        config: A TrainConfig whose data is a LeRobot dataset on this disk.

    Returns:
        The Config.

    Raises:
        Unsupported: The configuration has no equivalent. LeRobotDataset works with every one.
    """
    data = config.data.create(config.assets_dirs, config.model)
    if data.rlds_data_dir is not None or data.repo_id in (None, "fake"):
        raise _unsupported(str(data.repo_id), "the configuration has no LeRobot dataset")
    own = [*data.repack_transforms.inputs, *data.data_transforms.inputs]
    deltas = [t for t in own if type(t).__name__ == "DeltaActions" and t.mask is not None]
    if deltas and deltas != own[-1:]:
        raise _unsupported(data.repo_id, "DeltaActions is not the last transform of the data")
    with Dataset(_lerobotmeta.locate_dataset(data.repo_id, None)) as dataset:
        probe = _Probe([t for t in own if t not in deltas], data, dict(dataset.features))
    images = {name: probe.camera(name) for name in probe.output["image"]}
    prompt = str(probe.output["prompt"]) if "prompt" in probe.output else None
    width, size = None, (224, 224)
    rest = []  # The transforms without an equivalent option, which run per sample.
    for transform in data.model_transforms.inputs:
        match type(transform).__name__:
            case "InjectDefaultPrompt":
                prompt = transform.prompt if prompt is None else prompt
            case "ResizeImages":
                size = (transform.height, transform.width)
            case "PadStatesAndActions":
                width = transform.model_action_dim
            case kind if width is not None:  # Padding must be the last step.
                raise _unsupported(data.repo_id, f"{kind} follows PadStatesAndActions")
            case _:
                rest.append(transform)
    return Config(
        repo_id=data.repo_id,
        images=images,
        image_mask={k: bool(v) for k, v in probe.output["image_mask"].items()},
        state=probe.stream("state"),
        actions=probe.stream("actions"),
        delta_mask=tuple(deltas[0].mask) if deltas else None,
        action_horizon=config.model.action_horizon,
        action_dim=width,
        norm_stats=data.norm_stats,
        use_quantile_norm=data.use_quantile_norm,
        resolution=size,
        prompt="task" if prompt == _TASK else "=" + (prompt or ""),
        transforms=rest,
        batch_size=config.batch_size,
        seed=config.seed,
    )
