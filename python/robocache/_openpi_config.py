"""Config describes the samples of an openpi model. read_config makes it from openpi's own."""

from __future__ import annotations

import copy
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
        idle_filter: The path of openpi's idle filter of DROID: only rows in its ranges, of episodes
            that were successful, are samples. "": all rows of these episodes. Default None: all
            rows of all episodes.
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
    idle_filter: str | os.PathLike[str] | None = None
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
_DROID_PROMPTS = ("language_instruction", "language_instruction_2", "language_instruction_3")


class _Probe:
    """Finds the streams that the transforms of an openpi configuration read.

    The transforms are called with an item of the dataset, whose images are tiny. All numbers are
    random, so an output equals an input only if the transforms deliver it unchanged.
    """

    def __init__(
        self,
        repo_id: str,
        item: Mapping[str, Any],
        cameras: Mapping[Any, np.ndarray],
        streams: Mapping[Any, np.ndarray],
    ) -> None:
        """Prepares the item.

        Args:
            repo_id: The dataset, for errors.
            item: The item as openpi's dataset delivers it.
            cameras: The pixels of each camera, uint8 (H, W, 3). A key of several stream keys
                means that one of the streams is drawn.
            streams: {key, or keys that are joined: values in the item}.
        """
        self.repo_id, self.item = repo_id, item
        self._cameras, self._streams = cameras, streams
        self.output: dict[str, Any] = {}

    def run(self, transforms: Sequence[Any]) -> None:
        """Sets output to the item after the transforms."""
        self.output = copy.deepcopy(dict(self.item))
        for transform in transforms:
            self.output = transform(self.output)

    def camera(self, name: str) -> Any:
        """Returns the camera of an image of the model, or None if the image is black."""
        image = np.asarray(self.output["image"][name])
        for key, pixels in self._cameras.items():
            if np.array_equal(image, pixels):
                return list(key) if isinstance(key, tuple) else key
        if not image.any():
            return None
        raise _unsupported(self.repo_id, f"image {name!r} is not a camera as recorded")

    def stream(self, name: str) -> Any:
        """Returns the key of the stream that is the output `name`: the state or the actions."""
        for key, value in self._streams.items():
            if np.array_equal(value, self.output[name]):
                return list(key) if isinstance(key, tuple) else key
        raise _unsupported(self.repo_id, f"the {name} are not a stream as recorded")


def _lerobot_probe(data: Any) -> _Probe:
    """Returns the probe of a LeRobot dataset."""
    with Dataset(_lerobotmeta.locate_dataset(data.repo_id, None)) as dataset:
        features = dict(dataset.features)
    generator = np.random.default_rng(0)
    item: dict[str, Any] = {"prompt": _TASK} if data.prompt_from_task else {}
    cameras, streams = {}, {}
    for key, feature in features.items():
        if feature.kind in ("video", "image"):
            item[key] = generator.integers(1, 256, (3, 2, 3)).astype(np.float32) / 255
            cameras[key] = np.rint(255 * item[key]).astype(np.uint8).transpose(1, 2, 0)
        else:
            chunk = (2,) if key in data.action_sequence_keys else ()
            streams[key] = generator.random((*chunk, *feature.shape)).astype(np.float32)
    return _Probe(data.repo_id, item | streams, cameras, streams)


def _droid_probe(data: Any) -> _Probe:
    """Returns the probe of openpi's dataset of DROID, of which one dataset is supported."""
    if len(data.datasets) != 1:
        raise _unsupported(data.rlds_data_dir, f"{len(data.datasets)} datasets in one loader")
    generator = np.random.default_rng(0)
    image, wrist = generator.integers(1, 256, (2, 2, 3, 3), dtype=np.uint8)
    joints, gripper, actions = (generator.random(n).astype(np.float32) for n in (7, 1, 16))
    actions = actions.reshape(2, 8)
    kind = getattr(data.action_space, "name", "JOINT_VELOCITY").lower()
    item = {
        "actions": actions,
        "observation": {
            "image": image,
            "wrist_image": wrist,
            "joint_position": joints,
            "gripper_position": gripper,
        },
        "prompt": _TASK,
    }
    exterior = tuple(f"observation.exterior_image_{n}_left" for n in (1, 2))
    return _Probe(
        os.path.join(data.rlds_data_dir, data.datasets[0].name, data.datasets[0].version),
        item,
        {exterior: image, "observation.wrist_image_left": wrist},
        {
            ("observation.joint_position", "observation.gripper_position"): np.concatenate(
                [joints, gripper]
            ),
            (f"action_dict.{kind}", "action_dict.gripper_position"): actions,
        },
    )


def _unsupported(repo_id: str, why: str) -> Unsupported:
    """Returns the error for a configuration without an equivalent."""
    hint = "use robocache.openpi.LeRobotDataset in openpi's data loader; it takes any configuration"
    return Unsupported(f"robocache.openpi: {why}", {"dataset": repo_id}, hint)


def _idle_filter(path: str | None) -> str:
    """Returns the path of an idle filter on this disk. openpi downloads remote ones."""
    if not path or "://" not in path:
        return path or ""
    try:
        from openpi.shared.download import maybe_download
    except ImportError:
        raise Unsupported(
            f"robocache.openpi: {path} is remote, and openpi is not installed to download it",
            hint="pass a filter_dict_path on this disk",
        ) from None
    return str(maybe_download(path))


def read_config(config: Any) -> Config:
    """Returns the Config of an openpi TrainConfig.

    The transforms of the data are called once with random numbers, to find the streams that they
    deliver unchanged.

    Args:
        config: A TrainConfig whose data is a LeRobot dataset on this disk, or openpi's of DROID.

    Returns:
        The Config.

    Raises:
        Unsupported: The configuration has no equivalent. LeRobotDataset works with every one.
    """
    data = config.data.create(config.assets_dirs, config.model)
    is_droid = data.rlds_data_dir is not None
    if not is_droid and data.repo_id in (None, "fake"):
        raise _unsupported(str(data.repo_id), "the configuration has no dataset")
    probe = _droid_probe(data) if is_droid else _lerobot_probe(data)
    own = [*data.repack_transforms.inputs, *data.data_transforms.inputs]
    deltas = [t for t in own if type(t).__name__ == "DeltaActions" and t.mask is not None]
    if deltas and deltas != own[-1:]:
        raise _unsupported(data.repo_id, "DeltaActions is not the last transform of the data")
    probe.run([t for t in own if t not in deltas])
    images = {name: probe.camera(name) for name in probe.output["image"]}
    prompt: Any = str(probe.output["prompt"]) if "prompt" in probe.output else None
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
    if prompt == _TASK:
        prompt = list(_DROID_PROMPTS) if is_droid else "task"
    else:
        prompt = "=" + (prompt or "")
    return Config(
        repo_id=probe.repo_id,
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
        prompt=prompt,
        idle_filter=_idle_filter(data.datasets[0].filter_dict_path) if is_droid else None,
        transforms=rest,
        batch_size=config.batch_size,
        seed=config.seed,
    )
