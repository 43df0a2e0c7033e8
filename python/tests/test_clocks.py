"""windows= and anchor=: streams at their own rate, ragged batches, and rejected arguments."""

from __future__ import annotations

import numpy as np
import pytest

import robocache
from conftest import dataset_path
from robocache import _memory
from robocache._target import Target

torch = pytest.importorskip("torch")


def test_spans_and_offsets(h264: str) -> None:
    """Checks the three kinds of windows by time, together with windows of rows.

    A span returns all samples whose timestamps are in it. A span with a count returns evenly spaced
    samples. A list of offsets returns one sample per offset.
    """
    ds = robocache.open(h264)
    key = "action"
    m = robocache.MapDataset(
        ds,
        keys=[key, "observation.state", "timestamp"],
        windows=robocache.Windows(
            seconds={
                key: (-0.1, 0.0),
                "observation.state": (-0.2, 0.0, 5),
                "timestamp": [-0.05, 0.0],
            }
        ),
    )
    ep = ds.episode(0)
    times, values = ep.streams[key].times, ep.streams[key].values
    b = m.batch(range(12))
    at = 0
    for i in range(12):
        rows = np.flatnonzero((times >= times[i] - 100_000_000) & (times <= times[i]))
        assert b[key + "_lengths"][i] == len(rows)
        assert np.array_equal(b[key][at : at + len(rows)].numpy(), values[rows])
        assert np.array_equal(
            b[key + "_times"][at : at + len(rows)].numpy(), times[rows] - times[i]
        )
        at += len(rows)
        item = m[i]
        assert np.array_equal(item[key + "_times"].numpy(), times[rows] - times[i])
        assert np.array_equal(item[key].numpy(), values[rows]) and item[key + "_lengths"] == len(
            rows
        )
    assert len(b[key]) == at and key + "_is_pad" not in b
    state = ep.streams["observation.state"]
    targets = times[11] + np.linspace(-200_000_000, 0, 5).astype(np.int64)
    want = np.stack(
        [np.interp(targets / 1e9, state.times / 1e9, c) for c in state.values.T.astype(np.float64)],
        1,
    )
    assert np.allclose(b["observation.state"][11].numpy(), want, atol=1e-5)
    assert b["observation.state_is_pad"][0].tolist() == [True] * 4 + [False]
    assert b["timestamp"].shape == (12, 2) and b["timestamp"][11, 1] == b["timestamp"][11].max()


