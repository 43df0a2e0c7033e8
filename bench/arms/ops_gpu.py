"""The peers on the GPU: torch eager and torch.compile, each in a CUDA graph, and torch's own copy as the limit.

torch takes times as float32 seconds since the first stamp, which is less to move than the int64 that ours reads: its better setting."""
import ops_common as ops

KINDS = ("fuse", "voxelize")


class Graphed:
    """An arm captured in a CUDA graph of calls, replayed between events."""

    def __init__(self, make, row, inputs):
        import torch

        self.make, self.row, self.inputs, self.torch = make, row, inputs, torch
        self.scale = getattr(make, "scale", None)  # a copy stands on the stream, as it is, and is scaled to the row's bytes
        self.calls = [make(row, inputs)]
        self.graphs = {}
        self.side = torch.cuda.Stream()
        with torch.cuda.stream(self.side):
            for _ in range(3):
                self.out = self.calls[0]()
        torch.cuda.synchronize()
        if not self.scale:
            self.graph(False)

    def result(self):
        return self.out

    def between(self, f):
        torch = self.torch
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.side):
            a.record()
            f()
            b.record()
        b.synchronize()
        return a.elapsed_time(b) * 1e3

    def graph(self, cold):
        if cold in self.graphs:
            return self.graphs[cold]
        torch = self.torch
        sets = self.row.get("copies", 1) if cold else 1
        with torch.cuda.stream(self.side):
            while len(self.calls) < sets:
                self.calls.append(self.make(self.row, self.inputs.again()))
                self.calls[-1]()
        torch.cuda.synchronize()
        calls = self.calls[:sets]
        for c in calls:
            c()
        torch.cuda.synchronize()
        us = self.between(lambda: [calls[i % sets]() for i in range(4)]) / 4
        n = int(min(200, max(4, 500 / max(us, 1))))
        n = -(-n // sets) * sets
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, stream=self.side):
            for i in range(n):
                out = calls[i % sets]()
        torch.cuda.synchronize()
        if not cold:
            g.replay()
            torch.cuda.synchronize()
            self.out = out
        self.graphs[cold] = (g, n)
        return self.graphs[cold]

    def time(self, seconds, cold):
        if self.scale:
            return self.scale(self)
        g, n = self.graph(cold)
        figures, total = [], 0.0
        while len(figures) < 7 or total < seconds * 1e6 and len(figures) < 400:
            us = self.between(g.replay)
            figures.append(us / n)
            total += us
        return figures[2:]


@ops.arm("copy torch", KINDS, device="cuda", setting="copy_ of 1 GiB on the stream, scaled to the row's bytes")
def copy(row, x):
    import torch

    global BIG
    try:
        src, dst = BIG
    except NameError:
        src = torch.zeros(1 << 28, dtype=torch.float32, device="cuda")
        BIG = src, dst = src, torch.empty_like(src)
    return lambda: dst.copy_(src)


def scaled(t):
    out = [t.between(lambda: [t.calls[0]() for _ in range(3)]) / 3 for _ in range(4)][1:]
    return [us * t.row["bytes"] / (2 << 30) for us in out]


copy.scale = scaled


def lerp_streams(torch, streams, targets, norm, out_type):
    """The vectorised way: search, gather both neighbours, lerp; streams side by side."""
    parts = []
    for v, s in streams:
        n = s.shape[1]
        i = torch.searchsorted(s, targets, right=True).clamp(1, n - 1)
        s0, s1 = s.gather(1, i - 1), s.gather(1, i)
        w = ((targets - s0) / (s1 - s0)).clamp(0, 1).to(v.dtype).unsqueeze(-1)
        at = i.unsqueeze(-1).expand(-1, -1, v.shape[2])
        parts.append(torch.lerp(v.gather(1, at - 1), v.gather(1, at), w))
    out = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    if norm is not None:
        out = (out - norm[0]) / (norm[1] + 1e-8)
    return out.to(out_type)


def fuse_arguments(row, x):
    import torch

    if row.get("mode") != "linear":
        raise ops.Skip()
    if row.get("ragged"):
        raise ops.Skip("torch has no ragged searchsorted")
    first = x.torch("times0").min(1, keepdim=True).values
    seconds = lambda name: ((x.torch(name) - first).double() * 1e-9).float().contiguous()
    streams = [(x.torch(f"values{i}"), seconds(f"times{i}")) for i in range(len(row["streams"]))]
    norm = (x.torch("mean").to(streams[0][0].dtype), x.torch("std").to(streams[0][0].dtype)) if row.get("norm") else None
    return streams, seconds("targets"), norm, getattr(torch, row["out"])


