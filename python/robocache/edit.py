"""Edits of datasets: delete, cut, split and merge episodes; change features, tasks and video.

    ds = robocache.open("set")
    print(ds.edit().delete([3, 7]).trim(0.5, -1.0).plan())
    ds.edit().delete(where="length < 30").rename({"cam": "observation.images.cam"}).write("clean")
    robocache.edit.delete("set", "clean", episodes=[3, 7])
    robocache.merge(["a", "b"]).write("both")

plan() reports what write() would do and writes nothing. A function of this module makes one change
in one call. `robocache edit` is the command line for the same edits.

A change names episodes by their index in the source, regardless of earlier deletions. After a
merge, it names them by their position in the merged dataset. The source is not modified, unless
write(in_place=True) is called.
"""

from __future__ import annotations

import inspect as _inspect
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _engine, _checks
from ._errors import Misuse
from ._edit_values import (
    annotation_range,
    drop_none,
    episode_text,
    is_given,
    moment_text,
    source_request,
)
from ._results import EditReport
from ._verbs import run_verb

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
    "annotate",
    "reencode",
    "resize",
    "recompute_stats",
    "undo",
    "recover",
]


class Edit:
    """A sequence of changes of datasets, which write() makes in one pass.

    Dataset.edit and robocache.merge return it. Each method returns a new Edit with one more change.

    Example:
        ds.edit().delete([3]).set_task("pick the cube", episodes=[0, 1]).write("clean")
    """

    def __init__(
        self,
        sources: Iterable[Any],
        verbs: Iterable[Mapping[str, Any]] = (),
        files: tuple[Any, ...] = (),
    ) -> None:
        self._sources = list(sources)
        self._verbs = list(verbs)
        self._files = files  # The temporary files of values that were given as arrays.

    def _with_change(
        self,
        verb: str,
        choice: Mapping[str, Any] | None = None,
        files: tuple[Any, ...] = (),
        **given: Any,
    ) -> Edit:
        """Returns a new Edit with one more change.

        Args:
            verb: The name of the change.
            choice: The selection of episodes.
            files: Temporary files that the change needs.
            given: The arguments of the change.
        """
        change = {"verb": verb, **{k: x for k, x in given.items() if is_given(x)}}
        as_json = {"episodes": episode_text, "flags": os.fspath}
        for name, value in (choice or {}).items():
            if isinstance(value, str) and not value:
                raise Misuse(f"{name} is empty", hint="leave it out for all episodes")
            if is_given(value):
                change[name] = as_json[name](value) if name in as_json else value
        return Edit(self._sources, [*self._verbs, change], self._files + files)

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
        """Deletes episodes. The arguments that are given must all hold for an episode.

        Args:
            episodes: Indices, a range, or text such as "0,3,5-9". Default None: all episodes.
            where: An expression, such as "length < 30 or max(action[gripper]) > 1.2". Default None.
            task: A pattern that a task of the episode must match, such as "pick*". Default None.
            flags: The path of a file of flags of `robocache view`. Default None.
            label: Use only the flags with this label. Required if the file has several labels.
            invert: Whether to delete all other episodes instead. Default False.
        """
        return self._with_change(
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
        """Keeps episodes and deletes all others. The arguments must all hold for an episode.

        Args:
            episodes: Indices, a range, or text such as "0,3,5-9". Default None: all episodes.
            where: An expression, such as "length < 30 or max(action[gripper]) > 1.2". Default None.
            task: A pattern that a task of the episode must match, such as "pick*". Default None.
            flags: The path of a file of flags of `robocache view`. Default None.
            label: Use only the flags with this label. Required if the file has several labels.
            invert: Whether to keep all other episodes instead. Default False.
        """
        return self._with_change(
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
        """Cuts the start and the end of episodes.

        Args:
            start: The first row to keep: seconds as float (0.5, or -1.0 from the end), or rows as
                text ("12r", "-12r"). Default None: the first row.
            stop: The end of the rows to keep, in the form of start. Default None: the last row.
            idle: {stream: limit}. Cuts the rows at both ends in which the stream changes by at most
                limit from row to row. Default None.
            skip_short: Whether to delete episodes that become empty. Default False: they are an
                error.
            episodes: Trim only these: indices, a range, or text such as "0,3,5-9". Default None:
                all.
            where: Trim only episodes for which this expression holds. Default None.
            task: Trim only episodes with a task that matches this pattern. Default None.
            flags: Trim only the episodes in this file of flags of `robocache view`. Default None.
            label: Use only the flags with this label. Required if the file has several labels.
            invert: Whether to trim all other episodes instead. Default False.
        """
        choice = {
            "episodes": episodes,
            "where": where,
            "task": task,
            "flags": flags,
            "label": label,
            "invert": invert,
        }
        return self._with_change(
            "trim",
            choice,
            **{"from": moment_text("start", start), "to": moment_text("stop", stop)},
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
        """Splits into several datasets, in folders of write()'s dst. This must be the last change.

        Args:
            into: {"train": 0.8, "val": 0.2} (fractions or counts), or {"train": "0-79"}.
            seed: Divide the episodes in the random order of this seed. Default None: in their
                order.
            by: "task" makes one part per task. Default None.
            stratify: "task" divides each task by the same fractions. Default None.
            group: A column. Episodes with the same value stay together. Default None.
            flags: A file of flags. Makes one part per label, with the flagged episodes and rows,
                and a part "rest". Default None.
            label: Use only the flags with this label. Default None.
        """
        if isinstance(into, Mapping):
            lists = (list, tuple, range, np.ndarray)
            into = [
                f"{name}={episode_text(share) if isinstance(share, lists) else share}"
                for name, share in into.items()
            ]
        return self._with_change(
            "split",
            into=[into] if isinstance(into, str) else into,
            by=by,
            stratify=stratify,
            group=group,
            flags=None if flags is None else os.fspath(flags),
            label=label,
            seed=None if seed is None else _checks.check_whole("seed", seed, 0),
        )

    def rename(self, names: Mapping[str, str]) -> Edit:
        """Renames features in all places.

        Args:
            names: {old key: new key}.
        """
        return self._with_change("rename", names=dict(names))

    def remove(self, *features: str) -> Edit:
        """Removes features.

        Args:
            features: The keys, as arguments or lists.
        """
        return self._with_change(
            "remove", features=[f for x in features for f in ([x] if isinstance(x, str) else x)]
        )

    def add(self, key: str, values: Any) -> Edit:
        """Adds a feature.

        Args:
            key: The key of the feature.
            values: An array with one row per row of the dataset, the path of a .npy or .parquet
                file, or one value for all rows.
        """
        files: tuple[Any, ...] = ()
        if (
            isinstance(values, os.PathLike)
            or isinstance(values, str)
            and values.endswith((".npy", ".parquet"))
        ):
            source = os.fspath(values)
        elif hasattr(values, "__array__") and np.ndim(values) > 0 or hasattr(values, "detach"):
            folder = tempfile.TemporaryDirectory(prefix="robocache-add-")
            files = (folder,)
            source = os.path.join(folder.name, "values.npy")
            np.save(
                source,
                np.asarray(values.detach().cpu() if hasattr(values, "detach") else values),
                allow_pickle=False,
            )
        else:
            source = json.dumps(values.item() if hasattr(values, "item") else values)
        return self._with_change("add", None, files, features=[key], **{"from": source})

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
        """Sets one task for all rows of episodes. The arguments that are given must all hold.

        Args:
            text: The text of the task.
            episodes: Indices, a range, or text such as "0,3,5-9". Default None: all episodes.
            where: An expression, such as "length < 30 or max(action[gripper]) > 1.2". Default None.
            task: A pattern that a task of the episode must match, such as "pick*". Default None.
            flags: The path of a file of flags of `robocache view`. Default None.
            label: Use only the flags with this label. Required if the file has several labels.
            invert: Whether to select all other episodes instead. Default False.
        """
        return self._with_change(
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
        """Changes the texts of tasks, or sets the task of some rows.

        Args:
            names: {old text: new text}.
            rows: Rows such as "3:40-80", which are rows 40 to 79 of episode 3.
            text: The task of these rows.
        """
        return self._with_change(
            "relabel", names=dict(names) if names else None, rows=rows, text=text
        )

    def annotate(
        self,
        ranges: Any,
        *,
        key: str = "subtask",
        label: str | None = None,
        append: bool = False,
    ) -> Edit:
        """Adds texts of rows, such as subtasks, in LeRobot's language columns.

        A text is active in the rows of its range. The stream "subtask" delivers the subtask of each
        row, "" outside.

        Args:
            ranges: The path of a CSV or JSON file; a list of dicts with episode, from and to (rows,
                to not included), or from_s and to_s (seconds), text, style, role and camera; or a
                function that takes an Episode and returns such dicts, or tuples (from, to, text).
                The result of find is such a list.
            key: The style of ranges that have none: "subtask", "plan", "memory", "motion",
                "task_aug", "interjection", "vqa" or "trace". Default "subtask".
            label: The text of ranges that have none. Default None.
            append: Whether texts of the same style stay outside the ranges. Default False: they are
                replaced in the episodes that are named.

        Example:
            ds.edit().annotate(lambda ep: [(0, 20, "reach"), (20, ep.length, "grasp")]).write("new")
        """
        given: dict[str, Any] = {"key": key, "text": label, "append": append or None}
        if isinstance(ranges, (str, os.PathLike)):
            return self._with_change("annotate", **given, **{"from": os.fspath(ranges)})
        if callable(ranges):
            if len(self._sources) != 1:
                raise Misuse("annotate: a function needs one source")
            from .dataset import Dataset, open

            source = self._sources[0]
            ds = source if isinstance(source, Dataset) else open(source)
            ranges = [annotation_range(r, ep.index) for ep in ds for r in ranges(ep)]
        return self._with_change("annotate", **given, ranges=[annotation_range(r) for r in ranges])

    def reencode(
        self,
        codec: str | None = None,
        *,
        gop: int | None = None,
        crf: int | None = None,
        preset: str | None = None,
    ) -> Edit:
        """Encodes all video again.

        The report's video["psnr"] measures the difference from the source.

        Args:
            codec: "av1", "h264" or "hevc". Default None: the codec of the source.
            gop: The distance of key frames, in frames. Default None: chosen by the engine.
            crf: The quality of the encoder. Default None: chosen by the engine.
            preset: The speed of the encoder. Default None: chosen by the engine.
        """
        return self._with_change(
            "reencode", video=drop_none(codec=codec, gop=gop, crf=crf, preset=preset)
        )

    def resize(
        self,
        size: Any,
        *,
        codec: str | None = None,
        gop: int | None = None,
        crf: int | None = None,
        preset: str | None = None,
    ) -> Edit:
        """Encodes all video again with another size.

        Args:
            size: (height, width) in pixels.
            codec: As in reencode.
            gop: As in reencode.
            crf: As in reencode.
            preset: As in reencode.
        """
        height, width = _checks.check_frame_size("size", size)
        return self._with_change(
            "resize",
            video=drop_none(
                codec=codec, gop=gop, crf=crf, preset=preset, height=height, width=width
            ),
        )

    def recompute_stats(self) -> Edit:
        """Computes the statistics again, and copies everything else.

        Every other change also computes the statistics.
        """
        return self._with_change("recompute-stats")

    def plan(self, dst: Any = None, **options: Any) -> EditReport:
        """Reports what write() would do, and writes nothing.

        Args:
            dst: As in write.
            options: As in write.

        Returns:
            An EditReport with episodes, bytes, and the frames to encode with the reasons. Its .plan
            is the plan itself, which `robocache edit apply` takes.

        Raises:
            Misuse: A change or option is invalid.
        """
        return self._send_request(dst, dry_run=True, **options)

    def write(
        self,
        dst: Any = None,
        *,
        in_place: bool = False,
        cut: str | None = None,
        stats: str | None = None,
        to: str | None = None,
    ) -> EditReport:
        """Writes the result to a new folder, or in place of the dataset.

        Invalid changes are rejected before the first byte is written.

        Args:
            dst: The new folder. None with in_place=True.
            in_place: Whether to replace the dataset in one step. The old dataset is kept in the
                folder .undo of the report. Default False.
            cut: How to cut video between key frames. "hidden" (default) keeps unused frames in the
                file. "exact" encodes the frames up to the next key frame, or the whole episode if
                these frames cannot be in one file with the rest. "snap" moves the cut.
            stats: Statistics of rows are always computed, and statistics of frames if episodes have
                changed. "rows" computes no statistics of frames. Default None.
            to: The format. Default None: the format of the source.

        Returns:
            An EditReport.

        Raises:
            Misuse: An episode or key is unknown, or dst is not empty.
            NotFound: A source does not exist.
            Malformed: A source violates its format.
            Unsupported: The format or codec cannot be written.
        """
        return self._send_request(dst, in_place=in_place, cut=cut, stats=stats, to=to)

    def _send_request(self, dst: Any, **options: Any) -> EditReport:
        """Sends the changes to the engine and returns the report."""
        requests = [source_request(s) for s in self._sources]
        open_options = [how for _, how in requests]
        request: dict[str, Any] = {
            "sources": [uri for uri, _ in requests],
            "verbs": self._verbs,
            **{k: v for k, v in options.items() if is_given(v)},
        }
        if any(how != open_options[0] for how in open_options):
            raise Misuse(
                "the datasets were opened by different options",
                hint="open them alike, or give their paths",
            )
        if open_options and open_options[0]:
            request["open"] = open_options[0]
        if dst is not None:
            request["dst"] = _checks.path_text(dst)
        _, report = _engine.current_engine().call("robocache_edit", 0, request, settle=True)
        return EditReport(report)

    def __repr__(self) -> str:
        sources = ", ".join(source_request(s)[0] for s in self._sources)
        changes = ", ".join(v["verb"] for v in self._verbs) or "nothing yet"
        return f"<robocache.edit.Edit of {sources}: {changes}>"


def merge(
    sources: Iterable[Any], *, keys: str = "strict", hz: Any = None, black: bool = False
) -> Edit:
    """Joins datasets, one after the other.

    Tasks are joined by their texts, and joints by their names.

    Args:
        sources: Paths, URIs or Datasets.
        keys: "strict" (default): all have the same features. "intersection": the common features.
            "union": all features; rows of a dataset that lacks a feature are zeros, and
            "<key>.valid" marks them.
        hz: The common rate in Hz. Default None: all must have the same rate.
        black: With keys="union", whether to write black frames for missing cameras. Default False.

    Returns:
        An Edit, which may be changed further. Its write() writes the merged dataset.

    Example:
        robocache.merge(["a", "b"], keys="intersection").write("both")
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
    """Restores a dataset to its state before the last edit in place.

    Args:
        dataset: A path or a Dataset.

    Returns:
        Text that describes what was done.

    Raises:
        Malformed: A file of the dataset was changed after the edit.
        NotFound: There was no edit in place.
    """
    return str(run_verb("edit undo", [_checks.path_text(dataset)], {}, False)["done"])


def recover(dataset: Any) -> str:
    """Completes or reverts an interrupted edit in place.

    Args:
        dataset: A path or a Dataset.

    Returns:
        Text that describes the resulting state.
    """
    return str(run_verb("edit recover", [_checks.path_text(dataset)], {}, False)["done"])


def _one_call(name: str) -> Any:
    """Returns the module's function for a method of Edit: makes the change and writes the result.

    Its signature is that of the method, with source and dst first and in_place last.
    """
    method = getattr(Edit, name)

    def verb(
        source: Any, dst: Any = None, *args: Any, in_place: bool = False, **given: Any
    ) -> EditReport:
        return method(Edit([source]), *args, **given).write(dst, in_place=in_place)

    kinds = _inspect.Parameter
    own = list(_inspect.signature(method).parameters.values())[1:]
    verb.__name__ = verb.__qualname__ = name
    verb.__doc__ = (method.__doc__ or "").rstrip() + (
        "\n\n        This function makes the change in one call. source is a path, URI or Dataset."
        "\n        dst is the new folder, or None with in_place=True. Returns the EditReport of"
        "\n        Edit.write.\n        "
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


for _name in __all__[3:-2]:
    globals()[_name] = _one_call(_name)
