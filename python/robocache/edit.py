"""Datasets made of datasets: episodes deleted, cut, split, merged; features renamed, removed, added; tasks and video changed. The twin of `robocache edit`.

    ds = robocache.open("set")
    print(ds.edit().delete([3, 7]).trim(0.5, -1.0).plan())         # what would be copied, cut and encoded; nothing is written
    ds.edit().delete(where="length < 30").rename({"cam": "observation.images.cam"}).write("clean")
    robocache.edit.delete("set", "clean", episodes=[3, 7])          # one change, in one call
    robocache.merge(["a", "b"]).write("both")

A change names episodes by their index in the source, whatever the changes before it deleted; after a merge, by their place in the merged whole. The source is never written to, unless write(in_place=True) says so.
"""

from __future__ import annotations

import inspect as _inspect
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _engine, _options
from ._errors import Misuse
from ._verbs import Finding, Result, _run

__all__ = [
    "Edit",
    "EditReport",
    "merge",
    "delete",
    "keep",
    "trim",
    "split",
    "rename",
    "remove",
    "add",
    "set_task",
    "relabel",
    "reencode",
    "resize",
    "recompute_stats",
    "undo",
    "recover",
]


class EditReport(Result):
    """What an edit did, or would do: the answer of Edit.write and Edit.plan."""

    dst: str | None
    format: str
    dry_run: bool | None
    in_place: bool | None
    num_episodes: int
    num_frames: int
    video: dict[str, Any]  # segments copied, hidden, encoded, and why
    bytes: int | None  # of a plan: about what the result takes
    free: int | None  # of a plan: what is free there
    notes: list[str] | None
    findings: list[Finding]
    plan: dict[str, Any] | None
    parts: list[EditReport] | None  # of a split
    split: str | None
    undo: str | None  # in place: where the old dataset is kept
    _parts = {"findings": Finding}


EditReport._parts = {"findings": Finding, "parts": EditReport}

_CHOICE = """
        episodes: indices, a range, or text such as "0,3,5-9". task: a pattern that a task of the episode matches ("pick*"). where: an expression, such as
        "length < 30 or max(action[gripper]) > 1.2". flags: a file of flags of `robocache view`; label: only its flags with this label,
        needed if the file has several labels. What is given holds together; invert: all others.
        """


