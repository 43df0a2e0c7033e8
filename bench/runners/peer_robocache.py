"""robocache.Loader into torch tensors, with the options of the arm as JSON (--options '{"shuffle": "pool"}').

--disk FOLDER: a disk cache in a new folder in it, removed at the end, so that the first epoch is cold."""
import json, shutil, tempfile, time

import peer
from common import deltas

import torch

import robocache

a = peer.args(
    lambda p: p.add_argument("--options", type=json.loads, default={}),
    lambda p: p.add_argument("--disk", default=""),
)
torch.set_num_threads(1)


def main(cache):
    imported = peer.since_start()
    t = time.perf_counter()
    ds = robocache.open(a.root)
    names = list(ds.features)
    cameras = [k for k in names if ds.features[k].kind == "video"]
    wanted = cameras[:1] if a.video == "one" else []
    keys = [k for k in names if k not in cameras] + wanted
    windows = deltas(a, float(ds.fps), [k for k in ("observation.state", "action") if k in names] + wanted)
    lengths = [len(ds.episode(i)) for i in range(ds.num_episodes)]
    options = {"shuffle": "global", "split": "all", **a.options}
    if a.image_size:
        options["image_size"] = a.image_size
    if cache:
        options["cache"] = cache
    loader = robocache.Loader(ds, batch_size=a.batch_size, seed=a.seed, threads=a.workers, keys=keys, delta_timestamps=windows, **options)
    opened = time.perf_counter() - t
    begin = {}

    def epoch():
        begin["last"] = loader.stats()
        for b in loader:
            yield b["index"].numpy(), b

    def counted():
        """Counters of the last epoch."""
        now, was = loader.stats(), begin["last"]
        return dict(frames_delivered=now["frames"] - was["frames"], frames_decoded=now["frames_decoded"] - was["frames_decoded"])

    peer.measure(epoch, a, lengths, (imported, opened), imgs=(lambda b: b[wanted[0]]) if wanted else None, extra=counted)


folder = tempfile.mkdtemp(prefix="disk-cache-", dir=a.disk) if a.disk else ""
try:
    main(folder)
except Exception as e:
    peer.failed(e)
finally:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
