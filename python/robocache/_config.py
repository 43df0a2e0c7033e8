"""Tables of the options of datasets, samples, loaders and mixtures, with one check per option.

The results of the checks are the engine's configuration.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, get_args

import numpy as np

from . import _checks, _statistics
from ._errors import Misuse
from ._checks import (
    parse_bytes,
    duration_text,
    check_flag,
    check_frame_size,
    check_integer,
    is_integer,
    moment_text,
    nearest_names,
    check_nonnegative,
    check_rate,
    check_real,
    check_seconds,
    check_whole,
)
from ._tensors.rules import EDGES, MODES
from .normalizer import Normalizer, NormVectors, repeat_normalizer
from .options import Beyond, Filter
from .vectors import vectors_config
from ._option_values import OptionValues, refuse_size_as_path

Check = Callable[..., Any]

NORMS = ("mean_std", "min_max", "quantiles", "quantile10")
UNITS = ("mm", "m")


def check_options(
    table: Mapping[str, Check],
    given: Mapping[str, Any],
    features: Iterable[str] | None = None,
    others: Mapping[str, Iterable[str]] | None = None,
) -> dict[str, Any]:
    """Returns the checked options of a table, without those that are None.

    Args:
        table: The checks by option name.
        given: The values by option name.
        features: The stream keys that the values may name.
        others: The keys in place of features, by option name.
    """
    out: dict[str, Any] = {}
    labels = getattr(given, "labels", {})  # How messages name options of groups.
    for name, check in table.items():
        if (value := given.get(name)) is None:
            continue
        label = labels.get(name, name)
        takes_keys = getattr(check, "keyed", False)
        keys = (others or {}).get(name, features)
        checked = check(label, value, keys) if takes_keys else check(label, value)
        if checked is not None:
            out[name] = checked
    return out


def _takes_keys(check: Check) -> Check:
    """Marks a check that check_options also passes the known stream keys."""
    check.keyed = True  # type: ignore[attr-defined]
    return check


def one_of(*allowed: Any) -> Check:
    """Returns a check that accepts one of the allowed values."""
    return lambda name, v: _checks.check_choice(name, v, allowed)


def by_key(check: Check, noun: str = "key of {}", or_all: bool = False) -> Check:
    """Returns a check for a dict by stream key.

    Args:
        check: The check for each value.
        noun: The noun for a key in messages. It may contain {}, which becomes the name of the
            option. Default "key of {}".
        or_all: Whether the option also accepts one value for all keys. Default False.
    """

    def check_by_key(name: str, value: Any, known_keys: Iterable[str]) -> Any:
        """Returns the dict with checked keys and values, or the checked value for all keys."""
        if isinstance(value, Mapping):
            return {
                _checks.check_key(k, known_keys, noun.format(name)): check(f"{name}[{k!r}]", x)
                for k, x in value.items()
            }
        if or_all:
            return check(name, value)
        kind_of_key = "stream key" if noun == "stream" else "key"
        raise Misuse(f"{name}={value!r}: expected a dict by {kind_of_key}")

    return _takes_keys(check_by_key)


def as_text(_: str, v: Any) -> str:
    """Returns v as text."""
    return str(v)


def list_of(check: Check, want: str, hint: str = "") -> Check:
    """Returns a check for a list whose entries pass another check.

    If want is not empty, the list must have an entry; want describes the list in messages.
    """

    def check_list(name: str, v: Any) -> list[Any]:
        """Returns the checked entries. An invalid entry is reported like a list without entries."""
        try:
            out = [check(name, x) for x in v]
        except (TypeError, ValueError):  # Misuse is a ValueError.
            out = []
        if not out and want:
            raise Misuse(f"{name}={v!r}: expected {want}", hint=hint)
        return out

    return check_list


def _check_drift(name: str, v: Any) -> Any:
    """Returns a clock drift: parts per million, or {"ppm", "at"} for (ppm, at)."""
    ppm, at = v, None
    if isinstance(v, Mapping) and "ppm" in v and set(v) <= {"ppm", "at"}:
        ppm = v["ppm"]
        at = v.get("at")
    elif isinstance(v, (tuple, list)) and len(v) == 2:
        ppm, at = v
    try:
        ppm = check_real(name, ppm)
    except Misuse:
        ppm = math.inf
    if abs(ppm) > 1e5:
        raise Misuse(f"{name}={v!r}: expected parts in a million within ±100000, or (ppm, at)")
    return ppm if at is None else {"ppm": ppm, "at": moment_text(f"{name} at", at)}


def _check_rotations(name: str, v: Any) -> list[dict[str, Any]]:
    """Returns a list of {"at", "form"}, from one form or a list of (first channel, form)."""
    out = []
    if isinstance(v, str):
        rotations: Any = [(0, v)]
    else:
        rotations = v if isinstance(v, (list, tuple)) else [v]
    for r in rotations:
        at: Any = None
        form: Any = None
        if isinstance(r, Mapping) and set(r) == {"at", "form"}:
            at, form = r["at"], r["form"]
        elif isinstance(r, (tuple, list)) and len(r) == 2:
            at, form = r
        if not is_integer(at) or not isinstance(form, str):
            raise Misuse(f"{name}={v!r}: expected a form, or a list of (first channel, form)")
        out.append({"at": int(at), "form": form})
    return out


def _check_relative(name: str, v: Any) -> Any:
    """Returns True, False, or a list of channels by number or name."""
    if isinstance(v, (bool, np.bool_)):
        return bool(v)
    channels = list(v) if isinstance(v, (list, tuple, range, np.ndarray)) else []
    if not channels or not all(isinstance(c, str) or is_integer(c) for c in channels):
        raise Misuse(f"{name}={v!r}: expected True, False, or a list of channels by number or name")
    return [c if isinstance(c, str) else int(c) for c in channels]


def _check_latency(name: str, v: Any) -> Any:
    """Returns a latency: a duration, or a distribution of ages."""
    if not isinstance(v, Mapping):
        return duration_text(name, v)
    if set(v) == {"measured"} and v["measured"] is True:
        return {"measured": True}
    ages = v.get("uniform") if set(v) == {"uniform"} else None
    if isinstance(ages, (tuple, list)) and len(ages) == 2:
        return {"uniform": [duration_text(name, x) for x in ages]}
    raise Misuse(
        f'{name}={v!r}: expected seconds, {{"measured": True}} or {{"uniform": [low, high]}}'
    )


@_takes_keys
def _check_targets(name: str, v: Any, features: Iterable[str]) -> list[str]:
    """Returns a list of stream keys."""
    if isinstance(v, str):
        raise Misuse(f"{name}={v!r}: expected a list of keys")
    return [_checks.check_key(k, features, f"key of {name}") for k in v]


# The options of Episode.align. Durations become text in nanoseconds.
ALIGN: dict[str, Check] = {
    "modes": by_key(one_of(*MODES, "sum"), "stream"),
    "edge": by_key(one_of(*EDGES), "stream", or_all=True),
    "max_gap": by_key(duration_text, "stream", or_all=True),
    "offset": by_key(duration_text, "stream"),
    "latency": by_key(_check_latency, "stream"),
    "window": duration_text,
    "drift": by_key(_check_drift, "stream"),
    "clock": by_key(as_text, "stream"),
    "rotations": by_key(_check_rotations, "stream"),
    "relative": by_key(_check_relative, "stream"),
    "causal": check_flag,
    "delay": by_key(duration_text, "stream", or_all=True),
    "max_age": by_key(duration_text, "stream", or_all=True),
    "stale": by_key(one_of("mask", "error"), "stream", or_all=True),
    "targets": _check_targets,
    "arrival_delay": by_key(duration_text, "stream", or_all=True),
}

# The fields of align= of MapDataset, Loader and Mix.
_ALIGN = {
    **ALIGN,
    "extent": as_text,
    "dtypes": by_key(
        lambda name, v: _checks.check_choice(
            name, str(v).removeprefix("torch."), ("float16", "bfloat16", "float32", "float64")
        ),
        "stream",
    ),
}


@_takes_keys
def _check_align(name: str, v: Any, features: Iterable[str]) -> dict[str, Any]:
    """Returns the checked options of robocache.Align."""
    return check_options(_ALIGN, v, features)


@_takes_keys
def _check_keys(name: str, v: Any, features: Iterable[str]) -> list[str]:
    """Returns a list of keys, each of a stream or of a column that RoboCache generates."""
    if isinstance(v, str):
        raise Misuse(f"{name}={v!r}: expected a list of keys")
    return [
        _checks.check_key(
            k, [*features, "task", "episode_id", "index", "episode_index", "frame_index"], "key"
        )
        for k in v
    ]


def _check_indices(name: str, v: Any) -> list[int]:
    """Returns a list of episode indices."""
    try:
        return [operator.index(e) for e in v]
    except TypeError:
        raise Misuse(f"{name}={v!r}: expected episode indices, as a list of integers") from None


def _check_offsets(name: str, v: Any, want: str = "a list of seconds for each key") -> list[Any]:
    """Returns a list of offsets, each a number of seconds or text with a unit.

    Raises Misuse for a number that is probably meant as nanoseconds.
    """
    try:
        out = [] if isinstance(v, (str, bytes, Mapping)) else [check_seconds(name, x) for x in v]
    except (TypeError, ValueError) as e:  # Misuse is a ValueError.
        # Only the error of a number that is meant as nanoseconds has a hint.
        if isinstance(e, Misuse) and e.hint:
            raise
        out = []
    if not out:
        raise Misuse(f"{name}={v!r}: expected {want}, as numbers or text with a unit")
    return out


def _check_window(name: str, w: Any) -> Any:
    """Returns one entry of windows= in the engine's form.

    A tuple is a span, (from, to) or (from, to, count), and becomes {"span", "count"}. This dict is
    accepted too. A list holds offsets.
    """
    want = "(from, to) or (from, to, count) for a span, or a list of offsets, in seconds"
    if (
        isinstance(w, Mapping)
        and set(w) <= {"span", "count"}
        and isinstance(w.get("span"), (tuple, list))
    ):
        w = (*w["span"], *([w["count"]] if w.get("count") is not None else []))
    is_bad_span = isinstance(w, tuple) and (
        len(w) not in (2, 3) or len(w) == 3 and (not is_integer(w[2]) or int(w[2]) < 1)
    )
    if isinstance(w, Mapping) or is_bad_span:
        raise Misuse(f"{name}={w!r}: expected {want}")
    if not isinstance(w, tuple):
        is_empty_list = isinstance(w, list) and not w
        return w if is_empty_list else _check_offsets(name, w, want)
    return {
        "span": _check_offsets(name, w[:2], want),
        **({"count": int(w[2])} if len(w) == 3 else {}),
    }


@_takes_keys
def _check_normalize(name: str, v: Any, features: Iterable[str]) -> Any:
    """Checks normalize=: a mode, a dict by key, or the normalizer of another loader.

    Returns None for False.
    """
    if v is False:
        return None
    if not isinstance(v, (str, Mapping, Normalizer)):
        v = getattr(v, "normalizer", v)  # A Loader or MapDataset.
    if isinstance(v, Normalizer):
        if v.sources:
            raise Misuse(
                f"{name}: the normalizer of a mixture of {len(v.sources)} sources",
                hint=f"name one source: normalizer[{v.sources[0]!r}]",
            )
        if not v.keys:
            raise Misuse(
                f"{name}: the other loader normalises nothing",
                hint='give it normalize="mean_std", and this one its normalizer',
            )
        for key in v.keys:
            _checks.check_key(key, features, "key of the normalizer")
        return repeat_normalizer(v)
    if isinstance(v, str):
        return _checks.check_choice(name, v, NORMS)
    if not isinstance(v, Mapping):
        raise Misuse(
            f"{name}={v!r}: expected one of {', '.join(map(repr, NORMS))}, a dict by key, "
            "or the normalizer of another loader"
        )
    return by_key(_check_key_norm)(name, v, features)


def _check_key_norm(name: str, one: Any) -> Any:
    """Checks the normalization of one key: a mode, or a dict."""
    if isinstance(one, str):
        return _checks.check_choice(name, one, NORMS)
    known = ("mode", "clip", "mean", "std", "low", "high")
    if not isinstance(one, Mapping):
        raise Misuse(f"{name}={one!r}: expected a mode, or a dict of {', '.join(known)}")
    for k in one:
        if k not in known:
            raise Misuse(f"unknown entry {k!r} in {name}", hint=nearest_names(k, known))
    try:
        return {
            n: (np.asarray(x, np.float64).ravel().tolist() if n not in ("mode", "clip") else x)
            for n, x in one.items()
        }
    except (TypeError, ValueError):
        raise Misuse(f"{name}: expected numbers, found {dict(one)!r}") from None


def _plain_augment(name: str, v: Any) -> Any:
    """Converts NumPy numbers and tuples to plain Python values; the engine checks them."""
    if isinstance(v, Mapping):
        return {str(k): _plain_augment(name, x) for k, x in v.items() if x is not None}
    if isinstance(v, (list, tuple, set, np.ndarray)):
        return [_plain_augment(name, x) for x in v]
    if isinstance(v, (str, bool)):
        return v
    return int(v) if is_integer(v) else check_real(name, v, "a finite number, a list or a dict")


def _check_beyond(name: str, v: Any) -> Any:
    """Returns a rule, or {key: rule}.

    The keys are not checked here: they may name vectors, which only the engine knows.
    """
    rule = one_of(*get_args(Beyond))
    if not isinstance(v, Mapping):
        return rule(name, v)
    return {str(k): rule(f"{name}[{k!r}]", x) for k, x in v.items()}


def _check_segments(name: str, v: Any) -> dict[str, list[list[int | None]]]:
    """Returns {episode: [[start, end], ...]}; an end of None is the end of the episode."""
    if not isinstance(v, Mapping):
        raise Misuse(f"{name}={v!r}: expected {{episode: [(start, end), ...]}}")
    segments = {}
    for episode, ranges in v.items():
        where = f"{name}[{episode!r}]"
        checked = []
        for pair in ranges:
            if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise Misuse(f"{where}: expected pairs (start, end), got {pair!r}")
            start, end = pair
            checked.append(
                [check_integer(where, start), None if end is None else check_integer(where, end)]
            )
        segments[str(check_integer(name, episode))] = checked
    return segments


def _check_episode_weights(name: str, v: Any) -> dict[str, float]:
    """Returns {episode: weight}."""
    if not isinstance(v, Mapping):
        raise Misuse(f"{name}={v!r}: expected {{episode: weight}}")
    return {
        str(check_integer(name, episode)): check_nonnegative(f"{name}[{episode!r}]", weight)
        for episode, weight in v.items()
    }


def _check_choose(name: str, v: Any, features: Iterable[str]) -> dict[str, list[str]]:
    """Returns {key: [stream, ...]}."""
    if not isinstance(v, Mapping) or any(isinstance(x, str) for x in v.values()):
        raise Misuse(f"{name}={v!r}: expected {{key: [streams]}}")
    known = [*features, "task"]
    return {
        str(k): [_checks.check_key(s, known, f"stream of {name}[{k!r}]") for s in streams]
        for k, streams in v.items()
    }


def _check_goal(name: str, v: Any, features: Iterable[str]) -> dict[str, str]:
    """Returns {key: stream}."""
    if not isinstance(v, Mapping):
        raise Misuse(f"{name}={v!r}: expected {{key: stream}}")
    known = [*features, "task"]
    return {str(k): _checks.check_key(s, known, f"stream of {name}[{k!r}]") for k, s in v.items()}


# The options of a sample.
SAMPLE: dict[str, Check] = {
    "normalize": _check_normalize,
    "keys": _check_keys,
    "episodes": _check_indices,
    "split": as_text,
    "where": as_text,
    # Integers are seconds too, as in lerobot: [-1, 0] spans one second.
    "delta_timestamps": by_key(_check_offsets),
    "delta_indices": by_key(
        list_of(
            check_integer,
            "a list of whole rows",
            "delta_timestamps= and Windows(seconds=…) take seconds",
        )
    ),
    "windows": by_key(_check_window),
    "anchor": _takes_keys(
        lambda name, v, features: _checks.check_key(v, features, f"key of {name}")
    ),
    "hz": check_rate,
    "align": _check_align,
    "image_dtype": one_of("uint8", "float32"),
    "depth_unit": one_of(*UNITS),
    "image_size": check_frame_size,
    "image_resize": one_of("stretch", "letterbox", "crop", "smallest_side"),
    "image_filter": one_of(*get_args(Filter)),
    "image_layout": one_of("chw", "hwc"),
    "image_transform": list_of(_plain_augment, "a list of steps"),
    "tolerance_s": check_seconds,
    "offset_tolerance_s": check_seconds,
    "augment": _plain_augment,
    "vectors": vectors_config,
    "on_bad_episode": one_of("error", "skip"),
    "on_nan": one_of("error", "mask", "allow"),
    "drop_n_first_frames": check_integer,
    "drop_n_last_frames": check_integer,
    "pad_before": check_integer,
    "pad_after": check_integer,
    "segments": _check_segments,
    "episode_weights": _check_episode_weights,
    "weight_by": as_text,
    "beyond": _check_beyond,
    "missing": one_of("error", "pad"),
    "text": _takes_keys(
        lambda name, v, features: by_key(one_of("lower_alphanumeric"))(name, v, [*features, "task"])
    ),
    "choose": _takes_keys(_check_choose),
    "goal": _takes_keys(_check_goal),
    "require_text": _takes_keys(
        lambda name, v, features: _checks.check_key(v, [*features, "task"], f"key of {name}")
    ),
    "threads": check_integer,
    "memory_budget": parse_bytes,
}


def sample_config(features: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the checked options of a sample, for the features of a dataset."""
    # The engine reports why a stream is withheld.
    known = [*features, *getattr(features, "withheld", ())]
    streams = {"choose": known, "goal": known}
    for name in streams:  # Other options may name the keys that these make.
        if isinstance(given.get(name), Mapping):
            known = [*known, *given[name]]
    return {
        **check_options(SAMPLE, given, known, streams),
        **_statistics.statistics_config(given, known),
    }


