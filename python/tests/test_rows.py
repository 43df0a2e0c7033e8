"""Rows without timestamps: values, lengths and windows in rows need no rate.

Operations that need time raise an error that asks for one by name.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path

import robocache

ROWS, WIDTH = 12, 3


def zarr_store(root: Path, arrays: dict[str, np.ndarray]) -> str:
    """Creates an uncompressed Zarr v2 store with one chunk per array."""
    root.mkdir()
    (root / ".zgroup").write_text('{"zarr_format": 2}')
    for name, a in arrays.items():
        d = root / name
        d.mkdir(parents=True)
        for p in (d.parent,) if d.parent != root else ():
            (p / ".zgroup").write_text('{"zarr_format": 2}')
        meta = {
            "zarr_format": 2,
            "shape": a.shape,
            "chunks": a.shape,
            "dtype": a.dtype.str,
            "compressor": None,
            "fill_value": 0,
            "order": "C",
            "filters": None,
        }
        (d / ".zarray").write_text(json.dumps(meta))
        (d / ".".join("0" * a.ndim)).write_bytes(a.tobytes())
    return str(root)


@pytest.fixture
def buffer(tmp_path: Path) -> str:
    """Returns a store with two episodes of 5 and 7 rows."""
    action = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    return zarr_store(
        tmp_path / "buffer.zarr",
        {
            "data/action": action,
            "data/state": action + 100,
            "meta/episode_ends": np.array([5, ROWS], np.int64),
        },
    )


def test_values_need_no_rate(buffer: str, tmp_path: Path) -> None:
    ds = robocache.open(buffer)
    key = next(k for k in ds.features if k.endswith("state"))
    stream = ds.episode(1).streams[key]
    assert (
        len(stream) == 7 and stream.values.shape == (7, WIDTH) and stream.values[0, 0] == 100 + 15
    )
    assert ds.compute_stats()["action"]["max"][0] == 33
    assert next(iter(robocache.Loader(ds, batch_size=4, shuffle=False)))["action"][
        :, 0
    ].tolist() == [0, 3, 6, 9]
    assert next(
        iter(
            robocache.Loader(
                ds, batch_size=4, shuffle=False, windows=robocache.Windows(anchor="action")
            )
        )
    )["action"][:, 0].tolist() == [0, 3, 6, 9]
    for ask in (
        lambda: stream.times,
        lambda: ds.episode(0).align(hz=10),
        lambda: robocache.Loader(ds, hz=10),
        lambda: robocache.Loader(ds, delta_timestamps={"action": [0, 0.1]}),
        lambda: robocache.Loader(ds, windows=robocache.Windows(seconds={"action": (-0.1, 0.0)})),
        lambda: robocache.convert(buffer, tmp_path / "lerobot", to="lerobot", progress=False),
        lambda: robocache.convert(buffer, tmp_path / "out.mcap", to="mcap", progress=False),
    ):
        with pytest.raises(robocache.Misuse) as e:
            ask()
        assert "rows_hz=" in e.value.hint, e.value
    # These formats need no timestamps.
    for to in ("zarr", "hdf5", "rlds"):
        dst = tmp_path / (f"{to}.hdf5" if to == "hdf5" else to)
        robocache.convert(buffer, dst, to=to, progress=False)
        out = robocache.open(dst)
        assert (
            out.num_frames == ROWS
            and (
                out.episode(1).streams["action"].values == ds.episode(1).streams["action"].values
            ).all()
        )
        with pytest.raises(robocache.Misuse, match="clock"):
            out.episode(0).streams["action"].times  # noqa: B018


def test_windows_in_rows(buffer: str) -> None:
    ds = robocache.open(buffer)
    offsets = [-1, 0, 2]
    lengths = [5, 7]
    want, pads = [], []
    for first, n in ((0, 5), (5, 7)):
        for i in range(n):
            want.append([3 * (first + min(max(i + o, 0), n - 1)) for o in offsets])
            pads.append([not 0 <= i + o < n for o in offsets])
    m = robocache.MapDataset(ds, windows=robocache.Windows(rows={"action": offsets}))
    assert len(m) == sum(lengths)
    got = m.batch(range(len(m)))
    assert got["action"][:, :, 0].tolist() == want and got["action_is_pad"].tolist() == pads
    assert got["action"].shape == (ROWS, 3, WIDTH) and "state_is_pad" not in "".join(got)
    batch = next(
        iter(
            robocache.Loader(
                ds,
                batch_size=ROWS,
                shuffle=False,
                windows=robocache.Windows(rows={"action": offsets}),
            )
        )
    )
    assert batch["action"][:, :, 0].tolist() == want and batch["action_is_pad"].tolist() == pads
    # With a known rate, windows in seconds give the same, and windows on a timeline count its rows.
    rated = robocache.open(buffer, rows_hz=10)
    seconds = robocache.MapDataset(
        rated, delta_timestamps={"action": [o / 10 for o in offsets]}
    ).batch(range(ROWS))
    assert (
        seconds["action"].tolist() == got["action"].tolist()
        and seconds["action_is_pad"].tolist() == pads
    )
    grid = [
        robocache.MapDataset(rated, hz=20, keys=["action"], **w).batch(range(20))
        for w in (
            {"windows": robocache.Windows(rows={"action": offsets})},
            {"delta_timestamps": {"action": [o / 20 for o in offsets]}},
        )
    ]
    assert (
        grid[0]["action"].tolist() == grid[1]["action"].tolist()
        and grid[0]["action_is_pad"].tolist() == grid[1]["action_is_pad"].tolist()
    )
    mixed = next(
        iter(
            robocache.Loader(
                [robocache.Mix(ds), robocache.Mix(rated)],
                batch_size=2 * ROWS,
                windows=robocache.Windows(rows={"action": offsets}),
            )
        )
    )
    assert sorted(mixed["action"][:, 1, 0].tolist()) == sorted(
        2 * [float(3 * i) for i in range(ROWS)]
    )
    for wrong in (
        {"acton": [0]},
        {"action": []},
        {"action": [0.5]},
        {"action": 3},
        {"action": [1 << 40]},
        [0, 1],
    ):
        with pytest.raises(robocache.Misuse, match="Windows.rows|delta_indices|acton"):
            robocache.Loader(ds, windows=robocache.Windows(rows=wrong))
    with pytest.raises(robocache.Misuse, match="both"):
        robocache.Loader(
            rated, windows=robocache.Windows(rows={"action": [0]}), delta_timestamps={"action": [0]}
        )


def test_an_anchor_with_rows_of_its_own() -> None:
    """Arrays of different lengths without timestamps can be the anchor and have windows."""
    uri = dataset_path("hdf5_features/latest.hdf5")
    ds = robocache.open(uri)
    key = "layout.contiguous"
    stream = ds.episode(0).streams[key]
    assert ds.features[key].clock and len(stream) == 200 != len(ds.episode(0))
    m = robocache.MapDataset(
        ds, keys=[key], windows=robocache.Windows(anchor=key, rows={key: [-1, 0, 1]})
    )
    assert len(m) == 200
    got, values = m.batch([0, 100, 199]), stream.values
    for k, i in enumerate((0, 100, 199)):
        rows = [max(i - 1, 0), i, min(i + 1, 199)]
        assert np.array_equal(np.asarray(got[key][k]), values[rows])
    assert got[key + "_is_pad"].tolist() == [
        [True, False, False],
        [False] * 3,
        [False, False, True],
    ]
    with pytest.raises(robocache.Misuse, match="anchor=") as e:
        robocache.Loader(ds, keys=[key], windows=robocache.Windows(rows={key: [0]}))
    with pytest.raises(robocache.Misuse) as e:
        robocache.Loader(ds, keys=[key])
    assert "rows_hz=" in e.value.hint and "anchor=" in e.value.hint


def test_points_without_a_clock(tmp_path: Path) -> None:
    """Point clouds in npy files can be read. Reading their timestamps requires a rate."""
    for i in range(3):
        np.save(tmp_path / f"scan_{i}.npy", np.full((2 + i, 3), i, np.float32))
    ds = robocache.open(tmp_path, format="clouds")
    stream = next(iter(ds.episode(0).streams.values()))
    assert len(stream) == 3 and [len(v) for v in stream.values] == [2, 3, 4]
    with pytest.raises(robocache.Misuse, match="rows_hz=10"):
        stream.times  # noqa: B018


def test_length_of_a_recording() -> None:
    with robocache.open(f"{dataset_path('mcap_robot')}/recording_zstd.mcap") as ds:
        for stream in ds.episode(0).streams.values():
            n = len(stream)
            assert n == len(stream.times)


def test_an_assumed_rate_is_not_resampled() -> None:
    """Rows with an assumed rate are not resampled, as with --hz of the command line.

    Resampling would treat the assumption as a recorded rate.
    """
    uri = dataset_path("aloha_like")
    ds = robocache.open(uri)
    for call in (
        lambda: robocache.Loader(uri, hz=25),
        lambda: robocache.Loader([robocache.Mix(uri, hz=25)]),
        lambda: robocache.Loader([uri], hz=25),
        lambda: robocache.MapDataset(uri, hz=25),
        lambda: ds.episode(0).align(hz=25),
    ):
        with pytest.raises(robocache.Misuse, match="50 Hz is only assumed") as e:
            call()
        assert "rows_hz=" in e.value.hint and e.value.where["dataset"] == uri
    assert len(robocache.Loader(uri, hz=25, open=robocache.Open(rows_hz=50), keys=["action"])) > 0
    assert len(robocache.Loader(uri, keys=["action"])) > 0
