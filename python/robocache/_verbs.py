"""The verbs of the command line as functions: inspect, doctor, convert, stats, pull, push. Their answers are what --json prints, with types."""

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

from . import _engine, _options
from ._errors import Misuse

__all__ = [
    "inspect",
    "doctor",
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
    "Conversion",
    "Pulled",
    "Pushed",
]


class Result(dict[str, Any]):
    """A dict as the verb's --json prints it, whose keys are attributes too: r["findings"] is r.findings. A key that is absent is None as an attribute."""

    _parts: ClassVar[Mapping[str, type[Result]]] = {}

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(answer)
        for key, kind in self._parts.items():
            if isinstance(self.get(key), list):
                self[key] = [kind(x) for x in self[key]]

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        known = [
            n
            for kind in type(self).__mro__
            for n in getattr(kind, "__annotations__", ())
            if not n.startswith("_")
        ]
        if name in known:
            return None
        raise AttributeError(
            f"{type(self).__name__} has no {name!r}: {_options.nearest(name, {*self, *known})}"
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class Finding(Result):
    """Something that was noticed. docs/cli.md says the keys, docs/lerobot.md the codes."""

    severity: str  # error | warning | info
    code: str  # stable, kebab-case
    message: str
    where: dict[str, Any] | None  # file, stream, episode, row …
    hint: str | None  # what to do about it
    count: int | None  # how often, where it was counted


class StreamSummary(Result):
    """A stream of a dataset, as its files say."""

    key: str
    kind: str
    dtype: str
    shape: list[int]
    rate_hz: float | None  # None: not declared, and too few timestamps to tell
    rate_measured: bool | None
    clock: str | None
    codec: str | None
    gop: float | None  # frames a key frame, in the first file
    height: int | None
    width: int | None
    problem: str | None  # why the first file could not be read


class Report(Result):
    """What is in a dataset: the answer of inspect."""

    uri: str
    format: str
    version: str
    robot_type: str | None
    fps: float | str | None  # a number, or text such as "30000/1001"
    num_episodes: int
    num_frames: int
    duration_s: float
    episode_length: dict[str, float]  # min, mean, max, in rows
    features: list[dict[str, Any]]  # the declared schema
    streams: list[StreamSummary]
    tasks: list[dict[str, Any]] | None  # task_index, task
    splits: dict[str, str] | None  # name → "from:to"
    bytes: dict[str, Any] | None  # total, files, by_folder
    stats: dict[str, Any] | None  # what the dataset brings
    findings: list[Finding] | None
    _parts = {"streams": StreamSummary, "findings": Finding}


class EpisodeStream(Result):
    """A stream of one episode: its time."""

    key: str
    kind: str
    rows: int
    first_ns: int | None  # None, as what follows: nothing is known of the stream's time
    last_ns: int | None
    rate_hz: float | None
    jitter_ms: float | None  # standard deviation of the steps
    max_gap_ms: float | None
    gaps: int  # steps longer than 1.5 times the mean step
    repeated: int
    problem: str | None


class EpisodeReport(Result):
    """One episode's streams: the answer of inspect(uri, episode=…)."""

    position: int
    episode_index: int
    length: int
    tasks: list[str]
    streams: list[EpisodeStream]
    _parts = {"streams": EpisodeStream}


class Diagnosis(Result):
    """What is wrong with a dataset: the answer of doctor."""

    uri: str
    format: str
    version: str
    num_episodes: int
    num_frames: int
    findings: list[Finding]
    errors: int  # how many of the findings are errors
    warnings: int
    _parts = {"findings": Finding}


class Conversion(Result):
    """What a conversion wrote: the answer of convert. Those of other formats than LeRobot have num_episodes, num_frames, bytes, dropped_features, findings."""

    num_episodes: int
    num_frames: int
    dropped_features: list[str]
    findings: list[Finding] | None
    bytes: int | None
    source_format: str | None
    source_version: str | None
    fps: float | str | None
    # old_episode_index, new_episode_index (-1: left out), length, dataset_from_index, start_ns,
    # video
    episodes: list[dict[str, Any]] | None
    tasks: list[dict[str, Any]] | None  # old_task_index, new_task_index, task
    added_features: list[str] | None
    renamed_features: dict[str, str] | None
    video_segments_copied: int | None
    video_segments_encoded: int | None
    aligned: bool | None
    dry_run: bool | None
    _parts = {"findings": Finding}


class Pulled(Result):
    """What a pull brought: the answer of pull."""

    uri: str
    commit: str | None
    destination: str
    files: int  # of the dataset, that are there now
    bytes: int  # that were read
    unchanged: int  # files that were there already
    left_out: int  # files of other episodes


class Pushed(Result):
    """What a push did, or with dry_run would do: the answer of push."""

    repo: str
    branch: str
    commit: str | None  # None: the dataset is not there yet
    tag: str | None
    added: list[str]  # files that went up
    deleted: list[str]
    bytes: int  # of those that went up
    card: str  # README.md
    dry_run: bool
    notes: list[str] | None


_OPTIONS = """
    options: the flags of `robocache {verb} --help` by name, with _ for - ({examples} …). Lists and dicts stand for flags that take several values, and for
    files of JSON. progress: shown on stderr; default: where that is a terminal. Notes go to logging.getLogger("robocache") otherwise.
    The GIL is free meanwhile; Ctrl-C stops the work and leaves nothing half-written.
    Raises the exceptions of robocache.open, and Misuse for an option that the verb does not have.
    """


def _plain(v: Any) -> Any:
    """A value of an option as JSON has it."""
    if dataclasses.is_dataclass(v) and not isinstance(v, type):  # robocache.Align
        return {f.name: x for f in dataclasses.fields(v) if (x := getattr(v, f.name)) is not None}
    if isinstance(v, Fraction):
        return str(v)
    if isinstance(v, os.PathLike):
        return os.fspath(v)
    if isinstance(v, np.ndarray):
        return v.tolist()
    if _options.is_integer(v):
        return int(v)
    if isinstance(v, (range, set, frozenset)):
        return sorted(v)
    if hasattr(v, "item"):
        return v.item()
    raise Misuse(
        f"an option cannot be a {type(v).__name__}",
        hint="text, numbers, True and False, lists and dicts of them can",
    )


def _run(verb: str, args: list[str], options: dict[str, Any], progress: bool | None) -> Any:
    terminal = sys.stderr.isatty() if progress is None else bool(progress)
    given = json.loads(json.dumps(options, default=_plain))
    try:
        _, answer = _engine.engine().call(
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
                _options.nearest(name, e.where["known"]),
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
    """What is in a dataset: streams, rates, codecs, tasks, sizes. Decodes nothing.

    uri: a path or URI of any readable format. episode: an index: that one's streams, with first and last timestamp, gaps and jitter.
    """
    answer = _run("inspect", [_options.uri(uri)], {"episode": episode, **options}, progress)
    if not isinstance(answer, dict):
        return answer  # type: ignore[no-any-return]  # the text of suggest_map=True
    return Report(answer) if episode is None else EpisodeReport(answer)


def doctor(uri: Any, *, progress: bool | None = None, **options: Any) -> Diagnosis:
    """Proves that a dataset is what it claims, and says what is wrong with it: .findings, .errors, .warnings. Raises nothing for what it finds.

    uri: a path or URI of any readable format. decode=True decodes every frame too.
    """
    return Diagnosis(_run("doctor", [_options.uri(uri)], options, progress))


def convert(src: Any, dst: Any, *, progress: bool | None = None, **options: Any) -> Conversion:
    """Writes any readable dataset as LeRobot v3.0, or in the format that to= names: "mcap", "rlds", "robomimic", "zarr", "delta". dst must be empty or absent.

    hz=50 brings streams onto one grid, align=robocache.Align(…) says how; dry_run=True says what would be done.
    """
    return Conversion(_run("convert", [_options.uri(src), _options.uri(dst)], options, progress))


def stats(
    uri: Any, *, progress: bool | None = None, **options: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Exact statistics of every feature, in the shape of Dataset.stats: min, max, mean, std, q01 … as float64 arrays, count as int64 of shape (1,).

    uri: a path or URI of any readable format. frames: the frames of cameras that are looked at, "sampled" (default, as LeRobot chooses them), "all" or
    "none"; theirs are in [0, 1] by channel, shape (C, 1, 1). out= writes a stats.json, write=True puts it into the dataset.
    """
    answer = _run("stats", [_options.uri(uri)], options, progress)
    return {
        k: {n: np.array(v, np.int64 if n == "count" else np.float64) for n, v in one.items()}
        for k, one in answer.items()
    }


def _hub() -> dict[str, str]:
    """The variables of huggingface_hub as they are in Python: the engine has those of the time when it was loaded."""
    return {k: v for k, v in os.environ.items() if k.startswith("HF_")}


def pull(
    uri: str, dst: Any, *, episodes: Any = None, progress: bool | None = None, **options: Any
) -> Pulled:
    """Copies a dataset of the Hugging Face Hub into a folder, each file held against the Hub's checksum. A second call goes on, and reads only what is missing.

    uri: hf://datasets/owner/name, with @revision where wanted. episodes: indices (ints, or text such as "0,3,5-9"); metadata and the files that hold them, of a LeRobot dataset.
    """
    return Pulled(
        _run(
            "pull",
            [uri, _options.uri(dst)],
            {"episodes": episodes, "env": _hub(), **options},
            progress,
        )
    )


def push(dir: Any, repo: str, *, progress: bool | None = None, **options: Any) -> Pushed:
    """Makes the Hub's dataset repo ("owner/name") what the folder dir is, through huggingface_hub of this Python; tags it by its format's version, last.

    dir: a dataset of any readable format, without errors of doctor. Its card (README.md, assets/preview.png) is made from inspect, in dir too.
    """
    return Pushed(
        _run(
            "push",
            [_options.uri(dir), repo],
            {"python": sys.executable, "env": _hub(), **options},
            progress,
        )
    )


for _verb, _examples in (
    (inspect, "format=, hz=, contact_sheet=, suggest_map="),
    (doctor, "decode=, deep=, episodes=, format=, map="),
    (
        convert,
        "to=, hz=, align=, episodes=, keys=, video_codec=, skip_bad=, resume=, write_option=",
    ),
    (stats, "keys=, episodes=, frames=, skip_bad=, format="),
    (pull, "episodes="),
    (push, "private=, branch=, license=, message=, dry_run=, skip_doctor=, format="),
):
    _verb.__doc__ = (_verb.__doc__ or "").rstrip() + _OPTIONS.format(
        verb=_verb.__name__, examples=_examples
    )
