"""Which rows are samples: padding beyond the episode, dropped windows and segments."""

import numpy as np
import pytest
import robocache
from conftest import dataset_path, synth


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    path = tmp_path_factory.mktemp("arm") / "set"
    return synth(path, "--episodes", "3", "--seconds", "0.6", "--cameras", "0")


def samples_of(loader):
    """Returns {key: array} of all samples of a loader in file order."""
    batches = list(loader)
    return {k: np.concatenate([np.asarray(b[k]) for b in batches]) for k in batches[0]}


def pusht():
    path = dataset_path("diffusion_policy_zarr/replay_buffer.zarr")
    reference = np.load(dataset_path("clients/diffusion_policy.npz"), allow_pickle=False)
    return path, reference


@pytest.mark.parametrize("horizon, before, after", [(16, 1, 7), (16, 0, 0), (40, 3, 5), (8, 7, 7)])
def test_the_samples_are_those_of_diffusion_policy(horizon, before, after):
    path, reference = pusht()
    name = f"{horizon}_{before}_{after}"
    order = robocache.Order(pad_before=before, pad_after=after)
    windows = robocache.Windows(
        rows={"action": range(horizon), "observation.state": range(horizon)}
    )
    keys = ["action", "observation.state"]
    ds = robocache.MapDataset(path, keys=keys, windows=windows, order=order)
    assert len(ds) == len(reference[f"{name}/index"])
    loader = robocache.Loader(
        path, keys=keys, windows=windows, order=order, batch_size=7, shuffle=False
    )
    assert len(loader.dataset) == len(ds)
    got = samples_of(loader)
    chosen = reference[f"{name}/samples"]
    assert np.array_equal(got["action"][chosen], reference[f"{name}/action"])
    assert np.array_equal(
        got["observation.state"][chosen][:, :, :2], reference[f"{name}/agent_pos"]
    )
    for i in chosen:
        assert np.array_equal(np.asarray(ds[int(i)]["action"]), got["action"][i])
    # The masks are True where the client's table says that a row repeats an edge.
    for i, (_, _, _, start, end) in enumerate(reference[f"{name}/index"]):
        inside = (np.arange(horizon) >= start) & (np.arange(horizon) < end)
        assert np.array_equal(got["action_is_pad"][i], ~inside)


def test_padding_larger_than_the_window_adds_samples():
    path, _ = pusht()
    windows = robocache.Windows(rows={"action": [0, 1]})
    ds = robocache.MapDataset(
        path,
        keys=["action", "frame_index"],
        windows=windows,
        order=robocache.Order(pad_before=3, pad_after=4),
    )
    lengths = [33, 40, 27]
    assert len(ds) == sum(n - 1 + 3 + 4 for n in lengths)
    first, last = ds[0], ds[33 - 1 + 7 - 1]
    assert int(first["frame_index"]) == 0 and int(last["frame_index"]) == 32
    assert np.asarray(first["action_is_pad"]).all() and np.asarray(last["action_is_pad"]).all()
    assert np.array_equal(np.asarray(first["action"][0]), np.asarray(ds[3]["action"][0]))


def test_states_tell_padded_sets_apart_and_resume(tmp_path):
    path, _ = pusht()

    def loader(before):
        return robocache.Loader(
            path,
            keys=["action"],
            windows=robocache.Windows(rows={"action": range(8)}),
            order=robocache.Order(pad_before=before, pad_after=7),
            batch_size=8,
            shuffle="global",
            seed=3,
        )

    whole = [np.asarray(b["action"]) for b in loader(7)]
    half = loader(7)
    batches = iter(half)
    for _ in range(5):
        next(batches)
    state = half.state_dict()
    resumed = loader(7)
    resumed.load_state_dict(state)
    assert all(np.array_equal(np.asarray(b["action"]), want) for b, want in zip(resumed, whole[5:]))
    with pytest.raises(robocache.Misuse):
        loader(6).load_state_dict(state)


