"""Trains a policy on the batches of one loader and measures where the time goes.

The runner in the job (bench.TrainJob) is one of these:

plan             writes the order of the epochs, the range of the numbers, and reference batches that
                 are read without a loader; runs once before the others
headspace        one batch that is already on the device
h2d              the same batch, copied from page-locked memory in each step
torch            train_data.torch_batches
lerobot          LeRobot's dataset class
robocache        Loader(device=…), with the options pool, cache, decode, …
torchcodec-cuda  see train_video.py
dali             see train_video.py

All runners share the weights (checked by hash), the order, the preprocessing and the network. Only
the source of the batches differs. torchrun starts several ranks.

The host is at most two steps ahead of the device and sleeps while it waits. Nothing else in the
loop synchronizes. CUDA events measure device times: e0 before next(), e1 when the batch is there,
e2 after preprocessing, e3 after the loss, e4 after backward, e5 after the optimizer. On a CPU, the
host clock is used.
"""

import contextlib, ctypes, hashlib, json, os, signal, time

from . import common

import numpy as np
import torch
from . import train_data, train_models, train_video

PARTS = ("starve", "preprocess", "forward", "backward", "optimiser")
KEPT = 200  # number of losses and sums in the outcome
VIDEO = ("torchcodec", "dali")  # peers in train_video.py


def hash_tensors(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(memoryview(t.detach().cpu().contiguous().view(torch.uint8).numpy()).cast("B"))
    return h.hexdigest()


def map_tensors(x, f):
    return {k: map_tensors(v, f) for k, v in x.items()} if isinstance(x, dict) else f(x)


def tensor_leaves(x):
    return [t for v in x.values() for t in tensor_leaves(v)] if isinstance(x, dict) else [x]


class Ahead:
    """Copies each batch to the device one step ahead, on its own stream.

    On a CPU, batches are passed through.
    """

    def __init__(self, batches, device):
        self.batches, self.device, self.copies = batches, device, []

    def __iter__(self):
        if self.device == "cpu":
            yield from self.batches
            return
        side, waiting = torch.cuda.Stream(self.device), None
        for b in self.batches:
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.cuda.stream(side):
                began.record(side)
                b = map_tensors(b, lambda t: t.to(self.device, non_blocking=True))
                ended.record(side)
            self.copies.append((began, ended))
            if waiting:
                yield self.arrived(*waiting)
            waiting = b, ended
        if waiting:
            yield self.arrived(*waiting)

    def arrived(self, batch, copied):
        now = torch.cuda.current_stream()
        now.wait_event(copied)
        for t in tensor_leaves(batch):
            t.record_stream(now)
        return batch


class Preprocess:
    """Preprocesses batches on the device, in the same way for all runners.

    Numbers are scaled to [-1, 1]. Frames become float in [-1, 1], and are resized if the loader has
    not resized them.
    """

    def __init__(self, p, device, size, dtype):
        self.size, self.dtype = size, dtype
        r = {k: torch.from_numpy(v).to(device) for k, v in p.ranges.items()}
        self.low = {k: r[k + "_min"] for k in ("state", "action")}
        self.scale = {
            k: torch.where(
                r[k + "_max"] > r[k + "_min"],
                2 / (r[k + "_max"] - r[k + "_min"]).clamp_min(1e-8),
                torch.zeros_like(r[k + "_min"]),
            )
            for k in self.low
        }

    def __call__(self, b):
        out = {k: (b[k] - self.low[k]) * self.scale[k] - 1 for k in ("state", "action")}
        out["action_is_pad"] = b["action_is_pad"]
        if "frames" in b:
            out["frames"] = {c: self.frames(f) for c, f in b["frames"].items()}
        return out

    def frames(self, f):
        n, t = f.shape[:2]
        f = (
            f.flatten(0, 1)
            .to(self.dtype)
            .contiguous(memory_format=torch.channels_last)
            .div_(127.5)
            .sub_(1)
        )
        if self.size and tuple(f.shape[-2:]) != tuple(self.size):
            f = torch.nn.functional.interpolate(f, self.size, mode="bilinear", antialias=True)
        return f.unflatten(0, (n, t))


class Clock:
    """Records the times of a step as CUDA events or host times.

    The host waits for the second last step, so that it is at most two steps ahead.
    """

    def __init__(self, device, timing):
        self.cuda, self.timing, self.steps = device != "cpu", timing, []

    def mark(self):
        if self.cuda:
            e = torch.cuda.Event(enable_timing=self.timing, blocking=True)
            e.record()
        else:
            e = time.perf_counter()
        self.steps[-1].append(e)

    def step(self):
        if self.cuda and len(self.steps) >= 2:
            self.steps[-2][-1].synchronize()
        self.steps.append([])

    def parts(self):
        """Returns the milliseconds of each part of each step.

        starve is the time from the end of the previous optimizer step to the arrival of the batch.
        """
        if not self.timing:
            return np.zeros((0, len(PARTS)))
        gap = (lambda a, b: a.elapsed_time(b)) if self.cuda else (lambda a, b: (b - a) * 1e3)
        return np.array(
            [
                [gap(before[-1], now[1]), *(gap(x, y) for x, y in zip(now[1:], now[2:]))]
                for before, now in zip(self.steps, self.steps[1:])
            ]
        )


def time_stream_waits(pairs):
    """Records events around each wait of the compute stream for another stream.

    They measure the time that the compute stream waits for copies of Ahead or of the Loader.
    """
    wait = torch.cuda.Stream.wait_event

    def timed(stream, event):
        if stream != torch.cuda.current_stream():  # a wait of a copy stream, to reuse memory
            return wait(stream, event)
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record(stream)
        wait(stream, event)
        pair[1].record(stream)
        pairs.append(pair)

    torch.cuda.Stream.wait_event = timed


def open_batches(a, p, ranks, stack):
    """Returns an iterator of batches on the device, the copies of an Ahead, and the Loader or None."""
    if a.runner.startswith("robocache"):
        if a.cache == "disk":
            import tempfile

            a.cache = ranks.same(
                lambda: stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="disk-cache-", dir=os.path.dirname(a.plan))
                )
            )
        batches, loader = train_data.robocache_batches(a.uri, p, a, a.cache)
        return batches, [], loader
    if a.runner.startswith(VIDEO):
        return train_video.batches(a, p, stack), [], None
    if a.runner in ("torch", "lerobot"):
        batches = Ahead(
            (train_data.torch_batches if a.runner == "torch" else train_data.lerobot_batches)(
                a.uri, p, a
            ),
            a.device,
        )
    else:
        engine, loader = train_data.robocache_batches(a.uri, p, a)
        first = next(engine)
        loader.close()
        if a.runner == "headspace" or a.device == "cpu":
            return iter(lambda: first, None), [], None
        first = map_tensors(first, lambda t: t.cpu().pin_memory())
        batches = Ahead(iter(lambda: first, None), a.device)
    return iter(batches), batches.copies, None


