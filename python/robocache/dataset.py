"""Dataset: looking at what was recorded. Batches for training come from Loader and MapDataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _config, _engine, _keywords, _options, _statistics
from ._errors import Misuse
from ._feature import Feature, Features
from ._options import told_rate
from .episode import Episode, Stream

if TYPE_CHECKING:
    from ._view import View
    from .edit import Edit

__all__ = ["Dataset", "Episode", "Stream", "Feature", "open"]


class Dataset:
    """An open dataset of any readable format. Made by robocache.open; may be pickled, and used after a fork."""

    def __init__(
        self,
        uri: Any,
        *,
        format: str | None = None,
        rows_hz: Any = None,
        map: Any = None,
        options: Mapping[str, Any] | None = None,
        follow_links: bool | None = None,
        memory_budget: int | str | None = None,
        split: str | None = None,
        depth_unit: str | None = None,
    ) -> None:
        given = {
            "format": format,
            "rows_hz": rows_hz,
            "map": map,
            "options": options,
            "follow_links": follow_links,
            "memory_budget": memory_budget,
            "split": split,
            "depth_unit": depth_unit,
        }
        self._args: dict[str, Any] = {
            "uri": _options.uri(uri),
            **_config.settle(_config.OPEN, given),
        }
        self.uri = self._args["uri"]
        self._fresh()

    def _fresh(self) -> None:
        self._handle = _engine.Handle(self._open)
        self._info: dict[str, Any] | None = None
        self._features: Features | None = None
        self._stats: dict[str, dict[str, np.ndarray]] | None = None
        self._table: dict[str, Any] | None = None
        self._indices: np.ndarray | None = None

    def _open(self) -> tuple[int, Any]:
        answer = _engine.call("robocache_open", self._args)
        return answer["dataset"], answer["info"]

    def _made(self, call: str, kind: str, config: Mapping[str, Any]) -> tuple[int, Any]:
        """A map or loader over the dataset: its number, and what making it answered."""
        answer = self._handle.call(call, dict(config))
        return answer[kind], answer

    def __getstate__(self) -> dict[str, Any]:
        return {"args": self._args}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._args = state["args"]
        self.uri: Any = self._args["uri"]
        self._fresh()

    @property
    def info(self) -> dict[str, Any]:
        """What the dataset says of itself, as the engine tells it."""
        if self._info is None:
            self._info = self._handle.open().info
        return self._info

    @property
    def format(self) -> str:
        """Name of the format: "lerobot" …"""
        return self.info["format"]

    @property
    def version(self) -> str:
        """Version of the format: "v3.0" …"""
        return self.info["version"]

    @property
    def robot_type(self) -> str | None:
        return self.info.get("robot_type")

    @property
    def fps(self) -> Any:
        """Rows a second: int where whole, else float; None where the format has no common rate."""
        return told_rate(self.info.get("fps"))

    @property
    def num_episodes(self) -> int:
        return self.info["num_episodes"]

    @property
    def num_frames(self) -> int:
        """Rows over all episodes."""
        return self.info["num_frames"]

    @property
    def features(self) -> Features:
        """The streams by key, in the dataset's order: a dict that prints as a table."""
        if self._features is None:
            self._features = Features(
                (d["key"], Feature.of(d)) for d in self.info["features"] or []
            )
            self._features.withheld = {
                f["not_delivered"]: f["message"]
                for f in self.findings
                if f.get("not_delivered") and f["not_delivered"] not in self._features
            }
        return self._features

    @property
    def tasks(self) -> dict[int, str]:
        """task_index → text."""
        return {t["task_index"]: t["task"] for t in self.info.get("tasks") or []}

    @property
    def splits(self) -> dict[str, int]:
        """The splits that the dataset names, each with the number of its episodes; empty where it names none."""
        return dict(self.info.get("split_episodes") or {})

    def split(self, name: str) -> Dataset:
        """Returns the episodes of a split as a Dataset; they keep their indices. Raises Misuse, with the names of the splits."""
        if "episodes" in self._args:
            raise Misuse("a part of a dataset has no splits of its own", {"dataset": self.uri})
        return self._of({"split": str(name)})

    def random_split(
        self,
        fractions: Any,
        seed: int = 0,
        *,
        by: str = "episode",
        stratify: str | None = None,
        group: str | None = None,
    ) -> tuple[Dataset, ...]:
        """Deals the episodes out at random: train, val = ds.random_split(0.9).

        fractions: of the first part, the second takes the rest; or of each part, (0.8, 0.1, 0.1), or numbers of episodes, (40, 10). Each episode goes into one part.
        The same seed gives the same parts, as those of `robocache edit split --seed`. by: "episode", whose rows always stay together. stratify="task": each task
        by the same fractions. group: a column; episodes whose first rows have one value of it stay together.
        Returns Datasets, whose episodes are in their order and keep their indices. Raises Misuse where a part would be empty.
        """
        _options.choice("by", by, ("episode",))
        shares = (
            list(fractions)
            if isinstance(fractions, (list, tuple, np.ndarray))
            else [_options.real("fractions", fractions), None]
        )
        into = [f"{i}={'rest' if x is None else x}" for i, x in enumerate(shares)]
        given = {
            "verb": "split",
            "into": into,
            "seed": _options.whole("seed", seed, 0),
            "stratify": stratify,
            "group": group,
        }
        dealt = self._handle.call(
            "robocache_deal", {k: v for k, v in given.items() if v is not None}
        )
        return tuple(self._of({"episodes": part}) for part in dealt["parts"])

    def _of(self, change: dict[str, Any]) -> Dataset:
        ds = Dataset.__new__(Dataset)
        ds.__setstate__({"args": {**self._args, **change}})
        ds._handle.open()
        return ds

    def edit(self) -> Edit:
        """Changes of this dataset, which are written in one pass: ds.edit().delete([3]).trim(0.5).write("clean"). robocache.edit has them all."""
        from .edit import Edit

        return Edit([self])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What opening noticed: severity, code, where, message, hint. 'robocache doctor' looks closer.

        not_delivered is the key of a stream that the dataset declares and that cannot be given; `message` says why.
        """
        return list(self.info.get("findings") or [])

    @property
    def stats(self) -> dict[str, dict[str, np.ndarray]]:
        """Statistics that the dataset brings: feature → min, max, mean, std, count, q01 …; empty where it brings none."""
        if self._stats is None:
            self._stats = _statistics.of(self._handle.call("robocache_stats") or {})
        return self._stats

    def compute_stats(
        self,
        keys: Iterable[str] | None = None,
        *,
        episodes: Iterable[int] | None = None,
        frames: str = "none",
        skip_bad: bool = False,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Counts the statistics now, in one pass of float64 with exact quantiles, in the shape of `stats`: for Loader(stats=), Mix(stats=).

        keys: these features (default: all that can have statistics; text has none). episodes: indices, say those one trains on.
        frames: images looked at: "none", "sampled" (LeRobot's choice) or "all"; theirs are in [0, 1] by channel, shape (C, 1, 1).
        skip_bad: leave out episodes that cannot be read.
        Raises Misuse for an unknown key or episode, Malformed where files or episodes cannot be read.
        """
        how: dict[str, Any] = {
            "count": True,
            "skip_bad": bool(skip_bad),
            "frames": _options.choice("frames", frames, ("none", "sampled", "all")),
        }
        if keys is not None:
            how["keys"] = [
                _options.key(k, self.features, "key")
                for k in ([keys] if isinstance(keys, str) else keys)
            ]
        if episodes is not None:
            how["episodes"] = [_options.whole("episodes", i, 0) for i in episodes]
        return _statistics.of(self._handle.call("robocache_stats", how) or {})

    @property
    def episodes(self) -> dict[str, Any]:
        """Columns over all episodes: episode_index, lengths (arrays) and tasks (lists of texts)."""
        if self._table is None:
            t = self._handle.call("robocache_episodes")
            self._table = {
                "episode_index": np.array(t["episode_index"], np.int64),
                "lengths": np.array(t["lengths"], np.int64),
                "tasks": t["tasks"],
            }
        return self._table

    @property
    def episode_indices(self) -> np.ndarray:
        """The index of each episode, int64, in the dataset's order: the numbers that episode() and every episodes= take.

        LeRobot's episode_index, the N of HDF5's demo_N; formats without numbers count from 0."""
        if self._indices is None:
            told = self.info.get("episode_indices")
            self._indices = (
                np.arange(self.num_episodes) if told is None else np.array(told, np.int64)
            )
        return self._indices

    def episode(self, index: int) -> Episode:
        """Returns the episode with an index (episode_indices lists them).

        Args:
            index: the number that the dataset gives the episode. ds[i] takes a position instead, and ds[-1] is the last episode.

        Raises:
            Misuse: there is no such episode, or several have this index.
        """
        if not _options.is_integer(index):
            raise Misuse(f"episode {index!r}: expected an integer")
        found = np.flatnonzero(self.episode_indices == int(index))
        if len(found) != 1:
            what = (
                "no episode has this index"
                if len(found) == 0
                else f"{len(found)} episodes have this index"
            )
            hint = (
                "Pass one of ds.episode_indices; ds[i] takes a position."
                if len(found) == 0
                else "Renumber them: robocache convert does."
            )
            raise Misuse(what, {"dataset": self.uri, "episode": int(index)}, hint)
        return Episode(self, int(found[0]))

    def __len__(self) -> int:
        return self.num_episodes

    def __getitem__(self, position: int) -> Episode:
        """The episode at a position, as of any sequence: ds[0] is the first, ds[-1] the last."""
        if not _options.is_integer(position):
            raise Misuse(f"position {position!r}: expected an integer")
        n, position = self.num_episodes, int(position)
        if not -n <= position < n:
            raise Misuse(
                f"position {position} of a dataset of {n} episodes",
                {"dataset": self.uri, "position": position},
            )
        return Episode(self, position % n)

    def __iter__(self) -> Iterator[Episode]:
        return (Episode(self, i) for i in range(self.num_episodes))

    def view(self, other: Any = None, *, flags: Any = None, listen: str = "127.0.0.1:0") -> View:
        """Serves the page of `robocache view` beside this process: episodes, frames, plots on one time axis. Returns a View: .url (with its token), .close().

        other: another dataset, beside this one. flags: the file of flagged episodes that the page writes. listen: address and port; port 0 takes a free one.
        """
        from ._view import View, arguments

        args = [
            f"--listen={listen}",
            *arguments(self._args),
            *([] if flags is None else [f"--flags={os.fspath(flags)}"]),
        ]
        return View(
            [
                *args,
                "--",
                self.uri,
                *([] if other is None else [getattr(other, "uri", None) or _options.uri(other)]),
            ]
        )

    def plot(self, ax: Any = None) -> Any:
        """The lengths of the episodes, as a histogram. Returns matplotlib's Figure, or ax where one is given. Unsupported without matplotlib."""
        from . import _notebook

        return _notebook.plot_dataset(self, ax)

    def thumbnail(self, index: int, key: str | None = None, *, height: int = 96) -> np.ndarray:
        """An image of the middle of the episode with an index, uint8 (height, W, 3), which notebooks show. key: the camera; default the first."""
        return self.episode(index).thumbnails(1, key, height=height)[0]

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.of_dataset(self)

    def close(self) -> None:
        """Closes files. Batches and tensors that came from it stay valid."""
        self._handle.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<robocache.Dataset {self.uri!r}: {self.format} {self.version}, {self.num_episodes} episodes, {self.num_frames} frames>"


