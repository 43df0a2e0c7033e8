"""Option groups of Loader, MapDataset and Mix: frozen dataclasses in which None means the default.

    images = robocache.Images(dtype="float32")
    cache = robocache.Cache("ram", budget="8GiB")
    loader = robocache.Loader("path", images=images, cache=cache)

Go's loader.Config and its JSON have the same options. ENGINE lists the names that differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._check_fields import check_field_names

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
    "Follow",
    "Open",
]

Mode = Literal["linear", "nearest", "previous", "next", "slerp", "angle", "mean", "sum"]
Edge = Literal["clamp", "mask", "extrapolate", "error"]
Stale = Literal["mask", "error"]
Beyond = Literal["repeat", "zero", "neutral", "drop"]
Duration = float | str  # Seconds, or text with a unit such as "50ms".
Bytes = int | str  # Bytes, or text with a unit such as "4GiB".


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Windows:
    """The content of a sample. Windows in lerobot's form are the keyword delta_timestamps=.

    Attributes:
        rows: {key: [rows, ...]}, offsets in rows relative to the sample, with `<key>_is_pad`. They
            need no rate. They apply to streams on the rows of the samples, and with hz= to rows of
            the timeline.
        seconds: {key: window}, windows at a stream's own rate, in seconds. A list has offsets:
            images and point clouds take the nearest row, all others the previous row. A tuple
            (from, to) takes all rows in the span, including both ends, with `<key>_lengths` and
            `<key>_times` (int64 ns relative to the sample). A tuple (from, to, count) takes count
            evenly spaced times from end to end. docs/batches.md has the shapes.
        anchor: The stream whose rows are the samples, for datasets with several clocks. Default:
            the dataset's rows.
        tolerance_s: Seconds, or text such as "50ms". Offsets and image times must match within this
            tolerance. Default: offsets within 1e-4 s.
        missing: The rule for a key that a source of a mixture or an episode lacks. "error"
            (default), or "pad": zeros, with `<key>_is_pad` True. "pad" also widens rows of numbers
            to the widest source, with `<key>_dim_is_pad` (bool, (B, D)) True for absent numbers.
        dtype: The dtype of float64 streams in a Loader. "float32" (default), or "keep": as stored.
            float64 timestamps of formats other than LeRobot keep their dtype.
        beyond: The rows of windows that are outside the episode, for all windows or {key: rule}.
            "repeat" (default): the nearest row. "zero": zeros, after normalize=. "neutral": 0 for
            relative numbers, which hold changes, and the nearest row for others. "drop": a sample
            whose window leaves its episode does not exist. Images take "repeat" and "drop".
            Streams that are read by time take "drop" with hz=. Parts of a Vector have their own
            rule in place of "zero" and "neutral".
        text: {key: "lower_alphanumeric"}: texts in lower case, without characters other than
            letters, digits, underscores and white space, as GR00T reads instructions. Default: as
            stored.
        choose: {key: [streams]}, keys that hold one of several cameras, texts or streams of
            numbers, drawn for each sample from seed, epoch and sample. All rows of a window share
            the draw, and only the chosen camera is decoded. The streams have one dtype and, with
            size=, one shape. They are not delivered themselves unless keys= names them. With
            shuffle=False, in a MapDataset and in a contract, the first stream. normalize= uses one
            set of numbers for all streams.
        goal: {key: stream}, keys that hold a later row of a stream: drawn evenly from the rows
            after the sample's to the last row of its episode that is a sample, and the row itself
            for the last one. All goals of a sample are of one row. In a MapDataset, the draw of
            epoch 0. A contract has no goals: the user of the policy states them.

    Example:
        robocache.Windows(rows={"action": range(16)})
        robocache.Windows(goal={"goal_image": "observation.images.top"})
    """

    rows: Mapping[str, Sequence[int]] | None = None
    seconds: Mapping[str, Sequence[Duration] | tuple[Duration, Duration, int]] | None = None
    anchor: str | None = None
    tolerance_s: Duration | None = None
    missing: Literal["error", "pad"] | None = None
    dtype: Literal["float32", "keep"] | None = None
    beyond: Beyond | Mapping[str, Beyond] | None = None
    text: Mapping[str, Literal["lower_alphanumeric"]] | None = None
    choose: Mapping[str, Sequence[str]] | None = None
    goal: Mapping[str, str] | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Align:
    """How streams are put on one timeline. Episode.align explains these options.

    Durations are seconds, or text such as "50ms". align="causal" is Align(causal=True).

    Attributes:
        modes: {key: mode}. Default: the feature's interpolation, else linear for floats, nearest
            for images and point clouds, and previous for all others.
        edge: The rule for rows outside the data, for all streams or {key: edge}. Default "clamp".
        max_gap: Seconds, or text such as "50ms", for all streams or by key. Longer gaps are not
            interpolated. Default: no limit.
        offset: {key: seconds}, added to a stream's timestamps.
        latency: {key: seconds}, the delay between an event and its timestamp. In a Loader with
            causal=True also {key: {"measured": True}} or {key: {"uniform": [0.01, 0.03]}}: the age
            of the newest usable sample is drawn for each sample, seed and epoch, from the delays
            between timestamps and arrivals of its episode, or evenly between two ages.
        drift: {key: ppm or (ppm, at)}, how fast a stream's clock runs, in parts per million.
        clock: {key: "header", "publish" or "log"}, the timestamps to use if there are several.
        rotations: {key: form or [(first channel, form), ...]}, the channels that are rotations.
        relative: {key: bool or [channels]}, the channels that hold changes.
        window: Seconds, or text with a unit: the window of "mean". Default: the period of hz=.
        extent: The extent of the timeline: "intersection" (default), "union" or a stream's key.
        dtypes: {key: "float16", "bfloat16", "float32" or "float64"}, the dtypes of the result.
        causal: Whether observations use only samples that had arrived at the tick. A sample arrives
            at its log time, or else with its timestamp. Default False.
        delay: Seconds before the tick at which a stream is evaluated, for all streams or by key.
            Modes that interpolate need it. Default 0.
        max_age: The age in seconds from which a held sample is stale, for all streams or by key.
            Default 1; 0: no limit.
        stale: The rule for rows without a sample that is young enough, for all streams or by key:
            "mask" (default) or "error".
        targets: The keys of labels other than actions and rewards. Labels may look ahead.
        arrival_delay: Seconds from the arrival of a sample until a policy can use it, for all
            streams or by key. Default 0.

    Example:
        robocache.Align(modes={"observation.state": "linear"}, max_gap="200ms")
        robocache.Align(causal=True, modes={"imu": "linear"}, delay={"imu": "20ms"})
    """

    modes: Mapping[str, Mode] | None = None
    edge: Edge | Mapping[str, Edge] | None = None
    max_gap: Duration | Mapping[str, Duration] | None = None
    offset: Mapping[str, Duration] | None = None
    latency: Mapping[str, Duration | Mapping[str, Any]] | None = None
    drift: Mapping[str, Any] | None = None
    clock: Mapping[str, str] | None = None
    rotations: Mapping[str, Any] | None = None
    relative: Mapping[str, bool | Sequence[int | str]] | None = None
    window: Duration | None = None
    extent: str | None = None
    dtypes: Mapping[str, Any] | None = None
    causal: bool | None = None
    delay: Duration | Mapping[str, Duration] | None = None
    max_age: Duration | Mapping[str, Duration] | None = None
    stale: Stale | Mapping[str, Stale] | None = None
    targets: Sequence[str] | None = None
    arrival_delay: Duration | Mapping[str, Duration] | None = None


Filter = Literal[
    "cv2-area",
    "cv2-linear",
    "pil-bilinear",
    "pil-lanczos",
    "torch-antialias",
    "tf-lanczos3",
    "nearest",
]


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Images:
    """The shape and dtype of decoded images.

    Images are (C, H, W). Grey images have three equal planes.

    Attributes:
        size: (height, width) in pixels; images are scaled during decoding. The same as image_size=.
            One number with fit="smallest_side".
        dtype: "uint8" (default), or "float32" in [0, 1].
        fit: How an image of another shape is fitted to size. "stretch" (default). "letterbox": the
            whole image, scaled by one factor and centred, with zeros around it. "crop": scaled by
            one factor to cover size, and cut to the middle. "smallest_side": scaled by one factor,
            so that the smaller side has size pixels; needs filter.
        filter: The library whose filter scales colour images of full size, to the bit: "cv2-area",
            "cv2-linear", "pil-bilinear", "pil-lanczos", "torch-antialias", "tf-lanczos3" (at most
            one level off in rare pixels) or "nearest" (of PIL). Default: scaled during decoding.
        layout: "chw" (default), or "hwc" for (H, W, C).
        transform: Exact steps for colour images, in place of size and fit. Each is one of
            {"letterbox": True} (a square, padded with zeros), {"smallest_side": pixels}, {"resize":
            (height, width), "fit": "stretch" | "letterbox" | "crop"}, {"center_crop": fraction or
            (height, width)}, and then at random {"random_crop": fraction or (height, width)}, a
            resize or smallest_side of the crop, {"rotation": degrees}, {"color_jitter": {...} as in
            Augment}. A step that scales may name a "filter"; default: filter=, else "cv2-area". All
            cameras and frames of a sample share one draw. A contract (loader.contract) replaces a
            random crop by the centre crop and leaves out rotation and jitter.
        depth_unit: "mm" or "m". Default: the unit with which the dataset was opened, else "mm".

    Example:
        robocache.Images(size=(224, 224), fit="letterbox", dtype="float32")
        robocache.Images(size=(224, 224), fit="letterbox", filter="pil-bilinear", layout="hwc")
    """

    size: Sequence[int] | int | None = None
    dtype: Literal["uint8", "float32"] | None = None
    fit: Literal["stretch", "letterbox", "crop", "smallest_side"] | None = None
    filter: Filter | None = None
    layout: Literal["chw", "hwc"] | None = None
    transform: Sequence[Mapping[str, Any]] | None = None
    depth_unit: Literal["mm", "m"] | None = None


class RandomCrop(TypedDict, total=False):
    """A random part of each image.

    Attributes:
        size: (height, width) in pixels.
        pad: Pixels of padding on each side.
        keep: The depth cameras that are not cropped.
    """

    size: Sequence[int]
    pad: int
    keep: Sequence[str]


class ColorJitter(TypedDict, total=False):
    """Random changes of colours: factors from 1 - v to 1 + v, or from [low, high].

    Attributes:
        brightness: The range of the brightness factor.
        contrast: The range of the contrast factor.
        saturation: The range of the saturation factor.
        hue: The range of the rotation of the hue.
    """

    brightness: float | Sequence[float]
    contrast: float | Sequence[float]
    saturation: float | Sequence[float]
    hue: float | Sequence[float]


class HFlip(TypedDict, total=False):
    """A random mirror image of a sample.

    Attributes:
        p: The probability of the mirror image.
        negate: {key: [elements]}, the elements whose sign changes.
        swap: {key: [(i, j)]}, the elements that are exchanged.
        keep: The keys that do not change.
    """

    p: float
    negate: Mapping[str, Sequence[int]]
    swap: Mapping[str, Sequence[Sequence[int]]]
    keep: Sequence[str]


class Noise(TypedDict, total=False):
    """Normally distributed noise.

    Attributes:
        std: A fraction of full scale for images, or {key: std} in the delivered unit.
    """

    std: float | Mapping[str, float]


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random changes of samples. They depend only on seed, epoch, sample and camera.

    Images change after image_size= and before dtype and normalize=. Noise of numbers is added after
    normalize=.

    Attributes:
        random_crop: {"size": (height, width), "pad": pixels, "keep": [depth keys]}, at one position
            per sample and camera.
        color_jitter: {"brightness": v, "contrast": v, "saturation": v, "hue": v}.
        hflip: {"p": probability, "negate": {key: [elements]}, "swap": {key: [(i, j)]}, "keep":
            [keys]}. All cameras of a sample flip together. Every other key with
            numbers must be in negate, swap or keep; text and bookkeeping columns need not.
        rotation: Degrees counterclockwise, from -v to v or [low, high], about the centre. Images
            are mirrored at their edges.
        noise: {"std": v} for images, as a fraction of full scale, or {"std": {key: v}}.
        shared: True: all cameras of a sample share one draw, except that of noise. Default False.
        cameras: The cameras that change. Default: all colour cameras.

    Example:
        robocache.Augment(random_crop={"size": (200, 200)}, color_jitter={"brightness": 0.2})
    """

    random_crop: RandomCrop | None = None
    color_jitter: ColorJitter | None = None
    rotation: float | Sequence[float] | None = None
    hflip: HFlip | None = None
    noise: Noise | None = None
    shared: bool | None = None
    cameras: Sequence[str] | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Order:
    """The samples of an epoch, and how the ranks share them.

    Attributes:
        pool_size: Bytes of images in memory for shuffle="pool". Default: half of memory_budget=.
        pool_episodes: The most episodes in memory for shuffle="pool". Default: no limit.
        pool_shards: The number of pools of an epoch; each pool belongs to one rank. Default: chosen
            by the number of episodes.
        uneven: The last step of several ranks if the number of samples is not divisible. "wrap"
            (default) fills the step with the first samples of the epoch. "short" delivers each
            sample once, and the last batches are smaller.
        drop_n_first_frames: Rows at the start of each episode that are not samples. Windows still
            include them. Default 0.
        drop_n_last_frames: Rows at the end of each episode that are not samples. Default 0.
        pad_before: Rows by which the windows of a sample may leave its episode at the start. A
            number that is larger than the windows adds samples before the first row; their other
            keys have the values of the first row. Default None: every row is a sample.
        pad_after: The same at the end: with windows of rows 0 to H - 1, the samples are the rows
            -pad_before to L - H + pad_after of an episode of L rows, both included.
        segments: {episode: [(start, end), ...]}, ranges of rows by the index of the episode, end
            excluded, None for the end of the episode. Only their rows are samples, and episodes
            that are not named have none. Windows may leave a segment. Default None: all rows.
        on_bad_episode: The rule for an episode that cannot be read. "error" (default), or "skip":
            the episode is left out and listed in stats()["bad_episodes"].
        on_nan: The rule for a number that is NaN or infinite. "error" (default): its episode cannot
            be read. "mask": its row is zeros, and `<key>_is_pad` is True. "allow": it is delivered.
            Depth, point clouds and rows of varying length are exempt.
        require_text: A key with texts, such as "task". Episodes in which all its texts are empty
            are left out. Default None.
        episode_weights: {episode: weight}, by the index of the episode. In an epoch, an episode of
            n samples has weight * n samples, rounded, and at least one; other episodes have weight
            1. Each of its samples occurs equally often, within one, in any number of epochs. 0
            leaves the episode out, also in a MapDataset, whose samples occur once. Default None.
        weight_by: An expression whose value for an episode is its weight, in place of
            episode_weights: a metric of the quality table, such as "q.score" or "1 - q.idle", or
            another number as in robocache.find. Every episode needs a value from 0 to 1e6. In a
            mixture, Mix(weight_by=) replaces it. Default None.

    Example:
        robocache.Order(pool_size="2GiB", uneven="short")
    """

    pool_size: Bytes | None = None
    pool_episodes: int | None = None
    pool_shards: int | None = None
    uneven: Literal["wrap", "short"] | None = None
    drop_n_first_frames: int | None = None
    drop_n_last_frames: int | None = None
    pad_before: int | None = None
    pad_after: int | None = None
    segments: Mapping[int, Sequence[tuple[int, int | None]]] | None = None
    on_bad_episode: Literal["error", "skip"] | None = None
    on_nan: Literal["error", "mask", "allow"] | None = None
    require_text: str | None = None
    episode_weights: Mapping[int, float] | None = None
    weight_by: str | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How the sources of a mixture share an epoch. Mix is one source.

    Attributes:
        temperature: Shares are weight^(1/temperature), divided by their sum. Without weights, the
            sizes are the weights. Default 1.
        stop: End the epoch when the "first" source, or "all" sources, have been delivered
            completely. Default: after the sum of the sizes.
        epoch_size: The number of samples of an epoch. Default: decided by stop.
        stratified: Whether each global batch has the exact shares. Default False.
        balance_weights: Whether the weights are multiplied by the sources' numbers of samples, so
            that equal weights give shares by size. Default False.

    Example:
        robocache.Mixture(temperature=2, epoch_size=100_000)
    """

    temperature: float | None = None
    stop: Literal["first", "all"] | None = None
    epoch_size: int | None = None
    stratified: bool | None = None
    balance_weights: bool | None = None


@check_field_names
@dataclass(frozen=True)
class Cache:
    """Where decoded images are kept for the next epoch.

    Attributes:
        where: "ram", "device" (the GPU's memory, with device=robocache.Device("cuda", decode="gpu",
            memory_budget=...)), or a directory, which other processes and runs share.
        budget: Bytes. Default: half of memory_budget= in RAM, 64 GiB in a directory.
        format: "yuv" (planes as decoded), "rgb" (as in the batch, at image_size=), "encoded" (bytes
            of a remote store), or "auto" (default).

    Example:
        robocache.Cache("ram", budget="8GiB")
    """

    where: str | os.PathLike[str] | None = None
    _: KW_ONLY
    budget: Bytes | None = None
    format: Literal["auto", "yuv", "rgb", "encoded"] | None = None


@check_field_names
@dataclass(frozen=True)
class Device:
    """Where batches arrive, and where video is decoded.

    Attributes:
        name: "cpu" (default), "cuda", "cuda:1" or a torch.device.
        pin_memory: Whether batches on the host are page-locked. Default: if the device is CUDA.
        decode: Where video is decoded with a CUDA device. "cpu" (default). "gpu": on the GPU, for
            streams whose frames are bit-identical; other streams use the CPU. "auto": on both, if
            this is faster.
        memory_budget: Bytes of the device's memory for the images of shuffle="pool" (default:
            pool_size) and of cache="device" (no default).

    Example:
        robocache.Device("cuda:1", decode="gpu")
    """

    name: Any = "cpu"
    _: KW_ONLY
    pin_memory: bool | None = None
    decode: Literal["cpu", "gpu", "auto"] | None = None
    memory_budget: Bytes | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The statistics for normalize=.

    Default: the dataset's own. Absent statistics are computed if this needs little reading.

    Attributes:
        compute: Whether to compute all statistics at opening, from the selected episodes only.
            Default False.
        refresh: Whether a Loader with follow= computes the statistics again whenever new episodes
            enter, from the selected episodes. Default False: the statistics of the first episodes
            stay.
        values: {key: {"mean": ..., "std": ..., "min": ..., "max": ..., "q01": ...}}, as
            Dataset.stats and Dataset.compute_stats() return, or the path of a stats.json.

    Example:
        robocache.Statistics(values="stats.json")
    """

    compute: bool | None = None
    refresh: bool | None = None
    values: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str] | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The execution of a Loader.

    Attributes:
        prefetch: Batches that are planned and decoded together. Default 4.
        io_threads: Reads in flight, for remote stores. Default 32.
        deadline_s: Seconds within which a batch must make progress. Otherwise an error names the
            missing parts. Default 300; 0: no deadline.
        metrics: The address that serves Prometheus metrics and /healthz: ":9400" (for this machine
            only), "0.0.0.0:9400", or ":0" (a free port; see Loader.metrics_address). Default: none.

    Example:
        robocache.Runtime(prefetch=8, metrics=":9400")
    """

    prefetch: int | None = None
    io_threads: int | None = None
    deadline_s: float | None = None
    metrics: str | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Follow:
    """How new episodes of a dataset enter while it is recorded. docs/growing.md explains this.

    The episodes of an epoch, their order and their weights are a function of the seed and of the
    log of arrivals. A state holds a position in the log, so a Loader continues exactly, however many
    episodes have arrived since.

    Attributes:
        at: When new episodes enter. "epoch" (default): at the start of an epoch. "step": after
            `every` steps, which then make up an epoch: a `for` ends after them.
        every: The number of epochs (default 1), or of steps, between two moments at which new
            episodes enter.
        recency: The age at which the weight of an episode is half. Default None: equal weights.
        recency_unit: The unit of the age. "episodes" (default): later episodes that are kept.
            "seconds": between the arrivals of the episode and of the newest one. "versions": policy
            versions.
        where: An expression, as in robocache.find, that is evaluated once when an episode arrives.
            Episodes for which it is false are left out. Default None.
        version: The stream whose first number is the policy version of an episode, or the name of a
            note of its recording. Default None.
        version_lag: Leave out episodes whose version is more than this before the newest one.
            Default None: no limit.
        capacity: The most episodes, the newest ones. Default None: no limit.
        log: The file of the log of arrivals. Default None: next to the dataset, and in the user's
            cache folder for a remote one. All ranks need the same file.
        run: The name of the run of training, which all ranks have in common. A name that the log
            knows repeats that run. Default None: a new run. Needed with several ranks.
        timeout_s: Seconds for which a rank waits for rank 0 before it raises Temporary. Default 300.

    Example:
        robocache.Follow(where="done", recency=500, capacity=10_000)
        robocache.Follow(at="step", every=1000, version="policy_version", version_lag=3)
    """

    at: Literal["epoch", "step"] | None = None
    every: int | None = None
    recency: float | None = None
    recency_unit: Literal["episodes", "seconds", "versions"] | None = None
    where: str | None = None
    version: str | None = None
    version_lag: float | None = None
    capacity: int | None = None
    log: str | os.PathLike[str] | None = None
    run: str | None = None
    timeout_s: float | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Open:
    """How a path is opened. robocache.open explains these options.

    Attributes:
        format: The name of the format. Default: detected.
        rows_hz: The rate of rows without timestamps, in Hz.
        map: A mapping, or the path of its file: streams, clocks and units that the format leaves
            open.
        options: {name: value}, the options of one format.
        follow_links: Whether links may lead out of a local dataset's folder. Default False.
        recording_index: The index of recordings to use, or "off". Default: the one in the dataset.

    Example:
        robocache.Open(rows_hz=50)
    """

    format: str | None = None
    rows_hz: Any = None
    map: Mapping[str, Any] | str | os.PathLike[str] | None = None
    options: Mapping[str, Any] | None = None
    follow_links: bool | None = None
    recording_index: str | os.PathLike[str] | None = None


# The groups by keyword.
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
    "follow": Follow,
    "open": Open,
}

# The names of fields in Go's JSON, if they differ.
ENGINE: dict[tuple[str, str], str] = {
    ("windows", "rows"): "delta_indices",
    ("windows", "seconds"): "windows",
    ("images", "size"): "image_size",
    ("images", "dtype"): "image_dtype",
    ("images", "fit"): "image_resize",
    ("images", "filter"): "image_filter",
    ("images", "layout"): "image_layout",
    ("images", "transform"): "image_transform",
    ("cache", "where"): "cache",
    ("cache", "budget"): "cache_budget",
    ("cache", "format"): "cache_format",
    ("device", "name"): "device",
    ("device", "memory_budget"): "device_memory_budget",
    ("statistics", "compute"): "compute_stats",
    ("statistics", "values"): "stats",
}

NESTED = ("align", "augment", "follow")  # The groups that are objects in Go's JSON too.


def engine_name(group: str, field: str) -> str:
    """Returns the name of a group's field in the engine's configuration.

    A field of a NESTED group is written with a dot: "align.causal".
    """
    return f"{group}.{field}" if group in NESTED else ENGINE.get((group, field), field)


def spelled(group: str, field: str, value: str = "…") -> str:
    """Returns the Python text that sets a field, such as images=robocache.Images(dtype=...)."""
    # The positional argument that these groups need.
    first = {"cache": "…", "device": '"cuda"'}.get(group)
    if first is not None and field in ("where", "name"):
        return f"{group}=robocache.{GROUPS[group].__name__}({first})"
    inner = f"{field}={value}" if first is None else f"{first}, {field}={value}"
    return f"{group}=robocache.{GROUPS[group].__name__}({inner})"


def spellings(name: str, groups: Iterable[str] = GROUPS) -> list[str]:
    """Returns the Python texts that set the fields with a name. Those of Open are first.

    Args:
        name: A field, its name in the engine's configuration, or <group>_<field>.
        groups: The keywords of the groups to search. Default: all.
    """
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
        align: Align | Literal["causal"] | None
        images: Images | None
        augment: Augment | None
        statistics: Statistics | None
        open: Open | None

    class SampleGroups(TypedDict, total=False):
        """The groups that a MapDataset takes."""

        windows: Windows | None
        align: Align | Literal["causal"] | None
        images: Images | None
        order: Order | None
        statistics: Statistics | None
        open: Open | None

    class LoaderGroups(SampleGroups, total=False):
        """The option groups of a Loader other than cache= and device=."""

        augment: Augment | None
        mixture: Mixture | None
        runtime: Runtime | None
        follow: Follow | bool | None

    class LeRobotGroups(TypedDict, total=False):
        """The groups that a LeRobotDataset takes."""

        images: Images | None
        open: Open | None
