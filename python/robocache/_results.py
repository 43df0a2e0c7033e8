"""The results of verbs, as typed dicts with the content of --json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from . import _checks

__all__ = [
    "Result",
    "Finding",
    "Report",
    "EpisodeReport",
    "StreamSummary",
    "EpisodeStream",
    "Diagnosis",
    "Causality",
    "StreamCausality",
    "RecordingIndex",
    "Differences",
    "EpisodeChange",
    "StreamChange",
    "Conversion",
    "EditReport",
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


class RecordingIndex(Result):
    """An index of recordings: the answer of index.

    Attributes:
        path: The path or URI of the index.
        format: The format of the dataset.
        num_episodes: The number of episodes of the dataset.
        recordings: The number of recordings in the index.
        added: The number of recordings that this call added.
        changed: The number of recordings that had changed.
        removed: The number of recordings that are gone.
        bytes: The size of the index.
        position: {"log", "sequence"}, the end of the log.
        findings: The findings of the dataset.
    """

    path: str
    format: str
    num_episodes: int
    recordings: int
    added: int
    changed: int
    removed: int
    bytes: int
    position: dict[str, Any]
    findings: list[Finding]
    _parts = {"findings": Finding}


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


class EditReport(Result):
    """The result of an edit, or of its plan: the answer of Edit.write and Edit.plan.

    Attributes:
        dst: The folder that was written.
        format: The format that was written.
        dry_run: Whether nothing was written.
        in_place: Whether the source was replaced.
        num_episodes: The number of episodes of the result.
        num_frames: The number of rows of the result.
        video: The numbers of video segments that were copied, hidden and encoded, with reasons.
        bytes: In a plan, the approximate size of the result.
        free: In a plan, the free bytes at the destination.
        notes: Remarks about the edit.
        findings: Findings about the source and the result.
        plan: The plan, which `robocache edit apply` takes.
        parts: The reports of the parts of a split.
        split: The name of the part.
        undo: After an edit in place, the folder with the old dataset.
    """

    dst: str | None
    format: str
    dry_run: bool | None
    in_place: bool | None
    num_episodes: int
    num_frames: int
    video: dict[str, Any]
    bytes: int | None
    free: int | None
    notes: list[str] | None
    findings: list[Finding]
    plan: dict[str, Any] | None
    parts: list[EditReport] | None
    split: str | None
    undo: str | None
    _parts = {"findings": Finding}


EditReport._parts = {"findings": Finding, "parts": EditReport}
