"""Makes copies of a clean v3.0 set, each with one thing wrong: python alter.py CLEAN OUT. The folder's name says what is wrong."""
import json
import pathlib
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

clean, out = map(pathlib.Path, sys.argv[1:3])
DATA, EPISODES, TASKS = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"


def copy(name):
    to = out / name
    shutil.copytree(clean, to, ignore=shutil.ignore_patterns("oracle", "README.md", "LICENSE"))
    for p in to.rglob("*"):
        p.chmod(0o755 if p.is_dir() else 0o644)
    return to


def table(name, file, change):
    to = copy(name)
    t = pq.read_table(to / file)
    pq.write_table(change(t), to / file)


def column(name, key, change, file=DATA):
    def f(t):
        i = t.column_names.index(key)
        v = t.column(key).to_numpy().copy()
        v = change(v)
        return t.set_column(i, t.schema.field(i).with_type(pa.array(v).type), pa.array(v))

    table(name, file, f)


def info(name, change):
    to = copy(name)
    p = to / "meta/info.json"
    d = json.loads(p.read_text())
    change(d)
    p.write_text(json.dumps(d))


def put(v, i, x):
    v[i] = x
    return v


shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)
camera = "observation.images.cam_high"
copy("clean")
info("feature-dropped", lambda d: d["features"].__setitem__("observation.extra", {"dtype": "float32", "shape": [3], "names": None}))
info("total-differs", lambda d: d.__setitem__("total_frames", d["total_frames"] + 1))
info("codec-lies", lambda d: d["features"][camera].__setitem__("info", {"video.codec": "av1"}))
info("size-lies", lambda d: d["features"][camera].__setitem__("shape", [480, 640, 3]))
info("fps-lies", lambda d: d.__setitem__("fps", 15))
table("undeclared-column", DATA, lambda t: t.append_column("mystery", pa.array(np.arange(len(t)))))
two = lambda t, order: pa.table({"task_index": pa.array([[0, 1][i] for i in order]), "task": pa.array([[t.column("task")[0].as_py(), "another"][i] for i in order])})
table("tasks-index", TASKS, lambda t: two(t, [0, 1]))
table("tasks-unsorted", TASKS, lambda t: two(t, [1, 0]).replace_schema_metadata(t.schema.metadata))
table("episodes-unsorted", EPISODES, lambda t: t.take([1, 0, 2, 3, 4]))
column("episodes-not-from-0", "episode_index", lambda v: v + 1, EPISODES)
table("index-order", DATA, lambda t: t.take([1, 0] + list(range(2, len(t)))))
column("index-order-offset", "index", lambda v: v + 100)
column("frame-index", "frame_index", lambda v: put(v, 5, 77))
column("task-index", "task_index", lambda v: put(v, 5, 9))
column("timestamp-offset", "timestamp", lambda v: (v + np.float32(1 / 30)).astype(np.float32))
column("timestamp-not-finite", "timestamp", lambda v: put(v, 9, np.nan))
column("timestamp-repeated", "timestamp", lambda v: put(v, 9, v[8]))
column("timestamp-order", "timestamp", lambda v: put(v, 9, v[7]))
column("timestamp-gap", "timestamp", lambda v: np.where(np.arange(len(v)) < 9, v, np.where(np.arange(len(v)) < 221, v + np.float32(0.2), v)).astype(np.float32))
column("orphan-rows", "episode_index", lambda v: np.where(v == 4, 44, v))
(lambda to: pq.write_table(pq.read_table(to / DATA).slice(0, 1300), to / DATA))(copy("rows-missing"))
column("episode-length", "length", lambda v: put(v, 4, v[4] - 1), EPISODES)


def nan(t):
    v = np.stack(t.column("action").to_numpy())
    v[3, 2] = np.nan
    return t.set_column(t.column_names.index("action"), "action", pa.array(list(v), type=t.schema.field("action").type))


table("not-finite", DATA, nan)
# As many pictures as rows, but an episode begins a picture later than they are counted: one lost before it, one extra.
column("boundary-jump", f"videos/{camera}/from_timestamp", lambda v: put(v, 2, v[2] + 1 / 30), EPISODES)
to = copy("stats-wrong")
s = json.loads((to / "meta/stats.json").read_text())
s["action"]["q01"][0] = s["action"]["mean"][0]
(to / "meta/stats.json").write_text(json.dumps(s))
to = copy("missing-file")
(to / f"videos/{camera}/chunk-000/file-000.mp4").unlink()
to = copy("unreadable-file")
(to / f"videos/{camera}/chunk-000/file-000.mp4").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
to = copy("unreadable-file-cut")
p = to / f"videos/{camera}/chunk-000/file-000.mp4"
p.write_bytes(p.read_bytes()[: p.stat().st_size // 2])
to = copy("frame-count")
# The other camera's first file has fewer pictures than this camera's rows.
shutil.copy(to / f"videos/{camera}_flip/chunk-000/file-000.mp4", to / f"videos/{camera}/chunk-000/file-000.mp4")