def voxel_way(torch, row, points, features, n_inside=None):
    g, lo, size = row["grid"], row["min"], row["size"]
    cells = g[0] * g[1] * g[2]
    lo = torch.tensor(lo, device=points.device)
    size = torch.tensor(size, device=points.device)
    shape = torch.tensor(g, device=points.device)
    step = torch.tensor([g[1] * g[2], g[2], 1], device=points.device)
    ones = torch.ones(points.shape[0], dtype=torch.int32, device=points.device)

    def index():
        f = torch.floor((points - lo) / size)
        inside = ((f >= 0) & (f < shape)).all(1)
        flat = (f.to(torch.int64) * step).sum(1)
        return torch.where(inside, flat, cells)  # a cell behind the grid takes what is outside: no wait for a mask

    def run():
        at = index()
        mode = row["mode"]
        if row["layout"] == "sparse":
            cell, inverse, count = torch.unique(at, return_inverse=True, return_counts=True)
            rows = torch.zeros(cell.shape[0], row["F"], device=points.device).index_add_(0, inverse, features)
            return cell, rows / count.unsqueeze(1), count
        if mode == "count":
            return torch.zeros(cells + 1, dtype=torch.int32, device=points.device).index_add_(0, at, ones)[:cells].view(g)
        if mode == "occupancy":
            return torch.zeros(cells + 1, dtype=torch.uint8, device=points.device).index_fill_(0, at, 1)[:cells].view(g)
        wide = at.unsqueeze(1).expand(-1, row["F"])
        if mode == "mean":
            s = torch.zeros(cells + 1, row["F"], device=points.device).index_add_(0, at, features)
            n = torch.zeros(cells + 1, device=points.device).index_add_(0, at, ones.float())
            return (s / n.clamp(min=1).unsqueeze(1))[:cells].view(*g, row["F"])
        if mode == "max":
            m = torch.full((cells + 1, row["F"]), -torch.inf, device=points.device).scatter_reduce_(0, wide, features, "amax")
            return torch.where(m == -torch.inf, 0.0, m)[:cells].view(*g, row["F"])
        raise ops.Skip()

    return run


def voxel_arguments(row, x):
    return x.torch("points"), x.torch("features") if "features" in x else None


@ops.arm("torch eager", KINDS, device="cuda", setting="in a CUDA graph; times float32 seconds")
def eager(row, x):
    import torch

    if row["kind"] == "voxelize":
        if row["layout"] == "sparse":
            raise ops.Skip()  # below: unique cannot be captured
        return voxel_way(torch, row, *voxel_arguments(row, x))
    a = fuse_arguments(row, x)
    return lambda: lerp_streams(torch, *a)


@ops.arm("torch.compile", KINDS, device="cuda", setting="inductor, static shapes, in a CUDA graph; times float32 seconds")
def compiled(row, x):
    import torch

    if row["kind"] == "voxelize":
        raise ops.Skip()
    a = fuse_arguments(row, x)
    torch._dynamo.config.recompile_limit = 1000  # a row is a shape; beyond the limit dynamo would run eager without a word
    f = torch.compile(lerp_streams, dynamic=False, fullgraph=True)
    return lambda: f(torch, *a)


class Launched(Graphed):
    """An arm that waits for the device within, so that no graph can hold it: wall time of calls, one after another."""

    def graph(self, cold):
        return None

    def time(self, seconds, cold):
        import time

        torch, figures, begin = self.torch, [], time.perf_counter()
        while len(figures) < 5 or time.perf_counter() - begin < seconds:
            figures.append(self.between(self.calls[0]))
        return figures[2:]


def timed(make, row, inputs):
    return (Launched if getattr(make, "launched", False) else Graphed)(make, row, inputs)


@ops.arm("torch unique", ("voxelize",), device="cuda", setting="torch.unique + index_add, launched one by one: unique waits for the device and cannot be captured")
def unique(row, x):
    import torch

    if row["layout"] != "sparse":
        raise ops.Skip()
    return voxel_way(torch, row, *voxel_arguments(row, x))


unique.launched = True

if __name__ == "__main__":
    ops.serve(timed)
