"""Writes altered copies of the parquet files of a small LeRobot v3.0 dataset.

usage: alter.py SRC DST      each case is DST/<case>/<path below the dataset's root>: the files that differ
"""
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

SRC, DST = sys.argv[1:]
DATA, EPISODES, TASKS = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"
data, episodes, tasks = (pq.read_table(os.path.join(SRC, p)) for p in (DATA, EPISODES, TASKS))
episodes = episodes.select([c for c in episodes.column_names if not c.startswith("stats/")])
LENGTH = 19


def save(case, path, table):
    to = os.path.join(DST, case, path)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    with pq.ParquetWriter(to, table.schema, compression="snappy") as w:
        if table.num_rows == 0:
            return
        step = LENGTH if path == DATA else table.num_rows
        for at in range(0, table.num_rows, step):
            w.write_table(table.slice(at, step))


def column(table, name, change, typ=None):
    values = table[name].to_pylist()
    change(values)
    i = table.schema.get_field_index(name)
    return table.set_column(i, pa.field(name, typ or table.schema.field(name).type), pa.array(values, typ or table.schema.field(name).type))


def at(i, v):
    def change(values):
        values[i] = v
    return change


def row(i, **kw):
    """A data case that sets one value of one column."""
    (name, v), = kw.items()
    return column(data, name, at(i, v))


inf, nan = float("inf"), float("nan")
save("timestamp-nan", DATA, row(22, timestamp=nan))
save("timestamp-inf", DATA, row(22, timestamp=inf))
save("timestamp-huge", DATA, row(22, timestamp=3e38))
save("timestamp-unsorted", DATA, row(22, timestamp=0.01))
save("timestamp-null", DATA, row(22, timestamp=None))
save("timestamps-zero", DATA, column(data, "timestamp", lambda v: v.__setitem__(slice(None), [0.0] * len(v))))
save("list-null", DATA, column(data, "action", at(22, None), pa.list_(pa.float32())))
save("element-null", DATA, column(data, "action", lambda v: v[22].__setitem__(3, None), pa.list_(pa.float32())))
save("list-short", DATA, column(data, "action", lambda v: v[22].pop(), pa.list_(pa.float32())))
save("list-long", DATA, column(data, "action", lambda v: v[22].append(1.0), pa.list_(pa.float32())))
save("value-nan", DATA, column(data, "action", lambda v: v[22].__setitem__(3, nan)))
save("scalar-for-list", DATA, data.set_column(1, "action", pa.array([1.0] * len(data), pa.float32())))
save("text-for-number", DATA, data.set_column(data.schema.get_field_index("frame_index"), "frame_index", pa.array(["x"] * len(data))))
save("list-for-scalar", DATA, data.set_column(data.schema.get_field_index("task_index"), "task_index", pa.array([[0]] * len(data), pa.list_(pa.int64()))))
save("task-out-of-range", DATA, row(22, task_index=7))
save("episode-index-wrong", DATA, row(22, episode_index=40))
save("index-wrong", DATA, row(22, index=1 << 60))
save("rows-none", DATA, data.slice(0, 0))
save("rows-fewer", DATA, data.slice(0, 1200))
save("rows-more", DATA, pa.concat_tables([data, data.slice(1235, 19)]))
save("rows-reversed", DATA, data.take(list(range(len(data) - 1, -1, -1))))
save("column-missing", DATA, data.drop_columns(["action"]))
save("nested", DATA, data.set_column(1, "action", pa.array([[[1.0]]] * len(data), pa.list_(pa.list_(pa.float32())))))


def ep(case, name, i, v, typ=None):
    save(case, EPISODES, column(episodes, name, at(i, v), typ))


ep("length-2e60", "length", 3, 1 << 60)
ep("length-negative", "length", 3, -5)
ep("length-null", "length", 3, None)
ep("length-lies", "length", 3, 25)
ep("to-index-2e62", "dataset_to_index", 3, 1 << 62)
ep("from-index-negative", "dataset_from_index", 3, -1)
ep("file-2e60", "data/file_index", 3, 1 << 60)
ep("file-odd", "data/file_index", 3, (1 << 53) + 1)  # no float64
ep("file-negative", "data/file_index", 3, -1)
ep("chunk-2e60", "data/chunk_index", 3, 1 << 60)
ep("video-file-2e60", "videos/observation.images.cam_high/file_index", 3, 1 << 60)
ep("video-file-null", "videos/observation.images.cam_high/file_index", 3, None)
ep("video-from-nan", "videos/observation.images.cam_high/from_timestamp", 3, nan)
ep("video-from-1e300", "videos/observation.images.cam_high/from_timestamp", 3, 1e300)
ep("episode-twice", "episode_index", 3, 4)
ep("episode-negative", "episode_index", 3, -1)
ep("episode-2e60", "episode_index", 65, 1 << 60)
save("episodes-none", EPISODES, episodes.slice(0, 0))
save("episodes-half", EPISODES, episodes.slice(0, 33))
save("episodes-reversed", EPISODES, episodes.take(list(range(len(episodes) - 1, -1, -1))))

# an episode without rows, between the second and the third
empty = episodes.slice(1, 1).to_pylist()[0]
empty.update({"length": 0, "dataset_from_index": 38, "dataset_to_index": 38})
vf, vt = (f"videos/observation.images.cam_high/{k}_timestamp" for k in ("from", "to"))
empty[vf] = empty[vt]
rows = episodes.to_pylist()
listed = rows[:2] + [empty] + rows[2:]
for i, r in enumerate(listed):
    r = dict(r, episode_index=i)
    listed[i] = r
save("length-0", EPISODES, pa.Table.from_pylist(listed, episodes.schema))
save("length-0", DATA, column(data, "episode_index", lambda v: v.__setitem__(slice(None), [e + (e > 1) for e in v])))

# the first episode is divided into one frame and the rest
first = rows[0]
one = dict(first, length=1, dataset_to_index=1)
one[vt] = first[vf] + 1 / 30
rest = dict(first, length=18, dataset_from_index=1)
rest[vf] = one[vt]
listed = [dict(r, episode_index=i) for i, r in enumerate([one, rest] + rows[1:])]
save("length-1", EPISODES, pa.Table.from_pylist(listed, episodes.schema))
t = column(data, "episode_index", lambda v: v.__setitem__(slice(1, None), [e + 1 for e in v[1:]]))
t = column(t, "frame_index", lambda v: v.__setitem__(slice(1, 19), [k - 1 for k in v[1:19]]))
save("length-1", DATA, t)

name = [c for c in tasks.column_names if c != "task_index"][0]
for case, text in (("task-nul", "a\0b"), ("task-1mb", "x" * (1 << 20))):
    save(case, TASKS, column(tasks, name, at(0, text)))
save("tasks-none", TASKS, tasks.slice(0, 0))
save("task-number-null", TASKS, column(tasks, "task_index", at(0, None)))
