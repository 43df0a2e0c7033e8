"""TartanAir V1 and V2: small faithful copies made with NumPy and PIL."""

import shutil

import numpy as np
import pytest
from PIL import Image

import robocache
from conftest import cli


def pose(rng, n):
    q = rng.normal(size=(n, 4))
    return np.hstack([rng.normal(size=(n, 3)), q / np.linalg.norm(q, axis=1, keepdims=True)])


def save(path, what):
    """Saves an image, an array or poses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        Image.fromarray(what).save(path)
    elif path.suffix == ".npy":
        np.save(path, what)
    else:
        np.savetxt(path, what)


def v1(root, n=6, seed=0):
    """Writes a trajectory as V1 has it, and returns its arrays by stream."""
    rng = np.random.default_rng(seed)
    out = {}
    for side in ("left", "right"):
        images = rng.integers(0, 256, (n, 48, 64, 3), np.uint8)
        depth = rng.uniform(1, 10000, (n, 48, 64)).astype("f4")
        labels = rng.integers(0, 256, (n, 48, 64), np.uint8)
        for i in range(n):
            save(root / f"image_{side}/{i:06d}_{side}.png", images[i])
            save(root / f"depth_{side}/{i:06d}_{side}_depth.npy", depth[i])
            save(root / f"seg_{side}/{i:06d}_{side}_seg.npy", labels[i])
        poses = pose(rng, n)
        save(root / f"pose_{side}.txt", poses)
        out |= {f"images.{side}": images, f"depth.{side}": depth, f"seg.{side}": labels}
        out[f"pose.{side}"] = poses
    save(root / "flow/000000_000001_flow.npy", np.zeros((48, 64, 2), "f4"))
    return out


def v2(root, n=5, seed=1):
    """Writes a trajectory as V2 has it, and returns its arrays by stream."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, 64, 64, 3), np.uint8)
    depth = rng.uniform(1, 10000, (n, 64, 64)).astype("<f4")
    labels = rng.integers(0, 30, (n, 64, 64), np.uint8)
    cam = "lcam_front"
    for i in range(n):
        save(root / f"image_{cam}/{i:06d}_{cam}.png", images[i])
        bgra = depth[i].view(np.uint8).reshape(64, 64, 4)  # As cv2.imwrite takes its channels.
        save(root / f"depth_{cam}/{i:06d}_{cam}_depth.png", bgra[..., [2, 1, 0, 3]])
        save(root / f"seg_{cam}/{i:06d}_{cam}_seg.png", labels[i])
    poses = pose(rng, n)
    save(root / f"pose_{cam}.txt", poses)
    times = {"cam_time": np.arange(n) / 10, "imu_time": np.arange(10 * (n - 1)) / 100}
    arrays = {k: rng.normal(size=(10 * (n - 1), 3)) for k in ("acc", "gyro")}
    for name, values in (times | arrays).items():
        save(root / f"imu/{name}.npy", values)
    save(root / "imu/acc.txt", arrays["acc"])
    out = {f"images.{cam}": images, f"depth.{cam}": depth, f"seg.{cam}": labels}
    return out | {f"pose.{cam}": poses} | {f"imu.{k}": v for k, v in arrays.items()}


def row_times(ep):
    key = next(k for k in ep.streams if k.startswith("observation.pose"))
    return np.asarray(ep.streams[key].times) / 1e9


def check(ep, want):
    for name, values in want.items():
        stream = ep.streams["observation." + name]
        if name.startswith("images"):
            got = stream.frames().transpose(0, 2, 3, 1)
        elif name.startswith(("depth", "seg")):
            got = stream.frames()
            got = got[:, 0] if got.ndim == 4 else got
        else:
            got = stream.values
        np.testing.assert_array_equal(got, values, err_msg=name)


def test_v1_has_every_stream(tmp_path):
    want = v1(tmp_path / "abandonedfactory/Easy/P000")
    v1(tmp_path / "abandonedfactory/Hard/P001", 3, 5)
    ds = robocache.open(tmp_path)
    assert ds.format == "tartanair" and [ep.length for ep in ds] == [6, 3]
    assert sorted(ds.features) == sorted("observation." + k for k in want)
    assert ds.features["observation.depth.left"].unit == "m"
    assert ds.splits == {"easy": 1, "hard": 1}
    check(ds[0], want)
    # V1 states no rate.
    np.testing.assert_allclose(row_times(ds[0]), np.arange(6) / 10, atol=1e-9)
    assert {f["code"] for f in ds.findings} == {"no-timestamps", "not-read"}
    assert row_times(robocache.open(tmp_path, rows_hz=30)[0])[3] == pytest.approx(0.1)
    for sub in ("abandonedfactory", "abandonedfactory/Easy", "abandonedfactory/Easy/P000"):
        assert robocache.open(tmp_path / sub)[0].length == 6


def test_v2_has_every_stream_and_its_clocks(tmp_path):
    want = v2(tmp_path / "ArchViz/Data_easy/P000")
    ds = robocache.open(tmp_path)
    assert ds.format == "tartanair" and ds.splits == {"easy": 1}
    assert sorted(ds.features) == sorted("observation." + k for k in want)
    check(ds[0], want)
    np.testing.assert_allclose(row_times(ds[0]), np.arange(5) / 10, atol=1e-9)
    acc = ds[0].streams["observation.imu.acc"]
    np.testing.assert_allclose(np.asarray(acc.times) / 1e9, np.arange(40) / 100, atol=1e-9)


