"""robocache.rlds_training, against samples that OpenVLA's code made (data/clients/openvla.npz)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import rlds_training


@pytest.fixture(scope="module")
def theirs() -> Any:
    with np.load(dataset_path("clients/openvla.npz"), allow_pickle=False) as z:
        return dict(z)


def standardize(trajectory: dict[str, Any]) -> dict[str, Any]:
    """Bridge: movement as difference of states, binary gripper, first and last step left out."""
    state = trajectory["observation"]["state"][1:]
    gripper, out = trajectory["action"][1:, 6], []
    carry = gripper[-1]
    for g in gripper[::-1]:
        carry = float(g > 0.95) if g > 0.95 or g < 0.05 else carry
        out.append(carry)
    binary = np.array(out[::-1], np.float32)[:-1, None]
    return {
        "observation": {
            "image_0": trajectory["observation"]["image_0"][1:-1],
            "EEF_state": state[:-1, :6],
            "gripper_state": state[:-1, -1:],
        },
        "action": np.concatenate([state[1:, :6] - state[:-1, :6], binary], 1),
        "language_instruction": trajectory["language_instruction"][1:-1],
    }


def bridge(**change: Any) -> dict[str, Any]:
    return {
        "name": "bridge_dataset",
        "data_dir": dataset_path("bridge_rlds"),
        "standardize_fn": standardize,
        "image_obs_keys": {"primary": "image_0", "wrist": None},
        "state_obs_keys": ["EEF_state", None, "gripper_state"],
        "language_key": "language_instruction",
        "action_proprio_normalization_type": "bounds_q99",
        "absolute_action_mask": [False] * 6 + [True],
        "action_normalization_mask": [True] * 6 + [False],
        **change,
    }


CHUNKS = {"window_size": 1, "future_action_window_size": 7}
SIZE = {"resize_size": (224, 224)}


def test_trajectories_are_those_of_openvla(theirs: dict[str, Any]) -> None:
    data, count, stats = rlds_training.make_single_dataset(
        bridge(), train=True, traj_transform_kwargs=CHUNKS, frame_transform_kwargs=SIZE
    )
    assert count == 50 and len(data) == 25 and stats["num_transitions"] == 400
    for key in ("action", "proprio"):
        for name in ("mean", "std", "max", "min", "q01", "q99"):
            got, want = stats[key][name], theirs[f"statistics/{key}/{name}"]
            assert got.tobytes() == want.tobytes(), (key, name)
    differing = 0
    for i, (got, _) in enumerate(zip(data, range(6))):
        for key, value in (
            ("action_chunk", got["action"]),
            ("proprio", got["observation"]["proprio"][:, 0]),
        ):
            want = theirs[f"normalized/{key}"][i]
            assert value.dtype == want.dtype and value.shape == want.shape
            assert np.abs(value - want).max() <= 2.5e-7, (i, key)
            differing += int((value != want).sum())
        assert got["task"]["language_instruction"] == [str(theirs["language"][i])] * 8
        assert got["observation"]["timestep"].tolist() == [[t] for t in range(8)]
        assert got["observation"]["pad_mask"].all()
        assert set(got["dataset_name"]) == {"bridge_dataset"}
        if i < 2:  # TensorFlow decodes JPEG with a faster, coarser transform: 2 levels on average.
            pixels = got["observation"]["image_primary"][:2, 0].astype(int)
            errors = np.abs(pixels - theirs["image_224"][i]).mean((1, 2, 3))
            assert errors[0] <= 3 and errors[1] > errors[0]
    assert differing == 0


def test_mixture(theirs: dict[str, Any]) -> None:
    small = bridge(image_obs_keys={"primary": None}, state_obs_keys=["EEF_state", None, None])
    data, steps, stats = rlds_training.make_interleaved_dataset(
        [bridge(), small],
        [1.0, 0.5],
        train=True,
        shuffle_buffer_size=1,
        traj_transform_kwargs=CHUNKS | {"skip_unlabeled": True},
        batch_size=60,
        balance_weights=True,
        seed=1,
    )
    # Both have 400 transitions: shares 2/3 and 1/3, and the first dataset sets the epoch.
    assert steps == 600 and np.allclose(data.sample_weights, [2 / 3, 1 / 3])
    assert list(stats) == ["bridge_dataset"]
    black = seen = 0
    for got, _ in zip(data, range(10)):
        observation = got["observation"]
        assert observation["image_primary"].shape == (60, 1, 64, 64, 3)
        there = observation["pad_mask_dict"]["image_primary"][:, 0]
        assert observation["image_primary"][there].any((1, 2, 3, 4)).all()
        assert not observation["image_primary"][~there].any()
        assert not observation["pad_mask_dict"]["image_wrist"].any()
        black, seen = black + int((~there).sum()), seen + len(there)
        # Every chunk is one of the reference or of another episode: the gripper is never scaled.
        assert set(np.unique(got["action"][..., 6])) <= {0.0, 1.0}
        assert (got["action"][(observation["timestep"][:, 0] == 7), 1:, :6] == 0).all()
    assert seen == 600 and abs(black - 200) <= 4


def test_windows_repeat_the_first_kept_step() -> None:
    windows = {"window_size": 3, "future_action_window_size": 0}
    data, _, _ = rlds_training.make_single_dataset(
        bridge(), train=True, traj_transform_kwargs=windows
    )
    got = next(iter(data))
    images = got["observation"]["image_primary"]
    assert got["observation"]["pad_mask"][:3].tolist() == [
        [False, False, True],
        [False, True, True],
        [True, True, True],
    ]
    assert (images[0] == images[0, 2]).all() and (images[1, 0] == images[0, 2]).all()
    assert (images[2, 0] == images[0, 2]).all() and (images[2, 1] == images[1, 2]).all()
    assert (got["action"][0] == got["action"][0, 2]).all()


def test_long_windows_repeat_the_first_step_and_end_neutral() -> None:
    windows = {"window_size": 5, "future_action_window_size": 2}
    data, _, _ = rlds_training.make_single_dataset(
        bridge(), train=True, traj_transform_kwargs=windows
    )
    single, _, _ = rlds_training.make_single_dataset(bridge(), train=True)
    for got, want, _ in zip(data, single, range(3)):
        steps = np.arange(8)[:, None] + np.arange(-4, 3)
        chunks = want["action"][:, 0][np.clip(steps, 0, 7)]
        chunks[steps > 7, :6] = 0
        assert np.array_equal(got["action"], chunks)
        seen = np.maximum(steps[:, :5], 0)
        assert np.array_equal(
            got["observation"]["proprio"], want["observation"]["proprio"][seen, 0]
        )
        images = want["observation"]["image_primary"][seen, 0]
        assert np.array_equal(got["observation"]["image_primary"], images)


@pytest.mark.parametrize("window", [1, 3])
def test_goals_are_later_steps(window: int) -> None:
    windows = {"window_size": window, "future_action_window_size": 4}
    goals = windows | {"goal_relabeling_strategy": "uniform"}
    single, _, _ = rlds_training.make_single_dataset(bridge(), train=True)
    plain = list(single)
    data, _, _ = rlds_training.make_interleaved_dataset(
        [bridge()], train=True, batch_size=100, shuffle=False, traj_transform_kwargs=goals
    )
    single, _, _ = rlds_training.make_single_dataset(
        bridge(), train=True, traj_transform_kwargs=goals
    )
    seen = set()
    for got in [*single, *(b for b, _ in zip(data, range(4)))]:
        task, steps = got["task"], got["observation"]["timestep"][:, -1]
        for i, (t, goal) in enumerate(zip(steps.tolist(), task["timestep"].tolist())):
            assert t < goal <= 7 or t == goal == 7
            seen.add((t, goal))
            images = got["observation"]["image_primary"][i, -1]
            (want,) = [
                w for w in plain if (w["observation"]["image_primary"][t, 0] == images).all()
            ]
            assert (task["image_primary"][i] == want["observation"]["image_primary"][goal, 0]).all()
            offsets = t + np.arange(1 - window, 5)
            chunk = want["action"][:, 0][np.clip(offsets, 0, goal)]
            chunk[offsets > goal, :6] = 0
            assert np.array_equal(got["action"][i], chunk)
        assert task["pad_mask_dict"]["image_primary"].all()
        assert not task["pad_mask_dict"]["image_wrist"].any() and not task["image_wrist"].any()
        assert task["pad_mask_dict"]["language_instruction"].all()
    assert len(seen) > 25  # Of 29 pairs of a step and a goal.


@pytest.mark.slow
def test_datasets_leave_out_different_rows() -> None:
    raw = {"standardize_fn": None, "state_obs_keys": ["state", None]}
    data, _, _ = rlds_training.make_interleaved_dataset(
        [bridge(), bridge(**raw)], train=True, batch_size=50, shuffle=False
    )
    stored = robocache.MapDataset(dataset_path("bridge_rlds/bridge_dataset"), split="train")
    index = np.arange(len(stored)).reshape(25, 10)
    pixels = np.asarray(stored.batch(range(len(stored)))["observation.image_0"])
    pixels = pixels.transpose(0, 2, 3, 1)
    taken: dict[bool, list[np.ndarray]] = {False: [], True: []}
    for got, _ in zip(data, range(9)):
        for image, step in zip(
            got["observation"]["image_primary"][:, 0], got["observation"]["timestep"][:, 0]
        ):
            (row,) = [int(i) for i in np.flatnonzero((pixels == image).all((1, 2, 3)))][:1]
            taken[bool(index.ravel()[row] % 10 == step)].append(row)
    assert {r % 10 for r in taken[False]} == set(range(1, 9))
    assert {r % 10 for r in taken[True]} == set(range(10))


def test_modes_of_normalization() -> None:
    raw = {"standardize_fn": None, "language_key": None, "state_obs_keys": ["state"]}
    x = np.asarray(
        robocache.MapDataset(dataset_path("bridge_rlds/bridge_dataset"), split="all").batch(
            range(500)
        )["action"]
    )
    for mode, want in (
        ("normal", (x - x.mean(0)) / (x.std(0) + 1e-8)),
        ("bounds", np.clip(2 * (x - x.min(0)) / (x.max(0) - x.min(0) + 1e-8) - 1, -1, 1)),
    ):
        table = rlds_training.SourceTable(
            **bridge(action_proprio_normalization_type=mode, action_normalization_mask=None, **raw),
            train=True,
        )
        got = np.concatenate([e["action"] for e in table.episodes.values()])
        assert np.abs(got - want[:250]).max() <= 1e-5, mode


@pytest.mark.parametrize(
    ("change", "kwargs", "error", "says"),
    [
        ({"standardize_fn": lambda t: {}}, {}, robocache.Misuse, "standardize_fn: KeyError"),
        ({"image_obs_keys": {"a": "head"}}, {}, robocache.Misuse, "standardize_fn: KeyError"),
        ({"absolute_action_mask": [True]}, {}, robocache.Misuse, "1 values for 7 actions"),
        ({"depth_obs_keys": {"a": "d"}}, {}, robocache.Unsupported, "depth"),
        ({"nothing": 1}, {}, robocache.Misuse, "unknown keyword 'nothing'"),
        ({}, {"goal_relabeling_strategy": "last"}, robocache.Unsupported, "goal_relabeling"),
        ({}, {"subsample_length": 7}, robocache.Unsupported, "subsample_length=7"),
        ({}, {"windows": 2}, robocache.Misuse, "unknown option 'windows'"),
        ({}, {"max_action": 1e-9}, robocache.Misuse, "no episode is left"),
    ],
)
def test_bad_arguments(change: Any, kwargs: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        rlds_training.make_single_dataset(
            bridge(**change), train=True, traj_transform_kwargs=kwargs
        )


def test_statistics_from_a_file(tmp_path: Path) -> None:
    zero, one = [0.0] * 7, [1.0] * 7
    stats = {"mean": zero, "std": one, "min": zero, "max": one, "q01": zero, "q99": one}
    given = {"action": stats, "proprio": stats, "num_transitions": 5, "num_trajectories": 2}
    (tmp_path / "s.json").write_text(json.dumps(given))
    change = {"dataset_statistics": tmp_path / "s.json", "state_obs_keys": ["EEF_state", None]}
    _, count, found = rlds_training.make_single_dataset(bridge(**change), train=False)
    assert count == 2 and found["num_transitions"] == 5
