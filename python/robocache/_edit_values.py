"""The arguments of edits in the engine's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _checks
from ._errors import Misuse

__all__ = [
    "source_request",
    "is_given",
    "drop_none",
    "episode_text",
    "moment_text",
    "annotation_range",
]


# The options of opening that an edit passes on.
_OPENED_WITH = (
    "format",
    "rows_hz",
    "split",
    "episodes",
    "options",
    "follow_links",
    "recording_index",
)


def source_request(s: Any) -> tuple[str, dict[str, Any]]:
    """Returns the URI of a dataset and the options with which it was opened."""
    args = getattr(s, "_args", None)
    if args is None:
        return _checks.path_text(s), {}
    how = {k: v for k, v in args.items() if k in _OPENED_WITH and v}
    if isinstance(args.get("map"), Mapping):
        how["map"] = args["map"]
    elif args.get("map"):
        raise Misuse(
            "a dataset that was opened with a file of a mapping is not edited",
            hint="give map= a dict, or use `robocache edit --map`",
        )
    return args["uri"], how


def is_given(v: Any) -> bool:
    """Reports whether an argument is neither None nor False, which mean the default."""
    return v is not None and v is not False


def drop_none(**given: Any) -> dict[str, Any]:
    """Returns the arguments that are not None."""
    return {k: v for k, v in given.items() if v is not None}


def episode_text(v: Any) -> str:
    """Returns episode indices as text, such as "0,3,5". Text stays unchanged."""
    if not isinstance(v, str):
        listed = list(v) if isinstance(v, (range, set, frozenset)) else v
        indices = np.atleast_1d(np.asarray(listed)).tolist()
        v = ",".join(str(_checks.check_whole("episodes", x, 0)) for x in indices)
    if not v:
        raise Misuse("episodes: none are named", hint="leave it out for all episodes")
    return v


def moment_text(name: str, v: Any) -> str | None:
    """Returns a time of trim as text: seconds, or rows such as "12r".

    Raises Misuse for an integer, whose unit is ambiguous.
    """
    if v is None or isinstance(v, str):
        return v
    if _checks.is_integer(v):
        raise Misuse(
            f"{name}={v}: seconds are floats",
            hint=f'{name}={float(v)} is seconds, {name}="{v}r" is rows',
        )
    return repr(_checks.check_real(name, v))


_ROW_RANGE = ("from", "to", "text")


def annotation_range(given: Any, episode: int | None = None) -> dict[str, Any]:
    """Returns a range of annotate as a dict. A tuple is (from, to, text).

    A number of pandas may be a float, and NaN is no value. Members that only the ranges of find
    have are left out.
    """
    named = given if isinstance(given, Mapping) else zip(_ROW_RANGE, given, strict=False)
    r: dict[str, Any] = {} if episode is None else {"episode": episode}
    for k, v in dict(named).items():
        if v is None or v != v or k in ("episode_length", "score"):
            continue
        r[k] = v.item() if isinstance(v, np.generic) else v
        if k in ("episode", "from", "to") and isinstance(r[k], float) and r[k].is_integer():
            r[k] = int(r[k])
    if "episode" not in r:
        raise Misuse(
            "annotate: a range names no episode",
            hint='such as {"episode": 0, "from": 0, "to": 20, "text": "reach"}',
        )
    return r
