"""Delta actions at another rate: relative channels are summed, to keep the total displacement."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path

import robocache

ROWS, RATE = 21, 5


def array(path: Path, values: np.ndarray) -> None:
    path.mkdir(parents=True)
    meta = {
        "zarr_format": 2,
        "shape": values.shape,
        "chunks": values.shape,
        "dtype": values.dtype.str,
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    (path / ".zarray").write_text(json.dumps(meta))
    (path / ".".join("0" * values.ndim)).write_bytes(values.tobytes())


@pytest.fixture
def values() -> np.ndarray:
    out = np.random.default_rng(1).normal(size=(ROWS, 7)).astype(np.float32)
    out[:, 6] = np.arange(ROWS) // 5 % 2  # the gripper, which is absolute
    return out


@pytest.fixture
def buffer(tmp_path: Path, values: np.ndarray) -> str:
    root = tmp_path / "set.zarr"
    array(root / "data" / "action", values)
    array(root / "data" / "state", values[:, :3].copy())
    array(root / "meta" / "episode_ends", np.array([ROWS], np.int64))
    for p in (root, root / "data", root / "meta"):
        (p / ".zgroup").write_text('{"zarr_format": 2}')
    return str(root)


def summed(rows: np.ndarray, rate: float, hz: float, ticks: int) -> np.ndarray:
    """Returns the sum of relative rows per tick.

    Row k covers k / rate to (k + 1) / rate. A tick receives the part of each row that overlaps it.
    """
    start = np.arange(len(rows)) / rate
    at = np.arange(ticks)[:, None] / hz
    part = np.minimum(start + 1 / rate, at + 1 / hz) - np.maximum(start, at)
    return np.maximum(part, 0) * rate @ rows.astype(np.float64)


OPEN = robocache.Open(rows_hz=RATE)


def everything(path: str, **options: object) -> tuple[np.ndarray, np.ndarray]:
    with robocache.Loader(path, batch_size=8, shuffle=False, keys=["action"], **options) as loader:
        batches = [{k: np.asarray(v) for k, v in b.items()} for b in loader]
    return np.concatenate([b["action"] for b in batches]), np.concatenate(
        [b["action_is_pad"] for b in batches]
    )


@pytest.mark.parametrize("hz", [1, 2, 5, 7, 10, 30])
def test_sums_are_kept(buffer: str, values: np.ndarray, hz: int) -> None:
    got, pads = everything(
        buffer, open=OPEN, hz=hz, align=robocache.Align(relative={"action": True})
    )
    ticks = int((ROWS - 1) / RATE * hz) + 1
    want = summed(values, RATE, hz, ticks)
    assert got.shape == (ticks, 7) and not pads.any()
    assert np.allclose(got[:, :6], want[:, :6], atol=1e-5)
    assert np.allclose(
        got[:, 6], np.interp(np.arange(ticks) / hz, np.arange(ROWS) / RATE, values[:, 6]), atol=1e-6
    )
    covered = ticks / hz * RATE  # in rows; motion of the last row after the last tick is in no tick
    lost = max(0.0, ROWS - covered) * values[-1, :6]
    assert np.allclose(got[:, :6].sum(0) + lost, values[:, :6].sum(0), atol=1e-4)
    if hz == RATE:
        assert np.array_equal(got, values)


def test_choices(buffer: str, values: np.ndarray) -> None:
    linear = np.stack(
        [np.interp(np.arange(41) / 10, np.arange(ROWS) / RATE, c) for c in values.T], 1
    )
    some = summed(values, RATE, 10, 41)
    for align, channels in (
        ({"relative": {"action": False}}, []),
        ({"relative": {"action": [0, 2]}}, [0, 2]),
        ({"modes": {"action": "sum"}}, [0, 1, 2, 3, 4, 5]),
        ({"modes": {"action": "sum"}, "relative": {"action": np.arange(7)}}, list(range(7))),
        (None, []),
    ):
        got, _ = everything(buffer, open=OPEN, hz=10, align=robocache.Align(**(align or {})))
        want = linear.copy()
        want[:, channels] = some[:, channels]
        assert np.allclose(got, want, atol=1e-5), align
    with robocache.open(buffer, rows_hz=RATE) as ds:
        aligned = ds.episode(0).align(hz=10, keys=["action"], relative={"action": True})
        assert np.allclose(aligned["action"][:, :6], some[:, :6], atol=1e-5)
        times = ds.episode(0).align(
            times=[0.0, 0.1, 0.5, 2.0], keys=["action"], modes={"action": "sum"}
        )
        assert np.allclose(
            times["action"][1, :6], values[0, :6] / 2 + values[1, :6] + values[2, :6] / 2, atol=1e-5
        )


def test_windows(buffer: str, values: np.ndarray) -> None:
    """Window entries outside the data are padded, with no motion after the end of the last row."""
    got, pads = everything(
        buffer,
        open=OPEN,
        hz=10,
        align=robocache.Align(relative={"action": True}),
        delta_timestamps={"action": [-0.1, 0.0, 0.1, 0.2]},
    )
    one = summed(values, RATE, 10, 43)
    assert got.shape == (41, 4, 7)
    for step, offset in enumerate((-1, 0, 1, 2)):
        rows = np.arange(41) + offset
        inside = rows >= 0
        assert np.allclose(got[inside, step, :6], one[rows[inside], :6], atol=1e-5)
        assert not got[~inside, step, :6].any()
        assert np.array_equal(pads[:, step], (rows < 0) | (rows > 40))
    assert np.allclose(got[-1, 3, 6], values[-1, 6])  # the gripper keeps its last value


def test_wrong_choices(buffer: str) -> None:
    for bad in (
        {"action": "yes"},
        {"action": []},
        {"action": [7]},
        {"action": ["dx"]},
        {"nobody": True},
        {"action": [0.5]},
    ):
        with pytest.raises(robocache.Misuse):
            everything(buffer, open=OPEN, hz=10, align=robocache.Align(relative=bad))
    with pytest.raises(robocache.Unsupported, match="align"):
        robocache.resample(np.zeros((4, 2), np.float32), np.arange(4.0), hz=10, mode="sum")


def test_marking_is_kept(buffer: str, tmp_path: Path) -> None:
    """A converted set keeps the marks of relative channels and is resampled accordingly."""
    for to in ("lerobot", "zarr", "rlds"):
        dst = str(tmp_path / to / "set" / "1.0.0")
        robocache.convert(
            buffer, dst, to=to, hz=10, rows_hz=RATE, align={"relative": {"action": True}}
        )
        with robocache.open(dst) as ds:
            assert ds.features["action"].relative == (0, 1, 2, 3, 4, 5), to
            written = np.asarray(ds.episode(0).streams["action"].values, np.float64)
        got, _ = everything(dst, hz=RATE)
        assert np.allclose(got[:-1, :6], written[:-1, :6].reshape(-1, 2, 6).sum(1), atol=1e-5), to
        with robocache.open(buffer, rows_hz=RATE) as ds:
            assert ds.features["action"].relative is None


def test_bridge_is_recognised(caplog: pytest.LogCaptureFixture) -> None:
    path = dataset_path("bridge_rlds")
    with robocache.open(path, split="train") as ds:
        rows = np.asarray(ds.episode(0).streams["action"].values)
        assert ds.features["action"].relative == (0, 1, 2, 3, 4, 5)
    with caplog.at_level(logging.INFO, "robocache"):
        got, pads = everything(path, hz=10, episodes=[0])
    assert got.shape == (19, 7) and not pads.any()
    assert got[:, 2].sum() == pytest.approx(rows[:, 2].sum() - rows[-1, 2] / 2, abs=1e-6)
    assert (
        sum(
            "action is relative" in r.message and "columns 0–5" in r.message for r in caplog.records
        )
        == 1
    )
