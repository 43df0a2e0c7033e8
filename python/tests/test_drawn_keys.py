"""Keys of a batch whose streams or rows are drawn: Windows(choose=, goal=)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import robocache
from conftest import synth
from robocache import Windows

MASK = 0xFFFFFFFF


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Returns one block of Philox4x32-10."""
    c, k = counter, key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def draw(key: str, seed: int, epoch: int, episode: int, row: int) -> float:
    """Returns the draw of a sample in [0, 1)."""
    number = 0x811C9DC5
    for byte in f"draw {key}".encode():
        number = (number ^ byte) * 0x01000193 & MASK
    mixed = philox([epoch, 0, number, 0], [seed, 0])[:2]
    return philox([2 << 30, 0, row, episode], mixed)[0] / 2**32


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("arm") / "set"
    return str(synth(path, "--episodes", "3", "--seconds", "0.6", "--cameras", "2"))


def camera_keys(path: str) -> list[str]:
    return [k for k, f in robocache.open(path).features.items() if f.kind == "video"]


def test_batches_hold_the_drawn_streams_and_goals(arm: str) -> None:
    cameras = camera_keys(arm)
    keys = ["observation.state", "episode_index", "frame_index"]
    windows = Windows(
        choose={"image": cameras},
        goal={"goal_image": cameras[0], "goal_state": "observation.state", "goal": "task"},
    )
    stored = robocache.MapDataset(arm, keys=[*keys, *cameras, "task"])
    every = stored.batch(range(len(stored)))
    episodes, rows = (np.asarray(every[k]) for k in keys[1:])
    lengths = np.bincount(episodes)
    first = np.concatenate([[0], np.cumsum(lengths)])

    def check(batch: Any, epoch: int) -> None:
        for i, (e, t) in enumerate(zip(batch["episode_index"], batch["frame_index"])):
            e, t = int(e), int(t)

            def goal() -> int:
                later = int(lengths[e]) - 1 - t
                step = 1 + int(draw("goal", 7, epoch, e, t) * later) if later else 0
                return int(first[e]) + t + step

            chosen = cameras[int(draw("image", 7, epoch, e, t) * 2)]
            assert np.array_equal(batch["image"][i], every[chosen][first[e] + t])
            assert np.array_equal(batch["goal_image"][i], every[cameras[0]][goal()])
            assert np.array_equal(batch["goal_state"][i], every["observation.state"][goal()])
            assert batch["goal"][i] == every["task"][goal()]

    for rank in range(2):
        loader = robocache.Loader(
            arm, keys=keys, windows=windows, seed=7, batch_size=5, rank=rank, world_size=2
        )
        assert not set(cameras) & set(loader.keys)
        for epoch in range(2):
            for batch in loader:
                check(batch, epoch)


def test_samples_and_items_have_the_first_stream(arm: str) -> None:
    cameras = camera_keys(arm)
    windows = Windows(choose={"image": cameras[::-1]}, goal={"later": "action"})
    options: dict[str, Any] = {"keys": [cameras[1], "action"], "windows": windows}
    items = robocache.MapDataset(arm, **options)
    ordered = robocache.Loader(arm, shuffle=False, batch_size=4, **options)
    batch = next(iter(ordered))
    for i in range(4):
        assert np.array_equal(batch["image"][i], batch[cameras[1]][i])
        for one in (items[i], ordered.dataset[i]):
            assert np.array_equal(one["image"], batch["image"][i])
            assert np.array_equal(np.float32(one["later"]), batch["later"][i])


def test_options_of_drawn_keys(arm: str) -> None:
    cameras = camera_keys(arm)
    windows = Windows(choose={"image": cameras}, rows={"image": [-1, 0]}, goal={"g": cameras[0]})
    loader = robocache.Loader(
        arm,
        keys=["action"],
        windows=windows,
        batch_size=4,
        image_size=(24, 32),
        augment=robocache.Augment(cameras=["image"], random_crop={"size": (16, 20)}),
    )
    batch = next(iter(loader))
    assert batch["image"].shape == (4, 2, 3, 16, 20) and batch["g"].shape == (4, 3, 24, 32)
    assert batch["image_is_pad"].shape == (4, 2)


@pytest.mark.parametrize(
    ("windows", "error"),
    [
        (Windows(choose={"x": ["observation.state", "task"]}), robocache.Misuse),
        (Windows(choose={"x": ["nothing"]}), robocache.Misuse),
        (Windows(choose={"x": "task"}), robocache.Misuse),
        (Windows(goal={"x": "nothing"}), robocache.Misuse),
        (Windows(goal={"x": ["task"]}), robocache.Misuse),
    ],
)
def test_impossible_draws_are_errors(arm: str, windows: Windows, error: type) -> None:
    with pytest.raises(error):
        robocache.Loader(arm, windows=windows)
