"""The measuring process of `robocache-bench ops` detects wrong results and computes floors.

It must detect a wrong bit of ours and a wrong value of a peer, and count the bytes that the
operation must transfer.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import robocache

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "runners"))
from robocache_bench import ops, ops_ours, ops_peers  # noqa: E402, F401

FUSE = {
    "kind": "fuse",
    "mode": "linear",
    "dtype": "float32",
    "out": "float32",
    "B": 3,
    "T": 10,
    "streams": [{"S": 20, "D": 4}],
}
VOXELS = {
    "kind": "voxelize",
    "mode": "count",
    "layout": "dense",
    "cloud": "uniform",
    "N": 500,
    "grid": [8, 4, 16],
    "min": [0, 0, 0],
    "size": [1 / 8, 1 / 4, 1 / 16],
}
WORKS = {
    "plain": FUSE,
    "ragged": {**FUSE, "ragged": True},
    "bf16": {**FUSE, "dtype": "bfloat16", "out": "bfloat16"},
    "slerp": {**FUSE, "mode": "slerp"},
    "norm": {
        **FUSE,
        "streams": [{"S": 20, "D": 4}, {"S": 9, "D": 3}],
        "norm": True,
        "dtype": "bfloat16",
        "out": "float16",
    },
    "count": VOXELS,
    "mean": {**VOXELS, "mode": "mean", "F": 2},
    "sparse": {**VOXELS, "mode": "mean", "F": 2, "layout": "sparse"},
    "occupancy": {**VOXELS, "mode": "occupancy"},
}
JOB = {
    "device": "cpu",
    "rounds": 1,
    "seconds": 0.001,
    "clock": "wall",
    "threads": 1,
    "runners": [],
    "without": ["torch.compile", "memcpy"],
    "cache": 1 << 20,
}


def arms(work: dict) -> dict:
    out = ops.measure({"name": "x", "work": work}, JOB, ops_ours.truth_of)
    return {a["name"]: a for a in out["arms"]}


@pytest.mark.parametrize("name", WORKS)
def test_right_and_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(
        not a["failed"] and a["us"] for a in arms(WORKS[name]).values() if a["name"] != "open3d"
    )
    of = (
        "voxelize"
        if name in ("count", "mean", "sparse", "occupancy")
        else "resample"
        if len(WORKS[name]["streams"]) == 1
        else "fuse"
    )
    right = getattr(robocache, of)

    def spoilt(*args: object, backend: object = None, **how: object) -> object:
        got = right(*args, backend=backend, **how)
        if backend != "reference":
            x = got.counts if hasattr(got, "counts") else got
            x.view(torch.uint8).view(-1)[
                len(x) // 2 * x.element_size() + (2 if name == "slerp" else 0)
            ] ^= 1 if name != "slerp" else 64
        return got

    monkeypatch.setattr(robocache, of, spoilt)
    monkeypatch.setattr(ops_ours, "reuse_prepared", lambda call, held: call)
    found = arms(WORKS[name])
    assert "wrong: element" in found["robocache"]["failed"] and not found["robocache"]["us"]
    assert all(not a["failed"] for n, a in found.items() if n not in ("robocache", "open3d"))


def test_a_wrong_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "interp", lambda at, t, v: v[: len(at)])
    found = arms(FUSE)
    assert (
        "wrong: element" in found["np.interp"]["failed"]
        and not found["numpy"]["failed"]
        and not found["robocache"]["failed"]
    )


def test_bytes() -> None:
    """The counted bytes and floors equal values worked out by hand.

    The cases of resampling are a target between two samples, a hit, and a target before the data.
    The floors are in µs at 4,257 GB/s.
    """
    assert (
        ops.rows_read(
            np.array([0, 10, 20, 30, 40, 50]),
            np.array([0, 2, 4, 6]),
            np.array([[5], [30], [39]]),
            "linear",
        )
        == 2 + 1 + 1
    )
    big = {**FUSE, "B": 256, "T": 50, "streams": [{"S": 100, "D": 32}]}
    for work, want in (
        (big, 1.2),
        ({**big, "dtype": "bfloat16", "out": "bfloat16"}, 0.65),
        ({**big, "T": 250, "streams": [{"S": 500, "D": 7}]}, 1.6),
    ):
        assert (
            abs(ops.floor_bytes(work, ops.make_inputs(work, "cpu")) / 4257e3 - want)
            < 0.04 * want + 0.05
        )
    x = ops.make_inputs(WORKS["sparse"], "cpu")
    cells = len(ops.result_arrays(ops_ours.truth_of(WORKS["sparse"], x), WORKS["sparse"])[0])
    assert ops.floor_bytes(WORKS["sparse"], x) == 500 * 20 + cells * 28


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row prints one line. A row that cannot be measured fails, and the rest are measured."""
    rows = [{"name": "bad", "work": {**FUSE, "dtype": "int3"}}, {"name": "good", "work": FUSE}]
    monkeypatch.setattr(sys, "argv", ["ops", json.dumps({**JOB, "rows": rows})])
    read, write = os.pipe()
    monkeypatch.setattr(os, "dup", lambda _: write)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with contextlib.redirect_stdout(io.StringIO()):
        ops.main(ops_ours.truth_of)
    with os.fdopen(read) as f:
        bad, good = (json.loads(f.readline()) for _ in range(2))
    assert bad["arms"][0]["failed"] and good["row"] == "good" and good["versions"]["robocache"]