@pytest.mark.parametrize("rule", ["repeat", "zero", "neutral", "drop"])
def test_rows_beyond_the_episode(rule, arm):
    rows = list(range(-2, 6))
    windows = robocache.Windows(rows={"action": rows}, beyond={"action": rule})
    plain = samples_of(
        robocache.Loader(arm, keys=["action"], shuffle=False, normalize={"action": "mean_std"})
    )["action"]
    loader = robocache.Loader(
        arm,
        keys=["action", "frame_index", "episode_index"],
        windows=windows,
        shuffle=False,
        normalize={"action": "mean_std"},
    )
    got = samples_of(loader)
    lengths = [len(robocache.open(arm).episode(e)) for e in range(loader.dataset.num_episodes)]
    starts = np.cumsum([0, *lengths])
    expected = []
    for start, length in zip(starts, lengths):
        for row in range(length):
            at = row + np.array(rows)
            outside = (at < 0) | (at >= length)
            if rule == "drop" and outside.any():
                continue
            values = plain[start + np.clip(at, 0, length - 1)].copy()
            if rule == "zero":
                values[outside] = 0
            expected.append(values)
    assert np.array_equal(got["action"], np.stack(expected))


def test_segments_are_the_sample_set(arm):
    ds = robocache.open(arm)
    first, second = ds.episode_indices[:2]
    end = len(ds.episode(second))
    segments = {first: [(0, 2), (5, 8)], second: [(end - 3, None)]}
    order = robocache.Order(segments=segments, drop_n_first_frames=1)
    keys = ["frame_index", "episode_index"]
    wanted = [(first, r) for r in (1, 5, 6, 7)] + [(second, r) for r in range(end - 3, end)]
    for shuffle in (False, "global", "pool"):
        loader = robocache.Loader(arm, keys=keys, order=order, batch_size=2, shuffle=shuffle)
        got = samples_of(loader)
        pairs = list(zip(got["episode_index"].tolist(), got["frame_index"].tolist()))
        assert (pairs if shuffle is False else sorted(pairs)) == wanted
    ds = robocache.MapDataset(arm, keys=keys, order=order)
    assert [(int(s["episode_index"]), int(s["frame_index"])) for s in ds] == wanted


@pytest.mark.parametrize(
    "order, windows",
    [
        ({"pad_before": -1}, {}),
        ({"segments": {0: [(4, 2)]}}, {}),
        ({"segments": {0: [(0, 4), (3, 6)]}}, {}),
        ({"segments": {10**6: [(0, 4)]}}, {}),
        ({"segments": {0: [(-1, 4)]}}, {}),
        ({}, {"beyond": {"nothing": "drop"}}),
        ({}, {"beyond": {"action": "drop"}}),
        ({}, {"beyond": "wrap"}),
    ],
)
def test_bad_sample_sets_are_misuse(order, windows, arm):
    with pytest.raises(robocache.Misuse):
        robocache.MapDataset(
            arm,
            keys=["action"],
            order=robocache.Order(**order),
            windows=robocache.Windows(**windows),
        )


def test_padding_of_a_timeline_is_refused_and_drop_is_not(arm):
    windows = robocache.Windows(rows={"action": [0, 1, 2]}, beyond="drop")
    every = robocache.MapDataset(arm, keys=["action"], hz=10)
    dropped = robocache.MapDataset(arm, keys=["action"], hz=10, windows=windows)
    episodes = robocache.open(arm).num_episodes
    assert len(dropped) == len(every) - 2 * episodes
    with pytest.raises(robocache.Unsupported, match="read by time"):
        robocache.MapDataset(arm, keys=["action"], hz=10, order=robocache.Order(pad_before=5))


def test_contracts_have_no_padding_that_a_robot_cannot_make(arm):
    def contract(rule):
        windows = robocache.Windows(rows={"observation.state": [-1, 0]}, beyond=rule)
        keys = ["observation.state"]
        return robocache.Loader(arm, keys=keys, windows=windows).contract()

    assert contract("drop") == contract("repeat")
    with pytest.raises(robocache.Unsupported, match="beyond"):
        contract("zero")


def test_window_statistics_are_those_of_the_samples(arm):
    part = robocache.Part(
        "action", relative="difference", reference=("observation.state", 0), norm="min_max"
    )
    vectors = {"delta": robocache.Vector(parts=[part], rows=range(6))}
    windows = robocache.Windows(beyond={"delta": "drop"})
    got = samples_of(
        robocache.Loader(arm, keys=[], vectors=vectors, windows=windows, shuffle=False)
    )["delta"]
    # The bounds are reached by samples, not only by windows that are dropped.
    assert np.allclose(got.min((0, 1)), -1, atol=1e-6) and np.allclose(
        got.max((0, 1)), 1, atol=1e-6
    )
