"""Shared parts of the old datasets: the streams of each role, and tensors by role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from . import _memory, _checks
from ._errors import Misuse
from .dataset import Dataset, Episode, Feature

_MODALITIES = {
    "vision": "vision",
    "rgb": "vision",
    "depth": "depth",
    "proprio": "proprio",
    "rewards": "rewards",
    "language": "language",
    "actions": "actions",
}
_STATES = (
    "observation.state",
    "observation.proprio",
    "observation.robot_obs",
    "observation.robot_state",
)
# Parts of keys, in lower case: cameras on a hand, image features, and other vectors that do not
# describe the robot.
_HANDS = ("wrist", "gripper", "hand")
_IMAGE_WORDS = ("image", "rgb", "vision", "visual")
_OTHER_WORDS = ("embedding", "language", "instruction")


def is_numeric(f: Feature) -> bool:
    """Reports whether a stream holds numbers."""
    return f.kind == "numeric"


def _is_image(f: Feature) -> bool:
    """Reports whether a stream holds images or video."""
    return f.kind in ("image", "video")


def _is_depth(f: Feature) -> bool:
    """Reports whether a stream holds depth images.

    These are declared as depth, or have one channel of another dtype than uint8.
    """
    return _is_image(f) and (f.depth is not None or f.channels == 1 and f.dtype != "uint8")


def parse_modalities(asked: Iterable[str] | None) -> tuple[tuple[str, ...] | None, bool]:
    """Returns the roles that modalities= names, and whether language is one of them.

    The roles are None for all available ones.
    """
    if asked is None:
        return None, True
    if isinstance(asked, str):
        raise Misuse(
            f"modalities={asked!r}: expected a list of {', '.join(map(repr, _MODALITIES))}"
        )
    named = [_MODALITIES[_checks.check_choice("modalities", m, _MODALITIES)] for m in asked]
    return tuple(m for m in named if m not in ("language", "actions")), "language" in named


def name_list(option: str, v: Iterable[str] | None) -> list[str] | None:
    """Returns a list of names; a single name becomes a list."""
    if v is None:
        return None
    out = [v] if isinstance(v, str) else list(v)
    if not out or not all(isinstance(n, str) and n for n in out):
        raise Misuse(f"{option}={v!r}: expected names")
    return out


def find_roles(
    ds: Dataset,
    streams: Mapping[str, Any] | None,
    wanted: Sequence[str] | None,
    everything: bool = False,
) -> dict[str, list[str]]:
    """Returns the streams of each role: {role: [keys]}.

    Args:
        ds: The dataset.
        streams: The streams that the caller assigned to roles.
        wanted: The roles that must exist. None: the roles that the dataset has.
        everything: Whether "proprio" is all numeric observations, even if one of them is called
            state.

    Raises:
        Misuse: No stream is known for a wanted role.
    """
    out: dict[str, list[str]] = {}
    given = _check_streams(ds, streams)
    found = {
        "vision": _find_vision,
        "depth": _find_depth,
        "proprio": _find_numeric if everything else _find_proprio,
        "actions": _find_actions,
        "rewards": _find_rewards,
    }
    for role, find in found.items():
        if role in given:
            keys = given.pop(role)
        elif role == "actions" or wanted is None or role in wanted:
            keys = find(ds.features)
        else:
            continue
        if keys:
            out[role] = keys
        elif role == "actions" or wanted is not None and role != "rewards":
            raise Misuse(
                f"no stream of {ds.uri!r} is known to be {role}",
                {"dataset": ds.uri},
                f"streams={{{role!r}: key}}; there are: "
                f"{', '.join(k for k, f in ds.features.items() if not f.default)}",
            )
    return {**out, **given}


def _check_streams(ds: Dataset, streams: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Returns the checked roles of streams=, with current role names."""
    if streams is None:
        return {}
    if not isinstance(streams, Mapping):
        raise Misuse(f"streams={streams!r}: expected a dict of roles to keys")
    out: dict[str, list[str]] = {}
    for role, keys in streams.items():
        name = {"rgb": "vision", "action": "actions", "reward": "rewards"}.get(role, role)
        listed = [
            _checks.check_key(k, ds.features) for k in ([keys] if isinstance(keys, str) else keys)
        ]
        if (
            not isinstance(name, str)
            or name in ("language", "episode_id", "fused")
            or name.endswith("_is_pad")
            or not listed
        ):
            raise Misuse(
                f"streams[{role!r}]={keys!r}: expected a role such as 'vision', 'proprio' or "
                "'actions', and keys"
            )
        for k in listed:
            f = ds.features[k]
            if f.ragged or not (is_numeric(f) or _is_image(f) and len(listed) == 1):
                raise Misuse(
                    f"streams[{role!r}]: {k!r} is "
                    f"{f.kind}{' of varying length' if f.ragged else ''}",
                    {"stream": k},
                    "one image stream, or numeric ones, which are joined",
                )
        if name in ("actions", "proprio", "rewards") and not is_numeric(ds.features[listed[0]]):
            raise Misuse(
                f"streams[{role!r}]: {listed[0]!r} is {ds.features[listed[0]].kind}, "
                "expected numbers",
                {"stream": listed[0]},
            )
        out[name] = listed
    return out


