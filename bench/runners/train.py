"""Trains a policy on the batches of one loader, and says where the time went.

    train.py ROOT --runner plan --plan FILE …      # once: the order and the ranges that all runners use
    train.py ROOT --runner robocache --plan FILE … # one run: "#open", "#measured", and one JSON object as its last line
    train.py A --runner compare --with B           # two runs' dumped batches: how many differ

All runners share the weights (hashed), the order, one preprocessing function, and the network; only where batches come from differs:
headspace  one batch that is on the device already        h2d        that batch, copied from page-locked memory at each step
torch      train_data.torch_batches                       lerobot    LeRobot's own class
robocache  Loader(device=…); --options pool, cache, …

The host is at most two steps ahead of the device and waits for it without spinning; nothing in the loop synchronises. Times of the device are of CUDA events:
e0 before next(), e1 the batch is there, e2 preprocessed, e3 loss, e4 backward, e5 optimiser. On a CPU they are the clock's."""
import argparse, contextlib, hashlib, json, os, tempfile, time

import common

import numpy as np
import torch
import train_data, train_models

PARTS = ("starve", "preprocess", "forward", "backward", "optimiser")
DUMPED = (0, 1, 10, 100)


def options():
    p = argparse.ArgumentParser()
    p.add_argument("root")
    for name, default in dict(runner="robocache", model="resnet18", plan="", device="cuda", precision="bf16", loop="async", timing="on", shuffle="global", dump="", image_size="", cache="").items():
        p.add_argument("--" + name, default=default) if name != "image_size" else p.add_argument("--image-size", default="")
    p.add_argument("--with", dest="other", default="")
    for name, default in dict(batch_size=64, steps=200, warmup=40, workers=8, threads=0, prefetch=0, seed=42, rows=250).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    p.add_argument("--seconds", type=float, default=10.0)
    p.add_argument("--options", type=json.loads, default={}, help="more options of robocache.Loader")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--small", action="store_true", help="networks that a CPU trains")
    a = p.parse_args()
    a.rank, a.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if a.device == "cuda":
        a.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    a.image_hw = tuple(int(x) for x in a.image_size.split("x")) if a.image_size else None
    return a


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(memoryview(t.detach().cpu().contiguous().view(torch.uint8).numpy()).cast("B"))
    return h.hexdigest()


def moved(x, device):
    if isinstance(x, dict):
        return {k: moved(v, device) for k, v in x.items()}
    return x.to(device, non_blocking=True)


def pinned(x):
    return {k: pinned(v) for k, v in x.items()} if isinstance(x, dict) else x.cpu().pin_memory()


def leaves(x):
    return [t for v in x.values() for t in leaves(v)] if isinstance(x, dict) else [x]


def ahead(batches, device):
    """Batches on the device, each copied one step ahead on a stream of its own. A CPU's batches pass."""
    if device == "cpu":
        yield from batches
        return
    side, waiting = torch.cuda.Stream(device), None
    for b in batches:
        with torch.cuda.stream(side):
            b = moved(b, device), torch.cuda.Event()
            b[1].record(side)
        if waiting:
            yield arrived(waiting)
        waiting = b
    if waiting:
        yield arrived(waiting)


def arrived(item):
    now = torch.cuda.current_stream()
    now.wait_event(item[1])
    for t in leaves(item[0]):
        t.record_stream(now)
    return item[0]


class Preprocess:
    """The same for every runner, on the device: numbers onto [-1, 1], frames to float in [-1, 1], resized where the loader did not."""

    def __init__(self, p, device, size, dtype):
        self.size, self.dtype = size, dtype
        r = {k: torch.from_numpy(v).to(device) for k, v in p.ranges.items()}
        self.low = {k: r[k + "_min"] for k in ("state", "action")}
        self.scale = {k: torch.where(r[k + "_max"] > r[k + "_min"], 2 / (r[k + "_max"] - r[k + "_min"]).clamp_min(1e-8), torch.zeros_like(r[k + "_min"])) for k in self.low}

    def __call__(self, b):
        out = {k: (b[k] - self.low[k]) * self.scale[k] - 1 for k in ("state", "action")}
        out["action_is_pad"] = b["action_is_pad"]
        if "frames" in b:
            out["frames"] = {c: self.frames(f) for c, f in b["frames"].items()}
        return out

    def frames(self, f):
        n, t = f.shape[:2]
        f = f.flatten(0, 1).to(self.dtype).contiguous(memory_format=torch.channels_last).div_(127.5).sub_(1)
        if self.size and tuple(f.shape[-2:]) != tuple(self.size):
            f = torch.nn.functional.interpolate(f, self.size, mode="bilinear", antialias=True)
        return f.unflatten(0, (n, t))


