"""Dataset, Episode, Stream: metadata, raw streams, alignment."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path

import robocache

NS = 1_000_000_000


def test_dataset(h264: str) -> None:
    ds = robocache.open(h264)
    assert (ds.format, ds.version, ds.fps) == ("lerobot", "v3.0", 30)
    assert ds.num_episodes == len(ds) == len(list(ds)) and ds.num_frames == sum(
        e.length for e in ds
    )
    f = ds.features["observation.images.cam_high"]
    assert (
        f.kind == "video"
        and f.codec == "h264"
        and (f.height, f.width, f.channels) == f.shape[:2] + (3,)
    )
    assert ds.features["action"].dtype == "float32" and ds.features["index"].default
    assert list(ds.tasks) == [0] and all(isinstance(t, str) for t in ds.tasks.values())
    assert (
        ds.stats["action"]["mean"].shape == ds.features["action"].shape
        and ds.stats["action"]["count"].dtype == np.int64
    )
    assert ds.episodes["lengths"].sum() == ds.num_frames
    assert ds[-1].position == ds.num_episodes - 1
    for bad in (ds.num_episodes, -1, "0"):
        with pytest.raises(robocache.Misuse):
            ds.episode(bad)  # type: ignore[arg-type]
    for beyond in (ds.num_episodes, -ds.num_episodes - 1, "0"):
        with pytest.raises(robocache.Misuse):
            ds[beyond]  # type: ignore[index]
    assert (
        robocache.open(Path(h264)).num_frames
        == robocache.open("file://" + h264).num_frames
        == ds.num_frames
    )


def test_closing(h264: str) -> None:
    with robocache.open(h264) as ds:
        values = ds.episode(0).streams["action"].values
    assert values.shape[0] > 0 and np.isfinite(values).all()  # memory outlives the dataset
    with pytest.raises(robocache.Misuse, match="closed"):
        ds.episode(0).streams["action"].values  # noqa: B018
    m = robocache.MapDataset(robocache.open(h264), keys=["action"])
    m.dataset.close()
    assert len(m[0]) == 1  # the map keeps its files open


def test_streams(h264: str) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    ds = robocache.open(h264)
    ep = ds.episode(1)
    table = pq.read_table(
        Path(h264) / "data/chunk-000/file-000.parquet", filters=[("episode_index", "=", ep.index)]
    )
    s = ep.streams["observation.state"]
    assert np.array_equal(s.values, np.stack(table["observation.state"].to_numpy()))
    assert (
        s.values.dtype == np.float32
        and s.times.dtype == np.int64
        and len(s) == ep.length == len(table)
    )
    assert np.abs(s.times / 1e9 - table["timestamp"].to_numpy()).max() < 1e-6
    assert s.rate_hz == pytest.approx(30, rel=1e-4)
    assert np.array_equal(ep.streams["index"].values, table["index"].to_numpy())
    assert set(ep.streams) == set(ds.features) and len(ep.streams) == len(ds.features)
    images = ep.streams["observation.images.cam_high"]
    few = images.frames([3, -1, 3], image_size=(24, 32))
    assert few.shape == (3, 3, 24, 32) and few.dtype == np.uint8 and np.array_equal(few[0], few[2])
    with pytest.raises(robocache.Misuse, match="observation.state"):
        ep.streams["observation.stat"]
    assert "nothing" not in ep.streams and ep.streams.get("nothing") is None
    with pytest.raises(robocache.Misuse):
        images.frames([ep.length])
    with pytest.raises(robocache.Misuse):
        s.frames()


def test_align(h264: str) -> None:
    ep = robocache.open(h264).episode(0)
    state, times = (
        ep.streams["observation.state"].values.astype(np.float64),
        ep.streams["observation.state"].times,
    )
    a = ep.align(hz=50)
    t = a["times"]
    assert (
        np.array_equal(t, times[0] + np.rint(np.arange(len(t)) * NS / 50).astype(np.int64))
        and t[-1] <= times[-1]
    )
    assert a["observation.state_is_pad"].dtype == bool and not a["observation.state_is_pad"].any()
    want = np.stack([np.interp(t, times, state[:, c]) for c in range(state.shape[1])], 1)
    assert a["observation.state"].dtype == np.float32
    np.testing.assert_allclose(a["observation.state"], want, rtol=0, atol=2e-6)
    # Explicit times, in seconds and in nanoseconds. Outside the data each mode's policy applies,
    # with a mask.
    given = [-0.5, 0.1, 1.0, 1e4]
    b = ep.align(times=given, keys=["action", "task"], modes={"action": "previous"})
    c = ep.align(
        times=[int(x * NS) for x in given],
        keys=["action"],
        modes={"action": "previous"},
        edge="mask",
    )
    assert b["action_is_pad"].tolist() == c["action_is_pad"].tolist() == [True, False, False, True]
    assert not c["action"][[0, 3]].any() and np.array_equal(b["action"][1:3], c["action"][1:3])
    assert (
        np.array_equal(b["action"][3], ep.streams["action"].values[-1])
        and isinstance(b["task"], list)
        and len(b["task"]) == 4
    )
    # A duration is a number of seconds or text with a unit. An offset shifts a stream.
    for gap in (0.02, "20ms", "20000000ns", np.float32(0.02)):
        assert ep.align(hz=50, keys=["action"], max_gap=gap)["action_is_pad"].any()
    for gap in (1, 1.0, np.int64(1), "1s"):
        assert not ep.align(hz=50, keys=["action"], max_gap=gap)["action_is_pad"].any()
    moved = ep.align(
        times=[0.5], keys=["action"], modes={"action": "nearest"}, offset={"action": 0.1}
    )["action"]
    assert np.array_equal(
        moved, ep.align(times=[0.4], keys=["action"], modes={"action": "nearest"})["action"]
    )
    assert len(ep.align(hz=Fraction(30000, 1001), keys=["action"])["times"]) == len(
        ep.align(hz="30000/1001", keys=["action"])["times"]
    )
    images = ep.align(
        times=[0.0, 0.34, -9.0],
        keys=["observation.images.cam_high"],
        edge="mask",
        image_size=(24, 32),
    )
    frames = ep.streams["observation.images.cam_high"].frames([0, 10], image_size=(24, 32))
    assert (
        np.array_equal(images["observation.images.cam_high"][:2], frames)
        and not images["observation.images.cam_high"][2].any()
    )
    assert images["observation.images.cam_high_is_pad"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    "kwargs,words",
    [
        ({}, "hz= or times="),
        ({"hz": 10, "times": [0.0]}, "hz= or times="),
        ({"hz": -1}, "rate"),
        ({"hz": 10, "modes": {"action": "linea"}}, "linear"),
        ({"hz": 10, "modes": {"acton": "linear"}}, "action"),
        ({"hz": 10, "edge": "clip"}, "clamp"),
        ({"hz": 10, "max_gap": "long"}, "seconds as a number, or text with a unit"),
        ({"hz": 10, "max_gap": "0.05"}, "with a unit"),
        (
            {"hz": 10, "max_gap": 50_000_000},
            r"50000000 s \(578\.7 days\), and as nanoseconds 50 ms",
        ),
        ({"hz": 10, "latency": {"action": 5e7}}, "as nanoseconds 50 ms"),
        ({"hz": 10, "offset": {"action": -100_000}}, "as nanoseconds -100 us"),
        ({"hz": 10, "drift": {"action": (3, 500_000_000)}}, "as nanoseconds 500 ms"),
        ({"times": [0, 1, 2]}, "as seconds they reach 2 s"),
        ({"times": [1.7e18]}, "pass nanoseconds as int64"),
        ({"hz": 10, "keys": ["task"], "modes": {"index": "linear"}}, ""),
        ({"hz": 10, "mode": {}}, "modes"),
        ({"hz": 10, "extent": "everything"}, "intersection"),
        (
            {
                "hz": 10,
                "modes": {"observation.images.cam_high": "linear"},
                "keys": ["observation.images.cam_high"],
            },
            "nearest",
        ),
    ],
)
def test_align_misuse(h264: str, kwargs: dict, words: str) -> None:
    ep = robocache.open(h264).episode(0)
    if not words:
        ep.align(**kwargs)
        return
    with pytest.raises(robocache.Misuse, match=words):
        ep.align(**kwargs)


@pytest.mark.parametrize(
    "name,version", [("g1_v21", "v2.1"), ("gr00t_picknplace_v20", "v2.0"), ("g1_v30_drift", "v3.0")]
)
def test_versions_of_the_format(name: str, version: str) -> None:
    ds = robocache.open(dataset_path(name))
    assert ds.version == version
    ep = ds.episode(ds.num_episodes - 1)
    for s in ep.streams.values():
        assert len(s.times) == ep.length
        if s.kind == "numeric":
            assert s.values.shape[0] == ep.length


def test_modality(tmp_path: Path) -> None:
    """ds.modality is modality.json with the keys of its streams, and --suggest-map uses it."""
    path = dataset_path("gr00t_picknplace_v20")
    ds = robocache.open(path)
    own = json.loads((Path(path) / "meta/modality.json").read_text())
    streams = {"state": "observation.state", "action": "action"}
    for kind, parts in own.items():
        for name, part in parts.items():
            key = streams.get(kind, f"annotation.{name}")
            part.setdefault("original_key", key)
        assert list(ds.modality[kind].items()) == list(parts.items())
    assert robocache.open(dataset_path("g1_v21")).modality == {}
    map_file = tmp_path / "map.yaml"
    map_file.write_text(robocache.inspect(path, suggest_map=True))
    hand = robocache.open(path, map=map_file).episode(1).streams["state.right_hand"].values
    state = ds.episode(1).streams["observation.state"].values
    np.testing.assert_array_equal(hand, state[:, 29:35])


def test_bad_places(tmp_path: Path) -> None:
    with pytest.raises(robocache.NotFound) as e:
        robocache.open(tmp_path / "nothing")
    assert "dataset" in e.value.where and isinstance(e.value, FileNotFoundError)
    with pytest.raises(robocache.Error):
        robocache.open(tmp_path)
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text('{"codebase_version": "v3.0", "fps": 0')
    with pytest.raises(robocache.Malformed, match="info.json"):
        robocache.open(tmp_path)
    for wrong in ("", 3, None):
        with pytest.raises(robocache.Misuse):
            robocache.open(wrong)
    with pytest.raises(robocache.Unsupported):
        robocache.open(tmp_path, format="nothing")


def test_habits(h264: str) -> None:
    """ds[i], f["dtype"] and the repr of streams behave as users expect."""
    ds = robocache.open(h264)
    assert ds[-1].position == ds.num_episodes - 1
    f = ds.features["action"]
    assert f["dtype"] == f.dtype and f["shape"] == f.shape
    with pytest.raises(KeyError):
        f["nonsense"]
    assert "action" in repr(ds[0].streams)


def test_how_it_is_opened(h264: str, tmp_path: Path) -> None:
    """format=, rows_hz=, map= and options= reach the engine through each entry point.

    They are kept by a pickle too.
    """
    import pickle

    with pytest.raises(robocache.Unsupported, match="no format"):
        robocache.open(h264, format="nothing")
    with pytest.raises(robocache.Unsupported, match="no format"):
        robocache.Loader(h264, open=robocache.Open(format="nothing"))
    with pytest.raises(robocache.Misuse, match="unknown name strems"):
        robocache.open(h264, map={"strems": {}})
    bad = tmp_path / "map.json"
    bad.write_text("{")
    with pytest.raises(robocache.Misuse) as e:
        robocache.MapDataset(h264, open=robocache.Open(map=bad))
    assert e.value.where["file"] == str(bad)
    with pytest.raises(robocache.NotFound):
        robocache.Mix(h264, open=robocache.Open(map=tmp_path / "none.json")).dataset.info
    with pytest.raises(robocache.Misuse, match="rate"):
        robocache.open(h264, rows_hz="fast")
    with pytest.raises(robocache.Misuse) as e:
        robocache.open(h264, hz=30)  # hz= is the rate to resample to, and open does not resample
    assert "rows_hz=" in e.value.hint
    good = tmp_path / "good.json"
    good.write_text('{"streams": {}, "hz": 30}')
    for ways in ({"rows_hz": 30}, {"map": good}):  # its rows have timestamps
        for opens in (
            robocache.open,
            lambda uri, **how: robocache.Loader(uri, open=robocache.Open(**how)),
            lambda uri, **how: robocache.MapDataset(uri, open=robocache.Open(**how)),
            lambda uri, **how: robocache.Mix(uri, open=robocache.Open(**how)).dataset.info,
        ):
            with pytest.raises(robocache.Misuse, match="have timestamps") as e:
                opens(h264, **ways)
            assert (
                "hz= resamples" in e.value.hint
                and "robocache.convert(…, fps=RATE)" in e.value.hint
                and "--" not in e.value.hint
            )
    good.write_text('{"streams": {}}')
    ds = robocache.open(h264, format="lerobot", map=good)
    assert (
        pickle.loads(pickle.dumps(ds))._args
        == ds._args
        == {"uri": h264, "format": "lerobot", "map": str(good)}
    )
    buffer = dataset_path("diffusion_policy_zarr/replay_buffer.zarr")
    ds = robocache.open(buffer, rows_hz=30)
    assert pickle.loads(pickle.dumps(ds))._args == ds._args == {"uri": buffer, "rows_hz": 30}
    with pytest.raises(robocache.Misuse, match="opened already"):
        robocache.Loader(ds, open=robocache.Open(format="lerobot"))
    with pytest.raises(robocache.Misuse, match="each robocache.Mix"):
        robocache.Loader([h264, h264], open=robocache.Open(format="lerobot"))


@pytest.mark.parametrize(
    "name, key, rows",
    [
        ("hdf5_features/latest.hdf5", "layout.contiguous", 200),
        ("zarr/v3/data.zarr", "1d.chunked.ragged.i2", 5),
    ],
)
def test_values_without_a_clock(name: str, key: str, rows: int) -> None:
    """An array without timestamps has values. Reading its timestamps requires a rate."""
    stream = robocache.open(dataset_path(name)).episode(0).streams[key]
    assert len(stream.values) == rows
    with pytest.raises(robocache.Misuse, match="rate"):
        stream.times  # noqa: B018
    assert len(robocache.open(dataset_path(name), rows_hz=5).episode(0).streams[key].times) == rows


def test_features_print_as_a_table(exact: str) -> None:
    import copy
    import pickle

    f = robocache.open(exact).features
    lines = repr(f).splitlines()
    assert (
        str(f) == repr(f)
        and len(lines) == len(f) + 1
        and all(line == line.rstrip() for line in lines)
    )
    assert lines[0].split()[:4] == ["key", "kind", "dtype", "shape"]
    at = lines[0].index("kind")
    assert [line[:at].strip() for line in lines[1:]] == list(f) and {
        line[at:].split()[0] for line in lines[1:]
    } == {x.kind for x in f.values()}
    assert (
        any("av1" in line and "480×640" in line for line in lines)
        and "kLeftShoulderPitch, " in lines[1]
    )
    assert any(line.startswith("timestamp") and line.endswith("bookkeeping") for line in lines)
    assert (
        isinstance(f, dict) and f == dict(f) and pickle.loads(pickle.dumps(f)) == f == copy.copy(f)
    )
    assert repr(type(f)()) == "no features"
