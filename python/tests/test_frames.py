"""The frame that a row gets if a video has another number of frames than its episodes have rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cli, run_case

import robocache

pytest.importorskip("av", reason="av is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("pandas", reason="pandas is not installed")

CAMERA = "observation.images.top"
HEIGHT = 48


def make_case(path: Path, name: str, variant: str) -> str:
    """Runs a script of testdata/cases. Its frames show their number as bars."""
    if name == "V01" and shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    return str(run_case(name, path, variant))


def frame_number(picture: Any) -> int:
    """Returns the number that a picture shows as bars."""
    p = np.asarray(picture, np.float64)
    if p.shape[0] == 3:
        p = p.transpose(1, 2, 0)
    if p.max() <= 1.5:
        p = p * 255
    return sum(
        int(p[HEIGHT // 2 - 4 : HEIGHT // 2 + 4, b * 8 + 2 : b * 8 + 6].mean() > 127) << b
        for b in range(8)
    )


def delivered(root: str, **options: Any) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Returns the frame of each (episode, row) that a Loader delivers, and the skipped episodes."""
    options.setdefault("order", robocache.Order(on_bad_episode="skip"))
    loader = robocache.Loader(root, batch_size=3, drop_last=False, **options)
    frames = {}
    for batch in loader:
        for state, image in zip(batch["observation.state"], batch[CAMERA], strict=True):
            state, image = np.asarray(state), np.asarray(image)
            state, image = (state[0], image[0]) if state.ndim == 2 else (state, image)
            frames[int(state[0]), int(state[1])] = frame_number(image)
    return frames, sorted(bad["episode"] for bad in loader.stats().get("bad_episodes") or [])


def expect_frames(
    root: str,
    truth: Callable[[int, int], int],
    episodes: dict[int, int],
    bad: list[int],
    **options: Any,
) -> None:
    """Asserts that the rows of the given episodes get the right frames.

    The episodes in bad must be skipped whole.
    """
    frames, skipped = delivered(root, **options)
    assert frames == {(e, k): truth(e, k) for e, n in episodes.items() for k in range(n)}
    assert skipped == bad


@pytest.mark.parametrize("variant", ["v3_30", "v3_20", "v2_30", "v2_20"])
def test_camera_at_its_own_rate(tmp_path: Path, variant: str) -> None:
    """A camera whose rate is a multiple of the rows' rate is read by time.

    This also holds in windows, with shuffling, and on another timeline.
    """
    root = make_case(tmp_path / "set", "V03", variant)
    both = {0: 12, 1: 12}

    def truth(episode: int, row: int) -> int:
        return 12 * episode + row + 1

    expect_frames(root, truth, both, [], shuffle=False)
    expect_frames(
        root,
        truth,
        both,
        [],
        shuffle=True,
        seed=1,
        windows=robocache.Windows(seconds={CAMERA: [0, 0.1], "observation.state": [0]}),
    )
    expect_frames(root, truth, both, [], shuffle=True, hz=10)
    items = robocache.LeRobotDataset("me/set", root=root, check_timestamps=True)
    assert [frame_number(items[i][CAMERA]) for i in range(24)] == list(range(1, 25))
    converted = tmp_path / "converted"
    run = cli("convert", root, str(converted))
    assert run.returncode in (0, 3), run.stderr
    expect_frames(str(converted), truth, both, [], shuffle=False)
    cut = tmp_path / "cut"
    run = cli("edit", "trim", root, str(cut), "--from", "3r")
    assert run.returncode in (0, 3), run.stderr
    frames, _ = delivered(str(cut), shuffle=False)
    assert frames == {(e, k): truth(e, k) for e in range(2) for k in range(3, 12)}


@pytest.mark.parametrize("variant", ["v3_5", "v2_5"])
def test_camera_slower_than_rows(tmp_path: Path, variant: str) -> None:
    """If a camera is slower than the rows, the whole episode is an error."""
    root = make_case(tmp_path / "set", "V03", variant)
    with pytest.raises(robocache.Malformed, match="every episode is bad"):
        delivered(root, shuffle=False)
    with pytest.raises(robocache.Malformed, match="within half a frame"):
        robocache.LeRobotDataset("me/set", root=root)[0]
    findings = json.loads(cli("doctor", root, "--json").stdout)["findings"]
    errors = [f for f in findings if f["code"] == "frame-count" and f["severity"] == "error"]
    assert [f["where"]["episode"] for f in errors] == [0, 1] and all(f["hint"] for f in errors)