class Edit:
    """Changes of a dataset, one after the other, which write() makes in one pass. Each method gives a new Edit. Made by Dataset.edit and robocache.merge."""

    def __init__(
        self,
        sources: Iterable[Any],
        verbs: Iterable[Mapping[str, Any]] = (),
        files: tuple[Any, ...] = (),
    ) -> None:
        self._sources = list(sources)
        self._verbs = list(verbs)
        self._files = files  # of values that were given as arrays

    def _and(
        self,
        verb: str,
        choice: Mapping[str, Any] | None = None,
        files: tuple[Any, ...] = (),
        **given: Any,
    ) -> Edit:
        v = {"verb": verb, **{k: x for k, x in given.items() if _said(x)}}
        for name, x in (choice or {}).items():
            if isinstance(x, str) and not x:
                raise Misuse(f"{name} is empty", hint="leave it out for all episodes")
            if _said(x):
                v[name] = (
                    _numbers(x) if name == "episodes" else os.fspath(x) if name == "flags" else x
                )
        return Edit(self._sources, [*self._verbs, v], self._files + files)

    def delete(
        self,
        episodes: Any = None,
        *,
        where: str | None = None,
        task: str | None = None,
        flags: Any = None,
        label: str | None = None,
        invert: bool = False,
    ) -> Edit:
        """Deletes episodes."""
        return self._and(
            "delete",
            {
                "episodes": episodes,
                "where": where,
                "task": task,
                "flags": flags,
                "label": label,
                "invert": invert,
            },
        )

    def keep(
        self,
        episodes: Any = None,
        *,
        where: str | None = None,
        task: str | None = None,
        flags: Any = None,
        label: str | None = None,
        invert: bool = False,
    ) -> Edit:
        """Keeps episodes, and deletes the others."""
        return self._and(
            "keep",
            {
                "episodes": episodes,
                "where": where,
                "task": task,
                "flags": flags,
                "label": label,
                "invert": invert,
            },
        )

    def trim(
        self,
        start: Any = None,
        stop: Any = None,
        *,
        idle: Mapping[str, float] | None = None,
        skip_short: bool = False,
        episodes: Any = None,
        where: str | None = None,
        task: str | None = None,
        flags: Any = None,
        label: str | None = None,
        invert: bool = False,
    ) -> Edit:
        """Cuts the beginnings and ends of episodes.

        start, stop: seconds as floats (0.5; -1.0: from the end), or rows as text ("12r", "-12r"). idle: {stream: the greatest change from row to row at which it
        rests}: what rests at both ends goes. skip_short: episodes of which nothing is left are deleted; else they are an error.
        """
        choice = {
            "episodes": episodes,
            "where": where,
            "task": task,
            "flags": flags,
            "label": label,
            "invert": invert,
        }
        return self._and(
            "trim",
            choice,
            **{"from": _moment("start", start), "to": _moment("stop", stop)},
            idle=dict(idle) if idle else None,
            skip_short=skip_short,
        )

    def split(
        self,
        into: Any = None,
        *,
        seed: int | None = None,
        by: str | None = None,
        stratify: str | None = None,
        group: str | None = None,
        flags: Any = None,
        label: str | None = None,
    ) -> Edit:
        """Splits into several datasets, in folders of write()'s dst: the last change.

        Args:
            into: {"train": 0.8, "val": 0.2} (fractions, or counts), or {"train": "0-79"}.
            seed: Episodes are dealt out in the order of this seed. Default: as they stand.
            by: "task" makes a part for each task.
            stratify: "task" gives each task the same fractions.
            group: A column. Episodes with one value of it stay together.
            flags: A file of flags makes a part for each label, of the flagged episodes and rows, and the part "rest".
            label: Takes only the flags with this label.
        """
        if isinstance(into, Mapping):
            into = [
                f"{k}={_numbers(v) if isinstance(v, (list, tuple, range, np.ndarray)) else v}"
                for k, v in into.items()
            ]
        v = self._and(
            "split",
            into=[into] if isinstance(into, str) else into,
            by=by,
            stratify=stratify,
            group=group,
            flags=None if flags is None else os.fspath(flags),
            label=label,
        )
        if seed is not None:
            v._verbs[-1]["seed"] = _options.whole("seed", seed, 0)
        return v

    def rename(self, names: Mapping[str, str]) -> Edit:
        """Renames features, {old: new}, wherever they are named."""
        return self._and("rename", names=dict(names))

    def remove(self, *features: str) -> Edit:
        """Removes features."""
        return self._and(
            "remove", features=[f for x in features for f in ([x] if isinstance(x, str) else x)]
        )

    def add(self, key: str, values: Any) -> Edit:
        """Adds a feature: an array with a row for each row of the dataset, the path of a .npy or .parquet file, or one value for all rows."""
        files: tuple[Any, ...] = ()
        if (
            isinstance(values, os.PathLike)
            or isinstance(values, str)
            and values.endswith((".npy", ".parquet"))
        ):
            source = os.fspath(values)
        elif hasattr(values, "__array__") and np.ndim(values) > 0 or hasattr(values, "detach"):
            folder = tempfile.TemporaryDirectory(prefix="robocache-add-")
            files, source = (folder,), os.path.join(folder.name, "values.npy")
            np.save(
                source,
                np.asarray(values.detach().cpu() if hasattr(values, "detach") else values),
                allow_pickle=False,
            )
        else:
            source = json.dumps(values.item() if hasattr(values, "item") else values)
        return self._and("add", None, files, features=[key], **{"from": source})

    def set_task(
        self,
        text: str,
        *,
        episodes: Any = None,
        where: str | None = None,
        task: str | None = None,
        flags: Any = None,
        label: str | None = None,
        invert: bool = False,
    ) -> Edit:
        """Gives all rows of episodes a task."""
        return self._and(
            "set-task",
            {
                "episodes": episodes,
                "where": where,
                "task": task,
                "flags": flags,
                "label": label,
                "invert": invert,
            },
            text=text,
        )

    def relabel(
        self,
        names: Mapping[str, str] | None = None,
        *,
        rows: str | None = None,
        text: str | None = None,
    ) -> Edit:
        """Changes task texts, {old: new}; or gives rows ("3:40-80", rows 40 to 79 of episode 3) the task `text`."""
        return self._and("relabel", names=dict(names) if names else None, rows=rows, text=text)

    def reencode(
        self,
        codec: str | None = None,
        *,
        gop: int | None = None,
        crf: int | None = None,
        preset: str | None = None,
    ) -> Edit:
        """Encodes all video anew. codec: "av1", "h264" or "hevc". The report's video["psnr"] says how near it comes to the source."""
        return self._and("reencode", video=_set(codec=codec, gop=gop, crf=crf, preset=preset))

    def resize(
        self,
        size: Any,
        *,
        codec: str | None = None,
        gop: int | None = None,
        crf: int | None = None,
        preset: str | None = None,
    ) -> Edit:
        """Encodes all video anew at (height, width)."""
        height, width = _options.frame_size("size", size)
        return self._and(
            "resize",
            video=_set(codec=codec, gop=gop, crf=crf, preset=preset, height=height, width=width),
        )

    def recompute_stats(self) -> Edit:
        """Counts the statistics anew. All edits do; this alone copies the rest."""
        return self._and("recompute-stats")

    def plan(self, dst: Any = None, **options: Any) -> EditReport:
        """What write() would do: episodes, bytes, frames to encode and why. Writes nothing. The plan itself is .plan, which `robocache edit apply` takes."""
        return self._run(dst, dry_run=True, **options)

    def write(
        self,
        dst: Any = None,
        *,
        in_place: bool = False,
        cut: str | None = None,
        stats: str | None = None,
        to: str | None = None,
    ) -> EditReport:
        """Writes the result, to a new folder or in place of the dataset.

        cut: what a cut inside a group of video frames does: "hidden" (default: frames that no row shows stay in the file), "exact" (encodes the frames up to the next key
        frame, or where these would not stand in one file with the rest, the episode), "snap" (moves the cut). stats: rows are counted always, frames where episodes changed; "rows": of none.
        to: the format.
        in_place: swaps the folders in one step, and keeps the old dataset at .undo.
        Raises before the first byte is written what can be refused: Misuse (unknown episodes and keys, a folder that is taken), NotFound, Malformed, Unsupported.
        """
        return self._run(dst, in_place=in_place, cut=cut, stats=stats, to=to)

    def _run(self, dst: Any, **options: Any) -> EditReport:
        opened = [_source(s) for s in self._sources]
        request: dict[str, Any] = {
            "sources": [uri for uri, _ in opened],
            "verbs": self._verbs,
            **{k: v for k, v in options.items() if _said(v)},
        }
        if any(how != opened[0][1] for _, how in opened):
            raise Misuse(
                "the datasets were opened by different options",
                hint="open them alike, or give their paths",
            )
        if opened and opened[0][1]:
            request["open"] = opened[0][1]
        if dst is not None:
            request["dst"] = _options.uri(dst)
        return EditReport(_engine.engine().call("robocache_edit", 0, request, settle=True)[1])

    def __repr__(self) -> str:
        return f"<robocache.edit.Edit of {', '.join(_source(s)[0] for s in self._sources)}: {', '.join(v['verb'] for v in self._verbs) or 'nothing yet'}>"


