"""Functions that all Python runners share:

the job, the measured window, and the output.

# Protocol

A runner is a fresh process. Its only argument is its job, a JSON object (bench.Workload). It prints
"#open" and "#measured" when its window opens and closes, and a JSON object on its last line
(bench.Outcome). Between the two lines the harness reads CPU, memory and bytes of the process tree.
A runner that cannot do the work prints {"error": "…"}.

The runner writes its order to order_out, as little-endian int64 numbers. Each batch has its size,
its sample numbers and its episodes. -1 marks the end of an epoch; -2 and -3 mark where the window
opens and closes. The runner also writes delivered frames to frames_out, each as a line of JSON and
its bytes. The harness checks the order, and compares the frames with a sequential decode.

There are two kinds of windows. One consists of whole epochs after `warm` warm-up epochs, with more
epochs if needed to fill `seconds`. The other lasts duration_s seconds after warmup_batches batches,
and begins and ends with the arrival of a batch.
"""

import json, math, os, random, resource, sys, time

T0 = time.perf_counter()
MOST_EPOCHS = 5000
PACKAGES = (
    "torch",
    "torchvision",
    "torchcodec",
    "numpy",
    "lerobot",
    "datasets",
    "av",
    "h5py",
    "robomimic",
    "pyarrow",
    "robocache",
    "pandas",
    "zarr",
    "numcodecs",
    "mcap",
    "rosbags",
    "tensorflow",
    "tensorflow_datasets",
    "jax",
    "pillow",
)


class Job(dict):
    """The job by name (bench.Workload). A missing field is None."""

    __getattr__ = dict.get


def job():
    a = Job(json.loads(sys.argv[1]))
    a.update(a.more or a.train or {})
    return a


def positions(text):
    """Parses indices: "0-3,7" → [0, 1, 2, 3, 7]; an empty text → None."""
    ends = [part.partition("-") for part in text.split(",")] if text else ()
    return [i for lo, _, hi in ends for i in range(int(lo), int(hi or lo) + 1)] or None


def image_hw(a):
    return tuple(int(x) for x in a.image_size.split("x")) if a.image_size else None


def loader_keywords(flat):
    """Returns the keywords of robocache.Loader for options with engine names.

    Options that belong to a group are collected in the dataclass of the group.
    """
    import dataclasses

    from robocache import options

    places = {}
    for group, cls in options.GROUPS.items():
        places.update(
            {options.engine_name(group, f.name): (group, f.name) for f in dataclasses.fields(cls)}
        )
    plain = {k: v for k, v in flat.items() if k not in places}
    groups = {}
    for name in flat.keys() - plain.keys():
        group, field = places[name]
        groups.setdefault(group, {})[field] = flat[name]
    return {**plain, **{group: options.GROUPS[group](**fields) for group, fields in groups.items()}}


def window_offsets(a, fps, keys):
    return {k: [i / fps for i in range(a.window)] for k in keys} if a.window else None


def meet_ranks(a):
    """Blocks until every rank has reached the barrier."""
    if not a.barrier or (a.world or 1) < 2:
        return
    open(os.path.join(a.barrier, f"rank{a.rank or 0}"), "w").close()
    end = time.monotonic() + 300
    while any(not os.path.exists(os.path.join(a.barrier, f"rank{r}")) for r in range(a.world)):
        if time.monotonic() > end:
            raise SystemExit(
                f"rank {a.rank or 0}: the other ranks did not come to the barrier within 300 s"
            )
        time.sleep(0.002)


class Stream:
    """The batches of successive epochs, with None at the end of each epoch.

    The order is kept in memory and written at the end. The Go counterpart is consumer in window.go.
    """

    def __init__(self, epoch):
        self.epoch, self.log, self.it, self.first = epoch, [], self.batches(), None

    def batches(self):
        while True:
            given = 0
            for index, episode, batch in self.epoch():
                given += 1
                self.log.append((logged_copy(index), logged_copy(episode)))
                yield index, episode, batch
            if not given:
                raise RuntimeError("an epoch without a batch")
            self.log.append(-1)
            yield None

    def take(self, done, step=0):
        """Takes items until done(item, now) is true.

        Returns the seconds spent waiting.

        Sleeps for step seconds before each batch.
        """
        waited, item = 0.0, True
        while True:
            if step and item:
                time.sleep(step)
            asked = time.perf_counter()
            item = next(self.it)
            now = time.perf_counter()
            self.first = self.first or now
            waited += now - asked
            if done(item, now):
                return waited

    def next(self):
        """Returns the next batch and ignores the ends of epochs."""
        return next(self.it) or next(self.it)

    def write(self, path):
        if path:
            with open(path, "wb") as f:
                for x in self.log:
                    f.write(
                        x.to_bytes(8, "little", signed=True)
                        if isinstance(x, int)
                        else len(x[0]).to_bytes(8, "little")
                        + to_int64(x[0]).tobytes()
                        + to_int64(x[1]).tobytes()
                    )


def to_int64(x):
    """Returns x, an array, a list or a tensor of any device, as int64 on the host."""
    import numpy as np

    return np.array(x.cpu() if hasattr(x, "cpu") else x, np.int64).ravel()


def logged_copy(x):
    """Returns a copy of x without waiting for the device."""
    return x.clone() if getattr(x, "is_cuda", False) else to_int64(x)


