"""robocache.Loader into torch tensors. With --resume-steps: one process of the check that a killed run goes on exactly."""
import argparse, hashlib, json, os, signal, time

from common import T0, args, deltas, measure

import torch

import robocache

p = argparse.ArgumentParser()
p.add_argument("--resume-steps", type=int, default=0)
p.add_argument("--resume-kill", type=int, default=0)
p.add_argument("--resume-state", default="")
p.add_argument("--resume-log", default="")
a = args(p)
torch.set_num_threads(1)
imported = time.perf_counter() - T0
t = time.perf_counter()
ds = robocache.open(a.root, rows_hz=float(a.rows_hz) if a.rows_hz else None)
dataset_opened = time.perf_counter() - t
names = list(ds.features)
cameras = [k for k in names if ds.features[k].kind == "video"]
wanted = [] if a.video == "none" else cameras[: 1 if a.video == "one" else None]
keys = [k for k in names if k not in cameras] + wanted
windows = deltas(a, float(ds.fps), [k for k in ("observation.state", "action") if k in names] + wanted)
episodes = range(ds.num_episodes) if a.episode_list is None else a.episode_list
lengths = [len(ds.episode(i)) for i in episodes]
options = dict(batch_size=a.batch_size, shuffle=False if a.shuffle == "file" else a.shuffle, seed=a.seed, keys=keys, delta_timestamps=windows,
               image_dtype="float32" if a.float32 else "uint8", image_size=a.image_hw, episodes=a.episode_list, split="all", drop_last=a.drop_last, rank=a.rank, world_size=a.world)
if a.duration:
    options["on_bad_episode"] = "skip"  # counted: skipped_episodes
if a.rows_hz:
    options["rows_hz"] = float(a.rows_hz)
if a.prefetch:
    options["prefetch"] = a.prefetch
for name in ("cache", "cache_budget", "cache_format", "memory_budget", "pool_size", "pool_episodes"):
    if getattr(a, name):
        options[name] = getattr(a, name)
t = time.perf_counter()
loader = robocache.Loader(a.root, threads=a.workers, **options)
opened = time.perf_counter() - t


def extra():
    if not a.duration:
        return {}
    shape = ds.features[wanted[0]].shape if wanted else []
    return dict(open_s=dataset_opened, index_build_s=opened, num_cameras=len(wanted), image_shape=list(shape), fps=float(ds.fps), loaded_episodes=len(lengths))


def single():
    one = {k: v for k, v in options.items() if k != "cache"}
    return iter(robocache.Loader(a.root, threads=1, **{**one, "prefetch": 1}))


def resume():
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


if a.resume_steps:
    resume()
    raise SystemExit
measure(lambda: iter(loader), a, lengths, (imported, opened), extra=extra, single=single, cameras=wanted, stats=loader.stats)