def _source(s: Any) -> tuple[str, dict[str, Any]]:
    """The URI of a dataset, and how it is opened."""
    args = getattr(s, "_args", None)
    if args is None:
        return _options.uri(s), {}
    how = {
        k: v
        for k, v in args.items()
        if k in ("format", "rows_hz", "split", "episodes", "options", "follow_links") and v
    }
    if isinstance(args.get("map"), Mapping):
        how["map"] = args["map"]
    elif args.get("map"):
        raise Misuse(
            "a dataset that was opened with a file of a mapping is not edited",
            hint="give map= a dict, or use `robocache edit --map`",
        )
    return args["uri"], how


def _said(v: Any) -> bool:
    return v is not None and v is not False


def _set(**given: Any) -> dict[str, Any]:
    return {k: v for k, v in given.items() if v is not None}


def _numbers(v: Any) -> str:
    if not isinstance(v, str):
        v = ",".join(
            str(_options.whole("episodes", x, 0))
            for x in np.atleast_1d(
                np.asarray(list(v) if isinstance(v, (range, set, frozenset)) else v)
            ).tolist()
        )
    if not v:
        raise Misuse("episodes: none are named", hint="leave it out for all episodes")
    return v


def _moment(name: str, v: Any) -> str | None:
    if v is None or isinstance(v, str):
        return v
    if _options.is_integer(v):
        raise Misuse(
            f"{name}={v}: seconds are floats",
            hint=f'{name}={float(v)} is seconds, {name}="{v}r" is rows',
        )
    return repr(_options.real(name, v))


