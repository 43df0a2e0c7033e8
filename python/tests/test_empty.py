"""Messages without members (std_msgs/Empty) are a stream of events that has timestamps only."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

import robocache

MS = 1_000_000
GO, SWITCH = [120 * MS, 130 * MS, 700 * MS], [250 * MS]


def mcap(folder: Path) -> str:
    writer = pytest.importorskip("mcap_ros2.writer")
    path = folder / "a.mcap"
    with open(path, "wb") as f:
        w = writer.Writer(f)
        empty = w.register_msgdef("std_msgs/msg/Empty", "")
        number = w.register_msgdef("std_msgs/msg/Float64", "float64 data\n")
        for t in range(0, 1000 * MS, 50 * MS):
            w.write_message("/speed", number, {"data": t / 1e9}, log_time=t, publish_time=t)
        for topic, times in (("/go", GO), ("/switch", SWITCH)):
            for t in times:
                w.write_message(topic, empty, {}, log_time=t, publish_time=t)
        w.finish()
    return os.fspath(path)


def rosbag2(folder: Path) -> str:
    bags, typesys = (
        pytest.importorskip("rosbags.rosbag2"),
        importlib.import_module("rosbags.typesys"),
    )
    types = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
    names = {
        "/speed": "std_msgs/msg/Float64",
        "/go": "std_msgs/msg/Empty",
        "/switch": "std_msgs/msg/Empty",
    }
    with bags.Writer(folder / "bag", version=9) as w:
        to = {
            topic: w.add_connection(topic, name, typestore=types) for topic, name in names.items()
        }
        for t in range(0, 1000 * MS, 50 * MS):
            w.write(
                to["/speed"],
                t,
                types.serialize_cdr(types.types["std_msgs/msg/Float64"](t / 1e9), names["/speed"]),
            )
        for topic, times in (("/go", GO), ("/switch", SWITCH)):
            for t in times:
                w.write(
                    to[topic],
                    t,
                    types.serialize_cdr(types.types["std_msgs/msg/Empty"](), names[topic]),
                )
    return os.fspath(folder / "bag")


@pytest.mark.parametrize("write", [mcap, rosbag2])
def test_events_without_members(write, tmp_path: Path) -> None:
    uri = write(tmp_path)
    ds = robocache.open(uri)
    assert {f.key: f.kind for f in ds.features.values()} == {
        "speed": "numeric",
        "go": "event",
        "switch": "event",
    }
    assert not ds.info.get("findings")
    ep = ds.episode(0)
    assert ep.streams["go"].times.tolist() == GO and ep.streams["switch"].times.tolist() == SWITCH
    assert list(ep.streams["go"].values) == ["{}"] * 3
    assert robocache.doctor(uri).errors == 0
    with robocache.Loader(uri, batch_size=4, keys=["speed"]) as loader:
        assert len(loader) == 5  # one sample per numeric message, not per event
    with robocache.Loader(uri, batch_size=20, keys=["speed", "go"], hz=20, shuffle=False) as loader:
        assert next(iter(loader))["go"] == [{}] * 20

    robocache.convert(uri, tmp_path / "out.mcap", to="mcap")
    again = robocache.open(tmp_path / "out.mcap").episode(0).streams["go"]
    assert again.kind == "event" and again.times.tolist() == GO and list(again.values) == ["{}"] * 3
    # In LeRobot both streams of events are dropped and reported by name.
    report = robocache.convert(uri, tmp_path / "lerobot", hz=20)
    assert report["dropped_features"] == ["go", "switch"]
    assert {f["where"]["stream"] for f in report["findings"] if f["code"] == "feature-dropped"} == {
        "go",
        "switch",
    }
