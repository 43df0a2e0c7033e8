"""openpi's idle filter of DROID, as segments of robocache.Order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._errors import Malformed, NotFound
from .dataset import as_dataset

# The streams of DROID's RLDS that name an episode, the file last.
_DROID_KEYS = ("episode_metadata.recording_folderpath", "episode_metadata.file_path")


def _read_ranges(path: Any) -> dict[str, list[tuple[int, int]]]:
    """Returns openpi's idle filter: {name of an episode: [(start, end), ...]}."""
    try:
        given = json.loads(Path(path).read_text())
        return {str(k): [(int(start), int(end)) for start, end in v] for k, v in given.items()}
    except FileNotFoundError:
        raise NotFound(f"there is no idle filter {path}") from None
    except (ValueError, TypeError, AttributeError) as e:
        raise Malformed(f"{path} is not an idle filter of openpi: {e!r}") from None


def droid_segments(
    source: Any,
    filter_path: Any = None,
    *,
    keys: Sequence[str] = _DROID_KEYS,
) -> dict[int, list[tuple[int, int]]]:
    """Returns the rows of DROID that are samples, as openpi's idle filter names them.

    Recordings outside a folder of successes have no samples.

    Args:
        source: A path or URI of DROID's RLDS, or an open Dataset. Each episode is read once.
        filter_path: JSON: {"<recording_folderpath>--<file_path>": [[start, end], ...]}. Default
            None: all rows.
        keys: The streams whose values, joined by "--", are the names of the episodes.

    Returns:
        {episode: [(start, end), ...]} for robocache.Order(segments=…).

    Raises:
        NotFound: There is no such file.
        Malformed: The file has another form.

    Example:
        segments = robocache.openpi.droid_segments(path, "droid_sample_ranges_v1_0_1.json")
        robocache.openpi.DataLoader(config, order=robocache.Order(segments=segments))
    """
    ranges = None if filter_path is None else _read_ranges(filter_path)
    out: dict[int, list[tuple[int, int]]] = {}
    dataset = as_dataset(source, {})
    for index, episode in zip(dataset.episode_indices, dataset, strict=True):
        names = [str(episode.streams[k].values[0]) for k in keys]
        given = [(0, len(episode))] if ranges is None else ranges.get("--".join(names), ())
        rows = [(s, min(e, len(episode))) for s, e in given]
        if "success" in names[-1] and (kept := [(s, e) for s, e in rows if s < e]):
            out[index] = kept
    return out
