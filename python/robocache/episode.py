"""Episode and Stream give access to one recorded trajectory, on its own clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _config, _engine, _keywords, _memory, _checks
from ._errors import Misuse, NotIndexed
from ._feature import Feature

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Episode", "Stream"]

_IMAGES = ("video", "image")


class _StreamMapping(Mapping[str, "Stream"]):
    """The streams of an episode by key, created when they are accessed."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode

    def __getitem__(self, key: str) -> Stream:
        return Stream(self._episode, self._episode.dataset.features[key])

    def __contains__(self, key: object) -> bool:
        return key in self._episode.dataset.features

    def __iter__(self) -> Iterator[str]:
        return iter(self._episode.dataset.features)

    def __len__(self) -> int:
        return len(self._episode.dataset.features)

    def __repr__(self) -> str:
        return f"<streams {', '.join(self)}>"


class Episode:
    """One recorded trajectory, with streams on their own clocks.

    len() is the number of rows.

    Attributes:
        dataset: The Dataset of the episode.
        position: The position of the episode in the dataset.

    Example:
        episode = robocache.open("data/pusht")[0]
        print(episode.streams["action"].values)
        aligned = episode.align(hz=50)
    """

    def __init__(self, dataset: Dataset, position: int) -> None:
        self.dataset = dataset
        self.position = position
        self._meta: dict[str, Any] | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """The engine's description of the episode."""
        if self._meta is None:
            self._meta = self.dataset._handle.call("robocache_episode", {"position": self.position})
        return self._meta

    @property
    def index(self) -> int:
        """The number that the dataset gives the episode (episode_index)."""
        return int(self.dataset.episode_indices[self.position])

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.meta["length"]

    @property
    def tasks(self) -> list[str]:
        """The texts of the episode's tasks."""
        return list(self.meta.get("tasks") or [])

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The streams by key, in the dataset's order. Nothing is read before .times or .values."""
        return _StreamMapping(self)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> Any:
        raise NotIndexed(
            "an Episode has no items",
            {"episode": self.index},
            f"episode.streams[{key!r}].values is a whole stream; MapDataset and Loader give rows",
        )

    def plot(self, keys: Iterable[str] | str | None = None, ax: Any = None) -> Any:
        """Plots streams of numbers over their timestamps in seconds.

        Args:
            keys: The streams, or one stream. Default None: all streams of numbers.
            ax: The matplotlib Axes for all streams. Default None: a new Figure with one Axes per
                stream.

        Returns:
            The Figure, or ax if it was given.

        Raises:
            Misuse: A stream is unknown or has no numbers.
            Unsupported: matplotlib is not installed. `robocache plot` draws without it.
        """
        from . import _notebook

        return _notebook.plot_episode(self, keys, ax)

    def thumbnails(self, n: int = 8, key: str | None = None, *, height: int = 96) -> np.ndarray:
        """Returns images spread evenly over the episode, with the first and the last one.

        Notebooks show them next to each other. Depth is grey, and near pixels are bright.

        Args:
            n: The number of images. Default 8.
            key: The camera. Default None: the first one.
            height: The height in pixels. Default 96.

        Returns:
            uint8 (n, height, W, 3).

        Raises:
            Misuse: The camera is unknown.
            Unsupported: The dataset has no camera, or the episode has no images.
        """
        from . import _notebook

        return _notebook.episode_thumbnails(self, n, key, height)

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.episode_html(self)

    def __repr__(self) -> str:
        return f"<robocache.Episode {self.index} of {self.dataset.uri!r}: {self.length} rows>"

    @_keywords.check_keywords
    def align(
        self,
        *,
        hz: Any = None,
        times: Any = None,
        extent: str = "intersection",
        modes: Mapping[str, str] | None = None,
        edge: str | Mapping[str, str] = "clamp",
        max_gap: Any = None,
        offset: Mapping[str, Any] | None = None,
        latency: Mapping[str, Any] | None = None,
        drift: Mapping[str, Any] | None = None,
        clock: Mapping[str, str] | None = None,
        rotations: Mapping[str, Any] | None = None,
        relative: Mapping[str, Any] | None = None,
        causal: bool = False,
        delay: Any = None,
        max_age: Any = None,
        stale: str | Mapping[str, str] = "mask",
        targets: Iterable[str] | None = None,
        arrival_delay: Any = None,
        keys: Iterable[str] | None = None,
        image_size: tuple[int, int] | None = None,
    ) -> dict[str, Any]:
        """Puts streams onto one timeline.

        A duration is seconds, int or float, or text with a unit ("50ms"). A number of more than a
        day raises Misuse, because it is probably meant as nanoseconds.

        The time of a sample with timestamp t on the common timeline is at + (t - at) / (1 + ppm /
        1e6) + offset - latency.

        Args:
            hz: The rate of a uniform timeline over `extent`, in Hz. Give either hz or times.
            times: The target times, [T], as float seconds or int64 nanoseconds. With mode "mean"
                they must be evenly spaced.
            extent: The extent of the timeline for hz: "intersection" (default), "union", or the key
                of a stream.
            modes: {key: mode}, with "linear", "nearest", "previous", "next", "slerp", "angle",
                "mean" or "sum". Default: "sum" for relative streams, else the feature's
                `interpolation`, else "linear" for floats, "nearest" for images and point clouds,
                and "previous" for all others.
            edge: The rule for rows outside the data, for all streams or {key: edge}: "clamp"
                (default), "mask", "extrapolate" or "error".
            max_gap: The longest gap that is interpolated, a duration for all streams or {key:
                duration}. Default None: no limit.
            offset: {key: duration} added to a stream's timestamps. Default None.
            latency: {key: duration} between an event and its timestamp, subtracted from the
                timestamps. Default None.
            drift: {key: ppm} or {key: (ppm, at)}: the parts per million by which a stream's clock
                is fast (negative: slow), as `robocache doctor` measures it. `at` is the moment on
                that clock at which both clocks agree. Default of at: the stream's first timestamp
                of the episode.
            clock: {key: "header", "publish" or "log"}, the timestamps to use, if the format stores
                several.
            rotations: {key: form} or {key: [(first channel, form)]}, the channels that are
                rotations and are interpolated as such. The form is "rotvec" or three Euler axes in
                radians ("xyz" fixed, "XYZ" moving); a form alone applies to the first three
                channels. Default: the feature's `rotations`.
            relative: {key: True} (all channels except a gripper), {key: False} (none) or {key:
                [channels]} by number or name: the channels that hold changes (delta actions). A row
                covers the time up to the next row, and the value of a relative channel is the sum
                of the changes in that time. So the total is kept. Other channels of such a stream
                are linear. Default: the feature's `relative`, or the names of an action.
            causal: Whether observations use only samples that had arrived at the time of the row. A
                sample arrives at its log time, or else with its timestamp. Observations are then
                "previous" by default, and actions and rewards (labels) may look ahead. Default
                False.
            delay: How long before its time a row of an observation is evaluated, a duration for all
                streams or {key: duration}. Modes that interpolate need it, so that both neighbors
                have arrived. Default None: 0.
            max_age: The age from which a held sample is stale, a duration for all streams or {key:
                duration}. 0: no limit. Default None: 1 s.
            stale: The rule for rows without a sample that is young enough, for all streams or {key:
                rule}: "mask" (default) or "error".
            targets: Further keys of labels. Default None.
            arrival_delay: How long after its arrival a sample can be used, a duration for all
                streams or {key: duration}. Default None: 0.
            keys: The streams to align. Default None: all except images, point clouds and
                bookkeeping columns. Images are decoded to uint8 (T, C, H, W).
            image_size: (height, width) of images in pixels. Default None: as recorded.

        Returns:
            A dict with "times" (int64 ns, (T,)), an array (T, ...) for each key (a list for text),
            and `<key>_is_pad` (bool, (T,)). The mask is True where a row is neither recorded nor
            properly interpolated. The rows of point clouds and other streams of varying length
            follow each other, (N, ...), and `<key>_lengths` (int64, (T,)) has the number of entries
            of each row. "mean" averages from half a period of the timeline before each time to half
            a period after it.

        Raises:
            Misuse: An argument is invalid, or both or neither of hz and times are given.
            Malformed: A stream violates its format.

        Example:
            episode.align(hz=50, modes={"observation.state": "linear"}, max_gap="200ms")
        """
        features = self.dataset.features
        given = {
            "modes": modes,
            "edge": edge,
            "max_gap": max_gap,
            "offset": offset,
            "latency": latency,
            "drift": drift,
            "clock": clock,
            "rotations": rotations,
            "relative": relative,
            "causal": causal or None,
            "delay": delay,
            "max_age": max_age,
            "stale": None if stale == "mask" else stale,
            "targets": targets,
            "arrival_delay": arrival_delay,
        }
        args = _config.check_options(_config.ALIGN, given, features)
        if (hz is None) == (times is None):
            raise Misuse("align: give either hz= or times=")
        if extent not in ("intersection", "union"):
            _checks.check_key(extent, [*features, "intersection", "union"], "extent")
        if hz is not None:
            args.update(hz=_checks.check_rate("hz", hz), extent=extent)
        else:
            args["times_ns"] = _checks.timestamps_ns("times", times).tolist()
        wanted = (
            [
                k
                for k, f in features.items()
                if f.kind not in _IMAGES and not f.ragged and not f.default
            ]
            if keys is None
            else keys
        )
        args["keys"] = [_checks.check_key(k, [*features, "task"]) for k in wanted]
        size = (
            {}
            if image_size is None
            else {"image_size": _checks.check_frame_size("image_size", image_size)}
        )
        return _memory.batch_values(
            self.dataset._handle.call(
                "robocache_align", {"position": self.position, "align": args, **size}
            )
        )


