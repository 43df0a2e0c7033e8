"""Loaders that follow a dataset while it is recorded: robocache.Follow."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import robocache
from conftest import ROOT

FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (2,)},
    "success": {"dtype": "bool", "shape": (1,)},
    "policy": {"dtype": "int64", "shape": (1,)},
}
LONG = os.environ.get("ROBOCACHE_KILLS")  # The number of kills of each loop; else a few.
KILLS = int(LONG or 6)


def record(w: robocache.Writer, n: int) -> None:
    """Records an episode of n rows whose values name episode and row."""
    e = w.num_episodes
    for k in range(n):
        w.add_frame(
            {
                "observation.state": np.array([e, k], np.float32),
                "success": np.array([e % 3 != 1]),
                "policy": np.array([e // 2]),
            },
            task="t",
        )
    w.save_episode()


def follow(path: Path, **options: Any) -> robocache.Loader:
    rule = {k: options.pop(k) for k in list(options) if k in robocache.Follow.__dataclass_fields__}
    options.setdefault("keys", ["observation.state", "episode_index", "index"])
    return robocache.Loader(
        path, batch_size=4, threads=1, follow=robocache.Follow(**rule), **options
    )


def rows_of(batch: dict[str, Any]) -> list[tuple[int, int]]:
    state = np.asarray(batch["observation.state"]).astype(int)
    assert (state[:, 0] == np.asarray(batch["episode_index"]).ravel()).all()
    return [tuple(row) for row in state.tolist()]


def epoch_of(loader: robocache.Loader) -> list[tuple[int, int]]:
    return [row for batch in loader for row in rows_of(batch)]


def all_rows(lengths: list[int]) -> list[tuple[int, int]]:
    return [(e, k) for e, n in enumerate(lengths) for k in range(n)]


def test_episodes_of_a_writer_enter(tmp_path: Path) -> None:
    """Episodes that a Writer of this process saves enter at the next epoch, each row once."""
    lengths = [5, 6]
    with robocache.Writer(tmp_path / "set", 10, FEATURES) as w:
        for n in lengths:
            record(w, n)
        with follow(tmp_path / "set") as loader:
            assert len(loader) == 3 and loader.num_samples == 11
            for n in (7, 3, 9):
                rows = []
                for i, batch in enumerate(loader):
                    rows += rows_of(batch)
                    if i == 1:
                        record(w, n)
                assert sorted(rows) == all_rows(lengths)
                lengths.append(n)
            assert sorted(epoch_of(loader)) == all_rows(lengths)
            assert loader.num_samples == sum(lengths)
            told = loader.stats()["follow"]
            assert told["arrivals"] == told["episodes"] == 5 and told["boundary"] == 3
    assert (tmp_path / "set.arrivals.log").exists()
    assert robocache.doctor(tmp_path / "set").errors == 0


def test_same_log_gives_the_same_batches(tmp_path: Path) -> None:
    """A second loader of the run, with more episodes on disk, repeats the first."""
    with robocache.Writer(tmp_path / "set", 10, FEATURES) as w:
        record(w, 5)
        options = {"run": "a", "seed": 3, "recency": 2.0, "capacity": 4}
        first = follow(tmp_path / "set", **options)
        want = []
        for n in (6, 7, 8, 5, 6):
            want.append(epoch_of(first))
            record(w, n)
        again = follow(tmp_path / "set", **options)
        assert [epoch_of(again) for _ in want] == want


def test_resume_at_every_step(tmp_path: Path) -> None:
    """A state of any step continues exactly, across boundaries and after more arrivals."""
    with robocache.Writer(tmp_path / "set", 10, FEATURES) as w:
        record(w, 5)
        record(w, 6)
        options = {"at": "step", "every": 2, "normalize": {"observation.state": "mean_std"}}
        options["statistics"] = robocache.Statistics(compute=True)
        loader = follow(tmp_path / "set", **options)
        states, batches = [], []
        for epoch in range(4):
            for batch in loader:
                batches.append(np.asarray(batch["observation.state"]))
                states.append(json.loads(json.dumps(loader.state_dict())))
            record(w, 7)
        for i, state in enumerate(states[:-1]):
            resumed = follow(tmp_path / "set", **options)
            resumed.load_state_dict(state)
            assert repr(resumed.normalizer.state_dict()) == repr(loader.normalizer.state_dict())
            got = []
            while len(got) < len(batches) - i - 1:
                got += [np.asarray(b["observation.state"]) for b in resumed]
            for a, b in zip(got, batches[i + 1 :]):
                np.testing.assert_array_equal(a, b)
            resumed.close()


def test_rules_against_numpy(tmp_path: Path) -> None:
    """The rows of each episode in an epoch are those that NumPy computes from the rule."""
    lengths = np.array([6, 8, 5, 9, 7, 6, 10, 8])
    with robocache.Writer(tmp_path / "set", 10, FEATURES) as w:
        for n in lengths:
            record(w, int(n))
    episodes = np.arange(len(lengths))
    passes = episodes % 3 != 1
    version = episodes // 2

    def reference(keep: np.ndarray, age: np.ndarray | None = None, half: float = 1) -> dict:
        weight = np.ones(len(episodes)) if age is None else np.exp2(-age / half)
        draws = np.maximum(np.floor(weight * lengths + 0.5), 1).astype(int)
        return {int(e): int(draws[e]) for e in episodes[keep]}

    newest_three = passes & (episodes >= episodes[passes][-3])
    later = np.array([(passes & (episodes > e)).sum() for e in episodes])
    for rule, want in [
        ({}, reference(episodes >= 0)),
        ({"where": "min(success) > 0"}, reference(passes)),
        ({"where": "min(success) > 0", "capacity": 3}, reference(newest_three)),
        ({"where": "min(success) > 0", "recency": 2.0}, reference(passes, later, 2)),
        ({"version": "policy", "version_lag": 1}, reference(version >= 2)),
        (
            {"version": "policy", "recency": 1.5, "recency_unit": "versions"},
            reference(episodes >= 0, version.max() - version, 1.5),
        ),
    ]:
        with follow(tmp_path / "set", **rule) as loader:
            assert Counter(e for e, _ in epoch_of(loader)) == want, rule


def test_folder_of_recordings(tmp_path: Path) -> None:
    """Recordings enter when they are complete. One that sorts before the others shifts nothing."""
    source = _recorded(tmp_path / "source", [5, 6, 7, 8])
    files = {}
    for e in range(4):
        to = tmp_path / f"r{e}.mcap"
        robocache.convert(
            source,
            to,
            to="mcap",
            episodes=[e],
        )
        files[e] = to.read_bytes()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "m.mcap").write_bytes(files[0])
    (folder / "n.mcap").write_bytes(files[1])
    keys = ["observation.state", "episode_index", "episode_id"]
    loader = robocache.Loader(folder, batch_size=4, threads=1, keys=keys, follow=True)

    def counts() -> dict[tuple[int, int], int]:
        """Returns the rows of each (episode as recorded, index that the loader gives it)."""
        found: Counter = Counter()
        for batch in loader:
            state = np.asarray(batch["observation.state"]).astype(int)
            for e, i in zip(state[:, 0], np.asarray(batch["episode_index"]).ravel()):
                found[int(e), int(i)] += 1
        return dict(found)

    state = loader.state_dict()
    assert counts() == {(0, 0): 5, (1, 1): 6}
    (folder / "a.mcap").write_bytes(files[2][: len(files[2]) * 2 // 3])  # A recorder is at work.
    assert counts() == {(0, 0): 5, (1, 1): 6}
    assert "a.mcap" in loader.stats()["follow"]["waiting"][0]
    (folder / "a.mcap").write_bytes(files[2])
    assert counts() == {(0, 0): 5, (1, 1): 6, (2, 2): 7}
    (folder / "0.mcap").write_bytes(files[3])
    assert counts() == {(0, 0): 5, (1, 1): 6, (2, 2): 7, (3, 3): 8}
    loader.load_state_dict(state)
    assert counts() == {(0, 0): 5, (1, 1): 6}
    located = loader.locate(loader.order(0))
    assert sorted(set(located.episode.tolist())) == [0, 1]
    (folder / "m.mcap").write_bytes(files[3])
    loader.set_epoch(9)
    with pytest.raises(robocache.Malformed, match="changed"):
        next(iter(loader))


def _recorded(path: Path, lengths: list[int]) -> Path:
    with robocache.Writer(path, 10, FEATURES) as w:
        for n in lengths:
            record(w, n)
    return path


@pytest.mark.slow
def test_recorder_of_lerobot(tmp_path: Path) -> None:
    """Episodes of lerobot's recorder enter when its session is finalized, with video."""
    lerobot = pytest.importorskip(
        "lerobot.datasets.lerobot_dataset", reason="lerobot is not installed"
    )
    path = tmp_path / "set"
    features = {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["e", "k"]},
        "observation.images.top": {
            "dtype": "video",
            "shape": (64, 96, 3),
            "names": ["height", "width", "channels"],
        },
    }
    count = 0

    def session(ds: Any, lengths: list[int]) -> None:
        nonlocal count
        for n in lengths:
            for k in range(n):
                image = np.full((64, 96, 3), 20 * count + 2 * k, np.uint8)
                ds.add_frame(
                    {
                        "observation.state": np.array([count, k], np.float32),
                        "observation.images.top": image,
                        "task": "t",
                    }
                )
            ds.save_episode()
            count += 1

    def check_epoch(loader: robocache.Loader, lengths: list[int]) -> None:
        rows = []
        for batch in loader:
            rows += rows_of(batch)
            level = np.asarray(batch["observation.images.top"]).mean(axis=(1, 2, 3))
            state = np.asarray(batch["observation.state"])
            assert np.abs(level - (20 * state[:, 0] + 2 * state[:, 1])).max() < 4
        assert sorted(rows) == all_rows(lengths)

    ds = lerobot.LeRobotDataset.create("a/b", 10, features, root=path, use_videos=True)
    session(ds, [5, 4])
    ds.finalize()
    keys = ["observation.state", "observation.images.top", "episode_index"]
    loader = follow(path, keys=keys, seed=1)
    check_epoch(loader, [5, 4])
    ds = lerobot.LeRobotDataset.resume("a/b", root=path)
    ds.meta._metadata_buffer_size = 1  # As after ten episodes: the file is there, without footer.
    session(ds, [6])
    check_epoch(loader, [5, 4])  # The session is not finalized: its files have no footer yet.
    state = loader.state_dict()
    session(ds, [3])
    check_epoch(loader, [5, 4])
    with pytest.raises(robocache.Malformed):
        len(robocache.open(path))  # lerobot has begun the next file of metadata.
    with follow(path, keys=keys) as during:  # A trainer that begins within the session.
        check_epoch(during, [5, 4])
    ds.finalize()
    check_epoch(loader, [5, 4, 6, 3])
    resumed = follow(path, keys=keys, seed=1)
    resumed.load_state_dict(state)
    check_epoch(resumed, [5, 4])


