"""Inputs, checks and timing for the rows of `robocache-bench ops`.

ops_ours.py and ops_peers.py contain the runners. The job is the only argument (bench/ops/run.go):
{"device": "cpu"|"cuda", "rounds", "seconds", "clock", "threads", "runners": […], "without": […],
"rows": […]}. The clock "cpu" measures the CPU time of the thread, for one thread on a busy machine.
A row has "name", "curve" and its "work", which is of one of these kinds:

"fuse":     "mode": "linear"|"slerp", "dtype", "out" (dtype of the result), "B", "T",
            "streams": [{"S","D"}, …], "norm", "ragged"
            Inputs are valuesI [B,S,D], timesI int64 [B,S] (ns) and targets int64 [B,T].
            ragged: valuesI [sum of S, D], timesI [sum of S], offsetsI int64 [B+1].
            norm: mean, std float32 [sum of D]; the result is (x-mean)/(std+1e-8).
            slerp: D = 4.
"voxelize": "mode": "count"|"occupancy"|"mean"|"max", "layout": "dense"|"sparse",
            "N", "F", "grid": [X,Y,Z], "min": [3], "size": [3]
            Inputs are points float32 [N,3] and features float32 [N,F]. Points outside the
            grid are dropped. Empty cells are 0.
"call":     a "fuse" of a small shape; measures the host time of one call

Each row prints one line: {"row", "bytes", "checked", "skipped", "arms": [{"name", "setting", "us",
"us_cold", "failed"}], "versions"}. Figures are µs per call, one per round, with interleaved
runners. Before it is timed, RoboCache must match the reference bit for bit; any NaN equals any NaN,
and slerp may differ by one float32 ulp. Peers must be right within their rounding. A wrong runner
gives no figure.
"""

import itertools, json, math, os, sys, time

import numpy as np

RUNNERS = []
KINDS = ("fuse", "voxelize")
CLOCK = time.perf_counter
# Number of random values, which are repeated to fill larger inputs. Speed does not depend on the
# values, and generating gigabytes of them would take minutes.
BLOCK = (1 << 20) + 7
SPAN = 1_000_000_000


class Skip(Exception):
    """Raised by a runner that does not support the row."""


def runner(name, kinds, setting="", device=("cpu", "cuda"), role="peer", **timing):
    """Registers make(row, inputs) → call; call is timed.

    make is called once per row and set of inputs. It contains the imports, so that a missing
    package fails only this runner. It may prepare inputs outside of call, for example times as
    float32 seconds.

    The result of call is checked. It is [B,T,sum of D] as NumPy or torch, or for sparse voxels
    (flat cell [M], rows [M,F] or None, counts [M]).

    role is "ours"; "peer"; "named" (a peer that runs only if it is named); "other" (different work,
    for comparison, not checked); or "limit" (a copy of the same number of bytes).
    """

    def register(make):
        RUNNERS.append(
            dict(
                name=name,
                kinds=kinds,
                device=device,
                setting=setting,
                role=role,
                make=make,
                timing=timing,
            )
        )
        return make

    return register


