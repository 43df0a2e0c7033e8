# usage: T01.py OUT [LAYOUT.FAULT]
# A column of timestamps that cannot be used. There are three episodes. The fault is in the last one,
# except for `constant`, which is in all.
# Layouts: hdf5, robomimic, aloha, zarr, calvin, clouds. Faults: sound, short, strings, nan, backwards, constant, twodim
import json, os, shutil, sys
from pathlib import Path
import numpy as np

ROOT = Path(sys.argv[1])
LAYOUT, _, FAULT = (sys.argv[2] if len(sys.argv) > 2 else "hdf5.short").partition(".")
EPISODES, ROWS = 3, 9
shutil.rmtree(ROOT, ignore_errors=True) if ROOT.is_dir() else ROOT.unlink(missing_ok=True)
ROOT.parent.mkdir(parents=True, exist_ok=True)


def clock(e, fault):
    """Returns the timestamps of episode e at 10 Hz, with the fault in the last episode."""
    t = np.arange(ROWS) / 10
    if fault == "constant":
        return np.zeros(ROWS)
    if e < EPISODES - 1:
        return t
    if fault == "short":
        return t[:-1]
    if fault == "strings":
        return np.array([f"10:00:00.{k}" for k in range(ROWS)], "S12")
    if fault == "nan":
        t[5] = np.nan
    if fault == "backwards":
        t[5] = 0.2
    if fault == "twodim":
        t = np.stack([t, t], 1)
    return t


def rows(e, width):
    return (100 * e + np.arange(ROWS)[:, None] + np.arange(width) / 100).astype(np.float32)


def hdf5():
    import h5py

    with h5py.File(ROOT, "w") as f:
        for e in range(EPISODES):
            g = f.create_group(f"episode_{e}")
            g["action"], g["state"], g["timestamp"] = rows(e, 2), rows(e, 3), clock(e, FAULT)


def robomimic():
    import h5py

    with h5py.File(ROOT, "w") as f:
        for e in range(EPISODES):
            g = f.create_group(f"data/demo_{e}")
            g["actions"], g["obs/state"], g["obs/timestamp"] = rows(e, 2), rows(e, 3), clock(e, FAULT)
            g.attrs["num_samples"] = ROWS


def aloha():
    import h5py

    ROOT.mkdir()
    for e in range(EPISODES):
        with h5py.File(ROOT / f"episode_{e}.hdf5", "w") as f:
            f["action"], f["observations/qpos"], f["observations/timestamp"] = rows(e, 2), rows(e, 2), clock(e, FAULT)


def array(path, values):
    """Writes a Zarr array of one chunk."""
    os.makedirs(ROOT / path)
    meta = {"zarr_format": 2, "shape": values.shape, "chunks": values.shape, "dtype": values.dtype.str, "compressor": None, "fill_value": 0 if values.dtype.kind != "S" else None, "filters": None, "order": "C"}
    (ROOT / path / ".zarray").write_text(json.dumps(meta))
    (ROOT / path / ".".join("0" for _ in values.shape)).write_bytes(values.tobytes())


def zarr():
    for group in ("", "data", "meta"):
        os.makedirs(ROOT / group)
        (ROOT / group / ".zgroup").write_text('{"zarr_format": 2}')
    all_rows = lambda width: np.concatenate([rows(e, width) for e in range(EPISODES)])
    clocks = [clock(e, FAULT) for e in range(EPISODES)]
    if FAULT in ("strings", "twodim"):
        clocks = [clock(EPISODES - 1, FAULT)] * EPISODES
    array("data/action", all_rows(2))
    array("data/state", all_rows(3))
    array("data/timestamp", np.concatenate(clocks))
    array("meta/episode_ends", np.cumsum([ROWS] * EPISODES))


def calvin():
    (ROOT / "training").mkdir(parents=True)
    ends = []
    for e in range(EPISODES):
        t = clock(EPISODES - 1 if FAULT in ("strings", "twodim") else e, FAULT)
        ends.append((e * 20, e * 20 + ROWS - 1))
        for k in range(ROWS):
            frame = {"actions": rows(e, 7)[k], "robot_obs": rows(e, 15)[k].astype(np.float64), "rgb_static": np.full((8, 8, 3), k, np.uint8)}
            if k < len(t):
                frame["timestamp"] = np.asarray(t[k])
            np.savez(ROOT / f"training/episode_{e * 20 + k:07d}.npz", **frame)
    np.save(ROOT / "training/ep_start_end_ids.npy", np.array(ends))


def clouds():
    (ROOT / "velodyne").mkdir(parents=True)
    for k in range(ROWS):
        np.full((3, 4), k, np.float32).tofile(ROOT / f"velodyne/{k:06d}.bin")
    lines = clock(EPISODES - 1, FAULT)
    text = (x.decode() if isinstance(x, bytes) else " ".join(map(str, np.atleast_1d(x))) for x in lines)
    (ROOT / "times.txt").write_text("".join(f"{x}\n" for x in text))


{"hdf5": hdf5, "robomimic": robomimic, "aloha": aloha, "zarr": zarr, "calvin": calvin, "clouds": clouds}[LAYOUT]()
