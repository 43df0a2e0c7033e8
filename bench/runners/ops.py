"""The peers of `bench ops`: a process that the harness (bench/ops/peer.go) keeps, and asks in turn. ops_peers.py has the runners.

# A row

{"name", "kind", "device": "cpu"|"cuda", "threads", "bytes": touched by the work (read and written), "copies": sets of inputs
 that together are too large for the caches (cold goes round them: make is called once a set), and of its kind:
 "fuse":     "mode": "linear"|"slerp"|…, "dtype", "out" (type of the result), "B", "T", "streams": [{"S","D"}, …], "norm": bool, "ragged": bool
             inputs valuesI [B,S,D], timesI int64 [B,S] (ns), targets int64 [B,T]; ragged: valuesI [sum of S, D], timesI [sum of S], offsetsI int64 [B+1];
             norm: mean, std float32 [sum of D]: (x-mean)/(std+1e-8). slerp: D = 4
 "call":     a "fuse" of a small shape: the host's time of one call
 "voxelize": "mode": "count"|"occupancy"|"mean"|"max", "layout": "dense"|"sparse", "N", "F", "grid": [X,Y,Z], "min": [3], "size": [3]
             inputs points float32 [N,3], features float32 [N,F]. A point outside the grid is dropped. Empty cells are 0}

# The protocol

One JSON object a line on stdin, one on stdout; stderr is for words.

 {"cmd":"hello","device","threads","clock"}  → {"versions": {…}}. clock "cpu": of the thread's own CPU time, for one thread on a busy machine
 {"cmd":"setup","row":{…},"runners":[…],"without":[…],"inputs":{name:{"dtype","shape","file","period"}}} → {"runners":{name:{"setting","other"} or {"error"}}}
     runners: empty = all that know the kind; "torch" is every torch runner. file holds the elements, little-endian; where it holds only period of them they repeat
 {"cmd":"probe","name","runner","index":[…]}   → {"values":[…]}: the result at these flat indices (sparse: of the dense grid of rows)
 {"cmd":"time","name","runner","seconds","cold":bool} → {"us":[…]}: µs a call, a figure a chunk
 {"cmd":"drop","name"}                      → {}
Any answer may be {"error": "…"} instead."""
import itertools, json, math, os, sys, time

RUNNERS = []
CLOCK = time.perf_counter


class Skip(Exception):
    """The runner does not do this row."""


def runner(name, kinds, setting="", device=("cpu", "cuda"), other=False, **timing):
    """Registers make(row, inputs) → call, what is timed; once a row and set of inputs. Imports belong in it, so that a missing package fails this runner alone. What
    call returns is looked at: [B,T,sum of D], NumPy or torch; sparse voxels: (flat cell [M], rows [M,F] or None, counts [M]). other: it does other work, for
    comparison; its result is not looked at. A runner may prepare its inputs (float32 seconds, a layout that it likes better) outside of call: its best setting counts."""

    def register(make):
        RUNNERS.append(dict(name=name, kinds=kinds, device=device, setting=setting, other=other, make=make, timing=timing))
        return make

    return register


class Inputs:
    """The row's inputs as NumPy arrays by name, and as torch tensors on the device."""

    def __init__(self, described, device):
        self.described, self.device, self.arrays, self.tensors = described, device, {}, {}

    def __contains__(self, name):
        return name in self.described

    def __getitem__(self, name):
        """bfloat16 comes as uint16 bits: NumPy has no such type."""
        import numpy as np

        if name not in self.arrays:
            d = self.described[name]
            a, n = np.fromfile(d["file"], dtype={"bfloat16": "uint16"}.get(d["dtype"], d["dtype"])), math.prod(d["shape"])
            if len(a) < n and len(a) != d.get("period"):
                raise ValueError(f"{name}: {len(a)} elements, want {n}")
            self.arrays[name] = (a if len(a) >= n else np.resize(a, n))[:n].reshape(d["shape"])
        return self.arrays[name]

    def torch(self, name):
        import torch

        if name not in self.tensors:
            t = torch.from_numpy(self[name])
            if self.described[name]["dtype"] == "bfloat16":
                t = t.view(torch.bfloat16)
            if self.device == "cuda":
                t = t.cuda()
                self.arrays.pop(name)
            self.tensors[name] = t
        return self.tensors[name]

    def wait(self):
        """Until the device has done what was put on it."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def again(self):
        """The same inputs at other addresses."""
        other = Inputs(self.described, self.device)
        other.arrays = {k: v.copy() for k, v in self.arrays.items()}
        if self.device == "cuda":  # else the tensors are the arrays' memory
            other.tensors = {k: v.clone() for k, v in self.tensors.items()}
        return other


class Timed:
    """A runner on a row, timed by the clock."""

    def __init__(self, make, row, inputs):
        self.make, self.row, self.inputs = make, row, inputs
        self.calls = [make(row, inputs)]
        self.out = self.calls[0]()

    def sets(self, cold):
        """The calls to go round: cold, of copies that the caches cannot hold."""
        n = self.row.get("copies", 1) if cold else 1
        while len(self.calls) < n:
            self.calls.append(self.make(self.row, self.inputs.again()))
        return self.calls[:n]

    def time(self, seconds, cold):
        calls = self.sets(cold)
        turn = itertools.cycle(calls)
        self.chunk(len(calls), calls)
        once = max(self.chunk(1, [next(turn)]), 0.1)
        if once > seconds * 1e6:  # a loop in Python takes half a second: that is its figure
            return [once]
        # A chunk is long enough for the clock, and short enough that an interruption spoils few.
        n = max(1, min(int(200 / once), int(seconds * 2e5 / once)))
        figures, begin = [], CLOCK()
        while len(figures) < 3 or CLOCK() - begin < seconds:
            figures.append(self.chunk(n, itertools.islice(turn, n)))
        return figures

    def chunk(self, n, calls):
        """µs a call, of n."""
        start = CLOCK()
        for call in calls:
            call()
        return (CLOCK() - start) * 1e6 / n


class Called(Timed):
    """The host's time of a call; the device, where there is one, is waited for between chunks, outside of what is timed."""

    def time(self, seconds, cold):
        figures, begin = [], CLOCK()
        while len(figures) < 5 or CLOCK() - begin < seconds:
            self.inputs.wait()
            figures.append(self.chunk(100, itertools.repeat(self.calls[0], 100)))
        return figures[1:]


