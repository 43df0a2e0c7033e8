"""Files of Isaac Lab: small faithful copies made with h5py, as its dataset file handler writes."""

import json

import h5py
import numpy as np
import pytest

import robocache
from conftest import cli

LENGTHS = (7, 1, 5)


def write(path, lengths=LENGTHS, lost=()):
    """Writes demos, and returns their arrays by path."""
    rng = np.random.default_rng(3)
    demos = []
    with h5py.File(path, "w") as f:
        data = f.create_group("data")
        data.attrs["total"] = sum(lengths)
        env = {"env_name": "Isaac-Stack-Cube-Franka-IK-Rel-v0", "type": 2}
        data.attrs["env_args"] = json.dumps(env)
        for k, n in enumerate(lengths):
            values = {
                "actions": rng.normal(size=(n, 7)).astype("f4"),
                "processed_actions": rng.normal(size=(n, 8)).astype("f4"),
                "obs/joint_pos": rng.normal(size=(n, 9)).astype("f4"),
                "obs/policy/eef_pos": rng.normal(size=(n, 3)).astype("f4"),
                "obs/table_cam": rng.integers(0, 256, (n, 24, 32, 3), np.uint8),
                "obs/datagen_info/subtask/grasp_1": rng.integers(0, 2, (n, 1)) > 0,
                "states/articulation/robot/joint_position": rng.normal(size=(n, 9)).astype("f4"),
                "states/rigid_object/cube_1/root_pose": rng.normal(size=(n, 7)).astype("f4"),
                "initial_state/articulation/robot/joint_position": rng.normal(size=(1, 9)).astype(
                    "f4"
                ),
                "initial_state/rigid_object/cube_1/root_pose": rng.normal(size=(1, 7)).astype("f4"),
            }
            group = data.create_group(f"demo_{k}")
            group.attrs["num_samples"] = n
            group.attrs["seed"] = 42
            group.attrs["success"] = np.bool_(k != 1)
            for name, v in values.items():
                if (k, name) not in lost:
                    group.create_dataset(name, data=v, compression="gzip")
            demos.append(values)
    return demos


def key_of(name):
    dots = name.replace("/", ".")
    if name == "actions":
        return "action"
    return "observation" + dots[3:] if name.startswith("obs/") else dots


def test_every_array_is_a_stream(tmp_path):
    demos = write(tmp_path / "demos.hdf5")
    ds = robocache.open(tmp_path / "demos.hdf5", rows_hz=20)
    assert ds.format == "robomimic" and len(ds) == 3
    assert sorted(ds.features) == sorted(key_of(k) for k in demos[0])
    assert ds.features["observation.table_cam"].kind == "image"
    assert [ep.length for ep in ds] == list(LENGTHS)
    for ep, values in zip(ds, demos, strict=True):
        for name, want in values.items():
            stream = ep.streams[key_of(name)]
            if name == "obs/table_cam":
                got = stream.frames().transpose(0, 2, 3, 1)
            else:
                got = np.asarray(stream.values).reshape(ep.length, *want.shape[1:])
            # The one row of initial_state holds for all rows.
            np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape), err_msg=name)
    assert not [f for f in ds.findings if f["severity"] != "info"]


def test_success_makes_splits(tmp_path):
    path = tmp_path / "demos.hdf5"
    write(path)
    assert robocache.open(path).splits == {"success": 2, "failure": 1}
    assert [ep.length for ep in robocache.open(path).split("success")] == [7, 5]
    with h5py.File(path, "a") as f:  # A mask of the file is what success means.
        f["mask/success"] = np.array([b"demo_1"])
    assert [ep.length for ep in robocache.open(path).split("success")] == [1]


def test_a_batch_and_a_conversion_have_the_rows(tmp_path):
    path = tmp_path / "demos.hdf5"
    demos = write(path)
    keys = ["action", "initial_state.rigid_object.cube_1.root_pose", "observation.table_cam"]
    loader = robocache.Loader(str(path), batch_size=13, shuffle=False, keys=keys)
    batch = next(iter(loader.as_numpy()))
    want = np.concatenate([d["actions"] for d in demos])
    np.testing.assert_array_equal(batch["action"], want)
    pose = [d["initial_state/rigid_object/cube_1/root_pose"] for d in demos]
    want = np.concatenate([np.repeat(p, n, 0) for p, n in zip(pose, LENGTHS, strict=True)])
    np.testing.assert_array_equal(batch[keys[1]].reshape(13, 7), want)
    out = tmp_path / "set"
    robocache.convert(str(path), str(out), rows_hz="20")
    got = robocache.open(out)
    assert [ep.length for ep in got] == list(LENGTHS)
    np.testing.assert_array_equal(got[2].streams["action"].values, demos[2]["actions"])


def test_bad_files_are_told(tmp_path):
    path = tmp_path / "demos.hdf5"
    name = "initial_state/articulation/robot/joint_position"
    write(path, lost={(2, name)})
    ds = robocache.open(path, rows_hz=20)
    codes = {f["code"] for f in ds.findings if f["severity"] != "info"}
    assert codes == {"missing-stream"}
    with pytest.raises(robocache.Malformed):
        _ = ds[2].streams[key_of(name)].values
    with h5py.File(path, "a") as f:
        g = f["data/demo_0"]
        del g[name], g["states/articulation/robot/joint_position"]
        g[name] = np.zeros((2, 9), "f4")  # Neither one row nor the demo's.
        g["states/articulation/robot/joint_position"] = np.zeros((3, 9), "f4")
    ds = robocache.open(path, rows_hz=20)
    for key in (key_of(name), "states.articulation.robot.joint_position"):
        with pytest.raises(robocache.Malformed, match="rows"):
            _ = ds[0].streams[key].values
    run = cli("doctor", str(path), "--rows-hz=20")
    assert run.returncode == 3 and "demo_0" in run.stdout + run.stderr