class Inputs:
    """The inputs of a row as NumPy arrays by name, and as torch tensors on the device.

    bfloat16 is stored as uint16 bits.
    """

    def __init__(self, arrays, kinds, device):
        self.arrays, self.kinds, self.device, self.tensors = arrays, kinds, device, {}

    def __contains__(self, name):
        return name in self.arrays

    def __getitem__(self, name):
        return self.arrays[name]

    def torch(self, name):
        import torch

        if name not in self.tensors:
            t = torch.from_numpy(self[name])
            t = t.view(torch.bfloat16) if self.kinds.get(name) == "bfloat16" else t
            self.tensors[name] = t.to(self.device)
        return self.tensors[name]

    def wait(self):
        """Blocks until the device is idle."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def again(self, device=None):
        """Returns a copy of the inputs, at other addresses."""
        other = Inputs(
            {k: v.copy() for k, v in self.arrays.items()} if self.device == "cpu" else self.arrays,
            self.kinds,
            device or self.device,
        )
        if self.device != "cpu" and not device:
            other.tensors = {k: v.clone() for k, v in self.tensors.items()}
        return other


def repeated_values(n, dtype):
    x = np.random.default_rng(7).standard_normal(min(n, BLOCK), np.float32)
    if dtype == "bfloat16":
        bits = x.view(np.uint32)
        x = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    else:
        x = x.astype(dtype)
    return x if len(x) == n else np.resize(x, n)


def normalize_quaternions(q):
    """Normalizes quaternions, with at most half a turn between neighbors.

    Otherwise the result would be discontinuous: a sample at a target is returned unchanged, but
    interpolated values are normalized and may change their sign.
    """
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    sign = np.ones(len(q), np.float32)
    sign[1:] = np.where((q[1:] * q[:-1]).sum(-1) < 0, -1, 1)
    q *= np.cumprod(sign)[:, None]


def make_inputs(w, device):
    """Returns the inputs of a row.

    Each batch entry begins at a different timestamp. Streams cover the same span with jitter, and
    targets divide the span evenly.
    """
    rng, x, kinds = np.random.default_rng(11), {}, {}
    if w["kind"] == "voxelize":
        x["points"] = make_points(w, rng)
        w["N"] = len(x["points"])
        if f := w.get("F", 0):
            x["features"] = repeated_values(w["N"] * f, "float32").reshape(-1, f)
        return Inputs(x, kinds, device)
    start = 1_700_000_000_000_000_000 + np.arange(w["B"], dtype=np.int64)[:, None] * 3 * SPAN
    for i, s in enumerate(w["streams"]):
        lengths = np.full(w["B"], s["S"])
        if w.get("ragged"):
            lengths = s["S"] // 2 + rng.integers(s["S"] // 2 + 1, size=w["B"])
            x[f"offsets{i}"] = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
        k, step = np.arange(s["S"]), SPAN / np.maximum(lengths - 1, 1)[:, None]
        jitter = (rng.random((w["B"], s["S"])) - 0.5) * 0.4 * ((k > 0) & (k < lengths[:, None] - 1))
        times = start + ((k + jitter) * step).astype(np.int64)
        values = repeated_values(int(lengths.sum()) * s["D"], w["dtype"]).reshape(-1, s["D"])
        if w["mode"] == "slerp":
            normalize_quaternions(values)
        ragged = w.get("ragged")
        x[f"times{i}"], x[f"values{i}"] = (
            (times[k < lengths[:, None]], values)
            if ragged
            else (times, values.reshape(w["B"], s["S"], s["D"]))
        )
        kinds[f"values{i}"] = w["dtype"]
    x["targets"] = start + (np.arange(w["T"]) * (SPAN / max(w["T"] - 1, 1))).astype(np.int64)
    if w.get("norm"):
        n = sum(s["D"] for s in w["streams"])
        x["mean"], x["std"] = rng.standard_normal(n, np.float32), 0.5 + rng.random(n, np.float32)
    return Inputs(x, kinds, device)


def make_points(w, rng):
    """Returns points of one of three distributions.

    Points are uniform by default. "cells": 5 % of the cells contain all points. "kitti": a real
    frame of the test data, or as many points with a similar distribution. In the first two, one
    point in a hundred is outside the grid.
    """
    lo, size, grid = (np.array(w[k], np.float32) for k in ("min", "size", "grid"))
    if w["cloud"] == "kitti":
        name = os.path.join(
            os.environ.get("ROBOCACHE_TESTDATA", ""), "pointclouds", "kitti", "000008.bin"
        )
        if os.path.exists(name):
            return np.fromfile(name, np.float32).reshape(-1, 4)[:, :3].copy()
        r, angle = 3 * np.exp(3.2 * rng.random(17_000)), (rng.random(17_000) - 0.5) * 1.4
        return np.stack(
            [
                r * np.cos(angle),
                r * np.sin(angle),
                -1.7 + 0.5 * np.abs(rng.standard_normal(17_000)),
            ],
            1,
        ).astype(np.float32)
    at = rng.random((w["N"], 3), np.float32)
    if w["cloud"] == "cells":
        cells = rng.integers(math.prod(w["grid"]), size=math.prod(w["grid"]) // 20)
        at = np.stack(np.unravel_index(rng.choice(cells, w["N"]), w["grid"]), 1) + 0.1 + 0.8 * at
    else:
        at *= grid
    p = (lo + size * at).astype(np.float32)
    p[99::100, rng.integers(3)] = lo[0] - 1
    return p


def size_of(dtype):
    return {"bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize


def floor_bytes(w, x):
    """Returns the bytes that the work must touch, each counted once.

    These are the source rows that a target reads, all int64 timestamps, and the whole result.
    """
    if w["kind"] == "voxelize":
        f, n = w.get("F", 0), w["N"] * (12 + 4 * w.get("F", 0))
        if w["layout"] == "sparse":  # coordinates, count and features of each occupied cell
            c = np.floor(
                (x["points"] - np.array(w["min"], np.float32)) / np.array(w["size"], np.float32)
            )
            c = c[((c >= 0) & (c < w["grid"])).all(1)].astype(np.int64)
            return n + len(
                np.unique((c[:, 0] * w["grid"][1] + c[:, 1]) * w["grid"][2] + c[:, 2])
            ) * (20 + 4 * f)
        return n + math.prod(w["grid"]) * (4 * f or {"occupancy": 1}.get(w["mode"], 4))
    wide, out = sum(s["D"] for s in w["streams"]), size_of(w["out"])
    total = w["B"] * w["T"] * (8 + wide * out) + (8 * wide if w.get("norm") else 0)
    for i, s in enumerate(w["streams"]):
        ends = x[f"offsets{i}"] if w.get("ragged") else np.arange(w["B"] + 1) * s["S"]
        total += (
            rows_read(x[f"times{i}"].ravel(), ends, x["targets"], w["mode"])
            * s["D"]
            * size_of(w["dtype"])
            + 8 * x[f"times{i}"].size
            + (8 * len(ends) if w.get("ragged") else 0)
        )
    return int(total)


def rows_read(times, ends, targets, mode):
    """Returns how many samples at least one target reads.

    A target between two samples reads both; a target at a sample or outside the data reads one.
    Batch entries follow each other on one axis.
    """
    k = np.searchsorted(times, targets, "right") - 1
    low, high = (
        k.clip(ends[:-1, None], ends[1:, None] - 1),
        (k + 1).clip(ends[:-1, None], ends[1:, None] - 1),
    )
    # a mode that selects one of the two samples reads only one
    two = (k >= ends[:-1, None]) & (times[low] != targets) & (mode in ("linear", "slerp", "angle"))
    return len(np.unique(np.concatenate([low.ravel(), high[two]])))


class Timed:
    """A runner on a row, timed by the host clock."""

    def __init__(self, make, row, inputs):
        self.make, self.row, self.inputs = make, row, inputs
        self.calls = [make(row, inputs)]
        self.out = self.calls[0]()

    def sets(self, cold):
        """Returns the calls that are timed in turn.

        cold: on copies that do not fit into the caches.
        """
        n = self.row["copies"] if cold else 1
        while len(self.calls) < n:
            self.calls.append(self.make(self.row, self.inputs.again()))
        return self.calls[:n]

    def time(self, seconds, cold):
        calls = self.sets(cold)
        turn = itertools.cycle(calls)
        self.chunk(len(calls), calls)
        once = max(self.chunk(1, [next(turn)]), 0.1)
        if once > seconds * 1e6:  # a call that is longer than the limit is its own figure
            return [once]
        # A chunk is long enough for the clock, and short enough that an interruption affects few
        # calls.
        n = max(1, min(int(200 / once), int(seconds * 2e5 / once)))
        figures, begin = [], CLOCK()
        while len(figures) < 3 or CLOCK() - begin < seconds:
            figures.append(self.chunk(n, itertools.islice(turn, n)))
        return figures

    def chunk(self, n, calls):
        """Returns the mean time of n calls, in µs."""
        start = CLOCK()
        for call in calls:
            call()
        return (CLOCK() - start) * 1e6 / n


class Called(Timed):
    """Measures the host time of a call.

    If there is a device, it waits for the device between chunks, outside the measured time.
    """

    def time(self, seconds, cold):
        figures, begin = [], CLOCK()
        while len(figures) < 5 or CLOCK() - begin < seconds:
            self.inputs.wait()
            figures.append(self.chunk(100, itertools.repeat(self.calls[0], 100)))
        return figures[1:]


class OnStream(Timed):
    """A runner on a GPU, timed by events around a CUDA graph of calls.

    launched: the call waits for the device, so it cannot be captured and is launched directly.
    scaled: the call copies this many bytes outside a graph, and its figure is scaled to the bytes
    of the row.
    """

    def __init__(self, make, row, inputs, launched=False, scaled=0):
        import torch

        self.torch, self.side, self.graphs, self.launched, self.scaled = (
            torch,
            torch.cuda.Stream(),
            {},
            launched,
            scaled,
        )
        with torch.cuda.stream(self.side):
            super().__init__(make, row, inputs)
            for _ in range(2):
                self.calls[0]()
        torch.cuda.synchronize()
        if not launched and not scaled:
            self.graph(False)

    def between(self, n, call):
        a, b = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.torch.cuda.stream(self.side):
            a.record()
            for i in range(n):
                call(i)
            b.record()
        b.synchronize()
        return a.elapsed_time(b) * 1e3 / n

    def graph(self, cold):
        torch = self.torch
        if cold not in self.graphs:
            with torch.cuda.stream(self.side):
                calls = self.sets(cold)
                for c in calls:
                    c()
            torch.cuda.synchronize()
            n = int(
                min(200, max(4, 500 / max(self.between(4, lambda i: calls[i % len(calls)]()), 1)))
            )
            n = -(-n // len(calls)) * len(calls)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, stream=self.side):
                for i in range(n):
                    out = calls[i % len(calls)]()
            torch.cuda.synchronize()
            if not cold:
                g.replay()
                torch.cuda.synchronize()
                self.out = out
            self.graphs[cold] = g, n
        return self.graphs[cold]

    def time(self, seconds, cold):
        if self.scaled:
            return [
                self.between(3, lambda _: self.calls[0]()) * self.row["bytes"] / self.scaled
                for _ in range(4)
            ][1:]
        g, n = (None, 1) if self.launched else self.graph(cold)
        figures, total, call = [], 0.0, self.calls[0] if self.launched else g.replay
        while len(figures) < 7 or total < seconds * 1e6 and len(figures) < 400:
            us = self.between(1, lambda _: call())
            figures.append(us / n)
            total += us
        return figures[2:]


def to_numpy(x):
    """Returns a result as NumPy, with bfloat16 as bits."""
    if not hasattr(x, "cpu"):
        return np.asarray(x)
    import torch

    x = x.detach().cpu().contiguous()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def as_floats(x, dtype):
    return (
        (x.astype(np.uint32) << 16).view(np.float32)
        if dtype == "bfloat16" and x.dtype == np.uint16
        else x.astype(np.float64)
    )


def result_arrays(out, w):
    """Returns the arrays of a result.

    Sparse voxels are sorted by cell: flat cell, features, counts.
    """
    if hasattr(out, "coords"):
        n, (_, y, z) = int(out.found), w["grid"]
        c = out.coords[:n]
        out = (
            (c[:, -3] * y + c[:, -2]) * z + c[:, -1],
            None if out.features is None else out.features[:n],
            out.counts[:n],
        )
    if not isinstance(out, tuple):
        return [to_numpy(out)]
    flat, *rest = (to_numpy(p) for p in out if p is not None)
    order = np.argsort(flat, kind="stable")
    # Points outside may be assigned to a cell behind the grid.
    order = order[flat[order] < math.prod(w["grid"])]
    return [p[order] for p in (flat, *rest)]


def describe_mismatch(w, got, truth, exact):
    """Describes how a result differs from the truth, or returns ""."""
    # Peers compute in the dtype of the data, and use times as float32 seconds.
    tolerance = {"bfloat16": 0.06, "float16": 0.01}.get(
        w.get("dtype"), 1e-3 if w["kind"] == "voxelize" else 2e-3
    )
    for g, t in zip(result_arrays(got, w), result_arrays(truth, w), strict=True):
        g, t = g.ravel(), t.ravel()
        if g.size != t.size or exact and g.dtype.itemsize != t.dtype.itemsize:
            return f"wrong: {g.size} elements of {g.dtype}, expected {t.size} of {t.dtype}"
        a, b = as_floats(g, w.get("out")), as_floats(t, w.get("out"))
        right = np.isnan(a) & np.isnan(b)
        if exact:
            right |= g.view(f"u{g.dtype.itemsize}") == t.view(f"u{t.dtype.itemsize}")
        if not exact or w.get("mode") == "slerp":
            right |= np.abs(a - b) <= (
                1.2e-7 * np.maximum(np.abs(b), 2.0**-20)
                if exact
                else tolerance * np.maximum(1, np.abs(b))
            )
        if not right.all():
            i = int(np.argmin(right))
            return f"wrong: element {i} is {a[i]:.9g}, the reference has {b[i]:.9g}"
    return ""


def is_named(name, families):
    return any(name == f or name.startswith((f + " ", f + ".")) for f in families or ())


def is_selected(r, row, job):
    """Reports whether a runner takes part in a row.

    Ours and the limits always do. The reference, and the peers of a curve, do if they are named.
    """
    if (
        row["work"]["kind"] not in r["kinds"]
        or job["device"] not in r["device"]
        or is_named(r["name"], job["without"])
    ):
        return False
    return r["role"] in ("ours", "limit") or (
        is_named(r["name"], job["runners"])
        if job["runners"] or row.get("curve") or r["role"] == "named"
        else True
    )


def spread_of(v):
    return dict(raw=v, min=min(v), median=float(np.median(v)), max=max(v)) if v else {}


def error_text(e):
    return f"{type(e).__name__}: {e}".split("\n")[0][:400]


def set_torch_threads(n):
    """Sets the number of threads of torch. The harness has set the environment for the others."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)


