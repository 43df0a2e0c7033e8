"""Tests of robocache.index and recording_index."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import synth

import robocache


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of MCAP episodes that were modified an hour ago."""
    dst = tmp_path_factory.mktemp("index") / "arms"
    synth(dst, "--format=mcap", "--preset=abc", "--episodes=6")
    for file in dst.iterdir():
        os.utime(file, (time.time() - 3600,) * 2)
    return dst


def rows(uri: Path, **how: object) -> list[np.ndarray]:
    """Returns the actions of all episodes."""
    return [e.streams["action"].values for e in robocache.open(uri, **how)]


def test_index(arms: Path, tmp_path: Path) -> None:
    want = rows(arms, recording_index="off")
    out = tmp_path / "arms.index"
    report = robocache.index(arms, out=out)
    assert (report.recordings, report.added, report.num_episodes) == (6, 6, 6)
    assert report.path == str(out) and report.bytes == out.stat().st_size
    assert report.position["sequence"] == 6
    report = robocache.index(arms)
    assert report.path == f"{arms}/.robocache-index" and report.format == "mcap"
    assert robocache.index(arms).added == 0
    for how in ({}, {"recording_index": out}):
        for a, b in zip(rows(arms, **how), want, strict=True):
            np.testing.assert_array_equal(a, b)
    codes = [f["code"] for f in robocache.open(arms).findings]
    assert "index-behind" not in codes
    loader = robocache.Loader(
        arms, batch_size=2, open=robocache.Open(recording_index=out), shuffle=False
    )
    assert len(next(iter(loader))["action"]) == 2


def test_index_of_other_datasets(tmp_path: Path) -> None:
    synth(tmp_path / "arm", "--episodes=2", "--cameras=0")
    with pytest.raises(robocache.Unsupported, match="opens without an index"):
        robocache.index(tmp_path / "arm")
    with pytest.raises(robocache.NotFound):
        robocache.index(tmp_path / "missing")
    with pytest.raises(robocache.Misuse, match="no_such"):
        robocache.index(tmp_path / "arm", no_such=1)
