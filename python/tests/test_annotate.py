"""Tests edit.annotate, and the stream subtask in Loader, MapDataset and LeRobotDataset."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import robocache

CLI = Path(__file__).parents[2] / "bin" / "robocache"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Returns a dataset of 3 episodes of 30 rows without cameras."""
    path = tmp_path_factory.mktemp("annotate") / "set"
    args = ["--episodes", "3", "--cameras", "0", "--seconds", "1"]
    subprocess.run([CLI, "synth", path, *args], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def annotated(plain, tmp_path_factory):
    """Returns the dataset with subtasks from a function."""
    dst = tmp_path_factory.mktemp("annotated") / "set"
    ranges = lambda ep: [(0, 10, f"reach {ep.index}"), {"from": 10, "to": 20, "text": "grasp"}]
    robocache.open(plain).edit().annotate(ranges).write(dst)
    return dst


def subtasks(episode, length=30):
    """Returns the subtask of each row of an episode."""
    return [f"reach {episode}"] * 10 + ["grasp"] * 10 + [""] * (length - 20)


def test_stored_form(annotated):
    """The columns have lerobot's rows: sorted items with float32 timestamps, on every frame."""
    (path,) = annotated.glob("data/*/*.parquet")
    table = pq.read_table(path)
    declared = json.loads((annotated / "meta/info.json").read_text())["features"]
    for key in ("language_persistent", "language_events"):
        assert declared[key] == {"dtype": "language", "shape": [1], "names": None}
    assert "subtask" not in declared and "subtask" not in table.column_names
    rows = table.column("language_persistent").to_pylist()
    want = [("reach 0", 0), ("grasp", 10), ("", 20)]
    times = table.column("timestamp").to_pylist()
    assert [(r["content"], r["timestamp"]) for r in rows[0]] == [(t, times[i]) for t, i in want]
    assert all(r["style"] == "subtask" and r["role"] == "assistant" for r in rows[0])
    assert rows[:30] == [rows[0]] * 30 and table.column("language_events").to_pylist()[0] == []


def test_dataset(annotated):
    ds = robocache.open(annotated)
    assert ds.features["subtask"].kind == "text"
    for ep in ds:
        assert list(ep.streams["subtask"].values) == subtasks(ep.index)


def test_loader(annotated):
    loader = robocache.Loader(annotated, batch_size=30, keys=["subtask"], shuffle=False)
    got = [list(b["subtask"]) for b in loader]
    assert got == [subtasks(e) for e in range(3)]


def test_map_dataset(annotated):
    ds = robocache.MapDataset(annotated, keys=["subtask"])
    assert [ds[i]["subtask"] for i in range(90)] == sum((subtasks(e) for e in range(3)), [])


def test_lerobot_dataset(annotated):
    """LeRobotDataset has lerobot's keys: the columns, and no computed stream."""
    ds = robocache.LeRobotDataset("local/set", root=annotated)
    item = ds[12]
    assert "subtask" not in item and "subtask" not in ds.features and item["task"]
    assert item["language_persistent"][1]["content"] == "grasp"


def test_convert(annotated, tmp_path):
    robocache.convert(annotated, tmp_path / "zarr", to="zarr")
    assert list(robocache.open(tmp_path / "zarr")[1].streams["subtask"].values) == subtasks(1)
    robocache.convert(annotated, tmp_path / "again")
    report = robocache.diff(annotated, tmp_path / "again")
    assert not report.different, report


def test_errors(plain):
    edit = robocache.open(plain).edit()
    with pytest.raises(robocache.Misuse, match="overlaps"):
        edit.annotate(lambda ep: [(0, 10, "a"), (9, 12, "b")]).plan()
    with pytest.raises(robocache.Misuse, match="rows 3 to 31 of 30"):
        edit.annotate([{"episode": 1, "from": 3, "to": 31, "text": "a"}]).plan()
    with pytest.raises(robocache.Misuse, match="no style"):
        edit.annotate([{"episode": 1, "text": "a"}], key="subtasks").plan()


def test_command(plain, tmp_path):
    """Ranges of find become subtasks."""
    ranges = {"ranges": [{"episode": 2, "from": 1, "to": 4, "from_s": 0.03, "to_s": 0.13}]}
    (tmp_path / "found.json").write_text(json.dumps(ranges))
    args = ["--from", tmp_path / "found.json", "--label", "close"]
    run = [CLI, "edit", "annotate", plain, tmp_path / "out", *args]
    subprocess.run(run, check=True, capture_output=True)
    values = list(robocache.open(tmp_path / "out")[2].streams["subtask"].values)
    assert values == [""] + ["close"] * 3 + [""] * 26


def test_ranges(plain):
    """Ranges may be those of find, and of pandas: with NumPy numbers, floats and NaN."""
    edit = robocache.open(plain).edit()
    found = robocache.find(plain, "index == 1")
    assert edit.annotate(found, label="go").plan().num_frames == 90
    table = [{"episode": np.int64(1), "from": 0.0, "to": float("nan"), "text": "go"}]
    assert edit.annotate(table).plan().num_frames == 90
    for unnamed in [(0, 3, "go")], [{"from": 0, "text": "go"}]:
        with pytest.raises(robocache.Misuse, match="names no episode"):
            edit.annotate(unnamed)
