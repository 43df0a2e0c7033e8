"""find searches datasets by expressions over signals, or by similar frames."""

from __future__ import annotations

from typing import Any

from ._search import Found, search
from .dataset import as_dataset

__all__ = ["find"]


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
        "csv": csv,
        "flags": flags,
        "label": label,
        "index": index,
        "index_budget": index_budget,
        "like": like,
        "text": text,
        "text_model": text_model,
        "vector": vector,
        "threads": threads,
    }
    return search(as_dataset(source, how)._handle, expression, options)
