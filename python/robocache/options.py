"""Groups of options of Loader, MapDataset and Mix: frozen dataclasses whose None is the default.

    robocache.Loader(uri, images=robocache.Images(dtype="float32"), cache=robocache.Cache("ram",
    budget="8GiB"))

Go's loader.Config and its JSON have the same options; ENGINE is the table of the names that differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._fields import names_checked

__all__ = [
    "Windows",
    "Align",
    "Images",
    "Augment",
    "Order",
    "Mixture",
    "Cache",
    "Device",
    "Statistics",
    "Runtime",
    "Open",
]

Mode = Literal["linear", "nearest", "previous", "next", "slerp", "angle", "mean", "sum"]
Edge = Literal["clamp", "mask", "extrapolate", "error"]
Duration = float | str  # seconds, or text with a unit: "50ms"
Bytes = int | str  # bytes, or text with a unit: "4GiB"


@names_checked
@dataclass(frozen=True, kw_only=True)
class Windows:
    """The contents of a sample. Windows in lerobot's form are delta_timestamps=.

    Attributes:
        rows: {key: [rows, ...]}, offsets in rows from the sample, with `<key>_is_pad`. They need no
            rate. They are for streams on the samples' rows; with hz=, rows of the timeline.
        seconds: {key: window}, windows at a stream's own rate, in seconds. A list holds offsets:
            images and point clouds are the nearest there, everything else is the previous. A tuple
            (from, to) takes all samples in the span, both ends included, with `<key>_lengths` and
            `<key>_times` (int64 ns after the sample). A tuple (from, to, count) takes count times
            evenly from end to end. docs/batches.md has the shapes.
        anchor: The stream whose rows are the samples, for datasets with several clocks. Default:
            the dataset's rows.
        tolerance_s: Seconds, or text such as "50ms". Offsets and image times are checked against
            it. Default: offsets against 1e-4 s.
        missing: What becomes of a key that a source of a mixture or an episode lacks. "error"
            (default), or "pad": zeros, and `<key>_is_pad` is True. "pad" also widens rows of
            numbers to the widest source's, with `<key>_dim_is_pad` (bool, (B, D)) True where a
            number is absent.
        dtype: The type of float64 streams of a Loader. "float32" (default), or "keep": as stored.
            float64 timestamps of formats other than LeRobot stay as they are.
    """

    rows: Mapping[str, Sequence[int]] | None = None
    seconds: Mapping[str, Sequence[Duration] | tuple[Duration, Duration, int]] | None = None
    anchor: str | None = None
    tolerance_s: Duration | None = None
    missing: Literal["error", "pad"] | None = None
    dtype: Literal["float32", "keep"] | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Align:
    """How streams come onto one timeline: the keywords of Episode.align, which explains them.

    Attributes:
        modes: {key: mode}. Default: what the feature states, else floats linear, images and clouds
            nearest, everything else previous.
        edge: What a row outside the data is, for all streams or {key: edge}. Default "clamp".
        max_gap: Seconds, or text such as "50ms", for all streams or by key. Longer gaps are not
            bridged. Default: none.
        offset: {key: seconds}, added to a stream's timestamps.
        latency: {key: seconds}, how long after the fact a stream was timestamped.
        drift: {key: ppm or (ppm, at)}, how fast a stream's clock runs, in parts in a million.
        clock: {key: "header", "publish" or "log"}, which of several timestamps counts.
        rotations: {key: form or [(first channel, form), ...]}, the channels that are rotations.
        relative: {key: bool or [channels]}, the channels that hold changes.
        window: Seconds, or text with a unit: the window of "mean". Default: the period of hz=.
        extent: The extent of the timeline: "intersection" (default), "union" or a stream's key.
        dtypes: {key: "float16", "bfloat16", "float32" or "float64"}, types to cast to.
    """

    modes: Mapping[str, Mode] | None = None
    edge: Edge | Mapping[str, Edge] | None = None
    max_gap: Duration | Mapping[str, Duration] | None = None
    offset: Mapping[str, Duration] | None = None
    latency: Mapping[str, Duration] | None = None
    drift: Mapping[str, Any] | None = None
    clock: Mapping[str, str] | None = None
    rotations: Mapping[str, Any] | None = None
    relative: Mapping[str, bool | Sequence[int | str]] | None = None
    window: Duration | None = None
    extent: str | None = None
    dtypes: Mapping[str, Any] | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Images:
    """What becomes of decoded images, which are (C, H, W); grey ones have three equal planes.

    Attributes:
        size: (height, width) in pixels, to which images are scaled while they are decoded. The same
            as image_size=.
        dtype: "uint8" (default), or "float32" in [0, 1].
        fit: How an image of another shape comes to size. "stretch" (default), "letterbox" (the
            whole image by one factor, centred, the rest zeros) or "crop" (by one factor so that it
            covers, its middle).
        depth_unit: "mm" (default: the unit that the dataset was opened with, else "mm") or "m".
    """

    size: Sequence[int] | None = None
    dtype: Literal["uint8", "float32"] | None = None
    fit: Literal["stretch", "letterbox", "crop"] | None = None
    depth_unit: Literal["mm", "m"] | None = None


class RandomCrop(TypedDict, total=False):
    """A random part of each image: its size (height, width), pixels of padding, depth cameras."""

    size: Sequence[int]
    pad: int
    keep: Sequence[str]


class ColorJitter(TypedDict, total=False):
    """Random factors of colours between 1-v and 1+v, and turns of the hue; or [low, high]."""

    brightness: float | Sequence[float]
    contrast: float | Sequence[float]
    saturation: float | Sequence[float]
    hue: float | Sequence[float]


class HFlip(TypedDict, total=False):
    """A mirrored sample: its probability, and the elements of other keys that change."""

    p: float
    negate: Mapping[str, Sequence[int]]
    swap: Mapping[str, Sequence[Sequence[int]]]
    keep: Sequence[str]


class Noise(TypedDict, total=False):
    """Normal noise: std is a part of full scale of images, or {key: std} in the delivered unit."""

    std: float | Mapping[str, float]


@names_checked
@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random changes of samples: a function of seed, epoch, sample and camera alone.

    Images change after image_size= and before dtype and normalize=. Noise of numbers comes after
    normalize=.

    Attributes:
        random_crop: {"size": (height, width), "pad": pixels, "keep": [depth keys]}, one place per
            sample and camera.
        color_jitter: {"brightness": v, "contrast": v, "saturation": v, "hue": v}.
        hflip: {"p": probability, "negate": {key: [elements]}, "swap": {key: [(i, j)]}, "keep":
            [keys]}. All cameras of a sample flip together. Every other key must be named in negate,
            swap or keep.
        noise: {"std": v} of images, as a part of full scale, or {"std": {key: v}}.
        cameras: The cameras that change. Default: all colour cameras.
    """

    random_crop: RandomCrop | None = None
    color_jitter: ColorJitter | None = None
    hflip: HFlip | None = None
    noise: Noise | None = None
    cameras: Sequence[str] | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Order:
    """Which samples an epoch has, and how the ranks share them.

    Attributes:
        pool_size: Bytes of resident images that shuffle="pool" is made for. Default: half of
            memory_budget=.
        pool_episodes: Resident episodes of shuffle="pool" at most. Default: no bound.
        pool_shards: Pools that the epoch is cut into, so that each stays on one rank. Default: by
            the episodes.
        uneven: The last step on several ranks when the samples do not divide. "wrap" (default)
            fills it with the first samples of the epoch; "short" delivers each sample once, and the
            last batches are smaller.
        drop_n_first_frames: Rows at the start of each episode that start no sample. Windows still
            reach them. Default 0.
        drop_n_last_frames: Rows at the end of each episode that start no sample. Default 0.
        on_bad_episode: An episode that cannot be read. "error" (default), or "skip": it is left out
            and listed in stats()["bad_episodes"].
        on_nan: A number that is NaN or infinite. "error" (default): its episode is bad. "mask": its
            row is zeros, and `<key>_is_pad` is True. "allow". Depth, clouds and rows of varying
            length are exempt.
    """

    pool_size: Bytes | None = None
    pool_episodes: int | None = None
    pool_shards: int | None = None
    uneven: Literal["wrap", "short"] | None = None
    drop_n_first_frames: int | None = None
    drop_n_last_frames: int | None = None
    on_bad_episode: Literal["error", "skip"] | None = None
    on_nan: Literal["error", "mask", "allow"] | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How the sources of a mixture share an epoch. Mix is one source.

    Attributes:
        temperature: Shares are weight^(1/temperature), normalised. Sizes stand for absent weights.
            Default 1.
        stop: An epoch ends when the "first" source, or "all", were given whole. Default: after the
            sum of the sizes.
        epoch_size: Samples of an epoch.
        stratified: Whether each global batch holds its exact shares. Default False.
    """

    temperature: float | None = None
    stop: Literal["first", "all"] | None = None
    epoch_size: int | None = None
    stratified: bool | None = None


@names_checked
@dataclass(frozen=True)
class Cache:
    """Where decoded images stay for the next epoch.

    Attributes:
        where: "ram", "device" (the GPU's memory, with device=robocache.Device("cuda", decode="gpu",
            memory_budget=...)), or a directory, which other processes and runs share.
        budget: Bytes. Default: half of memory_budget= in RAM, 64 GiB in a directory.
        format: "yuv" (planes as decoded), "rgb" (as in the batch, at image_size=), "encoded" (bytes
            of a remote store), or "auto" (default).
    """

    where: str | os.PathLike[str] | None = None
    _: KW_ONLY
    budget: Bytes | None = None
    format: Literal["auto", "yuv", "rgb", "encoded"] | None = None


@names_checked
@dataclass(frozen=True)
class Device:
    """Where batches arrive, and where video is decoded.

    Attributes:
        name: "cpu" (default), "cuda", "cuda:1" or a torch.device.
        pin_memory: Whether batches on the host are page-locked. Default: when the device is CUDA.
        decode: Where video is decoded with a CUDA device. "cpu" (default), "gpu" (streams whose
            frames are equal to the bit; the others stay on the CPU) or "auto" (both at once, where
            that is faster).
        memory_budget: Bytes of the device's memory for resident images of shuffle="pool" (default:
            pool_size) and of cache="device" (no default).
    """

    name: Any = "cpu"
    _: KW_ONLY
    pin_memory: bool | None = None
    decode: Literal["cpu", "gpu", "auto"] | None = None
    memory_budget: Bytes | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The statistics that normalize= takes.

    Default: the dataset's own. Absent ones are computed if that reads little.

    Attributes:
        compute: Whether all are computed at opening, of the selected episodes alone. Default False.
        values: {key: {"mean": ..., "std": ..., "min": ..., "max": ..., "q01": ...}}, as
            Dataset.stats and Dataset.compute_stats() return it, or the path of a stats.json.
    """

    compute: bool | None = None
    values: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How a Loader works.

    Attributes:
        prefetch: Batches that are planned and decoded together. Default 4.
        io_threads: Reads in flight, for remote stores. Default 32.
        deadline_s: Seconds in which a batch must make progress, else the error states what is
            missing. Default 300; 0: never.
        metrics: The address that serves Prometheus metrics and /healthz: ":9400" (of this machine
            alone), "0.0.0.0:9400", or ":0" (a free port; see Loader.metrics_address). Default:
            none.
    """

    prefetch: int | None = None
    io_threads: int | None = None
    deadline_s: float | None = None
    metrics: str | None = None


@names_checked
@dataclass(frozen=True, kw_only=True)
class Open:
    """How a path is opened. The fields are keywords of robocache.open, which explains them.

    Attributes:
        format: The format's name. Default: detected.
        rows_hz: The rate of rows without a clock, in Hz.
        map: A mapping, or the path of its file: streams, clocks and units that the format leaves
            open.
        options: {name: value}, choices of one format.
        follow_links: Whether links may lead out of a local dataset's folder. Default False.
    """

    format: str | None = None
    rows_hz: Any = None
    map: Mapping[str, Any] | str | os.PathLike[str] | None = None
    options: Mapping[str, Any] | None = None
    follow_links: bool | None = None


# The groups by their keywords.
GROUPS: dict[str, type[Any]] = {
    "windows": Windows,
    "align": Align,
    "images": Images,
    "augment": Augment,
    "order": Order,
    "mixture": Mixture,
    "cache": Cache,
    "device": Device,
    "statistics": Statistics,
    "runtime": Runtime,
    "open": Open,
}

# The names that fields have in Go's JSON, when they differ.
ENGINE: dict[tuple[str, str], str] = {
    ("windows", "rows"): "delta_indices",
    ("windows", "seconds"): "windows",
    ("images", "size"): "image_size",
    ("images", "dtype"): "image_dtype",
    ("images", "fit"): "image_resize",
    ("cache", "where"): "cache",
    ("cache", "budget"): "cache_budget",
    ("cache", "format"): "cache_format",
    ("device", "name"): "device",
    ("device", "memory_budget"): "device_memory_budget",
    ("statistics", "compute"): "compute_stats",
    ("statistics", "values"): "stats",
}

NESTED = ("align", "augment")  # objects in the JSON too


def engine_name(group: str, field: str) -> str:
    """Returns the name of a field in the engine's configuration; align and augment are dotted."""
    return f"{group}.{field}" if group in NESTED else ENGINE.get((group, field), field)


