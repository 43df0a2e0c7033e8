"""One call from Python on a small shape: the host's time, without a graph. ops_call.py and ops_gpu_call.py make arms of it."""
import ops_common as ops
import ways_torch as ways


class Called(ops.Timed):
    """Calls one after another; the device, where there is one, is waited for between chunks, outside of what is timed."""

    def time(self, seconds, cold):
        call, clock = self.calls[0], ops.CLOCK[0]
        sync = self.inputs.wait
        figures, begin = [], clock()
        while len(figures) < 5 or clock() - begin < seconds:
            sync()
            start = clock()
            for _ in range(100):
                call()
            figures.append((clock() - start) / 100 * 1e6)
        return figures[1:]


def robocache(row, x):
    import robocache as rc
    import torch

    v, t, g = x.torch("values0"), x.torch("times0"), x.torch("targets")
    out = torch.empty(row["B"], row["T"], v.shape[2], dtype=v.dtype, device=v.device)
    return lambda: rc.resample(v, t, g, out=out)


def fresh(row, x):
    """As people write it: a new result each call."""
    import robocache as rc

    v, t, g = x.torch("values0"), x.torch("times0"), x.torch("targets")
    return lambda: rc.resample(v, t, g)


def add(row, x):
    import torch

    v = x.torch("values0")
    out = torch.empty_like(v)
    return lambda: torch.add(v, v, out=out)


def register(device):
    ops.arm("robocache", ("call",), device, "robocache.resample(…, out=out) on torch tensors")(robocache)
    ops.arm("robocache new result", ("call",), device, "robocache.resample(…), the result allocated in each call")(fresh)
    ops.arm("torch eager", ("call",), device, "searchsorted, gather, lerp")(ways.eager)
    ops.arm("torch.compile", ("call",), device, "the same through inductor")(ways.compiled)
    ops.arm("torch.add", ("call",), device, "one elementwise operation, out=: what a call costs in torch; not the same work", other=True)(add)
