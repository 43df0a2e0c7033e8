"""A plain pool: threads decode whole episodes with PyAV into a pool of resident ones, batches are drawn from it.

Uniform over the frames that remain in the pool; an episode that is used up makes room for the next, in shuffled order; each epoch fills
the pool anew. Frames are kept as the batch wants them (uint8, CHW), and a batch is a torch.stack.
--ram: all frames are decoded once into memory, and every later epoch is a permutation of them, stacked by as many threads."""
import collections, queue, random, threading, time

import common
from lerobot_set import Set

import av
import numpy as np
import torch

a = common.args(lambda p: p.add_argument("--pool", type=int, default=6, help="resident episodes"), lambda p: p.add_argument("--ram", action="store_true"))
torch.set_num_threads(1)


def planar(frame):
    return torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1).contiguous()


class Reader:
    """Decodes episodes; one a thread. Containers stay open."""

    def __init__(self, s):
        self.set, self.open = s, {}

    def episode(self, e):
        lo = int(self.set.ends[e]) - self.set.lengths[e]
        f, first = int(self.set.file[lo]), int(self.set.ordinal[lo])
        if f not in self.open:
            c = av.open(self.set.files[f])
            c.streams.video[0].thread_count = 1
            c.streams.video[0].thread_type = "NONE"
            self.open[f] = c, c.streams.video[0]
        c, stream = self.open[f]
        step = round(1 / (stream.time_base * stream.average_rate))
        start = stream.start_time or 0
        c.seek(start + first * step, stream=stream)
        out = []
        for frame in c.decode(video=0):
            if frame.pts < start + first * step - step // 2:
                continue
            out.append(planar(frame))
            if len(out) == self.set.lengths[e]:
                return out
        raise RuntimeError(f"episode {e}: {len(out)} of {self.set.lengths[e]} frames came")


def decoded(s, order):
    """Episodes as they are ready, decoded by --workers threads, at most that many waiting."""
    todo, ready = collections.deque(order), queue.Queue(maxsize=max(a.workers, 1))
    stop = threading.Event()

    def work(reader):
        while not stop.is_set():
            try:
                e = todo.popleft()
            except IndexError:
                return
            try:
                put(ready, (e, reader.episode(e)), stop)
            except Exception as x:
                put(ready, x, stop)
                return

    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in readers]
    for t in threads:
        t.start()
    try:
        for _ in order:
            got = ready.get()
            if isinstance(got, Exception):
                raise got
            yield got
    finally:
        stop.set()
        for t in threads:
            t.join()


def put(q, item, stop):
    while not stop.is_set():
        try:
            return q.put(item, timeout=0.1)
        except queue.Full:
            pass


def picked(s, order, rng):
    """(sample, frame) drawn from the pool."""
    coming, left = decoded(s, order), len(order)
    pool, resident = [], collections.Counter()
    while left or pool:
        while left and len(resident) < a.pool:
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
    coming.close()


def batch(parts):
    index = [i for i, _ in parts]
    rows = torch.tensor(index)
    return np.array(index), {"image": torch.stack([f for _, f in parts]), **{k: v[rows] for k, v in columns.items()}}


def pool_epoch(s, rng, keep=None):
    order = list(range(len(s.lengths)))
    rng.shuffle(order)
    parts = []
    for i, f in picked(s, order, rng):
        parts.append((i, f))
        if keep is not None:
            keep[i] = f
        if len(parts) == a.batch_size:
            yield batch(parts)
            parts = []
    if parts:
        yield batch(parts)


def ram_epoch(frames, rng):
    order = rng.permutation(len(frames))
    return threaded([order[k : k + a.batch_size] for k in range(0, len(order), a.batch_size)], lambda part: batch([(int(i), frames[i]) for i in part]), max(a.workers, 1))


def threaded(jobs, make, workers):
    """make(job) of each job, in order, in threads, four a thread ahead."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as ex:
        ahead, it = collections.deque(), iter(jobs)
        while True:
            while len(ahead) < 4 * workers:
                job = next(it, None)
                if job is None:
                    break
                ahead.append(ex.submit(make, job))
            if not ahead:
                return
            yield ahead.popleft().result()


def main():
    global columns, readers
    common.imported()
    t = time.perf_counter()
    s = Set(a.root)
    columns = {k: torch.from_numpy(v) for k, v in s.columns(s.numeric).items()}
    readers = [Reader(s) for _ in range(max(a.workers, 1))]
    opened = time.perf_counter() - t
    rng = random.Random(a.seed)
    epoch = lambda: pool_epoch(s, rng)
    if a.ram:
        frames, state = [None] * int(s.ends[-1]), np.random.default_rng(a.seed)
        # The first epoch decodes, as the pool does it, and keeps what it decoded.
        epochs = iter([lambda: pool_epoch(s, rng, frames)])
        epoch = lambda: next(epochs, lambda: ram_epoch(frames, state))()
    common.measure(lambda: s.numbered(epoch()), a, dict(open_s=opened), row=s.row)


common.run(main)
