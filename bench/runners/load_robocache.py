"""robocache.Loader into torch tensors. With --resume-steps: one process of the check that a killed run goes on exactly.

--disk FOLDER: a disk cache in a new folder in it, removed at the end, so that the first epoch is cold."""
import contextlib, hashlib, json, os, signal, tempfile, time

import common

import numpy as np
import torch

import robocache

a = common.args(lambda p: p.add_argument("--disk", default=""), lambda p: p.add_argument("--windowed", default="", help="all: windows of every stream"),
                lambda p: p.add_argument("--truth", default="", help="an HDF5 file to compare windows with"),
                lambda p: p.add_argument("--resume-steps", type=int, default=0), lambda p: p.add_argument("--resume-kill", type=int, default=0),
                lambda p: p.add_argument("--resume-state", default=""), lambda p: p.add_argument("--resume-log", default=""))
torch.set_num_threads(1)


def triple(batches):
    for b in batches:
        n = len(next(iter(b.values())))
        yield *(b[k].numpy() if k in b else np.zeros(n, np.int64) for k in ("index", "episode_index")), b


def resume(loader):
    """As bench.ResumeRun: a line a step with the hash of all that the batch holds; killed after --resume-kill steps."""
    step = 0
    if os.path.exists(a.resume_state):
        with open(a.resume_state) as f:
            saved = json.load(f)
        step = saved["step"]
        loader.load_state_dict(saved["state"])
    with open(a.resume_log, "a") as log:
        while step < a.resume_steps:
            for batch in loader:
                h = hashlib.sha256()
                for key, v in batch.items():
                    h.update(key.encode())
                    h.update(repr(v).encode() if isinstance(v, list) else memoryview(v.numpy()).cast("B"))
                log.write(f"{step} {h.hexdigest()}\n")
                log.flush()
                step += 1
                if step == a.resume_kill:
                    with open(a.resume_state, "w") as f:
                        json.dump(dict(step=step, state=loader.state_dict()), f)
                    os.kill(os.getpid(), signal.SIGKILL)
                if step == a.resume_steps:
                    break


def main(disk):
    common.imported()
    t = time.perf_counter()
    hz = dict(rows_hz=float(a.rows_hz)) if a.rows_hz else {}
    ds = robocache.open(a.root, **hz)
    opened = time.perf_counter() - t
    names = list(ds.features)
    cameras = [k for k in names if ds.features[k].kind == "video"]
    wanted = [] if a.video == "none" else cameras[: 1 if a.video == "one" else None]
    options = dict(batch_size=a.batch_size, shuffle=False if a.shuffle == "file" else a.shuffle, seed=a.seed, keys=[k for k in names if k not in cameras] + wanted,
                   delta_timestamps=common.deltas(a, float(ds.fps), [k for k in ("observation.state", "action") if k in names] + wanted), image_dtype="float32" if a.float32 else "uint8",
                   image_size=a.image_hw, episodes=a.episode_list, split="all", drop_last=a.drop_last, rank=a.rank, world_size=a.world, **hz)
    if a.windowed == "all":
        options["delta_timestamps"] = common.deltas(a, float(ds.fps), [k for k in names if not ds.features[k].default])
    if a.duration:
        options["on_bad_episode"] = "skip"  # counted: skipped_episodes
    options.update({k: getattr(a, k) for k in ("prefetch", "cache", "cache_budget", "cache_format", "memory_budget", "pool_size", "pool_episodes") if getattr(a, k)})
    if disk:
        options["cache"] = disk
    options.update(a.options)
    t = time.perf_counter()
    loader = robocache.Loader(a.root, threads=a.workers, **options)
    built = time.perf_counter() - t
    if a.resume_steps:
        return resume(loader)
    alone = lambda: triple(robocache.Loader(a.root, threads=1, **{**{k: v for k, v in options.items() if k != "cache"}, "prefetch": 1}))
    facts = dict(open_s=opened, index_build_s=built, num_cameras=len(wanted), image_shape=list(ds.features[wanted[0]].shape) if wanted else [], fps=float(ds.fps),
                 loaded_episodes=len(a.episode_list or range(ds.num_episodes)))
    epoch, extra = lambda: triple(loader), dict
    if a.truth:
        from hdf5_set import Truth

        truth = Truth(a.truth, max(a.window, 1))
        epoch, extra = truth.checked(epoch), truth.found
    common.measure(epoch, a, facts, images=lambda b, key: b[key], cameras=wanted, single=alone, stats=loader.stats, extra=extra)


with tempfile.TemporaryDirectory(prefix="disk-cache-", dir=a.disk) if a.disk else contextlib.nullcontext("") as disk:
    common.run(lambda: main(disk))
