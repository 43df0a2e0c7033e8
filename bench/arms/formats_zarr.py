"""Zarr chunks by zarr-python + numcodecs: decoded MB a CPU second. usage: formats_zarr.py STORE ARRAY [SECONDS]

The other arm is BenchmarkChunks of format/zarr with ROBOCACHE_ZARR=STORE and ROBOCACHE_ZARR_ARRAY=ARRAY.
"""
import json
import sys
import time
import warnings

warnings.simplefilter("ignore")
import numpy as np
import zarr
from numcodecs import blosc

blosc.set_nthreads(1)


def main():
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    a = zarr.open_group(sys.argv[1], mode="r")[sys.argv[2]]
    n, step, rows = 0, a.chunks[0], a.shape[0]
    cpu, wall, i = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - wall < seconds:
        n += np.asarray(a[i : i + step]).nbytes
        i = i + step if i + step < rows else 0
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"arm": "zarr " + zarr.__version__, "array": sys.argv[2], "MB_per_cpu_s": n / cpu / 1e6, "MB_per_s": n / wall / 1e6}))


main()
