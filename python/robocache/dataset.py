"""Dataset reads what was recorded. Batches for training come from Loader and MapDataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _config, _engine, _keywords, _checks, _statistics
from ._errors import Misuse
from ._feature import Feature, Features
from ._checks import parse_rate
from .episode import Episode, Stream

if TYPE_CHECKING:
    from ._quality import Quality
    from ._search import Found
    from ._view import View
    from .edit import Edit

__all__ = ["Dataset", "Episode", "Stream", "Feature", "open"]


class Dataset:
    """An open dataset of any readable format.

    robocache.open returns it. A Dataset can be pickled and used after a fork. len() is the number
    of episodes, ds[i] is the episode at position i, and iteration yields all episodes.

    Attributes:
        uri: The path or URI that was opened.

    Example:
        ds = robocache.open("data/pusht")
        print(ds.features)
        for episode in ds:
            print(episode.index, episode.length, episode.streams["action"].values.shape)
    """

    def __init__(
        self,
        uri: Any,
        *,
        format: str | None = None,
        rows_hz: Any = None,
        map: Any = None,
        options: Mapping[str, Any] | None = None,
        follow_links: bool | None = None,
        recording_index: Any = None,
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
            "recording_index": recording_index,
            "memory_budget": memory_budget,
            "split": split,
            "depth_unit": depth_unit,
        }
        self._args: dict[str, Any] = {
            "uri": _checks.path_text(uri),
            **_config.check_options(_config.OPEN, given),
        }
        self.uri = self._args["uri"]
        self._reset_state()

    def _reset_state(self) -> None:
        """Clears what was read, and makes a new handle."""
        self._handle = _engine.Handle(self._open)
        self._info: dict[str, Any] | None = None
        self._features: Features | None = None
        self._stats: dict[str, dict[str, np.ndarray]] | None = None
        self._table: dict[str, Any] | None = None
        self._indices: np.ndarray | None = None

    def _open(self) -> tuple[int, Any]:
        """Opens the dataset in the engine."""
        answer = _engine.call_engine("robocache_open", self._args)
        return answer["dataset"], answer["info"]

    def _create_object(self, call: str, kind: str, config: Mapping[str, Any]) -> tuple[int, Any]:
        """Creates an object over the dataset; returns its number and the engine's answer.

        Args:
            call: The function of the engine.
            kind: The entry of the answer with the number.
            config: The arguments of the function.
        """
        answer = self._handle.call(call, dict(config))
        return answer[kind], answer

    def __getstate__(self) -> dict[str, Any]:
        return {"args": self._args}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._args = state["args"]
        self.uri: Any = self._args["uri"]
        self._reset_state()

    @property
    def info(self) -> dict[str, Any]:
        """The engine's description of the dataset."""
        if self._info is None:
            self._info = self._handle.open().info
        return self._info

    @property
    def format(self) -> str:
        """The name of the format, such as "lerobot"."""
        return self.info["format"]

    @property
    def version(self) -> str:
        """The version of the format, such as "v3.0"."""
        return self.info["version"]

    @property
    def robot_type(self) -> str | None:
        """The type of the robot; None if the dataset does not name it."""
        return self.info.get("robot_type")

    @property
    def fps(self) -> Any:
        """Rows per second: int if whole, else float. None if the streams have no common rate."""
        return parse_rate(self.info.get("fps"))

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return self.info["num_episodes"]

    @property
    def num_frames(self) -> int:
        """The number of rows over all episodes."""
        return self.info["num_frames"]

    @property
    def features(self) -> Features:
        """The streams by key, in the dataset's order: a dict of Feature that prints as a table."""
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
    def modality(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The named parts of streams that GR00T's meta/modality.json states: {kind: {name: part}}.

        The kinds are "state", "action", "video" and "annotation"; parts have the order of the file.
        part["original_key"] is the key of the stream, even if the file leaves it out. Parts of
        states and actions have "start" and "end" (columns start to end-1), and "rotation_type" and
        "absolute" if the file states them. The dict is empty if there is no such file.
        """
        parts: dict[str, dict[str, dict[str, Any]]] = {}
        for g in self.info.get("groups") or []:
            part = {k: v for k, v in g.items() if k not in ("kind", "name")}
            if g["kind"] in ("video", "annotation"):
                del part["start"], part["end"]
            parts.setdefault(g["kind"], {})[g["name"]] = part
        return parts

    @property
    def tasks(self) -> dict[int, str]:
        """{task_index: text}."""
        return {t["task_index"]: t["task"] for t in self.info.get("tasks") or []}

    @property
    def splits(self) -> dict[str, int]:
        """{split: number of episodes}. Empty if the dataset names no splits."""
        return dict(self.info.get("split_episodes") or {})

    def split(self, name: str) -> Dataset:
        """Returns the episodes of a split as a Dataset. They keep their indices.

        Args:
            name: One of `splits`.

        Raises:
            Misuse: There is no such split; the message lists the names. Or this Dataset is already
                a part.
        """
        if "episodes" in self._args:
            raise Misuse("a part of a dataset has no splits of its own", {"dataset": self.uri})
        return self._reopen({"split": str(name)})

    def random_split(
        self,
        fractions: Any,
        seed: int = 0,
        *,
        by: str = "episode",
        stratify: str | None = None,
        group: str | None = None,
    ) -> tuple[Dataset, ...]:
        """Divides the episodes at random: train, val = ds.random_split(0.9).

        Each episode goes into exactly one part, in the original order and with its index. The same
        seed gives the same parts, also in `robocache edit split --seed`.

        Args:
            fractions: The fraction of the first part (the second part takes the rest), or one
                fraction per part, such as (0.8, 0.1, 0.1), or numbers of episodes, such as (40,
                10).
            seed: The seed of the random order. Default 0.
            by: "episode": the rows of an episode stay together.
            stratify: "task" divides the episodes of each task by the same fractions. Default None.
            group: A column. Episodes whose first rows have the same value stay together. Default
                None.

        Returns:
            A tuple of Datasets.

        Raises:
            Misuse: A part would be empty, or an argument is invalid.
        """
        _checks.check_choice("by", by, ("episode",))
        shares = (
            list(fractions)
            if isinstance(fractions, (list, tuple, np.ndarray))
            else [_checks.check_real("fractions", fractions), None]
        )
        into = [f"{i}={'rest' if x is None else x}" for i, x in enumerate(shares)]
        given = {
            "verb": "split",
            "into": into,
            "seed": _checks.check_whole("seed", seed, 0),
            "stratify": stratify,
            "group": group,
        }
        dealt = self._handle.call(
            "robocache_deal", {k: v for k, v in given.items() if v is not None}
        )
        return tuple(self._reopen({"episodes": part}) for part in dealt["parts"])

    def _reopen(self, change: dict[str, Any]) -> Dataset:
        """Returns the same dataset opened with changed options."""
        self._refuse_derived("a split")
        ds = Dataset.__new__(Dataset)
        ds.__setstate__({"args": {**self._args, **change}})
        ds._handle.open()
        return ds

    def _refuse_derived(self, what: str) -> None:
        """Raises Misuse if streams are derived, which belong to the episodes as they are."""
        if "derived" in self._args:
            raise Misuse(
                f"{what} of a dataset with derived streams",
                {"dataset": self.uri},
                "Open the dataset again, without derive=.",
            )

    def edit(self) -> Edit:
        """Starts a sequence of changes, which are written in one pass. See robocache.edit.

        Returns:
            An Edit without changes.

        Example:
            ds.edit().delete([3]).trim(0.5).write("clean")
        """
        from .edit import Edit

        self._refuse_derived("an edit")
        return Edit([self])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What opening noticed: a list of dicts with severity, code, where, message and hint.

        `robocache doctor` examines more. not_delivered is the key of a stream that the dataset
        declares and RoboCache cannot deliver; message has the reason.
        """
        return list(self.info.get("findings") or [])

    @property
    def stats(self) -> dict[str, dict[str, np.ndarray]]:
        """The statistics stored in the dataset: {feature: {statistic: array}}.

        The statistics are min, max, mean, std, count, q01 and so on. Empty if the dataset has none.
        """
        if self._stats is None:
            self._stats = _statistics.parse_statistics(self._handle.call("robocache_stats") or {})
        return self._stats

    def compute_stats(
        self,
        keys: Iterable[str] | None = None,
        *,
        episodes: Iterable[int] | None = None,
        frames: str = "none",
        skip_bad: bool = False,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Computes statistics in one pass, in float64 and with exact quantiles.

        Args:
            keys: The features. Default None: all that can have statistics. Text has none.
            episodes: Indices of episodes, for example those of training. Default None: all.
            frames: The images to read: "none" (default), "sampled" (LeRobot's choice) or "all". The
                statistics of images are in [0, 1] per channel, with shape (C, 1, 1).
            skip_bad: Whether to leave out episodes that cannot be read. Default False.

        Returns:
            {feature: {statistic: array}} in the shape of `stats`, for
            robocache.Statistics(values=...).

        Raises:
            Misuse: A key or episode is unknown.
            Malformed: A file or episode cannot be read.
        """
        how: dict[str, Any] = {
            "count": True,
            "skip_bad": bool(skip_bad),
            "frames": _checks.check_choice("frames", frames, ("none", "sampled", "all")),
        }
        if keys is not None:
            how["keys"] = [
                _checks.check_key(k, self.features, "key")
                for k in ([keys] if isinstance(keys, str) else keys)
            ]
        if episodes is not None:
            how["episodes"] = [_checks.check_whole("episodes", i, 0) for i in episodes]
        return _statistics.parse_statistics(self._handle.call("robocache_stats", how) or {})

    def quality(
        self, *, frames: str = "all", episodes: Iterable[int] | None = None, threads: int = 0
    ) -> Quality:
        """Returns the table of metrics of the episodes, as robocache.quality measures them.

        The table that is stored in the dataset is returned if it is of this data and has all
        episodes with the same images. Otherwise the episodes are measured, and nothing is written.

        Args:
            frames: The images to measure: "all" (default), "sample" or "none".
            episodes: Indices of episodes. Default None: all.
            threads: Episodes at once. Default 0: the number of CPUs.

        Returns:
            A Quality.

        Raises:
            Misuse: An episode is unknown.
        """
        from ._quality import Quality

        given: dict[str, Any] = {
            "frames": _checks.check_choice("frames", frames, ("all", "sample", "none")),
            "threads": _checks.check_whole("threads", threads, 0) or os.cpu_count() or 1,
        }
        if episodes is not None:
            given["episodes"] = [_checks.check_whole("episodes", i, 0) for i in episodes]
        return Quality(self._handle.call("robocache_quality", given))

    @property
    def episodes(self) -> dict[str, Any]:
        """A table of the episodes: {"episode_index", "lengths", "tasks"}.

        episode_index and lengths (rows) are int64 arrays. tasks is a list with a list of texts per
        episode.
        """
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
        """The index of each episode, int64, in the dataset's order.

        episode() and every episodes= take these numbers. They are LeRobot's episode_index or the N
        of HDF5's demo_N. Formats without numbers count from 0.
        """
        if self._indices is None:
            stored = self.info.get("episode_indices")
            self._indices = (
                np.arange(self.num_episodes) if stored is None else np.array(stored, np.int64)
            )
        return self._indices

    def episode(self, index: int) -> Episode:
        """Returns the episode with an index.

        Args:
            index: One of episode_indices, the number that the dataset gives the episode. ds[i]
                takes a position instead: ds[-1] is the last episode.

        Raises:
            Misuse: There is no such episode, or several episodes have this index.
        """
        if not _checks.is_integer(index):
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
        """Returns the episode at a position: ds[0] is the first, ds[-1] the last.

        Raises:
            Misuse: The position is out of range or not an integer.
        """
        if not _checks.is_integer(position):
            raise Misuse(f"position {position!r}: expected an integer")
        n = self.num_episodes
        position = int(position)
        if not -n <= position < n:
            raise Misuse(
                f"position {position} of a dataset of {n} episodes",
                {"dataset": self.uri, "position": position},
            )
        return Episode(self, position % n)

    def __iter__(self) -> Iterator[Episode]:
        return (Episode(self, i) for i in range(self.num_episodes))

    def find(self, expression: str = "", **options: Any) -> Found:
        """Finds episodes, and rows of episodes, for which an expression is true.

        Args:
            expression: The expression, such as "max(norm(action)) > 3". docs/find.md describes
                the language.
            options: Keywords of robocache.find, such as episodes=, limit= and index=.

        Returns:
            A Found, a list of ranges with .episodes and .segments.

        Raises:
            Misuse: The expression is wrong. The message names the character.

        Example:
            ds.find("rising(contact) then falling(contact) within 2s").segments
        """
        from ._search import search

        return search(self._handle, expression, options)

    def view(self, other: Any = None, *, flags: Any = None, listen: str = "127.0.0.1:0") -> View:
        """Serves the page of `robocache view`: episodes, frames, and plots on one time axis.

        Args:
            other: A second dataset to show next to this one. Default None.
            flags: The file in which the page stores flagged episodes. Default None.
            listen: The address and port. Port 0 (default) takes a free port.

        Returns:
            A View with .url, which contains an access token, and .close().

        Raises:
            Unsupported: The dataset was opened with options that the page does not support.
        """
        from ._view import View, open_flags

        args = [
            f"--listen={listen}",
            *open_flags(self._args),
            *([] if flags is None else [f"--flags={os.fspath(flags)}"]),
        ]
        return View(
            [
                *args,
                "--",
                self.uri,
                *(
                    []
                    if other is None
                    else [getattr(other, "uri", None) or _checks.path_text(other)]
                ),
            ]
        )

    def plot(self, ax: Any = None) -> Any:
        """Plots a histogram of the lengths of the episodes.

        Args:
            ax: The matplotlib Axes to draw into. Default None: a new Figure.

        Returns:
            The Figure, or ax if it was given.

        Raises:
            Unsupported: matplotlib is not installed.
        """
        from . import _notebook

        return _notebook.plot_dataset(self, ax)

    def thumbnail(self, index: int, key: str | None = None, *, height: int = 96) -> np.ndarray:
        """Returns an image from the middle of an episode, which notebooks show.

        Args:
            index: The index of the episode.
            key: The camera. Default None: the first one.
            height: The height in pixels. Default 96.

        Returns:
            uint8 (height, W, 3).

        Raises:
            Misuse: There is no such episode or camera.
            Unsupported: The dataset has no camera.
        """
        return self.episode(index).thumbnails(1, key, height=height)[0]

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.dataset_html(self)

    def close(self) -> None:
        """Closes the files. Arrays and tensors that were returned stay valid."""
        self._handle.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<robocache.Dataset {self.uri!r}: {self.format} {self.version}, "
            f"{self.num_episodes} episodes, {self.num_frames} frames>"
        )


@_keywords.check_keywords
def open(
    uri: Any,
    *,
    format: str | None = None,
    rows_hz: Any = None,
    map: Any = None,
    options: Mapping[str, Any] | None = None,
    follow_links: bool | None = None,
    recording_index: Any = None,
    memory_budget: int | str | None = None,
    split: str | None = None,
    depth_unit: str | None = None,
) -> Dataset:
    """Opens the dataset at a path or URI.

    Args:
        uri: A path, file://, http(s)://, s3:// or gs://bucket/prefix, or hf://datasets/owner/name.
        format: The name of the format. Default None: detected.
        rows_hz: The rate of the rows in Hz, for formats without timestamps. Formats with timestamps
            (LeRobot, MCAP, rosbag2) raise Misuse. To resample, use hz= of Loader, MapDataset or
            Episode.align.
        map: A mapping for the parts that the format leaves open (streams, clocks, units): a dict,
            or the path of a file. Default None.
        options: {name: value}, the options of one format; the page of the format lists them.
        follow_links: Whether symbolic links may lead out of a local dataset's folder, as those of
            git-annex and DVC do. Then the author of the dataset chooses which files of this machine
            are read. Default False: such a link is Malformed, except for the links of Hugging
            Face's cache.
        recording_index: The path or URI of an index of recordings that `robocache.index` wrote, or
            "off". Default None: the index in the dataset, if there is one.
        memory_budget: Bytes, or text such as "1GiB", for tables, sample indexes and open files.
            Default None: chosen by the engine.
        split: Open only the episodes of one split, such as "train"; Dataset.splits has the names.
            Episodes keep their indices. Default None: all.
        depth_unit: "mm" or "m", the unit of depth in streams, align and statistics. A Loader or
            MapDataset of this dataset uses it too. Default None: the stored unit, which features
            has, and float depth exactly as stored.

    Returns:
        A Dataset.

    Raises:
        NotFound: There is no dataset at uri.
        Malformed: The dataset violates its format; .where has the file.
        Unsupported: RoboCache cannot read the dataset; .hint has the reason.
        Misuse: An option is unknown or invalid.

    Example:
        ds = robocache.open("data/pusht")
        print(ds.features)
        print(ds[0].streams["action"].values)
    """
    ds = Dataset(
        uri,
        format=format,
        rows_hz=rows_hz,
        map=map,
        options=options,
        follow_links=follow_links,
        recording_index=recording_index,
        memory_budget=memory_budget,
        split=split,
        depth_unit=depth_unit,
    )
    ds._handle.open()
    return ds


def as_dataset(source: Any, how: Mapping[str, Any]) -> Dataset:
    """Returns source if it is a Dataset, else a Dataset of the path.

    Args:
        source: A Dataset, a path or a URI.
        how: The keywords of open that are not None.
    """
    if not isinstance(source, Dataset):
        return Dataset(source, **how)
    if how:
        name = next(iter(how))
        raise Misuse(
            f"Open.{name} is for opening a path, and this is a Dataset that was opened already",
            hint=f"robocache.open(…, {name}=…)",
        )
    return source