def spelled(group: str, field: str, value: str = "…") -> str:
    """Returns the Python text that sets a field: images=robocache.Images(dtype=…)."""
    first = {"cache": "…", "device": '"cuda"'}.get(group)
    if first is not None and field in ("where", "name"):
        return f"{group}=robocache.{GROUPS[group].__name__}({first})"
    inner = f"{field}={value}" if first is None else f"{first}, {field}={value}"
    return f"{group}=robocache.{GROUPS[group].__name__}({inner})"


def spellings(name: str, groups: Iterable[str] = GROUPS) -> list[str]:
    """Returns the texts that set the fields of a name, of groups or of the engine; Open first."""
    found = [
        spelled(group, field)
        for group in sorted(groups, key=lambda g: g != "open")
        for field in GROUPS[group].__dataclass_fields__
        if name in (field, engine_name(group, field), f"{group}_{field}")
    ]
    return list(dict.fromkeys(found))


if TYPE_CHECKING:

    class MixGroups(TypedDict, total=False):
        """The groups that a Mix takes."""

        windows: Windows | None
        align: Align | None
        images: Images | None
        augment: Augment | None
        statistics: Statistics | None
        open: Open | None

    class SampleGroups(TypedDict, total=False):
        """The groups that a MapDataset takes."""

        windows: Windows | None
        align: Align | None
        images: Images | None
        order: Order | None
        statistics: Statistics | None
        open: Open | None

    class LoaderGroups(SampleGroups, total=False):
        """The groups that a Loader takes, beside cache= and device=."""

        augment: Augment | None
        mixture: Mixture | None
        runtime: Runtime | None

    class LeRobotGroups(TypedDict, total=False):
        """The groups that a LeRobotDataset takes."""

        images: Images | None
        open: Open | None