@pytest.mark.parametrize("arrays", [False, True])
def test_ragged_batches(h264: str, arrays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Loader returns the entries of all samples and their lengths, as tensors and as arrays.

    State and workers must handle ragged batches too.
    """
    if arrays:
        monkeypatch.setattr(_memory, "torch_module", lambda: None)
    how = dict(
        keys=["action", "index"], windows=robocache.Windows(seconds={"action": (-0.1, 0.05)})
    )
    m = robocache.MapDataset(h264, **how)
    one = {int(i["index"]): np.asarray(i["action"]) for i in m[0:200]}
    with robocache.Loader(m, batch_size=16, episodes=[0], seed=5) as loader:
        first = next(iter(loader))
        assert type(first["action"]).__module__ == ("numpy" if arrays else "torch")
        n = np.asarray(first["action_lengths"])
        parts = np.split(np.asarray(first["action"]), np.cumsum(n)[:-1])
        assert len(parts) == 16 and sum(n) == len(first["action"]) and n.max() == 5
        for i, p in zip(np.asarray(first["index"]), parts):
            if int(i) in one:
                assert np.array_equal(p, one[int(i)])
        state = loader.state_dict()
        second = [b for b in zip(range(1), loader)]
    with robocache.Loader(m, batch_size=16, episodes=[0], seed=5) as again:
        again.load_state_dict(state)
        b = next(iter(again))
        assert len(b["action"]) > 0 and second


def test_ragged_for_a_device(h264: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows of varying length the host finishes the batch, and stats() reports why."""

    raw = Target("cuda", None, config={"raw": True}, kernels={"backend": "cpu"})
    monkeypatch.setattr("robocache.loader.find_target", lambda where, decode: raw)
    with robocache.Loader(
        h264,
        batch_size=4,
        keys=["action"],
        windows=robocache.Windows(seconds={"action": (-0.1, 0.0)}),
    ) as loader:
        assert len(next(iter(loader))["action"]) > 0
        told = loader.stats()
        assert told["finished_on"] == "host" and "varying length" in told["not_on_device"]


def test_nothing_in_a_span(h264: str) -> None:
    """A batch may contain no entry at all, in a MapDataset and in a Loader."""
    how = dict(
        keys=["action"],
        windows=robocache.Windows(seconds={"action": (-900.0, -800.0)}),
        episodes=[0],
    )
    m = robocache.MapDataset(h264, **how)
    assert m[3]["action"].shape == (0, 26) and m.batch([1, 2])["action_lengths"].tolist() == [0, 0]
    with robocache.Loader(m, batch_size=4) as loader:
        b = next(iter(loader))
        assert b["action"].shape == (0, 26) and b["action_lengths"].tolist() == [0] * 4


def test_ragged_in_workers(h264: str) -> None:
    m = robocache.MapDataset(
        h264, keys=["action"], windows=robocache.Windows(seconds={"action": (-0.1, 0.0)})
    )
    loader = torch.utils.data.DataLoader(
        m,
        batch_size=8,
        num_workers=2,
        collate_fn=lambda items: torch.cat([i["action"] for i in items]),
    )
    got = next(iter(loader))
    assert torch.equal(got, m.batch(range(8))["action"])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        (dict(windows=robocache.Windows(seconds={"acton": (0, 1)})), "did you mean 'action'"),
        (dict(windows=robocache.Windows(seconds={"action": (1.0, 0.0)})), "from ≤ to"),
        (dict(windows=robocache.Windows(seconds={"action": (0.0, 1.0, 0)})), "expected"),
        (dict(windows=robocache.Windows(seconds={"action": (0.0,)})), "expected"),
        (dict(windows=robocache.Windows(seconds={"action": "now"})), "expected"),
        (dict(windows=robocache.Windows(seconds=[("action", 1)])), "expected a dict"),
        (
            dict(
                windows=robocache.Windows(seconds={"action": [0.0]}),
                delta_timestamps={"action": [0.0]},
            ),
            "both",
        ),
        (dict(windows=robocache.Windows(anchor="acton")), "did you mean"),
        (dict(windows=robocache.Windows(anchor="action"), hz=10), "anchor or hz"),
        (dict(align=robocache.Align(modes={"action": "linear"})), "hz"),
        (
            dict(
                windows=robocache.Windows(seconds={"action": [0.0]}),
                align=robocache.Align(clock={"action": "log"}),
            ),
            "one clock",
        ),
    ],
)
def test_misuse(h264: str, kwargs: dict, words: str) -> None:
    with pytest.raises((robocache.Misuse, robocache.Unsupported), match=words):
        m = robocache.MapDataset(h264, **kwargs)
        m[0]


@pytest.fixture(scope="module", params=["recording_zstd.mcap", "recording_db3"])
def recording(request: pytest.FixtureRequest) -> str:
    """Returns a recording with four clocks.

    The joints have 100 Hz. The inertial sensor has 333 Hz with jitter and a gap of 0.4 s. The
    camera has 30 Hz and starts 533 ms late. The point clouds have 10 Hz.
    """
    path = f"{dataset_path('mcap_robot')}/{request.param}"
    try:
        robocache.open(path).close()
    except robocache.Unsupported as e:
        pytest.skip(str(e))
    return path


def test_images_and_clouds_of_a_span(recording: str) -> None:
    ds = robocache.open(recording)
    m = robocache.MapDataset(
        ds,
        keys=[JOINTS, CAMERA, CLOUD],
        windows=robocache.Windows(
            anchor=JOINTS, seconds={CAMERA: (-0.2, 0.05), CLOUD: (-0.2, 0.05)}
        ),
    )
    ep = ds.episode(0)
    now, camera, cloud = (ep.streams[k].times for k in (JOINTS, CAMERA, CLOUD))
    images, points = ep.streams[CAMERA].frames(range(12)), ep.streams[CLOUD].values
    rows = [0, 40, 55, 60, 77, len(now) - 1]
    batch = m.batch(rows)
    seen = 0
    for i, r in enumerate(rows):
        mine = [
            k
            for k in range(len(camera))
            if now[r] - 200_000_000 <= camera[k] <= now[r] + 50_000_000
        ]
        assert (
            int(batch[CAMERA + "_lengths"][i])
            == len(mine)
            == int((~batch[CAMERA + "_is_pad"][i]).sum())
        )
        assert batch[CAMERA + "_times"][i][: len(mine)].tolist() == [
            int(camera[k] - now[r]) for k in mine
        ]
        for at, k in enumerate(mine):
            if k < 12:
                assert np.array_equal(np.asarray(batch[CAMERA][i, at]), images[k])
                seen += 1
        assert not np.asarray(batch[CAMERA][i, len(mine) :]).any()
        mine = [
            k for k in range(len(cloud)) if now[r] - 200_000_000 <= cloud[k] <= now[r] + 50_000_000
        ]
        item = m[r]
        assert item[CLOUD + "_lengths"].tolist()[: len(mine)] == [len(points[k]) for k in mine]
        assert np.array_equal(
            np.asarray(item[CLOUD]),
            np.concatenate([points[k] for k in mine])
            if mine
            else np.zeros((0, points[0].shape[1]), np.float32),
            equal_nan=True,
        )
    assert seen > 8