def drop_unselected_normalizers(config: dict[str, Any]) -> None:
    """Drops, from a normalizer given as normalize=, the keys that keys= leaves out."""
    v, keys = config.get("normalize"), config.get("keys")
    if isinstance(v, NormVectors) and keys is not None:
        config["normalize"] = NormVectors({k: one for k, one in v.items() if k in keys})


# The fields of follow= of a Loader.
FOLLOW: dict[str, Check] = {
    "at": one_of("epoch", "step"),
    "every": check_whole,
    "recency": partial(check_real, want="a half-life above 0", above=0),
    "recency_unit": one_of("episodes", "seconds", "versions"),
    "where": as_text,
    "version": as_text,
    "version_lag": check_nonnegative,
    "capacity": check_whole,
    "log": lambda _, v: os.path.abspath(os.fspath(v)),
    "run": as_text,
    "timeout_s": partial(check_real, want="seconds above 0", above=0),
}


def _check_follow(_: str, v: Any) -> dict[str, Any]:
    """Returns the checked options of robocache.Follow."""
    if v.get("at") == "step" and "every" not in v:
        raise Misuse('Follow(at="step") without every=', hint='Follow(at="step", every=1000)')
    return check_options(FOLLOW, v)


LOADER: dict[str, Check] = {
    "follow": _check_follow,
    "refresh": check_flag,
    "batch_size": check_whole,
    "seed": check_integer,
    "drop_last": check_flag,
    "prefetch": check_whole,
    "threads": check_whole,
    "io_threads": check_whole,
    "deadline_s": lambda name, v: check_nonnegative(name, v) or -1.0,
    "uneven": one_of("wrap", "short"),
    "pool_size": parse_bytes,
    "pool_episodes": check_whole,
    "pool_shards": check_whole,
    "cache_budget": parse_bytes,
    "cache_format": one_of("auto", "yuv", "rgb", "encoded"),
    "metrics": as_text,
    "decode": one_of("cpu", "auto", "gpu"),
    "device_memory_budget": parse_bytes,
    "dtype": lambda name, v: _checks.check_choice(
        name, str(v).removeprefix("torch."), ("float32", "keep")
    ),
}

