"""The search in an open dataset, and its result. find and Dataset.find share it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _checks, _engine
from ._errors import Misuse
from ._results import Result
from ._verbs import _plain_json

__all__ = ["Found", "FoundRange", "search"]


class FoundRange(Result):
    """A range of rows of an episode. The keys of the dict are the attributes and "from".

    Attributes:
        episode: The index of the episode.
        to: The row after the last row. r["from"] is the first row.
        from_s: The timestamp of the first row in seconds after that of row 0.
        to_s: The timestamp of the row after the last in the same seconds, as `to` names it.
        episode_length: The number of rows of the episode.
        score: The similarity of a frame, at most 1. None if frames were not compared.
    """

    episode: int
    to: int
    from_s: float
    to_s: float
    episode_length: int
    score: float | None


class Found(list[FoundRange]):
    """The ranges that find returns, a list in the order of the episodes.

    Attributes:
        whole_episodes: Whether the expression is about whole episodes, not about rows.
        num_rows: The number of rows in all ranges.
        index: A dict about the index that was used: file, bytes, keys, built, left_out. None if no
            index was used.
    """

    whole_episodes: bool
    num_rows: int
    index: dict[str, Any] | None

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(FoundRange(r) for r in answer["ranges"])
        self._episodes = list(answer["episodes"])
        self.whole_episodes = answer["whole_episodes"]
        self.num_rows = answer["num_rows"]
        self.index = answer.get("index")

    @property
    def episodes(self) -> list[int]:
        """The indices of the episodes, for Loader(episodes=...)."""
        return list(self._episodes)

    @property
    def segments(self) -> dict[int, list[tuple[int, int]]]:
        """The ranges as {episode: [(from, to), ...]}, for Order(segments=...).

        Overlapping ranges are joined. An episode without rows is left out.
        """
        out: dict[int, list[tuple[int, int]]] = {}
        for r in sorted(self, key=lambda r: (r.episode, r["from"])):
            if r["from"] == r.to:
                continue
            ranges = out.setdefault(r.episode, [])
            if ranges and r["from"] < ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], r.to))
            else:
                ranges.append((r["from"], r.to))
        return out


# The options of a search: the keywords of robocache.find that do not select the dataset.
_OPTIONS = (
    "episodes limit csv flags label index index_budget like text text_model vector threads"
).split()


def search(handle: _engine.Handle, expression: str, options: Mapping[str, Any]) -> Found:
    """Searches an open dataset. robocache.find describes the expression and the options.

    Args:
        handle: The dataset in the engine.
        expression: The expression; it may be empty.
        options: The options by name. None: the engine's default.

    Raises:
        Misuse: An option is unknown, or the expression is wrong.
    """
    for name in options:
        if name not in _OPTIONS:
            raise Misuse(
                f"find has no option {name!r}",
                {"option": name},
                _checks.nearest_names(name, _OPTIONS),
            )
    given = {k: v for k, v in options.items() if v is not None}
    for name in ("csv", "flags"):
        if name in given:
            given[name] = os.fspath(given[name])
    if "like" in given:
        episode, row = given["like"]
        given["like"] = f"{int(episode)}:{int(row)}"
    if "text" in given:
        given["python"] = sys.executable  # The engine runs text_model in this Python.
    if "vector" in given:
        given["vector"] = np.asarray(given["vector"], np.float32).ravel().tolist()
    plain = json.loads(json.dumps(given, default=_plain_json))
    return Found(handle.call("robocache_find", {"expression": expression, "options": plain}))
