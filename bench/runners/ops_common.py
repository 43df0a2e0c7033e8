"""What every Python arm of `bench ops` shares: the protocol, the timing, and the look at the result.

# Writing an arm

A script registers arms and ends with serve():

    import ops_common as ops

    @ops.arm("numpy", kinds=("fuse",), setting="searchsorted and lerp a trajectory")
    def numpy_lerp(row, x):           # once a row; imports belong in here, so that a missing package fails this arm alone
        v, t, g = x["values0"], x["times0"], x["targets"]      # NumPy, C order; x.torch("values0") is the tensor, on the device
        def call():                   # what is timed
            ...
            return out                # [B,T,sum of D], NumPy or torch; sparse voxels: (flat cell [M], rows [M,F] or None, counts [M])
        return call

    if __name__ == "__main__":
        ops.serve()

Bars name these arms: "np.interp", "numpy" (any "numpy …"), "torch.compile", "torch" (any), "open3d", "memcpy" (any), on the GPU "copy" (any).
Torch's arms are in ops_torch.py and ops_gpu.py (both by ways_torch.py).
raise ops.Skip("why") where the arm does not do the row (another mode, say). An arm that is named "torch …" is one of the torch ways: a bar
"≥ 4× torch" is held against the fastest of them. setting= says in words what the arm is; row.get("threads") threads are set before.
Times come as int64 ns. An arm may prepare its inputs (float32 seconds, a layout that it likes better) outside of call: the peer's best setting counts.

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

One JSON object a line on stdin, one on stdout; stderr is for words. The harness (bench/ops_peer.go) keeps the process and asks arms in turn.

 {"cmd":"hello","device","threads","clock"}  → {"versions": {…}}. clock "cpu": of the thread's own CPU time, for one thread on a busy machine
 {"cmd":"setup","row":{…},"arms":[…],"without":[…],"inputs":{name:{"dtype","shape","file","period"}}} → {"arms":{name:{"setting","other"} or {"error"}}}
     arms: empty = all that know the kind; "torch" is every torch arm. file holds the elements, little-endian; where it holds only period of them they repeat
 {"cmd":"probe","name","arm","index":[…]}   → {"shape","values":[…]}: the result at these flat indices (sparse: of the dense grid of rows)
 {"cmd":"time","name","arm","seconds","cold":bool} → {"us":[…]}: µs a call, a figure a chunk
 {"cmd":"drop","name"}                      → {}
Any answer may be {"error": "…"} instead."""
import itertools, json, math, os, sys, time

ARMS = []
CLOCK = [time.perf_counter]
VERSIONS = {"python": sys.version.split()[0]}


class Skip(Exception):
    """The arm does not do this row."""


def arm(name, kinds, device="cpu", setting="", other=False):
    """Registers make(row, inputs) → call. other: it does other work, for comparison; its result is not looked at."""

    def register(make):
        ARMS.append({"name": name, "kinds": kinds, "device": device, "setting": setting, "other": other, "make": make})
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
            kind = {"bfloat16": "uint16"}.get(d["dtype"], d["dtype"])
            n = math.prod(d["shape"])
            a = np.fromfile(d["file"], dtype=kind)
            if len(a) < n:
                if len(a) != d.get("period"):
                    raise ValueError(f"{name}: {len(a)} elements, want {n}")
                a = np.resize(a, n)
            self.arrays[name] = a[:n].reshape(d["shape"])
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
        other.tensors = {k: v.clone() for k, v in self.tensors.items()}
        other.arrays = {k: v.copy() for k, v in self.arrays.items() if k not in self.tensors}
        return other


class Timed:
    """An arm on a row, timed by the clock. ops_gpu.py has one of its own, by CUDA graphs and events."""

    def __init__(self, make, row, inputs):
        self.make, self.row, self.inputs = make, row, inputs
        self.calls = [make(row, inputs)]
        self.out = self.calls[0]()

    def result(self):
        return self.out

    def turn(self, cold):
        """What to call: cold goes round copies that the caches cannot hold."""
        if not cold:
            return self.calls[0]
        for _ in range(len(self.calls), self.row.get("copies", 1)):
            self.calls.append(self.make(self.row, self.inputs.again()))
        ring = itertools.cycle(self.calls)
        return lambda: next(ring)()

    def time(self, seconds, cold):
        call, clock = self.turn(cold), CLOCK[0]
        for _ in range(len(self.calls) if cold else 1):
            call()
        start = clock()
        call()
        once = max(clock() - start, 1e-7)
        if once > seconds:  # a loop in Python takes half a second: that is its figure
            return [once * 1e6]
        # A chunk is long enough for the clock, and short enough that an interruption spoils few.
        n = max(1, min(int(2e-4 / once), int(seconds / 5 / once)))
        figures, begin = [], clock()
        while len(figures) < 3 or clock() - begin < seconds:
            start = clock()
            for _ in range(n):
                call()
            figures.append((clock() - start) / n * 1e6)
            if len(figures) >= 3 and clock() - begin > 4 * seconds + 1:
                break
        return figures


