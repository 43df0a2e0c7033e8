"""Helpers that record a dataset with robocache.Writer and check it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import robocache

H, W = 64, 96
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (3,), "names": ["x", "y", "z"]},
    "action": {"dtype": "float64", "shape": (2,)},
    "gripper": {"dtype": "bool", "shape": (1,)},
    "note": {"dtype": "string", "shape": (1,)},
    "observation.images.front": {
        "dtype": "video",
        "shape": (H, W, 3),
        "names": ["height", "width", "channels"],
    },
}


def image(e: int, k: int, h: int = H, w: int = W) -> np.ndarray:
    """Returns a smooth image, which codecs compress with little loss. Each row has its own."""
    y, x = np.mgrid[0:h, 0:w]
    return np.stack(
        [
            (x + 5 * k) % 200,
            np.broadcast_to(40 * (e % 5) + y // 2, (h, w)),
            np.full((h, w), 3 * k % 250),
        ],
        -1,
    ).astype(np.uint8)


def row(e: int, k: int) -> dict[str, object]:
    return {
        "observation.state": np.array([e, k, 0.25 * k], np.float32),
        "action": np.array([e + 1e-12 * k, -k]),
        "gripper": np.array([k % 2 == 0]),
        "note": f"row {k} of {e} <b>&",
        "observation.images.front": image(e, k),
    }


def record(w: robocache.Writer, e: int, n: int) -> None:
    for k in range(n):
        w.add_frame(row(e, k), task=f"task {e % 2}")
    w.save_episode()


def check(path: Path, lengths: list[int], offset: float = 3.0) -> None:
    """Asserts that robocache and lerobot read back what was recorded."""
    ds = robocache.open(path)
    assert ds.episodes["lengths"].tolist() == lengths
    for e, n in enumerate(lengths):
        s = ds.episode(e).streams
        assert ds.episode(e).tasks == [f"task {e % 2}"]
        np.testing.assert_array_equal(
            s["observation.state"].values,
            np.stack([row(e, k)["observation.state"] for k in range(n)]),
        )
        np.testing.assert_array_equal(
            s["action"].values, np.stack([row(e, k)["action"] for k in range(n)])
        )
        assert s["note"].values == [row(e, k)["note"] for k in range(n)]
        frames = s["observation.images.front"].values.transpose(0, 2, 3, 1).astype(int)
        wanted = np.stack([image(e, k) for k in range(n)])
        assert np.abs(frames - wanted).mean() < offset, e
