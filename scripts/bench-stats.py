"""Statistics at opening: Loader(stats="compute") beside h5py and NumPy over the same columns. Seconds, and CPU seconds, of fresh processes in turn.

    PYTHONPATH=python .venv/bin/python scripts/bench-stats.py [FOLDER] [--repeats 3]
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

DEMOS, ROWS = 200, 5000
COLUMNS = {"actions": 14, "obs/state": 28}


def write(path):
    """A robomimic file of a million rows, 168 MB of float32."""
    r = np.random.default_rng(0)
    with h5py.File(path, "w") as f:
        f.create_group("data").attrs.update(total=DEMOS * ROWS, env_args="{}")
        for i in range(DEMOS):
            for key, width in COLUMNS.items():
                f[f"data/demo_{i}/{key}"] = r.standard_normal((ROWS, width), np.float32)
            f[f"data/demo_{i}"].attrs["num_samples"] = ROWS


def engine(path, stats):
    import robocache

    logging.disable(logging.WARNING)
    start = time.perf_counter(), time.process_time()
    robocache.Loader(path, rows_hz=50, normalize="mean_std" if stats else None, stats=stats).close()
    return start


def arrays(path, quantiles):
    start = time.perf_counter(), time.process_time()
    with h5py.File(path) as f:
        for key in COLUMNS:
            a = np.concatenate([f[f"data/demo_{i}/{key}"][()] for i in range(DEMOS)]).astype(np.float64)
            a.mean(0), a.std(0), a.min(0), a.max(0)
            if quantiles:
                np.quantile(a, [0.01, 0.1, 0.5, 0.9, 0.99], axis=0)
    return start


CASES = {
    "Loader, opening alone": lambda p: engine(p, None),
    'Loader, stats="compute"': lambda p: engine(p, "compute"),
    "NumPy, without quantiles": lambda p: arrays(p, False),
    "NumPy, with the five quantiles": lambda p: arrays(p, True),
}

if __name__ == "__main__":
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("folder", nargs="?", default=tempfile.gettempdir())
    args.add_argument("--repeats", type=int, default=3)
    args.add_argument("--case", help=argparse.SUPPRESS)
    a = args.parse_args()
    path = os.path.join(a.folder, "robocache-bench-stats.hdf5")
    if a.case:
        wall, cpu = CASES[a.case](path)
        print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
        sys.exit()
    write(path)
    for _ in range(a.repeats):
        for name in CASES:
            out = subprocess.run([sys.executable, __file__, a.folder, "--case", name], stdout=subprocess.PIPE, text=True, check=True).stdout
            print(name, "{:.2f} s, {:.2f} CPU s".format(*json.loads(out)), flush=True)
    os.remove(path)
