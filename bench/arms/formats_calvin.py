"""CALVIN frames by numpy: milliseconds a frame, all arrays read. usage: formats_calvin.py FOLDER [SECONDS]

The other arm is BenchmarkFrame of format/calvin, with ROBOCACHE_CALVIN=FOLDER's parent.
"""
import glob
import json
import sys
import time

import numpy as np


def main():
    files = sorted(glob.glob(f"{sys.argv[1]}/episode_*.npz"))
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    total = 0
    n = 0
    cpu, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < seconds:
        with np.load(files[n % len(files)], allow_pickle=False) as z:
            total += sum(z[k].nbytes for k in z.files)
        n += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"arm": "numpy " + np.__version__, "frames": n, "ms_per_frame": wall / n * 1e3, "cpu_ms_per_frame": cpu / n * 1e3, "bytes_per_frame": total // n}))


main()