class Clock:
    """Marks of a step: CUDA events, or the host's clock. The host waits for the step before the last."""

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
        """ms of each part of each step; starve is from the optimiser's end of the step before to the batch's arrival."""
        if self.cuda and not self.timing:
            return []
        gap = (lambda a, b: a.elapsed_time(b)) if self.cuda else (lambda a, b: (b - a) * 1e3)
        return [[gap(before[-1], now[1]), *(gap(x, y) for x, y in zip(now[1:], now[2:]))] for before, now in zip(self.steps, self.steps[1:])]


def seeded(device, seed, step):
    return torch.Generator(device).manual_seed(seed * 1_000_003 + step)


def source(a, p, stack):
    """(an iterator of batches on the device, the Loader or None)"""
    if a.runner.startswith("robocache"):
        cache = a.cache
        if cache == "disk":
            cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="disk-cache-"))
        return train_data.robocache_batches(a.root, p, a, cache)
    if a.runner == "torch":
        return ahead(train_data.torch_batches(a.root, p, a), a.device), None
    if a.runner == "lerobot":
        return ahead(train_data.lerobot_batches(a.root, p, a), a.device), None
    if a.runner in ("headspace", "h2d"):
        batches, loader = train_data.robocache_batches(a.root, p, a)
        first = next(batches)
        loader.close()
        if a.runner == "h2d" and a.device != "cpu":
            first = pinned(first)
            return ahead(iter(lambda: first, None), a.device), None
        return iter(lambda: first, None), None
    raise RuntimeError(f"no runner named {a.runner}")