def measure(row, job, truth_of):
    """Prepares, checks and times one row."""
    w = row["work"]
    inputs = make_inputs(w, job["device"])
    work, row = row, dict(w, bytes=floor_bytes(w, inputs), threads=job["threads"])
    row["copies"] = int(min(256, max(1, -(-4 * job["cache"] // max(row["bytes"], 1)))))
    truth = truth_of(row, inputs)
    match = "within a float32 ulp of" if w.get("mode") == "slerp" else "equal"
    checked = f"{sum(p.nbytes for p in result_arrays(truth, w))} bytes {match} the reference's"
    field, out = [], dict(bytes=row["bytes"], arms=[], checked=checked)
    for r in RUNNERS:
        if not is_selected(r, work, job):
            continue
        arm = dict(name=r["name"], setting=r["setting"], us=[], us_cold=[], failed="")
        try:
            set_torch_threads(job["threads"])
            kind = Called if w["kind"] == "call" else OnStream if job["device"] == "cuda" else Timed
            timed = kind(r["make"], row, inputs, **(r["timing"] if kind is OnStream else {}))
            if r["role"] in ("ours", "peer", "named"):
                arm["failed"] = describe_mismatch(w, timed.out, truth, r["role"] == "ours")
            timed.out = None
        except Skip as e:
            if not str(e):
                continue
            arm["failed"] = str(e)
        except Exception as e:  # the failure of one runner does not affect the others
            arm["failed"] = error_text(e)
        out["arms"].append(arm)
        field.append((r, arm, None if arm["failed"] else timed))
    for round_, cold in itertools.product(range(job["rounds"]), (False, True)):
        for r, arm, timed in field:
            # No bar uses the cold figure of a peer, so one is enough.
            if (
                arm["failed"]
                or cold
                and (w["kind"] not in KINDS or round_ and r["role"] not in ("ours", "limit"))
            ):
                continue
            try:
                set_torch_threads(job["threads"])
                arm["us_cold" if cold else "us"].append(
                    float(np.median(timed.time(job["seconds"], cold)))
                )
            except Exception as e:
                arm["failed"] = error_text(e)
    for arm in out["arms"]:
        arm.update(us=spread_of(arm["us"]), us_cold=spread_of(arm["us_cold"]))
    return out


def main(truth_of):
    """Measures the rows of the job and prints one line for each."""
    global CLOCK
    answers = os.fdopen(os.dup(1), "w")  # output of libraries must not reach the harness
    os.dup2(2, 1)
    job = json.loads(sys.argv[1])
    CLOCK = time.thread_time if job["clock"] == "cpu" else time.perf_counter
    if job["device"] == "cuda":
        import torch

        p, (major, minor) = torch.cuda.get_device_properties(0), torch.cuda.get_device_capability(0)
        job["cache"] = getattr(p, "L2_cache_size", 0) or 64 << 20
        answers.write(
            json.dumps(
                dict(
                    device=dict(
                        name=p.name,
                        driver=f"CUDA {torch.version.cuda}",
                        image=f"sm_{major}{minor}",
                        l2_bytes=job["cache"],
                    )
                )
            )
            + "\n"
        )
    for row in job["rows"]:
        try:
            out = measure(row, job, truth_of)
        except Exception as e:
            out = dict(arms=[dict(name="robocache", failed=error_text(e))])
        found = {
            n: getattr(sys.modules.get(n), "__version__", None)
            for n in ("numpy", "torch", "scipy", "open3d", "robocache")
        }
        out.update(
            row=row["name"],
            versions=dict(
                python=sys.version.split()[0], **{n: str(v) for n, v in found.items() if v}
            ),
        )
        answers.write(json.dumps(out) + "\n")
        answers.flush()