def _find_vision(features: Mapping[str, Feature]) -> list[str]:
    """Returns the first colour camera that is not on a hand, else the first colour camera.

    For a dataset without images, returns a stored vector of image features.
    """
    cameras = [k for k, f in features.items() if _is_image(f) and not _is_depth(f)]
    not_on_hand = [k for k in cameras if not any(h in k.lower() for h in _HANDS)]
    vectors = [
        k
        for k, f in features.items()
        if _is_vector(k, f) and any(s in k.rpartition(".")[2].lower() for s in _IMAGE_WORDS)
    ]
    return (not_on_hand or cameras or vectors)[:1]


def _find_depth(features: Mapping[str, Feature]) -> list[str]:
    """Returns the first depth camera."""
    return [k for k, f in features.items() if _is_depth(f)][:1]


def _is_vector(key: str, f: Feature) -> bool:
    """Reports whether a stream is a float observation of fixed shape."""
    return (
        key.startswith("observation")
        and is_numeric(f)
        and f.dtype.startswith("float")
        and not f.ragged
        and not f.default
    )


def _find_numeric(features: Mapping[str, Feature]) -> list[str]:
    """Returns all float observations of the robot, without embeddings and image features."""
    return [
        k
        for k, f in features.items()
        if _is_vector(k, f)
        and len(f.shape) <= 1
        and not any(w in k.lower() for w in (*_IMAGE_WORDS, *_OTHER_WORDS))
    ]


def _find_proprio(features: Mapping[str, Feature]) -> list[str]:
    """Returns the state of the robot, else all its float observations."""
    for k in _STATES:
        if k in features and is_numeric(features[k]):
            return [k]
    return _find_numeric(features)


def _find_actions(features: Mapping[str, Feature]) -> list[str]:
    """Returns the stream "action", else all float streams "action.*"."""
    if "action" in features:
        return ["action"]
    return [
        k
        for k, f in features.items()
        if k.startswith("action.")
        and is_numeric(f)
        and f.dtype.startswith("float")
        and not f.ragged
    ]


def _find_rewards(features: Mapping[str, Feature]) -> list[str]:
    """Returns the stream of rewards."""
    return [k for k in ("reward", "rewards", "next.reward") if k in features][:1]


