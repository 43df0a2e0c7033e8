"""Statistics over windows, against what the trainers' own code gave and against NumPy."""

import json

import numpy as np
import pytest

import robocache
from conftest import cli, dataset_path


def _client(name):
    return np.load(dataset_path(f"clients/{name}.npz"), allow_pickle=False)


def test_openpi_has_its_own_norm_stats():
    want = _client("openpi")
    actions = {
        "key": "action",
        "precision": "float32",
        "relative": "difference",
        "reference": {"key": "observation.state", "start": 0},
        "absolute": list(range(14, 26)),
    }
    state = {"key": "observation.state", "precision": "float32"}
    vectors = {"state": {"parts": [state]}, "actions": {"parts": [actions], "rows": [*range(50)]}}
    got = robocache.window_statistics(dataset_path("g1_v21"), vectors, exact=False)
    for key in ("state", "actions"):
        for name in ("q01", "q99"):  # Of equal histograms.
            np.testing.assert_array_equal(got[key][name], want[f"norm_stats/{key}/{name}"])
        # The client's sums are float32: E[x²] − E[x]² loses digits of narrow columns.
        np.testing.assert_allclose(got[key]["mean"], want[f"norm_stats/{key}/mean"], atol=1e-6)
        np.testing.assert_allclose(got[key]["std"], want[f"norm_stats/{key}/std"], atol=2e-5)
    exact = robocache.window_statistics(dataset_path("g1_v21"), vectors)["actions"]
    assert exact["count"] == 1305 * 50 and got["actions"]["count"] == 1280 * 50
    assert not np.array_equal(exact["q99"], got["actions"]["q99"])


@pytest.mark.parametrize("client", ["openpi", "gr00t"])
def test_command_line_writes_the_clients_files(client, tmp_path):
    data, relative = {
        "openpi": ("g1_v21", "0-13"),
        "gr00t": ("gr00t_picknplace_v20", "left_arm,right_arm"),
    }[client]
    options = [f"--for={client}", f"--relative={relative}", f"--out={tmp_path}"]
    assert cli("stats", dataset_path(data), *options).returncode == 0
    wanted = _client(client)
    if client == "openpi":
        got = json.loads((tmp_path / "norm_stats.json").read_text())["norm_stats"]
        np.testing.assert_array_equal(got["actions"]["q99"], wanted["norm_stats/actions/q99"])
        assert sorted(got["state"]) == ["mean", "q01", "q99", "std"]
        return
    for name in ("stats", "relative_stats"):
        want = json.loads(str(wanted[f"meta_{name}_json"]))
        got = json.loads((tmp_path / f"{name}.json").read_text())
        assert sorted(got) == sorted(want)
        for key in want:
            # NumPy sums a column alone pairwise, and columns of a matrix one after the other.
            is_alone = len(want[key]["mean"]) == 1
            for n in want[key]:
                rtol = 1e-5 if is_alone and n in ("mean", "std") else 0
                np.testing.assert_allclose(got[key][n], want[key][n], rtol=rtol, err_msg=(key, n))


def test_pose_is_counted_relative_to_the_reference():
    ds = robocache.open(dataset_path("bridge_rlds"))
    part = {"key": "action", "stop": 6, "relative": "pose", "rotation": {"from": "xyz"}}
    part["rotation"] |= {"to": "rotvec", "at": 3}
    got = robocache.window_statistics(ds, {"a": {"parts": [part], "rows": [0]}})["a"]
    for name in ("min", "max", "mean", "q50"):  # T⁻¹T is the identity.
        np.testing.assert_allclose(got[name], np.zeros(6), atol=1e-6)
    rows = [ep.streams["action"].values for ep in ds]
    part |= {"relative": "difference", "absolute": [0, 1, 2, 3, 4, 5], "columns": [*range(6)]}
    del part["stop"], part["rotation"]
    got = robocache.window_statistics(
        ds, {"a": {"parts": [part], "rows": [1, 9]}}, per_step=True, drop=True
    )["a"]
    want = np.stack([r[[1, 9], :6] for r in rows], 1)
    np.testing.assert_array_equal(got["max"], want.max(1).astype(np.float64))
    np.testing.assert_allclose(got["mean"], want.mean(1, dtype=np.float64), atol=1e-12)


def test_pooled_statistics_are_those_of_a_mixture():
    rng = np.random.default_rng(0)
    parts = [rng.normal(i, 1 + i, (1000, 3)) for i in range(3)]

    def of(x):
        return {
            "a": {"mean": x.mean(0), "std": x.std(0), "min": x.min(0), "q01": x[0], "q99": x[1]}
        }

    got = robocache.pool_statistics([of(p) for p in parts])["a"]
    whole = np.concatenate(parts)
    np.testing.assert_allclose(got["mean"], whole.mean(0), atol=1e-12)
    np.testing.assert_allclose(got["std"], whole.std(0), atol=1e-12)
    np.testing.assert_array_equal(got["min"], whole.min(0))
    np.testing.assert_array_equal(got["q01"], np.min([p[0] for p in parts], 0))
    np.testing.assert_array_equal(got["q99"], np.max([p[1] for p in parts], 0))
    for bad in ([1, 2], [-1, 1, 1], [0, 0, 0]):
        with pytest.raises(robocache.Misuse):
            robocache.pool_statistics([of(p) for p in parts], bad)


def test_wrong_arguments_are_refused():
    path = dataset_path("bridge_rlds")
    part = {"key": "action"}
    for vectors, how in [
        ({}, {}),
        ({"a": {"parts": [{"key": "actoin"}]}}, {}),
        ({"a": {"parts": []}}, {}),
        ({"a": {"parts": [{**part, "stop": 9}]}}, {}),
        ({"a": {"parts": [part]}}, {"bins": 0, "exact": False}),
        ({"a": {"parts": [part]}}, {"episodes": [99]}),
    ]:
        with pytest.raises(robocache.Misuse):
            robocache.window_statistics(path, vectors, **how)
    with pytest.raises(robocache.Misuse, match="horizon"):
        robocache.stats(path, horizon=3)
