"""Interpolation of rotation vectors and Euler angles, compared with rotation matrices in NumPy."""

import json

import numpy as np
import pytest

import robocache


def matrices(v):
    """Converts rotation vectors to matrices with Rodrigues' formula."""
    n = np.linalg.norm(v, axis=-1)[..., None, None]
    k = np.zeros((*v.shape[:-1], 3, 3))
    k[..., 0, 1], k[..., 0, 2], k[..., 1, 2] = -v[..., 2], v[..., 1], -v[..., 0]
    k = (k - np.swapaxes(k, -1, -2)) / np.maximum(n, 1e-300)
    return np.eye(3) + np.sin(n) * k + (1 - np.cos(n)) * k @ k


def array(path, values):
    path.mkdir(parents=True)
    meta = {
        "zarr_format": 2,
        "shape": values.shape,
        "chunks": values.shape,
        "dtype": values.dtype.str,
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    (path / ".zarray").write_text(json.dumps(meta))
    (path / ".".join("0" * values.ndim)).write_bytes(values.tobytes())


T, RATE = 40, 10
TIMES = np.arange(T) / RATE
AXIS = np.array([0.48, -0.6, 0.64])
ANGLE = np.remainder(5 * TIMES + np.pi, 2 * np.pi) - np.pi  # jumps from pi to -pi


@pytest.fixture
def buffer(tmp_path):
    root = tmp_path / "umi.zarr"
    array(root / "data" / "robot0_eef_rot_axis_angle", ANGLE[:, None] * AXIS)
    array(root / "data" / "robot0_eef_pos", np.stack([TIMES, 2 * TIMES, 0 * TIMES], -1))
    array(root / "data" / "robot0_gripper_width", TIMES[:, None].copy())
    array(root / "data" / "other", ANGLE[:, None] * AXIS)
    array(root / "meta" / "episode_ends", np.array([T], np.int64))
    for p in (root, root / "data", root / "meta"):
        (p / ".zgroup").write_text('{"zarr_format": 2}')
    return root


def off(vectors, seconds):
    """Returns the largest angle between vectors and the true rotation."""
    turned = matrices(vectors) @ np.swapaxes(matrices(5 * seconds[:, None] * AXIS), -1, -2)
    return np.linalg.norm(turned - np.eye(3), axis=(1, 2)).max() / np.sqrt(2)


def test_umi_is_turned(buffer):
    ds = robocache.open(buffer, rows_hz=RATE)
    key = "observation.robot0_eef_rot_axis_angle"
    assert ds.features[key].rotations == ({"at": 0, "form": "rotvec"},)
    got = ds.episode(0).align(hz=73)
    seconds = (got["times"] - got["times"][0]) / 1e9
    assert off(got[key], seconds) < 1e-6
    assert off(got["observation.other"], seconds) > 1, "the Euler angles must contain a jump"
    named = ds.episode(0).align(hz=73, rotations={"observation.other": "rotvec"})
    assert np.array_equal(named["observation.other"], got[key])
    np.testing.assert_allclose(got["observation.robot0_eef_pos"][:, 1], 2 * seconds, atol=1e-9)


def test_joined_action_and_loader(buffer):
    parts = [f"observation.robot0_{p}" for p in ("eef_pos", "eef_rot_axis_angle", "gripper_width")]
    how = dict(
        rows_hz=RATE,
        map={"streams": {"action": {"from": parts}, **{p: {"from": [p]} for p in parts}}},
    )
    ds = robocache.open(buffer, **how)
    assert ds.features["action"].rotations == ({"at": 3, "form": "rotvec"},)
    items = robocache.MapDataset(ds, keys=["action"], hz=73)
    a = np.stack([np.asarray(items[i]["action"]) for i in range(len(items))]).astype(np.float64)
    assert len(a) > 250
    assert off(a[:, 3:6], a[:, 6]) < 1e-5  # column 6, the width, holds the time
    np.testing.assert_allclose(a[:, 0], a[:, 6], atol=1e-6)


def test_wrong_rotations(buffer):
    ep = robocache.open(buffer, rows_hz=RATE).episode(0)
    for bad in ("axis", [(1, "rotvec")], [(0, "rotvec"), (2, "xyz")], [3], 3):
        with pytest.raises(robocache.Misuse):
            ep.align(hz=20, rotations={"observation.other": bad})
    with pytest.raises(robocache.Misuse):
        ep.align(hz=20, rotations={"nobody": "rotvec"})
