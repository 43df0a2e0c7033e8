"""robocache.Loader into torch tensors. With `resume`: one process of the check that a killed run goes on exactly.

disk: a folder; a disk cache in a new folder in it, removed at the end, so that the first epoch is cold. truth: an HDF5 file to compare windows with; there every
stream has windows."""
import contextlib, hashlib, json, os, signal, tempfile, time

import common

import numpy as np
import torch  # noqa: F401: what it takes to import is no opening

import robocache


def triple(batches):
    for b in batches:
        n = len(next(iter(b.values())))
        yield *(b[k].numpy() if k in b else np.zeros(n, np.int64) for k in ("index", "episode_index")), b


def resume(loader, r):
    """As bench.ResumeRun: a line a step with the hash of all that the batch holds; killed after so many steps."""
    step = 0
    if os.path.exists(r.state):
        with open(r.state) as f:
            saved = json.load(f)
        step = saved["step"]
        loader.load_state_dict(saved["state"])
    with open(r.log, "a") as log:
        while step < r.steps:
            for batch in loader:
                h = hashlib.sha256()
                for key, v in batch.items():
                    h.update(key.encode())
                    h.update(repr(v).encode() if isinstance(v, list) else memoryview(v.numpy()).cast("B"))
                log.write(f"{step} {h.hexdigest()}\n")
                log.flush()
                step += 1
                if step == r.kill:
                    with open(r.state, "w") as f:
                        json.dump(dict(step=step, state=loader.state_dict()), f)
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == r.steps:
                    break


def measure(a, disk):
    common.imported()
    t = time.perf_counter()
    hz = dict(rows_hz=float(a.rows_hz)) if a.rows_hz else {}
    ds = robocache.open(a.uri, **hz)
    opened = time.perf_counter() - t
    names = list(ds.features)
    cameras = [k for k in names if ds.features[k].kind == "video"]
    wanted = [] if a.video == "none" else cameras[: 1 if a.video == "one" else None]
    windowed = [k for k in names if not ds.features[k].default] if a.truth else [k for k in ("observation.state", "action") if k in names] + wanted
    options = dict(batch_size=a.batch_size, shuffle={"file": False}.get(a.shuffle, a.shuffle or "global"), seed=a.seed, keys=[k for k in names if k not in cameras] + wanted,
                   delta_timestamps=common.deltas(a, float(ds.fps), windowed), image_dtype="uint8", image_size=common.image_hw(a),
                   episodes=common.positions(a.episodes), split="all", drop_last=bool(a.drop_last), rank=a.rank or 0, world_size=a.world or 1, **hz)
    if a.duration_s:
        options["on_bad_episode"] = "skip"  # counted: skipped_episodes
    options.update({k: a[k] for k in ("prefetch", "cache", "cache_budget", "cache_format", "memory_budget", "pool_size", "pool_episodes") if a.get(k)})
    options.update(dict(cache=disk) if disk else {})
    t = time.perf_counter()
    loader = robocache.Loader(a.uri, threads=a.workers, **options)
    built = time.perf_counter() - t
    if a.resume:
        return resume(loader, common.Job(a.resume))
    alone = lambda: triple(robocache.Loader(a.uri, threads=1, **{**{k: v for k, v in options.items() if k != "cache"}, "prefetch": 1}))
    facts = dict(open_s=opened, index_build_s=built, num_cameras=len(wanted), image_shape=list(ds.features[wanted[0]].shape) if wanted else [], fps=float(ds.fps),
                 loaded_episodes=len(options["episodes"] or range(ds.num_episodes)))
    def batches():
        if loader.epoch and not a.duration_s:  # whole epochs are measured: none is begun while the one before it ends
            loader.set_epoch(loader.epoch + 1)
            loader.set_epoch(loader.epoch - 1)
        return loader

    epoch, extra = lambda: triple(batches()), dict
    if a.truth:
        from hdf5_set import Truth

        truth = Truth(a.truth, max(a.window, 1))
        epoch, extra = truth.checked(lambda: truth.numbers(batches())), truth.found
    common.measure(epoch, a, facts, images=lambda b, key: b[key], cameras=wanted, single=alone, stats=loader.stats, extra=extra)


def main(a):
    with tempfile.TemporaryDirectory(prefix="disk-cache-", dir=a.disk) if a.disk else contextlib.nullcontext("") as disk:
        measure(a, disk)


common.run(main)
