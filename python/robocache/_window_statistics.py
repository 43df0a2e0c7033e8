"""Statistics of vectors over windows of rows, and pooled statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks, _statistics
from ._errors import Misuse
from .dataset import as_dataset
from .vectors import vectors_config

__all__ = ["pool_statistics", "window_statistics"]


def window_statistics(
    source: Any,
    vectors: Mapping[str, Any],
    *,
    episodes: Iterable[int] | None = None,
    per_step: bool = False,
    drop: bool = False,
    drop_n_first_frames: int = 0,
    drop_n_last_frames: int = 0,
    exact: bool = True,
    bins: int = 5000,
    batch_size: int = 32,
    drop_last: bool = True,
    single_sums: bool = False,
) -> dict[str, dict[str, np.ndarray]]:
    """Computes statistics of vectors over windows, after actions became relative.

    There is one window for each row of the episodes. No images are read.

    Args:
        source: A path or URI, or an open Dataset.
        vectors: {name: robocache.Vector}. Their norm, padding and dropout are ignored. Rows outside
            the episode count as the part's beyond= states: "repeat" counts the nearest row again,
            the other rules do not count them.
        episodes: Indices of episodes. Default None: all.
        per_step: Whether to count each row of the window separately, as GR00T does for relative
            actions. Default False.
        drop: Whether to leave out windows with rows outside the episode. Default False.
        drop_n_first_frames: The number of rows at the start of each episode without a window.
            Default 0.
        drop_n_last_frames: The same at the end. Default 0.
        exact: Whether quantiles are exact. False: read from running histograms as in openpi.
            Default True.
        bins: The number of bins of a running histogram. Default 5000.
        batch_size: The number of windows after which a running histogram may move its edges.
            Default 32.
        drop_last: Whether running histograms leave out the last windows if they are fewer than
            batch_size. Default True, as in openpi.
        single_sums: Whether to compute mean and std with sums in float32, and quantiles from
            differences in float32, as GR00T does with NumPy. Default False.

    Returns:
        {name: {statistic: array}}: min, max, mean, std and q01 to q99 as float64 of shape (D,), or
        (T, D) with per_step. count (int64, shape (1,)) is the number of rows.

    Raises:
        Misuse: A stream, a column, an episode or an option is unknown or out of range.
        Unsupported: A stream is no plain numbers, or has a clock of its own.

    Example:
        arm = robocache.Part("action", 0, 7, relative="difference",
                             reference=("observation.state", 0))
        robocache.window_statistics("data/so100", {"actions": robocache.Vector(
            parts=[arm], rows=range(50))})["actions"]["q99"]
    """
    if not isinstance(vectors, Mapping) or not vectors:
        raise Misuse(f"vectors={vectors!r}: expected a dict of robocache.Vector by name")
    windows: dict[str, Any] = {
        "vectors": vectors_config("vectors", vectors),
        "per_step": _checks.check_flag("per_step", per_step),
        "drop": _checks.check_flag("drop", drop),
        "single_sums": _checks.check_flag("single_sums", single_sums),
        "drop_n_first_frames": _checks.check_whole("drop_n_first_frames", drop_n_first_frames, 0),
        "drop_n_last_frames": _checks.check_whole("drop_n_last_frames", drop_n_last_frames, 0),
    }
    if not _checks.check_flag("exact", exact):
        windows["histogram"] = _checks.check_whole("bins", bins)
        windows["batch_size"] = _checks.check_whole("batch_size", batch_size)
        windows["drop_last"] = _checks.check_flag("drop_last", drop_last)
    how: dict[str, Any] = {"count": True, "windows": windows}
    if episodes is not None:
        how["episodes"] = [_checks.check_whole("episodes", i, 0) for i in episodes]
    answer = as_dataset(source, {})._handle.call("robocache_stats", how)
    return _statistics.parse_statistics(answer)


def pool_statistics(
    statistics: Sequence[Mapping[str, Mapping[str, Any]]], weights: Sequence[float] | None = None
) -> dict[str, dict[str, np.ndarray]]:
    """Pools the statistics of several datasets, as GR00T does for an embodiment.

    The mean and the variance are those of a mixture with the weights. Minima and lower quantiles
    (up to q50) are the smallest, maxima and upper quantiles the largest.

    Args:
        statistics: Results of robocache.stats or window_statistics, with equal keys and shapes.
        weights: The share of each dataset, 0 or more. Default None: equal shares.

    Returns:
        {key: {statistic: array}}. count is the sum.

    Raises:
        Misuse: Keys, shapes or the number of weights differ, or the weights are not positive.

    Example:
        robocache.pool_statistics([robocache.stats(p, frames="none") for p in paths], [0.7, 0.3])
    """
    w = np.ones(len(statistics)) if weights is None else np.asarray(weights, np.float64)
    if len(statistics) == 0 or w.shape != (len(statistics),):
        raise Misuse(f"weights={weights!r}: expected one per dataset, of {len(statistics)}")
    if not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise Misuse(f"weights={weights!r}: expected numbers of 0 or more, and one above 0")
    w /= w.sum()
    out: dict[str, dict[str, np.ndarray]] = {}
    for key, first in statistics[0].items():
        try:
            one = {n: np.stack([np.asarray(s[key][n]) for s in statistics]) for n in first}
        except (KeyError, ValueError) as e:
            raise Misuse(f"the statistics of {key!r} differ in names or shapes: {e}") from None
        out[key] = {n: _pool_one(n, v, w, one.get("mean")) for n, v in one.items()}
    return out


def _pool_one(name: str, v: np.ndarray, weights: np.ndarray, means: np.ndarray | None) -> Any:
    """Returns one statistic of all datasets together.

    Args:
        name: The name of the statistic.
        v: The statistic of each dataset.
        weights: The share of each dataset; the sum is 1.
        means: The mean of each dataset, for "std"; None if there is none.
    """
    if name == "count":
        return v.sum(0)
    if name == "mean":
        return np.tensordot(weights, v, 1)
    if name == "std" and means is not None:
        mean = np.tensordot(weights, means, 1)
        return np.sqrt(np.tensordot(weights, v**2 + (means - mean) ** 2, 1))
    return v.min(0) if name == "min" or name in ("q01", "q10", "q50") else v.max(0)