def calvin_cameras(ds: Dataset, asked: Iterable[str], depth: bool) -> dict[str, str]:
    """Returns CALVIN's cameras by role: the first one is "vision", the others "vision_<camera>"."""
    listed = name_list("cameras", asked) or []
    out: dict[str, str] = {}
    for kind, what in (("rgb", "vision"), *([("depth", "depth")] if depth else [])):
        known = [
            k.removeprefix(f"observation.{kind}_")
            for k in ds.features
            if k.startswith(f"observation.{kind}_")
        ]
        for i, c in enumerate(listed):
            _checks.check_choice("cameras", c, known)
            out[what if i == 0 else f"{what}_{c}"] = f"observation.{kind}_{c}"
    return out


def camera_roles(ds: Dataset, *, colour: bool, depth: bool) -> dict[str, str]:
    """Returns all cameras by role.

    The first colour camera is "vision", and the first depth camera is "depth". The others are
    "vision_<name>" and "depth_<name>".
    """
    out: dict[str, str] = {}
    for kind, want, first in (("vision", colour, _find_vision), ("depth", depth, _find_depth)):
        if not want:
            continue
        keys = [
            k for k, f in ds.features.items() if _is_image(f) and _is_depth(f) == (kind == "depth")
        ]
        if not keys:
            raise Misuse(
                f"obs_modality: {ds.uri!r} has no {'colour' if kind == 'vision' else 'depth'} "
                "images",
                {"dataset": ds.uri},
                "obs_modality='low_dim'",
            )
        main_key = first(ds.features)[0]
        out.update({kind if k == main_key else f"{kind}_{k.rpartition('.')[2]}": k for k in keys})
    return out


def split_episodes(ds: Dataset, split: str | None, usual: str) -> list[int] | None:
    """Returns the indices of the episodes of a split, or None for all.

    Args:
        ds: The dataset.
        split: The name of the split, "all", or None for the default.
        usual: The default split, if the dataset has it.
    """
    splits: Mapping[str, str] = ds.info.get("splits") or {}
    if split is None and usual in splits:
        split = usual
    if split is None or split == "all":
        return None
    text = splits[_checks.check_choice("split", split, splits)]
    spans = [part.split(":") for part in text.split(",") if part]
    return [int(n) for a, b in spans for n in ds.episode_indices[int(a) : int(b)]]


def episodes_with_tasks(
    ds: Dataset, indices: list[int] | None, tasks: Sequence[str], stream: str | None
) -> list[int]:
    """Returns the indices of the episodes of some tasks.

    Args:
        ds: The dataset.
        indices: The indices to select from, or None for all.
        tasks: The names of the tasks, in any case.
        stream: The text stream with the names. None: the tasks of the episode and their aliases.
    """
    indices = ds.episode_indices.tolist() if indices is None else indices
    if stream is not None:
        if stream not in ds.features:
            raise Misuse(
                f"tasks={list(tasks)!r}: {ds.uri!r} names no tasks",
                {"dataset": ds.uri},
                "tasks=['all']",
            )
        names = {i: set(ds.episode(i).streams[stream].values) for i in indices}
    else:
        names = {}
        for i in indices:
            meta = ds.episode(i).meta
            names[i] = {*(meta.get("tasks") or []), *(meta.get("task_aliases") or [])}
    known = sorted({t for s in names.values() for t in s if t})
    folded = {t.casefold(): t for t in known}
    wanted = {_checks.check_choice("tasks", folded.get(t.casefold(), t), known) for t in tasks}
    return [i for i in indices if names[i] & wanted]


def dataset_name(ds: Dataset) -> str:
    """Returns the name of the path. An RLDS dataset lies in <name>/<version>."""
    parts = PurePath(ds.info.get("uri") or ds.uri).parts
    return (
        parts[-2]
        if len(parts) > 1 and ds.format == "rlds" and parts[-1] == ds.version
        else parts[-1]
    )


def _first_value(episode: Episode, key: str) -> Any:
    """Returns the first value of a stream of an episode, or None if there is none."""
    if key not in episode.dataset.features:
        return None
    v = episode.streams[key].values
    return v[0] if len(v) else None


