"""LeRobot datasets in which an episode_index occurs twice are rejected.

doctor --fix repairs them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import cli
from test_frames import CAMERA, frame_number, make_case, make_mp4

import robocache

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ROWS = 5  # rows of each run
TASKS = ["stack the cups", "fold the towel", "open the door"]


def rows_of(runs: Sequence[tuple[int, int]], start: int = 0) -> pa.Table:
    """Returns runs of rows. Each run is a pair of its number and its episode_index.

    The state of a row is the number of its run and its row in the run.
    """
    pairs = [(run, k) for run, _ in runs for k in range(ROWS)]
    n = len(pairs)
    state = pa.array([[float(run), float(k)] for run, k in pairs], pa.list_(pa.float32()))
    return pa.table(
        {
            "observation.state": state,
            "action": state,
            "timestamp": pa.array([k / 10 for _, k in pairs], pa.float32()),
            "frame_index": [k for _, k in pairs],
            "episode_index": [index for _, index in runs for _ in range(ROWS)],
            "index": list(range(start, start + n)),
            "task_index": [run % len(TASKS) for run, _ in pairs],
        }
    )


def codes(*runs: int) -> list[int]:
    """Returns the numbers that the frames of some runs show."""
    return [10 * run + k + 1 for run in runs for k in range(ROWS)]


def make_set(
    root: Path,
    data: list[int],
    table: list[tuple[int, int]],
    frames: list[int],
    groups: int | None = None,
) -> Path:
    """A v3.0 set of one data file and one mp4.

    Args:
        root: Folder of the set.
        data: The episode_index of each run of rows in the data file.
        table: The run and the episode_index of each row of the episodes table.
        frames: The numbers that the frames of the mp4 show.
        groups: Rows per row group, or None for one row group.
    """
    make_case(root, "L02", "one")
    info = json.loads((root / "meta/info.json").read_text())
    info.update(
        total_episodes=len(table),
        total_frames=ROWS * len(data),
        total_tasks=len(TASKS),
        splits={"train": f"0:{len(table)}"},
    )
    (root / "meta/info.json").write_text(json.dumps(info))
    import pandas as pd

    names = pd.Index(TASKS, name="task")
    pd.DataFrame({"task_index": range(len(TASKS))}, index=names).to_parquet(
        root / "meta/tasks.parquet"
    )
    file = root / "data/chunk-000/file-000.parquet"
    pq.write_table(rows_of(list(enumerate(data))), file, row_group_size=groups)
    v, zeros = f"videos/{CAMERA}/", [0] * len(table)
    episodes = {
        "episode_index": [index for _, index in table],
        "tasks": [[TASKS[run % len(TASKS)]] for run, _ in table],
        "length": [ROWS] * len(table),
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "dataset_from_index": [ROWS * run for run, _ in table],
        "dataset_to_index": [ROWS * (run + 1) for run, _ in table],
        v + "chunk_index": zeros,
        v + "file_index": zeros,
        v + "from_timestamp": [ROWS / 10 * run for run, _ in table],
        v + "to_timestamp": [ROWS / 10 * (run + 1) for run, _ in table],
    }
    pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    (root / v / "chunk-000/file-001.mp4").unlink()
    make_mp4(root / v / "chunk-000/file-000.mp4", frames)
    return root


def make_v2(
    root: Path,
    files: dict[int, list[tuple[int, int]]],
    version: str,
    lines: list[int] | None = None,
) -> Path:
    """Creates a v2 set. files maps an episode's file to its runs of rows."""
    make_case(root, "V03", "v2_30")
    info = json.loads((root / "meta/info.json").read_text())
    n = sum(len(runs) for runs in files.values())
    info.update(
        codebase_version=version,
        total_episodes=len(files),
        total_frames=ROWS * n,
        total_tasks=len(TASKS),
        splits={"train": f"0:{len(lines or files)}"},
    )
    (root / "meta/info.json").write_text(json.dumps(info))
    at = 0
    for episode, runs in files.items():
        pq.write_table(rows_of(runs, at), root / f"data/chunk-000/episode_{episode:06d}.parquet")
        make_mp4(
            root / f"videos/chunk-000/{CAMERA}/episode_{episode:06d}.mp4",
            codes(*(run for run, _ in runs)),
        )
        at += ROWS * len(runs)
    (root / "meta/episodes.jsonl").write_text(
        "".join(
            json.dumps(
                {"episode_index": e, "tasks": [TASKS[files[e][0][0] % len(TASKS)]], "length": ROWS}
            )
            + "\n"
            for e in lines or files
        )
    )
    (root / "meta/tasks.jsonl").write_text(
        "".join(json.dumps({"task_index": i, "task": task}) + "\n" for i, task in enumerate(TASKS))
    )
    return root


