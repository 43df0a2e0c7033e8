"""Zarr chunks, decoded MB a CPU second: ours, zarr-python with numcodecs, and numcodecs alone over the same files, in turns.

usage: formats_zarr.py [--test ZARR_TEST_BINARY] [--seconds 1] [--rounds 3] [STORE ARRAY]

Without a store it makes them from real data ($ROBOCACHE_TESTDATA): frames and float rows, blosc's lz4 and zstd with each shuffle.
Ours is BenchmarkChunks of format/zarr: go test -c -o ZARR_TEST_BINARY ./format/zarr
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import warnings

warnings.simplefilter("ignore")
import numpy as np
import zarr
from numcodecs import Blosc, blosc, get_codec

blosc.set_nthreads(1)


def make(out):
    """Stores of the sizes that policies train on: frames in chunks of 32, states in chunks of 4096 rows."""
    src = zarr.open_group(os.path.join(os.environ["ROBOCACHE_TESTDATA"], "diffusion_policy_zarr/replay_buffer.zarr"), mode="r")
    img, state = np.concatenate([np.asarray(src["data/img"])] * 6), np.concatenate([np.asarray(src["data/state"]) + i for i in range(400)])
    for name in ("lz4", "zstd"):
        for shuffle, word in ((Blosc.NOSHUFFLE, "none"), (Blosc.SHUFFLE, "byte"), (Blosc.BITSHUFFLE, "bit")):
            path = os.path.join(out, f"{name}_{word}.zarr")
            g = zarr.open_group(path, mode="w", zarr_format=2)
            for key, a, chunks in (("data/img", img, (32, 96, 96, 3)), ("data/state", state, (4096, 26)), ("data/state32", state.astype(np.float32), (4096, 26))):
                z = g.create_array(key, shape=a.shape, dtype=a.dtype, chunks=chunks, compressors=Blosc(cname=name, clevel=5, shuffle=shuffle))
                z[:] = a
                yield path, key


def whole(path, key, seconds):
    """zarr-python: what a training script calls."""
    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    a = zarr.open_group(path, mode="r")[key]
    n, step, rows, i = 0, a.chunks[0], a.shape[0], 0
    cpu, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < seconds:
        n += np.asarray(a[i : i + step]).nbytes
        i = i + step if i + step < rows else 0
    return n / (time.process_time() - cpu) / 1e6


def alone(path, key, seconds):
    """The floor of any reader in Python: open, read, numcodecs."""
    with open(os.path.join(path, key, ".zarray")) as f:
        meta = json.load(f)
    codec, suffix = get_codec(meta["compressor"]), ".0" * (len(meta["shape"]) - 1)
    count = max(-(-meta["shape"][0] // meta["chunks"][0]) - 1, 1)
    n, i = 0, 0
    cpu, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < seconds:
        with open(os.path.join(path, key, f"{i}{suffix}"), "rb") as f:
            n += len(codec.decode(f.read()))
        i = (i + 1) % count
    return n / (time.process_time() - cpu) / 1e6


def ours(binary, path, key, seconds):
    env = {**os.environ, "ROBOCACHE_ZARR": path, "ROBOCACHE_ZARR_ARRAY": key, "GOMAXPROCS": "1"}
    out = subprocess.run([binary, "-test.run", "^$", "-test.bench", "Chunks", "-test.benchtime", f"{seconds}s"], env=env, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"([\d.]+) MB/cpu-s", out).group(1))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--test")
    p.add_argument("--seconds", type=float, default=1.0)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("store", nargs="?")
    p.add_argument("array", nargs="?")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        for path, key in [(o.store, o.array)] if o.store else list(make(tmp)):
            got = {"zarr": [], "numcodecs": [], "ours": []}
            for _ in range(o.rounds):
                got["zarr"].append(whole(path, key, o.seconds))
                got["numcodecs"].append(alone(path, key, o.seconds))
                if o.test:
                    got["ours"].append(ours(o.test, path, key, o.seconds))
            mid = {k: statistics.median(v) for k, v in got.items() if v}
            line = {"store": os.path.basename(path), "array": key, **{k + "_MB_per_cpu_s": round(v) for k, v in mid.items()}}
            if o.test:
                line |= {"ours_to_zarr": round(mid["ours"] / mid["zarr"], 2), "ours_to_numcodecs": round(mid["ours"] / mid["numcodecs"], 2)}
            print(json.dumps(line), flush=True)


main()
