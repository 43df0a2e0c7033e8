"""A plain pool:

threads decode whole episodes with PyAV, and batches are drawn from the pool.

Samples are drawn uniformly from the frames that remain in the pool. When an episode is used up, the
next one is decoded, in shuffled order. Each epoch fills the pool again. Frames are stored in the
format of the batch (uint8, CHW), and a batch is a torch.stack. With the option ram, all frames are
decoded once into memory. Later epochs are permutations of them, stacked by the same number of
threads.
"""

import collections, concurrent.futures, itertools, random, threading

from . import common
from .lerobot_set import Set, Video

import av  # noqa: F401 (imported early, so that its import is not timed)
import numpy as np
import torch

POOL = 6  # resident episodes


class Pool:
    def __init__(self, a):
        self.a, self.set, self.threads = a, Set(a.uri), max(a.workers, 1)
        self.columns = {
            k: torch.from_numpy(v) for k, v in self.set.columns(self.set.numeric).items()
        }
        self.opened = threading.local()  # containers that stay open, per thread
        self.executor = concurrent.futures.ThreadPoolExecutor(self.threads)

    def ahead(self, jobs, make, each):
        """Yields make(job) for each job in order; threads run up to `each` jobs per thread ahead."""
        running, it = collections.deque(), iter(jobs)
        while True:
            while len(running) < each * self.threads and (job := next(it, None)) is not None:
                running.append(self.executor.submit(make, job))
            if not running:
                return
            yield running.popleft().result()

    def episode(self, e):
        s = self.set
        lo, files = int(s.ends[e]) - s.lengths[e], self.opened.__dict__
        name = s.files[s.file[lo]]
        if name not in files:
            files[name] = Video(name)
        out = [
            torch.from_numpy(f).permute(2, 0, 1).contiguous()
            for _, f in itertools.islice(files[name].frames(int(s.number[lo])), s.lengths[e])
        ]
        if len(out) < s.lengths[e]:
            raise RuntimeError(f"episode {e}: {len(out)} of {s.lengths[e]} frames came")
        return e, out

    def picked(self, order, rng):
        """Yields (sample, frame) drawn from the pool."""
        s, coming, left = self.set, self.ahead(order, self.episode, 2), len(order)
        pool, resident = [], collections.Counter()
        while left or pool:
            while left and len(resident) < POOL:
                e, frames = next(coming)
                lo = int(s.ends[e]) - s.lengths[e]
                pool += [(lo + k, e, f) for k, f in enumerate(frames)]
                resident[e] = len(frames)
                left -= 1
            k = rng.randrange(len(pool))
            pool[k], pool[-1] = pool[-1], pool[k]
            i, e, f = pool.pop()
            resident[e] -= 1
            if not resident[e]:
                del resident[e]
            yield i, f

    def batch(self, parts):
        index = [int(i) for i, _ in parts]
        rows = torch.tensor(index)
        return np.array(index), {
            "image": torch.stack([f for _, f in parts]),
            **{k: v[rows] for k, v in self.columns.items()},
        }

    def epoch(self, rng, keep):
        order, parts = list(range(len(self.set.lengths))), []
        rng.shuffle(order)
        for i, f in self.picked(order, rng):
            parts.append((i, f))
            if keep is not None:
                keep[i] = f
            if len(parts) == self.a.batch_size:
                yield self.batch(parts)
                parts = []
        if parts:
            yield self.batch(parts)

    def from_ram(self, frames, rng):
        order, n = rng.permutation(len(frames)), self.a.batch_size
        return self.ahead(
            [order[k : k + n] for k in range(0, len(order), n)],
            lambda part: self.batch([(i, frames[i]) for i in part]),
            4,
        )


def main(a):
    common.imported()
    pool = Pool(a)
    rng, state = random.Random(a.seed), np.random.default_rng(a.seed)
    frames = [None] * int(pool.set.ends[-1]) if a.ram else None
    # With ram, the first epoch decodes like the pool and keeps the frames.
    epoch = lambda: (
        pool.epoch(rng, frames) if not frames or frames[0] is None else pool.from_ram(frames, state)
    )
    common.measure(lambda: pool.set.numbered(epoch()), a, row=pool.set.row)


common.run(main)