MIXTURE: dict[str, Check] = {
    "temperature": partial(check_real, want="a number above 0", above=0),
    "stop": one_of("first", "all"),
    "epoch_size": check_whole,
    "stratified": check_flag,
    "balance_weights": check_flag,
}


def loader_config(given: OptionValues, mixed: bool) -> dict[str, Any]:
    """Returns the checked options of a Loader: its order, caches and batches."""
    shuffle = given.get("shuffle")
    if isinstance(shuffle, (bool, np.bool_)):
        shuffle = "global" if shuffle else False
    elif not isinstance(shuffle, str):
        raise Misuse(f"shuffle={shuffle!r}: expected 'global', 'pool' or False")
    config = {
        "shuffle": _checks.check_choice("shuffle", shuffle, ("global", "pool", False)),
        "dtype": "float32",
        **_cache_config(given.get("cache")),
        **check_options(LOADER, given),
    }
    for name in config:
        label = given.labels.get(name, name)
        if name.startswith("pool_") and shuffle != "pool":
            raise Misuse(f"{label} is for shuffle='pool'", hint="add shuffle='pool'")
        if name.startswith("cache_") and "cache" not in config:
            raise Misuse(
                f"{label} without a place",
                hint="robocache.Cache('ram', …) or robocache.Cache(directory, …)",
            )
    mixture = check_options(MIXTURE, given)
    if mixture and not mixed:
        raise Misuse("mixture= is for mixtures", hint="give a list of robocache.Mix")
    return {**config, **mixture}


