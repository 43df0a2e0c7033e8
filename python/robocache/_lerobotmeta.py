"""LeRobotDatasetMetadata has the metadata of a LeRobot dataset, as lerobot's class of this name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar


from . import _hftable, _keywords, _checks
from ._errors import Misuse, NotFound, Unsupported
from .dataset import Dataset

UNITS = ("m", "mm")
T = TypeVar("T")


def locate_dataset(repo_id: Any, root: Any) -> str:
    """Returns the location of a LeRobot dataset.

    This is root if given, else repo_id if it is a path or URI, else the folder in which lerobot
    keeps the dataset.

    Raises:
        NotFound: There is no such folder.
    """
    if root is not None:
        return _checks.path_text(root)
    text = _checks.path_text(repo_id)
    if "://" in text or os.path.isdir(text):
        return text
    base = os.environ.get("HF_LEROBOT_HOME") or os.path.join(
        os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"), "lerobot"
    )
    local = os.path.join(base, text)
    if os.path.isdir(local):
        return local
    snapshots = Path(base, "hub", "datasets--" + text.replace("/", "--"), "snapshots")
    found = (
        sorted(snapshots.glob("*/meta/info.json"), key=lambda p: p.stat().st_mtime)
        if snapshots.is_dir()
        else []
    )
    if found:
        return str(found[-1].parent.parent)
    raise NotFound(
        f"no dataset {text!r}: it is not a path, and not in {base}",
        {"dataset": text},
        "RoboCache reads what is on disk: give root=, or fetch it first with "
        "'hf download --repo-type dataset'",
    )


class DatasetInfo(dict[str, Any]):
    """The content of meta/info.json, by attribute and by item: info.fps, info["fps"].

    Fields that the file lacks have the default of the format.
    """

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(
            f"info.json has no field {name!r}: {_checks.nearest_names(name, self)}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def to_dict(self) -> dict[str, Any]:
        """Returns the content for JSON: shapes are lists, and an unset `tools` is left out."""
        out = {k: v for k, v in self.items() if k != "tools" or v is not None}
        out["features"] = {
            k: {**f, "shape": list(f["shape"])} if isinstance(f.get("shape"), tuple) else dict(f)
            for k, f in self["features"].items()
        }
        return out


def reject_recording(names: str) -> Callable[[type[T]], type[T]]:
    """Adds the recording methods of lerobot to a class; they raise Unsupported."""

    def with_methods(cls: type[T]) -> type[T]:
        for name in names.split():

            def method(*_: Any, _name: str = name, **__: Any) -> Any:
                raise Unsupported(
                    f"{cls.__name__}.{_name}(): the dataset is read-only here",
                    hint="record and change datasets with lerobot, and read here what it wrote",
                )

            method.__name__ = name
            method.__doc__ = f"Raises Unsupported: {name} writes, and this class only reads."
            setattr(cls, name, classmethod(method) if name in ("create", "resume") else method)
        return cls

    return with_methods


def _info_property(name: str) -> Any:
    """Returns a property with the value of info.json under a name."""
    return property(lambda self: self.info[name])


def _keys_of_kind(*kinds: str) -> Any:
    """Returns a property with the keys of the streams of some kinds."""
    return property(lambda self: [k for k, f in self._dataset.features.items() if f.kind in kinds])


@reject_recording("create save_episode save_episode_tasks update_video_info update_chunk_settings")
class LeRobotDatasetMetadata:
    """The metadata of a LeRobot dataset.

    The constructor and the attributes are those of lerobot 0.6's class of this name. v2.0, v2.1 and
    v3.0 are read in place. The attributes may be assigned.

    Args:
        repo_id: A path, a URI, or the name of a repository that is on this disk.
        root: The folder of the dataset. Default: derived from repo_id.
        revision: Recorded in .revision. Default: the version of the format.
        force_cache_sync: No effect, because nothing is downloaded.
        metadata_buffer_size: No effect, because nothing is written.
        repo_type: "dataset" (default). "bucket" needs root=.
        token: No effect, because nothing is downloaded.

    Attributes:
        info: meta/info.json by attribute and by item, with counted totals.
        features: {key: {"dtype", "shape", "names", ...}}, without streams that have no data.
        episodes: One row per episode, with all columns of the files except the statistics. A
            datasets.Dataset if that package is installed, else a view with [i], ["column"], slices,
            select, filter and to_pandas. None if the dataset has no episodes.
        stats: {feature: {statistic: float64 array}}, as stored. None if the dataset has no
            statistics.
        tasks: A pandas.DataFrame with the task texts as index.

    Raises:
        NotFound: There is no dataset at this location.
        Malformed: The metadata violates the format.
        Unsupported: The version of the format, or repo_type="bucket" without root=.

    Example:
        meta = robocache.LeRobotDatasetMetadata("lerobot/pusht", root="data/pusht")
        print(meta.fps, meta.total_episodes, meta.camera_keys)
    """

    @_keywords.check_keywords
    def __init__(
        self,
        repo_id: Any,
        root: Any = None,
        revision: str | None = None,
        force_cache_sync: bool = False,
        metadata_buffer_size: int = 10,
        *,
        repo_type: str = "dataset",
        token: Any = None,
    ) -> None:
        if (
            _checks.check_choice("repo_type", repo_type, ("dataset", "bucket")) == "bucket"
            and root is None
        ):
            raise Unsupported(
                "repo_type='bucket' is streamed from the Hub",
                hint="fetch it to a folder, and give root=",
            )
        self._set_dataset(
            Dataset(locate_dataset(repo_id, root), format="lerobot"), repo_id, revision
        )
        self._dataset._handle.open()

    latest_episode = None  # Belongs to recording, which this class does not do.
    _depth_unit: str | None = None  # The unit of depth in the statistics; None: as stored.

    @classmethod
    def _of_open_dataset(
        cls, dataset: Dataset, repo_id: Any, revision: str | None, depth_unit: str
    ) -> LeRobotDatasetMetadata:
        """Returns the metadata of an open dataset, with depth statistics in a given unit."""
        meta = cls.__new__(cls)
        meta._set_dataset(dataset, repo_id, revision)
        meta._depth_unit = depth_unit
        return meta

    def _set_dataset(self, dataset: Dataset, repo_id: Any, revision: str | None) -> None:
        """Sets the attributes for a dataset."""
        self._dataset = dataset
        self.repo_id: str = str(repo_id)
        self.repo_type = "dataset"
        self.revision: str = revision or dataset.version
        self.root: Path = Path(dataset.uri.removeprefix("file://"))

    def __getstate__(self) -> dict[str, Any]:
        # Tables that were read are left out: they are read again when they are needed. `episodes`
        # is kept only if the caller assigned it, so that it is not the table in _read.
        state = {
            k: v for k, v in self.__dict__.items() if k not in ("_table", "_positions", "_read")
        }
        was_read = "_read" in self.__dict__
        if was_read and state.get("episodes") is self._read:
            del state["episodes"]
        return state

    data_path: str
    video_path: str | None
    chunks_size: int
    data_files_size_in_mb: int
    video_files_size_in_mb: int
    total_episodes: int
    total_frames: int
    total_tasks: int
    video_keys: list[str]
    image_keys: list[str]
    camera_keys: list[str]
    (
        data_path,
        video_path,
        chunks_size,
        data_files_size_in_mb,
        video_files_size_in_mb,
        total_episodes,
        total_frames,
        total_tasks,
    ) = map(
        _info_property,
        (
            "data_path video_path chunks_size data_files_size_in_mb video_files_size_in_mb "
            "total_episodes total_frames total_tasks"
        ).split(),
    )
    fps: property = property(lambda self: self._dataset.fps)
    robot_type: property = property(lambda self: self._dataset.robot_type)
    video_keys = _keys_of_kind("video")
    image_keys = _keys_of_kind("image")
    camera_keys = _keys_of_kind("video", "image")
    url_root: property = property(lambda self: f"hf://datasets/{self.repo_id}")
    has_language_columns: property = property(
        lambda self: any(k in self.features for k in _hftable.LANGUAGE_KEYS)
    )
    names: property = property(lambda self: {k: f.get("names") for k, f in self.features.items()})
    shapes: property = property(
        lambda self: {k: tuple(f["shape"]) for k, f in self.features.items()}
    )

    @cached_property
    def info(self) -> DatasetInfo:
        """The content of meta/info.json, with counted totals."""
        d = self._dataset
        v2 = d.version.startswith("v2")
        name = "episode_{episode_index:06d}" if v2 else "file-{file_index:03d}"
        chunk = "chunk-{episode_chunk:03d}" if v2 else "chunk-{chunk_index:03d}"
        info = DatasetInfo(
            codebase_version=d.version,
            fps=d.fps,
            features={},
            total_episodes=d.num_episodes,
            total_frames=d.num_frames,
            total_tasks=len(d.tasks),
            chunks_size=1000,
            data_files_size_in_mb=100,
            video_files_size_in_mb=200,
            data_path=f"data/{chunk}/{name}.parquet",
            video_path=f"videos/{chunk}/{{video_key}}/{name}.mp4"
            if v2
            else f"videos/{{video_key}}/{chunk}/{name}.mp4",
            robot_type=None,
            splits={},
            tools=None,
        )
        stored = d._handle.call("robocache_episodes", {"of": "info"})
        # The totals above were counted, and replace those of the file.
        info.update(
            {
                k: v
                for k, v in stored.items()
                if k not in ("total_episodes", "total_frames", "total_tasks")
            }
        )
        for f in info["features"].values():
            if isinstance(f, dict) and isinstance(f.get("shape"), list):
                f["shape"] = tuple(f["shape"])
        return info

    @cached_property
    def features(self) -> dict[str, dict[str, Any]]:
        """{key: {"dtype", "shape", "names", ...}}, without streams that have no data."""
        declared = self.info["features"]
        out: dict[str, dict[str, Any]] = {}
        for k, f in self._dataset.features.items():
            if k == "subtask" and k not in declared and "language_persistent" in declared:
                continue  # the reader computes it
            out[k] = declared.get(k) or {
                "dtype": f.kind if f.kind in ("video", "image") else f.dtype,
                "shape": f.shape,
                "names": f.names,
            }
            out[k]["shape"] = tuple(out[k].get("shape") or f.shape)
        return out

    @cached_property
    def stats(self) -> dict[str, dict[str, Any]] | None:
        """{feature: {statistic: float64 array}}, or None if the dataset has no statistics."""
        out = {
            k: {n: v.copy() for n, v in s.items()} for k, s in self._dataset.stats.items()
        } or None
        if self._depth_unit is not None:
            self._rescale_depth(out, self._depth_unit)
        return out

    @cached_property
    def tasks(self) -> Any:
        """A pandas.DataFrame with the task texts as index and a column task_index.

        Without pandas, a dict {text: task_index}. None if the dataset has no tasks.
        """
        texts = self._dataset.tasks
        if not texts:
            return None
        try:
            import pandas as pd
        except ImportError:
            return {t: i for i, t in texts.items()}
        return pd.DataFrame(
            {"task_index": list(texts)}, index=pd.Index(list(texts.values()), name="task")
        )

    @cached_property
    def _table(self) -> dict[str, Any]:
        """The columns of the episodes and the paths of their files, from the engine."""
        return self._dataset._handle.call("robocache_episodes", {"of": "table"})

    @cached_property
    def episodes(self) -> Any:
        """The table of episodes, or None if the dataset has no episodes."""
        self._read = _hftable.episode_table(self._table["columns"]) if self.total_episodes else None
        return self._read

    @cached_property
    def _positions(self) -> dict[int, int]:
        """The positions of the episodes by episode_index."""
        return {int(n): i for i, n in enumerate(self._dataset.episode_indices)}

    def checked(self, episodes: Iterable[Any]) -> list[int]:
        """Returns episode indices as ints. Raises Misuse for an unknown index."""
        wanted = list(episodes)
        missing = [e for e in wanted if int(e) not in self._positions]
        if missing:
            raise Misuse(
                f"episodes {missing[:5]} are not in this dataset of {len(self._positions)} episodes",
                {"dataset": self._dataset.uri, "episode": int(missing[0])},
            )
        return [int(e) for e in wanted]

    def positions(self, episodes: Iterable[int]) -> list[int]:
        """Returns the positions of episodes, ascending and without duplicates."""
        return sorted({self._positions[e] for e in episodes})

    def ensure_readable(self) -> None:
        """Opens the dataset. Does nothing if it is open."""
        self._dataset._handle.open()

    def filter_episodes(
        self, predicate: Callable[[dict[str, Any]], bool], candidates: Iterable[int] | None = None
    ) -> list[int]:
        """Returns the indices of the episodes whose row satisfies a predicate, ascending.

        Args:
            predicate: Called with the row of an episode as a dict.
            candidates: The indices of the episodes to test. Default None: all.
        """
        among = None if candidates is None else {int(c) for c in candidates}
        return sorted(
            int(r["episode_index"])
            for r in self.episodes or ()
            if (among is None or r["episode_index"] in among) and predicate(r)
        )

    def _episode_file(self, files: Mapping[str, Any], ep_index: int) -> Path:
        """Returns the path of an episode's file. Raises IndexError for an unknown episode.

        Args:
            files: The engine's table: "names" has the paths, and "of" the number of the path of
                each episode. Without "of", there is one path per episode.
            ep_index: The index of the episode. A negative number is a position from the end.
        """
        n = self.total_episodes
        position = ep_index + n if ep_index < 0 else self._positions.get(int(ep_index), n)
        if not 0 <= position < n:
            raise IndexError(f"Episode index {ep_index} out of range. Episodes: {n}")
        file_index = position if files.get("of") is None else files["of"][position]
        return Path(files["names"][file_index])

    def get_data_file_path(self, ep_index: int) -> Path:
        """Returns the path of an episode's Parquet file, relative to root.

        If the template of info.json does not fit, this is the path of the existing file.

        Raises:
            IndexError: There is no such episode.
        """
        return self._episode_file(self._table["data"], ep_index)

    def get_video_file_path(self, ep_index: int, vid_key: str) -> Path:
        """Returns the path of the mp4 file of an episode's camera, relative to root.

        Raises:
            IndexError: There is no such episode.
            KeyError: vid_key is not a video stream.
        """
        videos = self._table["videos"]
        if vid_key not in videos:
            raise KeyError(
                f"{vid_key!r} is no camera of videos: {_checks.nearest_names(vid_key, videos)}"
            )
        return self._episode_file(videos[vid_key], ep_index)

    def rescale_depth_stats(self, output_unit: str) -> None:
        """Converts the statistics of depth cameras to a unit, in place.

        Args:
            output_unit: "mm" or "m".
        """
        self._rescale_depth(self.stats, output_unit)

    def _rescale_depth(self, stats: dict[str, dict[str, Any]] | None, output_unit: str) -> None:
        """Converts the depth statistics in stats to a unit, in place."""
        for k in self.depth_keys if stats else ():
            unit = (self.features[k].get("info") or {}).get("depth_unit")
            if stats and k in stats and unit in UNITS and unit != output_unit:
                factor = 1000.0 if unit == "m" else 1e-3
                stats[k] = {n: v if n == "count" else v * factor for n, v in stats[k].items()}

    def get_chunk_settings(self) -> dict[str, Any]:
        """Returns the chunk settings of info.json: chunks_size and the two file sizes in MB."""
        return {
            k: self.info[k]
            for k in ("chunks_size", "data_files_size_in_mb", "video_files_size_in_mb")
        }

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tool schemas in info.json. Empty if there are none, unlike lerobot's default."""
        return [dict(t) for t in self.info.tools or ()]

    @property
    def depth_keys(self) -> list[str]:
        """The cameras marked as depth, in any of the forms that versions of the format use."""

        def marked(f: Mapping[str, Any]) -> bool:
            info, video_info = f.get("info") or {}, f.get("video_info") or {}
            return bool(
                info.get("is_depth_map")
                or info.get("video.is_depth_map")
                or video_info.get("video.is_depth_map")
            )

        return [
            k
            for k in self.camera_keys
            if self._dataset.features[k].depth or marked(self.features[k])
        ]

    def get_task_index(self, task: str) -> int | None:
        """Returns the index of a task text, or None if there is no such task."""
        return next((i for i, t in self._dataset.tasks.items() if t == task), None)

    def finalize(self) -> None:
        """Does nothing, because nothing is buffered."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({{\n"
            f"    Repository ID: '{self.repo_id}',\n"
            f"    Total episodes: '{self.total_episodes}',\n"
            f"    Total frames: '{self.total_frames}',\n"
            f"    Features: '{list(self.features)}',\n}})"
        )
