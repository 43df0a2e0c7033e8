"""The peers on the GPU: torch eager and torch.compile, each in a CUDA graph, and torch's own copy as the limit.

torch takes times as float32 seconds since the first timestamp, which is less to move than the int64 that ours reads: its better setting."""
import ops_common as ops
import ways_torch as ways

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


@ops.arm("copy torch", KINDS, device="cuda", setting="copy_ of 1 GiB on the stream, scaled to the row's bytes", other=True)
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


@ops.arm("torch eager", KINDS, device="cuda", setting="in a CUDA graph; times float32 seconds")
def eager(row, x):
    if row.get("layout") == "sparse":
        raise ops.Skip()  # below: unique cannot be captured
    return ways.eager(row, x)


@ops.arm("torch.compile", ("fuse",), device="cuda", setting="inductor, static shapes, in a CUDA graph; times float32 seconds")
def compiled(row, x):
    return ways.compiled(row, x)


@ops.arm("torch unique", ("voxelize",), device="cuda", setting="torch.unique + index_add, launched one by one: unique waits for the device and cannot be captured")
def unique(row, x):
    if row["layout"] != "sparse":
        raise ops.Skip()
    return ways.eager(row, x)


unique.launched = True

if __name__ == "__main__":
    ops.serve(timed)
