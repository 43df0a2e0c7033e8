"""Causal alignment: options, the preset, batches, the report and conversions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import robocache
from conftest import dataset_path
from robocache import Align, Loader, Misuse

JOINTS, IMU = "joint_states.position", "imu.data.orientation"


@pytest.fixture(scope="module")
def bag() -> str:
    """Returns the path of a recording with header clocks and the recorder's arrival times."""
    return dataset_path("mcap_robot/recording_zstd.mcap")


def whole_epoch(source: Any, **options: Any) -> dict[str, np.ndarray]:
    """Returns an epoch as one batch in the order of the files."""
    with Loader(source, batch_size=100_000, shuffle=False, **options) as loader:
        batch = next(iter(loader))
    return {k: np.asarray(v) for k, v in batch.items() if not isinstance(v, list)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_age": {JOINTS: "9ms"}, "arrival_delay": 0.002},
        {"modes": {JOINTS: "linear"}, "delay": {JOINTS: 0.004}, "edge": "mask"},
        {"delay": "50ms", "targets": [IMU]},
    ],
)
def test_batches_are_rows_of_align(bag: str, options: dict[str, Any]) -> None:
    keys = [JOINTS, IMU]
    want = robocache.open(bag).episode(0).align(hz=50, keys=keys, causal=True, **options)
    got = whole_epoch(
        bag,
        hz=50,
        keys=keys,
        align=Align(causal=True, **options),
        windows=robocache.Windows(dtype="keep"),
    )
    for key in [*keys, *(f"{k}_is_pad" for k in keys)]:
        assert np.array_equal(got[key], want[key]), key
    assert want[f"{JOINTS}_is_pad"].any() == ("max_age" in options or "modes" in options)


def test_preset(bag: str, exact: str) -> None:
    one = whole_epoch(bag, hz=50, keys=[JOINTS], align="causal")
    other = whole_epoch(bag, hz=50, keys=[JOINTS], align=Align(causal=True))
    assert np.array_equal(one[JOINTS], other[JOINTS])
    mixed = Loader([robocache.Mix(bag, hz=50, align="causal")], keys=[JOINTS], batch_size=1)
    assert mixed.causality().streams[0].future_share == 0
    items = robocache.MapDataset(bag, hz=50, keys=[JOINTS], align="causal")
    assert len(items) == len(one[JOINTS])
    # A dataset with one clock needs no hz: each row has arrived at its own time.
    rows = whole_epoch(exact, keys=["observation.state"], episodes=[0])
    causal = whole_epoch(exact, keys=["observation.state"], episodes=[0], align="causal")
    assert np.array_equal(rows["observation.state"], causal["observation.state"])
    late = Align(causal=True, arrival_delay="50ms")
    held = whole_epoch(exact, keys=["observation.state"], episodes=[0], align=late)
    assert np.array_equal(held["observation.state"][2:], rows["observation.state"][:-2])
    assert held["observation.state_is_pad"].tolist() == [True] * 2 + [False] * (
        len(rows["observation.state"]) - 2
    )


def test_wrong_options(bag: str) -> None:
    for options, text in [
        ({"causal": "yes"}, "expected True or False"),
        ({"causal": True, "latency": {JOINTS: {"uniform": [0.1]}}}, '{"measured": True}'),
        ({"causal": True, "latency": {JOINTS: {"measured": False}}}, '{"measured": True}'),
        ({"causal": True, "latency": {JOINTS: {"uniform": [0.2, 0.1]}}}, "[low, high]"),
        ({"causal": True, "targets": JOINTS}, "expected a list of keys"),
        ({"causal": True, "targets": ["joints"]}, "unknown key of Align.targets"),
        ({"causal": True, "stale": "drop"}, "'mask', 'error'"),
        ({"causal": True, "delay": {"action": 1}}, "unknown stream"),
        (
            {"causal": True, "modes": {JOINTS: "linear"}},
            'Align(delay={"joint_states.position": "50ms"})',
        ),
        ({"max_age": 1}, "causal: true"),
    ]:
        with pytest.raises(Misuse) as e:
            Loader(bag, hz=50, keys=[JOINTS], align=Align(**options))
        assert text in str(e.value), (options, str(e.value))
    with pytest.raises(Misuse, match="expected a robocache.Align"):
        Loader(bag, hz=50, align="casual")
    with pytest.raises(Misuse) as e:
        Loader(bag, hz=50, align="causal", keys=[JOINTS], delta_timestamps={JOINTS: [0, 0.1]})
    assert f'align=robocache.Align(targets=["{JOINTS}"])' in e.value.hint
    with pytest.raises(robocache.Malformed, match="young enough"):
        robocache.open(bag).episode(0).align(
            hz=50, keys=[JOINTS], causal=True, max_age="1ms", stale="error"
        )
    with pytest.raises(robocache.Unsupported, match="drawn latency"):
        robocache.open(bag).episode(0).align(
            hz=50, keys=[JOINTS], causal=True, latency={JOINTS: {"measured": True}}
        )


