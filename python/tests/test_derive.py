"""derive=: streams that are computed once per episode, against NumPy and OpenVLA's own result."""

import json
import os
import pickle

import numpy as np
import pytest
from conftest import cli, dataset_path

import robocache

STATE, ACTION = "observation.state", "action"


def bridge_action(arrays):
    """OpenVLA's action of Bridge: the movement of the state, and a binary gripper."""
    state, stored = arrays[STATE], arrays[ACTION]
    moved = np.zeros_like(stored)
    moved[:-1, :6] = state[1:, :6] - state[:-1, :6]
    open_gripper = stored[-1, 6]
    for t in reversed(range(len(stored))):
        value = stored[t, 6]
        if value > 0.95 or value < 0.05:
            open_gripper = np.float32(value > 0.95)
        moved[t, 6] = open_gripper
    return moved


@pytest.fixture
def path():
    return dataset_path("bridge_rlds")


def _rows(loader, key):
    parts = [np.asarray(b[key]) for b in loader]
    return np.concatenate(parts)


def test_bridge_has_openvlas_actions(path):
    want = np.load(dataset_path("clients/openvla.npz"), allow_pickle=False)
    loader = robocache.Loader(
        path,
        derive={ACTION: bridge_action},
        shuffle=False,
        keys=[ACTION],
        episodes=range(6),
        order=robocache.Order(drop_n_first_frames=1, drop_n_last_frames=1),
    )
    got = _rows(loader, ACTION).reshape(6, 8, 7)
    np.testing.assert_array_equal(got, want["standardized/action"])


def test_statistics_count_derived_values(path):
    calls = []

    def double(arrays):
        calls.append(1)
        return arrays[ACTION][:, :2].astype(np.float64) * 2

    loader = robocache.Loader(
        path,
        derive={"twice": double},
        normalize={"twice": {"mode": "mean_std"}},
        windows=robocache.Windows(rows={"twice": [0, 1]}),
        keys=["twice", ACTION],
        split="all",
        shuffle=False,
        batch_size=1000,
    )
    ds = loader.datasets[0]
    assert len(calls) == len(ds) and ds.features["twice"].shape == (2,)
    rows = np.concatenate([e.streams[ACTION].values[:, :2] for e in ds]).astype(np.float64) * 2
    batch = next(iter(loader))
    want = ((rows - rows.mean(0)) / rows.std(0))[:1000]
    np.testing.assert_allclose(np.asarray(batch["twice"])[:, 0], want, atol=1e-5)
    assert np.asarray(batch["twice_is_pad"])[:, 1].sum() > 0


def test_a_split_derives_only_its_episodes(path):
    seen = []

    def count(arrays):
        seen.append(1)
        return np.arange(len(arrays[ACTION]))

    loader = robocache.Loader(path, derive={"n": count}, episodes=[1, 3], shuffle=False, keys=["n"])
    assert len(seen) == 2
    n = [len(robocache.open(path).episode(e).streams[ACTION].values) for e in (1, 3)]
    np.testing.assert_array_equal(_rows(loader, "n").ravel(), [*range(n[0]), *range(n[1])])
    splits = robocache.open(path).splits
    if "train" in splits:
        seen.clear()
        robocache.Loader(path, derive={"n": count}, keys=["n"]).close()
        assert len(seen) == splits["train"]


def test_map_dataset_and_mix_deliver_derived_streams(path):
    derive = {"neg": lambda a: -a[ACTION]}
    items = robocache.MapDataset(path, derive=derive, split="all")
    np.testing.assert_array_equal(items[7]["neg"], -np.asarray(items[7][ACTION]))
    assert items.dataset.features["neg"].raw["derived"]
    again = pickle.loads(pickle.dumps(items))  # As in a DataLoader's worker under spawn.
    np.testing.assert_array_equal(again[3]["neg"], items[3]["neg"])
    mix = robocache.Loader(
        [
            robocache.Mix(path, derive=derive, rename={"neg": "x"}),
            robocache.Mix(path, derive={"x": derive["neg"]}),
        ],
        keys=["x", ACTION],
    )
    for batch in mix:
        np.testing.assert_array_equal(np.asarray(batch["x"]), -np.asarray(batch[ACTION]))