def test_two_episodes_name_the_same_frames(tmp_path: Path) -> None:
    """Two episodes whose entries name the same part of a video are both errors.

    Other episodes of the file are delivered.
    """
    root = make_case(tmp_path / "one", "L02", "one")

    def truth(episode: int, row: int) -> int:
        return 5 * episode + row

    expect_frames(root, truth, {0: 5, 2: 5}, [1, 3], shuffle=False)
    expect_frames(
        root,
        truth,
        {0: 5, 2: 5},
        [1, 3],
        shuffle="pool",
        seed=2,
        order=robocache.Order(pool_size=4, on_bad_episode="skip"),
    )
    findings = json.loads(cli("doctor", root, "--json").stdout)["findings"]
    assert [
        f["where"]["episode"]
        for f in findings
        if f["code"] == "frame-count" and f["severity"] == "error"
    ] == [1, 3]
    out = tmp_path / "out"
    assert cli("convert", root, str(out)).returncode == 11
    assert cli("convert", root, str(out), "--skip-bad").returncode == 3
    expect_frames(str(out), truth, {0: 5, 2: 5}, [], shuffle=False)
    kept = tmp_path / "kept"
    assert cli("edit", "delete", root, str(kept), "--episodes", "1,3").returncode == 0
    expect_frames(str(kept), truth, {0: 5, 2: 5}, [], shuffle=False)
    with pytest.raises(robocache.Malformed, match="every episode is bad"):
        delivered(make_case(tmp_path / "all", "L02", "all"), shuffle=False)


def make_mp4(path: Path, codes: list[int], rate: int = 10, times: list[int] | None = None) -> None:
    """Writes an mp4 whose frames show numbers as bars. times are in hundredths of a second."""
    import av

    with av.open(str(path), "w") as c:
        s = c.add_stream("libx264", rate=rate, options={"g": "2", "bf": "0", "crf": "18"})
        s.width, s.height, s.pix_fmt = 64, HEIGHT, "yuv420p"
        if times is not None:
            s.codec_context.time_base = Fraction(1, 100)
        for i, code in enumerate(codes):
            picture = np.zeros((HEIGHT, 64, 3), np.uint8)
            for b in range(8):
                picture[:, b * 8 : (b + 1) * 8] = 255 * (code >> b & 1)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[i], Fraction(1, 100)
            c.mux(s.encode(frame))
        c.mux(s.encode())


def make_shared(
    root: Path,
    lengths: list[int],
    codes: list[int],
    ends: list[float],
    rate: int = 10,
    times: list[int] | None = None,
) -> str:
    """Creates a v3.0 set of rows at 10 Hz whose episodes share an mp4 of numbered frames.

    ends are the bounds of the episodes in the mp4. times are the times of its frames in hundredths
    of a second.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    make_case(root, "L02", "one")
    info = json.loads((root / "meta/info.json").read_text())
    info.update(total_episodes=len(lengths), total_frames=sum(lengths), splits={})
    (root / "meta/info.json").write_text(json.dumps(info))
    starts = [sum(lengths[:e]) for e in range(len(lengths))]
    rows = [(e, k) for e, n in enumerate(lengths) for k in range(n)]
    pairs = pa.array([[float(e), float(k)] for e, k in rows], pa.list_(pa.float32()))
    columns = {
        "observation.state": pairs,
        "action": pairs,
        "timestamp": pa.array([k / 10 for _, k in rows], pa.float32()),
    }
    numbers = {
        "frame_index": [k for _, k in rows],
        "episode_index": [e for e, _ in rows],
        "index": list(range(len(rows))),
        "task_index": [0] * len(rows),
    }
    pq.write_table(pa.table({**columns, **numbers}), root / "data/chunk-000/file-000.parquet")
    v, zeros = f"videos/{CAMERA}/", [0] * len(lengths)
    table = {
        "episode_index": list(range(len(lengths))),
        "tasks": [["stack"]] * len(lengths),
        "length": lengths,
        "data/chunk_index": zeros,
        "data/file_index": zeros,
    }
    table |= {
        "dataset_from_index": starts,
        "dataset_to_index": [a + n for a, n in zip(starts, lengths, strict=True)],
    }
    table |= {
        v + "chunk_index": zeros,
        v + "file_index": zeros,
        v + "from_timestamp": ends[:-1],
        v + "to_timestamp": ends[1:],
    }
    pq.write_table(pa.table(table), root / "meta/episodes/chunk-000/file-000.parquet")
    shutil.rmtree(root / "videos")
    (root / v / "chunk-000").mkdir(parents=True)
    make_mp4(root / v / "chunk-000/file-000.mp4", codes, rate, times)
    return str(root)


def test_shared_videos(tmp_path: Path) -> None:
    """Spare and lost frames at several positions of an mp4 that three episodes share."""

    def truth(episode: int, row: int) -> int:
        return 10 * episode + row + 1

    def codes(*spans: tuple[int, int]) -> list[int]:
        return [truth(e, k) for e, n in enumerate(spans) for k in range(*n)]

    lengths, nominal = [5, 6, 4], [0.0, 0.5, 1.1, 1.5]
    every = dict(enumerate(lengths))
    own = codes((0, 5), (0, 6), (0, 4))
    expect_frames(
        make_shared(tmp_path / "equal", lengths, own, nominal), truth, every, [], shuffle=False
    )
    spare = make_shared(tmp_path / "spare", lengths, [*own, 99, 99, 99], nominal)
    expect_frames(spare, truth, every, [], shuffle=True)
    # Two spare frames follow the rows of episode 0, and the table has the true bounds.
    inside = make_shared(
        tmp_path / "inside", lengths, codes((0, 7), (0, 6), (0, 4)), [0.0, 0.7, 1.3, 1.7]
    )
    expect_frames(inside, truth, every, [], shuffle=False)
    # Episode 1 lost a frame, and the table has the true length of its video. Only rows of this
    # episode are lost.
    lost = make_shared(
        tmp_path / "lost",
        lengths,
        [*codes((0, 5), (0, 3)), *[14 + k for k in range(2)], *[truth(2, k) for k in range(4)]],
        [0.0, 0.5, 1.0, 1.4],
    )
    expect_frames(lost, truth, {0: 5, 2: 4}, [1], shuffle=False)
    # The video ends too early.
    short = make_shared(tmp_path / "short", lengths, own[:-1], nominal)
    expect_frames(short, truth, {0: 5, 1: 6}, [2], shuffle=False)
    # The video starts half a frame late, so no frame belongs to a row.
    half = make_shared(tmp_path / "half", lengths, [*own, 99], [0.05, 0.55, 1.15, 1.55])
    with pytest.raises(robocache.Malformed, match="every episode is bad"):
        delivered(half, shuffle=False)
    # The ends are one frame short, as some writers count them. Two episodes share a frame.
    meet = make_shared(tmp_path / "meet", lengths, [*own, 99], [0.0, 0.4, 0.9, 1.2])
    with pytest.raises(robocache.Malformed, match="every episode is bad"):
        delivered(meet, shuffle=False)


def set_starts(root: str, starts: list[float], ends: list[float]) -> None:
    """Writes the bounds of the episodes in their mp4 into the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = Path(root) / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(name)
    for column, values in (("from_timestamp", starts), ("to_timestamp", ends)):
        at = table.schema.get_field_index(f"videos/{CAMERA}/{column}")
        table = table.set_column(at, table.schema.field(at), pa.array(values, pa.float64()))
    pq.write_table(table, name)