def delivered(path: Path, **options: object) -> list[tuple[int, int, int, int, int, int, str]]:
    """Returns what a Loader delivers for every row.

    An entry holds episode_index, frame_index, index, run and row from the state, the frame's
    number, and the task.
    """
    out = []
    loader = robocache.Loader(str(path), batch_size=4, shuffle=False, drop_last=False, **options)
    for b in loader:
        for i in range(len(b["index"])):
            state, image = np.asarray(b["observation.state"][i]), np.asarray(b[CAMERA][i])
            if state.ndim == 2:
                state, image = state[0], image[0]
            numbers = (
                b["episode_index"][i],
                b["frame_index"][i],
                b["index"][i],
                state[0],
                state[1],
            )
            out.append((*map(int, numbers), frame_number(image), b["task"][i]))
    return out


def expected(runs: Sequence[int]) -> list[tuple[int, int, int, int, int, int, str]]:
    """Returns the rows of a set whose episode e is runs[e]."""
    return [
        (e, k, ROWS * e + k, run, k, 10 * run + k + 1, TASKS[run % len(TASKS)])
        for e, run in enumerate(runs)
        for k in range(ROWS)
    ]


def check_repair(path: Path, tmp_path: Path, index: int, runs: Sequence[int]) -> None:
    """Asserts that a set is rejected and repaired.

    doctor must report it, and doctor --fix must make episode e of runs[e].
    """
    for call in (robocache.open, robocache.Loader, robocache.Writer, robocache.MapDataset):
        with pytest.raises(robocache.Misuse, match=f"episode_index {index} occurs twice") as e:
            call(str(path))
        assert "robocache.doctor(…, fix=True, in_place=True)" in e.value.hint
    plan = robocache.doctor(path, fix=True)
    assert plan.version == json.loads((path / "meta/info.json").read_text())["codebase_version"], (
        plan
    )
    assert plan.format == "lerobot" and plan.num_episodes == len(runs), plan
    for verb in (
        ["inspect", path],
        ["convert", path, tmp_path / "c"],
        ["edit", "delete", path, tmp_path / "d", "--episodes", "0"],
        ["stats", path],
    ):
        done = cli(*map(str, verb))
        assert done.returncode == 2 and "doctor --fix" in done.stderr, (
            verb,
            done.returncode,
            done.stderr,
        )
    found = json.loads(cli("doctor", str(path), "--json").stdout)["findings"]
    twice = [f for f in found if f["code"] == "episode-twice"]
    assert twice and all(f["severity"] == "error" and f["count"] >= 1 for f in twice), found
    fixed = tmp_path / "fixed"
    done = cli("doctor", str(path), str(fixed), "--fix")
    assert done.returncode == 0, done.stdout + done.stderr
    check_set(fixed, runs)
    robocache.doctor(path, fix=True, in_place=True)  # the command of the hint
    check_set(path, runs)


def check_set(path: Path, runs: Sequence[int]) -> None:
    found = robocache.doctor(path, decode=True)
    assert not found.errors and not found.warnings, found.findings
    assert json.loads((path / "meta/info.json").read_text())["splits"] == {
        "train": f"0:{len(runs)}"
    }
    assert delivered(path) == expected(runs)
    assert len(robocache.MapDataset(str(path))) == ROWS * len(runs)
    windows = delivered(
        path, windows=robocache.Windows(seconds={CAMERA: [0, 0.1], "observation.state": [0]})
    )
    assert windows == expected(runs)
    table = pa.concat_tables(
        [pq.read_table(f) for f in sorted((path / "meta/episodes").rglob("*.parquet"))],
        promote_options="default",
    )
    assert table["episode_index"].to_pylist() == list(range(len(runs)))
    assert table["tasks"].to_pylist() == [[TASKS[run % len(TASKS)]] for run in runs]
    assert table["length"].to_pylist() == [ROWS] * len(runs)
    means = [mean for mean in table["stats/observation.state/mean"].to_pylist()]
    assert means == [[run, (ROWS - 1) / 2] for run in runs]
    assert robocache.open(path).stats["observation.state"]["mean"] is not None


@pytest.mark.parametrize("groups", [None, ROWS])
@pytest.mark.parametrize(
    ("data", "table", "index", "runs"),
    [
        pytest.param([0, 1, 1], [(0, 0), (1, 1), (2, 2)], 1, [0, 1, 2], id="adjacent"),
        pytest.param([0, 1, 0], [(0, 0), (1, 1), (2, 2)], 0, [0, 1, 2], id="apart"),
        pytest.param([0, 1, 1], [(0, 0), (1, 1), (2, 1)], 1, [0, 1, 2], id="table-adjacent"),
        pytest.param([0, 1, 0], [(0, 0), (1, 1), (2, 0)], 0, [0, 1, 2], id="table-apart"),
        pytest.param([0, 1, 2], [(0, 0), (1, 1), (2, 1)], 1, [0, 1, 2], id="table-alone"),
        pytest.param([0, 1, 1], [(0, 0), (1, 1)], 1, [0, 1, 2], id="unlisted-adjacent"),
        pytest.param([0, 1, 0], [(0, 0), (1, 1)], 0, [0, 1, 2], id="unlisted-apart"),
        pytest.param([0, 0, 1], [(0, 0), (2, 1)], 0, [0, 2, 1], id="unlisted-between"),
    ],
)
def test_index_twice_in_v3(
    tmp_path: Path,
    data: list[int],
    table: list[tuple[int, int]],
    index: int,
    runs: list[int],
    groups: int | None,
) -> None:
    path = make_set(tmp_path / "set", data, table, codes(*range(len(data))), groups)
    check_repair(path, tmp_path, index, runs)


