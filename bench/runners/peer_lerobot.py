"""lerobot at its best setting: return_uint8, torchcodec, persistent workers, one torch thread.

--streaming: its StreamingLeRobotDataset instead, from the local folder. --image-size: a torchvision v2 resize, as its users give."""
import os, time

os.environ["HF_HUB_OFFLINE"] = "1"
import peer
from common import deltas

import torch
from torch.utils.data import DataLoader

a = peer.args(lambda p: p.add_argument("--streaming", action="store_true"), lambda p: p.add_argument("--buffer", type=int, default=1000))
torch.set_num_threads(1)
if a.streaming:
    from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset as Dataset
else:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset as Dataset
from lerobot.datasets.dataset_metadata import LeRobotDatasetMetadata


def main():
    kw = {}
    if a.image_size:
        from torchvision.transforms import v2

        kw["image_transforms"] = v2.Resize(tuple(a.image_size), antialias=True)
    imported = peer.since_start()
    meta = LeRobotDatasetMetadata("bench/set", root=a.root)
    cameras = list(meta.video_keys)
    if len(cameras) != (a.video == "one"):
        raise SystemExit("lerobot decodes every camera: give it a set with the wanted cameras only")
    keys = [k for k in ("observation.state", "action") if k in meta.features] + cameras
    t = time.perf_counter()
    if a.streaming:
        kw["buffer_size"] = a.buffer
        kw["seed"] = a.seed
    ds = Dataset("bench/set", root=a.root, delta_timestamps=deltas(a, meta.fps, keys), return_uint8=True, **kw)
    opened = time.perf_counter() - t
    g = torch.Generator()
    g.manual_seed(a.seed)
    kw = dict(persistent_workers=True, prefetch_factor=4, worker_init_fn=lambda _: torch.set_num_threads(1)) if a.workers else {}
    if not a.streaming:
        kw.update(shuffle=True, generator=g)
    loader = DataLoader(ds, batch_size=a.batch_size, num_workers=a.workers, **kw)
    lengths = [int(x) for x in meta.episodes["length"]]
    peer.measure(lambda: ((b["index"].numpy(), b) for b in loader), a, lengths, (imported, opened), imgs=(lambda b: b[cameras[0]]) if cameras else None)


try:
    main()
except Exception as e:  # its failure is a result, in its own words
    peer.failed(e)
