"""Episode and Stream: what one recorded trajectory holds, on its own clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _config, _engine, _keywords, _memory, _options
from ._errors import Misuse, NotIndexed
from ._feature import Feature

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Episode", "Stream"]

_IMAGES = ("video", "image")


class _Streams(Mapping[str, "Stream"]):
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
    """One recorded trajectory: streams on their own clocks."""

    def __init__(self, dataset: Dataset, position: int) -> None:
        self.dataset = dataset
        self.position = position
        self._meta: dict[str, Any] | None = None

    @property
    def meta(self) -> dict[str, Any]:
        if self._meta is None:
            self._meta = self.dataset._handle.call("robocache_episode", {"position": self.position})
        return self._meta

    @property
    def index(self) -> int:
        """The number that the dataset gives it (episode_index)."""
        return int(self.dataset.episode_indices[self.position])

    @property
    def length(self) -> int:
        """Rows."""
        return self.meta["length"]

    @property
    def tasks(self) -> list[str]:
        return list(self.meta.get("tasks") or [])

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The streams by key, in the dataset's order. Nothing is read before .times or .values."""
        return _Streams(self)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> Any:
        raise NotIndexed(
            "an Episode has no items",
            {"episode": self.index},
            f"episode.streams[{key!r}].values is a whole stream; MapDataset and Loader give rows",
        )

    def plot(self, keys: Iterable[str] | str | None = None, ax: Any = None) -> Any:
        """Streams of numbers over their own timestamps, in seconds. keys: default all. Returns matplotlib's Figure, with one Axes a stream; or draws all into ax,
        and returns that. Unsupported without matplotlib: `robocache plot` draws without it."""
        from . import _notebook

        return _notebook.plot_episode(self, keys, ax)

    def thumbnails(self, n: int = 8, key: str | None = None, *, height: int = 96) -> np.ndarray:
        """n images evenly over the episode, the first and the last among them: uint8 (n, height, W, 3), which notebooks show side by side. key: the camera;
        default the first. Depth is grey, near is bright. Unsupported where there is no camera."""
        from . import _notebook

        return _notebook.thumbnails(self, n, key, height)

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.of_episode(self)

    def __repr__(self) -> str:
        return f"<robocache.Episode {self.index} of {self.dataset.uri!r}: {self.length} rows>"

    @_keywords.checked
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
        keys: Iterable[str] | None = None,
        image_size: tuple[int, int] | None = None,
    ) -> dict[str, Any]:
        """Brings streams onto one timeline.

        hz: rate of a uniform timeline over `extent` ("intersection", "union", or a stream key); or times: the targets themselves.
        Times are float seconds or int64 nanoseconds. A duration is seconds, int or float, or text with a unit ("50ms"); a number of more than a day is
        Misuse, because it is likely to be nanoseconds.
        modes: key → "linear", "nearest", "previous", "next", "slerp", "angle", "mean", "sum". Without an entry: sum for relative streams, else
        what the feature says of itself (`interpolation`), else floats linear, images and point clouds nearest, everything else previous.
        edge: "clamp", "mask", "extrapolate" or "error", for all or by key. max_gap: no bridging over longer gaps, for all or by key.
        offset: added to a stream's timestamps; latency: how long after the fact it was timestamped (taken off them). drift: parts in a million that a
        stream's clock runs fast (negative: slow), as `robocache doctor` finds it; a number, or (ppm, at) with the moment on that clock at which
        both clocks agree (default: the stream's first timestamp of the episode). The time of a sample is
        at + (timestamp - at) / (1 + ppm / 1e6) + offset - latency. clock: which of several timestamps counts ("header", "publish", "log"), where a format
        keeps them. rotations: key → the channels that are rotations, interpolated as such: "rotvec" or Euler axes ("xyz" fixed, "XYZ" turning
        along; radians) of the first three, or a list of (first channel, form); default: what the feature says of itself.
        relative: key → True (all channels but a gripper), False (none), or a list of channels by number or name: relative channels hold changes
        (delta actions). A row covers the time up to the next one, and a relative channel is the sum of what the samples do in that time, so
        that the total is kept; the other channels are linear. Default: what the feature says of itself (`relative`), or the names of an action.
        keys: the streams to align; default all but images, point clouds and bookkeeping columns. An image stream that is named is decoded: uint8
        (T, C, H, W).
        Returns a dict: "times" (int64 ns, shape (T,)), each key's array (T, …) (text: a list), and `<key>_is_pad` (bool, (T,)),
        True where the row is not a recorded or properly interpolated one. Point clouds and other rows of varying length come one after the
        other, (N, …), and `<key>_lengths`, int64 (T,), says how many are of each row. "mean" takes half a period of the timeline before each
        time and half behind; times= must be evenly spaced for it.
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
        }
        args = _config.settle(_config.ALIGN, given, features)
        if (hz is None) == (times is None):
            raise Misuse("align: give either hz= or times=")
        if extent not in ("intersection", "union"):
            _options.key(extent, [*features, "intersection", "union"], "extent")
        if hz is not None:
            args.update(hz=_options.rate("hz", hz), extent=extent)
        else:
            args["times_ns"] = _options.times_ns("times", times).tolist()
        wanted = (
            [
                k
                for k, f in features.items()
                if f.kind not in _IMAGES and not f.ragged and not f.default
            ]
            if keys is None
            else keys
        )
        args["keys"] = [_options.key(k, [*features, "task"]) for k in wanted]
        size = (
            {}
            if image_size is None
            else {"image_size": _options.frame_size("image_size", image_size)}
        )
        return _memory.values(
            self.dataset._handle.call(
                "robocache_align", {"position": self.position, "align": args, **size}
            )
        )


class Stream:
    """One modality of an episode on its own clock."""

    def __init__(self, episode: Episode, feature: Feature) -> None:
        self.episode = episode
        self.feature = feature
        self._times: np.ndarray | None = None

    @property
    def key(self) -> str:
        return self.feature.key

    @property
    def kind(self) -> str:
        return self.feature.kind

    @property
    def dtype(self) -> str:
        return self.feature.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.feature.shape

    def _read(self, times: bool, values: bool) -> dict[str, Any]:
        return _memory.values(
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
        """Timestamps as recorded, int64 nanoseconds."""
        if self._times is None:
            self._times = self._read(True, False)["times"]
        return self._times

    @property
    def values(self) -> Any:
        """All rows: an array (N, …) in the stored dtype; a list of str for text; of point clouds and other rows of varying length a list of
        arrays; images decoded to (N, C, H, W), depth in feature.unit. See frames() for some of them."""
        if self.kind in _IMAGES:
            return self.frames()
        got = self._read(False, True)
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
        """Images of the given rows (default all), in the given order: (N, C, H, W), grey ones as three equal planes.

        Depth is (N, 1, H, W), in feature.unit ("m" or "mm"), or in depth_unit: kept in that unit it comes as stored, to the bit, uint16 or
        float32; else, and from coded video, it is float32."""
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
        config = _config.sample(
            self.episode.dataset.features,
            {**given, "anchor": self.key if self.feature.clock else None},
        )
        if not chosen:
            return self._no_frames(image_dtype, image_size, depth_unit)
        m = _engine.Handle(
            lambda: self.episode.dataset._made("robocache_map_new", "map", config)
        ).open()
        try:
            return _memory.values(
                m.call("robocache_map_items", {"indices": [r % n for r in chosen]})
            )[self.key]
        finally:
            m.close()

    def _no_frames(
        self, image_dtype: str, image_size: tuple[int, int] | None, depth_unit: str
    ) -> np.ndarray:
        """frames of no rows: the engine makes no samples out of an empty episode."""
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
            "stream.values[i] are recorded rows, stream.times[i] their timestamps, stream.frames([i]) images",
        )

    @property
    def rate_hz(self) -> float:
        """Mean rate: (N-1) / (last - first); NaN below two timestamps."""
        t = self.times
        return (
            float((len(t) - 1) / ((int(t[-1]) - int(t[0])) / 1e9))
            if len(t) > 1 and t[-1] > t[0]
            else float("nan")
        )

    def __len__(self) -> int:
        """Rows. No rate is needed where the rows keep no clock."""
        return int(self._read(False, False)["rows"][0]) if self._times is None else len(self._times)

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.of_stream(self)

    def __repr__(self) -> str:
        return f"<robocache.Stream {self.key!r}: {self.kind} {self.dtype} {self.shape}>"
