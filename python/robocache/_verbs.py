"""The verbs of the command line as functions, such as inspect, doctor and convert.

Their answers have the content of --json, as typed dicts.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from . import _engine, _checks
from ._errors import Misuse

__all__ = [
    "inspect",
    "doctor",
    "causality",
    "diff",
    "convert",
    "stats",
    "pull",
    "push",
    "Result",
    "Finding",
    "Report",
    "EpisodeReport",
    "StreamSummary",
    "EpisodeStream",
    "Diagnosis",
    "Causality",
    "StreamCausality",
    "Differences",
    "EpisodeChange",
    "StreamChange",
    "Conversion",
    "Pulled",
    "Pushed",
]


class Result(dict[str, Any]):
    """A dict with the content of the verb's --json output.

    Keys are also attributes: r["findings"] is r.findings. A key that is absent is None as an
    attribute.
    """

    _parts: ClassVar[Mapping[str, type[Result]]] = {}

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(answer)
        for key, kind in self._parts.items():
            if isinstance(self.get(key), list):
                self[key] = [kind(x) for x in self[key]]

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        # The attributes that this class and its bases declare.
        known = [
            n
            for kind in type(self).__mro__
            for n in getattr(kind, "__annotations__", ())
            if not n.startswith("_")
        ]
        if name in known:
            return None
        raise AttributeError(
            f"{type(self).__name__} has no {name!r}: {_checks.nearest_names(name, {*self, *known})}"
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class Finding(Result):
    """A finding about a dataset. docs/cli.md describes the keys, docs/lerobot.md the codes.

    Attributes:
        severity: "error", "warning" or "info".
        code: A stable name in kebab case.
        message: What was found.
        where: The place: file, stream, episode, row, and so on.
        hint: What to do about the finding.
        count: The number of occurrences, if they were counted.
    """

    severity: str
    code: str
    message: str
    where: dict[str, Any] | None
    hint: str | None
    count: int | None


class StreamSummary(Result):
    """A stream of a dataset, as its files describe it.

    Attributes:
        key: The name of the stream.
        kind: "numeric", "image", "video", "pointcloud", "text" or "event".
        dtype: The type of one row.
        shape: The shape of one row.
        rate_hz: The rate in Hz. None if it is not declared and there are too few timestamps.
        rate_measured: Whether rate_hz was computed from timestamps.
        clock: The clock of the stream.
        codec: The codec of video.
        gop: Frames per key frame, in the first file.
        height: The height of images in pixels.
        width: The width of images in pixels.
        problem: Why the first file could not be read.
    """

    key: str
    kind: str
    dtype: str
    shape: list[int]
    rate_hz: float | None
    rate_measured: bool | None
    clock: str | None
    codec: str | None
    gop: float | None
    height: int | None
    width: int | None
    problem: str | None


class Report(Result):
    """The content of a dataset: the answer of inspect.

    Attributes:
        uri: The path or URI.
        format: The name of the format.
        version: The version of the format.
        robot_type: The type of the robot.
        fps: The rate in Hz, a number or text such as "30000/1001".
        num_episodes: The number of episodes.
        num_frames: The number of rows over all episodes.
        duration_s: The duration of all episodes in seconds.
        episode_length: {"min", "mean", "max"}, in rows.
        features: The declared schema, one dict per stream.
        streams: The streams as their files describe them.
        tasks: One dict per task, with task_index and task.
        splits: {name: "from:to"}.
        bytes: {"total", "files", "by_folder"}.
        stats: The statistics in the dataset.
        findings: What opening noticed.
    """

    uri: str
    format: str
    version: str
    robot_type: str | None
    fps: float | str | None
    num_episodes: int
    num_frames: int
    duration_s: float
    episode_length: dict[str, float]
    features: list[dict[str, Any]]
    streams: list[StreamSummary]
    tasks: list[dict[str, Any]] | None
    splits: dict[str, str] | None
    bytes: dict[str, Any] | None
    stats: dict[str, Any] | None
    findings: list[Finding] | None
    _parts = {"streams": StreamSummary, "findings": Finding}


class EpisodeStream(Result):
    """The timestamps of one stream of an episode.

    Attributes:
        key: The name of the stream.
        kind: "numeric", "image", "video", "pointcloud", "text" or "event".
        rows: The number of rows.
        first_ns: The first timestamp in ns. This and the following are None if the stream has no
            known timestamps.
        last_ns: The last timestamp in ns.
        rate_hz: The mean rate in Hz.
        jitter_ms: The standard deviation of the steps in ms.
        max_gap_ms: The longest step in ms.
        gaps: The number of steps longer than 1.5 times the mean step.
        repeated: The number of repeated timestamps.
        problem: Why the stream could not be read.
    """

    key: str
    kind: str
    rows: int
    first_ns: int | None
    last_ns: int | None
    rate_hz: float | None
    jitter_ms: float | None
    max_gap_ms: float | None
    gaps: int
    repeated: int
    problem: str | None


class EpisodeReport(Result):
    """The streams of one episode: the answer of inspect(uri, episode=...).

    Attributes:
        position: The position of the episode in the dataset.
        episode_index: The index of the episode.
        length: The number of rows.
        tasks: The tasks of the episode.
        streams: The timestamps of each stream.
    """

    position: int
    episode_index: int
    length: int
    tasks: list[str]
    streams: list[EpisodeStream]
    _parts = {"streams": EpisodeStream}


class Diagnosis(Result):
    """The problems of a dataset: the answer of doctor.

    Attributes:
        uri: The path or URI.
        format: The name of the format.
        version: The version of the format.
        num_episodes: The number of episodes.
        num_frames: The number of rows over all episodes.
        findings: The findings.
        errors: The number of findings that are errors.
        warnings: The number of findings that are warnings.
    """

    uri: str
    format: str
    version: str
    num_episodes: int
    num_frames: int
    findings: list[Finding]
    errors: int
    warnings: int
    _parts = {"findings": Finding}


class StreamCausality(Result):
    """The samples that the rows of one stream use. Shares are of its ticks.

    Attributes:
        key: The name of the stream.
        source: The name of the source in a mixture.
        mode: The mode of the alignment, or "rows" if the stream's rows are the ticks.
        label: Whether the stream is a label, which may look ahead.
        ticks: The number of ticks.
        future_share: The share of rows that use a sample with a timestamp after the tick.
        look_ahead_median_s: How far after the tick that sample is, in seconds: the median of those
            rows.
        look_ahead_max_s: The maximum of the look-ahead in seconds.
        not_arrived_share: The share of rows that use a sample which arrived after the tick.
        masked_share: The share of rows that are masked.
        delay_s: Align.delay in seconds.
        needed_delay_s: The smallest delay in seconds with which both neighbors had arrived at
            99.9 % of the ticks, rounded up to three digits.
        arrivals: "recorded", or "assumed" if samples are taken to arrive with their timestamps.
        latency_drawn: Whether Align.latency draws ages. The numbers are for the arrivals instead.
    """

    key: str
    source: str | None
    mode: str
    label: bool
    ticks: int
    future_share: float
    look_ahead_median_s: float
    look_ahead_max_s: float
    not_arrived_share: float
    masked_share: float
    delay_s: float
    needed_delay_s: float
    arrivals: str
    latency_drawn: bool | None


class Causality(Result):
    """Which observations use samples that a robot does not have: the answer of causality.

    Attributes:
        uri: The path or URI. None from a Loader.
        hz: The rate of the timeline in Hz. None: the ticks are rows.
        num_episodes: The number of episodes that were read.
        total_episodes: The number of episodes.
        time_budget_s: Seconds after which no further episode was read. 0: no limit.
        streams: The streams.
        findings: look-ahead, arrival-times (which arrivals are assumed), delay-too-short, and
            episode-not-aligned.
    """

    uri: str | None
    hz: float | str | None
    num_episodes: int
    total_episodes: int
    time_budget_s: float
    streams: list[StreamCausality]
    findings: list[Finding]
    _parts = {"streams": StreamCausality, "findings": Finding}


class StreamChange(Result):
    """A stream of a matched episode that differs.

    Attributes:
        key: The name of the stream in A.
        what: "values", "text", "packets", "pixels", "shape" or "lacking".
        rows: The number of matched rows that differ.
        first_row: The first of them in A. -1 if there is none.
        max_difference: The largest difference of a number. None if none can be computed.
        psnr_db: {"min", "mean"} of the frames, if they were decoded.
        removed_rows: Rows that only A has, if the stream has its own clock.
        added_rows: Rows that only B has, if the stream has its own clock.
    """

    key: str
    what: str
    rows: int
    first_row: int
    max_difference: float | None
    psnr_db: dict[str, float] | None
    removed_rows: int | None
    added_rows: int | None


class EpisodeChange(Result):
    """A matched episode that differs.

    Attributes:
        a: The index of the episode in A.
        b: The index of the episode in B.
        rows: {"a", "b", "removed_head", "removed_middle", "removed_tail", "added_head",
            "added_middle", "added_tail"}.
        tasks: {"name", "a", "b"}, if tasks differ.
        timestamps: {"rows", "max_difference_s"}, if timestamps differ.
        streams: The streams that differ.
    """

    a: int
    b: int
    rows: dict[str, int]
    tasks: dict[str, Any] | None
    timestamps: dict[str, Any] | None
    streams: list[StreamChange]
    _parts = {"streams": StreamChange}


class Differences(Result):
    """How a dataset differs from another one: the answer of diff.

    Attributes:
        a: {"uri", "format", "version", "num_episodes", "num_frames"} of the first dataset.
        b: The same of the second dataset.
        different: Whether anything differs.
        frames: How cameras were compared: "packets", "pixels" or "none".
        counts: {"equal", "changed", "moved", "added", "removed"}.
        metadata: One dict per property that differs: name, a, b.
        features: One dict per feature that differs: key, change, to, properties.
        statistics: One dict per stored statistic that differs: key, name, max_difference.
        added: One dict per episode that only B has: episode_index, length, tasks.
        removed: One dict per episode that only A has.
        moved: One dict per run of episodes with other numbers: a, b, count.
        changed: The matched episodes that differ.
        notes: What could not be compared.
    """

    a: dict[str, Any]
    b: dict[str, Any]
    different: bool
    frames: str
    counts: dict[str, int]
    metadata: list[dict[str, Any]]
    features: list[dict[str, Any]]
    statistics: list[dict[str, Any]]
    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    moved: list[dict[str, Any]]
    changed: list[EpisodeChange]
    notes: list[str]
    _parts = {"changed": EpisodeChange}


class Conversion(Result):
    """The result of a conversion: the answer of convert.

    Formats other than LeRobot set num_episodes, num_frames, bytes, dropped_features and findings.

    Attributes:
        num_episodes: The number of episodes written.
        num_frames: The number of rows written.
        dropped_features: The features that the target format cannot store.
        findings: The findings about the source and the conversion.
        bytes: The bytes written.
        source_format: The format of the source.
        source_version: The version of the source's format.
        fps: The rate in Hz, a number or text such as "30000/1001".
        episodes: One dict per episode: old_episode_index, new_episode_index (-1 if left out),
            length, dataset_from_index, start_ns, video.
        tasks: One dict per task: old_task_index, new_task_index, task.
        added_features: The features that were added.
        renamed_features: {old key: new key}.
        video_segments_copied: The number of video segments copied without encoding.
        video_segments_encoded: The number of video segments that were encoded.
        aligned: Whether streams were put on one timeline.
        dry_run: Whether nothing was written.
    """

    num_episodes: int
    num_frames: int
    dropped_features: list[str]
    findings: list[Finding] | None
    bytes: int | None
    source_format: str | None
    source_version: str | None
    fps: float | str | None
    episodes: list[dict[str, Any]] | None
    tasks: list[dict[str, Any]] | None
    added_features: list[str] | None
    renamed_features: dict[str, str] | None
    video_segments_copied: int | None
    video_segments_encoded: int | None
    aligned: bool | None
    dry_run: bool | None
    _parts = {"findings": Finding}


class Pulled(Result):
    """The result of a download: the answer of pull.

    Attributes:
        uri: The URI of the dataset.
        commit: The commit on the Hub.
        destination: The local folder.
        files: The number of files of the dataset in the folder.
        bytes: The bytes that were read.
        unchanged: The number of files that existed already.
        left_out: The number of files of other episodes.
    """

    uri: str
    commit: str | None
    destination: str
    files: int
    bytes: int
    unchanged: int
    left_out: int


class Pushed(Result):
    """The result of an upload, or of a dry run: the answer of push.

    Attributes:
        repo: The repository on the Hub.
        branch: The branch.
        commit: The new commit. None if the dataset does not exist yet.
        tag: The tag with the version of the format.
        added: The uploaded files.
        deleted: The deleted files.
        bytes: The bytes of the uploaded files.
        card: The text of README.md.
        dry_run: Whether nothing was uploaded.
        notes: Remarks about the upload.
    """

    repo: str
    branch: str
    commit: str | None
    tag: str | None
    added: list[str]
    deleted: list[str]
    bytes: int
    card: str
    dry_run: bool
    notes: list[str] | None


def _plain_json(v: Any) -> Any:
    """Returns the value of an option as plain JSON."""
    if dataclasses.is_dataclass(v) and not isinstance(v, type):  # Such as robocache.Align.
        return {f.name: x for f in dataclasses.fields(v) if (x := getattr(v, f.name)) is not None}
    if isinstance(v, Fraction):
        return str(v)
    if isinstance(v, os.PathLike):
        return os.fspath(v)
    if isinstance(v, np.ndarray):
        return v.tolist()
    if _checks.is_integer(v):
        return int(v)
    if isinstance(v, (range, set, frozenset)):
        return sorted(v)
    if hasattr(v, "item"):
        return v.item()
    raise Misuse(
        f"an option cannot be a {type(v).__name__}",
        hint="text, numbers, True and False, lists and dicts of them can",
    )


def run_verb(verb: str, args: list[str], options: dict[str, Any], progress: bool | None) -> Any:
    """Runs a verb of the command line in the engine and returns its answer.

    Args:
        verb: The verb, such as "inspect" or "edit undo".
        args: The positional arguments.
        options: The flags by name, with _ in place of -.
        progress: Whether to show progress on stderr. None: if stderr is a terminal.
    """
    terminal = sys.stderr.isatty() if progress is None else bool(progress)
    given = json.loads(json.dumps(options, default=_plain_json))
    try:
        _, answer = _engine.current_engine().call(
            "robocache_verb",
            0,
            {"verb": verb, "args": args, "options": given, "terminal": terminal},
            settle=True,
        )
    except Misuse as e:
        if "known" in e.where:
            name = e.where["option"]
            raise Misuse(
                f"unknown option {name!r} of {verb}",
                {"option": name},
                _checks.nearest_names(name, e.where["known"]),
            ) from None
        raise
    for line in answer.get("notes") or ():
        logging.getLogger("robocache").log(
            logging.WARNING if answer["findings"] else logging.INFO, "%s: %s", verb, line
        )
    return answer["result"]


def inspect(
    uri: Any, *, episode: int | None = None, progress: bool | None = None, **options: Any
) -> Report | EpisodeReport:
    """Summarizes a dataset: streams, rates, codecs, tasks and sizes. Decodes nothing.

    The GIL is free during the call. Ctrl-C stops the work and leaves no unfinished files.

    Args:
        uri: A path or URI of any readable format.
        episode: The index of one episode, to get the timestamps, gaps and jitter of its streams.
            Default None: the whole dataset.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache inspect --help`, with _ in place of -: format=, hz=,
            contact_sheet=, suggest_map= and so on.

    Returns:
        A Report, or an EpisodeReport if episode is given. With suggest_map=True, the text of a
        mapping.

    Raises:
        NotFound: The dataset does not exist.
        Malformed: The dataset violates its format.
        Unsupported: RoboCache cannot read the dataset.
        Misuse: An option is unknown or invalid.

    Example:
        print(robocache.inspect("data/pusht").streams)
    """
    answer = run_verb(
        "inspect", [_checks.path_text(uri)], {"episode": episode, **options}, progress
    )
    if not isinstance(answer, dict):
        return answer  # The text of suggest_map=True.
    return Report(answer) if episode is None else EpisodeReport(answer)


def doctor(uri: Any, *, progress: bool | None = None, **options: Any) -> Diagnosis:
    """Checks a dataset and lists its problems.

    Problems of the dataset are findings, not exceptions. The GIL is free during the call. Ctrl-C
    stops the work and leaves no unfinished files.

    Args:
        uri: A path or URI of any readable format.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache doctor --help`, with _ in place of -: decode= (True decodes
            every frame), deep=, episodes=, format=, map=, fix=, in_place= and so on.

    Returns:
        A Diagnosis with findings, errors and warnings.

    Raises:
        NotFound: The dataset does not exist.
        Unsupported: RoboCache cannot read the dataset.
        Misuse: An option is unknown or invalid.

    Example:
        for finding in robocache.doctor("data/pusht", decode=True).findings:
            print(finding.severity, finding.message, finding.hint)
    """
    return Diagnosis(run_verb("doctor", [_checks.path_text(uri)], options, progress))


def causality(
    uri: Any,
    *,
    hz: Any = None,
    align: Any = None,
    progress: bool | None = None,
    **options: Any,
) -> Causality:
    """Reports which observations of an alignment use samples that a robot does not have yet.

    Reads timestamps and arrival times, and no values. The GIL is free during the call. Ctrl-C stops
    the work.

    Args:
        uri: A path or URI of any readable format.
        hz: The rate of the timeline in Hz. Default None: the ticks are the dataset's rows.
        align: A robocache.Align, "causal", or the path of a JSON or YAML file. Default None: the
            default modes.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache causality --help`, with _ in place of -: episodes=, keys=,
            time_budget= (seconds, or text such as "2min"; default 30), format=, map= and so on.

    Returns:
        A Causality.

    Raises:
        NotFound: The dataset does not exist.
        Unsupported: RoboCache cannot read the dataset.
        Misuse: An option is unknown or invalid.

    Example:
        report = robocache.causality("recording.mcap", hz=50, align="causal")
        print(max(s.future_share for s in report.streams if not s.label))
    """
    given = {"hz": hz, "align": align, **options}
    return Causality(run_verb("causality", [_checks.path_text(uri)], given, progress))


def diff(
    a: Any,
    b: Any,
    *,
    frames: str = "packets",
    progress: bool | None = None,
    **options: Any,
) -> Differences:
    """Reports how dataset b differs from dataset a. Their formats may differ.

    Episodes are matched by content, not by number. The GIL is free during the call. Ctrl-C stops
    the work.

    Args:
        a: A path or URI of any readable format.
        b: The same of the other dataset.
        frames: How cameras are compared: "packets" (coded bytes), "pixels" (decodes frames whose
            bytes differ) or "none". Default "packets".
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache diff --help`, with _ in place of -: threads=, rows_hz=,
            format=, map= and so on.

    Returns:
        A Differences. Its different is False if the datasets are equal.

    Raises:
        NotFound: A dataset does not exist.
        Malformed: An episode cannot be read.
        Misuse: An option is unknown or invalid.

    Example:
        for change in robocache.diff("before", "after").changed:
            print(change.a, change.rows, [s.key for s in change.streams])
    """
    given = {"frames": frames, **options}
    paths = [_checks.path_text(a), _checks.path_text(b)]
    return Differences(run_verb("diff", paths, given, progress))


def convert(src: Any, dst: Any, *, progress: bool | None = None, **options: Any) -> Conversion:
    """Writes any readable dataset as LeRobot v3.0 or in another format.

    The GIL is free during the call. Ctrl-C stops the work and leaves no unfinished files.

    Args:
        src: A path or URI of any readable format.
        dst: The folder to write. It must be empty or absent.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache convert --help`, with _ in place of -. to= is the target
            format: "mcap", "rlds", "robomimic", "zarr" or "delta". hz= puts the streams on one
            timeline of this rate, by the rules of align=robocache.Align(...). causal=True writes
            observations that use only samples that had arrived. version="v2.1" writes LeRobot v2.1,
            which GR00T and openpi read. dry_run=True only reports what would be written. Others are
            episodes=, keys=, video_codec=, skip_bad=, resume= and write_option=.

    Returns:
        A Conversion.

    Raises:
        NotFound: The source does not exist.
        Malformed: The source violates its format.
        Unsupported: RoboCache cannot read the source, or cannot write the target format.
        Misuse: An option is unknown or invalid, or dst is not empty.

    Example:
        robocache.convert("recording.mcap", "data/new", hz=50)
    """
    return Conversion(
        run_verb("convert", [_checks.path_text(src), _checks.path_text(dst)], options, progress)
    )


def stats(
    uri: Any, *, progress: bool | None = None, **options: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Computes exact statistics of every feature.

    The GIL is free during the call. Ctrl-C stops the work and leaves no unfinished files.

    Args:
        uri: A path or URI of any readable format.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache stats --help`, with _ in place of -. frames= selects the camera
            frames: "sampled" (default, LeRobot's choice), "all" or "none". out= writes a
            stats.json, write=True writes the statistics into the dataset. Others are keys=,
            episodes=, skip_bad= and format=.

    Returns:
        {feature: {statistic: array}} in the shape of Dataset.stats: min, max, mean, std, q01 and so
        on as float64 arrays, and count as int64 of shape (1,). The statistics of cameras are in [0,
        1] per channel, with shape (C, 1, 1).

    Raises:
        NotFound: The dataset does not exist.
        Malformed: The dataset violates its format.
        Unsupported: RoboCache cannot read the dataset.
        Misuse: An option is unknown or invalid.

    Example:
        values = robocache.stats("data/pusht", frames="none")
        loader = robocache.Loader("data/pusht", normalize="mean_std",
                                  statistics=robocache.Statistics(values=values))
    """
    answer = run_verb("stats", [_checks.path_text(uri)], options, progress)
    return {
        k: {n: np.array(v, np.int64 if n == "count" else np.float64) for n, v in one.items()}
        for k, one in answer.items()
    }


def _hub_environment() -> dict[str, str]:
    """Returns the HF_* variables of this process.

    The engine's own copy of the environment may be older.
    """
    return {k: v for k, v in os.environ.items() if k.startswith("HF_")}


def pull(
    uri: str, dst: Any, *, episodes: Any = None, progress: bool | None = None, **options: Any
) -> Pulled:
    """Copies a dataset from the Hugging Face Hub into a folder.

    Each file is checked against the Hub's checksum. A second call continues, and reads only the
    missing files. The GIL is free during the call. Ctrl-C stops the work and leaves no unfinished
    files.

    Args:
        uri: hf://datasets/owner/name, optionally with @revision.
        dst: The folder to write.
        episodes: Indices of episodes as ints, or text such as "0,3,5-9". Copies the metadata of a
            LeRobot dataset and the files with these episodes. Default None: all.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Further flags of `robocache pull --help`, with _ in place of -.

    Returns:
        A Pulled.

    Raises:
        NotFound: The dataset or the revision does not exist.
        Temporary: The Hub cannot be reached.
        Misuse: An option is unknown or invalid.

    Example:
        robocache.pull("hf://datasets/lerobot/pusht", "data/pusht", episodes=range(10))
    """
    return Pulled(
        run_verb(
            "pull",
            [uri, _checks.path_text(dst)],
            {"episodes": episodes, "env": _hub_environment(), **options},
            progress,
        )
    )


def push(dir: Any, repo: str, *, progress: bool | None = None, **options: Any) -> Pushed:
    """Uploads a folder to the Hub, so that the Hub's dataset equals the folder.

    The upload uses the huggingface_hub package of this Python. The dataset must have no errors of
    doctor. Its card (README.md and assets/preview.png) is made from inspect, and also written to
    the folder. The last step tags the commit with the version of the format. The GIL is free during
    the call; Ctrl-C stops the work.

    Args:
        dir: The folder of a dataset of any readable format.
        repo: The name on the Hub, "owner/name".
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache push --help`, with _ in place of -: private=, branch=,
            license=, message=, dry_run=, skip_doctor=, format= and so on.

    Returns:
        A Pushed.

    Raises:
        NotFound: The folder does not exist.
        Malformed: doctor finds errors in the dataset.
        Unsupported: huggingface_hub is not installed.
        Misuse: An option is unknown or invalid.

    Example:
        robocache.push("data/new", "owner/name", private=True, dry_run=True)
    """
    return Pushed(
        run_verb(
            "push",
            [_checks.path_text(dir), repo],
            {"python": sys.executable, "env": _hub_environment(), **options},
            progress,
        )
    )
