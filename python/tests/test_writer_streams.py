"""robocache.Writer with streams that have rates of their own."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import robocache
from conftest import ROOT
from recorded import H, W, image

NATIVE = {
    "joints": {"dtype": "float32", "shape": (2,), "names": ["a", "b"], "hz": 100},
    "force": {"dtype": "float64", "shape": (1,), "hz": 250},
    "action": {"dtype": "float32", "shape": (2,)},
    "cam": {"dtype": "video", "shape": (H, W, 3)},
}


def native(w: robocache.Writer, e: int, n: int, start: float = 1000.0) -> None:
    """Records joints at 100 Hz and a force at 250 Hz with rows at 30 Hz.

    All timestamps are on one clock that begins at start.
    """
    at = {"joints": 0, "force": 0}
    for k in range(n):
        t = start + k / 30
        for key, hz in (("joints", 100), ("force", 250)):
            while start + at[key] / hz <= t:
                j = at[key]
                w.add(
                    key,
                    [e, j] if key == "joints" else 1e-3 * j,
                    time_ns=round(start * 1e9) + j * 10**9 // hz,
                )
                at[key] += 1
        w.add_frame({"action": [e, k], "cam": image(e, k)}, "t", time=t)
    w.save_episode()


def check_native(path: Path, lengths: list[int]) -> None:
    ds = robocache.open(path)
    assert ds.episodes["lengths"].tolist() == lengths
    names = sorted(p.name for p in (path / "recordings").iterdir())
    assert names == [f"episode_{e:06d}.mcap" for e in range(len(lengths))]
    whole = robocache.open(path / "recordings")
    assert whole.num_episodes == len(lengths)
    for e, n in enumerate(lengths):
        rows = ds.episode(e).streams
        # the last sample at or before the row
        want = [int((k / 30 + 1e-9) * 100) for k in range(n)]
        assert rows["joints"].values[:, 1].tolist() == want
        assert rows["joints"].values[:, 0].tolist() == [e] * n
        np.testing.assert_array_equal(
            rows["force"].values.ravel(), [1e-3 * int((k / 30 + 1e-9) * 250) for k in range(n)]
        )
        for one in (robocache.open(path / "recordings" / names[e]).episode(0), whole.episode(e)):
            j = one.streams["joints"]
            assert j.times.tolist() == [10**12 + k * 10**7 for k in range(want[-1] + 1)]
            assert j.values[:, 1].tolist() == list(range(want[-1] + 1))
            assert one.streams["frame_index"].values.ravel().tolist() == list(range(n))
            # timestamps are float seconds
            assert (
                abs(one.streams["frame_index"].times - (10**12 + np.arange(n) * 1e9 / 30)).max()
                < 200
            )


@pytest.mark.slow
def test_streams_at_rates_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "set"
    with robocache.Writer(path, 30, NATIVE) as w:
        assert w.streams == {"joints": 100, "force": 250}
        with pytest.raises(robocache.Misuse, match="no sample at or before"):
            w.add_frame({"action": [0, 0], "cam": image(0, 0)}, "t", time=1.0)
        with pytest.raises(robocache.Misuse, match="time_ns="):
            w.add_frame({"action": [0, 0], "cam": image(0, 0)}, "t")
        with pytest.raises(robocache.Misuse, match="no rate of its own"):
            w.add("action", [0, 0], 1.0)
        with pytest.raises(robocache.Misuse, match="shape"):
            w.add("joints", [0, 0, 0], 1.0)
        with pytest.raises(robocache.Misuse, match="element 1 \\(b\\) is NaN"):
            w.add("joints", [0, np.nan], 1.0)
        with pytest.raises(robocache.Misuse, match="years") as e:
            w.add("joints", [0, 0], 1.7e18)
        assert "time_ns=" in e.value.hint
        with pytest.raises(
            robocache.Misuse, match="time: expected a time of at least 0 ns, found -2000000000 ns"
        ):
            w.add("joints", [0, 0], -2.0)
        with pytest.raises(
            robocache.Misuse, match="time: expected a time of at least 0 ns, found -1 ns"
        ):
            w.add_frame({"action": [0, 0], "cam": image(0, 0)}, "t", time_ns=-1)
        w.add("joints", [0, 0], 2.0)
        with pytest.raises(robocache.Misuse, match="after the last sample"):
            w.add("joints", [0, 0], 2.0)
        w.add("force", 0, 2)
        with pytest.raises(robocache.Misuse, match="rate of its own") as e:
            w.add_frame({"action": [0, 0], "cam": image(0, 0), "joints": [0, 0]}, "t", time=2.0)
        w.add_frame({"action": [0, 0], "cam": image(0, 0)}, "t", time=2.0)
        with pytest.raises(robocache.Misuse, match="after the last row"):
            w.add_frame({"action": [0, 0], "cam": image(0, 0)}, "t", time=2.0)
        w.discard_episode()
        native(w, 0, 8)
        native(w, 1, 5)
        native(w, 9, 6)
        w.delete_last_episode()
    check_native(path, [8, 5])
    with pytest.raises(robocache.Misuse, match="their own rates"):
        robocache.Writer(path, 30, {**NATIVE, "joints": {**NATIVE["joints"], "hz": 50}})
    with robocache.Writer(path) as w:
        assert w.streams == {"joints": 100, "force": 250}
        native(w, 2, 4)
    check_native(path, [8, 5, 4])
    assert not robocache.doctor(path, decode=True).findings
    with pytest.raises(robocache.Unsupported, match="streams of numbers"):
        robocache.Writer(tmp_path / "other", 30, {"cam": {**NATIVE["cam"], "hz": 15}})
    lerobot = pytest.importorskip(
        "lerobot.datasets.lerobot_dataset", reason="lerobot is not installed"
    )
    ds = lerobot.LeRobotDataset("a/b", root=path)
    assert len(ds) == 17 and ds[7]["joints"].tolist() == [0, 23]


def test_recordings_are_named_by_index(tmp_path: Path) -> None:
    """A file of native samples is named by the index of its episode, not by a count.

    The episode numbers of this set have a gap.
    """
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "set"
    with robocache.Writer(path, 30, NATIVE) as w:
        native(w, 0, 8)
        native(w, 1, 5)
    # Episode 1 is renamed to episode 5.
    for file in [
        *(path / "data").rglob("*.parquet"),
        *(path / "meta" / "episodes").rglob("*.parquet"),
    ]:
        table = pq.read_table(file)
        at = table.schema.get_field_index("episode_index")
        numbers = pa.array(
            [5 if n == 1 else n for n in table.column(at).to_pylist()], table.schema.field(at).type
        )
        pq.write_table(table.set_column(at, table.schema.field(at), numbers), file)
    (path / "recordings" / "episode_000001.mcap").rename(
        path / "recordings" / "episode_000005.mcap"
    )
    assert robocache.open(path).episode_indices.tolist() == [0, 5]
    with robocache.Writer(path) as w:
        w.add("joints", [6, 0], 1.0)
        with pytest.raises(robocache.Misuse, match="episode 6.*after the last sample"):
            w.add("joints", [6, 0], 1.0)
        w.discard_episode()
        native(w, 6, 4)
    assert robocache.open(path).episode_indices.tolist() == [0, 5, 6]
    names = sorted(p.name for p in (path / "recordings").iterdir())
    assert names == ["episode_000000.mcap", "episode_000005.mcap", "episode_000006.mcap"]
    joints = robocache.open(path / "recordings" / "episode_000006.mcap")[0].streams["joints"]
    assert joints.values[:, 0].tolist() == [6] * len(joints)


NATIVE_LOOP = """
import sys
sys.path[:0] = [{tests!r}, {python!r}]
from test_writer_streams import NATIVE, native
import robocache
w = robocache.Writer(sys.argv[1], fps=30, features=NATIVE, gop=2, video_codec="h264")
print(w.num_episodes, flush=True)
while True:
    native(w, w.num_episodes, 3)
    print("saved", w.num_episodes, flush=True)
    native(w, 9, 4)
    w.delete_last_episode()
"""


@pytest.mark.slow
def test_killed_with_streams_of_their_own(tmp_path: Path) -> None:
    path, saved, rng = tmp_path / "set", 0, random.Random(5)
    text = NATIVE_LOOP.format(tests=str(Path(__file__).parent), python=str(ROOT / "python"))
    for round in range(10):
        p = subprocess.Popen(
            [sys.executable, "-c", text, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert int(p.stdout.readline()) >= saved
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
        n = robocache.open(path).num_episodes
        assert said and n >= said[-1]
        for e in range(n):  # each saved episode has its samples
            assert robocache.open(path / "recordings" / f"episode_{e:06d}.mcap").num_frames in (
                3,
                4,
            )
        with robocache.Writer(path) as w:
            saved = w.num_episodes
        # the process died before the deletion began
        if robocache.open(path).episodes["lengths"][-1] == 4:
            shutil.rmtree(path)
            saved = 0
        else:
            check_native(path, [3] * saved)
