"""Tests robocache.diff: its answer, its exit code, and its options."""

import json
import subprocess
from pathlib import Path

import pytest

import robocache

CLI = Path(__file__).parents[2] / "bin" / "robocache"


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Returns a dataset, and a copy in which episode 2 is trimmed and episode 0 deleted."""
    root = tmp_path_factory.mktemp("diff")
    subprocess.run([CLI, "synth", root / "a", "--episodes", "5", "--cameras", "1"], check=True)
    ds = robocache.open(root / "a")
    ds.edit().trim(start="4r", episodes=[2]).delete([0]).write(root / "b")
    return root / "a", root / "b"


def test_report(sets):
    report = robocache.diff(*sets)
    assert report.different and report.counts == {
        "equal": 0,
        "changed": 1,
        "moved": 4,
        "added": 0,
        "removed": 1,
    }
    assert [e["episode_index"] for e in report.removed] == [0]
    assert report.moved == [{"a": 1, "b": 0, "count": 4}]
    (change,) = report.changed
    assert (change.a, change.b, change.rows["removed_head"]) == (2, 1, 4)
    assert change.streams == [] and change.timestamps is None


def test_equal(sets):
    report = robocache.diff(sets[0], sets[0], frames="pixels", threads=1)
    assert not report.different and report.counts["equal"] == 5


def test_misuse(sets):
    with pytest.raises(robocache.Misuse, match="packets, pixels or none"):
        robocache.diff(*sets, frames="all")
    with pytest.raises(robocache.Misuse):
        robocache.diff(*sets, no_such_option=1)


def test_command(sets):
    run = subprocess.run([CLI, "diff", *sets, "--json"], capture_output=True, text=True)
    assert run.returncode == 3 and json.loads(run.stdout) == robocache.diff(*sets)
    assert subprocess.run([CLI, "diff", sets[0], sets[0]], capture_output=True).returncode == 0