def measure(
    epoch,
    a,
    opened=None,
    images=lambda batch, key: batch["image"],
    cameras=("",),
    row=None,
    single=None,
    stats=lambda: None,
    extra=dict,
    synchronise=lambda: None,
):
    """Measures a loader and prints the outcome.

    Args:
        epoch: returns a new iterator of (sample numbers, their episodes, batch).
        a: the job.
        opened: entries of the outcome about opening. open_s is counted from imported().
        images: (batch, camera) → the frames of the batch.
        cameras: keys of the cameras.
        row: (sample numbers, i) → row of sample i in its episode.
        single: like epoch, but on one thread, in the same order.
        stats: returns the counters of the loader.
        extra: returns more entries of the outcome.
        synchronise: blocks until the device of the batches is idle.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # the same in every runner
    stream, whole = Stream(epoch), not a.duration_s
    out = dict(
        dict(import_s=T_IMPORT[0], open_s=time.perf_counter() - T0 - T_IMPORT[0]), **opened or {}
    )
    meet_ranks(a)
    began = time.perf_counter()
    # number of epochs or batches
    left, ends = max(a.warm or 1, 1) if whole else (a.warmup_batches or 0) + 1, [began]

    def warm(item, now):
        if (item is None) == whole:
            ends.append(now)
        return len(ends) > left

    stream.take(warm)
    epochs = (
        min(
            max(a.epochs, math.ceil((a.seconds or 0) / max(ends[-1] - ends[-2], 1e-6))), MOST_EPOCHS
        )
        if whole
        else 0
    )
    synchronise()
    out.update(first_batch_latency_s=stream.first - began, stats_open=stats())
    print("#open", flush=True)
    stream.log.append(-2)
    out["window_open_unix_ns"], start, arrivals, rows, ends = (
        time.time_ns(),
        time.perf_counter(),
        [],
        [],
        [],
    )

    def window(item, now):
        last = len(ends) + (not item) == epochs if whole else item and now - start >= a.duration_s
        if last:
            synchronise()
            now = time.perf_counter()
        if item:
            arrivals.append(now - start)
            rows.append(len(item[0]))
        else:
            ends.append(now - start)
        return last

    wait = stream.take(window)
    stream.log.append(-3)
    print("#measured", flush=True)
    seconds = (ends if whole else arrivals)[-1]
    out.update(
        samples=sum(rows),
        seconds=seconds,
        stats_close=stats(),
        wait_s=wait,
        epochs=epochs,
        versions=versions(),
    )
    out.update(extra())
    if not whole:
        out.update(arrivals_us=[round(t * 1e6) for t in arrivals], arrival_rows=rows)
        step = (a.step_ms or 0) / 1e3 or 1.25 * seconds / len(rows)
        left, begin, taken = (
            max(3, min(len(rows), round(min(a.duration_s / 2, 15) / step))),
            time.perf_counter(),
            [],
        )
        wait = stream.take(lambda item, _: item and (taken.append(1) or len(taken) == left), step)
        out.update(consumer_step_s=step, wait_pct=100 * wait / (time.perf_counter() - begin))
    if a.check_frames and a.frames_out and cameras:
        write_frames(stream, a, cameras, images, row)
    if not whole:
        if single and a.probes:
            alone = Stream(single)
            alone.next()  # opens the files
            out["single_proc_samples_per_s"] = sample_rate(alone, a.probes, 30)
    stream.write(a.order_out)
    out["total_time_s"] = time.perf_counter() - began
    print(json.dumps(out), flush=True)


def sample_rate(stream, samples, seconds):
    """Returns samples per second, over the given samples or seconds, whichever ends first."""
    n, begin = 0, time.perf_counter()
    while n < samples and time.perf_counter() - begin < seconds:
        n += len(stream.next()[0])
    return n / (time.perf_counter() - begin)


def write_frames(stream, a, cameras, images, row):
    """Writes delivered frames, each as a line of JSON and its bytes."""
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
                f.write(
                    json.dumps(
                        dict(
                            key=key,
                            episode=int(episode[i]),
                            row=at,
                            offset=offset,
                            shape=list(raw.shape),
                            dtype=str(raw.dtype),
                        )
                    ).encode()
                    + b"\n"
                    + raw.tobytes()
                )
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


def cpu_seconds():
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(r.ru_utime + r.ru_stime for r in both)


def passes(once, seconds=0, **facts):
    """Measures whole passes until they fill the seconds, but at least one.

    once() runs a pass and returns its number of samples.
    """
    print("#open", flush=True)
    used, start, samples, epochs = cpu_seconds(), time.perf_counter(), 0, 0
    while not epochs or time.perf_counter() - start < seconds:
        samples, epochs = samples + once(), epochs + 1
    out = dict(
        samples=samples,
        epochs=epochs,
        seconds=time.perf_counter() - start,
        cpu_seconds=cpu_seconds() - used,
        import_s=T_IMPORT[0],
        versions=versions(),
        **facts,
    )
    print("#measured", flush=True)
    print(json.dumps(out), flush=True)


T_IMPORT = [0.0]


def imported():
    """Records that all imports are done."""
    T_IMPORT[0] = time.perf_counter() - T0


def run(main):
    """Calls main(job). An exception becomes an outcome with an error."""
    try:
        main(job())
    except Exception as e:
        words = str(e).strip().splitlines() or ["no message"]
        print(
            json.dumps(dict(error=f"{type(e).__name__}: {words[0][:300]}", versions=versions())),
            flush=True,
        )


def torch_loader(ds, a, **more):
    """Returns a DataLoader with the best settings for map-style datasets.

    These are persistent workers with one torch thread each.
    """
    import torch

    kw = (
        dict(
            persistent_workers=True,
            prefetch_factor=a.prefetch or 4,
            worker_init_fn=lambda _: torch.set_num_threads(1),
        )
        if a.workers
        else {}
    )
    return torch.utils.data.DataLoader(
        ds, num_workers=a.workers, **{"batch_size": a.batch_size, **kw, **more}
    )
