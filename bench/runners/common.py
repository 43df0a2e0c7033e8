"""What every Python arm shares: the window, CPU of the process tree, PSS, order and randomness.

An arm prints one JSON object as its last line: bench.Outcome. See bench/doc.go for what the figures mean.
Two windows: --epochs N (whole epochs after one that is not measured), or --duration S (from batch arrival to batch arrival, after --warmup batches)."""
import argparse, hashlib, json, os, random, sys, threading, time

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


def io_bytes(name):
    """A counter of /proc/PID/io over the tree: rchar (what was asked of files and sockets), read_bytes (what came from devices)."""
    total = 0
    for pid in tree():
        try:
            with open(f"/proc/{pid}/io") as f:
                for line in f:
                    k, v = line.split(":")
                    if k == name:
                        total += int(v)
        except OSError:
            continue
    return total


class Peak(threading.Thread):
    """Polls PSS twice a second. Reading it costs CPU, so it runs in the first epoch, which is not measured."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.stop = 0.0, threading.Event()

    def run(self):
        while not self.stop.wait(0.5):
            self.peak = max(self.peak, pss_mb())


def args(parser=None):
    p = parser or argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("--rows-hz", default="", help="the rate of the rows, where the dataset states none")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1, help="measured epochs, after one that is not")
    p.add_argument("--video", default="one", choices=["one", "all", "none"])
    p.add_argument("--window", type=int, default=0, help="frames and rows a window; 0 = single")
    p.add_argument("--float32", action="store_true")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--duration", type=float, default=0, help="measured seconds, looping over epochs; 0 = whole epochs")
    p.add_argument("--warmup", type=int, default=5, help="batches before the window of --duration")
    p.add_argument("--prefetch", type=int, default=0, help="batches ahead (peers: a worker); 0 = the arm's own choice")
    p.add_argument("--shuffle", default="global", choices=["global", "pool", "file"])
    p.add_argument("--cache", default="", help="ram, a folder, or nothing")
    p.add_argument("--cache-budget", default="", help="bytes, or 4GiB; empty = the arm's default")
    p.add_argument("--memory-budget", default="", help="bytes, or 4GiB; empty = the arm's default")
    p.add_argument("--cache-format", default="", help="auto, yuv, rgb or encoded")
    p.add_argument("--pool-size", default="", help="bytes of resident frames of --shuffle pool, or 1GiB")
    p.add_argument("--pool-episodes", type=int, default=0, help="resident episodes of --shuffle pool; 0 = as memory allows")
    p.add_argument("--image-size", default="", help="HxW; empty = as stored")
    p.add_argument("--episodes", default="", help="positions, as 0-9,12; empty = all")
    p.add_argument("--drop-last", action="store_true")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world", type=int, default=1)
    p.add_argument("--barrier", default="", help="a folder where ranks meet before their first batch")
    p.add_argument("--step-ms", type=float, default=0, help="step of the consumer whose waiting is measured; 0 = 1.25 times the loader's own")
    p.add_argument("--check-frames", type=int, default=0, help="delivered frames to hand over for checking")
    p.add_argument("--frames-out", default="", help="where they go")
    p.add_argument("--order-out", default="", help="where the samples of finished epochs go")
    p.add_argument("--probes", type=int, default=0, help="samples of the single-threaded pass; 0 = none")
    a = p.parse_args()
    a.episode_list = positions(a.episodes)
    a.image_hw = tuple(int(x) for x in a.image_size.split("x")) if a.image_size else None
    return a


def positions(text):
    """"0-3,7" → [0, 1, 2, 3, 7]; "" → None."""
    if not text:
        return None
    out = []
    for part in text.split(","):
        lo, _, hi = part.partition("-")
        out += range(int(lo), int(hi or lo) + 1)
    return out


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


def meet(a):
    """Waits until every rank has come here."""
    if not a.barrier or a.world < 2:
        return
    with open(os.path.join(a.barrier, f"rank{a.rank}"), "w"):
        pass
    end = time.monotonic() + 300
    while any(not os.path.exists(os.path.join(a.barrier, f"rank{r}")) for r in range(a.world)):
        if time.monotonic() > end:
            raise SystemExit(f"rank {a.rank}: the other ranks did not come to the barrier within 300 s")
        time.sleep(0.002)


def measure(epoch, a, lengths, opened, extra=lambda: {}, queued=None, single=None, cameras=(), stats=None):
    """epoch(): a fresh iterator of batches (dicts with 'index' and 'episode_index').

    extra(): more entries of the outcome. The others are for --duration. queued(): batches that are ready and not taken. single(): an iterator of batches made by one thread in the same order.
    cameras: keys of frames, for --check-frames. stats(): counters, read at both ends of the window (a dict that JSON takes)."""
    if a.duration:
        return measure_window(epoch, a, lengths, opened, extra, queued, single, cameras, stats)
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
    finish(out)


def finish(out):
    print(json.dumps(out))
    sys.stdout.flush()


def forever(epoch, order, finished):
    """Batches of epoch after epoch, as (index, episode, batch); the first epoch's go to order, what each gave, as a list, to finished."""
    first = True
    while True:
        given = []
        for batch in epoch():
            index = batch["index"].numpy().astype("<i8").ravel()
            given.append(index)
            if first:
                order.add(index)
            yield index, batch["episode_index"].numpy().ravel(), batch
        if not given:
            raise SystemExit("an epoch without a batch")
        finished(given)
        first = False


