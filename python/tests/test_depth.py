"""Depth images and images of zero rows, through Python."""

import os
from pathlib import Path

import numpy as np
import pytest
import robocache
from conftest import cli, dataset_path

h5py = pytest.importorskip("h5py")


def test_units_and_empty_episodes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    metres = rng.normal(size=(4, 12, 9)).astype(np.float32)
    codes = rng.integers(0, 65536, (4, 12, 9, 1), dtype=np.uint16)
    with h5py.File(tmp_path / "depth.hdf5", "w") as f:
        for name, n in (("demo_0", 4), ("demo_1", 0)):
            g = f.create_group(f"data/{name}")
            g["actions"] = np.zeros((n, 2), np.float32)
            g["obs/depth"], g["obs/codes"] = metres[:n, ..., None], codes[:n]
            g["obs/cam"] = np.zeros((n, 12, 9, 3), np.uint8)
    uri = os.fspath(tmp_path / "depth.hdf5")
    ds = robocache.open(uri, rows_hz=10)
    depth = ds[0].streams["observation.depth"]
    # Depth in float metres is returned as stored, to the bit, or in millimetres.
    assert (
        depth.feature.unit == "m"
        and depth.frames().tobytes() == depth.frames(depth_unit="m").tobytes() == metres.tobytes()
    )
    assert np.array_equal(depth.frames(depth_unit="mm")[:, 0], metres * np.float32(1000))
    assert np.array_equal(depth.frames([2, 0], depth_unit="m")[:, 0], metres[[2, 0]])
    assert np.array_equal(ds[0].streams["observation.codes"].frames()[:, 0], codes[..., 0])
    batch = next(
        iter(
            robocache.Loader(
                uri,
                open=robocache.Open(rows_hz=10),
                batch_size=4,
                shuffle=False,
                images=robocache.Images(depth_unit="m"),
            )
        )
    )
    assert np.asarray(batch["observation.depth"]).tobytes() == metres.tobytes()
    with pytest.raises(robocache.Misuse):
        depth.frames(depth_unit="cm")
    # Zero rows return empty arrays of the same type and row shape.
    for key, shape, dtype in (
        ("depth", (0, 1, 12, 9), "float32"),
        ("codes", (0, 1, 12, 9), "uint16"),
        ("cam", (0, 3, 12, 9), "uint8"),
    ):
        for got in (
            ds[1].streams[f"observation.{key}"].frames(),
            ds[0].streams[f"observation.{key}"].frames([]),
        ):
            assert got.shape == shape and got.dtype == dtype


def agreed(uri: str, key: str, metres: np.ndarray, **how: object) -> None:
    """Asserts that all ways to read a depth camera use the unit of its feature.

    metres holds the depth of the first episode.
    """
    rows = len(metres)

    def check(got: object, unit: str, what: str) -> None:
        scale = {"m": 1.0, "mm": 1000.0}[unit]
        np.testing.assert_allclose(
            np.asarray(got, np.float64)[:rows],
            metres * scale,
            rtol=2e-6,
            atol=1e-6 * scale,
            err_msg=what,
        )

    for unit in (None, "m", "mm"):
        ds = robocache.open(uri, depth_unit=unit, **how)
        stream = ds[0].streams[key]
        assert ds.features[key].unit == stream.feature.unit == (unit or stream.feature.unit)
        check(stream.values, stream.feature.unit, f"values, open(depth_unit={unit})")
        check(stream.frames(depth_unit="m"), "m", "frames in m")
        check(stream.frames(depth_unit="mm"), "mm", "frames in mm")
        check(ds[0].align(times=stream.times, keys=[key])[key], stream.feature.unit, "align")
        for wanted in (None, "m", "mm"):
            m = robocache.MapDataset(
                ds, episodes=[0], keys=[key], images=robocache.Images(depth_unit=wanted)
            )
            loader = robocache.Loader(
                ds,
                episodes=[0],
                keys=[key],
                batch_size=rows,
                shuffle=False,
                images=robocache.Images(depth_unit=wanted),
            )
            for x in (m, loader):
                assert x.features[key].unit == (wanted or unit or "mm")
            check(m.batch(range(rows))[key], m.features[key].unit, "items")
            check(next(iter(loader))[key], loader.features[key].unit, "batch")
        try:
            top = ds.compute_stats([key], frames="all").get(key, {}).get("max")
        except robocache.Unsupported:
            continue
        if top is not None:
            assert np.ravel(top)[0] == pytest.approx(
                metres.max() * (1 if stream.feature.unit == "m" else 1000), rel=2e-6
            )


@pytest.mark.parametrize("kind", ["uint16", "float32"])
@pytest.mark.parametrize("format", ["hdf5", "lerobot", "mcap", "rlds", "zarr"])
def test_units_agree(tmp_path: Path, format: str, kind: str) -> None:
    """16UC1 and 32FC1 in MCAP, images in LeRobot, PNG in RLDS, arrays in HDF5 and Zarr."""
    metres = np.random.default_rng(5).integers(300, 4000, (6, 12, 9, 1)) / 1000
    with h5py.File(tmp_path / "depth.hdf5", "w") as f:
        g = f.create_group("data/demo_0")
        g["actions"] = np.zeros((6, 2), np.float32)
        g["obs/cam_depth"] = (
            np.rint(metres * 1000).astype(np.uint16)
            if kind == "uint16"
            else metres.astype(np.float32)
        )
    uri, key, how = os.fspath(tmp_path / "depth.hdf5"), "observation.cam_depth", {"rows_hz": 10}
    if format != "hdf5":
        done = cli("convert", uri, os.fspath(tmp_path / "out"), "--to", format, "--rows-hz", "10")
        assert done.returncode in (0, 3), done.stderr
        uri, how = os.fspath(tmp_path / "out"), {}
        key = next(k for k in robocache.open(uri).features if "depth" in k)
    agreed(uri, key, np.moveaxis(metres, 3, 1), **how)


def test_calvin() -> None:
    """The recorded depth is in metres, as stored in the files."""
    uri = os.fspath(Path(dataset_path("calvin_like")) / "training")
    ds = robocache.open(uri)
    stream = ds[0].streams["observation.depth_static"]
    first = np.load(sorted(Path(uri).glob("episode_*.npz"))[0])["depth_static"]
    assert stream.feature.unit == "m" and np.array_equal(stream.frames([0])[0, 0], first)
    agreed(uri, stream.key, stream.values.astype(np.float64))


def test_no_depth(tmp_path: Path) -> None:
    """Floats in another unit are not treated as depth and are not converted."""
    heat = np.full((3, 12, 9, 1), 300.5, np.float32)
    with h5py.File(tmp_path / "heat.hdf5", "w") as f:
        f["heat"] = heat
        f["depth"] = np.full((3, 12, 9), 1500, np.float32)
    mapping = {
        "streams": {
            "heat": {"from": ["heat"], "unit": "K"},
            "depth": {"from": ["depth"], "unit": "mm"},
        }
    }
    ds = robocache.open(tmp_path / "heat.hdf5", rows_hz=10, map=mapping)
    loader = robocache.Loader(ds, batch_size=3, images=robocache.Images(depth_unit="m"))
    batch = next(iter(loader))
    assert loader.features["heat"].unit == "K" and float(batch["heat"].max()) == 300.5
    assert loader.features["depth"].unit == "m" and float(batch["depth"].max()) == 1.5
    assert ds.features["depth"].unit == "mm" and ds[0].streams["depth"].values.max() == 1500
    with pytest.raises(robocache.Misuse, match="depth_unit"):
        robocache.open(tmp_path / "heat.hdf5", depth_unit="cm")
