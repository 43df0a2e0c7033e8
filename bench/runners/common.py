"""What every Python runner that loads batches shares: its options, and the window.

# The protocol

A runner is a fresh process. It writes "#open" and "#measured" when its window opens and closes, and one JSON object as its last line: bench.Outcome. Between
the two lines the harness reads CPU, memory and bytes of the process tree. It counts the order by --order-out, which holds int64 numbers, little-endian: of each
batch its size, its sample numbers and its episodes; -1 where an epoch ends, -2 and -3 where the window opens and closes. It compares the frames of --frames-out
with a sequential decode: of each a line of JSON and its bytes. A runner that cannot do the work says so: {"error": "…"}.

Two windows: --epochs N whole epochs (as many more as fill --seconds) after --warm ones, or --duration S seconds after --warmup batches, from arrival to arrival."""
import argparse, json, math, os, random, sys, time

T0 = time.perf_counter()
MOST_EPOCHS = 5000
PACKAGES = ("torch", "torchvision", "torchcodec", "numpy", "lerobot", "datasets", "av", "h5py", "robomimic", "pyarrow", "robocache", "pandas", "zarr", "numcodecs", "mcap", "rosbags", "tensorflow", "tensorflow_datasets")


def args(*more):
    """The options of every runner, as bench.Workload gives them; more: functions that add a runner's own."""
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("--rows-hz", default="", help="the rate of the rows, where the dataset states none")
    for name, default in dict(batch_size=32, workers=2, epochs=1, warm=1, window=0, seed=0, warmup=5, prefetch=0, pool_episodes=0, rank=0, world=1, check_frames=0, probes=0).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    for name in ("seconds", "duration", "step_ms"):
        p.add_argument("--" + name.replace("_", "-"), type=float, default=0.0)
    for name in ("cache", "cache_budget", "memory_budget", "cache_format", "pool_size", "image_size", "episodes", "barrier", "frames_out", "order_out"):
        p.add_argument("--" + name.replace("_", "-"), default="")
    p.add_argument("--video", default="one", choices=["one", "all", "none"])
    p.add_argument("--shuffle", default="global", choices=["global", "pool", "file"])
    p.add_argument("--options", type=json.loads, default={}, help="more options of robocache.Loader")
    p.add_argument("--float32", action="store_true")
    p.add_argument("--drop-last", action="store_true")
    for f in more:
        f(p)
    a = p.parse_args()
    a.episode_list = positions(a.episodes)
    a.image_hw = tuple(int(x) for x in a.image_size.split("x")) if a.image_size else None
    return a


def positions(text):
    """"0-3,7" → [0, 1, 2, 3, 7]; "" → None."""
    out = []
    for part in text.split(",") if text else ():
        lo, _, hi = part.partition("-")
        out += range(int(lo), int(hi or lo) + 1)
    return out or None


def deltas(a, fps, keys):
    return {k: [i / fps for i in range(a.window)] for k in keys} if a.window else None


def meet(a):
    """Waits until every rank has come here."""
    if not a.barrier or a.world < 2:
        return
    open(os.path.join(a.barrier, f"rank{a.rank}"), "w").close()
    end = time.monotonic() + 300
    while any(not os.path.exists(os.path.join(a.barrier, f"rank{r}")) for r in range(a.world)):
        if time.monotonic() > end:
            raise SystemExit(f"rank {a.rank}: the other ranks did not come to the barrier within 300 s")
        time.sleep(0.002)


class Stream:
    """Batches of epoch after epoch; None stands between two. What came is kept, and written when all is over."""

    def __init__(self, epoch):
        self.epoch, self.log, self.it = epoch, [], self.batches()

    def batches(self):
        import numpy as np

        while True:
            given = 0
            for index, episode, batch in self.epoch():
                given += 1
                self.log.append((np.array(index, np.int64).ravel(), np.array(episode, np.int64).ravel()))
                yield index, episode, batch
            if not given:
                raise RuntimeError("an epoch without a batch")
            self.log.append(-1)
            yield None

    def next(self):
        """The next batch, past the ends of epochs."""
        return next(self.it) or next(self.it)

    def write(self, path):
        if path:
            with open(path, "wb") as f:
                for x in self.log:
                    f.write(x.to_bytes(8, "little", signed=True) if isinstance(x, int) else len(x[0]).to_bytes(8, "little") + x[0].tobytes() + x[1].tobytes())


