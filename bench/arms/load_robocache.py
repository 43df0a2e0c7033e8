"""robocache.Loader into torch tensors."""
import time

from common import T0, args, deltas, measure

import torch

import robocache

a = args()
torch.set_num_threads(1)
imported = time.perf_counter() - T0
t = time.perf_counter()
ds = robocache.open(a.root)
names = list(ds.features)
cameras = [k for k in names if ds.features[k].kind == "video"]
wanted = [] if a.video == "none" else cameras[: 1 if a.video == "one" else None]
keys = [k for k in names if k not in cameras] + wanted
windows = deltas(a, float(ds.fps), [k for k in ("observation.state", "action") if k in names] + wanted)
episodes = range(ds.num_episodes) if a.episode_list is None else a.episode_list
lengths = [len(ds.episode(i)) for i in episodes]
index_build = time.perf_counter() - t
options = dict(batch_size=a.batch_size, shuffle=False if a.shuffle == "file" else a.shuffle, seed=a.seed, keys=keys, delta_timestamps=windows,
               image_dtype="float32" if a.float32 else "uint8", image_size=a.image_hw, episodes=a.episode_list, drop_last=a.drop_last, rank=a.rank, world_size=a.world)
if a.prefetch:
    options["prefetch"] = a.prefetch
if a.cache:
    options["cache"] = a.cache
if a.cache_budget:
    options["cache_budget"] = a.cache_budget
if a.memory_budget:
    options["memory_budget"] = a.memory_budget
if a.pool_episodes:
    options["pool_episodes"] = a.pool_episodes
t = time.perf_counter()
loader = robocache.Loader(a.root, threads=a.workers, **options)
opened = time.perf_counter() - t


def extra():
    if not a.duration:
        return {}
    shape = ds.features[wanted[0]].shape if wanted else []
    return dict(index_build_s=index_build, num_cameras=len(wanted), image_shape=list(shape), fps=float(ds.fps), loaded_episodes=len(lengths))


def single():
    one = {k: v for k, v in options.items() if k != "cache"}
    return iter(robocache.Loader(a.root, threads=1, **{**one, "prefetch": 1}))


measure(lambda: iter(loader), a, lengths, (imported, opened), extra=extra, single=single, cameras=wanted, stats=loader.stats)