TRAINER = """
path, state_file = sys.argv[2:4]
loader = robocache.Loader(path, batch_size=4, threads=1, seed=2, keys=["observation.state"],
    follow=robocache.Follow(at="step", every=3, recency=3.0, capacity=8))
if os.path.exists(state_file):
    loader.load_state_dict(json.load(open(state_file))["state"])
print("ready", flush=True)
while True:
    for batch in loader:
        step = [[int(v) for v in row] for row in np.asarray(batch["observation.state"])]
        # One file holds the state and the step before it: both are there, or neither.
        done = json.load(open(state_file))["done"] if os.path.exists(state_file) else []
        with open(state_file + ".new", "w") as f:
            json.dump({"state": loader.state_dict(), "done": [*done, step]}, f)
        os.replace(state_file + ".new", state_file)
"""

RECORDER = """
w = robocache.Writer(sys.argv[2], 10, FEATURES)
print("ready", flush=True)
while True:
    record(w, 3 + w.num_episodes % 4)
    print("saved", w.num_episodes, flush=True)
"""

# Runs a program in a fork for each line of its input. It never loads the engine itself, and imports
# everything once, without torch, whose import takes longer than the rest.
FORKER = """
import json, os, sys
sys.path[:0] = [{tests!r}, {python!r}]
sys.modules["torch"] = None
import numpy as np
from test_follow import FEATURES, record
import robocache
program = compile(sys.argv[1], "program", "exec")
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        exec(program)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("", "ended", sep="\\n", flush=True)
"""


