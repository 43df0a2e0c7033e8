"""Episodes of Open X-Embodiment as lists of steps, or as streams with their own times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _stream_roles
from ._errors import Misuse
from .dataset import Episode

__all__ = ["RLDSStep", "RLDSEpisode", "RTXEpisode"]


@dataclass
class RLDSStep:
    """One step of an episode.

    Attributes:
        observation: {"rgb": float32 [H, W, C] in [0, 1], "proprio": float32 [D], "depth": float32
            [H, W, 1] in mm}, as far as they were recorded.
        action: float32 [D].
        reward: The reward; 0 if none was recorded.
        is_terminal: Whether the episode ends with this step.
        language_instruction: The instruction, or None.
        metadata: The metadata of the episode, or None.
        timestamp_ms: The timestamp of the action in milliseconds.
    """

    observation: dict[str, Any]
    action: Any
    reward: float
    is_terminal: bool
    language_instruction: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp_ms: float | None = None


@dataclass
class RLDSEpisode:
    """An episode as a list of steps. len() is the number of steps.

    Attributes:
        steps: The steps.
        episode_id: The index of the episode, as text.
        dataset_name: The name of the dataset.
        success: Whether the episode succeeded; None if the dataset does not record it.
        language_instruction: The first instruction, or None.
        scene_description: The description of the scene, or None.
    """

    steps: list[RLDSStep]
    episode_id: str
    dataset_name: str
    success: bool | None
    language_instruction: str | None = None
    scene_description: str | None = None

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def of(
        cls,
        episode: Episode,
        streams: Mapping[str, Any] | None = None,
        *,
        image_size: tuple[int, int] | None = None,
    ) -> RLDSEpisode:
        """Returns the rows of an episode as recorded, at their own rate.

        Args:
            episode: An episode of robocache.open.
            streams: As in RTXDataset.
            image_size: (height, width) in pixels. Default None: as recorded.
        """
        return cls(**_stream_roles.episode_fields(episode, streams, image_size, RLDSStep))

    def to_tensor_dict(self) -> dict[str, Any]:
        """Returns the steps as tensors.

        Returns:
            {"observations": {name: [T, ...]}, "actions": [T, D], "rewards": float32 [T],
            "terminals": bool [T], "episode_id": str, "success": bool or None}.

        Raises:
            Misuse: The episode has no steps.
        """
        if not self.steps:
            raise Misuse(f"episode {self.episode_id!r} has no steps")
        return {
            "observations": {
                k: _stream_roles.stack_rows([s.observation[k] for s in self.steps])
                for k in self.steps[0].observation
            },
            "actions": _stream_roles.stack_rows([s.action for s in self.steps]),
            "rewards": _stream_roles.number_array([s.reward for s in self.steps], "float32"),
            "terminals": _stream_roles.number_array([s.is_terminal for s in self.steps], "bool"),
            "episode_id": self.episode_id,
            "success": self.success,
        }


@dataclass
class RTXEpisode:
    """The streams of an episode with their own times, as resample_trajectories takes them.

    len() is the number of actions. Times are float64 seconds, one per row.

    Attributes:
        episode_id: The index of the episode, as text.
        vision: uint8 [T, C, H, W], or vectors float32 [T, D]; None if not recorded.
        vision_times: The times of vision.
        actions: float32 [T, D].
        action_times: The times of actions.
        proprio: float32 [T, D]; None if not recorded.
        proprio_times: The times of proprio.
    """

    episode_id: str
    vision: Any
    vision_times: Any
    actions: Any
    action_times: Any
    proprio: Any = None
    proprio_times: Any = None

    def __len__(self) -> int:
        return len(self.action_times)

    @classmethod
    def of(cls, episode: Episode, streams: Mapping[str, Any] | None = None) -> RTXEpisode:
        """Returns the streams of an episode as recorded.

        Args:
            episode: An episode of robocache.open.
            streams: As in RTXDataset.
        """
        return cls(**_stream_roles.stream_fields(episode, streams))