def test_a_batch_and_a_conversion_have_the_values(tmp_path):
    want = v2(tmp_path / "in/E/Data_hard/P002")
    keys = ["observation.images.lcam_front", "observation.pose.lcam_front", "observation.imu.acc"]
    loader = robocache.Loader(str(tmp_path / "in"), batch_size=4, shuffle=False, keys=keys, hz=10)
    batch = next(iter(loader.as_numpy()))
    poses = batch["observation.pose.lcam_front"].reshape(4, 7)
    np.testing.assert_allclose(poses[:, :3], want["pose.lcam_front"][:4, :3], atol=1e-5)
    acc = batch["observation.imu.acc"].reshape(4, 3)
    np.testing.assert_allclose(acc, want["imu.acc"][:40:10], atol=1e-5)
    run = cli("convert", str(tmp_path / "in"), str(tmp_path / "out"), "--hz=10", "--images=images")
    assert run.returncode in (0, 3), run.stderr
    got = robocache.open(tmp_path / "out")
    key = "observation.images.lcam_front"
    frames = got[0].streams[key].frames().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(frames, want["images.lcam_front"][: len(frames)])


@pytest.mark.parametrize("lines", [4, 7])
def test_another_number_of_poses_is_an_error(tmp_path, lines):
    v1(tmp_path / "P000")
    save(tmp_path / "P000/pose_left.txt", pose(np.random.default_rng(0), lines))
    ds = robocache.open(tmp_path)
    with pytest.raises(robocache.Malformed, match=f"{lines} poses for 6 frames"):
        _ = ds[0].streams["observation.pose.left"].values
    run = cli("doctor", str(tmp_path))
    assert run.returncode == 3 and f"{lines} poses for 6 frames" in run.stdout + run.stderr


def test_lost_frames_do_not_shift_the_poses(tmp_path):
    want = v1(tmp_path / "P000")
    for f in (tmp_path / "P000").glob("*/000002_*"):
        f.unlink()
    ep = robocache.open(tmp_path)[0]  # Six poses for five frames: by number.
    rows = [0, 1, 3, 4, 5]
    got = ep.streams["observation.pose.left"].values
    np.testing.assert_array_equal(got, want["pose.left"][rows])
    # Blank lines keep their place.
    text = (tmp_path / "P000/pose_left.txt").read_text().splitlines()
    text[2] = ""
    (tmp_path / "P000/pose_left.txt").write_text("\n".join(text) + "\n\n")
    ep = robocache.open(tmp_path)[0]
    got = ep.streams["observation.pose.left"].values
    np.testing.assert_array_equal(got, want["pose.left"][rows])
    text[3] = ""
    (tmp_path / "P000/pose_left.txt").write_text("\n".join(text))
    with pytest.raises(robocache.Malformed, match="blank"):
        _ = robocache.open(tmp_path)[0].streams["observation.pose.left"].values


def test_cameras_with_fewer_frames_are_masked(tmp_path):
    v1(tmp_path / "P000")
    (tmp_path / "P000/image_right/000004_right.png").unlink()
    ds = robocache.open(tmp_path)
    found = [f for f in ds.findings if f["code"] == "missing-frames"]
    assert [f["where"]["stream"] for f in found] == ["observation.images.right"]
    assert ds[0].length == 6
    assert ds[0].streams["observation.images.left"].frames().shape[0] == 6


def test_trajectories_that_lack_a_stream_are_told(tmp_path):
    v1(tmp_path / "P000")
    v1(tmp_path / "P001", 4)
    shutil.rmtree(tmp_path / "P001/depth_left")
    (tmp_path / "P001/pose_right.txt").unlink()
    found = [f for f in robocache.open(tmp_path).findings if f["code"] == "missing-stream"]
    assert sorted(f["where"]["stream"] for f in found) == [
        "observation.depth.left",
        "observation.pose.right",
    ]


def test_damaged_files_are_errors_of_their_episode(tmp_path):
    v2(tmp_path / "P000")
    v2(tmp_path / "P001")
    bad = tmp_path / "P001"
    Image.new("RGB", (32, 32)).save(bad / "image_lcam_front/000001_lcam_front.png")
    Image.new("RGB", (64, 64)).save(bad / "depth_lcam_front/000002_lcam_front_depth.png")
    np.save(bad / "imu/gyro.npy", np.zeros((7, 3)))
    np.save(bad / "imu/cam_time.npy", np.array([0, 0.1, 0.05, 0.3, 0.4]))
    (bad / "pose_lcam_front.txt").write_text("1 2 3\n" * 5)
    ds = robocache.open(tmp_path)
    for key in ("images.lcam_front", "depth.lcam_front"):
        with pytest.raises(robocache.Malformed):
            ds[1].streams["observation." + key].frames()
    for key in ("pose.lcam_front", "imu.gyro"):
        with pytest.raises(robocache.Malformed):
            _ = ds[1].streams["observation." + key].values
    with pytest.raises(robocache.Malformed, match="ascending"):
        row_times(ds[1])
    run = cli("doctor", str(tmp_path), "--decode")
    said = run.stdout + run.stderr
    assert run.returncode == 3
    for code in ("bad-frame", "bad-numbers", "bad-times"):
        assert code in said
