"""missing= of MapDataset if an episode lacks a camera that the others have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import robocache
from conftest import run_case

pytest.importorskip("h5py")
CAMERA = "observation.images.top"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates three ALOHA episodes of 5 rows.

    Episode 1 has no camera. The pixels of episode e are 10 * e.
    """
    return run_case("H09", tmp_path_factory.mktemp("missing") / "set", "cmiss_second")


def test_error_by_default(path: Path) -> None:
    with pytest.raises(robocache.Malformed, match="episode 1, .*lacks this stream"):
        robocache.MapDataset(path, keys=[CAMERA, "action"], open=robocache.Open(rows_hz=10))


def test_pad(path: Path) -> None:
    ds = robocache.MapDataset(
        path,
        keys=[CAMERA, "action"],
        open=robocache.Open(rows_hz=10),
        windows=robocache.Windows(missing="pad"),
    )
    assert len(ds) == 15
    for e, present in ((0, True), (1, False), (2, True)):
        item = ds[5 * e + 2]
        image = np.asarray(item[CAMERA])
        assert bool(item[f"{CAMERA}_is_pad"]) == (not present), e
        want = 10 * e if present else 0
        if image.dtype != np.uint8:
            want = want / 255
        np.testing.assert_allclose(image, want, atol=0.01)
        assert float(np.asarray(item["action"]).ravel()[0]) == pytest.approx(100 * e + 2)


def test_checked(path: Path) -> None:
    with pytest.raises(robocache.Misuse, match="missing"):
        robocache.MapDataset(
            path, open=robocache.Open(rows_hz=10), windows=robocache.Windows(missing="zeros")
        )
