"""Writes LeRobot datasets with every kind of column, and what a reader must find in them.

usage: make_types.py DIR

DIR/rec is recorded by lerobot itself (a row group an episode, snappy, dictionary pages); DIR/big holds the same rows in one
row group, in another compression and other encodings. DIR/want.json names each column's type, shape and bytes.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lerobot.datasets.lerobot_dataset import LeRobotDataset

root = Path(sys.argv[1])
rng = np.random.default_rng(7)
lengths = [5, 2, 12, 7]
numeric = {
    "f16": ("float16", (1,)), "f32": ("float32", (1,)), "f64": ("float64", (1,)), "b": ("bool", (1,)),
    "i8": ("int8", (1,)), "i16": ("int16", (1,)), "i32": ("int32", (1,)), "i64": ("int64", (1,)),
    "u8": ("uint8", (1,)), "u16": ("uint16", (1,)),
    "v16": ("float16", (3,)), "v32": ("float32", (7,)), "v64": ("float64", (2,)), "vb": ("bool", (4,)), "vi16": ("int16", (5,)), "vu8": ("uint8", (6,)),
    "m2": ("float32", (2, 3)), "m3": ("float64", (2, 3, 4)), "m4": ("int32", (1, 2, 3, 2)), "m5": ("float32", (2, 1, 2, 2, 3)),
}


def value(dtype, shape):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        i = np.iinfo(dtype)
        return rng.integers(i.min, i.max, shape, dtype=dtype, endpoint=True)
    return rng.normal(size=shape).astype(dtype)


features = {k: {"dtype": d, "shape": s, "names": None} for k, (d, s) in numeric.items()}
features["say"] = {"dtype": "string", "shape": (1,), "names": None}
features["rgb"] = {"dtype": "image", "shape": (12, 16, 3), "names": ["height", "width", "channels"]}
features["depth"] = {"dtype": "image", "shape": (12, 16, 1), "names": ["height", "width", "channels"], "info": {"is_depth_map": True}}
rec = root / "rec"
ds = LeRobotDataset.create("t/t", fps=10, features=features, root=rec, use_videos=False)
rows = {k: [] for k in numeric} | {"say": []}
for e, n in enumerate(lengths):
    for k in range(n):
        frame = {key: value(d, s) for key, (d, s) in numeric.items()}
        for key in numeric:
            rows[key].append(frame[key])
        frame["say"] = ["", "grüße", "a\"b\n", "x" * 300][(e + k) % 4]
        rows["say"].append(frame["say"])
        frame["rgb"] = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        frame["depth"] = rng.integers(0, 65536, (12, 16, 1), dtype=np.uint16)
        frame["task"] = f"task {(e + k // 3) % 3}"
        ds.add_frame(frame)
    ds.save_episode()
ds.finalize()

# Language columns are added afterwards, as lerobot's annotation does.
(path,) = (rec / "data").glob("*/*.parquet")
groups = [pq.ParquetFile(path).read_row_group(i) for i in range(len(lengths))]
tool = '{"type": "function", "function": {"name": "say", "arguments": {"text": "hi \\u00fc", "n": [1, 2.5, null]}}}'
persistent, events = [], []
for e, n in enumerate(lengths):
    p = [
        {"role": "assistant", "content": f"plan {e}", "style": "plan", "timestamp": 0.1, "camera": None, "tool_calls": None},
        {"role": "user", "content": None, "style": None, "timestamp": np.float32(1 / 3).item(), "camera": None, "tool_calls": [tool]},
    ][: e % 3]
    for k in range(n):
        persistent.append(p)
        events.append([{"role": "user", "content": "wo?", "style": "vqa", "camera": "rgb", "tool_calls": [] if k % 2 else [tool, tool]}] * (k % 3))
info = json.loads((rec / "meta/info.json").read_text())
info["features"].update({k: {"dtype": "language", "shape": [1], "names": None} for k in ("language_persistent", "language_events")})
(rec / "meta/info.json").write_text(json.dumps(info))
table = pa.concat_tables(groups)
call = pa.list_(pa.string())  # pyarrow cannot build its own JSON type from Python values
persistent_type = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("style", pa.string()), ("timestamp", pa.float32()), ("camera", pa.string()), ("tool_calls", call)]))
events_type = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("style", pa.string()), ("camera", pa.string()), ("tool_calls", call)]))
table = table.append_column("language_persistent", pa.array(persistent, persistent_type))
table = table.append_column("language_events", pa.array(events, events_type))
table = table.replace_schema_metadata(None)
with pq.ParquetWriter(path, table.schema, compression="snappy", use_dictionary=True) as w:
    at = 0
    for n in lengths:
        w.write_table(table.slice(at, n))
        at += n

want = {"lengths": lengths, "numeric": {}, "say": rows["say"]}
for key, (d, s) in numeric.items():
    a = np.stack(rows[key]).astype(d)
    want["numeric"][key] = {"dtype": d, "shape": list(s), "hex": a.tobytes().hex()}
for key in ("rgb", "depth"):
    want[key] = [v["bytes"].hex() for v in table[key].to_pylist()]
ds = LeRobotDataset("t/t", root=rec)
items = [ds[i] for i in range(len(ds))]
want["task"] = [i["task"] for i in items]
want["language_persistent"] = [i["language_persistent"] for i in items]
want["language_events"] = [i["language_events"] for i in items]
(root / "want.json").write_text(json.dumps(want))

kinds = {
    "big": dict(compression="zstd", use_dictionary=False, data_page_version="2.0"),
    "gzip": dict(compression="gzip", use_dictionary=True, data_page_version="2.0", data_page_size=64, write_page_checksum=True),
    "none": dict(compression="none", use_dictionary=False, data_page_size=200, write_page_checksum=True),
    "lz4": dict(compression="lz4", use_dictionary=["say", "b"]),
    "delta": dict(compression="snappy", use_dictionary=False, column_encoding={
        "i64": "DELTA_BINARY_PACKED", "i32": "DELTA_BINARY_PACKED", "index": "DELTA_BINARY_PACKED", "say": "DELTA_BYTE_ARRAY", "rgb.bytes": "DELTA_LENGTH_BYTE_ARRAY",
        "f32": "BYTE_STREAM_SPLIT", "f64": "BYTE_STREAM_SPLIT", "f16": "BYTE_STREAM_SPLIT", "v32.list.element": "BYTE_STREAM_SPLIT", "b": "RLE"}),
}
for name, opts in kinds.items():
    shutil.copytree(rec, root / name)
    (path,) = (root / name / "data").glob("*/*.parquet")
    pq.write_table(table, path, **opts)
