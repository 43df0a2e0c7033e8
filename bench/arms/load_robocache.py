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
lengths = [len(ds.episode(i)) for i in range(ds.num_episodes)]
t = time.perf_counter()
loader = robocache.Loader(a.root, batch_size=a.batch_size, shuffle="global", seed=a.seed, threads=a.workers, keys=keys, delta_timestamps=windows,
                          image_dtype="float32" if a.float32 else "uint8")
opened = time.perf_counter() - t
measure(lambda: iter(loader), a, lengths, (imported, opened))