class Stream:
    """One stream of an episode, on its own clock.

    len() is the number of rows.

    Attributes:
        episode: The Episode of the stream.
        feature: The Feature that describes the stream.
    """

    def __init__(self, episode: Episode, feature: Feature) -> None:
        self.episode = episode
        self.feature = feature
        self._times: np.ndarray | None = None

    @property
    def key(self) -> str:
        """The name of the stream."""
        return self.feature.key

    @property
    def kind(self) -> str:
        """ "numeric", "image", "video", "pointcloud", "text" or "event"."""
        return self.feature.kind

    @property
    def dtype(self) -> str:
        """The type of one stored row, by NumPy's name."""
        return self.feature.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one stored row."""
        return self.feature.shape

    def _read_stream(self, times: bool, values: bool) -> dict[str, Any]:
        """Reads the timestamps or the values of the stream."""
        return _memory.batch_values(
            self.episode.dataset._handle.call(
                "robocache_stream",
                {
                    "position": self.episode.position,
                    "key": self.key,
                    "times": times,
                    "values": values,
                },
            )
        )

    @property
    def times(self) -> np.ndarray:
        """The recorded timestamps, int64 nanoseconds."""
        if self._times is None:
            self._times = self._read_stream(True, False)["times"]
        return self._times

    @property
    def values(self) -> Any:
        """All rows of the stream.

        Numbers are an array (N, ...) in the stored dtype, and text is a list of str. Point clouds
        and other rows of varying length are a list of arrays. Images are decoded to (N, C, H, W),
        with depth in feature.unit. frames() decodes only some images.
        """
        if self.kind in _IMAGES:
            return self.frames()
        got = self._read_stream(False, True)
        return (
            np.split(got["values"], np.cumsum(got["lengths"])[:-1])
            if self.feature.ragged and len(got["lengths"])
            else got["values"]
        )

    def frames(
        self,
        rows: Iterable[int] | None = None,
        *,
        image_dtype: str = "uint8",
        image_size: tuple[int, int] | None = None,
        depth_unit: str | None = None,
    ) -> np.ndarray:
        """Decodes images of some rows.

        Args:
            rows: The rows, in the order of the result. Negative rows count from the end. Default
                None: all.
            image_dtype: "uint8" (default), or "float32" in [0, 1].
            image_size: (height, width) in pixels. Default None: as recorded.
            depth_unit: "mm" or "m". Default None: feature.unit.

        Returns:
            (N, C, H, W); grey images have three equal planes. Depth is (N, 1, H, W). Depth stored
            in the requested unit is returned exactly, as uint16 or float32. Other depth, and depth
            from coded video, is float32.

        Raises:
            Misuse: The stream has no images, or a row is out of range.
        """
        if self.kind not in _IMAGES:
            raise Misuse(
                f"stream {self.key!r} is {self.kind}, not images",
                {"stream": self.key},
                "use .values",
            )
        n = len(self)
        chosen = range(n) if rows is None else [int(r) for r in rows]
        for r in chosen:
            if not -n <= r < n:
                raise Misuse(
                    f"row {r} of a stream of {n}",
                    {"episode": self.episode.index, "stream": self.key, "row": r},
                )
        if depth_unit is None:
            depth_unit = self.feature.unit if self.feature.unit in ("mm", "m") else "mm"
        given = {
            "depth_unit": depth_unit,
            "keys": [self.key],
            "episodes": [self.episode.index],
            "image_dtype": image_dtype,
            "image_size": image_size,
        }
        config = _config.sample_config(
            self.episode.dataset.features,
            {**given, "anchor": self.key if self.feature.clock else None},
        )
        if not chosen:
            return self._empty_frames(image_dtype, image_size, depth_unit)
        m = _engine.Handle(
            lambda: self.episode.dataset._create_object("robocache_map_new", "map", config)
        ).open()
        try:
            return _memory.batch_values(
                m.call("robocache_map_items", {"indices": [r % n for r in chosen]})
            )[self.key]
        finally:
            m.close()

    def _empty_frames(
        self, image_dtype: str, image_size: tuple[int, int] | None, depth_unit: str
    ) -> np.ndarray:
        """Returns the result of frames() for no rows.

        The engine makes no samples of an empty episode.
        """
        f = self.feature
        depth = f.depth is not None or f.channels == 1 and f.dtype != "uint8"
        height, width = image_size if image_size is not None else (f.height, f.width)
        whole = (
            f.depth is None
            and f.dtype == "uint16"
            and (depth_unit == "mm" or f.unit not in ("mm", "m"))
        )
        dtype = image_dtype if not depth else "uint16" if whole else "float32"
        return np.zeros((0, 1 if depth else 3, int(height), int(width)), dtype)

    def __getitem__(self, i: Any) -> Any:
        raise NotIndexed(
            "a Stream has no items",
            {"stream": self.key},
            "stream.values[i] are recorded rows, stream.times[i] their timestamps, "
            "stream.frames([i]) images",
        )

    @property
    def rate_hz(self) -> float:
        """The mean rate in Hz, (N - 1) / (last - first); NaN for fewer than two timestamps."""
        t = self.times
        return (
            float((len(t) - 1) / ((int(t[-1]) - int(t[0])) / 1e9))
            if len(t) > 1 and t[-1] > t[0]
            else float("nan")
        )

    def __len__(self) -> int:
        """Returns the number of rows. Rows without timestamps need no rate for this."""
        return (
            int(self._read_stream(False, False)["rows"][0])
            if self._times is None
            else len(self._times)
        )

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.stream_html(self)

    def __repr__(self) -> str:
        return f"<robocache.Stream {self.key!r}: {self.kind} {self.dtype} {self.shape}>"
