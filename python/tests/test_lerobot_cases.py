"""LeRobot datasets with faults seen in practice.

Covers the rows that readers deliver, doctor's findings, and the commands in hints.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import robocache

from conftest import cli, run_case

pytest.importorskip("pyarrow")
pytest.importorskip("av")
pytest.importorskip("pandas")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory):
    """Returns a function that creates a case once and returns its folder."""
    root = tmp_path_factory.mktemp("cases")

    def make(name: str, variant: str) -> Path:
        path = root / f"{name}_{variant}"
        if not path.exists():
            run_case(name, path, variant)
        return path

    return make


def rows(path: Path, **options: object) -> list[tuple[int, int, float, float]]:
    """Returns the episode index, frame index and state of every row that a Loader delivers."""
    out = []
    for b in robocache.Loader(str(path), batch_size=4, shuffle=False, drop_last=False, **options):
        for e, k, s in zip(b["episode_index"], b["frame_index"], b["observation.state"]):
            out.append((int(e), int(k), float(s[0]), float(s[1])))
    return out


def expected(episodes: dict[int, int]) -> list[tuple[int, int, float, float]]:
    return [(e, k, float(e), float(k)) for e, n in episodes.items() for k in range(n)]


def fixed(path: Path, dst: Path, *options: str) -> Path:
    """Returns the dataset that doctor --fix writes, and asserts that doctor finds nothing in it."""
    done = cli("doctor", str(path), str(dst), "--fix", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = robocache.doctor(dst)
    assert not found.errors and not found.warnings, found.findings
    return dst


@pytest.mark.parametrize("variant", ["short", "zero", "swap", "negative"])
def test_rows_decide_lengths(made, tmp_path: Path, variant: str) -> None:
    path = made("L07", variant)
    ds = robocache.open(path)
    assert ds.num_frames == 15 and [ds[e].length for e in range(3)] == [5, 5, 5]
    assert rows(path) == expected({0: 5, 1: 5, 2: 5})
    assert len(robocache.MapDataset(str(path))) == 15
    own = robocache.LeRobotDataset("me/set", root=path)
    assert [
        (int(own[i]["episode_index"]), int(own[i]["frame_index"])) for i in range(len(own))
    ] == [(e, k) for e, k, *_ in expected({0: 5, 1: 5, 2: 5})]
    assert "episode-length" in {f["code"] for f in robocache.doctor(path).findings}
    assert rows(fixed(path, tmp_path / "fixed")) == expected({0: 5, 1: 5, 2: 5})


@pytest.mark.parametrize("variant", ["short", "zero", "swap", "negative"])
def test_skip_keeps_episodes_that_are_read(made, variant: str) -> None:
    path = made("L07", variant)
    whole = expected({0: 5, 1: 5, 2: 5})
    assert rows(path, order=robocache.Order(on_bad_episode="skip")) == whole
    with robocache.Loader(
        str(path), batch_size=4, order=robocache.Order(on_bad_episode="skip")
    ) as loader:
        assert not loader.stats().get("bad_episodes")
    items = robocache.MapDataset(str(path), order=robocache.Order(on_bad_episode="skip"))
    assert [
        (int(items[i]["episode_index"]), int(items[i]["frame_index"])) for i in range(len(items))
    ] == [(e, k) for e, k, *_ in whole]


def test_skip_leaves_out_lost_rows(made, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "set"
    shutil.copytree(made("L07", "short"), path)
    shutil.copytree(fixed(path, tmp_path / "fixed") / "meta", path / "meta", dirs_exist_ok=True)
    data = path / "data/chunk-000/file-000.parquet"
    # the last two rows of episode 2 are lost
    pq.write_table(pq.read_table(data).slice(0, 13), data)
    assert rows(path, order=robocache.Order(on_bad_episode="skip")) == expected({0: 5, 1: 5})
    assert len(robocache.MapDataset(str(path), order=robocache.Order(on_bad_episode="skip"))) == 10
    with pytest.raises(robocache.Malformed, match="rows are lost") as e:
        robocache.Loader(str(path))  # raised when the Loader is created
    assert e.value.where["episode"] == 2
    assert rows(path, episodes=[0, 1]) == expected({0: 5, 1: 5})


@pytest.mark.parametrize("variant", ["before", "beyond"])
def test_stale_pointers_are_followed(made, tmp_path: Path, variant: str) -> None:
    path = made("L04", variant)
    assert rows(path) == expected({e: 5 for e in range(4)})
    assert "stale-pointer" in {f["code"] for f in robocache.doctor(path).findings}
    assert rows(fixed(path, tmp_path / "fixed")) == expected({e: 5 for e in range(4)})


@pytest.mark.parametrize("variant", ["dense", "holes"])
def test_writer_takes_the_highest_number(made, tmp_path: Path, variant: str) -> None:
    path = tmp_path / "set"
    shutil.copytree(made("L03", variant), path)
    picture = np.zeros((48, 64, 3), np.uint8)
    with robocache.Writer(path) as w:
        assert w.num_episodes == 4
        for _ in range(2):
            for k in range(3):
                w.add_frame(
                    {
                        "observation.state": np.array([w.num_episodes + 2, k], np.float32),
                        "action": np.zeros(2, np.float32),
                        "observation.images.top": picture,
                    },
                    task="more",
                )
            w.save_episode()
        assert w.num_episodes == 6
    assert rows(path) == expected({0: 5, 1: 5, 4: 5, 5: 5, 6: 3, 7: 3})
    import pyarrow.dataset as pads

    table = pads.dataset(path / "data").to_table(columns=["index"])["index"].to_pylist()
    first = {"dense": 20, "holes": 30}[variant]
    assert len(set(table)) == 26 and sorted(table)[-6:] == list(range(first, first + 6))
    info = json.loads((path / "meta" / "info.json").read_text())
    assert (info["total_episodes"], info["total_frames"], info["splits"]) == (
        6,
        26,
        {"train": "0:6"},
    )
    with robocache.Writer(path) as w:  # the recording is resumed
        for k in range(2):
            w.add_frame(
                {
                    "observation.state": np.array([8, k], np.float32),
                    "action": np.zeros(2, np.float32),
                    "observation.images.top": picture,
                },
                task="more",
            )
        w.save_episode()
        w.delete_last_episode()
        for k in range(4):
            w.add_frame(
                {
                    "observation.state": np.array([8, k], np.float32),
                    "action": np.zeros(2, np.float32),
                    "observation.images.top": picture,
                },
                task="more",
            )
        w.save_episode()
    assert rows(path)[-4:] == expected({8: 4})
    assert "episode-twice" not in {f["code"] for f in robocache.doctor(path).findings}


def test_an_index_that_occurs_twice(made, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "set"
    shutil.copytree(made("L07", "short"), path)
    shutil.copytree(made("L07", "swap") / "meta", path / "meta", dirs_exist_ok=True)
    name = path / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(name)
    pq.write_table(table.set_column(0, "episode_index", pa.array([0, 1, 1])), name)
    data = path / "data" / "chunk-000" / "file-000.parquet"
    t = pq.read_table(data)
    at = t.schema.get_field_index("episode_index")
    first = t.slice(0, 10)
    again = t.slice(10, 5)
    pq.write_table(first, data)
    pq.write_table(
        again.set_column(at, "episode_index", pa.array([1] * 5)), data.with_name("file-001.parquet")
    )
    table = pq.read_table(name)
    at = table.schema.get_field_index("data/file_index")
    pq.write_table(table.set_column(at, "data/file_index", pa.array([0, 0, 1])), name)
    for call in (robocache.open, robocache.Loader, robocache.Writer):
        with pytest.raises(robocache.Misuse, match="episode_index 1 occurs twice") as e:
            call(path)
        assert "robocache.doctor(…, fix=True, in_place=True)" in e.value.hint
    assert "episode-twice" in cli("doctor", str(path)).stdout
    assert [(e, k) for e, k, *_ in rows(fixed(path, tmp_path / "fixed"))] == [
        (e, k) for e, k, *_ in expected({0: 5, 1: 5, 2: 5})
    ]


@pytest.mark.parametrize("variant", ["fresh", "stats", "scratch"])
def test_a_set_without_episodes(made, tmp_path: Path, variant: str) -> None:
    path = made("L08", variant)
    ds = robocache.open(path)
    assert len(ds) == 0 and ds.num_frames == 0 and "observation.images.top" in ds.features
    for loader in (
        robocache.Loader(str(path), batch_size=2),
        robocache.Loader(
            str(path),
            batch_size=2,
            windows=robocache.Windows(seconds={"action": [0, 0.1]}),
            normalize="mean_std",
        ),
    ):
        assert len(loader) == 0 and list(loader) == []
    assert len(robocache.MapDataset(str(path))) == 0
    own = robocache.LeRobotDataset("me/set", root=path)
    assert len(own) == 0 and own.num_episodes == 0 and own.num_frames == 0
    for verb in (
        ["inspect", path],
        ["doctor", path],
        ["stats", path],
        ["convert", path, tmp_path / "converted"],
    ):
        done = cli(*map(str, verb))
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(robocache.open(tmp_path / "converted")) == 0
    for source in (path, tmp_path / "converted"):
        copy = tmp_path / f"copy of {source.name}"
        shutil.copytree(source, copy)
        row = {
            "observation.state": np.array([0, 0], np.float32),
            "action": np.zeros(2, np.float32),
            "observation.images.top": np.zeros((48, 64, 3), np.uint8),
        }
        with robocache.Writer(copy) as w:
            with pytest.raises(robocache.Misuse, match=re.escape("observation.images.top")):
                w.add_frame({k: v for k, v in row.items() if "images" not in k}, task="t")
            for k in range(3):
                w.add_frame({**row, "observation.state": np.array([0, k], np.float32)}, task="t")
            w.save_episode()
        assert rows(copy) == expected({0: 3})
        found = robocache.doctor(copy, decode=True)
        assert not found.errors and not found.warnings, found.findings


HOSTILE = [
    *[
        ("L10", v)
        for v in (
            "int_as_bool",
            "float_bool",
            "u8_bool",
            "i64_to_i32",
            "neg_to_u8",
            "nullable",
            "string_number",
            "float_as_int",
            "i64_to_f32",
            "decimal",
            "duration",
            "datetime",
            "big",
            "fine",
            "zero_one_bool",
            "bool_as_float",
            "whole_float_as_int",
        )
    ],
    *[("L11", v) for v in ("L", "LA", "RGBA", "mixed", "P", "1", "I16", "CMYK", "exif")],
    *[("L07", v) for v in ("short", "zero", "swap", "negative")],
    *[("L04", v) for v in ("before", "beyond")],
    *[("L03", v) for v in ("dense", "holes", "bad4")],
    *[("L06", v) for v in ("array", "pretty", "oneline", "dup", "comma")],
    ("L08", "fresh"),
]


@pytest.mark.parametrize("name,variant", HOSTILE)
def test_doctor_finds_what_loader_refuses(made, name: str, variant: str) -> None:
    path = made(name, variant)
    try:
        rows(path)
    except robocache.Error as e:
        assert "int64" not in str(e) or "stored as" in str(e), e
        done = cli("doctor", str(path))
        assert done.returncode in (3, 11), done.stdout
        assert done.returncode == 11 or "error " in done.stdout, done.stdout


def commands(hint: str) -> list[list[str]]:
    """Returns the command lines in a hint."""
    return [shlex.split(text) for text in re.findall(r"'(robocache [^']*)'", hint)]


@pytest.mark.parametrize("name,variant", HOSTILE)
def test_every_hint_leads_on(made, tmp_path: Path, name: str, variant: str) -> None:
    path = made(name, variant)
    done = cli("doctor", str(path), "--json")
    if done.returncode == 11:  # the hint describes a change to the file itself
        assert "hint: " in done.stderr and "robocache doctor" not in done.stderr, done.stderr
        return
    findings = json.loads(done.stdout)["findings"]
    for i, f in enumerate(findings):
        if f["severity"] != "info":
            assert f.get("hint"), f
        for command in commands(f.get("hint", "")):
            dst = tmp_path / f"{i}"
            follow(path, dst, command, f)


def follow(path: Path, dst: Path, command: list[str], finding: dict) -> None:
    """Runs the command of a hint.

    The finding must disappear, and no new hint may suggest the first command again.
    """
    verb, options = command[1], command[2:]
    if verb == "stats" or "--in-place" in options:
        shutil.copytree(path, dst)
        done = cli(verb, str(dst), *options)
    else:
        done = cli(verb, str(path), str(dst), *options)
    if "no episode is left" in done.stdout + done.stderr:  # the only episode was bad
        return
    assert done.returncode in (0, 1, 3) and dst.exists(), (command, done.stdout, done.stderr)
    left = {f["code"] for f in robocache.doctor(dst).findings}
    assert finding["code"] not in left, (command, left)