class Forker:
    """Starts and kills processes that run a program."""

    def __init__(self, program: str, *args: Any) -> None:
        text = FORKER.format(tests=str(Path(__file__).parent), python=str(ROOT / "python"))
        self._driver = subprocess.Popen(
            [sys.executable, "-c", text, program, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        """Starts a process, and returns when it is ready."""
        self._driver.stdin.write("start\n")
        self._driver.stdin.flush()
        told = {self._driver.stdout.readline().strip() for _ in range(2)}
        self._pid = int((told - {"ready"}).pop())
        assert "ready" in told, told

    def kill(self) -> list[str]:
        """Kills the process and returns the lines that it wrote."""
        os.kill(self._pid, signal.SIGKILL)
        lines = list(iter(self._driver.stdout.readline, "ended\n"))
        return [x.strip() for x in lines if x.endswith("\n")]

    def close(self) -> None:
        self._driver.stdin.close()
        assert self._driver.wait() == 0


@pytest.mark.slow
def test_killed_recorders_lose_no_episode(tmp_path: Path) -> None:
    """Recorders are killed at random moments while a loader of this process follows them.

    Every epoch holds whole episodes only, and all that were reported as saved before it.
    """
    path, rng, kills, saved = _recorded(tmp_path / "set", [3]), random.Random(1), 0, 1
    loader = follow(path, capacity=30)
    recorder = Forker(RECORDER, path)
    for _ in range(KILLS):
        recorder.start()
        time.sleep(rng.random() * 0.4)
        rows = epoch_of(loader)  # While the recorder works.
        lines = [x.split() for x in recorder.kill()]
        said = [int(x[1]) for x in lines if len(x) == 2 and x[0] == "saved" and x[1].isdigit()]
        kills, saved = kills + 1, max([saved, *said])
        for rows in (rows, epoch_of(loader)):
            counts = Counter(e for e, _ in rows)
            for e, n in counts.items():
                assert n == (3 if e == 0 else 3 + e % 4), (kills, e, n)
            assert len(rows) == len(set(rows))
        assert max(counts) >= saved - 1, (kills, saved, max(counts))
        assert loader.stats()["follow"].get("failures", 0) == 0, loader.stats()["follow"]
    recorder.close()
    assert kills == KILLS and saved > KILLS // 4


@pytest.mark.slow
def test_killed_trainers_resume_exactly(tmp_path: Path) -> None:
    """Trainers are killed at random moments while episodes arrive. Their steps are one sequence.

    It is the one that a single loader of the same run delivers from the same log.
    """
    path, rng, stop = _recorded(tmp_path / "set", [3, 4]), random.Random(2), threading.Event()
    state_file = tmp_path / "state.json"

    def record_slowly() -> None:
        with robocache.Writer(path) as w:
            while not stop.wait(0.15):
                record(w, 3 + w.num_episodes % 4)

    recorder = threading.Thread(target=record_slowly)
    recorder.start()
    trainer = Forker(TRAINER, path, state_file)
    try:
        for _ in range(KILLS):
            trainer.start()
            time.sleep(rng.random() * 0.3)
            trainer.kill()
        trainer.start()
        wait_until = time.time() + 60
        while time.time() < wait_until and not state_file.exists():
            time.sleep(0.1)
        trainer.kill()
    finally:
        stop.set()
        recorder.join()
    trainer.close()
    saved = json.loads(state_file.read_text())
    steps = saved["done"]
    whole = robocache.Loader(
        path,
        batch_size=4,
        threads=1,
        seed=2,
        keys=["observation.state"],
        follow=robocache.Follow(
            at="step", every=3, recency=3.0, capacity=8, run=saved["state"]["follow"]["run"]
        ),
    )
    got: list[Any] = []
    while len(got) < len(steps):
        got += [np.asarray(b["observation.state"]).astype(int).tolist() for b in whole]
    assert got[: len(steps)] == steps
    assert len(steps) >= KILLS // 2
    last = max(e for step in steps[-3:] for e, _ in step)
    assert KILLS < 50 or last > 20  # Episodes entered during the run.


def test_wrong_use(tmp_path: Path) -> None:
    path = _recorded(tmp_path / "set", [4, 5])
    with pytest.raises(robocache.Misuse, match="every"):
        follow(path, at="step")
    with pytest.raises(robocache.Misuse, match="recency"):
        follow(path, recency=-1)
    with pytest.raises(robocache.Misuse, match="fixed set"):
        follow(path, episodes=[0])
    with pytest.raises(robocache.Misuse, match="no stream of numbers"):
        follow(path, where="nothing > 1")
    with pytest.raises(robocache.Misuse, match="all ranks"):
        follow(path, rank=0, world_size=2)
    with pytest.raises(robocache.Temporary, match="rank 0"):
        follow(path, rank=1, world_size=2, run="a", timeout_s=0.2)
    with pytest.raises(robocache.Unsupported, match="mixture"):
        robocache.Loader([path, path], follow=True)
    with pytest.raises(robocache.Temporary, match="keeps none"):
        follow(path, where="length > 100")
    with pytest.raises(robocache.Misuse):
        robocache.Loader(path, follow="yes")
    with pytest.raises(robocache.Misuse, match="follow"):
        robocache.Loader(path, statistics=robocache.Statistics(refresh=True))
    with pytest.raises(robocache.Unsupported, match="derived"):
        follow(path, derive={"x": lambda s: s["observation.state"]}, keys=["x"])
    fixed = robocache.Loader(path, batch_size=4)
    with pytest.raises(robocache.Misuse, match="follow"):
        follow(path).load_state_dict(fixed.state_dict())
    with pytest.raises(robocache.Misuse, match="follow"):
        fixed.load_state_dict(follow(path).state_dict())