def measure(epoch, a, opened, images=lambda batch, key: batch["image"], cameras=("",), row=None, single=None, stats=None, extra=dict):
    """epoch(): a fresh iterator of (sample numbers, their episodes, batch). opened: the entries of the outcome about opening. images(batch, camera): its frames.
    row(batch, i, sample): sample i's row in its episode. single(): an iterator of epoch's kind, made by one thread in the same order. stats(): the loader's
    counters. extra(): more entries of the outcome."""
    stream = Stream(epoch)
    out = dict(import_s=T_IMPORT[0], **opened)
    meet(a)
    began = time.perf_counter()
    last = began
    left = a.warmup + 1 if a.duration else max(a.warm, 1)
    while left:
        item = next(stream.it)
        out.setdefault("first_batch_latency_s", time.perf_counter() - began)
        if a.duration and item or not a.duration and item is None:
            left -= 1
            if left:
                last = time.perf_counter()
    epochs = 0 if a.duration else min(max(a.epochs, math.ceil(a.seconds / max(time.perf_counter() - last, 1e-6))), MOST_EPOCHS)
    out["stats_open"] = stats() if stats else None
    print("#open", flush=True)
    stream.log.append(-2)
    out["window_open_unix_ns"], start = time.time_ns(), time.perf_counter()
    arrivals, rows, wait, taken, done = [], [], 0.0, start, 0
    while taken - start < a.duration if a.duration else done < epochs:
        asked = time.perf_counter()
        item = next(stream.it)
        if item is None:
            done += 1
            if a.duration:
                item = next(stream.it)
        taken = time.perf_counter()
        wait += taken - asked
        if item:
            arrivals.append(taken)
            rows.append(len(item[0]))
    stream.log.append(-3)
    print("#measured", flush=True)
    seconds = taken - start
    out.update(samples=sum(rows), seconds=seconds, stats_close=stats() if stats else None, wait_s=wait, epochs=epochs, versions=versions())
    out.update(extra())
    if a.duration:
        out.update(arrivals_us=[round((t - start) * 1e6) for t in arrivals], arrival_rows=rows)
        step = a.step_ms / 1e3 or 1.25 * seconds / len(rows)
        out.update(consumer_step_s=step, wait_pct=waiting(stream, step, max(3, min(len(rows), round(min(a.duration / 2, 15) / step)))))
    if a.check_frames and a.frames_out and cameras:
        hand_over(stream, a, cameras, images, row)
    if a.duration:
        out["headspace_samples_per_s"] = headspace(stream.next())
        if single and a.probes:
            out["single_proc_samples_per_s"] = alone(single(), a.probes)
    stream.write(a.order_out)
    out["total_time_s"] = time.perf_counter() - began
    print(json.dumps(out), flush=True)


def waiting(stream, step, n):
    """A consumer of fixed step time: the share of its time that goes on waiting, in percent."""
    begin, waited = time.perf_counter(), 0.0
    for _ in range(n):
        time.sleep(step)
        asked = time.perf_counter()
        stream.next()
        waited += time.perf_counter() - asked
    return 100 * waited / (time.perf_counter() - begin)


def headspace(item):
    """The rate of the window's own loop when the batch is there already."""
    stream, n, begin = Stream(lambda: iter([item])), 0, time.perf_counter()
    while time.perf_counter() - begin < 0.05:
        n += len(stream.next()[0])
    return n / (time.perf_counter() - begin)


def alone(it, probes):
    """Samples a second of one thread, after its first batch, which pays for opening."""
    next(it)
    n, begin = 0, time.perf_counter()
    for index, _, _ in it:
        n += len(index)
        if n >= probes or time.perf_counter() - begin > 30:
            break
    return n / (time.perf_counter() - begin) if n else None


def hand_over(stream, a, cameras, images, row):
    """Writes frames as they were delivered: a line of JSON each, then its bytes."""
    import numpy as np

    rng, left = random.Random(a.seed), a.check_frames
    with open(a.frames_out, "wb") as f:
        for _ in range(1000):
            if left <= 0:
                return
            index, episode, batch = stream.next()
            for i in rng.sample(range(len(episode)), min(len(episode), 16, left)):
                key = rng.choice(cameras)
                image, offset = images(batch, key)[i], 0
                if image.ndim == 4:
                    offset = rng.randrange(len(image))
                    image = image[offset]
                raw = np.ascontiguousarray(image.cpu().numpy() if hasattr(image, "cpu") else image)
                at = row(index, i) if row else int(batch["frame_index"][i].reshape(-1)[0])
                f.write(json.dumps(dict(key=key, episode=int(episode[i]), row=at, offset=offset, shape=list(raw.shape), dtype=str(raw.dtype))).encode() + b"\n" + raw.tobytes())
                left -= 1


def versions():
    from importlib.metadata import PackageNotFoundError, version

    out = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        if name in sys.modules:
            try:
                out[name] = version(name)
            except PackageNotFoundError:
                out[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return out


T_IMPORT = [0.0]


def imported():
    """Says that the runner has imported what it needs."""
    T_IMPORT[0] = time.perf_counter() - T0


def run(main):
    """A runner's failure is a result, in its own words."""
    try:
        main()
    except Exception as e:
        words = str(e).strip().splitlines() or ["no message"]
        print(json.dumps(dict(error=f"{type(e).__name__}: {words[0][:300]}", versions=versions())), flush=True)


def torch_loader(ds, a, **more):
    """torch's DataLoader at the setting that is best for map-style sets: persistent workers, one torch thread each."""
    import torch

    kw = dict(persistent_workers=True, prefetch_factor=a.prefetch or 4, worker_init_fn=lambda _: torch.set_num_threads(1)) if a.workers else {}
    return torch.utils.data.DataLoader(ds, batch_size=a.batch_size, num_workers=a.workers, **kw, **more)
