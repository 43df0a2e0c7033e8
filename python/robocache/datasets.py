"""The datasets of the earlier RoboCache: sequences of fixed length from RLDS, CALVIN and robomimic.

    from robocache.datasets import RTXDataset, CALVINDataset, RoboMimicDataset
    from robocache.datasets import RTXDataLoader, create_rtx_dataloader

A sample is `sequence_length` rows of one episode at `target_hz`, by default the dataset's own rate.
The sequences of an episode follow each other without overlap. The last sequence of an episode may
be too short. Its missing rows repeat the last row, or are 0 for relative actions, and
`<name>_is_pad` marks them. episode_id is the index of the episode in `.dataset`, as text.

The engine opens, decodes and aligns the data by its rules: floats are linear, images nearest, and
rewards previous. New code uses robocache.open, MapDataset and Loader; docs/migration.md lists the
replacements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _keywords, _checks, _stream_roles
from ._rtx import RTXDataLoader, RTXDataset, create_rtx_dataloader
from ._rtx_episodes import RLDSEpisode, RLDSStep, RTXEpisode
from ._sequences import SequenceDataset
from .dataset import open as open_dataset

__all__ = [
    "RTXDataset",
    "RTXDataLoader",
    "RLDSStep",
    "RLDSEpisode",
    "RTXEpisode",
    "create_rtx_dataloader",
    "CALVINDataset",
    "RoboMimicDataset",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'robocache.datasets' has no attribute {name!r}: {_checks.nearest_names(name, __all__)}"
    )


class CALVINDataset(SequenceDataset):
    """CALVIN as sequences of fixed length, with one or more cameras.

    A sample is a dict:

    - "vision": float32 [T, C, H, W] in [0, 1] of the first camera; "vision_<camera>" of the others.
    - "depth" and "depth_<camera>": float32 [T, 1, H, W] in mm, with depth=True.
    - "proprio": float32 [T, 15], and "actions": float32 [T, 7].
    - "fused": the numeric streams, joined.
    - "language" and "episode_id": str.
    - "<name>_is_pad": bool [T].

    Args:
        path: The folder with training/ and validation/, or one of these two.
        tasks: ["all"] (default): all annotated windows, each as one episode, or the runs of a
            dataset without annotations. Names such as ["lift_red_block"]: the windows of these
            tasks. None: the runs as recorded.
        cameras: Some of "static", "gripper", "tactile.0" and "tactile.1". Default "static" and
            "gripper".
        target_hz: The rate of the rows in Hz. Default None: the recorded rate.
        split: "training", "validation" or "all". Default None: "training" if it exists, else all.
        sequence_length: T, the rows of a sample. Default 50.
        depth: Whether to include the depth images of the cameras. Default False.
        image_size: (height, width) in pixels. Default None: as recorded.
        image_dtype: "float32" (default) or "uint8".
        streams: As in RTXDataset. {"actions": "rel_actions"} selects the relative actions.
        rows_hz: The recorded rate in Hz. Default None: 30.
        options: As in robocache.open.
        threads: As in MapDataset.
        memory_budget: As in MapDataset.
        follow_links: As in robocache.open.

    Raises:
        NotFound: There is no dataset at path.
        Misuse: tasks, cameras, split, streams or another argument is invalid.
        Malformed: The dataset violates its format.
    """

    @_keywords.check_keywords
    def __init__(
        self,
        path: Any,
        tasks: Iterable[str] | None = ("all",),
        cameras: Iterable[str] = ("static", "gripper"),
        target_hz: Any = None,
        *,
        split: str | None = None,
        sequence_length: int = 50,
        depth: bool = False,
        image_size: Sequence[int] | None = None,
        image_dtype: str = "float32",
        streams: Mapping[str, Any] | None = None,
        rows_hz: Any = None,
        options: Mapping[str, Any] | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        follow_links: bool | None = None,
    ) -> None:
        chosen = _stream_roles.name_list("tasks", tasks)
        ds = open_dataset(
            path,
            format="calvin",
            rows_hz=rows_hz,
            follow_links=follow_links,
            options={**(options or {}), **({} if chosen is None else {"language": "episodes"})}
            or None,
        )
        self.tasks = chosen
        picked = _stream_roles.split_episodes(ds, split, "training")
        if chosen is not None and "all" not in chosen:
            picked = _stream_roles.episodes_with_tasks(ds, picked, chosen, "language_task")
        roles = _stream_roles.find_roles(
            ds,
            {
                **_stream_roles.calvin_cameras(ds, cameras, _checks.check_flag("depth", depth)),
                **(streams or {}),
            },
            ("proprio",),
        )
        self._open_sequences(
            ds,
            roles,
            language=True,
            sequence_length=sequence_length,
            target_hz=target_hz,
            episodes=picked,
            image_size=image_size,
            image_dtype=image_dtype,
            threads=threads,
            memory_budget=memory_budget,
        )


class RoboMimicDataset(SequenceDataset):
    """robomimic HDF5 files as sequences of fixed length.

    A sample is a dict:

    - "proprio": float32 [T, D], all numeric observations joined in the order of the file.
    - "vision": float32 [T, C, H, W] in [0, 1] of the first camera; "vision_<name>" of the others.
    - "actions": float32 [T, D].
    - "rewards": float32 [T], if they were recorded.
    - "fused": the numeric streams, joined.
    - "language" and "episode_id": str.
    - "<name>_is_pad": bool [T].

    Args:
        path: A file, or a folder of files that form one dataset.
        tasks: Only demos of these tasks: names of env_args, or instructions. Default None: all.
        obs_modality: "low_dim" (default) reads only numbers. "rgb" or "image" also reads the
            cameras, "depth" also reads depth images. Or a list of these.
        target_hz: The rate of the rows in Hz. Default None: the recorded rate.
        split: A mask, such as "train" or "valid". Default None: all demos, as in robomimic without
            a filter key.
        sequence_length: T, the rows of a sample. Default 50.
        image_size: (height, width) in pixels. Default None: as recorded.
        image_dtype: "float32" (default) or "uint8".
        streams: As in RTXDataset. {"proprio": [keys]} selects the observations.
        rows_hz: The recorded rate in Hz, if env_args lacks it.
        options: As in robocache.open.
        threads: As in MapDataset.
        memory_budget: As in MapDataset.
        follow_links: As in robocache.open.

    Raises:
        NotFound: There is no file at path.
        Misuse: tasks, obs_modality, split, streams or another argument is invalid.
        Malformed: A file violates its format.
    """

    @_keywords.check_keywords
    def __init__(
        self,
        path: Any,
        tasks: Iterable[str] | None = None,
        obs_modality: str | Iterable[str] = "low_dim",
        target_hz: Any = None,
        *,
        split: str | None = None,
        sequence_length: int = 50,
        image_size: Sequence[int] | None = None,
        image_dtype: str = "float32",
        streams: Mapping[str, Any] | None = None,
        rows_hz: Any = None,
        options: Mapping[str, Any] | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        follow_links: bool | None = None,
    ) -> None:
        known = ("low_dim", "rgb", "image", "depth")
        kinds = {
            _checks.check_choice("obs_modality", m, known)
            for m in ([obs_modality] if isinstance(obs_modality, str) else obs_modality)
        }
        chosen = _stream_roles.name_list("tasks", tasks)
        ds = open_dataset(
            path, format="robomimic", rows_hz=rows_hz, options=options, follow_links=follow_links
        )
        self.tasks = chosen
        picked = _stream_roles.split_episodes(ds, split, "all")
        if chosen is not None and "all" not in chosen:
            picked = _stream_roles.episodes_with_tasks(ds, picked, chosen, None)
        imgs = _stream_roles.camera_roles(
            ds, colour=bool(kinds & {"rgb", "image"}), depth="depth" in kinds
        )
        self._open_sequences(
            ds,
            _stream_roles.find_roles(
                ds, {**imgs, **(streams or {})}, ("proprio", "rewards"), everything=True
            ),
            language=True,
            sequence_length=sequence_length,
            target_hz=target_hz,
            episodes=picked,
            image_size=image_size,
            image_dtype=image_dtype,
            threads=threads,
            memory_budget=memory_budget,
        )
