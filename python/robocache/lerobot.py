"""LeRobotDataset has the items of lerobot's class of this name.

It reads the versions v2.0, v2.1 and v3.0 in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _config, _option_values, _hftable, _keywords, _checks
from ._errors import Misuse, Unsupported
from ._lerobotmeta import UNITS, LeRobotDatasetMetadata, locate_dataset, reject_recording
from .dataset import Dataset
from .mapdataset import MapDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import LeRobotGroups

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata"]


@reject_recording("create resume add_frame save_episode clear_episode_buffer push_to_hub")
class LeRobotDataset(MapDataset):
    """A LeRobot dataset with the constructor, items and attributes of lerobot 0.6's class.

    v2.0, v2.1 and v3.0 are read in place. Frames of videos are found by frame number, so drifting
    timestamps never select a neighbouring frame. lerobot-train takes the class in place of
    lerobot.datasets.factory.LeRobotDataset.

    Args:
        repo_id: A path, a URI, or the name of a repository that is on this disk.
        root: The folder of the dataset. Default None: derived from repo_id.
        episodes: Indices of episodes. Default None: all.
        episode_filter: Called with the metadata row of an episode; returns whether to include it.
            Default None.
        image_transforms: Called once per colour camera with (C, H, W) or (T, C, H, W). Default
            None.
        delta_timestamps: {key: [seconds, ...]}, windows with `<key>_is_pad`. Default None.
        tolerance_s: The tolerance of delta_timestamps in seconds. Default 1e-4.
        revision: Recorded in .revision. Default None: the version of the format.
        force_cache_sync: No effect, because nothing is downloaded.
        download_videos: No effect, because nothing is downloaded.
        video_backend: No effect; the engine decodes video.
        return_uint8: Whether video is uint8. Default False: float32 in [0, 1].
        depth_output_unit: The unit of depth, "mm" (default) or "m".
        batch_encoding_size: For recording; other values than 1 raise Unsupported.
        rgb_encoder: For recording; must be None.
        depth_encoder: For recording; must be None.
        encoder_threads: For recording; no effect.
        streaming_encoding: For recording; must be False.
        encoder_queue_maxsize: For recording; no effect.
        token: No effect, because nothing is downloaded.
        check_timestamps: Whether to also check frame times against tolerance_s, as lerobot does.
            Default False.
        keys: The streams of an item, as in MapDataset. RoboCache's own option.
        image_size: (height, width) in pixels, as in MapDataset. RoboCache's own option.
        threads: As in MapDataset. RoboCache's own option.
        memory_budget: As in MapDataset. RoboCache's own option.
        images: A robocache.Images with size and fit. RoboCache's own option.
        open: A robocache.Open: how the path is opened. RoboCache's own option.

    Attributes:
        meta: The LeRobotDatasetMetadata.
        episodes: The selected indices, or None for all.
        image_transforms: The transform, or None.

    Raises:
        Misuse: An argument or an episode is invalid.
        Unsupported: An option of recording is given.
        NotFound: There is no dataset at this location.
        Malformed: The dataset violates the format.

    Example:
        ds = robocache.LeRobotDataset("lerobot/pusht", root="data/pusht",
                                      delta_timestamps={"action": [0, 0.1]})
        print(ds[0]["action"].shape)
    """

    _metadata_class = LeRobotDatasetMetadata

    @_keywords.accept_groups("images", "open")
    def __init__(
        self,
        repo_id: Any,
        root: Any = None,
        episodes: Iterable[int] | None = None,
        episode_filter: Callable[[dict[str, Any]], bool] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        video_backend: str | None = None,
        return_uint8: bool = False,
        depth_output_unit: str = "mm",
        batch_encoding_size: int = 1,
        rgb_encoder: Any = None,
        depth_encoder: Any = None,
        encoder_threads: int | None = None,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        *,
        token: Any = None,
        check_timestamps: bool = False,
        keys: Iterable[str] | None = None,
        image_size: Sequence[int] | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        **groups: Unpack[LeRobotGroups],
    ) -> None:
        if image_transforms is not None and not callable(image_transforms):
            raise TypeError("image_transforms must be callable or None.")
        if (
            batch_encoding_size != 1
            or streaming_encoding
            or rgb_encoder is not None
            or depth_encoder is not None
        ):
            raise Unsupported(
                "robocache.LeRobotDataset reads; the options of recording are not for it",
                hint="record with lerobot, or write with 'robocache convert'",
            )
        self.repo_id: str = str(repo_id)
        plain = {
            "keys": keys,
            "image_size": image_size,
            "threads": threads,
            "memory_budget": memory_budget,
        }
        own = _option_values.OptionValues(plain, groups)
        how = {**own.pop_group("open"), "memory_budget": memory_budget}
        if how.setdefault("format", "lerobot") != "lerobot":
            raise Misuse(
                f"Open.format={how['format']!r}: robocache.LeRobotDataset reads LeRobot's format"
            )
        own.refuse_unknown(
            ["image_size", "image_resize"],
            "LeRobotDataset",
            "return_uint8= and depth_output_unit= say it",
        )
        self.dataset: Dataset = Dataset(locate_dataset(repo_id, root), **how)
        self.depth_output_unit: Any = _checks.check_choice(
            "depth_output_unit", depth_output_unit, UNITS
        )
        self.meta: LeRobotDatasetMetadata = self._metadata_class._of_open_dataset(
            self.dataset, repo_id, revision, depth_output_unit
        )
        self.root: Path = self.meta.root
        self.revision: str = self.meta.revision
        self.image_transforms = image_transforms
        self.delta_timestamps = delta_timestamps
        self.tolerance_s: float = float(tolerance_s)
        if episode_filter is not None:
            episodes = self.meta.filter_episodes(episode_filter, episodes)
            if not episodes:
                raise Misuse(
                    "episode_filter: The episode filter did not match any episode",
                    {"dataset": self.dataset.uri},
                )
        self.episodes: list[int] | None = None if episodes is None else list(episodes)
        own.update(
            {
                "episodes": None if self.episodes is None else self.meta.checked(self.episodes),
                "delta_timestamps": delta_timestamps,
                "image_dtype": "uint8" if return_uint8 else "float32",
                "depth_unit": depth_output_unit,
                "tolerance_s" if check_timestamps else "offset_tolerance_s": tolerance_s,
            }
        )
        computed = self.dataset.features.keys() - self.meta.features.keys()
        if computed and own.get("keys") is None:
            own["keys"] = [*self.meta.features, "task"]
        self._config = {**_config.sample_config(self.dataset.features, own), "compat": "lerobot"}
        self._open_map()

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes need neither the table nor the dict. Both are created again on access.
        return {
            k: v
            for k, v in super().__getstate__().items()
            if k not in ("hf_dataset", "absolute_to_relative_idx")
        }

    @property
    def num_frames(self) -> int:
        """The number of frames of the selected episodes."""
        return len(self)

    @property
    def num_episodes(self) -> int:
        """The number of selected episodes."""
        return self.dataset.num_episodes if self.episodes is None else len(self.episodes)

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """{key: {"dtype", "shape", "names", ...}}, as in info.json."""
        return self.meta.features

    @cached_property
    def hf_dataset(self) -> Any:
        """The rows of the selected episodes without video, as a datasets.Dataset over Arrow.

        It has lerobot's types and torch transform. The whole table is read into memory, once.
        Images that take more than memory_budget as stored (default 4 GiB) are left out, with a
        warning. Without the package datasets, this is a view with [i], ["column"], slices, select
        and filter, and without images.
        """
        columns = {
            k: f for k, f in self.meta.features.items() if self.dataset.features[k].kind != "video"
        }
        return _hftable.row_table(
            self.dataset,
            columns,
            self._config.get("episodes"),
            self._config.get("memory_budget", _hftable.IMAGE_BUDGET),
        )

    @cached_property
    def absolute_to_relative_idx(self) -> dict[int, int] | None:
        """{row in the dataset: row in the selected episodes}; None if all episodes are selected."""
        if self.episodes is None:
            return None
        lengths = self.dataset.episodes["lengths"].tolist()
        ends = list(itertools.accumulate(lengths))
        selected_rows = (
            row
            for position in self.meta.positions(self._config["episodes"])
            for row in range(ends[position] - lengths[position], ends[position])
        )
        return {row: i for i, row in enumerate(selected_rows)}

    def select_columns(self, column_names: str | Sequence[str]) -> Any:
        """Returns hf_dataset with these columns only."""
        return self.hf_dataset.select_columns(column_names)

    def get_raw_item(self, idx: Any) -> dict[str, Any]:
        """Returns a row of hf_dataset, without windows and video."""
        return self.hf_dataset[idx]

    @property
    def reader(self) -> LeRobotDataset:
        """This dataset; lerobot's class keeps its reading part in an object of this name."""
        return self

    writer = None  # Belongs to recording, which this class does not do.

    def get_item(self, idx: Any) -> dict[str, Any]:
        """Returns the item at idx."""
        return self[idx]

    def get_episodes_file_paths(self) -> list[Path]:
        """Returns the paths of the selected episodes' files, without duplicates.

        The paths are relative to root.
        """
        numbers = (
            self.dataset.episodes["episode_index"].tolist()
            if self.episodes is None
            else self.episodes
        )
        paths = [self.meta.get_data_file_path(e) for e in numbers]
        paths += [
            self.meta.get_video_file_path(e, k) for k in self.meta.video_keys for e in numbers
        ]
        return list(dict.fromkeys(paths))

    def set_image_transforms(self, image_transforms: Callable[[Any], Any] | None) -> None:
        """Sets image_transforms.

        Raises:
            TypeError: image_transforms is neither callable nor None.
        """
        if image_transforms is not None and not callable(image_transforms):
            raise TypeError("image_transforms must be callable or None.")
        self.image_transforms = image_transforms

    def clear_image_transforms(self) -> None:
        """Removes image_transforms."""
        self.image_transforms = None

    def _items(self, indices: list[int]) -> list[dict[str, Any]]:
        items = super()._items(indices)
        if self.image_transforms is not None:
            depth = set(self.meta.depth_keys)
            for item in items:
                for k in self.meta.camera_keys:
                    if k in item and k not in depth:
                        item[k] = self.image_transforms(item[k])
        return items

    def has_pending_frames(self) -> bool:
        """Returns False, because this class does not record."""
        return False

    def finalize(self) -> None:
        """Does nothing, because this class does not record."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({{\n"
            f"    Repository ID: '{self.repo_id}',\n"
            f"    Number of selected episodes: '{self.num_episodes}',\n"
            f"    Number of selected samples: '{self.num_frames}',\n"
            f"    Features: '{list(self.features)}',\n}})"
        )
