"""Compares a converted dataset, as LeRobot gives it, with its source, read by pyarrow and PyAV alone.

Usage: peer.py CONVERTED SOURCE
"""

import json
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
from lerobot.datasets.lerobot_dataset import LeRobotDataset

out, src = Path(sys.argv[1]), Path(sys.argv[2])
info = json.loads((src / "meta/info.json").read_text())
fps = info["fps"]
v3 = info["codebase_version"].startswith("v3")


def numbered(paths):
    return sorted(paths)


# The source's rows, episode by episode.
rows = []
for p in numbered(src.glob("data/*/*.parquet")):
    rows += pq.read_table(p).to_pylist()
episodes = {}
for r in rows:
    episodes.setdefault(r["episode_index"], []).append(r)
if v3:
    tasks = {
        r["task_index"]: r.get("task", r.get("__index_level_0__"))
        for r in pq.read_table(src / "meta/tasks.parquet").to_pylist()
    }
else:
    tasks = {}
    for line in (src / "meta/tasks.jsonl").read_text().splitlines():
        t = json.loads(line)
        tasks[t["task_index"]] = t["task"]

# The source's images: (file, ordinal) of each episode, by counting.
cameras = {}
lengths = {e: len(r) for e, r in episodes.items()}
for key, f in info["features"].items():
    if f["dtype"] != "video":
        continue
    where = {}
    if v3:
        used = {}
        meta = []
        for p in numbered(src.glob("meta/episodes/*/*.parquet")):
            meta += pq.read_table(p).to_pylist()
        for m in sorted(meta, key=lambda m: m["episode_index"]):
            name = (
                src
                / f"videos/{key}/chunk-{m[f'videos/{key}/chunk_index']:03d}/file-{m[f'videos/{key}/file_index']:03d}.mp4"
            )
            where[m["episode_index"]] = (name, used.get(name, 0))
            used[name] = used.get(name, 0) + lengths[m["episode_index"]]
    else:
        for e in episodes:
            found = list(src.glob(f"videos/*/{key}/episode_{e:06d}.mp4"))
            if found:
                where[e] = (found[0], 0)
    if where:
        cameras[key] = where


def frames(path):
    with av.open(str(path)) as c:
        return [f.to_ndarray(format="rgb24") for f in c.decode(video=0)]


ds = LeRobotDataset("x/y", root=out)
assert len(ds) == len(rows), (len(ds), len(rows))
decoded = {}
at = 0
checked = pixels = 0
worst = 0.0
for e in sorted(episodes):
    n = lengths[e]
    for k in sorted({0, 1, n // 3, n // 2, n - 2, n - 1}):
        item = ds[at + k]
        r = episodes[e][k]
        assert (
            item["episode_index"].item() == e
            and item["frame_index"].item() == k
            and item["index"].item() == at + k
        )
        assert item["timestamp"].item() == np.float32(k / fps), (item["timestamp"], k)
        assert item["task"] == tasks[r["task_index"]], (item["task"], r["task_index"])
        for key, value in r.items():
            if key in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
                continue
            got = item[key].numpy()
            assert np.array_equal(got, np.asarray(value, dtype=got.dtype)), (e, k, key)
            # Items are float32 whatever is stored; the column is not.
            declared = ds.hf_dataset.features[key]
            assert getattr(declared, "feature", declared).dtype == info["features"][key]["dtype"], (
                key,
                declared,
            )
        for key, where in cameras.items():
            path, first = where[e]
            if path not in decoded:
                decoded = {p: v for p, v in decoded.items() if len(decoded) < 3}
                decoded[path] = frames(path)
            want = decoded[path][first + k].transpose(2, 0, 1).astype(np.float32) / 255
            d = float(np.abs(item[key].numpy() - want).max())
            # The neighbours must be further away than the image itself, or the test would not see a shift of one.
            worst = max(worst, d)
            assert d <= 2.5 / 255, (key, e, k, d)
            pixels += 1
        checked += 1
    at += n
if not cameras:
    raise SystemExit("no camera was compared")
for key in ds.meta.stats:
    s = ds.meta.stats[key]
    assert set(s) >= {"min", "max", "mean", "std", "count", "q01", "q99"}, (key, list(s))
print(
    f"LeRobot agrees: {checked} items, {pixels} images, largest pixel difference {worst * 255:.2f} levels, cameras {sorted(cameras)}"
)