class Order:
    """The hash of the first epoch's samples, as far as they came before the window closed."""

    def __init__(self):
        self.hash, self.samples, self.closed = hashlib.sha256(), 0, False

    def add(self, index):
        if not self.closed:
            self.hash.update(index.tobytes())
            self.samples += len(index)


def measure_window(epoch, a, lengths, opened, extra, queued, single, cameras, stats):
    """The window of --duration: opens when batch number warmup (counted from 0) arrives, closes at the first arrival at least duration later."""
    import numpy as np

    epochs = []
    order = Order()
    stream = forever(epoch, order, epochs.append)
    meet(a)
    began = time.perf_counter()
    first = None
    for _ in range(a.warmup + 1):
        index, episode, batch = next(stream)
        if first is None:
            first = time.perf_counter() - began
    queue, counters = [queued() if queued else None], [stats() if stats else None]
    print("#open", flush=True)  # between these two lines the harness counts what it sees from outside
    rchar, device, cpu = io_bytes("rchar"), io_bytes("read_bytes"), cpu_seconds()
    opened_at, start = time.time_ns(), time.perf_counter()
    arrivals, rows, wait, distinct, full, same, pairs, last, taken = [], [], 0.0, 0.0, 0, 0, 0, None, start
    while taken - start < a.duration:
        asked = time.perf_counter()
        index, episode, batch = next(stream)
        taken = time.perf_counter()
        wait += taken - asked
        arrivals.append(round((taken - start) * 1e6))
        rows.append(len(index))
        if len(index) == a.batch_size:
            distinct += len(np.unique(episode)) / len(index)
            full += 1
        same += int((episode[1:] == episode[:-1]).sum()) + (last is not None and int(episode[0] == last))
        pairs += len(episode) - 1 + (last is not None)
        last = episode[-1]
    seconds, order.closed = taken - start, True
    counters.append(stats() if stats else None)
    out = dict(samples=sum(rows), seconds=seconds, stats_open=counters[0], stats_close=counters[1], cpu_seconds=cpu_seconds() - cpu, import_s=opened[0], open_s=opened[1], first_batch_latency_s=first,
               order_sha256=order.hash.hexdigest(), order_samples=order.samples, shuffle_randomness_frac=distinct / max(full, 1),
               randomness_ideal=ideal(lengths, a.batch_size), neighbour_share=same / max(pairs, 1), window_open_unix_ns=opened_at, arrivals_us=arrivals, arrival_rows=rows, wait_s=wait,
               bytes_read=io_bytes("rchar") - rchar, device_read_bytes=io_bytes("read_bytes") - device, queue_batches=[*queue, queued() if queued else None],
               versions=versions())
    print("#measured", flush=True)
    out.update(extra())
    # A consumer of fixed step time: how much of its time goes on waiting.
    step = a.step_ms / 1e3 or 1.25 * seconds / len(rows)
    n, waited = max(3, min(len(rows), round(min(a.duration / 2, 15) / step))), 0.0
    begin = time.perf_counter()
    for _ in range(n):
        time.sleep(step)
        asked = time.perf_counter()
        next(stream)
        waited += time.perf_counter() - asked
    out["consumer_step_s"], out["wait_pct"] = step, 100 * waited / (time.perf_counter() - begin)
    if a.check_frames and a.frames_out and cameras:
        hand_over(stream, a, list(cameras))
    out["headspace_samples_per_s"] = headspace(index, episode)
    stream.close()
    out.update(coverage(epochs, sum(lengths), a))
    if single and a.probes:
        it, n, begin = single(), 0, None
        for batch in it:
            if begin is None:
                begin = time.perf_counter()  # the first batch pays for opening
                continue
            n += len(batch["index"])
            if n >= a.probes or time.perf_counter() - begin > 30:
                break
        if n:
            out["single_proc_samples_per_s"] = n / (time.perf_counter() - begin)
    out["total_time_s"] = time.perf_counter() - began
    finish(out)


