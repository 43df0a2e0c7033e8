"""CALVIN frames: every array of a frame read, by robocache and by numpy, and the floor: the files' bytes alone.

    formats_calvin.py --make DIR            # writes 60 frames with CALVIN's arrays into DIR/training, as numpy.savez stores them
    formats_calvin.py DIR [--rounds 7]      # in the repository: builds format/calvin's benchmarks and takes turns with numpy

Each round runs numpy (np.load of a frame, all arrays), the floor (open, read, close), ours one frame at a time and ours in batches of 32 on
all cores, in processes of their own; the outcome is a line of JSON: the medians of CPU and wall milliseconds a frame, and the ratios."""
import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

p = argparse.ArgumentParser()
p.add_argument("folder", nargs="?", default="")
p.add_argument("--make", default="")
p.add_argument("--rounds", type=int, default=7)
p.add_argument("--numpy", action="store_true", help="the numpy arm alone")
a = p.parse_args()

SHAPES = {
    "actions": ((7,), "f8"), "rel_actions": ((7,), "f8"), "robot_obs": ((15,), "f8"), "scene_obs": ((24,), "f8"),
    "rgb_static": ((200, 200, 3), "u1"), "rgb_gripper": ((84, 84, 3), "u1"), "depth_static": ((200, 200), "f4"), "depth_gripper": ((84, 84), "f4"),
    "rgb_tactile": ((160, 120, 6), "u1"), "depth_tactile": ((160, 120, 2), "f4"),
}  # fmt: skip


def make(folder):
    os.makedirs(f"{folder}/training", exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(60):
        arrays = {k: rng.integers(0, 256, s).astype(t) if t == "u1" else rng.standard_normal(s).astype(t) for k, (s, t) in SHAPES.items()}
        np.savez(f"{folder}/training/episode_{i:07d}.npz", **arrays)
    np.save(f"{folder}/training/ep_start_end_ids.npy", np.array([[0, 29], [30, 59]]))


def by_numpy():
    files = sorted(glob.glob(f"{a.folder}/training/episode_*.npz"))
    n, total = 0, 0
    cpu, wall = time.process_time(), time.perf_counter()
    while n < 150:
        with np.load(files[n % len(files)], allow_pickle=False) as z:
            total += sum(z[k].nbytes for k in z.files)
        n += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"cpu": cpu / n * 1e3, "wall": wall / n * 1e3, "bytes": total // n}))


def by_go(binary, which):
    out = subprocess.run([binary, "-test.run", "^$", "-test.bench", which, "-test.benchtime", "1000x" if "batch" not in which else "40x"], env={**os.environ, "ROBOCACHE_CALVIN": os.path.abspath(a.folder)}, capture_output=True, text=True, check=True).stdout
    return {"cpu": float(re.search(r"([\d.]+) cpu-ms/frame", out)[1]), "wall": float(re.search(r"([\d.]+) ms/frame", out)[1])}


def main():
    with tempfile.TemporaryDirectory() as tmp:
        binary = f"{tmp}/calvin.test"
        subprocess.run(["go", "test", "-c", "-o", binary, "./format/calvin"], check=True)
        arms = {
            "numpy": lambda: json.loads(subprocess.run([sys.executable, __file__, a.folder, "--numpy"], capture_output=True, text=True, check=True).stdout),
            "floor": lambda: by_go(binary, "Floor$"),
            "one": lambda: by_go(binary, "Frame/one$"),
            "batch": lambda: by_go(binary, "Frame/batch$"),
        }
        got = {k: [] for k in arms}
        for _ in range(a.rounds):
            for k, f in arms.items():
                got[k].append(f())
    out = {k: {t: round(statistics.median(r[t] for r in v), 4) for t in ("cpu", "wall")} for k, v in got.items()}
    for k in ("floor", "one", "batch"):
        for t in ("cpu", "wall"):
            out[f"numpy/{k} {t}"] = round(statistics.median(n[t] / r[t] for n, r in zip(got["numpy"], got[k])), 1)
    out["bytes"] = got["numpy"][0]["bytes"]
    print(json.dumps(out))


if a.make:
    make(a.make)
elif a.numpy:
    by_numpy()
else:
    main()
