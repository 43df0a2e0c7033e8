"""robocache.rlds_training, against samples that OpenVLA's code made (data/clients/openvla.npz)."""

from __future__ import annotations

import colorsys
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import rlds_training
from robocache._rlds_augment import ImageAugmentation


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


IMAGE_AUG = {  # That of OpenVLA's scripts.
    "random_resized_crop": {"scale": [0.9, 0.9], "ratio": [1.0, 1.0]},
    "random_brightness": [0.2],
    "random_contrast": [0.8, 1.2],
    "random_saturation": [0.8, 1.2],
    "random_hue": [0.05],
}
IMAGE_AUG["augment_order"] = [*IMAGE_AUG]


def pixelwise(frame: np.ndarray, kwargs: dict[str, Any], draws: list[float]) -> np.ndarray:
    """Returns the result of the operations by their definitions, pixel by pixel in float64."""
    x, (height, width) = frame / 255.0, frame.shape[:2]
    for name, u in zip(kwargs["augment_order"], draws, strict=True):
        given = kwargs.get(name)
        if name == "random_resized_crop":
            area = given["scale"][0] + u * (given["scale"][1] - given["scale"][0])
            low, high = np.log(given["ratio"])
            aspect = np.exp(low + u * (high - low))
            sides = [min(np.sqrt(area / aspect), 1), min(np.sqrt(area * aspect), 1)]
            out = np.zeros_like(x)
            for i in range(height):
                for j in range(width):
                    at = [
                        u * (1 - side) * (n - 1) + k * side
                        for k, n, side in zip((i, j), (height, width), sides)
                    ]
                    (a, b), (f, g) = np.floor(at).astype(int), np.mod(at, 1)
                    c, d = min(a + 1, height - 1), min(b + 1, width - 1)
                    upper = x[a, b] * (1 - g) + x[a, d] * g
                    out[i, j] = upper * (1 - f) + (x[c, b] * (1 - g) + x[c, d] * g) * f
            x = out
        elif name == "random_brightness":
            x = x + given[0] * (2 * u - 1)
        elif name == "random_contrast":
            mean = x.mean((0, 1))
            x = (x - mean) * (given[0] + u * (given[1] - given[0])) + mean
        elif name in ("random_saturation", "random_hue"):
            out = np.zeros_like(x)
            for i in range(height):
                for j in range(width):
                    h, s, v = colorsys.rgb_to_hsv(*x[i, j])
                    if name == "random_hue":
                        h = (h + given[0] * (2 * u - 1)) % 1
                    else:
                        s = min(s * (given[0] + u * (given[1] - given[0])), 1)
                    out[i, j] = colorsys.hsv_to_rgb(h, s, v)
            x = out
        elif name == "random_flip_left_right" and u < 0.5:
            x = x[:, ::-1]
        elif name == "random_flip_up_down" and u < 0.5:
            x = x[::-1]
        elif name == "random_rot90":
            x = np.rot90(x, int(4 * u))
        x = np.clip(x, 0, 1)
    return np.minimum(x * 255.5, 255)


def test_images_are_augmented_by_the_formulas() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (2, 9, 9, 3), dtype=np.uint8)
    frames[0, :3] = 77  # Grey has no hue.
    wide = {"random_resized_crop": [[0.3, 1.0], [0.75, 1.3]], "random_hue": [0.5]}
    turns = ["random_flip_left_right", "random_rot90", "random_flip_up_down"]
    own = {
        **IMAGE_AUG,
        **wide,
        "augment_order": [*IMAGE_AUG["augment_order"], *turns],
    }
    named = {**own, "random_resized_crop": {"scale": [0.3, 1.0], "ratio": [0.75, 1.3]}}
    for kwargs in (IMAGE_AUG, own):
        augment = ImageAugmentation(kwargs)
        by_name = named if kwargs is own else IMAGE_AUG
        for seed in range(12):
            got = augment(frames, np.random.default_rng(seed))
            draws = np.random.default_rng(seed).random(len(kwargs["augment_order"])).tolist()
            for frame, result in zip(frames, got, strict=True):
                want = pixelwise(frame, by_name, draws)
                assert got.dtype == np.uint8 and np.abs(result + 0.5 - want).max() <= 0.51


