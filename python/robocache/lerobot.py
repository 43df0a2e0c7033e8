"""LeRobotDataset: items as lerobot's class of that name gives them, key by key, out of v2.0, v2.1 and v3.0 datasets in place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _engine, _memory, _options
from ._errors import Misuse, NotFound, Unsupported
from .dataset import Dataset
from .mapdataset import MapDataset, sample_config, values

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata"]

_UNITS = ("m", "mm")


def _locate(repo_id: Any, root: Any) -> str:
    """root, else repo_id where that is a path or URI, else the folder where lerobot keeps datasets."""
    if root is not None:
        return _options.uri(root)
    text = _options.uri(repo_id)
    if "://" in text or os.path.isdir(text):
        return text
    base = os.environ.get("HF_LEROBOT_HOME") or os.path.join(os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"), "lerobot")
    local = os.path.join(base, text)
    if os.path.isdir(local):
        return local
    snapshots = Path(base, "hub", "datasets--" + text.replace("/", "--"), "snapshots")
    found = sorted(snapshots.glob("*/meta/info.json"), key=lambda p: p.stat().st_mtime) if snapshots.is_dir() else []
    if found:
        return str(found[-1].parent.parent)
    raise NotFound(
        f"no dataset {text!r}: it is not a path, and not in {base}",
        {"dataset": text},
        "RoboCache reads what is on disk: give root=, or fetch it first with 'hf download --repo-type dataset'",
    )


class _Episodes(Sequence[Any]):
    """Rows of episode metadata: episodes[i] is a dict, episodes["length"] a column."""

    def __init__(self, meta: LeRobotDatasetMetadata) -> None:
        t = meta._dataset.episodes
        ends = np.cumsum(t["lengths"])
        self._columns: dict[str, Any] = {
            "episode_index": t["episode_index"].tolist(),
            "length": t["lengths"].tolist(),
            "tasks": t["tasks"],
            "dataset_from_index": (ends - t["lengths"]).tolist(),
            "dataset_to_index": ends.tolist(),
        }

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(self._columns["length"])

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, str):
            _options.key(i, self._columns, "column")
            return self._columns[i]
        if isinstance(i, slice):
            return {k: v[i] for k, v in self._columns.items()}
        return {k: v[i] for k, v in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))


class LeRobotDatasetMetadata:
    """What lerobot's meta offers to readers: fps, features, stats, tasks, episodes, keys and totals."""

    def __init__(self, dataset: Dataset, repo_id: str, depth_unit: str) -> None:
        self._dataset = dataset
        self._depth_unit = depth_unit
        self.repo_id = repo_id
        self.root = Path(dataset.uri.removeprefix("file://"))
        self._features: dict[str, dict[str, Any]] | None = None
        self._stats: dict[str, dict[str, np.ndarray]] | None = None
        self._episodes: _Episodes | None = None
        self._info: dict[str, Any] | None = None

    @property
    def info(self) -> dict[str, Any]:
        """meta/info.json as it is; empty where the dataset is not a local folder."""
        if self._info is None:
            try:
                self._info = json.loads((self.root / "meta" / "info.json").read_bytes())
            except (OSError, ValueError):
                self._info = {}
        return self._info

    @property
    def fps(self) -> Any:
        return self._dataset.fps

    @property
    def robot_type(self) -> str | None:
        return self._dataset.robot_type

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """key → {dtype, shape, names, …}, as info.json says it, less what has no data."""
        if self._features is None:
            told = self.info.get("features") or {}
            out: dict[str, dict[str, Any]] = {}
            for k, f in self._dataset.features.items():
                one = dict(told.get(k) or {"dtype": f.kind if f.kind in ("video", "image") else f.dtype, "shape": f.shape, "names": f.names})
                one["shape"] = tuple(one.get("shape") or f.shape)
                out[k] = one
            self._features = out
        return self._features

    @property
    def stats(self) -> dict[str, dict[str, np.ndarray]]:
        """Statistics; those of depth cameras in depth_output_unit."""
        if self._stats is None:
            out = dict(self._dataset.stats)
            for k in self.depth_keys:
                unit = (self.features[k].get("info") or {}).get("depth_unit")
                if k in out and unit in _UNITS and unit != self._depth_unit:
                    factor = 1000.0 if unit == "m" else 1e-3
                    out[k] = {n: v if n == "count" else v * factor for n, v in out[k].items()}
            self._stats = out
        return self._stats

    @property
    def tasks(self) -> Any:
        """A pandas frame with the task texts as index, as lerobot's; without pandas a dict text → task_index."""
        texts = self._dataset.tasks
        try:
            import pandas as pd
        except ImportError:
            return {t: i for i, t in texts.items()}
        return pd.DataFrame({"task_index": list(texts)}, index=pd.Index(list(texts.values()), name="task"))

    @property
    def episodes(self) -> _Episodes:
        if self._episodes is None:
            self._episodes = _Episodes(self)
        return self._episodes

    def _of_kind(self, *kinds: str) -> list[str]:
        return [k for k, f in self._dataset.features.items() if f.kind in kinds]

    @property
    def video_keys(self) -> list[str]:
        return self._of_kind("video")

    @property
    def image_keys(self) -> list[str]:
        return self._of_kind("image")

    @property
    def camera_keys(self) -> list[str]:
        return self._of_kind("video", "image")

    @property
    def depth_keys(self) -> list[str]:
        """Cameras marked as depth, in any of the ways that the format has had."""

        def marked(f: Mapping[str, Any]) -> bool:
            info, video_info = f.get("info") or {}, f.get("video_info") or {}
            return bool(info.get("is_depth_map") or info.get("video.is_depth_map") or video_info.get("video.is_depth_map"))

        return [k for k in self.camera_keys if self._dataset.features[k].depth or marked(self.features[k])]

    @property
    def names(self) -> dict[str, Any]:
        return {k: f.get("names") for k, f in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {k: tuple(f["shape"]) for k, f in self.features.items()}

    @property
    def total_episodes(self) -> int:
        return self._dataset.num_episodes

    @property
    def total_frames(self) -> int:
        return self._dataset.num_frames

    @property
    def total_tasks(self) -> int:
        return len(self._dataset.tasks)

    def get_task_index(self, task: str) -> int | None:
        return next((i for i, t in self._dataset.tasks.items() if t == task), None)


class _Table:
    """The rows of the table without pictures: what hf_dataset is used for. table[i], table["column"], table.select_columns([…])."""

    def __init__(self, owner: LeRobotDataset, columns: list[str]) -> None:
        self._owner = owner
        self.column_names = columns
        config = {k: v for k, v in owner._config.items() if k in ("episodes", "compat", "depth_unit")}
        config["keys"] = columns
        self._config = config
        self._map = _engine.Handle(self._make)

    def _make(self) -> tuple[int, Any]:
        answer = self._owner.dataset._handle.call("robocache_map_new", self._config)
        return answer["map"], answer

    def __getstate__(self) -> dict[str, Any]:
        return {"owner": self._owner, "columns": self.column_names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["owner"], state["columns"])  # type: ignore[misc]

    @property
    def features(self) -> dict[str, Any]:
        return {k: self._owner.meta.features[k] for k in self.column_names}

    @property
    def num_rows(self) -> int:
        return len(self)

    def __len__(self) -> int:
        return self._map.open().info["len"]

    def _rows(self, indices: list[int]) -> dict[str, Any]:
        v = values(self._map.call("robocache_map_items", {"indices": indices}), _memory.torch_module())
        return {k: v[k] for k in self.column_names}

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, str):
            _options.key(i, self.column_names, "column")
            column = self.select_columns([i])._rows(list(range(len(self))))[i]
            return column if isinstance(column, list) else list(column)
        if isinstance(i, slice):
            i = list(range(*i.indices(len(self))))
        if isinstance(i, Iterable) and getattr(i, "ndim", None) != 0:
            rows = self._rows([self._owner._index(k) for k in i])
            return {k: v if isinstance(v, list) else list(v) for k, v in rows.items()}
        return {k: v[0] for k, v in self._rows([self._owner._index(i)]).items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def select_columns(self, column_names: str | Sequence[str]) -> _Table:
        names = [column_names] if isinstance(column_names, str) else list(column_names)
        for n in names:
            _options.key(n, self.column_names, "column")
        return _Table(self._owner, names)

    def unique(self, column: str) -> list[Any]:
        return list(dict.fromkeys(v.item() if hasattr(v, "item") else v for v in self[column]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"hf_dataset.{name}: RoboCache keeps no datasets.Dataset; there are [i], ['column'], select_columns, unique, column_names, features, len"
        )


class LeRobotDataset(MapDataset):
    """A LeRobot dataset, with the constructor, the items and the attributes of lerobot 0.6's class of that name.

    repo_id: a path, a URI, or a repository name that is on disk; root: the folder, as there. v2.0, v2.1 and v3.0 are read in place.
    Pictures are found by ordinal, so drifting timestamps never give a neighbouring frame; tolerance_s checks delta_timestamps.
    check_timestamps=True also repeats lerobot's check of picture times against tolerance_s, and raises where it does.
    return_uint8: video as uint8 instead of float32 in [0, 1]. depth_output_unit: "mm" or "m".
    image_transforms: called once per colour camera, on (C, H, W) or (T, C, H, W).
    keys, image_size, image_resize, threads, memory_budget: RoboCache's own; see MapDataset.
    revision, force_cache_sync, download_videos, video_backend and token are accepted and without effect: nothing is downloaded.
    """

    @_options.checked
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
        image_resize: str | None = None,
        threads: int | None = None,
        memory_budget: int | str | None = None,
    ) -> None:
        if image_transforms is not None and not callable(image_transforms):
            raise TypeError("image_transforms must be callable or None.")
        if batch_encoding_size != 1 or streaming_encoding or rgb_encoder is not None or depth_encoder is not None:
            raise Unsupported("robocache.LeRobotDataset reads; the options of recording are not for it", hint="record with lerobot, or write with 'robocache convert'")
        self.repo_id = str(repo_id)
        self.dataset = Dataset(_locate(repo_id, root), format="lerobot", memory_budget=memory_budget)
        self.meta = LeRobotDatasetMetadata(self.dataset, self.repo_id, depth_output_unit)
        self.root = self.meta.root
        self.revision = revision or self.dataset.version
        self.image_transforms = image_transforms
        self.delta_timestamps = delta_timestamps
        self.tolerance_s = float(tolerance_s)
        self.depth_output_unit = _options.choice("depth_output_unit", depth_output_unit, _UNITS)
        if episode_filter is not None:
            chosen = None if episodes is None else set(episodes)
            episodes = [r["episode_index"] for r in self.meta.episodes if (chosen is None or r["episode_index"] in chosen) and episode_filter(r)]
            if not episodes:
                raise Misuse("episode_filter leaves no episode")
        self.episodes = None if episodes is None else list(episodes)
        self._config = sample_config(
            self.dataset.features, episodes=self._positions(), delta_timestamps=delta_timestamps, keys=keys,
            image_dtype="uint8" if return_uint8 else "float32", image_size=image_size, image_resize=image_resize,
        )  # fmt: skip
        self._config.update(compat="lerobot", depth_unit=depth_output_unit)
        self._config["tolerance_s" if check_timestamps else "offset_tolerance_s"] = self.tolerance_s
        if threads is not None:
            self._config["threads"] = int(threads)
        if memory_budget is not None:
            self._config["memory_budget"] = _options.bytes_of("memory_budget", memory_budget)
        self._start()

    def _positions(self) -> list[int] | None:
        """Episode numbers as positions."""
        if self.episodes is None:
            return None
        table = self.dataset.episodes["episode_index"]
        place = {int(n): i for i, n in enumerate(table)}
        missing = [e for e in self.episodes if int(e) not in place]
        if missing:
            raise Misuse(f"episodes {missing[:5]} are not in this dataset of {len(place)} episodes", {"dataset": self.dataset.uri, "episode": int(missing[0])})
        return [place[int(e)] for e in self.episodes]

    @property
    def num_frames(self) -> int:
        """Frames of the selected episodes."""
        return len(self)

    @property
    def num_episodes(self) -> int:
        """Episodes selected."""
        return self.dataset.num_episodes if self.episodes is None else len(self.episodes)

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        return self.meta.features

    @property
    def hf_dataset(self) -> _Table:
        """The rows of the table without pictures: [i], ["column"], select_columns."""
        return _Table(self, [k for k, f in self.dataset.features.items() if f.kind not in ("video", "image")])

    def select_columns(self, column_names: str | Sequence[str]) -> _Table:
        return self.hf_dataset.select_columns(column_names)

    def get_raw_item(self, idx: Any) -> dict[str, Any]:
        return self.hf_dataset[idx]

    def set_image_transforms(self, image_transforms: Callable[[Any], Any] | None) -> None:
        if image_transforms is not None and not callable(image_transforms):
            raise TypeError("image_transforms must be callable or None.")
        self.image_transforms = image_transforms

    def clear_image_transforms(self) -> None:
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

    def __getattr__(self, name: str) -> Any:
        if name in ("add_frame", "save_episode", "push_to_hub", "create", "resume", "writer", "finalize", "clear_episode_buffer", "start_image_writer"):
            raise AttributeError(f"LeRobotDataset.{name}: this class reads; record with lerobot, and read here what it wrote")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({{\n    Repository ID: '{self.repo_id}',\n    Number of selected episodes: '{self.num_episodes}',\n"
            f"    Number of selected samples: '{self.num_frames}',\n    Features: '{list(self.features)}',\n}})"
        )