@pytest.mark.parametrize("latency", [{"measured": True}, {"uniform": [0.01, "60ms"]}])
def test_drawn_latency(bag: str, latency: dict[str, Any]) -> None:
    options = dict(
        hz=50, keys=[JOINTS], align=Align(causal=True, latency={JOINTS: latency}), seed=3
    )

    def epochs(**more: Any) -> list[np.ndarray]:
        with Loader(bag, batch_size=1000, shuffle=False, **{**options, **more}) as loader:
            return [np.asarray(next(iter(loader))[JOINTS]) for _ in range(2)]

    first, second = epochs()
    assert np.array_equal(first, epochs(threads=1)[0]) and not np.array_equal(first, second)
    assert not np.array_equal(first, epochs(seed=4)[0])


def test_report(bag: str) -> None:
    report = robocache.causality(bag, hz=50, keys=[JOINTS, IMU], time_budget="2min")
    joints = report.streams[0]
    assert joints.key == JOINTS and joints.future_share > 0.9 and joints.arrivals == "recorded"
    assert 0 < joints.look_ahead_median_s <= joints.look_ahead_max_s <= 0.0105
    assert report.time_budget_s == 120 and report.hz == 50 and report.uri == bag
    hint = next(f.hint for f in report.findings if f.code == "look-ahead")
    assert hint.startswith('Pass align="causal" ')
    with Loader(bag, hz=50, keys=[JOINTS, IMU]) as loader:
        own = loader.causality(time_budget=0)
    assert sorted(own.streams, key=lambda s: s.key) == sorted(report.streams, key=lambda s: s.key)
    with pytest.raises(Misuse):
        loader.causality(time_budget=-1)
    # The delay of the report keeps the rows, also as the hint of a delay that is too short says.
    short = Align(causal=True, modes={JOINTS: "linear"}, delay={JOINTS: 0.002})
    found = robocache.causality(bag, hz=50, keys=[JOINTS], align=short)
    assert found.streams[0].masked_share > 0.1
    text = next(f.hint for f in found.findings if f.code == "delay-too-short")
    better = eval(text.removeprefix("Pass align="), {"robocache": robocache})  # noqa: S307
    kept = robocache.causality(bag, hz=50, keys=[JOINTS], align=better)
    assert kept.streams[0].masked_share <= 0.001 and kept.streams[0].mode == "linear"
    assert [f.code for f in kept.findings] == ["arrival-times"]


def test_assumption_is_stated(
    exact: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robocache._checks._logged_notes", set())
    report = robocache.causality(exact, align="causal", episodes=[0, 2])
    assert {s.key: s.label for s in report.streams}["action"] is True
    assert report.num_episodes == 2
    note = report.findings[-1]
    assert "observation.state" in note.message and "assumed" in note.message
    eval(note.hint.split("align=")[1].split(" if ")[0], {"robocache": robocache})  # noqa: S307
    with caplog.at_level("INFO", "robocache"):
        Loader(exact, align="causal", keys=["observation.state"]).close()
    assert "assumed to arrive with their timestamps" in caplog.text
    caplog.clear()
    with caplog.at_level("INFO", "robocache"):
        Loader(exact, hz=50, keys=["observation.state"]).close()
    assert caplog.text.count("after the tick") == 1 and 'Pass align="causal"' in caplog.text


def test_convert(bag: str, tmp_path: Path) -> None:
    keys = [JOINTS, IMU]
    for name, options in {
        "flag": {"hz": 50, "causal": True},
        "preset": {"hz": 50, "align": "causal"},
        "group": {"hz": 50, "align": Align(causal=True)},
    }.items():
        made = robocache.convert(bag, tmp_path / name, keys=keys, frames="none", **options)
        assert "arrival-times" in [f.code for f in made.findings]
    saved = json.loads((tmp_path / "flag" / "meta" / "conversion.json").read_text())
    assert "arrival-times" in [f["code"] for f in saved["findings"]]
    want = robocache.open(bag).episode(0).align(hz=50, keys=keys, causal=True)
    for name in ("flag", "preset", "group"):
        episode = robocache.open(tmp_path / name).episode(0)
        for key in keys:
            assert np.array_equal(episode.streams[key].values, want[key]), (name, key)
