"""Tests of robocache.quality and Dataset.quality."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import robocache


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of joints without cameras, of which episode 3 is frozen in the middle."""
    dst = tmp_path_factory.mktemp("quality") / "arm"
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "gripper"]},
        "action": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "gripper"]},
    }
    rng = np.random.default_rng(0)
    with robocache.Writer(dst, features=features, fps=20) as w:
        for e in range(24):
            t = np.arange(101) / 20
            if e == 3:
                t = np.minimum(t, 2) + np.maximum(t - 4, 0)
            state = np.stack([np.sin(t), np.cos(2 * t), (t > 2.5).astype(float)], 1)
            state[:, :2] += rng.normal(scale=1e-4, size=(101, 2)) * (e != 3)
            for i in range(100):
                w.add_frame(
                    {
                        "observation.state": state[i].astype("float32"),
                        "action": state[i + 1].astype("float32"),
                        "task": "move",
                    }
                )
            w.save_episode()
    return dst


def test_table_is_measured_and_stored(arm: Path) -> None:
    q = robocache.quality(arm)
    assert q.num_episodes == 24 and (arm / "meta/quality.parquet").exists()
    assert Path(q.out) == arm / "meta/quality.parquet"
    np.testing.assert_array_equal(q["episode_index"], np.arange(24))
    assert q["idle_middle"][3] > 1.5 > q["idle_middle"][2]
    assert {f.where["episode"] for f in q.findings if f.code == "pause"} == {3}
    assert all(f.where["evidence"] == "measured" for f in q.findings if f.code == "pause")
    assert q["duration"][0] == pytest.approx(99 / 20)
    assert {m.group for m in q.metrics} >= {"motion", "gripper", "consistency", "clocks"}
    with pytest.raises(robocache.Misuse, match="idle"):
        q["idl"]


def test_dataset_returns_the_stored_table(arm: Path) -> None:
    stored = robocache.quality(arm)
    ds = robocache.open(arm)
    for name, column in ds.quality().items():
        np.testing.assert_array_equal(column, stored[name])
    some = ds.quality(episodes=[5, 2], frames="none")
    np.testing.assert_array_equal(some["episode_index"], [2, 5])
    np.testing.assert_array_equal(some["jerk_rms"], stored["jerk_rms"][[2, 5]])
    with pytest.raises(robocache.Misuse):
        ds.quality(frames="some")


def test_jerk_is_the_formula(arm: Path) -> None:
    ds = robocache.open(arm)
    values = np.stack(
        [ds.episode(e).streams["observation.state"].values[:, :2] for e in range(24)]
    ).astype(float)
    low, high = np.quantile(values.reshape(-1, 2), [0.01, 0.99], axis=0)
    jerk = np.diff((values - low) / (high - low), 3, axis=1) * 20**3
    want = np.sqrt(np.mean(jerk**2, axis=(1, 2)))
    np.testing.assert_allclose(ds.quality(frames="none")["jerk_rms"], want, rtol=1e-6)


def test_frames_share_memory(arm: Path) -> None:
    q = robocache.quality(arm, out="-")
    pyarrow = pytest.importorskip("pyarrow")
    table = q.to_arrow()
    at = table.column("jerk_rms").chunk(0).buffers()[1].address
    assert at == q["jerk_rms"].__array_interface__["data"][0]
    assert pyarrow.table(q).schema == table.schema
    pandas = pytest.importorskip("pandas")
    frame = q.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 24
    assert np.shares_memory(frame["jerk_rms"].to_numpy(), q["jerk_rms"])


def test_episodes_are_weighted_by_a_metric(arm: Path) -> None:
    q = robocache.quality(arm)
    weights = dict(zip(q["episode_index"].tolist(), (10 * q["idle"] + 0.1).tolist()))
    options = {"keys": ["index"], "batch_size": 4, "seed": 5}
    as_numbers = robocache.Loader(
        arm, order=robocache.Order(episode_weights=weights), **options
    ).order(1)
    by = "10 * q.idle + 0.1"
    by_metric = robocache.Loader(arm, order=robocache.Order(weight_by=by), **options).order(1)
    np.testing.assert_array_equal(by_metric, as_numbers)
    alone = robocache.Loader([robocache.Mix(arm, weight_by=by)], **options)
    np.testing.assert_array_equal(alone.order(1), as_numbers)
    mixed = robocache.Loader(
        [robocache.Mix(arm, weight=1, weight_by=by), robocache.Mix(arm, weight=1)], **options
    )
    own = mixed.locate(mixed.order(0))
    rows = np.bincount(own.episode[own.dataset_index == 0], minlength=len(weights))
    expected = [max(1, weights[e] * n) for e, n in zip(weights, q["length"])]
    share = rows / np.array(expected)
    assert share.std() < 0.2 * share.mean()
    for bad in ("q.nothing", "q.score - 9", "task", "q.score > 0"):
        with pytest.raises(robocache.Misuse):
            robocache.Loader(arm, order=robocache.Order(weight_by=bad), **options)
