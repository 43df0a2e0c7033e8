"""Every verb accepts and prints episode indices. The sets have episodes 3, 7, 8 and 20."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cli

import robocache
from robocache import Misuse

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
NUMBERS = [3, 7, 8, 20]
FPS = 10
SPLIT = {"early": "0:2", "late": "2:4"}


def length(n: int) -> int:
    return 5 + n % 4


def lerobot(root: Path) -> Path:
    """A LeRobot v3.0 set. Each row of the state is (index of the episode, row)."""
    import pyarrow.parquet as pq

    lengths = [length(n) for n in NUMBERS]
    ends = np.cumsum(lengths).tolist()
    starts = [e - n for e, n in zip(ends, lengths, strict=True)]
    frame = np.concatenate([np.arange(n) for n in lengths])
    number = np.repeat(NUMBERS, lengths)
    state = pa.array(
        np.stack([number, frame], 1).astype(np.float32).tolist(), pa.list_(pa.float32())
    )
    vector = {"dtype": "float32", "shape": [2], "names": ["a", "b"]}
    whole = {"dtype": "int64", "shape": [1], "names": None}
    features = {
        "observation.state": vector,
        "action": vector,
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        "frame_index": whole,
        "episode_index": whole,
        "index": whole,
        "task_index": whole,
    }
    info = {
        "codebase_version": "v3.0",
        "robot_type": "toy",
        "total_episodes": len(NUMBERS),
        "total_frames": len(frame),
        "total_tasks": 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": SPLIT,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": features,
    }
    rows = {
        "observation.state": state,
        "action": state,
        "timestamp": pa.array((frame / FPS).astype(np.float32)),
        "frame_index": pa.array(frame),
        "episode_index": pa.array(number),
        "index": pa.array(np.arange(len(frame))),
        "task_index": pa.array(np.zeros(len(frame), np.int64)),
    }
    episodes = {
        "episode_index": NUMBERS,
        "tasks": [["stack"]] * 4,
        "length": lengths,
        "data/chunk_index": [0] * 4,
        "data/file_index": [0] * 4,
        "dataset_from_index": starts,
        "dataset_to_index": ends,
    }
    for name, table in {
        "data/chunk-000/file-000.parquet": rows,
        "meta/episodes/chunk-000/file-000.parquet": episodes,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), root / name)
    pd.DataFrame({"task_index": [0]}, index=pd.Index(["stack"], name="task")).to_parquet(
        root / "meta/tasks.parquet"
    )
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def robomimic(root: Path) -> Path:
    """A robomimic file with demo_3, demo_7, demo_8 and demo_20, and the masks early and late."""
    h5py = pytest.importorskip("h5py")
    root.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(root, "w") as f:
        f.create_group("data").attrs["env_args"] = json.dumps(
            {"env_name": "toy", "env_kwargs": {"control_freq": FPS}}
        )
        for n in NUMBERS:
            values = np.stack([np.full(length(n), n), np.arange(length(n))], 1).astype(np.float32)
            g = f.create_group(f"data/demo_{n}")
            g.attrs["num_samples"] = length(n)
            g["actions"], g["obs/state"] = values, values
        f["mask/early"], f["mask/late"] = (
            np.array([b"demo_3", b"demo_7"]),
            np.array([b"demo_8", b"demo_20"]),
        )
    return root


def groups(root: Path) -> Path:
    """An HDF5 file of no known layout, with a group for each episode."""
    h5py = pytest.importorskip("h5py")
    root.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(root, "w") as f:
        f.attrs["fps"] = float(FPS)
        for n in NUMBERS:
            values = np.stack([np.full(length(n), n), np.arange(length(n))], 1).astype(np.float32)
            f[f"traj_{n}/action"], f[f"traj_{n}/state"] = values, values
    return root


MAKERS = {
    "lerobot": (lerobot, "set"),
    "robomimic": (robomimic, "set.hdf5"),
    "hdf5": (groups, "set.h5"),
}


@pytest.fixture(scope="module", params=list(MAKERS))
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make, name = MAKERS[request.param]
    return make(tmp_path_factory.mktemp(request.param) / name)


def run(*args: Any, code: int = 0) -> Any:
    """Runs a verb and returns the JSON that it prints."""
    done = cli(*[str(a) for a in args], "--json")
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout.strip() else None


def refused(*args: Any) -> str:
    done = cli(*[str(a) for a in args])
    assert done.returncode == 2, (args, done.returncode, done.stdout, done.stderr)
    return done.stderr


def marks(uri: Any) -> list[int]:
    """Returns the first action value of each episode of a written set, which marks its source."""
    return [int(ep.streams["action"].values[0][0]) for ep in robocache.open(uri)]


def test_python_reads_by_index(odd: Path) -> None:
    ds = robocache.open(odd)
    assert (
        ds.episode_indices.tolist() == NUMBERS and ds.episodes["episode_index"].tolist() == NUMBERS
    )
    for position, n in enumerate(NUMBERS):
        ep = ds.episode(n)
        assert (ep.index, ep.position, ep.length) == (n, position, length(n)) and ep.meta[
            "episode_index"
        ] == n
        assert ep.streams["action"].values[0][0] == n and ds[position].index == n
        assert repr(ep).startswith(f"<robocache.Episode {n} of ")
    assert ds[-1].index == 20 and [e.index for e in ds] == NUMBERS
    for absent in (0, 4, 21, -1):
        with pytest.raises(Misuse) as e:
            ds.episode(absent)
        assert e.value.where["episode"] == absent
    with pytest.raises(IndexError if issubclass(Misuse, IndexError) else Misuse):
        ds[4]
    mean = ds.compute_stats(["action"], episodes=[20])["action"]["mean"]
    assert mean[0] == 20
    with pytest.raises(Misuse):
        ds.compute_stats(["action"], episodes=[4])
    train, val = ds.random_split(0.5, seed=1)
    assert sorted([*train.episode_indices.tolist(), *val.episode_indices.tolist()]) == NUMBERS
    again = train.random_split((1, 1), seed=2)
    assert (
        sorted(n for part in again for n in part.episode_indices.tolist())
        == train.episode_indices.tolist()
    )
    for part in (train, val):
        assert marks_of(part) == part.episode_indices.tolist()


def marks_of(ds: Any) -> list[int]:
    return [int(ep.streams["action"].values[0][0]) for ep in ds]


def test_samples_by_index(odd: Path) -> None:
    rows = [(n, k) for n in (7, 20) for k in range(length(n))]
    dataset = robocache.MapDataset(
        odd, episodes=[20, 7], keys=["action", "episode_index", "episode_id"]
    )
    assert [tuple(int(x) for x in np.asarray(s["action"])) for s in dataset] == rows
    assert [int(s["episode_index"]) for s in dataset] == [n for n, _ in rows] and [
        s["episode_id"] for s in dataset
    ] == [str(n) for n, _ in rows]
    with robocache.Loader(
        odd, episodes=[20, 7], keys=["action", "episode_index"], batch_size=4, seed=1
    ) as loader:
        got = [(int(n), int(k)) for b in loader for n, k in np.asarray(b["action"])]
        assert sorted(got) == sorted(rows)
        where = loader.locate(np.arange(len(rows)))
        assert sorted(zip(where.episode.tolist(), where.row.tolist(), strict=True)) == rows
    for absent in ([4], [3, 0], [-1]):
        with pytest.raises(Misuse):
            robocache.Loader(odd, episodes=absent, batch_size=2).order(0)
    with robocache.Loader(
        robocache.open(odd), hz=20, episodes=[8], keys=["action"], batch_size=64
    ) as loader:
        assert {int(n) for b in loader for n in np.asarray(b["action"])[:, 0]} == {8}


def test_bad_episodes_by_index(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = robomimic(tmp_path / "set.hdf5")
    with h5py.File(path, "r+") as f:
        del f["data/demo_8/obs/state"]
        f["data/demo_8/obs/state"] = np.zeros((2, 2), np.float32)  # too few rows
    with robocache.Loader(
        path,
        keys=["action", "observation.state"],
        batch_size=4,
        order=robocache.Order(on_bad_episode="skip"),
    ) as loader:
        seen = {int(n) for b in loader for n in np.asarray(b["action"])[:, 0]}
        bad = loader.stats()["bad_episodes"]
        state = loader.state_dict()
    assert seen == {3, 7, 20} and [b["episode"] for b in bad] == [8]
    with (
        pytest.raises(robocache.Malformed) as e,
        robocache.Loader(path, keys=["action", "observation.state"], batch_size=64) as loader,
    ):
        list(loader)
    assert e.value.where["episode"] == 8
    with robocache.Loader(
        path,
        keys=["action", "observation.state"],
        batch_size=4,
        order=robocache.Order(on_bad_episode="skip"),
    ) as loader:
        loader.load_state_dict(state)
        assert {int(n) for b in loader for n in np.asarray(b["action"])[:, 0]} <= {3, 7, 20}
    assert 8 in {f["where"].get("episode") for f in run("doctor", path, code=3)["findings"]}
    done = run("convert", path, tmp_path / "skipped", "--skip-bad", code=3)
    assert {f["where"]["episode"] for f in done["findings"] if f["code"] == "episode-skipped"} == {
        8
    }
    assert [(m["old_episode_index"], m["new_episode_index"]) for m in done["episodes"]] == [
        (3, 0),
        (7, 1),
        (8, -1),
        (20, 2),
    ]
    assert refused("stats", path, "--episodes", "4")
    assert (
        "episode 8"
        in cli("stats", str(path), "--episodes", "8", "--keys", "observation.state").stderr
    )
    run(
        "plan",
        "convert",
        path,
        tmp_path / "sharded",
        "--skip-bad",
        "--shards",
        2,
        "--manifest",
        tmp_path / "plan.json",
    )
    left = []
    for shard in range(2):
        left += (
            run(
                "run",
                "--manifest",
                tmp_path / "plan.json",
                "--shard",
                shard,
                code=0 if shard == 0 else 3,
            ).get("skipped")
            or []
        )
    assert [s["episode"] for s in left] == [8]


def test_looking_verbs(odd: Path, tmp_path: Path) -> None:
    report = run("inspect", odd, "--episode", 20)
    assert (
        report["episode_index"] == 20 and report["position"] == 3 and report["length"] == length(20)
    )
    assert cli("inspect", str(odd), "--episode", "20").stdout.startswith(
        f"episode 20: {length(20)} rows"
    )
    for verb in (
        ["inspect", odd, "--episode", 4],
        ["plot", odd, "--episode", 4, "-o", tmp_path / "x.png"],
        ["inspect", odd, "--episode", 4, "--contact-sheet", tmp_path / "x.png"],
    ):
        text = refused(*verb)
        assert "episode 4" in text and "3,7-8,20" in text, text
    assert run("plot", odd, "--episode", 8, "-o", tmp_path / "x.svg")["episode"] == 8
    assert run("stats", odd, "--episodes", "7-8,20", "--keys", "action")["action"]["count"] == [
        length(7) + length(8) + length(20)
    ]
    assert cli("doctor", str(odd), "--episodes", "3-8").returncode in (0, 3)
    for verb in ("doctor", "stats"):
        assert "3,7-8,20" in refused(verb, odd, "--episodes", "4")
        assert "0,3,5-9" in refused(verb, odd, "--episodes", "3-x")


def test_converting_verbs(odd: Path, tmp_path: Path) -> None:
    for to, name in (
        ("lerobot", "set"),
        ("mcap", "set"),
        ("zarr", "set.zarr"),
        ("robomimic", "set.hdf5"),
        ("rlds", "rlds"),
    ):
        out = tmp_path / to / name
        done = cli("convert", str(odd), str(out), "--to", to, "--episodes", "20,3-7")
        assert done.returncode in (0, 3) and robocache.open(out).episode_indices.tolist() == [
            0,
            1,
            2,
        ], (to, done.stderr)
    assert marks(tmp_path / "lerobot" / "set") == [20, 3, 7]
    assert "3,7-8,20" in refused("convert", odd, tmp_path / "none", "--episodes", "4")
    assert not (tmp_path / "none").exists()
    manifest = tmp_path / "plan.json"
    run(
        "plan",
        "convert",
        odd,
        tmp_path / "sharded",
        "--episodes",
        "7-20",
        "--shards",
        2,
        "--manifest",
        manifest,
    )
    assert ",".join(s["episodes"] for s in json.loads(manifest.read_text())["shards"]) in (
        "7-8,20",
        "7,8,20",
    )
    for shard in range(2):
        run("run", "--manifest", manifest, "--shard", shard)
    # exit code 3: doctor finds that the set has no state
    assert cli("commit", "--manifest", str(manifest)).returncode in (0, 3)
    assert marks(tmp_path / "sharded") == [7, 8, 20]
    assert "no such episode" in refused(
        "plan", "convert", odd, tmp_path / "n", "--episodes", "4", "--manifest", manifest
    )


def test_editing_verbs(odd: Path, tmp_path: Path) -> None:
    names = iter(range(100))

    def edit(*args: Any) -> list[int]:
        out = tmp_path / f"out{next(names)}{odd.suffix and '.hdf5'}"
        verb, *rest = args
        run("edit", verb, odd, out, *rest)
        return marks(out)

    assert edit("delete", "--episodes", 7) == [3, 8, 20]
    assert edit("delete", "--episodes", "3-8") == [20]
    assert edit("keep", "--episodes", "20,3") == [20, 3]
    assert edit("keep", "--where", "index > 7") == [8, 20]
    assert edit("trim", "--from", "4r", "--episodes", 8, "--cut", "exact") == NUMBERS
    assert "3,7-8,20" in refused("edit", "delete", odd, tmp_path / "x", "--episodes", 4)
    assert "episode 4" in refused("edit", "keep", odd, tmp_path / "x", "--episodes", "3,4")
    out = tmp_path / "parts"
    run("edit", "split", odd, out, "--into", "train=3-8", "--into", "val=20-20")
    parts = {p.name.split(".")[0]: marks(p) for p in out.iterdir()}
    assert parts == {"train": [3, 7, 8], "val": [20]}
    # The verbs of one Edit refer to the original episode indices.
    two = tmp_path / f"two{odd.suffix and '.hdf5'}"
    robocache.edit.Edit([odd]).delete([3]).keep([20, 7]).write(two)
    assert marks(two) == [20, 7]
    flags = tmp_path / "flags.json"
    flags.write_text("[8, 20]")
    assert edit("delete", "--flags", flags) == [3, 7]
    if odd.suffix == "":
        run("edit", "relabel", odd, tmp_path / "named", "--rows", "8:0-2=pick")
        assert [ep.tasks[0] for ep in robocache.open(tmp_path / "named")] == [
            "stack",
            "stack",
            "pick",
            "stack",
        ]


def test_splits_do_not_renumber(tmp_path: Path) -> None:
    for make, name in (MAKERS["lerobot"], MAKERS["robomimic"]):
        odd = make(tmp_path / name)
        late = robocache.open(odd, split="late")
        assert (
            late.episode_indices.tolist() == [8, 20]
            and late.episode(20).streams["action"].values[0][0] == 20
        )
        with pytest.raises(Misuse):
            late.episode(3)
        with robocache.Loader(late, episodes=[8], keys=["action"], batch_size=64) as loader:
            assert {int(n) for b in loader for n in np.asarray(b["action"])[:, 0]} == {8}
        assert run("inspect", odd, "--split", "late", "--episode", 20)["episode_index"] == 20
        assert "8,20" in refused("inspect", odd, "--split", "late", "--episode", 3)
        assert "8,20" in refused("doctor", odd, "--split", "late", "--episodes", 3)
        out = tmp_path / f"late-{name}"
        run("convert", odd, out, "--split", "late", "--episodes", "20")
        assert marks(out) == [20]
        run("edit", "delete", odd, tmp_path / f"cut-{name}", "--split", "late", "--episodes", "8")
        assert marks(tmp_path / f"cut-{name}") == [20]


def test_lerobot_class_by_index(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from robocache.lerobot import LeRobotDataset

    odd = lerobot(tmp_path / "set")
    ds = LeRobotDataset("toy/set", root=odd, episodes=[20, 7])
    assert ds.num_episodes == 2 and sorted(
        {int(ds[i]["episode_index"]) for i in range(len(ds))}
    ) == [7, 20]
    assert [int(ds[i]["observation.state"][0]) for i in range(len(ds))] == [7] * length(7) + [
        20
    ] * length(20)
    with pytest.raises(Misuse):
        LeRobotDataset("toy/set", root=odd, episodes=[4])


def test_view_by_index(odd: Path) -> None:
    import urllib.error
    import urllib.request

    view = robocache.open(odd).view()
    try:
        base, token = view.url.split("#token=") if "#token=" in view.url else (view.url, "")
        base = base.split("#")[0].rstrip("/")
        jar = urllib.request.HTTPCookieProcessor()
        opener = urllib.request.build_opener(jar)

        def ask(path: str, body: Any = None) -> Any:
            request = urllib.request.Request(
                f"{base}/api/{path}",
                None if body is None else json.dumps(body).encode(),
                {"Content-Type": "application/json", "Origin": base},
            )
            return json.loads(opener.open(request).read())

        if token:
            request = urllib.request.Request(
                f"{base}/login",
                json.dumps({"token": token}).encode(),
                {"Content-Type": "application/json", "Origin": base},
            )
            opener.open(request).read()
        assert ask("info")["datasets"][0]["episode_index"] == NUMBERS
        flags = ask("flags", {"episode": 8, "label": "bad"})
        assert [(f["episode_index"], f["length"]) for f in flags["flags"]] == [(8, length(8))]
        with pytest.raises(urllib.error.HTTPError):
            ask("flags", {"episode": 4, "label": "bad"})
        with pytest.raises(urllib.error.HTTPError):
            opener.open(f"{base}/api/e/4?s=0")
        opener.open(f"{base}/api/e/20?s=0").read()
    finally:
        view.close()
