"""mean without a window averages over half a target period on each side."""

import numpy as np
import pytest

import robocache


def test_period_of_the_targets() -> None:
    times = np.arange(40) * 25_000_000
    data = np.arange(40, dtype=np.float64)[:, None]
    grid = np.arange(1, 9) * 100_000_000
    want = robocache.resample(data, times, grid, mode="mean", window=0.1)
    for targets in (grid, grid / 1e9, grid.tolist()):
        assert np.array_equal(robocache.resample(data, times, targets, mode="mean"), want)
    assert np.array_equal(robocache.fuse([(data, times, {"mode": "mean"})], grid), want)
    for uneven in (np.array([0, 100, 350]) * 1_000_000, grid[:1]):
        with pytest.raises(robocache.Misuse, match="mean needs a window"):
            robocache.resample(data, times, uneven, mode="mean")


def test_episode(h264: str) -> None:
    ep = robocache.open(h264).episode(0)
    by_rate = ep.align(hz=10, keys=["action"], modes={"action": "mean"})
    by_times = ep.align(times=by_rate["times"], keys=["action"], modes={"action": "mean"})
    assert np.array_equal(by_rate["action"], by_times["action"])
    with pytest.raises(robocache.Misuse, match="mean needs a window"):
        ep.align(times=[0.0, 0.1, 0.35], keys=["action"], modes={"action": "mean"})


def test_help_names_lengths() -> None:
    assert "<key>_lengths" in (robocache.Episode.align.__doc__ or "")
