"""lerobot reads what robocache.Writer recorded, even if the process is killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import robocache
from recorded import FEATURES, H, W, check, image, record, row


@pytest.mark.slow
def test_lerobot_reads_what_is_recorded(  # type: ignore[no-untyped-def]
    tmp_path: Path, torch
) -> None:
    lerobot = pytest.importorskip(
        "lerobot.datasets.lerobot_dataset", reason="lerobot is not installed"
    )
    path, lengths = tmp_path / "set", [12, 5, 9]
    with robocache.Writer(path, fps=30, features=FEATURES, robot_type="arm") as w:
        for e, n in enumerate(lengths):
            record(w, e, n)
            assert w.num_episodes == e + 1 and not len(w)
            check(path, lengths[: e + 1])  # while recording continues
        assert w.stats()["frames"] == sum(lengths)
    check(path, lengths)
    assert not (path / ".robocache-recording").exists()
    found = robocache.doctor(path, decode=True)
    assert not found.errors and not found.warnings, found.findings
    ds = lerobot.LeRobotDataset("a/b", root=path)
    assert len(ds) == sum(lengths) and ds.num_episodes == 3 and ds.meta.robot_type == "arm"
    at = 0
    for e, n in enumerate(lengths):
        for k in range(n):
            item, want = ds[at], row(e, k)
            at += 1
            assert (
                item["task"] == f"task {e % 2}"
                and item["episode_index"] == e
                and item["frame_index"] == k
                and item["index"] == at - 1
            )
            assert torch.equal(
                item["observation.state"], torch.from_numpy(want["observation.state"])
            )
            # lerobot returns float64 as float32
            np.testing.assert_array_equal(
                np.asarray(item["action"], np.float32), np.asarray(want["action"], np.float32)
            )
            assert item["note"] == want["note"] and bool(item["gripper"]) == (k % 2 == 0)
            assert float(item["timestamp"]) == pytest.approx(k / 30)
            got = item["observation.images.front"].permute(1, 2, 0).numpy() * 255
            assert np.abs(got - image(e, k)).mean() < 3
    exact = robocache.stats(path, frames="none")
    for key in ("observation.state", "action", "index"):
        for name, v in exact[key].items():
            np.testing.assert_allclose(
                np.asarray(ds.meta.stats[key][name]).reshape(v.shape), v, rtol=1e-12
            )
    assert ds.meta.stats["observation.images.front"]["mean"].shape == (3, 1, 1)


@pytest.mark.slow
def test_resume_and_append(tmp_path: Path) -> None:
    path = tmp_path / "set"
    with robocache.Writer(path, 30, FEATURES) as w:
        record(w, 0, 4)
        with pytest.raises(robocache.Misuse, match="another Writer"):
            robocache.Writer(path, 30, FEATURES)
    with pytest.raises(robocache.Misuse, match="already"):
        robocache.Writer(path, 30, FEATURES, mode="x")
    with pytest.raises(robocache.Misuse, match="rate"):
        robocache.Writer(path, 25, FEATURES)
    with pytest.raises(robocache.Misuse, match="schema"):
        robocache.Writer(path, 30, {**FEATURES, "action": {"dtype": "float32", "shape": (2,)}})
    with pytest.raises(robocache.Misuse, match="another codec"):
        robocache.Writer(path, video_codec="hevc")
    with robocache.Writer(path) as w:  # the rate, features and codec are read from the set
        assert w.fps == 30 and w.num_episodes == 1 and "action" in w.features
        record(w, 1, 6)
        w.add_frame(row(2, 0), "dropped")
        w.discard_episode()
        record(w, 2, 3)
    check(path, [4, 6, 3])
    assert not robocache.doctor(path).findings
    with pytest.warns(RuntimeWarning, match="1 rows"), robocache.Writer(path) as w:
        w.add_frame(row(0, 0), "lost")
    check(path, [4, 6, 3])


@pytest.mark.slow
def test_appends_to_a_set_that_lerobot_recorded(tmp_path: Path) -> None:
    lerobot = pytest.importorskip(
        "lerobot.datasets.lerobot_dataset", reason="lerobot is not installed"
    )
    path = tmp_path / "set"
    features = {k: v for k, v in FEATURES.items() if k != "note"}
    ds = lerobot.LeRobotDataset.create(
        "a/b", fps=30, features=features, root=path, robot_type="arm"
    )
    for k in range(5):
        ds.add_frame(
            {**{key: v for key, v in row(0, k).items() if key != "note"}, "task": "theirs"}
        )
    ds.save_episode()
    ds.finalize()
    with robocache.Writer(path, fps=30, features=features) as w:
        for k in range(7):
            w.add_frame({key: v for key, v in row(1, k).items() if key != "note"}, task="ours")
        w.save_episode()
    again = lerobot.LeRobotDataset("a/b", root=path)
    assert [again[i]["task"] for i in (0, 4, 5, 11)] == [
        "theirs",
        "theirs",
        "ours",
        "ours",
    ] and len(again) == 12
    assert (
        np.abs(
            again[11]["observation.images.front"].permute(1, 2, 0).numpy() * 255 - image(1, 6)
        ).mean()
        < 3
    )
    assert not robocache.doctor(path).errors
    assert robocache.open(path).robot_type == "arm"


@pytest.mark.slow
def test_the_last_episode_is_deleted(tmp_path: Path) -> None:
    path, once = tmp_path / "set", tmp_path / "once"
    with robocache.Writer(once, 30, FEATURES) as w:
        record(w, 0, 4)
        record(w, 1, 5)
    with robocache.Writer(path, 30, FEATURES) as w:
        with pytest.raises(robocache.Misuse, match="no episodes"):
            w.delete_last_episode()
        record(w, 0, 4)
        w.delete_last_episode()  # the only episode
        assert (
            w.num_episodes == 0 and w.num_frames == 0 and not (path / "meta" / "info.json").exists()
        )
        record(w, 0, 4)
        record(w, 2, 6)
        w.add_frame(row(1, 0), "task 1")  # a row of the next episode, which is kept
        w.delete_last_episode()
        assert w.num_episodes == 1 and w.num_frames == 4 and len(w) == 1
        check(path, [4])
        assert robocache.open(path).tasks == {0: "task 0"}
        for k in range(1, 5):
            w.add_frame(row(1, k), "task 1")
        w.save_episode()
    check(path, [4, 5])
    # as if the episode had never been recorded
    for file in sorted(p for p in once.rglob("*") if p.is_file()):
        assert (
            path / file.relative_to(once)
        ).read_bytes() == file.read_bytes() or file.suffix == ".mp4", file
    assert sorted(p.relative_to(path) for p in path.rglob("*")) == sorted(
        p.relative_to(once) for p in once.rglob("*")
    )
    found = robocache.doctor(path, decode=True)
    assert not found.errors and not found.warnings, found.findings
    with robocache.Writer(path) as w:
        with pytest.raises(robocache.Misuse, match="earlier Writer") as e:
            w.delete_last_episode()
        assert f'robocache.edit.delete("{path}", episodes=1, in_place=True)' in e.value.hint
        record(w, 2, 3)
        w.delete_last_episode()
        assert w.num_episodes == 2
        record(w, 2, 7)
    check(path, [4, 5, 7])
    assert not robocache.doctor(path).findings
    with robocache.Writer(tmp_path / "none", 30, FEATURES) as w:
        record(w, 0, 2)
        w.delete_last_episode()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_is_refused(tmp_path: Path, dtype: str) -> None:
    features = {
        "observation.state": {"dtype": dtype, "shape": (3,), "names": ["x", "y", "z"]},
        "force": {"dtype": dtype, "shape": (2, 2)},
        "depth": {
            "dtype": "image",
            "shape": (8, 8, 1),
            "info": {"is_depth_map": True, "depth_unit": "m"},
        },
    }
    good = {
        "observation.state": [1.0, 2.0, 3.0],
        "force": np.zeros((2, 2)),
        "depth": np.full((8, 8, 1), np.nan, np.float32),
    }
    with robocache.Writer(tmp_path / "set", 30, features) as w:
        assert w.add_frame(good, "t")
        for value, word in ((np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")):
            with pytest.raises(robocache.Misuse, match=f"element 2 \\(z\\) is {word}") as e:
                w.add_frame({**good, "observation.state": [1.0, 2.0, value]}, "t")
            assert e.value.where["stream"] == "observation.state" and (
                e.value.where["element"],
                e.value.where["row"],
                e.value.where["episode"],
            ) == (2, 1, 0)
        assert 'allow_nan=["observation.state"]' in e.value.hint
        with pytest.raises(robocache.Misuse, match="element 3 is NaN"):
            w.add_frame({**good, "force": [[0, 0], [0, np.nan]]}, "t")
        assert len(w) == 1
        w.save_episode()
    with robocache.Writer(tmp_path / "set", allow_nan=["force"]) as w:
        w.add_frame({**good, "force": [[0, 0], [0, np.nan]]}, "t")
        with pytest.raises(robocache.Misuse, match="element 0"):
            w.add_frame({**good, "observation.state": [np.nan, 0, 0]}, "t")
        w.discard_episode()
    with robocache.Writer(tmp_path / "set", allow_nan=True) as w:
        w.add_frame({**good, "observation.state": [np.nan, np.inf, 0]}, "t")
        w.save_episode()
    got = robocache.open(tmp_path / "set").episode(1).streams["observation.state"].values[0]
    np.testing.assert_array_equal(got, [np.nan, np.inf, 0])
    with pytest.raises(robocache.Misuse, match="no such feature"):
        robocache.Writer(tmp_path / "set", allow_nan=["forces"])
    with pytest.raises(robocache.Misuse, match="allow_nan"):
        robocache.Writer(tmp_path / "set", allow_nan="force")


@pytest.mark.parametrize("on_full", ["raise", "drop"])
def test_a_full_queue_does_not_block(tmp_path: Path, on_full: str) -> None:
    h, w = 480, 640
    features = {
        "x": {"dtype": "float32", "shape": (1,)},
        "cam": {"dtype": "video", "shape": (h, w, 3)},
    }
    # random pixels are slow to encode
    pixels = np.random.default_rng(0).integers(0, 256, (h, w, 3), np.uint8)
    added, missed = [], 0
    with robocache.Writer(
        tmp_path / "set", 30, features, queue_bytes=2 * h * w * 3, on_full=on_full
    ) as writer:
        for k in range(60):
            try:
                ok = writer.add_frame({"x": k, "cam": pixels}, "t")
            except robocache.Temporary as e:
                assert on_full == "raise" and "queue" in str(e) and "queue_bytes" in e.hint
                ok = False
            if ok:
                added.append(k)
            missed += not ok
        assert len(writer) == len(added)
        s = writer.stats()
        assert (
            missed > 0
            and s["dropped" if on_full == "drop" else "refused"] == missed
            and s["waits"] == 0
            and s["queue_peak"] <= 2 * h * w * 3
        )
        writer.save_episode()
    assert robocache.open(tmp_path / "set").episode(0).streams["x"].values.ravel().tolist() == added
    with pytest.raises(robocache.Misuse, match="on_full"):
        robocache.Writer(tmp_path / "other", 30, features, on_full="wait")


def test_frames_are_checked(tmp_path: Path, torch) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "set"
    with robocache.Writer(path, 30, FEATURES) as w:
        good = row(0, 0)

        def bad(match: str, **change: object) -> None:
            with pytest.raises(robocache.Misuse, match=match):
                w.add_frame({**good, **change}, "t")

        bad("shape", **{"observation.state": np.zeros(4, np.float32)})
        bad("float32", **{"observation.state": np.array(["a", "b", "c"])})
        bad("image of shape", **{"observation.images.front": np.zeros((H, W + 1, 3), np.uint8)})
        bad("in \\[0, 1\\]", **{"observation.images.front": np.full((H, W, 3), 2.0)})
        bad("expected text", note=3)
        bad("not declared: 'acton'", acton=1)
        bad("k / fps", timestamp=0.1)
        with pytest.raises(robocache.Misuse, match="missing: 'note'"):
            w.add_frame({k: v for k, v in good.items() if k != "note"}, "t")
        with pytest.raises(robocache.Misuse, match="task"):
            w.add_frame(good)
        with pytest.raises(robocache.Misuse, match="no rows"):
            w.save_episode()
        assert len(w) == 0
        chw = torch.from_numpy(good["observation.images.front"]).permute(2, 0, 1)
        w.add_frame(
            {
                **good,
                "observation.images.front": chw,
                "observation.state": torch.tensor([1.0, 2.0, 3.0]),
            },
            task="t",
        )
        w.add_frame(
            {
                **good,
                "observation.images.front": chw.float() / 255,
                "action": [1, 2],
                "gripper": True,
                "task": "u",
            }
        )
        w.save_episode()
    assert not path.joinpath(".robocache-recording").exists()
    s = robocache.open(path).episode(0).streams
    assert s["observation.state"].values[0].tolist() == [1, 2, 3] and s["action"].values[
        1
    ].tolist() == [1, 2]
    frames = s["observation.images.front"].values
    assert np.abs(frames[0].astype(int) - frames[1]).mean() < 2
    assert robocache.open(path).episode(0).tasks == ["t", "u"]
    with pytest.raises(robocache.Misuse, match="closed"):
        w.add_frame(good, "t")


def test_declarations_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "new"
    for match, features in (
        ("dtype", {"a": {"shape": (1,)}}),
        ("complex64", {"a": {"dtype": "complex64"}}),
        ("shape", {"c": {"dtype": "video", "shape": (64,)}}),
        ("'/'", {"a/b": {"dtype": "float32"}}),
    ):
        with pytest.raises((robocache.Misuse, robocache.Unsupported), match=match):
            robocache.Writer(path, 30, features)
    with pytest.raises(robocache.Misuse, match="no dataset"):
        robocache.Writer(path)
    with pytest.raises(robocache.Misuse, match="queue_bytes"):
        robocache.Writer(path, 30, FEATURES, queue_bytes=1000)
    assert not path.exists()  # a rejected recording leaves no files
    robocache.Writer(path, 30, FEATURES).close()
    assert not path.exists()  # nor does a recording without an episode
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("…")
    with pytest.raises(robocache.Misuse, match="not empty"):
        robocache.Writer(tmp_path / "other", 30, FEATURES)
    assert [p.name for p in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_stills_and_depth_are_kept_exactly(tmp_path: Path) -> None:
    features = {
        "rgb": {"dtype": "image", "shape": (24, 32, 3)},
        "depth": {
            "dtype": "image",
            "shape": (24, 32, 1),
            "info": {"is_depth_map": True, "depth_unit": "mm"},
        },
        "x": {"dtype": "int16", "shape": (1,)},
    }
    rng = np.random.default_rng(1)
    rgb, depth = (
        rng.integers(0, 256, (6, 24, 32, 3), np.uint8),
        rng.integers(0, 65536, (6, 24, 32, 1), np.uint16),
    )
    with robocache.Writer(tmp_path / "set", "30000/1001", features) as w:
        for k in range(6):
            w.add_frame({"rgb": rgb[k], "depth": depth[k], "x": k - 3}, task="look")
        w.save_episode()
    ds = robocache.open(tmp_path / "set")
    s = ds.episode(0).streams
    np.testing.assert_array_equal(s["rgb"].values, rgb.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(s["depth"].values, depth.transpose(0, 3, 1, 2))
    assert s["x"].values.ravel().tolist() == [-3, -2, -1, 0, 1, 2]
    assert not robocache.doctor(tmp_path / "set").errors


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["mm", "m"])
def test_depth_video_has_lerobots_codes(tmp_path: Path, unit: str) -> None:
    features = {
        "depth": {
            "dtype": "video",
            "shape": (48, 64, 1),
            "info": {"is_depth_map": True, "depth_unit": unit},
        },
        "x": {"dtype": "float32", "shape": (1,)},
    }
    # in metres; the code covers 0.01 m to 10 m
    depth = np.linspace(0, 11, 6 * 48 * 64).reshape(6, 48, 64, 1)
    given = np.rint(depth * 1000).astype(np.uint16) if unit == "mm" else depth.astype(np.float32)
    for _ in range(2):  # the second Writer resumes the recording
        with robocache.Writer(tmp_path / "set", 30, features) as w:
            for k in range(6):
                w.add_frame({"depth": given[k], "x": k}, task="look")
            w.save_episode()
    assert not robocache.doctor(tmp_path / "set", decode=True).errors
    ds = robocache.open(tmp_path / "set")
    assert ds.features["depth"].codec == "hevc"
    far = ds.stats["depth"]["max"].max()
    assert far == pytest.approx(10 if unit == "m" else 10_000, rel=1e-3), (
        "statistics use the unit of depth"
    )
    item = robocache.LeRobotDataset("local/set", root=tmp_path / "set", depth_output_unit="m")
    got = np.stack([np.asarray(item[i]["depth"]) for i in range(12)]).reshape(2, 6, 48, 64)
    np.testing.assert_array_equal(got[0], got[1])
    want = depth.clip(0.01, 10)[..., 0]
    step = (want + 3.5) * np.log(13.5 / 3.51) / 4095  # one step of the code at this depth
    assert (np.abs(got[0] - want) <= 0.51 * step + (0.0005 if unit == "mm" else 0)).all()
    lerobot = pytest.importorskip("lerobot.datasets.depth_utils", reason="lerobot is not installed")
    theirs = lerobot.quantize_depth(given, video_backend=None, input_unit=unit).reshape(6, 48, 64)
    back = np.asarray(
        lerobot.dequantize_depth(theirs.astype(np.uint16)[:, None], output_unit="m")
    ).reshape(6, 48, 64)
    off = np.abs(back - got[0]) > 1e-5
    assert off.mean() < 0.001, (
        "lerobot computes in float32: a value between two codes may get the other code"
    )
    with pytest.raises(robocache.Misuse, match="schema|expected"):
        robocache.Writer(
            tmp_path / "set",
            30,
            {
                **features,
                "depth": {
                    **features["depth"],
                    "info": {"is_depth_map": True, "depth_unit": "m" if unit == "mm" else "mm"},
                },
            },
        )


@pytest.mark.slow
def test_many_episodes_share_files(tmp_path: Path) -> None:
    features = {"x": {"dtype": "float32", "shape": (1,)}}
    with robocache.Writer(tmp_path / "set", 10, features) as w:
        for e in range(130):
            w.add_frame({"x": e}, task="t")
            w.save_episode()
    assert len(list((tmp_path / "set").glob("data/*/*.parquet"))) == 2
    ds = robocache.open(tmp_path / "set")
    assert [float(ds.episode(e).streams["x"].values[0]) for e in range(130)] == list(range(130))
    assert not robocache.doctor(tmp_path / "set").findings


def test_a_child_does_not_write(script) -> None:  # type: ignore[no-untyped-def]
    done = script("""
        import os, tempfile, robocache
        w = robocache.Writer(tempfile.mkdtemp() + "/s", 10, {"x": {"dtype": "float32"}})
        w.add_frame({"x": 1}, "t")
        if os.fork() == 0:
            try: w.add_frame({"x": 1}, "t")
            except robocache.ForkError as e: print("child:", e.hint, flush=True)
            os._exit(0)
        os.wait(); w.save_episode(); w.close(); print(w.num_frames)
    """)
    assert done.stdout.splitlines() == [
        "child: make it in the process that calls add_frame",
        "1",
    ], done.stderr
