"""The verbs of the command line as functions, such as inspect, doctor and convert.

They return the typed dicts of _results.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from fractions import Fraction
from typing import Any

import numpy as np

from . import _engine, _checks
from ._errors import Misuse
from ._results import (
    Causality,
    Conversion,
    Diagnosis,
    Differences,
    EpisodeReport,
    Pulled,
    Pushed,
    RecordingIndex,
    Report,
)

__all__ = [
    "inspect",
    "doctor",
    "causality",
    "index",
    "diff",
    "convert",
    "stats",
    "pull",
    "push",
]


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


def index(
    uri: Any,
    *,
    out: Any = None,
    progress: bool | None = None,
    **options: Any,
) -> RecordingIndex:
    """Writes an index of recordings, so that a dataset of many files opens at once.

    Every later opening uses the index and reads only recordings that are new or changed. Call index
    again to add them. It serves folders of MCAP, rosbag2 and HDF5 recordings and LeRobot v2.

    Args:
        uri: A folder of recordings, on disk or in a bucket.
        out: The index to write. Default None: .robocache-index in the dataset. To open the dataset
            with another index, pass recording_index= to robocache.open.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache index --help`, with _ in place of -: format= and so on.

    Returns:
        A RecordingIndex.

    Raises:
        NotFound: The dataset does not exist.
        Unsupported: The dataset opens without an index.
        Misuse: An option is unknown or invalid, or the index cannot be written.

    Example:
        report = robocache.index("recordings")
        print(report.recordings, report.added)
    """
    given = {"out": None if out is None else _checks.path_text(out), **options}
    return RecordingIndex(run_verb("index", [_checks.path_text(uri)], given, progress))


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
            episodes=, skip_bad= and format=. **{"for": "all"} computes what trainers compute.

    Returns:
        {feature: {statistic: array}} in the shape of Dataset.stats: min, max, mean, std, q01 and so
        on as float64 arrays, and count as int64 of shape (1,). The statistics of cameras are in [0,
        1] per channel, with shape (C, 1, 1). For openpi, gr00t and all, the contents of their files
        by name, with arrays in place of lists.

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
    return {k: _arrays_of(k, one) for k, one in answer.items()}


def _arrays_of(name: str, value: Any) -> Any:
    """Returns nested dicts with an array in place of each list."""
    if isinstance(value, dict):
        return {k: _arrays_of(k, v) for k, v in value.items()}
    return np.array(value, np.int64 if name == "count" else np.float64)


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