@pytest.mark.parametrize("version", ["v2.0", "v2.1"])
def test_index_twice_in_v2(tmp_path: Path, version: str) -> None:
    files = {0: [(0, 0)], 1: [(1, 1)], 2: [(2, 1)]}
    check_repair(make_v2(tmp_path / "set", files, version), tmp_path, 1, [0, 1, 2])


@pytest.mark.parametrize("lines", [[0, 1], [0, 1, 1]])
def test_two_runs_in_a_file_of_v2(tmp_path: Path, lines: list[int]) -> None:
    files = {0: [(0, 0)], 1: [(1, 1), (2, 1)]}
    check_repair(make_v2(tmp_path / "set", files, "v2.1", lines), tmp_path, 1, [0, 1, 2])


def test_rows_without_frames(tmp_path: Path) -> None:
    """Rows that the table does not list have no frames; other episodes keep theirs."""
    path = make_set(tmp_path / "set", [0, 0, 1], [(0, 0), (1, 1)], codes(0, 2))
    dst = tmp_path / "fixed"
    done = cli("doctor", str(path), str(dst), "--fix")
    assert done.returncode != 0 and not dst.exists()
    text = done.stdout + done.stderr
    assert "--drop-bad" in text and "edit delete" not in text, text
    done = cli("doctor", str(path), str(dst), "--fix", "--drop-bad")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert delivered(dst) == expected([0, 2])


def set_splits(path: Path, splits: dict[str, str]) -> None:
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps({**info, "splits": splits}))


def test_recovered_rows_of_the_last_split(tmp_path: Path) -> None:
    path = make_set(tmp_path / "set", [0, 1, 2, 1], [(0, 0), (1, 1), (2, 2)], codes(0, 1, 2, 3))
    set_splits(path, {"train": "0:2", "val": "2:3"})
    robocache.doctor(path, fix=True, in_place=True)
    assert robocache.open(path).splits == {"train": 2, "val": 2}
    assert delivered(path, split="all") == expected([0, 1, 2, 3])


def test_recovered_rows_of_no_split(tmp_path: Path) -> None:
    """doctor and inspect report recovered rows, because their split is unknown."""
    path = make_set(tmp_path / "set", [0, 1, 2, 1], [(0, 0), (1, 1), (2, 2)], codes(0, 1, 2, 3))
    set_splits(path, {"train": "0:2"})
    dst = tmp_path / "fixed"
    done = cli("doctor", str(path), str(dst), "--fix")
    assert "episodes-without-split" in done.stdout, done.stdout + done.stderr
    assert delivered(dst, split="all") == expected([0, 1, 2, 3])
    for found in (robocache.doctor(dst).findings, robocache.inspect(dst).findings):
        left = [f for f in found if f.code == "episodes-without-split"]
        assert [(f.severity, f.count) for f in left] == [("warning", 2)], found
        assert 'split="all"' in left[0].hint


def test_note_about_the_only_split(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = make_set(tmp_path / "set", [0, 1, 2], [(0, 0), (1, 1), (2, 2)], codes(0, 1, 2))
    set_splits(path, {"train": "0:2"})
    with caplog.at_level("WARNING", logger="robocache"):
        assert robocache.Loader(str(path), batch_size=4).num_samples == 2 * ROWS
    said = caplog.text + capfd.readouterr().err
    assert "2 of 3 episodes" in said and "others are" not in said, said


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
@pytest.mark.parametrize("damaged", [[0, 1, 2], [1]])
def test_frame_index_that_restarts(tmp_path: Path, damaged: list[int], version: str) -> None:
    """If table, timestamps and episode_index agree, episodes stay whole.

    A frame_index that restarts is only a finding.
    """
    if version == "v2.1":
        path = make_v2(tmp_path / "set", {e: [(e, e)] for e in range(3)}, version)
    else:
        path = make_set(tmp_path / "set", [0, 1, 2], [(0, 0), (1, 1), (2, 2)], codes(0, 1, 2))
    for file in (path / "data").rglob("*.parquet"):
        table = pq.read_table(file)
        pairs = zip(table["episode_index"].to_pylist(), table["frame_index"].to_pylist())
        numbers = pa.array([k % 3 if e in damaged else k for e, k in pairs])
        at = table.schema.get_field_index("frame_index")
        pq.write_table(table.set_column(at, "frame_index", numbers), file)
    whole = [(e, *rest) for e, _, *rest in expected([0, 1, 2])]
    assert [(e, *rest) for e, _, *rest in delivered(path)] == whole
    found = [f for f in robocache.doctor(path).findings if f.code == "frame-index"]
    assert found and found[0].severity == "error", found
    robocache.doctor(path, fix=True, in_place=True)
    check_set(path, [0, 1, 2])
