"""Writes one file for every codec and encoding of pyarrow 26.0.1.

The values are those in pyarrow_test.go. Usage: python make_pyarrow.py FOLDER
"""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

n = 200
i = np.arange(n)
table = pa.table(
    {
        "state": pa.array([[float(k), 1.0, -2.0] for k in i], pa.list_(pa.float32())),
        "fixed": pa.FixedSizeListArray.from_arrays(
            pa.array(np.repeat(i, 2).astype(np.float32) / 4), 2
        ),
        "f64": pa.array(i / 3),
        "f32": pa.array((i / 7).astype(np.float32)),
        "f16": pa.array((i / 8).astype(np.float16)),
        "i64": pa.array(i * i - 5),
        "i32": pa.array((i % 3).astype(np.int32)),
        "u8": pa.array((i % 251).astype(np.uint8)),
        "bool": pa.array(i % 3 == 0),
        "text": pa.array([f"text {k}" for k in i]),
        "large": pa.array([f"large {k // 5}" for k in i], pa.large_string()),
        "opt": pa.array([int(k) if k % 2 == 0 else None for k in i], pa.int64()),
        "image": pa.array(
            [{"bytes": bytes([k % 256]) * (k % 4), "path": None} for k in i],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        ),
    }
)
leaves = [
    "state.list.element",
    "fixed.list.element",
    "f64",
    "f32",
    "f16",
    "i64",
    "i32",
    "u8",
    "bool",
    "text",
    "large",
    "opt",
    "image.bytes",
    "image.path",
]


def write(name, **how):
    pq.write_table(
        table,
        f"{sys.argv[1]}/{name}.parquet",
        row_group_size=120,
        data_page_size=512,
        write_batch_size=32,
        store_schema=False,
        **how,
    )


for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
    for version in ("1.0", "2.0"):
        write(f"codec-{codec}-{version[0]}", compression=codec, data_page_version=version)
encodings = {
    "plain": {},
    "delta": {
        "i64": "DELTA_BINARY_PACKED",
        "i32": "DELTA_BINARY_PACKED",
        "u8": "DELTA_BINARY_PACKED",
        "opt": "DELTA_BINARY_PACKED",
        "text": "DELTA_BYTE_ARRAY",
        "large": "DELTA_LENGTH_BYTE_ARRAY",
        "image.bytes": "DELTA_LENGTH_BYTE_ARRAY",
        "bool": "RLE",
    },
    "split": {
        k: "BYTE_STREAM_SPLIT"
        for k in (
            "state.list.element",
            "fixed.list.element",
            "f64",
            "f32",
            "f16",
            "i64",
            "i32",
            "u8",
            "opt",
        )
    },
    "bytes": {
        "f16": "DELTA_BYTE_ARRAY",
        "text": "DELTA_LENGTH_BYTE_ARRAY",
        "large": "DELTA_BYTE_ARRAY",
    },
}
for name, chosen in encodings.items():
    write(
        f"encoding-{name}",
        compression="zstd",
        use_dictionary=False,
        column_encoding={k: chosen.get(k, "PLAIN") for k in leaves},
    )
    write(
        f"encoding-{name}-2",
        compression="brotli",
        data_page_version="2.0",
        use_dictionary=False,
        column_encoding={k: chosen.get(k, "PLAIN") for k in leaves},
    )
write(
    "wide",
    compression="snappy",
    use_compliant_nested_type=False,
    version="1.0",
    write_page_checksum=True,
)