def headspace(index, episode):
    """The rate of the window's own loop when the batch is there already."""
    import numpy as np

    n, same, begin = 0, 0, time.perf_counter()
    while time.perf_counter() - begin < 0.05:
        n += len(index)
        len(np.unique(episode))
        same += int((episode[1:] == episode[:-1]).sum())
    return n / (time.perf_counter() - begin)


def coverage(epochs, total, a):
    """How often each sample came in the epochs that were finished; counted after the window."""
    import numpy as np

    low, high, lost, doubled = None, None, 0, 0
    orders = open(a.order_out, "wb") if a.order_out else None
    for given in epochs:
        given = np.concatenate(given)
        if orders and orders.tell() < 1 << 28:
            orders.write(np.int64(len(given)).tobytes() + given.tobytes())
        _, counts = np.unique(given, return_counts=True)
        least = int(counts.min()) if len(counts) >= total else 0
        low, high = least if low is None else min(low, least), max(high or 0, int(counts.max()))
        lost += max(0, total - len(counts))
        doubled += len(given) - len(counts)
    if orders:
        orders.close()
    return dict(epochs_finished=len(epochs), coverage_min=low, coverage_max=high, samples_lost=lost, samples_doubled=doubled)


def hand_over(stream, a, cameras):
    """Writes frames as they were delivered: a line of JSON each, then its bytes."""
    rng, left = random.Random(a.seed), a.check_frames
    with open(a.frames_out, "wb") as f:
        for _ in range(1000):
            if left <= 0:
                return
            _, episode, batch = next(stream)
            for i in rng.sample(range(len(episode)), min(len(episode), 4, left)):
                key = rng.choice(cameras)
                pic, offset = batch[key][i], 0
                if pic.ndim == 4:
                    offset = rng.randrange(len(pic))
                    pic = pic[offset]
                raw = pic.contiguous().cpu().numpy()
                head = dict(key=key, episode=int(episode[i]), row=int(batch["frame_index"][i].reshape(-1)[0]), offset=offset, shape=list(raw.shape), dtype=str(raw.dtype))
                f.write(json.dumps(head).encode() + b"\n" + raw.tobytes())
                left -= 1


def versions():
    out = {"python": sys.version.split()[0]}
    for name in ("torch", "numpy", "lerobot", "torchcodec", "av", "robocache"):
        m = sys.modules.get(name)
        if m is not None:
            out[name] = str(getattr(m, "__version__", "unknown"))
    return out
