"""lerobot at its best setting: return_uint8, torchcodec, persistent workers, one torch thread."""
import os, time

os.environ["HF_HUB_OFFLINE"] = "1"
from common import T0, args, deltas, measure

import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch.utils.data import DataLoader

a = args()
torch.set_num_threads(1)
imported = time.perf_counter() - T0
t = time.perf_counter()
probe = LeRobotDataset("bench/set", root=a.root)
cameras, fps = list(probe.meta.video_keys), probe.fps
keys = [k for k in ("observation.state", "action") if k in probe.meta.features]
if a.video != "none":
    keys += cameras[: 1 if a.video == "one" else None]
if a.video == "one" and len(cameras) > 1 or a.video == "none" and cameras:
    raise SystemExit("lerobot decodes every camera: give it a set with the wanted cameras only")
t = time.perf_counter()
ds = LeRobotDataset("bench/set", root=a.root, delta_timestamps=deltas(a, fps, keys), return_uint8=not a.float32)
opened = time.perf_counter() - t
g = torch.Generator()
g.manual_seed(a.seed)
kw = dict(persistent_workers=True, prefetch_factor=4) if a.workers else {}
loader = DataLoader(ds, batch_size=a.batch_size, shuffle=True, num_workers=a.workers, generator=g, worker_init_fn=lambda _: torch.set_num_threads(1), **kw)
lengths = [int(x) for x in ds.meta.episodes["length"]]
measure(lambda: iter(loader), a, lengths, (imported, opened))
