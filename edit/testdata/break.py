"""Copies a LeRobot v3.0 dataset and breaks each copy in one way, which is its name: break.py SET DST."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

root = Path()


def rewrite(name, fn):
    path = next(root.glob(name))
    t = pq.read_table(path)
    t = fn(t)
    pq.write_table(t, path)


def column(t, name, values):
    i = t.schema.get_field_index(name)
    return t.set_column(i, t.schema.field(i), pa.array(values, t.schema.field(i).type))


def data(name, fn):
    rewrite("data/*/*.parquet", lambda t: column(t, name, fn(np.array(t[name].to_pylist()))))


def as_json(name, fn):
    path = root / name
    v = json.loads(path.read_text())
    fn(v)
    path.write_text(json.dumps(v))


def swapped(t):  # the first and second episode change places
    e = np.array(t["episode_index"])
    return t.take(
        np.concatenate([np.flatnonzero(e == 1), np.flatnonzero(e == 0), np.flatnonzero(e > 1)])
    )


def nan(v):
    v[10, 0] = np.nan
    return v.tolist()


def shorter():
    path = sorted(root.glob("videos/*/*/*.mp4"))[0]
    subprocess.run(
        [
            "ffmpeg",
            "-v",
            "error",
            "-y",
            "-i",
            path,
            "-c",
            "copy",
            "-frames:v",
            "40",
            root / "x.mp4",
        ],
        check=True,
    )
    (root / "x.mp4").rename(path)


WAYS = {
    "totals": lambda: as_json(
        "meta/info.json",
        lambda v: v.update(total_frames=9, total_episodes=v["total_episodes"], total_tasks=7),
    ),
    "splits": lambda: as_json("meta/info.json", lambda v: v.update(splits={"train": "0:900"})),
    "phantom feature": lambda: as_json(
        "meta/info.json",
        lambda v: v["features"].update(ghost={"dtype": "float32", "shape": [3], "names": None}),
    ),
    "template": lambda: as_json(
        "meta/info.json", lambda v: v.update(data_path="data/{file_index}.parquet")
    ),
    "statistics": lambda: as_json(
        "meta/stats.json", lambda v: v["action"].update(mean=[9.0] * len(v["action"]["mean"]))
    ),
    "no statistics": lambda: (root / "meta/stats.json").unlink(),
    "tasks": lambda: rewrite(
        "meta/tasks.parquet",
        lambda t: pa.concat_tables([t, column(t.slice(0, 1), "task_index", [5])]),
    ),
    "task of a row": lambda: data("task_index", lambda v: np.where(np.arange(len(v)) == 7, 9, v)),
    "index": lambda: data("index", lambda v: v + 5),
    "frame index": lambda: data("frame_index", lambda v: v + 1),
    "drift": lambda: data("timestamp", lambda v: v * 1.01),
    "order": lambda: rewrite("data/*/*.parquet", swapped),
    "length": lambda: rewrite(
        "meta/episodes/*/*.parquet",
        lambda t: column(t, "length", [n + 3 for n in t["length"].to_pylist()]),
    ),
    "file number": lambda: rewrite(
        "meta/episodes/*/*.parquet",
        lambda t: column(t, "data/file_index", [-1, *t["data/file_index"].to_pylist()[1:]]),
    ),
    "last row": lambda: rewrite(
        "meta/episodes/*/*.parquet",
        lambda t: column(t, "dataset_to_index", [*t["dataset_to_index"].to_pylist()[:-1], 1 << 50]),
    ),
    "NaN": lambda: data("action", nan),
    "lost frames": shorter,
    "lost file": lambda: sorted(root.glob("videos/*/*/*.mp4"))[0].unlink(),
}
for what, do in WAYS.items():
    root = Path(sys.argv[2]) / what
    shutil.copytree(sys.argv[1], root)
    do()