def own_frame(episode: int, row: int) -> int:
    return 10 * episode + row + 1


SEAMS = {
    # Episode 0 lost its last two frames, and the table has the true length of its video.
    "lost": ([8, 10], None, [0.0, 0.8], [0.8, 1.8], {1: 10}),
    # The table counts rows, and the video has a gap.
    "gap": ([8, 10], [*range(0, 80, 10), *range(100, 200, 10)], [0.0, 1.0], [1.0, 2.0], {1: 10}),
    # The last row of episode 0 lies within half a frame of the first frame of episode 1.
    "near": ([9, 10], [*range(0, 90, 10), *range(94, 194, 10)], [0.0, 0.94], [0.94, 1.94], {1: 10}),
    # The same, without the ends.
    "near, no ends": (
        [9, 10],
        [*range(0, 90, 10), *range(94, 194, 10)],
        [0.0, 0.94],
        [float("nan")] * 2,
        {},
    ),
    # The last frame of episode 0 is nearest to the first row of episode 1.
    "late": ([10, 9], [*range(0, 90, 10), 94, *range(104, 194, 10)], [0.0, 0.96], [1.0, 1.96], {}),
    # Spare frames are between the episodes, and the table has the true bounds.
    "spare": ([13, 10], None, [0.0, 1.3], [1.3, 2.3], {0: 10, 1: 10}),
    # The parts overlap.
    "overlap": ([13, 10], None, [0.0, 0.5], [1.0, 1.5], {}),
    # There are as many frames as rows, so frames are counted in the order of the starts.
    "counted": ([10, 10], None, [0.0, 0.8], [0.8, 2.0], {0: 10, 1: 10}),
    "counted, overlap": ([10, 10], None, [0.0, 0.5], [1.0, 1.5], {0: 10, 1: 10}),
}