def join_streams(parts: Sequence[Any], axes: int) -> Any:
    """Joins numeric streams on the last axis: [T, D], or [B, T, D] with two axes."""
    flat = [p.reshape((*p.shape[:axes], -1)) for p in parts]
    if len(flat) == 1:
        return flat[0]
    torch = _memory.torch_module()
    return np.concatenate(flat, -1) if torch is None else torch.cat(flat, -1)


def any_mask(masks: Sequence[Any]) -> Any:
    """Returns a mask that is True where any of the masks is True."""
    out = masks[0]
    for m in masks[1:]:
        out = out | m
    return out


def stack_rows(rows: Sequence[Any]) -> Any:
    """Stacks arrays or tensors on a new first axis."""
    if isinstance(rows[0], np.ndarray):
        return np.stack(rows)
    return _memory.torch_module().stack(list(rows))


def number_array(v: Sequence[Any], dtype: str) -> Any:
    """Returns numbers as an array or tensor of a dtype."""
    torch = _memory.torch_module()
    return np.array(v, dtype) if torch is None else torch.tensor(v, dtype=getattr(torch, dtype))


def _channels_last(imgs: Any) -> Any:
    """Returns a view [..., H, W, C] of images [..., C, H, W]."""
    return np.moveaxis(imgs, -3, -1) if isinstance(imgs, np.ndarray) else imgs.movedim(-3, -1)


