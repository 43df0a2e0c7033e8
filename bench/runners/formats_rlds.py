"""Whole steps of an RLDS set, in order, batches of 64: every feature, frames decoded. tensorflow-datasets beside our Loader.

usage: formats_rlds.py SET [--copies 20] [--rounds 3] [--seconds 4] [--tfds .venv-tfds/bin/python]

SET is the folder of a version with one shard in split train (shared/data/bridge_rlds/bridge_dataset/1.0.0: four JPEG cameras of 64x64); it is laid out
--copies times as shards of a larger set first. The arms run in turn, a fresh process each, whole epochs after one that is not measured, two
threads each; a JSON line a run: steps/s and CPU seconds per 1,000 steps of the process. The check sums of numbers, texts and of the first
frames (which may differ by the last bits of the JPEG decoders) are compared between the arms.
"""
import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

CAMERAS = [f"observation.image_{i}" for i in range(4)]
NUMBERS = ["action", "observation.state", "language_embedding", "reward", "discount", "is_first", "is_last", "is_terminal"]
BATCH = 64


def lay_out(path, out, copies):
    """A set of `copies` shards, each the first shard of split train."""
    with open(os.path.join(path, "dataset_info.json")) as f:
        info = json.load(f)
    split = next(s for s in info["splits"] if s["name"] == "train")
    name = info["name"]
    root = os.path.join(out, name, info["version"])
    os.makedirs(root)
    shutil.copy(os.path.join(path, "features.json"), root)
    for i in range(copies):
        shutil.copy(os.path.join(path, f"{name}-train.tfrecord-00000-of-{len(split['shardLengths']):05d}"), os.path.join(root, f"{name}-train.tfrecord-{i:05d}-of-{copies:05d}"))
    split = dict(split, shardLengths=split["shardLengths"][:1] * copies, numBytes=str(int(split["numBytes"]) * copies))
    with open(os.path.join(root, "dataset_info.json"), "w") as f:
        json.dump(dict(info, splits=[split]), f)
    return root


def batches_tfds(root):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import tensorflow as tf
    import tensorflow_datasets as tfds

    b = tfds.builder_from_directory(root)
    ds = b.as_dataset(split="train", shuffle_files=False, read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False, add_tfds_id=False))
    ds = ds.flat_map(lambda e: e["steps"]).batch(BATCH).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    options.deterministic = True
    ds = ds.with_options(options)

    def epoch():
        for s in ds.as_numpy_iterator():
            flat = {"observation." + k: v for k, v in s.pop("observation").items()}
            flat.update(s)
            yield flat

    return epoch, {"tensorflow": tf.__version__, "tensorflow_datasets": tfds.__version__}


def batches_robocache(root):
    import robocache

    loader = robocache.Loader(root, batch_size=BATCH, shuffle=False, threads=2, options={"split": "train"}, keys=CAMERAS + NUMBERS + ["language_instruction"])
    return lambda: iter(loader), {"robocache": robocache.__version__}


def as_array(v):
    return v.numpy() if hasattr(v, "numpy") else np.asarray(v)


def hwc(v):
    v = as_array(v)
    return v.transpose(0, 2, 3, 1) if v.shape[1] == 3 and v.shape[-1] != 3 else v


def arm(name, root, seconds):
    t = time.perf_counter()
    epoch, versions = (batches_tfds if name == "tfds" else batches_robocache)(root)
    opened = time.perf_counter() - t
    digest, steps, imgs = hashlib.sha256(), 0, None
    for b in epoch():  # the epoch that is not measured: what came is held against the other arm
        n = len(b["language_instruction"])
        steps += n
        for k in NUMBERS:
            digest.update(np.ascontiguousarray(as_array(b[k]).reshape(n, -1)).astype("<f4").tobytes())
        for text in b["language_instruction"]:
            digest.update(text if isinstance(text, bytes) else text.encode())
        if imgs is None:
            imgs = [hwc(b[k]).astype(np.int64) for k in CAMERAS]
    per_epoch, steps, epochs = steps, 0, 0
    cpu, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < seconds or epochs == 0:
        for b in epoch():
            steps += len(b["language_instruction"])
        epochs += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert steps == per_epoch * epochs, (steps, per_epoch, epochs)
    print(json.dumps({"arm": name, **versions, "opened_s": round(opened, 3), "steps": steps, "steps_per_s": steps / wall, "cpu_s_per_1000": cpu / steps * 1e3, "numbers_and_texts_sha256": digest.hexdigest(),
                      "picture_means": [float(p.mean()) for p in imgs], "picture_shapes": [list(p.shape) for p in imgs]}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("set")
    p.add_argument("--copies", type=int, default=20)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--tfds", default=".venv-tfds/bin/python")
    p.add_argument("--arm", default="")
    a = p.parse_args()
    if a.arm:
        return arm(a.arm, a.set, a.seconds)
    with tempfile.TemporaryDirectory() as tmp:
        root = lay_out(a.set, tmp, a.copies)
        runs = {"tfds": [], "robocache": []}
        for _ in range(a.rounds):
            for name, python in (("tfds", a.tfds), ("robocache", sys.executable)):
                out = subprocess.run([python, os.path.abspath(__file__), root, "--arm", name, "--seconds", str(a.seconds)], stdout=subprocess.PIPE, text=True, check=True).stdout
                runs[name].append(json.loads(out.strip().splitlines()[-1]))
                print(json.dumps(runs[name][-1]), flush=True)
    theirs, ours = runs["tfds"], runs["robocache"]
    assert len({r["numbers_and_texts_sha256"] for r in theirs + ours}) == 1, "the arms do not give the same values"
    for x, y in zip(theirs[0]["picture_means"], ours[0]["picture_means"]):
        assert abs(x - y) < 1, "the arms do not give the same frames"
    ratio = [t["cpu_s_per_1000"] / o["cpu_s_per_1000"] for t, o in zip(theirs, ours)]
    print(json.dumps({"bar": ">= 1.3x tensorflow-datasets in CPU seconds", "ratio_median": statistics.median(ratio), "ratio_min": min(ratio), "ratio_max": max(ratio), "pass": statistics.median(ratio) >= 1.3,
                      "ours_cpu_s_per_1000": statistics.median(o["cpu_s_per_1000"] for o in ours), "theirs_cpu_s_per_1000": statistics.median(t["cpu_s_per_1000"] for t in theirs)}))


main()