def _cache_config(v: Any) -> dict[str, Any]:
    """Returns the configuration of a cache: in RAM, on the device, or in a directory."""
    if v is None or v is False:
        return {}
    want = f"cache={v!r}: expected 'ram', 'device', a directory or a number of bytes"
    if not isinstance(v, (str, bytes, os.PathLike)):
        raise Misuse(want)
    refuse_size_as_path(v)
    named = isinstance(v, str) and v.lower() in ("ram", "device")
    if named and v != v.lower():
        raise Misuse(want, hint=f"did you mean {v.lower()!r}? A directory of that name is './{v}'")
    where = _checks.path_text(v)
    if "://" in where:
        raise Misuse(want, hint="a cache lies on a disk of this machine")
    return {"cache": v if named else os.path.abspath(where)}


def _check_mapping(_: str, v: Any) -> Any:
    """Returns map= as a dict, or as the absolute path of a mapping file."""
    return dict(v) if isinstance(v, Mapping) else os.path.abspath(_checks.path_text(v))


def _check_format_options(name: str, v: Any) -> dict[str, str]:
    """Returns the options of one format as text by name."""
    if not isinstance(v, Mapping):
        raise Misuse(f"{name}={v!r}: expected a dict")
    return {
        str(k): ("true" if x else "false") if isinstance(x, bool) else str(x) for k, x in v.items()
    }


# The options of opening a dataset.
OPEN: dict[str, Check] = {
    "format": as_text,
    "rows_hz": check_rate,
    "map": _check_mapping,
    "split": as_text,
    "options": _check_format_options,
    "follow_links": lambda _, v: bool(v),
    "recording_index": lambda _, v: _checks.path_text(v),
    "memory_budget": parse_bytes,
    "depth_unit": one_of(*UNITS),
}
