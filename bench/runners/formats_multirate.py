"""Multi-rate samples, end to end: streams of several clocks to 50 Hz, windows of a second, batches of 64.

usage: formats_multirate.py PATH... [--format F] [--streams KEY,...] [--held KEY,...|none] [--hz 50] [--batch-size 64] [--workers 2] [--rounds 3] [--seconds 3]

Two arms by turns in one process tree, a JSON line a round: samples/s and CPU seconds per 1,000 samples.
  robocache  Loader over the files.
  pandas     a DataLoader over a map-style dataset: streams by np.interp a column; those that are held (--held, default the last one, and
             integers) by pandas.merge_asof (backward); stacked by the default collate. Its streams are parsed before the clock starts, and lie in memory as DataFrames: its best case.
Both give the same keys, shapes and masks; samples are compared before anything is timed. CPU is counted from rest to rest, so that what an arm
prefetches is its own.
"""
import argparse
import json
import os
import sys
import time

import numpy as np
import pandas as pd
import torch

import robocache


def cpu_seconds():
    from common import cpu_seconds as of_tree

    return of_tree()


class Peer(torch.utils.data.Dataset):
    """What a user writes: for each sample the times of its window, for each stream np.interp or merge_asof."""

    def __init__(self, datasets, keys, held, hz):
        self.episodes, self.index = [], []
        self.offsets = np.arange(1 - int(hz), 1) * int(1e9 / hz)
        for ds in datasets:
            for ep in ds:
                streams = {}
                for k in keys:
                    s = ep.streams[k]
                    v = np.asarray(s.values)
                    streams[k] = (np.asarray(s.times), v.reshape(len(v), -1), v.shape[1:])
                start, end = max(t[0] for t, _, _ in streams.values()), min(t[-1] for t, _, _ in streams.values())
                n = int((end - start) * hz // 10**9) + 1
                frames = {k: pd.DataFrame({"t": t, **{str(c): v[:, c] for c in range(v.shape[1])}}) for k, (t, v, _) in streams.items() if v.dtype.kind != "f" or k in held}
                self.index += [(len(self.episodes), start + round(i * 1e9 / hz)) for i in range(n)]
                self.episodes.append((streams, frames))

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        e, now = self.index[i]
        streams, frames = self.episodes[e]
        t = now + self.offsets
        out = {}
        for k, (timestamps, v, shape) in streams.items():
            if k in frames:
                got = pd.merge_asof(pd.DataFrame({"t": t}), frames[k], on="t").drop(columns="t").bfill().to_numpy().astype(v.dtype)
            else:
                # Relative to the first: seconds since an epoch have no nanoseconds left in float64.
                x, xp = (t - timestamps[0]) * 1e-9, (timestamps - timestamps[0]) * 1e-9
                got = np.stack([np.interp(x, xp, v[:, c]) for c in range(v.shape[1])], 1).astype(v.dtype)
            out[k] = got.reshape(len(t), *shape)
            out[k + "_is_pad"] = (t < timestamps[0]) | (t > timestamps[-1])
        return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("paths", nargs="+")
    p.add_argument("--format")
    p.add_argument("--streams", default="")
    p.add_argument("--held", default="")
    p.add_argument("--hz", type=float, default=50)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=3)
    a = p.parse_args()
    torch.set_num_threads(1)
    datasets = [robocache.open(x, format=a.format) for x in a.paths]
    keys = a.streams.split(",") if a.streams else [k for k, f in datasets[0].features.items() if f.kind == "numeric" and not f.ragged and not f.default][:4]
    window = {k: (np.arange(1 - int(a.hz), 1) / a.hz).tolist() for k in keys}
    held = [] if a.held == "none" else a.held.split(",") if a.held else keys[-1:]
    how = dict(hz=a.hz, keys=keys, delta_timestamps=window, align={"modes": {k: "previous" for k in held}})
    peer = Peer(datasets, keys, held, a.hz)

    ours = robocache.MapDataset(datasets[0], **how)
    for i in (0, len(ours) // 2, len(ours) - 1):
        x, y = ours[i], peer[i]
        for k in keys:
            assert x[k].shape == y[k].shape, (k, x[k].shape, y[k].shape)
            assert np.array_equal(x[k + "_is_pad"].numpy(), y[k + "_is_pad"]), k
            assert np.allclose(x[k].numpy().astype(np.float64), y[k].astype(np.float64), rtol=1e-4, atol=1e-5, equal_nan=True), k

    def batches(arm):
        if arm == "pandas":
            loader = torch.utils.data.DataLoader(peer, a.batch_size, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
        else:
            source = datasets[0] if len(datasets) == 1 else [robocache.Mix(d) for d in datasets]
            loader = robocache.Loader(source, a.batch_size, threads=max(a.workers, 1), **how)
        while True:
            yield from loader

    arms = {n: batches(n) for n in ("pandas", "robocache")}
    for it in arms.values():
        for _ in range(3):
            next(it)
    def settle():
        """Waits until nothing runs: what an arm prefetches after its turn is not the other's."""
        last = cpu_seconds()
        for _ in range(100):
            time.sleep(0.2)
            now = cpu_seconds()
            if now - last < 0.02:
                return
            last = now

    for r in range(a.rounds):
        per = {}
        for name, it in arms.items():
            settle()
            cpu, wall, n = cpu_seconds(), time.perf_counter(), 0
            while time.perf_counter() - wall < a.seconds:
                n += len(next(it)[keys[0]])
            wall = time.perf_counter() - wall
            settle()
            cpu = cpu_seconds() - cpu
            per[name] = {"samples_per_s": n / wall, "cpu_s_per_1000": cpu / n * 1e3}
        ratio = {"wall": per["robocache"]["samples_per_s"] / per["pandas"]["samples_per_s"], "cpu": per["pandas"]["cpu_s_per_1000"] / per["robocache"]["cpu_s_per_1000"]}
        print(json.dumps({"round": r, "streams": keys, **per, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
