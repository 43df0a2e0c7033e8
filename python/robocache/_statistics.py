"""Converts statistics between the engine, stats.json files and the options of a Loader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks
from ._errors import Malformed, Misuse, NotFound


def parse_statistics(answer: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Returns the engine's statistics as float64 arrays in the shape of the stored feature.

    count is int64 of shape (1,).
    """
    out: dict[str, dict[str, np.ndarray]] = {}
    for k, s in answer.items():
        shape = tuple(s.get("shape") or (-1,))

        def shaped(v: Sequence[Any], shape: tuple[int, ...] = shape) -> np.ndarray:
            """Returns numbers in the shape of the feature, if it fits. None becomes NaN."""
            a = np.array([np.nan if x is None else x for x in v], np.float64)
            size = int(np.prod(shape))
            is_unknown_shape = size == -1
            fits = size == a.size
            return a.reshape(shape) if is_unknown_shape or fits else a

        one = {n: shaped(s[n]) for n in ("min", "max", "mean", "std") if n in s}
        one["count"] = np.array([s["count"]], np.int64)
        one.update({q: shaped(v) for q, v in sorted((s.get("quantiles") or {}).items())})
        out[k] = one
    return out


def statistics_config(options: Mapping[str, Any], features: Iterable[str]) -> dict[str, Any]:
    """Returns the statistics options as the engine's configuration: compute_stats or stats."""
    compute, values = options.get("compute_stats"), options.get("stats")
    out: dict[str, Any] = {}
    if compute is not None:
        out["compute_stats"] = _checks.check_flag("Statistics.compute", compute)
        if out["compute_stats"] and values is not None:
            raise Misuse("Statistics.compute and Statistics.values: expected one of them")
    return out if values is None else {**out, "stats": check_statistics(values, features)}


def refuse_unused(config: Mapping[str, Any], sources: Sequence[Mapping[str, Any]] = ()) -> None:
    """Raises Misuse if statistics are given or computed but nothing is normalized.

    Args:
        config: The configuration of the loader or dataset.
        sources: The configurations of a mixture's sources, which add to config.
    """
    with_statistics = [c for c in (config, *sources) if c.get("compute_stats") or "stats" in c]
    for one in with_statistics:
        # The statistics of a source are for this source. Those of config are for all sources.
        users = [config, *sources] if one is config else [config, one]
        if not any(c.get("normalize") for c in users):
            field = "compute" if one.get("compute_stats") else "values"
            raise Misuse(
                f"Statistics.{field} without normalize=: nothing takes the statistics",
                hint='add normalize="mean_std", or leave statistics= out',
            )


def check_statistics(v: Any, features: Iterable[str]) -> dict[str, Any]:
    """Returns statistics as the engine's configuration.

    Args:
        v: Statistics in the shape of Dataset.stats, or the path of a stats.json.
        features: The known keys.
    """
    if isinstance(v, (str, os.PathLike)):
        v = _read_file(v, features)
    if not isinstance(v, Mapping):
        raise Misuse(
            f"Statistics.values={type(v).__name__}: expected a dict, as Dataset.stats, "
            "or the path of a stats.json"
        )
    out: dict[str, Any] = {}
    for key, one in v.items():
        _checks.check_key(key, features, "key of Statistics.values")
        if not isinstance(one, Mapping):
            raise Misuse(
                f"Statistics.values[{key!r}]: expected a dict with mean, std, min, max or quantiles"
            )
        statistics: dict[str, Any] = {"count": int(np.asarray(one.get("count", 0)).ravel()[0])}
        for name, x in one.items():
            if name == "count":
                continue
            if name not in ("mean", "std", "min", "max") and not (
                name.startswith("q") and name[1:].isdigit()
            ):
                raise Misuse(
                    f"unknown statistic {name!r} in Statistics.values[{key!r}]",
                    hint=_checks.nearest_names(
                        name, ["mean", "std", "min", "max", "q01", "q10", "q90", "q99"]
                    ),
                )
            a = np.asarray(x, np.float64)
            if np.isinf(a).any():
                raise Misuse(f"Statistics.values[{key!r}][{name!r}] is infinite")
            numbers = [None if np.isnan(f) else f for f in a.ravel().tolist()]
            if name.startswith("q"):
                statistics.setdefault("quantiles", {})[name] = numbers
            else:
                statistics[name] = numbers
        out[key] = statistics
    return out


def _read_file(path: Any, features: Iterable[str]) -> dict[str, Any]:
    """Returns the known features of a stats.json, as 'robocache stats' and LeRobot write it."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as f:
            v = json.load(f)
    except FileNotFoundError:
        raise NotFound(
            f"Statistics.values={str(path)!r}: no such file",
            hint=f"robocache.stats(URI, out={str(path)!r}) writes one; "
            "robocache.Statistics(compute=True) computes them",
        ) from None
    except (ValueError, OSError) as e:
        raise Malformed(f"Statistics.values={str(path)!r}: {e}") from None
    if not isinstance(v, dict):
        raise Malformed(f"Statistics.values={str(path)!r}: expected an object by feature")
    known = set(features)
    return {k: one for k, one in v.items() if k in known}
