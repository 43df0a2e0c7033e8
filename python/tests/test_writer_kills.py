"""robocache.Writer keeps what it reported as saved if its process dies or the disk is full."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import robocache
from conftest import ROOT
from recorded import FEATURES, H, W, check, record

LOOP = """
import sys
sys.path[:0] = [{tests!r}, {python!r}]
from recorded import FEATURES, record
import robocache
w = robocache.Writer(sys.argv[1], fps=30, features=FEATURES, gop=2, video_codec="h264")
print(w.num_episodes, flush=True)
while True:
    record(w, w.num_episodes, 3)
    print("saved", w.num_episodes, flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """20 kill -9 of one recording lose no episode that was reported as saved.

    The next Writer resumes after the saved episodes.
    """
    path, saved, rng = tmp_path / "set", 0, random.Random(7)
    text = LOOP.format(tests=str(Path(__file__).parent), python=str(ROOT / "python"))
    kills = 0
    for round in range(60):
        if kills >= 20 and saved > 5:  # a loaded machine saves little in 0.6 s
            break
        p = subprocess.Popen(
            [sys.executable, "-c", text, str(path)], stdout=subprocess.PIPE, text=True
        )
        begun = int(p.stdout.readline())
        assert begun in (saved, saved + 1), (round, begun, saved)
        saved = begun
        first = p.stdout.readline() if round == 0 else ""
        time.sleep(rng.random() * 0.6)
        p.kill()
        lines = first + p.stdout.read()
        p.wait()
        kills += 1
        said = [
            int(x.split()[1])
            for x in lines.splitlines()
            if x.startswith("saved") and len(x.split()) == 2
        ]
        saved = said[-1] if said else saved
        ds = robocache.open(path)
        assert ds.num_episodes in (saved, saved + 1)
        assert ds.episodes["lengths"].tolist() == [3] * ds.num_episodes
        last = ds[-1].streams
        assert last["observation.state"].values[2].tolist() == [ds.num_episodes - 1, 2, 0.5]
        assert last["observation.images.front"].frames([2]).shape == (1, 3, H, W)
    assert kills >= 20 and saved > 5
    with robocache.Writer(path) as w:
        record(w, w.num_episodes, 3)
        n = w.num_episodes
    check(path, [3] * n, offset=6)
    found = robocache.doctor(path)
    assert not found.errors and not found.warnings, found.findings
    assert sorted(p.name for p in path.iterdir()) == ["README.md", "data", "meta", "videos"]


@pytest.mark.slow
def test_killed_while_it_comes_into_place(tmp_path: Path) -> None:
    """A recorder dies between two renames of a save.

    A reader finds whole episodes, and the next Writer completes the save.
    """
    lerobot = pytest.importorskip(
        "lerobot.datasets.lerobot_dataset", reason="lerobot is not installed"
    )
    two, three = tmp_path / "two", tmp_path / "three"
    with robocache.Writer(two, 30, FEATURES) as w:
        record(w, 0, 3)
        record(w, 1, 4)
        shutil.copytree(two, tmp_path / "base", ignore=shutil.ignore_patterns(".robocache*"))
        record(w, 2, 5)
        shutil.copytree(two, three, ignore=shutil.ignore_patterns(".robocache*"))
    order = [
        "videos/",
        "data/",
        "meta/episodes/",
        "meta/tasks.parquet",
        "README.md",
        "meta/stats.json",
        "meta/recording.json",
        "meta/info.json",
    ]
    files = sorted(
        (str(p.relative_to(three)) for p in three.rglob("*") if p.is_file()),
        key=lambda f: next(i for i, o in enumerate(order) if f.startswith(o)),
    )
    for n in range(len(files) + 1):
        path = tmp_path / f"cut{n}"
        shutil.copytree(tmp_path / "base", path)
        whole = path / ".robocache-recording" / "whole"
        for i, f in enumerate(files):
            to = (path if i < n else whole) / f
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(three / f, to)
        ds = lerobot.LeRobotDataset("a/b", root=path)
        assert len(ds) == (12 if n == len(files) else 7)
        assert ds[6]["observation.state"].tolist() == [1, 3, 0.75]
        assert robocache.open(path).episodes["lengths"].tolist() in ([3, 4], [3, 4, 5])
        with robocache.Writer(path) as w:
            assert w.num_episodes == 3
            record(w, 3, 2)
        check(path, [3, 4, 5, 2])
        assert not robocache.doctor(path).findings


DELETING = """
import sys
sys.path[:0] = [{tests!r}, {python!r}]
from recorded import FEATURES, record
import robocache
w = robocache.Writer(sys.argv[1], fps=30, features=FEATURES, gop=2, video_codec="h264")
print(w.num_episodes, flush=True)
record(w, w.num_episodes, 3)
while True:
    record(w, w.num_episodes, 3)
    print("saved", w.num_episodes, flush=True)
    record(w, 9, 4)
    w.delete_last_episode()
    print("saved", w.num_episodes, flush=True)
"""


@pytest.mark.slow
def test_killed_while_episodes_are_deleted(tmp_path: Path) -> None:
    path, saved, rng = tmp_path / "set", 0, random.Random(11)
    text = DELETING.format(tests=str(Path(__file__).parent), python=str(ROOT / "python"))
    for round in range(12):
        p = subprocess.Popen(
            [sys.executable, "-c", text, str(path)], stdout=subprocess.PIPE, text=True
        )
        begun = int(p.stdout.readline())
        assert begun >= saved
        first = p.stdout.readline()
        time.sleep(rng.random() * 0.5)
        p.kill()
        lines = first + p.stdout.read()
        p.wait()
        said = [
            int(x.split()[1])
            for x in lines.splitlines()
            if x.startswith("saved") and len(x.split()) == 2
        ]
        saved = said[-1] if said else saved
        ds = robocache.open(path)
        lengths = ds.episodes["lengths"].tolist()
        assert saved <= len(lengths) <= saved + 2 and lengths[:saved] == [3] * saved
        with robocache.Writer(path) as w:  # completes the interrupted save
            n = w.num_episodes
        ds = robocache.open(path)
        assert ds.num_episodes == n
        for e in range(n):
            k, s = ds.episodes["lengths"][e], ds.episode(e).streams
            assert k == 3 or e == n - 1 and k == 4  # the process died before the deletion began
            assert s["observation.state"].values[:, 0].tolist() == [e if k == 3 else 9] * k
            assert s["observation.images.front"].frames([k - 1]).shape == (1, 3, H, W)
        if k == 4:
            shutil.rmtree(path)
            saved = 0
            continue
        found = robocache.doctor(path)
        assert not found.errors and not found.warnings, found.findings
        saved = n


FULL = """
import os, subprocess, sys
sys.path[:0] = [{tests!r}, {python!r}]
from pathlib import Path
import numpy as np
import robocache
from recorded import FEATURES, check, record, row
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", sys.argv[1]], check=True)
path = Path(sys.argv[1]) / "set"
with robocache.Writer(path, 30, FEATURES) as w:
    record(w, 0, 4)
    block = Path(sys.argv[1]) / "block"
    with open(block, "wb", buffering=0) as f:  # fills the disk
        try:
            while f.write(b"x" * 4096): pass
        except OSError: pass
    for k in range(5): w.add_frame(row(1, k), "task 1")
    for _ in range(2):
        try: w.save_episode()
        except robocache.ResourceLimit as e: print("full", type(e).__name__, flush=True)
    check(path, [4])
    block.unlink()
    try: w.save_episode()
    except robocache.ResourceLimit:  # the encoder could not write its file
        w.discard_episode()
        record(w, 1, 5)
    record(w, 2, 3)
check(path, [4, 5, 3])
print("done")
"""


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    text = FULL.format(tests=str(Path(__file__).parent), python=str(ROOT / "python"))
    unshared = ["unshare", "--mount", "--map-root-user"]
    if (
        subprocess.run(
            [*unshared, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True
        ).returncode
        != 0
    ):
        pytest.skip("this user cannot mount a small disk (unshare --mount)")
    done = subprocess.run(
        [*unshared, sys.executable, "-c", text, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.split() == ["full", "ResourceLimit", "full", "ResourceLimit", "done"], (
        done.stderr
    )