def nested_item(flat: dict[str, Any], roles: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an item in the form of the earlier RTXDataset.

    Observations are in their own dict, and images have the channels last.
    """
    observations: dict[str, Any] = {}
    masks = {k: v for k, v in flat.items() if k.endswith("_is_pad")}
    out: dict[str, Any] = {"observations": observations}
    for role in roles:
        if role in ("actions", "rewards"):
            continue
        name = "rgb" if role == "vision" else role
        v = flat[role]
        axes = len(flat["actions"].shape) - 1
        observations[name] = _channels_last(v) if len(v.shape) == axes + 3 else v
        if name != role:
            masks[name + "_is_pad"] = masks.pop(role + "_is_pad")
    actions = flat["actions"]
    out["actions"] = actions
    if "rewards" in flat:
        out["rewards"] = flat["rewards"]
    else:
        like = masks["actions_is_pad"]
        if isinstance(like, np.ndarray):
            out["rewards"] = np.zeros(like.shape, np.float32)
            masks["rewards_is_pad"] = np.ones_like(like)
        else:  # Zeros that stay on the device of the mask.
            out["rewards"] = (like & False).float()
            masks["rewards_is_pad"] = like | True
    return {**out, "language": flat["language"], "episode_id": flat["episode_id"], **masks}


def encode_frames(frames: Any, encoder: Any) -> Any:
    """Encodes frames [B, T, C, H, W] as vectors [B, T, D].

    Samples are encoded one at a time, because the activations of an encoder take many times the
    memory of its frames.
    """
    torch = _memory.torch_module()
    if torch is None:
        vectors = [encoder(f) for f in frames]
    else:
        with torch.no_grad():
            vectors = [encoder(f) for f in frames]
    for v, f in zip(vectors, frames, strict=True):
        if not hasattr(v, "shape") or len(v.shape) < 2 or v.shape[0] != f.shape[0]:
            raise Misuse(
                f"vision_encoder gave {tuple(getattr(v, 'shape', ())) or type(v).__name__} "
                f"for frames {tuple(f.shape)}: expected (T, D)"
            )
    out = stack_rows(vectors)
    return out.reshape((*out.shape[:2], -1))


def _to_tensor(a: np.ndarray, dtype: Any = None) -> Any:
    """Returns an array as a tensor, or as an array without torch."""
    torch = _memory.torch_module()
    a = np.ascontiguousarray(a if dtype is None else a.astype(dtype))
    return a if torch is None else torch.from_numpy(a if a.flags.writeable else a.copy())


def _joined_columns(episode: Episode, keys: Sequence[str]) -> np.ndarray:
    """Returns numeric streams of an episode, joined on the last axis, as float32."""
    parts = [np.asarray(episode.streams[k].values) for k in keys]
    return np.concatenate([p.reshape(len(p), -1).astype(np.float32) for p in parts], -1)


def _observations(
    episode: Episode,
    roles: Mapping[str, Sequence[str]],
    image_size: tuple[int, int] | None,
) -> dict[str, Any]:
    """Returns the observations of an episode by role. The role vision is called rgb."""
    observations: dict[str, Any] = {}
    for role, keys in roles.items():
        if role in ("actions", "rewards"):
            continue
        if is_numeric(episode.dataset.features[keys[0]]):
            value = _to_tensor(_joined_columns(episode, keys))
        else:
            frames = episode.streams[keys[0]].frames(
                image_dtype="float32", image_size=image_size, depth_unit="mm"
            )
            value = _channels_last(_to_tensor(frames))
        observations["rgb" if role == "vision" else role] = value
    return observations


def episode_fields(
    episode: Episode,
    streams: Mapping[str, Any] | None,
    image_size: tuple[int, int] | None,
    step: Any,
) -> dict[str, Any]:
    """Returns the fields of RLDSEpisode, from the rows of an episode.

    Args:
        episode: The episode.
        streams: The streams that the caller assigned to roles, or None.
        image_size: (height, width) of images; None: as stored.
        step: The class of a step, called with the fields of each row.
    """
    dataset = episode.dataset
    roles = find_roles(dataset, streams, None)
    observations = _observations(episode, roles, image_size)
    rows = episode.length
    actions = _to_tensor(_joined_columns(episode, roles["actions"]))
    rewards = (
        _joined_columns(episode, roles["rewards"])[:, 0]
        if "rewards" in roles
        else np.zeros(rows, np.float32)
    )
    is_terminal = (
        np.asarray(episode.streams["is_terminal"].values).reshape(-1)
        if "is_terminal" in dataset.features
        else np.zeros(rows, bool)
    )
    texts = (
        list(episode.streams["language_instruction"].values)
        if "language_instruction" in dataset.features
        else [(episode.tasks or [""])[0]] * rows
    )
    key = roles["actions"][0]
    times = episode.streams[key].times
    metadata = {
        k.removeprefix("episode_metadata."): _first_value(episode, k)
        for k in dataset.features
        if k.startswith("episode_metadata.")
    }
    steps = [
        step(
            observation={k: v[i] for k, v in observations.items()},
            action=actions[i],
            reward=float(rewards[i]),
            is_terminal=bool(is_terminal[i]),
            language_instruction=texts[i] or None,
            metadata=metadata or None,
            timestamp_ms=float(times[i]) / 1e6,
        )
        for i in range(rows)
    ]
    success = metadata.get("success")
    scene = metadata.get("scene_description")
    return {
        "steps": steps,
        "episode_id": str(episode.index),
        "dataset_name": dataset_name(dataset),
        "success": None if success is None else bool(np.ravel(success)[0]),
        "language_instruction": next((t for t in (*episode.tasks, *texts) if t), None),
        "scene_description": None if scene is None else str(scene),
    }


def stream_fields(episode: Episode, streams: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of RTXEpisode."""
    roles = find_roles(episode.dataset, streams, None)
    out: dict[str, Any] = {"episode_id": str(episode.index), "vision": None, "vision_times": None}
    for role, name in (("vision", "vision"), ("actions", "action"), ("proprio", "proprio")):
        if role in roles:
            s = episode.streams[roles[role][0]]
            out[role] = (
                _to_tensor(_joined_columns(episode, roles[role]))
                if is_numeric(s.feature)
                else _to_tensor(s.frames(depth_unit="mm"))
            )
            out[name + "_times"] = _to_tensor(s.times / 1e9)
    return out