@pytest.mark.parametrize("name", SEAMS)
def test_no_frame_of_another_episode(tmp_path: Path, name: str) -> None:
    """A row never gets a frame of another episode in the same mp4.

    This holds in a Loader, after a conversion, and after an edit.
    """
    counts, times, starts, ends, good = SEAMS[name]
    codes = [10 * e + k + 1 if k < 10 else 99 for e, n in enumerate(counts) for k in range(n)]
    root = make_shared(tmp_path / "set", [10, 10], codes, [0.0, 1.0, 2.0], times=times)
    set_starts(root, starts, ends)
    bad = [e for e in range(2) if e not in good]
    if not good:
        with pytest.raises(robocache.Malformed, match="every episode is bad"):
            delivered(root, shuffle=False)
        assert cli("convert", root, str(tmp_path / "converted")).returncode == 11
        return
    expect_frames(root, own_frame, good, bad, shuffle=False)
    expect_frames(
        root,
        own_frame,
        good,
        bad,
        shuffle=True,
        seed=3,
        windows=robocache.Windows(seconds={CAMERA: [0, 0.1], "observation.state": [0]}),
    )
    expect_frames(root, own_frame, good, bad, shuffle=False, hz=10)
    converted, kept, trimmed = (tmp_path / part for part in ("converted", "kept", "trimmed"))
    done = cli("convert", root, str(converted), "--skip-bad")
    assert done.returncode in (0, 3), done.stderr
    done = cli("doctor", root, str(kept), "--fix", "--drop-bad")
    assert done.returncode in (0, 1, 3), done.stdout + done.stderr
    for out in (converted, kept):
        frames, skipped = delivered(str(out), shuffle=False)
        # --drop-bad also removes an episode whose start in the table is wrong (boundary-jump).
        episodes = [0] if out == kept and "boundary-jump" in done.stdout else good
        assert (
            frames == {(e, k): own_frame(e, k) for e in episodes for k in range(10)} and not skipped
        )
    done = cli("edit", "keep", root, str(trimmed), "--episodes", ",".join(map(str, good)))
    assert done.returncode == 0, done.stderr
    expect_frames(str(trimmed), own_frame, good, [], shuffle=False)


def test_frames_of_an_episode_without_rows(tmp_path: Path) -> None:
    """Frames that the table assigns to an episode without rows are given to no other episode."""
    codes = [*(own_frame(0, k) for k in range(10)), *(own_frame(1, k) for k in range(10))]
    root = make_shared(tmp_path / "set", [12, 0], codes, [0.0, 1.0, 2.0])
    with pytest.raises(robocache.Malformed, match="every episode is bad"):
        delivered(root, shuffle=False)


def lose_rows(root: str) -> None:
    """Removes the last row of each episode from the third on."""
    import pyarrow.parquet as pq

    name = Path(root) / "data/chunk-000/file-000.parquet"
    table = pq.read_table(name)
    pq.write_table(table.take([i for i in range(table.num_rows) if i % 4 < 3 or i < 8]), name)


@pytest.mark.parametrize("lost", ["rows", "frames"])
def test_many_bad_episodes(tmp_path: Path, lost: str) -> None:
    """Doctor lists every bad episode, and --drop-bad removes all of them."""
    n = 30
    codes = list(range(9)) if lost == "frames" else list(range(4 * n))
    root = make_shared(tmp_path / "set", [4] * n, codes, [0.4 * e for e in range(n + 1)])
    if lost == "rows":
        lose_rows(root)
    found = json.loads(cli("doctor", root, "--json").stdout)["findings"]
    code = {"rows": "rows-missing", "frames": "frame-count"}[lost]
    bad = [f for f in found if f["code"] == code and f["severity"] == "error"]
    assert [f["where"]["episode"] for f in bad] == list(range(2, n)) and sum(
        f["count"] for f in bad
    ) == n - 2
    assert f"{n - 2} in all in {n - 2} episodes" in cli("doctor", root).stdout
    done = cli("doctor", root, str(tmp_path / "fixed"), "--fix", "--drop-bad")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    expect_frames(str(tmp_path / "fixed"), lambda e, k: 4 * e + k, {0: 4, 1: 4}, [], shuffle=False)


@pytest.mark.parametrize("variant", ["vfr", "startlate"])
def test_timestamps_are_checked_on_v2(tmp_path: Path, variant: str) -> None:
    """check_timestamps= and tolerance_s= raise on v2.1 too. Without them frames are counted."""
    root = make_case(tmp_path / "set", "V01", variant)
    items = robocache.LeRobotDataset("me/set", root=root)
    assert [frame_number(items[i][CAMERA]) for i in range(24)] == list(range(1, 25))
    with pytest.raises(robocache.Malformed, match="tolerance_s"):
        items = robocache.LeRobotDataset("me/set", root=root, check_timestamps=True)
        for i in range(24):
            items[i]
    for options in (
        {"windows": robocache.Windows(tolerance_s=1e-4)},
        {"windows": robocache.Windows(tolerance_s=0.01), "shuffle": True},
    ):
        with pytest.raises(robocache.Malformed, match="tolerance_s"):
            for _ in robocache.Loader(root, batch_size=4, **options):
                pass
    for _ in robocache.Loader(root, batch_size=4, windows=robocache.Windows(tolerance_s=100.0)):
        pass
