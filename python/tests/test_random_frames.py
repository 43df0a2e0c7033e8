"""Frames of random access compared with PyAV's sequential decoding."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import robocache


@pytest.fixture(scope="module")
def oracle(h264: str) -> dict[str, np.ndarray]:
    """Returns each row's image of each camera as HWC.

    The mp4 files in order hold the rows in order.
    """
    av = pytest.importorskip("av", reason="PyAV is not installed")
    out = {}
    for key in ("observation.images.cam_high", "observation.images.cam_high_flip"):
        frames = []
        for file in sorted(Path(h264).glob(f"videos/{key}/*/*.mp4")):
            with av.open(str(file)) as c:
                frames += [f.to_ndarray(format="rgb24") for f in c.decode(video=0)]
        out[key] = np.stack(frames)
    return out


@pytest.mark.slow
def test_random_single_frames(h264: str, oracle: dict[str, np.ndarray]) -> None:
    """2,000 random frames of both cameras are the right ones."""
    m = robocache.MapDataset(h264, keys=list(oracle), threads=2)
    rng = random.Random(11)
    for _ in range(20):
        wanted = [rng.randrange(len(m)) for _ in range(50)]
        batch = m.batch(wanted)
        for key, frames in oracle.items():
            assert len(frames) == len(m)
            assert np.array_equal(batch[key].numpy(), frames[wanted].transpose(0, 3, 1, 2)), key


def test_random_windows(h264: str, oracle: dict[str, np.ndarray]) -> None:
    """200 random windows of 8 frames have the right frames, and pads at the end of an episode."""
    key = "observation.images.cam_high"
    offsets = list(range(-5, 3))
    loader = robocache.Loader(
        h264,
        keys=[key, "index", "episode_index"],
        delta_timestamps={key: [o / 30 for o in offsets]},
        batch_size=40,
        seed=8,
        threads=2,
    )
    lengths = loader.dataset.episodes["lengths"]
    first = np.concatenate([[0], np.cumsum(lengths)])
    done = 0
    for b in loader:
        for r in range(len(b["index"])):
            i, e = int(b["index"][r]), int(b["episode_index"][r])
            rows = i + np.array(offsets)
            inside = np.clip(rows, first[e], first[e + 1] - 1)
            assert b[key + "_is_pad"][r].tolist() == (rows != inside).tolist()
            assert np.array_equal(b[key][r].numpy(), oracle[key][inside].transpose(0, 3, 1, 2)), i
            done += 1
        if done >= 200:
            break
    assert done >= 200