@pytest.mark.slow
def test_batches_are_augmented() -> None:
    chunks = {"window_size": 2, "goal_relabeling_strategy": "uniform"}

    def batches(train: bool, state: Any = None, **frame: Any) -> list[dict[str, Any]]:
        data, _, _ = rlds_training.make_interleaved_dataset(
            [bridge()],
            train=train,
            batch_size=16,
            seed=4,
            traj_transform_kwargs=chunks,
            frame_transform_kwargs=frame,
        )
        if state:
            data.loader.load_state_dict(state)
        out = []
        for batch, _ in zip(data, range(30)):
            out.append(batch | {"state": data.loader.state_dict()})
        return out

    plain = batches(True)
    changed = batches(True, image_augment_kwargs=IMAGE_AUG)
    by_camera = batches(True, image_augment_kwargs={"primary": IMAGE_AUG})
    other = batches(True, image_augment_kwargs={"wrist": IMAGE_AUG})
    resumed = batches(True, plain[3]["state"], image_augment_kwargs=IMAGE_AUG)
    images = [np.array([b["observation"]["image_primary"] for b in x]) for x in (plain, changed)]
    assert 5 < np.abs(images[0].astype(int) - images[1]).mean() < 60
    for i, batch in enumerate(changed):
        for group in ("observation", "task"):
            got = batch[group]["image_primary"]
            assert np.array_equal(got, by_camera[i][group]["image_primary"])
            assert np.array_equal(
                plain[i][group]["image_primary"], other[i][group]["image_primary"]
            )
            if i >= 4:
                assert np.array_equal(got, resumed[i - 4][group]["image_primary"])
            assert not batch[group]["image_wrist"].any()
    first, again = (
        np.concatenate([b["observation"]["image_primary"] for b in changed[k:][:12]])
        for k in (0, 13)
    )
    assert not np.array_equal(first, again)
    validation = [batches(False, **x)[0] for x in ({}, {"image_augment_kwargs": IMAGE_AUG})]
    assert np.array_equal(*(b["observation"]["image_primary"] for b in validation))
    for bad, error in [
        ({"random_hue": [0.1]}, robocache.Misuse),
        ({"augment_order": ["random_erasing"]}, robocache.Unsupported),
        ({"augment_order": ["random_hue"], "random_hue": [1, 2]}, robocache.Misuse),
        ({"augment_order": [], "random_hue": [0.1]}, robocache.Misuse),
    ]:
        with pytest.raises(error):
            batches(True, image_augment_kwargs=bad)


@pytest.mark.slow
def test_long_trajectories_are_subsampled() -> None:
    few = {"window_size": 2, "future_action_window_size": 1, "subsample_length": 3}
    plain, _, _ = rlds_training.make_single_dataset(
        bridge(), train=True, traj_transform_kwargs=few | {"subsample_length": 8}
    )
    data, count, stats = rlds_training.make_single_dataset(
        bridge(), train=True, traj_transform_kwargs=few
    )
    assert len(data) == 25 and count == 50 and stats["num_transitions"] == 400
    passes = []
    for _ in range(2):
        drawn = []
        for whole, got in zip(plain, data, strict=True):
            steps = got["observation"]["timestep"][:, -1].tolist()
            assert len(steps) == len(set(steps)) == 3
            assert whole["observation"]["timestep"][:, -1].tolist() == [*range(8)]
            assert np.array_equal(got["action"], whole["action"][steps])
            drawn.append(tuple(steps))
        passes.append(drawn)
    assert passes[0] != passes[1] and len(set(passes[0])) > 5
    mixed, length, _ = rlds_training.make_interleaved_dataset(
        [bridge()], train=True, traj_transform_kwargs=few, batch_size=25, seed=3
    )
    # The epoch has the length that OpenVLA states, and 75 steps are one pass.
    one_pass = [b for b, _ in zip(mixed, range(3))]
    first = np.concatenate([b["action"] for b in one_pass]).reshape(75, -1)
    assert length == 400 and len(np.unique(first, axis=0)) > 60
    with_val = rlds_training.make_single_dataset(bridge(), train=False, traj_transform_kwargs=few)[
        0
    ]
    assert next(iter(with_val))["action"].shape[0] == 8


@pytest.mark.parametrize(
    ("change", "kwargs", "error", "says"),
    [
        ({"standardize_fn": lambda t: {}}, {}, robocache.Misuse, "standardize_fn: KeyError"),
        ({"image_obs_keys": {"a": "head"}}, {}, robocache.Misuse, "standardize_fn: KeyError"),
        ({"absolute_action_mask": [True]}, {}, robocache.Misuse, "1 values for 7 actions"),
        ({"depth_obs_keys": {"a": "d"}}, {}, robocache.Unsupported, "depth"),
        ({"nothing": 1}, {}, robocache.Misuse, "unknown keyword 'nothing'"),
        ({}, {"goal_relabeling_strategy": "last"}, robocache.Unsupported, "goal_relabeling"),
        ({}, {"subsample_length": 0}, robocache.Misuse, "subsample_length"),
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