class OnStream(Timed):
    """A runner on a GPU: a CUDA graph of calls, replayed between events. launched: it waits for the device within, so that no graph can hold it, and is launched one by
    one. scaled: a copy of so many bytes, which stands on the stream as it is; its figure is scaled to the row's bytes."""

    def __init__(self, make, row, inputs, launched=False, scaled=0):
        import torch

        self.torch, self.side, self.graphs, self.launched, self.scaled = torch, torch.cuda.Stream(), {}, launched, scaled
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
            n = int(min(200, max(4, 500 / max(self.between(4, lambda i: calls[i % len(calls)]()), 1))))
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
            return [self.between(3, lambda _: self.calls[0]()) * self.row["bytes"] / self.scaled for _ in range(4)][1:]
        g, n = (None, 1) if self.launched else self.graph(cold)
        figures, total, call = [], 0.0, self.calls[0] if self.launched else g.replay
        while len(figures) < 7 or total < seconds * 1e6 and len(figures) < 400:
            us = self.between(1, lambda _: call())
            figures.append(us / n)
            total += us
        return figures[2:]


def timed(r, row, inputs):
    kind = Called if row["kind"] == "call" else OnStream if inputs.device == "cuda" else Timed
    return kind(r["make"], row, inputs, **r["timing"])


def probe(row, out, index):
    """The values at the flat indices of a result; a sparse one is looked at as the dense grid that it stands for: [cells, F], or [cells] of counts."""
    import numpy as np

    if not isinstance(out, tuple):
        if hasattr(out, "cpu"):
            import torch

            return out.reshape(-1)[torch.as_tensor(index, device=out.device)].double().cpu().tolist()
        return np.asarray(out).reshape(-1)[index].astype(float).tolist()
    flat, rows, counts = (None if a is None else a.cpu().numpy() if hasattr(a, "cpu") else np.asarray(a) for a in out)
    order, f, index = np.argsort(flat, kind="stable"), 1 if rows is None else rows.shape[1], np.asarray(index)
    flat, values = flat[order], (counts if rows is None else rows)[order].reshape(len(order), f)
    at = np.minimum(np.searchsorted(flat, index // f), len(flat) - 1)
    return np.where(flat[at] == index // f, values[at, index % f], 0).astype(float).tolist()


def named(name, families):
    return any(name == f or name.startswith((f + " ", f + ".")) for f in families or ())


def setup(ask, device):
    row, ready, out = ask["row"], {}, {}
    inputs = Inputs(ask["inputs"], device)
    for r in RUNNERS:
        if row["kind"] not in r["kinds"] or device not in r["device"] or ask.get("runners") and not named(r["name"], ask["runners"]) or named(r["name"], ask.get("without")):
            continue
        try:
            threads(row["threads"])
            ready[r["name"]] = timed(r, row, inputs)
            out[r["name"]] = dict(setting=r["setting"], other=r["other"])
        except Skip as e:
            if str(e):
                out[r["name"]] = dict(error=str(e))
        except Exception as e:  # one runner's failure is its own
            out[r["name"]] = dict(error=words(e))
    return row, ready, out


def words(e):
    return f"{type(e).__name__}: {e}".split("\n")[0][:400]


def threads(n):
    """Equal in every runner. The harness has set OMP_NUM_THREADS before the start; torch is told again. A process without torch runners does not wait for its import."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)


def serve():
    """Answers the harness until it closes stdin."""
    global CLOCK
    # What libraries print must not reach the harness: answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    device, rows = "cpu", {}
    for line in sys.stdin:
        ask, out = json.loads(line), {}
        try:
            if ask["cmd"] == "hello":
                device, CLOCK = ask["device"], time.thread_time if ask["clock"] == "cpu" else time.perf_counter
            elif ask["cmd"] == "setup":
                *held, out["runners"] = setup(ask, device)
                rows[held[0]["name"]] = held
            elif ask["cmd"] == "probe":
                row, ready = rows[ask["name"]]
                # JSON has no NaN and no infinity.
                out["values"] = [v if math.isfinite(v) else str(v) for v in probe(row, ready[ask["runner"]].out, ask["index"])]
            elif ask["cmd"] == "time":
                row, ready = rows[ask["name"]]
                threads(row["threads"])
                out["us"] = ready[ask["runner"]].time(ask["seconds"], ask["cold"])
            elif ask["cmd"] == "drop":
                rows.pop(ask["name"], None)
            else:
                raise ValueError("unknown command " + ask["cmd"])
        except Exception as e:
            out["error"] = words(e)
        found = {n: getattr(sys.modules.get(n), "__version__", None) for n in ("numpy", "torch", "scipy", "open3d", "robocache")}
        out["versions"] = dict(python=sys.version.split()[0], **{n: str(v) for n, v in found.items() if v})
        answers.write(json.dumps(out) + "\n")
        answers.flush()