class Graph:
    """Runs forward and backward of a step as one CUDA graph with a single launch.

    Then a small network is not limited by a host that launches slowly or is shared.
    """

    EAGER = 3  # steps before the capture, in which cuDNN chooses its algorithms

    def __init__(self, step, device):
        self.step, self.draw, self.graph = step, torch.Generator(device), None

    def __call__(self, ready, seed, mark):
        if self.graph is None:
            self.ready, self.graph = map_tensors(ready, torch.clone), torch.cuda.CUDAGraph()
            self.graph.register_generator_state(self.draw)
            # threads of a loader may allocate during the capture
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.loss = self.step(self.ready, self.draw, lambda: None)
        for mine, t in zip(tensor_leaves(self.ready), tensor_leaves(ready)):
            mine.copy_(t)
        self.draw.manual_seed(seed)
        self.graph.replay()
        mark()
        mark()
        return self.loss


class Ranks:
    """The processes of a run, which torchrun starts.

    Each process has its share of the cores. A single process gets the same share.
    """

    def __init__(self, a):
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        a.rank, a.world = self.rank, self.world
        if self.world > 1 and (libc := ctypes.CDLL(None)) and hasattr(libc, "prctl"):
            # torchrun starts each rank in a new session; this makes the rank end with torchrun
            libc.prctl(1, signal.SIGKILL)
        cores, n = sorted(os.sched_getaffinity(0)), a.gpus or 1
        if n > 1:
            os.sched_setaffinity(
                0, cores[self.rank * len(cores) // n : (self.rank + 1) * len(cores) // n] or cores
            )

    def join(self, a, stack):
        if self.world > 1:
            torch.distributed.init_process_group("nccl" if a.device != "cpu" else "gloo")
            stack.callback(torch.distributed.destroy_process_group)

    def meet(self):
        if self.world > 1:
            torch.distributed.barrier()

    def same(self, make):
        """Calls make on the first rank and returns its result on all ranks."""
        if self.world == 1:
            return make()
        made = [make() if self.rank == 0 else None]
        torch.distributed.broadcast_object_list(made)
        return made[0]

    def gather(self, mine):
        """Returns the values of all ranks on the first rank, and None on the others."""
        if self.world == 1:
            return [mine]
        all_ = [None] * self.world
        torch.distributed.all_gather_object(all_, mine)
        return all_ if self.rank == 0 else None

    def say(self, line):
        if self.rank == 0:
            print(line, flush=True)


def train(a, ranks, stack):
    p = train_data.Plan(a.plan)
    cuda = a.device != "cpu"
    if cuda:
        a.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(a.device)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = (
            a.precision == "tf32"
        )
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    net = train_models.make(
        a.model, len(p.ranges["state_min"]), len(p.ranges["action_min"]), p.spec["cameras"], a.tiny
    )
    weights, parameters = hash_tensors(net.parameters()), train_models.count(net)
    net = net.to(a.device, memory_format=torch.channels_last)
    opt, schedule, ema = train_models.optimiser(
        a.model, net, a.warmup_batches + a.steps, fused=cuda
    )
    ranks.join(a, stack)
    model = (
        torch.nn.parallel.DistributedDataParallel(net, device_ids=[a.device] if cuda else None)
        if ranks.world > 1
        else net
    )
    if a.compile:
        model = torch.compile(model)
    half = torch.autocast(a.device.split(":")[0], torch.bfloat16, enabled=a.precision == "bf16")

    def forward_backward(ready, draw, mark):
        with half:
            loss = model(ready, draw)
        mark()
        loss.backward()
        mark()
        return loss.detach()

    graph = Graph(forward_backward, a.device) if a.graph else None
    prepare = Preprocess(
        p,
        a.device,
        common.image_hw(a),
        torch.bfloat16 if a.precision == "bf16" and cuda else torch.float32,
    )
    common.imported()
    began = time.perf_counter()
    batches, copies, loader = open_batches(a, p, ranks, stack)
    most, epoch = (
        p.orders.shape[0] * (p.orders.shape[2] // a.batch_size),
        p.orders.shape[2] // a.batch_size,
    )
    # A cache fills in one epoch. A RAM cache belongs to one rank, which reads another share of the
    # set in each epoch. After six epochs, it contains 98 % of the set with two ranks.
    warm = max(
        a.warmup_batches,
        epoch * (6 if a.cache == "ram" and ranks.world > 1 else 1) if a.cache else 0,
    )
    losses, sums, ids = (
        torch.zeros(most, device=a.device),
        torch.zeros(most, 3, dtype=torch.float64, device=a.device),
        [],
    )
    clock, waits, first, kept, k, opened = Clock(a.device, a.timing != "off"), [], None, {}, 0, 0.0
    stalls, marks = [], []
    if cuda and clock.timing:
        time_stream_waits(stalls)
    while k < most and (
        k < warm + a.steps or ranks.world == 1 and time.perf_counter() - opened < (a.seconds or 0)
    ):
        if k == warm:
            if cuda:
                torch.cuda.synchronize()
            ranks.meet()
            # read before the window, because it takes up to 30 ms
            stats = loader.stats() if loader else None
            clock.steps, waits, opened, copied, stalled = (
                clock.steps[-1:],
                [],
                time.perf_counter(),
                len(copies),
                len(stalls),
            )
            began_ns = time.time_ns()
            ranks.say("#open")
        clock.step()
        asked = time.perf_counter()
        clock.mark()
        b = next(batches)
        waits.append(time.perf_counter() - asked)
        clock.mark()
        first = first or time.perf_counter() - began
        if a.runner not in ("headspace", "h2d"):
            ids.append(b["index"].clone())
            if k >= warm and k % epoch == 0:
                marks.append(time.time_ns())
            if k in train_data.COMPARED:
                kept[k] = map_tensors(p.part(b), lambda t: t.clone())
        ready = prepare(b)
        sums[k] = torch.stack(
            [
                ready["state"].mean(dtype=torch.float64),
                ready["action"].mean(dtype=torch.float64),
                b["action_is_pad"].double().mean(),
            ]
        )
        clock.mark()
        if not graph or k <= graph.EAGER:  # the captured graph overwrites its gradients
            opt.zero_grad(set_to_none=True)
        draw = a.seed * 1_000_003 + k * ranks.world + ranks.rank
        # Dropout uses torch's global generator, which a DataLoader advances.
        if a.model == "act":
            torch.manual_seed(draw)
        if graph and k >= graph.EAGER:
            loss = graph(ready, draw, clock.mark)
        else:
            loss = forward_backward(ready, torch.Generator(a.device).manual_seed(draw), clock.mark)
        opt.step()
        if schedule:
            schedule.step()
        if ema:
            ema.update(k)
        losses[k] = loss
        if a.loop == "sync":
            loss.item()
        clock.mark()
        k += 1
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - opened
    ranks.say("#measured")
    if k < warm + a.steps:
        raise RuntimeError(
            f"the set is too small: its plan has {most} steps, but {warm} warm-up steps and "
            f"{a.steps} measured steps were requested"
        )
    if wrong := (~torch.isfinite(losses[:k])).nonzero().flatten().tolist():
        raise RuntimeError(
            f"the loss of step {wrong[0]} is {float(losses[wrong[0]])}: the set contains NaN or "
            "infinite numbers (see robocache doctor), or the training diverges"
        )
    parts, steps = clock.parts(), k - warm
    mine = dict(
        ids=np.stack([i.cpu().numpy() for i in ids]) if ids else None,
        rate=steps * a.batch_size / seconds,
        starve=float(parts[:, 0].mean()) if len(parts) else None,
    )
    out = dict(
        params=parameters,
        weights_sha256=weights,
        window_steps=steps,
        load_wait_ms=1e3 * float(np.mean(waits)),
        losses=losses[: min(k, KEPT)].tolist(),
        loss_first=float(losses[0]),
        loss_last=float(losses[k - 1]),
        sums=sums[: min(k, KEPT)].tolist(),
        epochs_unix_ns=marks,
    )
    if len(parts):
        out.update(
            {n + "_ms": float(v) for n, v in zip(PARTS, parts.mean(0))},
            starve_p50_ms=float(np.median(parts[:, 0])),
            steps_ms=np.round(parts[:: max(1, len(parts) // 500)], 3).tolist(),
        )
        out.update({f"step_ms_p{q}": float(np.percentile(parts.sum(1), q)) for q in (50, 95, 99)})
    mean = lambda pairs: float(np.mean([x.elapsed_time(y) for x, y in pairs]))  # noqa: E731
    if copies[copied:]:
        out["h2d_ms"] = mean(copies[copied:][:steps])
        out["h2d_gb_per_s"] = (
            sum(t.numel() * t.element_size() for t in tensor_leaves(b)) / out["h2d_ms"] / 1e6
        )
    # RoboCache does not wait for completed copies, so there may be no waits
    if stalls[stalled:] or loader and cuda and clock.timing:
        out["h2d_wait_ms"] = sum(x.elapsed_time(y) for x, y in stalls[stalled:]) / steps
    if cuda:
        out.update(
            device_uuid="GPU-"
            + str(torch.cuda.get_device_properties(a.device).uuid).removeprefix("GPU-"),
            gpu_mem_gb=torch.cuda.max_memory_allocated() / 1e9,
        )
    everyone = ranks.gather(mine)
    if not everyone:
        return
    if kept:
        kept = {i: {n: t.cpu().numpy() for n, t in d.items()} for i, d in kept.items()}
        out.update(
            p.near(kept, train_data.plain(a.uri, p)[0])
            if a.runner.startswith(VIDEO)
            else p.compare(kept)
        )
    result = dict(
        samples=steps * a.batch_size * ranks.world,
        seconds=seconds,
        window_open_unix_ns=began_ns,
        first_batch_latency_s=first,
        versions=common.versions(),
        train=out,
    )
    if ids:
        given = np.stack([x["ids"] for x in everyone], 1)  # [step, rank, sample]
        result["order_sha256"] = hashlib.sha256(
            given[: a.warmup_batches + a.steps].tobytes()
        ).hexdigest()
        out.update(dict(own_order=True) if a.runner.startswith("dali") else p.covered(given))
    if ranks.world > 1:
        out.update(
            rank_samples_per_s=[x["rate"] for x in everyone],
            rank_starve_ms=[x["starve"] for x in everyone],
        )
    if loader:
        result.update(stats_open=stats, stats_close=loader.stats())
    print(json.dumps(result), flush=True)


def main(a):
    if a.runner == "plan":
        return print(json.dumps(train_data.plan(a)))
    with contextlib.ExitStack() as stack:
        ranks = Ranks(a)
        try:
            train(a, ranks, stack)
        except Exception as e:
            if ranks.world == 1:
                raise
            if "closed by peer" in str(e) or "NCCL" in str(e):
                time.sleep(5)  # another rank failed first; let it report its error first
            message = (str(e).splitlines() or [""])[0][:300]
            error = f"rank {ranks.rank}: {type(e).__name__}: {message}"
            print(json.dumps(dict(error=error)), flush=True)
            os._exit(1)


if __name__ == "__main__":  # spawned workers import this file
    common.run(main)
