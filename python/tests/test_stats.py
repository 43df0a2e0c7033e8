"""Statistics that are computed, kept in a file, and passed to a Loader.

The formats of these tests store no statistics.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import robocache
from conftest import dataset_path


@pytest.fixture(scope="module")
def demos() -> str:
    return dataset_path("robomimic_like/earliest_gzip_shuffle.hdf5")


def rows_of(ds: robocache.Dataset, key: str) -> np.ndarray:
    return np.concatenate(
        [np.asarray(ds.episode(i).streams[key].values) for i in range(len(ds))]
    ).astype(np.float64)


def test_counted_now(demos: str) -> None:
    """Computed statistics equal NumPy's over all rows, of some episodes and of all.

    The statistics of the dataset are not changed.
    """
    ds = robocache.open(demos, rows_hz=20)
    s = ds.compute_stats(["action"])
    assert list(s) == ["action"] and ds.stats == {}
    rows = rows_of(ds, "action")
    for name, want in (
        ("mean", rows.mean(0)),
        ("std", rows.std(0)),
        ("min", rows.min(0)),
        ("max", rows.max(0)),
        ("q99", np.quantile(rows, 0.99, axis=0)),
    ):
        np.testing.assert_allclose(s["action"][name], want, rtol=1e-9, atol=1e-12)
    assert s["action"]["count"].tolist() == [len(rows)]
    one = ds.compute_stats("action", episodes=[len(ds) - 1])
    np.testing.assert_allclose(
        one["action"]["mean"],
        np.asarray(ds.episode(len(ds) - 1).streams["action"].values, np.float64).mean(0),
        rtol=1e-9,
    )
    camera = next(k for k, f in ds.features.items() if f.kind == "image")
    assert camera not in ds.compute_stats()
    images = ds.compute_stats([camera], frames="all")[camera]
    assert (
        images["mean"].shape == (3, 1, 1) and 0 <= images["min"].min() and images["max"].max() <= 1
    )


@pytest.mark.parametrize("kept", [False, True], ids=["dict", "file"])
def test_a_loader_normalises_with_them(demos: str, kept: bool, tmp_path: Path) -> None:
    ds = robocache.open(demos, rows_hz=20)
    stats = ds.compute_stats()
    given = stats
    if kept:
        given = tmp_path / "stats.json"
        given.write_text(
            json.dumps(
                {
                    k: {n: v.tolist() for n, v in s.items()}
                    for k, s in {**stats, "not here": stats["action"]}.items()
                }
            )
        )
    how = {"batch_size": 32, "shuffle": False, "keys": ["action"]}
    with (
        robocache.Loader(ds, **how) as plain,
        robocache.Loader(
            ds, normalize="mean_std", statistics=robocache.Statistics(values=given), **how
        ) as normal,
    ):
        for a, b in zip(plain, normal, strict=True):
            mean, std = (np.float32(stats["action"][n]) for n in ("mean", "std"))
            # as LeRobot does, in float32
            want = (np.asarray(a["action"], np.float32) - mean) / (std + np.float32(1e-8))
            np.testing.assert_allclose(np.asarray(b["action"]), want, rtol=1e-6, atol=1e-6)


def test_misuse(demos: str, tmp_path: Path) -> None:
    ds = robocache.open(demos, rows_hz=20)
    with pytest.raises(robocache.Misuse, match="unknown key 'acton'.*action"):
        ds.compute_stats(["acton"])
    with pytest.raises(robocache.Misuse, match="episode 99"):
        ds.compute_stats(episodes=[99])
    with pytest.raises(robocache.Misuse, match="frames"):
        ds.compute_stats(frames="some")
    with pytest.raises(robocache.NotFound, match=r"robocache\.stats\(URI, out="):
        robocache.Loader(ds, statistics=robocache.Statistics(values=tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("[1")
    with pytest.raises(robocache.Malformed, match="bad.json"):
        robocache.Loader(ds, statistics=robocache.Statistics(values=tmp_path / "bad.json"))
    with pytest.raises(robocache.Misuse, match="give it to each"):
        robocache.Loader(
            [robocache.Mix(ds), robocache.Mix(ds)], statistics=robocache.Statistics(values={})
        )
