"""Whole trajectories of a robomimic file with timestamps, resampled to `rows` rows at `hz`.

The runner is RoboCache, or a plain Dataset in a DataLoader (runner: torch) in the same order. The
Dataset has one h5py handle per worker. One searchsorted and one multiply-add over all columns bring
a stream onto the grid. The first two batches are compared with those of the other runner.
"""

import importlib.util
import time
from fractions import Fraction

from . import common

import numpy as np
import robocache
import torch
from . import train_data


class Trajectories(train_data.Streams):
    """Trajectory i is demo chosen[i], from the time when all its streams have begun."""

    def __init__(self, uri, chosen, keys, hz, rows):
        super().__init__(uri)
        self.chosen, self.keys, self.at = chosen, keys, np.arange(rows) / hz

    def __getitem__(self, i):
        e, out = self.chosen[i], dict(index=i)
        at = self.at + self.begin(e, self.keys)
        for k in self.keys:
            out[k], out[k + "_is_pad"] = self.stream(e, k, at)
        return out


class Order:
    """The order of the loader, epoch after epoch."""

    def __init__(self, loader):
        self.loader, self.epoch = loader, -1

    def __len__(self):
        return self.loader.num_samples

    def __iter__(self):
        self.epoch += 1
        return iter(self.loader.order(self.epoch).tolist())


def differs(batch, other, keys):
    """Returns the first key that differs between two batches of the same trajectories, or None.

    Numbers must agree within 1e-5 of their range, and masks must be equal.
    """
    for k in keys:
        pad, a, b = (np.asarray(x) for x in (batch[k + "_is_pad"], batch[k], other[k]))
        if not np.array_equal(pad, np.asarray(other[k + "_is_pad"])):
            return f"{k}_is_pad"
        if a.shape != b.shape or np.abs(a - b)[~pad].max(initial=0) > 1e-5 * max(np.ptp(b), 1):
            return k
    return None


def main(a):
    torch.set_num_threads(1)
    common.imported()
    t = time.perf_counter()
    ds = robocache.open(a.uri)
    keys = [k for k, f in ds.features.items() if f.kind == "numeric"]
    hz = Fraction(a.hz).limit_denominator(10**6)
    chosen = common.positions(a.episodes) or list(range(ds.num_episodes))
    how = dict(
        hz=hz / a.rows,
        windows=robocache.Windows(
            seconds={k: (0.0, float((a.rows - 1) / hz), a.rows) for k in keys}
        ),
        episodes=chosen,
    )
    loader = robocache.Loader(
        a.uri, keys=[*keys, "index"], batch_size=a.batch_size, seed=a.seed, threads=a.workers, **how
    )
    if loader.num_samples != len(chosen):
        raise RuntimeError(f"{a.rows} rows at {a.hz} Hz are shorter than the longest trajectory")
    peer = a.runner == "torch"
    # Without h5py there is no baseline for the comparison. RoboCache is still measured.
    plain = (
        Trajectories(a.uri, chosen, keys, float(hz), a.rows)
        if peer or importlib.util.find_spec("h5py")
        else None
    )
    batches = common.torch_loader(plain, a, sampler=Order(loader)) if peer else loader
    look, other = 2 if plain else 0, None

    def epoch():
        nonlocal look, other
        for b in batches:
            index = b["index"].numpy()
            if look > 0:  # of the first epoch, which is not measured
                look -= 1
                if peer:
                    other = other or robocache.MapDataset(a.uri, keys=keys, **how)
                    want = other.batch(index.tolist())
                else:
                    want = torch.utils.data.default_collate([plain[int(i)] for i in index])
                if k := differs(b, want, keys):
                    raise RuntimeError(
                        f"{k} of a batch differs from that of the other runner "
                        "for the same trajectories"
                    )
            yield index, index, b

    more = {} if peer else dict(stats=loader.stats)
    common.measure(epoch, a, dict(open_s=time.perf_counter() - t), cameras=(), **more)


common.run(main)