def test_states_and_contracts_know_the_values(path):
    def make(factor):
        return robocache.Loader(
            path, derive={STATE: lambda a: a[STATE] * np.float32(factor)}, batch_size=5
        )

    first = make(2)
    state = first.state_dict()
    make(2).load_state_dict(state)
    for other in (make(3), robocache.Loader(path, batch_size=5)):
        with pytest.raises(robocache.Misuse, match="derived"):
            other.load_state_dict(state)
    feature = first.datasets[0].features[STATE]
    assert feature.raw["derived"] != make(3).datasets[0].features[STATE].raw["derived"]


def test_values_beyond_the_budget_are_read_from_their_file(path):
    from robocache._derive import derived_dataset

    ds = robocache.open(path)
    small = derived_dataset(ds, {"neg": lambda a: -a[ACTION]}, split="all", budget=1)
    for e in (small[0], small[len(ds) - 1]):
        np.testing.assert_array_equal(e.streams["neg"].values, -e.streams[ACTION].values)
    (file,) = [s["file"] for s in small._args["derived"]]
    assert os.path.exists(file)
    small._derived_files()
    assert not os.path.exists(file)


def test_a_cache_folder_keeps_values_by_content(path, tmp_path):
    def build(factor):
        def fn(arrays):
            return arrays[ACTION] * np.float32(factor)

        robocache.Loader(path, derive={"x": fn}, cache=str(tmp_path), keys=["x"]).close()
        return sorted(p.name for p in (tmp_path / "derived").glob("*.json"))

    first = build(2)
    assert len(first) == 1 and build(2) == first
    (record,) = (tmp_path / "derived").glob("*.json")
    before = record.stat().st_mtime_ns
    build(2)
    assert record.stat().st_mtime_ns == before  # The function was not called.
    assert len(build(3)) == 2
    values = record.with_suffix(".bin")
    values.write_bytes(b"\x55" + values.read_bytes()[1:])  # Damaged: derived again.
    build(2)
    assert record.stat().st_mtime_ns != before
    done = cli("cache", "prune", str(tmp_path), "--budget", "0", "--json")
    assert json.loads(done.stdout)["removed_derived"] == 2
    assert not list((tmp_path / "derived").iterdir())


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda a: a[ACTION][:-1], "expected 10 rows"),
        (lambda a: a[ACTION] * np.nan, "row 0 has NaN"),
        (lambda a: a[ACTION].astype(str), "expected numbers"),
        (lambda a: a["nope"], "KeyError"),
        (lambda a: 1 / 0, "ZeroDivisionError"),
        (lambda a: np.float64(3), "rows"),
    ],
)
def test_bad_functions_name_the_episode(path, fn, message):
    with pytest.raises(robocache.Misuse, match=message) as e:
        robocache.MapDataset(path, derive={"x": fn}, episodes=[2])
    assert e.value.where["episode"] == 2 and e.value.where["stream"] == "x"


def test_bad_arguments_are_refused(path):
    changing = iter([np.float32, np.float64])
    for derive in (
        [1],
        {"x": 3},
        {"index": len},
        {"": len},
        {"x": lambda a: a[ACTION].astype(next(changing))},
    ):
        with pytest.raises(robocache.Misuse):
            robocache.MapDataset(path, derive=derive, split="all")
    with pytest.raises(robocache.Misuse, match="mixture"):
        robocache.Loader([path, path], derive={"x": len})
    items = robocache.MapDataset(path, derive={"x": lambda a: a[ACTION]}, split="all")
    with pytest.raises(robocache.Misuse, match="derived streams"):
        items.dataset.split("train")
    with pytest.raises(robocache.Misuse, match="derived streams"):
        items.dataset.edit()