def merge(
    sources: Iterable[Any], *, keys: str = "strict", hz: Any = None, black: bool = False
) -> Edit:
    """Joins datasets, one after the other, as an Edit: .write(dst) writes it, other changes may follow.

    sources: paths, URIs or Datasets. keys: "strict" (the same features), "intersection", or "union" (zeros where a dataset has none, and "<key>.valid" says so;
    black=True: black frames too). hz: the rate that all are brought to; None: they must have the same. Tasks are joined by their texts, joints by their names.
    """
    sources = list(sources)
    return Edit(
        sources,
        [
            {
                "verb": "merge",
                "keys": keys,
                **({"hz": str(hz)} if hz is not None else {}),
                **({"black": True} if black else {}),
            }
        ],
    )


def undo(dataset: Any) -> str:
    """Gives a dataset back as it was before its last edit in place, and says so. Raises Malformed where a file of it was changed since, NotFound where there was no edit."""
    return str(_run("edit undo", [_options.uri(dataset)], {}, False)["done"])


def recover(dataset: Any) -> str:
    """Ends an edit in place that was interrupted, and says what is there now."""
    return str(_run("edit recover", [_options.uri(dataset)], {}, False)["done"])


def _one(name: str) -> Any:
    method = getattr(Edit, name)

    def verb(
        source: Any, dst: Any = None, *args: Any, in_place: bool = False, **given: Any
    ) -> EditReport:
        return method(Edit([source]), *args, **given).write(dst, in_place=in_place)

    kinds = _inspect.Parameter
    own = list(_inspect.signature(method).parameters.values())[1:]
    verb.__name__ = verb.__qualname__ = name
    verb.__doc__ = (
        (method.__doc__ or "").rstrip()
        + "\n\n        In one call: source is a path or a Dataset, dst a new folder; or in_place=True.\n        "
    )
    verb.__signature__ = _inspect.Signature(
        [  # type: ignore[attr-defined]
            kinds("source", kinds.POSITIONAL_OR_KEYWORD),
            kinds("dst", kinds.POSITIONAL_OR_KEYWORD, default=None),
            *[p for p in own if p.kind is kinds.VAR_POSITIONAL],
            *[
                p.replace(kind=kinds.KEYWORD_ONLY)
                for p in own
                if p.kind is not kinds.VAR_POSITIONAL
            ],
            kinds("in_place", kinds.KEYWORD_ONLY, default=False),
        ]
    )
    return verb


for _name in ("delete", "keep", "trim", "set_task"):
    _m = getattr(Edit, _name)
    _m.__doc__ = (_m.__doc__ or "").rstrip() + "\n" + _CHOICE
for _name in __all__[3:-2]:
    globals()[_name] = _one(_name)