@_keywords.checked
def open(
    uri: Any,
    *,
    format: str | None = None,
    rows_hz: Any = None,
    map: Any = None,
    options: Mapping[str, Any] | None = None,
    follow_links: bool | None = None,
    memory_budget: int | str | None = None,
    split: str | None = None,
    depth_unit: str | None = None,
) -> Dataset:
    """Opens the dataset at a path or URI.

    uri: a path, file://, http(s)://, s3:// or gs://bucket/prefix, or hf://datasets/owner/name. The format is detected; format= overrides.
    rows_hz: rate of the rows, for formats that keep no clock; Misuse of those that do: LeRobot, MCAP, rosbag2 (hz= of Loader, MapDataset and Episode.align resamples). options: choices of one format, {name: value}; its page lists them.
    map: a mapping that says what the format leaves open (streams, clocks, units): a dict, or the path of a file.
    split: the episodes of one split alone ("train", "val"; Dataset.splits has the names), which keep their indices; default all.
    follow_links: True lets links of a local dataset lead out of its folder, as those of git-annex and DVC do: whoever wrote it then chooses which
        files of this machine are read. Such a link is Malformed otherwise, and names its file. The links of Hugging Face's cache need it not.
    memory_budget: bytes (or "1GiB") for tables, sample indexes and open files.
    depth_unit: "mm" or "m": depth of streams, align and statistics comes in it, and features says so; a Loader or MapDataset of this dataset
        takes it over. Default: the unit in which it is kept, which features says, and float depth as stored, to the bit.
    Raises NotFound, Malformed or Unsupported with `.where` and `.hint`.
    """
    ds = Dataset(
        uri,
        format=format,
        rows_hz=rows_hz,
        map=map,
        options=options,
        follow_links=follow_links,
        memory_budget=memory_budget,
        split=split,
        depth_unit=depth_unit,
    )
    ds._handle.open()
    return ds


def opened(source: Any, how: Mapping[str, Any]) -> Dataset:
    """Returns source if it is a Dataset, else a Dataset of the path. how: keywords of open that are not None."""
    if not isinstance(source, Dataset):
        return Dataset(source, **how)
    for name in how:
        raise Misuse(
            f"Open.{name} is for opening a path, and this is a Dataset that was opened already",
            hint=f"robocache.open(…, {name}=…)",
        )
    return source
