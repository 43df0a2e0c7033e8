"""A column of timestamps that cannot be used is named, with the episode and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_case

import robocache

pytest.importorskip("h5py", reason="h5py is not installed")


@pytest.mark.parametrize(
    ("variant", "name", "message"),
    [
        ("robomimic.short", "t01.hdf5", "obs/timestamp has 8 values for 9 rows in episode 2"),
        ("robomimic.nan", "t01.hdf5", "obs/timestamp is NaN at row 5 in episode 2"),
        (
            "hdf5.constant",
            "t01.hdf5",
            "timestamp is 0 in all 9 rows in episode 0, and cannot be used in 3 episodes",
        ),
        (
            "aloha.backwards",
            "t01",
            "observations/timestamp steps back from 0.4 to 0.2 at row 5 in episode 2",
        ),
        ("zarr.strings", "t01.zarr", "data/timestamp holds text and no numbers"),
        ("zarr.twodim", "t01.zarr", "data/timestamp has 2 values for each row"),
    ],
)
def test_unused_clock(tmp_path: Path, variant: str, name: str, message: str) -> None:
    root = str(run_case("T01", tmp_path / name, variant))
    found = [f for f in robocache.inspect(root)["findings"] if f["code"] == "clock-unusable"]
    assert [f["message"] for f in found] == [message]
    assert found[0]["hint"].endswith("or state the rate of the rows with rows_hz=")
    assert message in [
        f["message"] for f in robocache.doctor(root)["findings"] if f["code"] == "clock-unusable"
    ]
    with pytest.raises(robocache.Misuse) as error:
        robocache.Loader(root, hz=5, batch_size=2)
    assert "the clock of the rows cannot be used, and " in str(error.value)
    assert message in str(error.value)
    assert "or state their rate: rows_hz=5" in str(error.value)
