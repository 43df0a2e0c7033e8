"""split= of open, Loader, MapDataset and Mix, and the split that training reads by default."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import dataset_path

import robocache


@pytest.fixture
def bridge() -> str:
    return dataset_path("bridge_rlds")


def test_open(bridge: str) -> None:
    ds = robocache.open(bridge)
    assert ds.splits == {"train": 25, "val": 25} and ds.num_episodes == 50
    val = robocache.open(bridge, split="val")
    assert val.num_episodes == 25 and val.splits == {"val": 25}
    assert (
        val.num_frames
        == ds.split("val").num_frames
        == sum(len(ds.episode(i)) for i in range(25, 50))
    )
    assert (
        val.episode(0).streams["action"].values == ds.episode(25).streams["action"].values
    ).all()
    assert robocache.open(bridge, split="all").num_episodes == 50
    for wrong in (
        lambda: robocache.open(bridge, split="test"),
        lambda: ds.split("test"),
        lambda: robocache.Loader(bridge, split="test"),
    ):
        with pytest.raises(robocache.Misuse, match="train.*val"):
            wrong()


def test_training_reads_train(bridge: str, caplog: pytest.LogCaptureFixture) -> None:
    ds = robocache.open(bridge)
    train = ds.split("train").num_frames
    how = dict(keys=["action"], batch_size=8)
    with caplog.at_level(logging.WARNING, logger="robocache"):
        assert robocache.Loader(bridge, **how).num_samples == train
        assert robocache.Loader(ds, **how).num_samples == train
        assert len(robocache.MapDataset(bridge, keys=["action"])) == train
        assert (
            robocache.Loader(
                robocache.MapDataset(bridge, keys=["action"]), batch_size=8
            ).num_samples
            == train
        )
        assert robocache.Loader([robocache.Mix(bridge)], **how).num_samples == train
    # another test may have caused the warning already
    assert len([r for r in caplog.records if "train" in r.message]) <= 1
    val = ds.num_frames - train
    assert robocache.Loader(bridge, split="val", **how).num_samples == val
    assert robocache.Loader(ds, split="all", **how).num_samples == ds.num_frames
    assert robocache.Loader(ds, episodes=[49], **how).num_samples == len(ds.episode(49))
    assert robocache.Loader(ds.split("val"), **how).num_samples == val
    assert (
        robocache.Loader(
            [robocache.Mix(bridge, split="val"), robocache.Mix(bridge, split="train")], **how
        ).num_samples
        == ds.num_frames
    )
    assert len(robocache.MapDataset(bridge, split="val", keys=["action"])) == val
    with pytest.raises(robocache.Misuse, match="split and episodes"):
        robocache.Loader(ds, split="val", episodes=[0], **how)


@pytest.mark.slow
def test_it_is_said(bridge: str, tmp_path: Path) -> None:
    """In a separate process the default split is reported once on stderr."""
    program = tmp_path / "train.py"
    program.write_text(
        "import sys, robocache\nfor _ in range(2): robocache.Loader(sys.argv[1], "
        "keys=['action'], batch_size=8)\n"
    )
    err = subprocess.run(
        [sys.executable, str(program), bridge], capture_output=True, text=True, check=True
    ).stderr
    assert err.count("the split train is read, 25 of 50 episodes") == 1


def test_states_are_of_a_split(bridge: str) -> None:
    how = dict(keys=["action"], batch_size=8)
    state = robocache.Loader(bridge, split="train", **how).state_dict()
    with pytest.raises(robocache.Misuse):
        robocache.Loader(bridge, split="val", **how).load_state_dict(state)


@pytest.mark.slow
def test_lerobot_class_reads_all(h264: str, tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(h264, root)
    info = json.loads((root / "meta" / "info.json").read_text())
    n = info["total_episodes"]
    info["splits"] = {"train": f"0:{n - 1}", "val": f"{n - 1}:{n}"}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    ds = robocache.open(root)
    assert robocache.LeRobotDataset("a/b", root=root).num_episodes == n
    assert len(robocache.LeRobotDataset("a/b", root=root)) == ds.num_frames
    assert len(robocache.MapDataset(root, keys=["action"])) == ds.num_frames - len(
        ds.episode(n - 1)
    )
    last = ds.split("val")
    assert (
        last.num_episodes == 1
        and (last[0].streams["action"].values == ds.episode(n - 1).streams["action"].values).all()
    )
    assert next(iter(robocache.Loader(last, keys=["action"], batch_size=2)))["action"].shape[0] == 2


def test_converted(bridge: str, tmp_path: Path) -> None:
    """LeRobot keeps the splits, and training reads train there too.

    MCAP cannot store splits, and the report says so.
    """
    to = tmp_path / "lerobot"
    report = robocache.convert(bridge, to, keys=["action"])
    assert not [f for f in report["findings"] if f["code"] == "splits-dropped"]
    ds = robocache.open(to)
    assert ds.splits == {"train": 25, "val": 25} and json.loads(
        (to / "meta/info.json").read_text()
    )["splits"] == {"train": "0:25", "val": "25:50"}
    with robocache.Loader(to, batch_size=8, drop_last=False) as loader:
        assert sum(len(b["action"]) for b in loader) == ds.split("train").num_frames < ds.num_frames
    lerobot = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    assert len(lerobot.LeRobotDataset("a/b", root=to)) == ds.num_frames
    report = robocache.convert(bridge, tmp_path / "mcap", to="mcap", keys=["action"])
    assert [f["message"] for f in report["findings"] if f["code"] == "splits-dropped"][
        0
    ].startswith("not kept: the splits train, val")
