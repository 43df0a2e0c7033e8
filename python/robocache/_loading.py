"""What a Loader is asked for, checked: ranks, order, caches, normalisation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _options
from ._errors import Misuse

NORMS = ("mean_std", "min_max", "quantiles", "quantile10")


def normalize(v: Any, features: Iterable[str]) -> Any:
    """normalize= as the engine wants it; None for none."""
    if v is None or v is False:
        return None
    if isinstance(v, str):
        return _options.choice("normalize", v, NORMS)
    if not isinstance(v, Mapping):
        raise Misuse(f"normalize={v!r}: expected one of {', '.join(map(repr, NORMS))}, or a dict by key")
    out: dict[str, Any] = {}
    for k, one in v.items():
        _options.key(k, features, "key of normalize")
        if isinstance(one, str):
            out[k] = _options.choice(f"normalize[{k!r}]", one, NORMS)
            continue
        known = ("mode", "clip", "mean", "std", "low", "high")
        if not isinstance(one, Mapping):
            raise Misuse(f"normalize[{k!r}]={one!r}: expected a mode, or a dict of {', '.join(known)}")
        for name in one:
            if name not in known:
                raise Misuse(f"unknown entry {name!r} in normalize[{k!r}]", hint=_options.nearest(name, known))
        try:
            out[k] = {n: (np.asarray(x, np.float64).ravel().tolist() if n not in ("mode", "clip") else x) for n, x in one.items()}
        except (TypeError, ValueError):
            raise Misuse(f"normalize[{k!r}]: expected numbers, found {dict(one)!r}") from None
    return out


def augment(v: Any) -> Any:
    """augment= as the engine wants it, which checks it: numbers of NumPy and tuples become plain ones."""
    if isinstance(v, Mapping):
        return {str(k): augment(x) for k, x in v.items() if x is not None}
    if isinstance(v, (list, tuple, set, np.ndarray)):
        return [augment(x) for x in v]
    if isinstance(v, (str, bool)):
        return v
    if _options.is_integer(v):
        return int(v)
    try:
        f = float(v)
    except (TypeError, ValueError):
        f = float("nan")
    if not np.isfinite(f):
        raise Misuse(f"augment: {v!r}: expected a finite number, a list or a dict")
    return f


def place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """rank and world: arguments, else torch.distributed, else RANK and WORLD_SIZE, else one process."""
    found: tuple[int, int] | None = None
    env = [os.environ.get(n) for n in ("RANK", "WORLD_SIZE")]
    if all(env):
        try:
            found = int(env[0] or 0), int(env[1] or 1)
        except ValueError:
            raise Misuse(f"RANK={env[0]!r} and WORLD_SIZE={env[1]!r}: expected integers") from None
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        group = dist.get_rank(), dist.get_world_size()
        if found is not None and found != group and rank is None and world_size is None:
            raise Misuse(f"torch.distributed says rank {group[0]} of {group[1]}, the environment {found[0]} of {found[1]}", hint="give rank= and world_size=")
        found = group
    if rank is None and world_size is None:
        r, w = found or (0, 1)
    elif rank is None:
        w = integer("world_size", world_size)
        if found is not None and found[1] == w:
            r = found[0]
        elif w == 1:
            r = 0
        else:
            raise Misuse(f"world_size={w} without rank=", hint="give both")
    elif world_size is None:
        r = integer("rank", rank)
        if found is not None:
            w = found[1]
        elif r == 0:
            w = 1
        else:
            raise Misuse(f"rank={r} without world_size=", hint="give both")
    else:
        r, w = integer("rank", rank), integer("world_size", world_size)
    if not 0 <= r < w:
        raise Misuse(f"rank {r} of a world of {w}: expected 0 to world_size - 1")
    return r, w


def integer(name: str, v: Any) -> int:
    """An integer that the engine's int64 holds."""
    if not _options.is_integer(v) or not -(2**63) <= int(v) < 2**63:
        raise Misuse(f"{name}={v!r}: expected an integer")
    return int(v)


def flag(name: str, v: Any) -> bool:
    """True or False: bool("no") would be True."""
    if isinstance(v, (bool, np.bool_)) or (_options.is_integer(v) and int(v) in (0, 1)):
        return bool(v)
    raise Misuse(f"{name}={v!r}: expected True or False")


def whole(name: str, v: Any, least: int = 1) -> int:
    """An integer of at least so much."""
    if not _options.is_integer(v) or int(v) < least:
        raise Misuse(f"{name}={v!r}: expected an integer of at least {least}")
    return int(v)


def number(name: str, v: Any) -> float:
    """A finite number of at least 0."""
    try:
        f = float(v)
    except (TypeError, ValueError):
        raise Misuse(f"{name}={v!r}: expected a number") from None
    if not 0 <= f < float("inf"):
        raise Misuse(f"{name}={v!r}: expected a number of at least 0")
    return f


def order(shuffle: Any, pool_size: Any, pool_episodes: Any, pool_shards: Any, uneven: Any) -> dict[str, Any]:
    """The options of the order, as the engine wants them."""
    if isinstance(shuffle, (bool, np.bool_)):
        shuffle = "global" if shuffle else False
    elif not isinstance(shuffle, str):
        raise Misuse(f"shuffle={shuffle!r}: expected 'global', 'pool' or False")
    c: dict[str, Any] = {"shuffle": _options.choice("shuffle", shuffle, ("global", "pool", False))}
    for name, v in (("pool_size", pool_size), ("pool_episodes", pool_episodes), ("pool_shards", pool_shards)):
        if v is None:
            continue
        if shuffle != "pool":
            raise Misuse(f"{name} is for shuffle='pool'", hint="add shuffle='pool'")
        c[name] = _options.bytes_of(name, v) if name == "pool_size" else whole(name, v)
    if uneven is not None:
        c["uneven"] = _options.choice("uneven", uneven, ("wrap", "short"))
    return c


def caching(cache: Any, budget: Any, format: Any) -> dict[str, Any]:
    """The options of the cache, as the engine wants them."""
    if cache is None or cache is False:
        for name, v in (("cache_budget", budget), ("cache_format", format)):
            if v is not None:
                raise Misuse(f"{name} without cache", hint="add cache='ram' or cache=directory")
        return {}
    if not isinstance(cache, (str, bytes, os.PathLike)):
        raise Misuse(f"cache={cache!r}: expected 'ram' or a directory")
    if isinstance(cache, str) and cache != "ram" and cache.lower() == "ram":
        raise Misuse(f"cache={cache!r}: expected 'ram' or a directory", hint=f"did you mean 'ram'? A directory of that name is './{cache}'")
    if "://" in (where := _options.uri(cache)):
        raise Misuse(f"cache={where!r}: expected 'ram' or a directory", hint="a cache lies on a disk of this machine")
    c: dict[str, Any] = {"cache": "ram" if where == "ram" and isinstance(cache, str) else os.path.abspath(where)}
    if budget is not None:
        c["cache_budget"] = _options.bytes_of("cache_budget", budget)
    if format is not None:
        c["cache_format"] = _options.choice("cache_format", format, ("auto", "yuv", "rgb", "encoded"))
    return c
