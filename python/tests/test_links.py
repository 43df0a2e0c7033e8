"""Links that leave a dataset, and files replaced by something else.

They are rejected by name, and followed if the caller permits it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import robocache


@pytest.fixture
def annexed(tmp_path: Path, robomimic_pair: Path) -> Path:
    """Returns a folder of two files. The second is a link to a file outside the folder."""
    here = tmp_path / "set"
    here.mkdir()
    shutil.copy(robomimic_pair, here / "a_0.hdf5")
    (tmp_path / "objects").mkdir()
    shutil.copy(robomimic_pair, tmp_path / "objects" / "x")
    os.symlink("../objects/x", here / "a_1.hdf5")
    return here


@pytest.fixture(scope="session")
def robomimic_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    h5py = pytest.importorskip("h5py")
    import numpy as np

    name = tmp_path_factory.mktemp("demo") / "demo.hdf5"
    with h5py.File(name, "w") as f:
        for d in range(2):
            g = f.create_group(f"data/demo_{d}")
            g["actions"] = np.arange(24, dtype="f4").reshape(8, 3)
            g["obs/state"] = np.arange(16, dtype="f4").reshape(8, 2)
    return name


def test_follow_links(annexed: Path) -> None:
    with pytest.raises(robocache.Malformed, match=r"a_1\.hdf5.*follow_links=True"):
        robocache.open(annexed)
    ds = robocache.open(annexed, follow_links=True, rows_hz=10)
    assert ds.num_episodes == 4 and not [f for f in ds.findings if f["severity"] == "error"]
    for thing in (
        robocache.Loader(annexed, batch_size=2, open=robocache.Open(rows_hz=10, follow_links=True)),
        robocache.MapDataset(annexed, open=robocache.Open(rows_hz=10, follow_links=True)),
        robocache.Loader(
            [robocache.Mix(annexed, open=robocache.Open(rows_hz=10, follow_links=True))],
            batch_size=2,
        ),
    ):
        assert len(thing) in (16, 32)
    assert robocache.doctor(annexed, follow_links=True, rows_hz=10).errors == 0


def test_fifo_is_malformed(tmp_path: Path, robomimic_pair: Path) -> None:
    shutil.copy(robomimic_pair, tmp_path / "a_0.hdf5")
    os.mkfifo(tmp_path / "a_1.hdf5")
    with pytest.raises(robocache.Malformed, match=r"a_1\.hdf5.*a FIFO"):
        robocache.open(tmp_path)


def test_lost_files(tmp_path: Path, robomimic_pair: Path) -> None:
    """For an unreadable file, training raises an error that names it, or skips and lists it."""
    h5py = pytest.importorskip("h5py")
    import numpy as np

    for i in range(2):
        with h5py.File(tmp_path / f"a_{i}.hdf5", "w") as f:
            f["x"] = np.full((8, 2), i, "f4")
    os.symlink("nowhere/a_2.hdf5", tmp_path / "a_2.hdf5")
    ds = robocache.open(tmp_path, rows_hz=10)
    lost = [f for f in ds.findings if f.get("lost")]
    assert (
        len(lost) == 1 and lost[0]["severity"] == "error" and lost[0]["where"]["file"] == "a_2.hdf5"
    )
    for refused in (
        lambda: robocache.Loader(ds, batch_size=2),
        lambda: robocache.MapDataset(ds),
        lambda: robocache.Loader([robocache.Mix(ds)], batch_size=2),
        lambda: ds.compute_stats(),
        lambda: robocache.stats(tmp_path, rows_hz=10),
        lambda: robocache.convert(tmp_path, tmp_path / "out", rows_hz=10),
    ):
        with pytest.raises(robocache.Malformed, match=r"a_2\.hdf5.*(on_bad_episode|skip_bad)"):
            refused()
    loader = robocache.Loader(ds, batch_size=2, order=robocache.Order(on_bad_episode="skip"))
    assert sum(len(b["x"]) for b in loader) == 16
    assert [(b["episode"], "a_2.hdf5" in b["error"]) for b in loader.stats()["bad_episodes"]] == [
        (-1, True)
    ]
    assert len(robocache.MapDataset(ds, order=robocache.Order(on_bad_episode="skip"))) == 16
    assert ds.compute_stats(skip_bad=True)["x"]["count"][0] == 16
    assert robocache.stats(tmp_path, rows_hz=10, skip_bad=True)["x"]["count"][0] == 16


def test_withheld_streams(tmp_path: Path) -> None:
    """A stream that cannot be delivered is named by findings, features, stats and errors.

    No Loader continues without a requested action.
    """
    h5py = pytest.importorskip("h5py")
    import numpy as np

    with h5py.File(tmp_path / "a_0.hdf5", "w") as f:
        f["x"] = np.zeros((8, 2), "f4")
        f["action"] = np.zeros((8, 2), "c8")  # complex numbers
    ds = robocache.open(tmp_path, rows_hz=10)
    assert [f["not_delivered"] for f in ds.findings if f.get("not_delivered")] == ["action"]
    assert "action" in ds.features.withheld and "action" not in ds.features
    with pytest.raises(robocache.Unsupported, match="action"):
        ds.episode(0).streams["action"]
    with pytest.raises(robocache.Unsupported, match="action"):
        robocache.Loader(ds, batch_size=2, keys=["action"])
    for asked in (
        {"windows": robocache.Windows(seconds={"action": [0.0]})},
        {"windows": robocache.Windows(anchor="action")},
        {"windows": robocache.Windows(rows={"action": [0]})},
        {"hz": 5, "align": robocache.Align(modes={"action": "nearest"})},
    ):
        with pytest.raises(robocache.Unsupported, match=r"action.*cannot be delivered"):
            robocache.Loader(ds, batch_size=2, **({"keys": ["x"]} | asked))
    with pytest.raises(robocache.Unsupported, match=r"action.*cannot be delivered"):
        robocache.Loader([robocache.Mix(ds, keys=["action"])], batch_size=2)
    for asked in (
        {"windows": robocache.Windows(seconds={"action": [0.0]})},
        {"windows": robocache.Windows(rows={"action": [0]})},
        {"keys": ["action"]},
    ):
        with pytest.raises(robocache.Unsupported, match=r"action.*cannot be delivered"):
            robocache.Loader(
                [robocache.Mix(ds), robocache.Mix(ds, name="again")],
                batch_size=2,
                **({"keys": ["x"]} | asked),
            )
    with pytest.raises(robocache.Unsupported, match=r"action.*keys="):
        robocache.Loader(ds, batch_size=2)
    loader = robocache.Loader(ds, batch_size=2, keys=["x"])
    assert [(n["key"], bool(n["reason"])) for n in loader.stats()["not_delivered"]] == [
        ("action", True)
    ]
