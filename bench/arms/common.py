"""What every Python arm shares: the window of whole epochs, CPU of the process tree, PSS, order and randomness.

An arm prints one JSON object as its last line. See bench/doc.go for what the figures mean."""
import argparse, hashlib, json, os, sys, threading, time

T0 = time.perf_counter()
TICK = os.sysconf("SC_CLK_TCK")


def tree():
    """The pids of this process and its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                rest = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(rest[1]), []).append(int(name))
    out, todo = [], [os.getpid()]
    while todo:
        p = todo.pop()
        out.append(p)
        todo += children.get(p, [])
    return out


def cpu_seconds():
    """User + system seconds of the tree, including children that were waited for."""
    total = 0
    for pid in tree():
        try:
            with open(f"/proc/{pid}/stat") as f:
                v = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(x) for x in v[11:15])
    return total / TICK


def pss_mb():
    total = 0
    for pid in tree():
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                for line in f:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        except OSError:
            continue
    return total / 1024


class Peak(threading.Thread):
    """Polls PSS twice a second. Reading it costs CPU, so it runs in the first epoch, which is not measured."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.stop = 0.0, threading.Event()

    def run(self):
        while not self.stop.wait(0.5):
            self.peak = max(self.peak, pss_mb())


def args():
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1, help="measured epochs, after one that is not")
    p.add_argument("--video", default="one", choices=["one", "all", "none"])
    p.add_argument("--window", type=int, default=0, help="frames and rows a window; 0 = single")
    p.add_argument("--float32", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def deltas(a, fps, keys):
    return {k: [i / fps for i in range(a.window)] for k in keys} if a.window else None


def ideal(lengths, batch):
    """Share of distinct episodes in a perfectly shuffled batch (hypergeometric)."""
    n = sum(lengths)
    batch = min(batch, n)
    total = 0.0
    for m in lengths:
        miss = 1.0
        for i in range(batch):
            miss *= max(0, n - m - i) / (n - i)
        total += 1 - miss
    return total / batch


def measure(epoch, a, lengths, opened, extra=lambda: {}):
    """epoch(): a fresh iterator of batches (dicts with 'index' and 'episode_index')."""
    peak = Peak()
    peak.start()
    t = time.perf_counter()
    first = None
    for batch in epoch():
        if first is None:
            first = time.perf_counter() - t
    peak.stop.set()
    peak.join()
    samples = 0
    order = hashlib.sha256()
    distinct, batches = 0.0, 0
    c0, t0 = cpu_seconds(), time.perf_counter()
    for _ in range(a.epochs):
        for batch in epoch():
            index = batch["index"]
            samples += len(index)
            order.update(index.numpy().astype("<i8").tobytes())
            if len(index) == a.batch_size:
                distinct += len(set(batch["episode_index"].tolist())) / len(index)
                batches += 1
    seconds, cpu = time.perf_counter() - t0, cpu_seconds() - c0
    out = dict(samples=samples, seconds=seconds, cpu_seconds=cpu, import_s=opened[0], open_s=opened[1], first_batch_latency_s=first, pss_peak_mb=peak.peak,
               order_sha256=order.hexdigest(), shuffle_randomness_frac=distinct / max(batches, 1), randomness_ideal=ideal(lengths, a.batch_size))
    out.update(extra())
    print(json.dumps(out))
    sys.stdout.flush()