def probe(row, out, index):
    """(shape, values at the flat indices) of a result."""
    import numpy as np

    if isinstance(out, tuple):
        return sparse_probe(row, out, index)
    if type(out).__module__.startswith("torch"):
        flat = out.reshape(-1)
        import torch

        picked = flat[torch.as_tensor(index, device=flat.device)]
        return list(out.shape), [float(v) for v in picked.double().cpu()]
    return list(out.shape), [float(v) for v in np.asarray(out).reshape(-1)[index]]


def sparse_probe(row, out, index):
    """A sparse result is looked at as the dense grid that it stands for: [cells, F], or [cells] of counts."""
    import numpy as np

    host = [None if a is None else (a.cpu().numpy() if hasattr(a, "cpu") else np.asarray(a)) for a in out]
    flat, rows, counts = host
    order = np.argsort(flat, kind="stable")
    flat, values = flat[order], (counts if rows is None else rows)[order]
    f = 1 if rows is None else rows.shape[1]
    cells = np.asarray(index) // f
    at = np.minimum(np.searchsorted(flat, cells), max(len(flat) - 1, 0))
    there = (flat[at] == cells) if len(flat) else np.zeros(len(cells), bool)
    picked = values.reshape(len(flat), f)[at, np.asarray(index) % f] if len(flat) else np.zeros(len(cells))
    return [int(math.prod(row["grid"])), f], [float(v) for v in np.where(there, picked, 0)]


def versions():
    for name in ("numpy", "torch", "scipy", "open3d", "robocache"):
        m = sys.modules.get(name)
        if m is not None and hasattr(m, "__version__"):
            VERSIONS[name] = str(m.__version__)
    return VERSIONS


def serve(timed=Timed):
    """Answers the harness until it closes stdin."""
    # What libraries print must not reach the harness: answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    device, count, rows = "cpu", 1, {}
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            cmd = ask["cmd"]
            if cmd == "hello":
                device, count = ask.get("device", "cpu"), ask.get("threads", 1)
                CLOCK[0] = time.thread_time if ask.get("clock") == "cpu" else time.perf_counter
                out = {}
            elif cmd == "setup":
                row, ready, out = ask["row"], {}, {}
                inputs = Inputs(ask["inputs"], device)
                for a in ARMS:
                    if row["kind"] not in a["kinds"] or a["device"] != device or ask.get("arms") and not named(a["name"], ask["arms"]) or named(a["name"], ask.get("without") or []):
                        continue
                    try:
                        start = time.perf_counter()
                        threads(count)
                        ready[a["name"]] = timed(a["make"], row, inputs)
                        out[a["name"]] = {"setting": a["setting"], "other": a["other"], "setup_s": time.perf_counter() - start}
                    except Skip as e:
                        if str(e):
                            out[a["name"]] = {"error": str(e), "skip": True}
                    except Exception as e:  # one arm's failure is its own
                        out[a["name"]] = {"error": f"{type(e).__name__}: {e}".split("\n")[0][:400]}
                rows[row["name"]] = (row, ready)
                out = {"arms": out}
            elif cmd == "probe":
                row, ready = rows[ask["name"]]
                shape, values = probe(row, ready[ask["arm"]].result(), ask["index"])
                # JSON has no NaN and no infinity.
                out = {"shape": shape, "values": [v if math.isfinite(v) else str(v) for v in values]}
            elif cmd == "time":
                threads(count)
                out = {"us": rows[ask["name"]][1][ask["arm"]].time(ask["seconds"], ask.get("cold", False))}
            elif cmd == "drop":
                rows.pop(ask["name"], None)
                out = {}
            else:
                out = {"error": "unknown command " + cmd}
            out["versions"] = versions()
        except Exception as e:
            out = {"error": f"{type(e).__name__}: {e}".split("\n")[0][:400]}
        answers.write(json.dumps(out) + "\n")
        answers.flush()


def named(name, families):
    return any(name == f or name.startswith((f + " ", f + ".")) for f in families)


def threads(n):
    """Equal in every arm. The harness has set OMP_NUM_THREADS before the start; whoever imports torch is told again. A process without torch arms does not wait for its import."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(n)
