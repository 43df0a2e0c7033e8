"""Searches datasets by expressions over signals, with the engine's package query."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from ._verbs import Result, _plain_json
from .dataset import as_dataset

__all__ = ["find", "Found", "FoundRange"]


class FoundRange(Result):
    """A range of rows of an episode. The keys of the dict are the attributes and "from".

    Attributes:
        episode: The index of the episode.
        to: The row after the last row. r["from"] is the first row.
        from_s: The timestamp of the first row in seconds after that of row 0.
        to_s: The timestamp of the last row in the same seconds.
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


def find(
    source: Any,
    expression: str = "",
    *,
    episodes: Any = None,
    limit: int | None = None,
    csv: Any = None,
    flags: Any = None,
    label: str | None = None,
    index: bool = False,
    index_budget: int | str | None = None,
    like: tuple[int, int] | None = None,
    text: str | None = None,
    text_model: str | None = None,
    vector: Any = None,
    threads: int | None = None,
    **how: Any,
) -> Found:
    """Finds episodes, and rows of episodes, for which an expression is true.

    docs/find.md describes the language. Other readers of the dataset may run at the same time.

    Args:
        source: A path, a URI or a Dataset.
        expression: The expression, such as "falling(gripper) while z > 0.2 for 0.5s". It may be
            empty with index=True.
        episodes: The indices of the episodes to search. Default None: all.
        limit: The largest number of ranges. Default None: all.
        csv: A file to write, with the columns episode, from, to, from_s and to_s.
        flags: A file of flagged episodes, as `robocache view` and edit read it. The ranges replace
            its flags with the label.
        label: The label of the flags. Default "found".
        index: Whether to build the index of columns if there is no current one. Later searches use
            it until the dataset changes.
        index_budget: The largest size of the index in bytes, or text such as "4GiB". Default
            16 GiB.
        like: (episode, row) of a frame, in place of an expression. Finds the frames that are most
            similar to it, each with a score. embed must have stored vectors. limit is 20 by
            default.
        text: A text in place of a frame.
        text_model: "module:function" that embeds the text: from a list of str to vectors (N, D).
        vector: The vector itself, an array of numbers.
        threads: Episodes that are read at once. Default None: the number of CPUs.
        how: Arguments of robocache.open, if source is a path or a URI.

    Returns:
        A Found, a list of FoundRange with .episodes and .segments.

    Raises:
        Misuse: The expression is wrong. The message names the character.
        NotFound: The dataset does not exist.

    Example:
        found = robocache.find("data/pusht", "max(norm(action)) > 3 and length > 50")
        loader = robocache.Loader("data/pusht", episodes=found.episodes)
    """
    options = {
        "episodes": episodes,
        "limit": limit,
        "csv": None if csv is None else os.fspath(csv),
        "flags": None if flags is None else os.fspath(flags),
        "label": label,
        "index": index,
        "index_budget": index_budget,
        "like": None if like is None else f"{int(like[0])}:{int(like[1])}",
        "text": text,
        "text_model": text_model,
        "vector": None if vector is None else np.asarray(vector, np.float32).ravel().tolist(),
        "python": None if text is None else sys.executable,
        "threads": threads,
    }
    given = {k: v for k, v in options.items() if v is not None}
    return Found(
        as_dataset(source, how)._handle.call(
            "robocache_find",
            {
                "expression": expression,
                "options": json.loads(json.dumps(given, default=_plain_json)),
            },
        )
    )
