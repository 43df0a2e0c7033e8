"""Pushes the samples of a recording into a Live in the order of their arrival."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import robocache


def events_of(
    uri: str, contract: robocache.Contract, options: dict[str, str], rows: int | None = None
) -> list[tuple[int, int, str, Any]]:
    """Returns (arrival, timestamp, stream, value) of the samples of the first episode.

    options opens the recording so that the times of its streams are the arrivals. rows limits the
    samples of each stream.
    """
    first, arrived = robocache.open(uri)[0], robocache.open(uri, options=options)[0]
    events = []
    for key in contract.streams:
        if key == "task":
            continue
        stream = first.streams[key]
        if stream.kind in ("image", "video"):
            count = len(stream) if rows is None else rows
            values = stream.frames(range(count)).transpose(0, 2, 3, 1)
        else:
            values = stream.values
        times = zip(arrived.streams[key].times.tolist(), stream.times.tolist(), values)
        events += [(a, s, key, v) for a, s, v in itertools.islice(times, rows)]
    return sorted(events, key=lambda e: e[0])


def ticks_of(
    live: robocache.Live, events: list[tuple[int, int, str, Any]], count: int, **options: Any
) -> Iterator[robocache.live.Observation]:
    """Yields the observations of the ticks of a causal Loader."""
    seen: dict[str, int] = {}
    for arrival, _, key, _ in events:
        seen.setdefault(key, arrival)
    begin, rate = max(seen.values()), live.contract.rate_hz
    left = iter(events)
    event = next(left, None)
    for n in range(count):
        tick = begin + round(n * 1e9 / rate)
        while event is not None and event[0] <= tick:
            live.push(event[2], event[3], event[1], event[0])
            event = next(left, None)
        yield live.observe(tick, 0, **options)


def different_keys(have: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """Returns the keys of want whose value, dtype or shape differs in have, bit by bit."""

    def bits(v: Any) -> Any:
        return v if isinstance(v, str) else (str(v.dtype), tuple(v.shape), bytes_of(v))

    return [k for k in want if k not in have or bits(have[k]) != bits(want[k])]


def bytes_of(v: Any) -> bytes:
    return (v.numpy() if hasattr(v, "numpy") else v).tobytes()