def train(a, stack):
    p = train_data.Plan(a.plan)
    cuda = a.device != "cpu"
    if cuda:
        torch.cuda.set_device(a.device)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = a.precision == "tf32"
    torch.set_num_threads(1 if cuda else max(torch.get_num_threads(), 1))
    torch.manual_seed(a.seed)
    net = train_models.make(a.model, len(p.ranges["state_min"]), len(p.ranges["action_min"]), p.spec["cameras"], a.small)
    weights, parameters = digest(net.parameters()), train_models.count(net)
    net = net.to(a.device, memory_format=torch.channels_last)
    opt, schedule, ema = train_models.optimiser(a.model, net, a.warmup + a.steps, fused=cuda)
    model = net
    if a.world > 1:
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
        stack.callback(torch.distributed.destroy_process_group)
        model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[a.device] if cuda else None)
    if a.compile:
        model = torch.compile(model)
    half = torch.autocast(a.device.split(":")[0], torch.bfloat16, enabled=a.precision == "bf16")
    prepare = Preprocess(p, a.device, a.image_hw, torch.bfloat16 if a.precision == "bf16" and cuda else torch.float32)
    common.imported()
    began = time.perf_counter()
    batches, loader = source(a, p, stack)
    most = len(p.orders) * (p.orders.shape[1] // (a.batch_size * a.world))
    losses, witness, ids = torch.zeros(most, device=a.device), torch.zeros(most, dtype=torch.float64, device=a.device), []
    clock, waits, first, dumped = Clock(a.device, a.timing == "on"), [], None, {}
    k = opened = 0
    while k < most:
        if k == a.warmup:
            if cuda:
                torch.cuda.synchronize()
            if a.world > 1:
                torch.distributed.barrier()
            clock.steps, waits, opened = clock.steps[-1:], [], time.perf_counter()
            print("#open", flush=True)
        if k >= a.warmup + a.steps and time.perf_counter() - opened >= a.seconds and a.world == 1 or a.world > 1 and k >= a.warmup + a.steps:
            break
        clock.step()
        asked = time.perf_counter()
        clock.mark()
        b = next(batches)
        waits.append(time.perf_counter() - asked)
        clock.mark()
        first = first or time.perf_counter() - began
        if "index" in b and a.runner not in ("headspace", "h2d"):
            ids.append(b["index"])
        witness[k] = b["action"].sum(dtype=torch.float64)
        if a.dump and k in DUMPED and k < a.warmup:
            dumped[k] = {n: t.cpu() for n, t in b.items() if n != "frames"} | {"frames." + c: f[:8].cpu() for c, f in b.get("frames", {}).items()}
        ready = prepare(b)
        clock.mark()
        opt.zero_grad(set_to_none=True)
        with half:
            loss = model(ready, seeded(a.device, a.seed, k * a.world + a.rank))
        clock.mark()
        loss.backward()
        clock.mark()
        opt.step()
        if schedule:
            schedule.step()
        if ema:
            ema.update(k)
        losses[k] = loss.detach()
        if a.loop == "sync":
            loss.item()
        clock.mark()
        k += 1
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - opened
    print("#measured", flush=True)
    measured = k - a.warmup
    out = dict(samples=measured * a.batch_size, seconds=seconds, steps=measured, model=a.model, runner=a.runner, params=parameters, weights_sha256=weights, rank=a.rank, world_size=a.world,
               first_batch_latency_s=first, load_wait_ms=1e3 * float(np.mean(waits)), losses=losses[: min(k, 200)].tolist(), loss_last=float(losses[k - 1]),
               order_sha256=hashlib.sha256(torch.cat([i.flatten().cpu() for i in ids]).numpy().tobytes()).hexdigest() if ids else None, witness=witness[: min(k, 200)].tolist(),
               stats=loader.stats() if loader else None, versions=common.versions())  # fmt: skip
    parts = np.array(clock.parts())
    if len(parts):
        out.update({n + "_ms": float(v) for n, v in zip(PARTS, parts.mean(0))})
        out["step_ms"] = {q: float(np.percentile(parts.sum(1), v)) for q, v in (("p50", 50), ("p95", 95), ("p99", 99))}
        out["step_parts_ms"] = np.round(parts[:: max(1, len(parts) // 500)], 3).tolist()
    if cuda:
        out.update(device_uuid=str(torch.cuda.get_device_properties(a.device).uuid), gpu_mem_gb=torch.cuda.max_memory_allocated() / 1e9)
    if a.dump and dumped:
        np.savez(a.dump, **{f"{k}/{n}": t.numpy() for k, d in dumped.items() for n, t in d.items()})
    print(json.dumps(out), flush=True)


def compare(one, two):
    """Numbers within 1e-5 of their range, masks and ids equal, frames within 2 of 255."""
    x, y = np.load(one), np.load(two)
    wrong, checked = [], 0
    for name in x.files:
        if name not in y.files:
            continue
        a, b = x[name], y[name]
        checked += 1
        if a.shape != b.shape:
            wrong.append(f"{name}: {a.shape} and {b.shape}")
        elif a.dtype.kind == "f":
            most = float(np.abs(a - b).max(initial=0))
            if most > 1e-5 * max(float(np.ptp(a)), 1e-30):
                wrong.append(f"{name}: differ by {most:.3g}")
        elif "frames." in name:
            most = int(np.abs(a.astype(np.int16) - b.astype(np.int16)).max(initial=0))
            if most > 2:
                wrong.append(f"{name}: differ by {most} of 255")
        elif not np.array_equal(a, b):
            wrong.append(f"{name}: differ")
    print(json.dumps(dict(batches_checked=checked, batches_wrong=wrong)), flush=True)


def main():
    a = options()
    if a.runner == "compare":
        return compare(a.root, a.other)
    if a.device != "cpu" and not torch.cuda.is_available():
        raise RuntimeError("no CUDA device: --device cpu trains the small networks")
    if a.runner == "plan":
        import robocache

        train_data.plan(a.root, a.plan, train_data.spec(robocache.open(a.root), a.model, a.rows, a.small, a.image_hw), a)
        return print(json.dumps({}))
    with contextlib.ExitStack() as stack:
        train(a, stack)


if __name__ == "__main__":  # workers that are spawned import this file
    common.run(main)