def interp(t: np.ndarray, timestamps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolates each column with np.interp in float64.

    Times are relative to the first timestamp, because float64 seconds since 1970 do not resolve
    nanoseconds.
    """
    x, xp = (t - timestamps[0]) * 1e-9, (timestamps - timestamps[0]) * 1e-9
    return np.stack(
        [np.interp(x, xp, c) for c in values.reshape(len(values), -1).T.astype(np.float64)], 1
    )


CAMERA, CLOUD, GYRO, JOINTS = (
    "camera.color.image_raw.compressed",
    "points",
    "imu.data.angular_velocity",
    "joint_states.position",
)


def test_recording_to_50_hz(recording: str) -> None:
    """Resampling four clocks to 50 Hz equals the float64 reference.

    The masks mark the gap and the late start.
    """
    ds = robocache.open(recording)
    streams = ds.episode(0).streams
    keys = [
        CAMERA,
        GYRO,
        JOINTS,
        "imu.data.orientation",
        CLOUD,
        "tf_static.torso.velodyne.translation",
    ]
    how = dict(
        hz=50,
        keys=keys,
        align=robocache.Align(extent=JOINTS, edge="mask", max_gap={GYRO: 0.05, CAMERA: 0.1}),
    )
    m = robocache.MapDataset(ds, **how)
    b = m.batch(range(len(m)))
    joints, gyro, camera, cloud = (streams[k] for k in (JOINTS, GYRO, CAMERA, CLOUD))
    t = joints.times[0] + np.arange(len(m)) * 20_000_000
    assert t[-1] <= joints.times[-1] < t[-1] + 20_000_000
    assert np.allclose(
        b[JOINTS].numpy(), interp(t, joints.times, joints.values), rtol=0, atol=1e-12
    )
    assert not b[JOINTS + "_is_pad"].any()

    after = np.searchsorted(gyro.times, t)
    inside = (after > 0) & (after < len(gyro.times))
    hole = gyro.times[np.minimum(after, len(gyro.times) - 1)] - gyro.times[np.maximum(after - 1, 0)]
    valid = inside & (hole <= 50_000_000)
    assert np.array_equal(b[GYRO + "_is_pad"].numpy(), ~valid)
    seconds = (t - joints.times[0]) * 1e-9
    assert (~valid & (seconds > 1.99) & (seconds < 2.41)).sum() == 21 and valid[
        (seconds > 0.05) & (seconds < 1.98)
    ].all()
    assert np.allclose(
        b[GYRO].numpy()[valid], interp(t, gyro.times, gyro.values)[valid], rtol=0, atol=1e-12
    )
    assert not b[GYRO].numpy()[~valid].any()
    quaternions = b["imu.data.orientation"].numpy()
    assert np.allclose(np.linalg.norm(quaternions[valid], axis=1), 1, atol=1e-12)

    late = b[CAMERA + "_is_pad"].numpy()
    assert (
        np.array_equal(late, (t < camera.times[0]) | (t > camera.times[-1]))
        and 26 <= late[:40].sum() <= 27
    )
    nearest = np.abs(camera.times[None, :] - t[:, None]).argmin(1)
    frames = camera.frames()
    for i in np.flatnonzero(~late)[::7]:
        assert np.array_equal(b[CAMERA][i].numpy(), frames[nearest[i]])
    assert not b[CAMERA][0].any()

    near = np.abs(cloud.times[None, :] - t[:, None]).argmin(1)
    ok = ~b[CLOUD + "_is_pad"].numpy()
    points = cloud.values
    want = [points[k] if good else points[k][:0] for k, good in zip(near, ok)]
    assert b[CLOUD + "_lengths"].tolist() == [len(p) for p in want]
    assert np.array_equal(b[CLOUD].numpy(), np.concatenate(want), equal_nan=True)
    assert not b["tf_static.torso.velodyne.translation_is_pad"].any()

    # Episode.align over the whole episode returns the same.
    whole = ds.episode(0).align(
        hz=50, keys=keys, extent=JOINTS, edge="mask", max_gap={GYRO: 0.05, CAMERA: 0.1}
    )
    for k in (JOINTS, GYRO, CAMERA, CLOUD, CLOUD + "_lengths", GYRO + "_is_pad"):
        assert np.array_equal(whole[k], b[k].numpy(), equal_nan=whole[k].dtype.kind == "f"), k


def test_recording_at_native_rates(recording: str) -> None:
    """Windows of other streams at their own rates, anchored on the camera, in a resumed Loader."""
    ds = robocache.open(recording)
    streams = ds.episode(0).streams
    how = dict(
        keys=[CAMERA, GYRO, JOINTS, CLOUD],
        windows=robocache.Windows(
            seconds={GYRO: (-0.5, 0.0), JOINTS: (-0.2, 0.0, 5), CLOUD: [-0.1, 0.0]}
        ),
    )
    with robocache.Loader(ds, batch_size=16, image_size=(24, 32), seed=2, **how) as loader:
        assert loader.num_samples == len(streams[CAMERA])
        order = loader.order(0)
        seen, state = [], None
        for k, b in enumerate(loader):
            if k == 2:
                state = loader.state_dict()
            seen.append(b)
    at = 0
    for b in seen:
        ends = np.cumsum(b[GYRO + "_lengths"].numpy())
        for n, i in enumerate(order[at : at + len(ends)]):
            now = streams[CAMERA].times[i]
            gyro = streams[GYRO]
            rows = (gyro.times >= now - 500_000_000) & (gyro.times <= now)
            got = b[GYRO][ends[n] - rows.sum() : ends[n]]
            assert np.array_equal(got.numpy(), gyro.values[rows].astype(np.float32)), (
                "float64 is delivered as float32"
            )
            want = interp(
                now + np.arange(-4, 1) * 50_000_000, streams[JOINTS].times, streams[JOINTS].values
            )
            assert np.allclose(b[JOINTS][n].numpy(), want, rtol=0, atol=1e-6)
        assert b[CLOUD + "_lengths"].shape == (len(ends), 2) and b[CLOUD + "_lengths"].sum() == len(
            b[CLOUD]
        )
        at += len(ends)
    with robocache.Loader(
        ds, batch_size=16, image_size=(24, 32), seed=2, cache="ram", threads=1, **how
    ) as again:
        again.load_state_dict(state)
        for b, x in zip(seen[3:], again):
            for k, v in b.items():
                assert torch.equal(v, x[k]), k


def test_anchor_and_clock(recording: str) -> None:
    ds = robocache.open(recording)
    streams = ds.episode(0).streams
    m = robocache.MapDataset(ds, keys=[JOINTS, GYRO], windows=robocache.Windows(anchor=JOINTS))
    assert len(m) == len(streams[JOINTS]) and JOINTS + "_is_pad" not in m.keys
    assert np.array_equal(m[17][JOINTS].numpy(), streams[JOINTS].values[17])
    log = robocache.MapDataset(
        ds,
        keys=[JOINTS, GYRO],
        windows=robocache.Windows(anchor=GYRO),
        align=robocache.Align(clock={JOINTS: "log"}),
    )
    plain = robocache.MapDataset(ds, keys=[JOINTS, GYRO], windows=robocache.Windows(anchor=GYRO))
    assert not np.array_equal(log[300][JOINTS].numpy(), plain[300][JOINTS].numpy())
    with pytest.raises(robocache.Misuse, match="header"):
        robocache.MapDataset(
            ds,
            keys=[JOINTS, GYRO],
            windows=robocache.Windows(anchor=GYRO),
            align=robocache.Align(clock={JOINTS: "wall"}),
        )[0]


def test_mixture_with_lerobot(recording: str, h264: str) -> None:
    """In a mixture of a LeRobot set and a recording, each sample equals that of its own source."""
    a, r = robocache.open(h264), robocache.open(recording)
    key, window = "observation.state", {"observation.state": [-0.1, 0.0]}
    assert (a.features[key].dtype, r.features[JOINTS].dtype) == ("float32", "float64")
    mix = [
        robocache.Mix(a, weight=1, name="arm"),
        robocache.Mix(r, weight=1, rename={JOINTS: key}, name="robot"),
    ]
    with pytest.raises(robocache.Misuse, match="dtypes"):
        robocache.Loader(
            mix,
            batch_size=8,
            keys=[key],
            delta_timestamps=window,
            windows=robocache.Windows(dtype="keep"),
        )
    mix[1] = robocache.Mix(r, weight=1, rename={JOINTS: key, GYRO: "gyro"}, name="robot")
    arm = robocache.MapDataset(a, keys=[key], delta_timestamps=window)
    robot = robocache.MapDataset(
        r,
        keys=[JOINTS, GYRO],
        delta_timestamps={JOINTS: window[key]},
        windows=robocache.Windows(seconds={GYRO: (-0.1, 0.0)}),
        align=robocache.Align(dtypes={JOINTS: "float32", GYRO: "float32"}),
    )
    with robocache.Loader(
        mix,
        batch_size=8,
        keys=[key, "gyro"],
        delta_timestamps=window,
        windows=robocache.Windows(seconds={"gyro": (-0.1, 0.0)}, missing="pad"),
        mixture=robocache.Mixture(epoch_size=64),
    ) as loader:
        at = loader.locate(loader.order(0))
        n = 0
        for b in loader:
            gyro = torch.split(b["gyro"], b["gyro_lengths"].tolist())
            for i in range(len(b[key])):
                if at.dataset_index[n]:
                    want = robot[int(at.row[n])]
                    assert (
                        torch.equal(b[key][i], want[JOINTS])
                        and torch.equal(b[key + "_is_pad"][i], want[JOINTS + "_is_pad"])
                        and torch.equal(gyro[i], want[GYRO])
                    )
                else:
                    assert (
                        torch.equal(b[key][i], arm[int(loader.order(0)[n])][key])
                        and len(gyro[i]) == 0
                    )
                assert int(b["dataset_index"][i]) == at.dataset_index[n]
                n += 1
    assert n == 64 and set(at.dataset_index) == {0, 1}


def test_rows_without_a_clock() -> None:
    """hz= resamples; rows_hz= sets the rate of rows without timestamps.

    The error for a wrong hz= suggests rows_hz=.
    """
    uri = dataset_path("diffusion_policy_zarr")
    with pytest.raises(robocache.Misuse, match="rows_hz=10"):
        robocache.Loader(uri, hz=10, keys=["action"])
    with robocache.Loader(
        uri, open=robocache.Open(rows_hz=10), hz=20, keys=["action"], batch_size=4
    ) as loader:
        assert next(iter(loader))["action"].shape == (4, 26)


def test_drift() -> None:
    """drift= maps a timestamp to at + (timestamp - at) / (1 + ppm / 1e6).

    Both Episode.align and the loader apply it. If at is not given, it is the first timestamp.
    """
    with robocache.open(f"{dataset_path('mcap_robot')}/recording_zstd.mcap") as ds:
        ep = ds.episode(0)
        key = next(
            k
            for k, f in ds.features.items()
            if f.kind == "numeric"
            and f.dtype == "float64"
            and f.clock
            and not f.ragged
            and len(ep.streams[k].times) > 300
        )
        timestamps, values = (
            ep.streams[key].times,
            ep.streams[key].values.reshape(len(ep.streams[key].times), -1),
        )
        first = int(timestamps[0])
        for drift, at in (400.0, first), ((400.0, f"{first - 10**9}ns"), first - 10**9):
            moved = at + (timestamps - at) / (1 + 400e-6) + 5e6
            got = ep.align(
                hz=50,
                extent=key,
                keys=[key],
                modes={key: "linear"},
                offset={key: 0.005},
                drift={key: drift},
            )
            # float64 seconds since 1970 are exact to 256 ns
            assert abs(got["times"][0] - moved[0]) <= 256
            want = np.stack(
                [
                    np.interp((got["times"] - first).astype(float), moved - first, c)
                    for c in values.T
                ],
                1,
            )
            assert np.allclose(
                got[key].reshape(want.shape), want, atol=1e-3 * max(1e-9, np.abs(values).max())
            )
        align = {
            "modes": {key: "linear"},
            "extent": key,
            "offset": {key: 0.005},
            "drift": {key: 400.0},
        }
        m = robocache.MapDataset(ds, keys=[key], hz=50, align=robocache.Align(**align))
        one = ep.align(
            hz=50,
            extent=key,
            keys=[key],
            modes={key: "linear"},
            offset={key: 0.005},
            drift={key: {"ppm": 400.0}},
        )
        assert len(m) == len(one["times"]) and np.array_equal(
            np.asarray(m[10][key]).ravel(), one[key][10].ravel()
        )
        for bad in 1e9, (400.0, first), "fast", (1, 2, 3), {"rate": 1}, True:
            with pytest.raises(robocache.Misuse, match="drift"):
                ep.align(hz=50, keys=[key], drift={key: bad})
