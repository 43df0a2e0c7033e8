"""The runners of `bench ops` over PCIe, a million trajectories, and on two devices."""
import contextlib, time

import ops
import ops_ours
from ops import runner

PIECE, SLOTS, RING, CALLS = 4096, 3, 1 << 16, 100  # pieces of so many keep both directions at their rate, three of them all engines busy; a ring of host memory


class Feeder:
    """Sends a row's trajectories from page-locked memory through a device and back, with or without the kernel: several pieces are on their way at once, each on a stream and
    in device memory of its own, so that the copies of one overlap with the kernel of another and with the copies the other way."""

    def __init__(self, row, device, ring=RING, piece=PIECE):
        import robocache as rc
        import torch

        self.torch, self.device, self.row, self.ring, self.piece, self.resample = torch, device, row, ring, piece, rc.resample
        x = ops.make_inputs(dict(row, kind="fuse", B=ring), "cpu")
        pin = (lambda t: t.pin_memory()) if device != "cpu" else (lambda t: t)
        self.inputs = [pin(x.torch(k)) for k in ("values0", "times0", "targets")]
        self.out = pin(torch.empty(ring, row["T"], row["streams"][0]["D"], dtype=getattr(torch, row["out"])))
        empty = lambda t: torch.empty((piece, *t.shape[1:]), dtype=t.dtype, device=device)
        self.slots = [(torch.cuda.Stream(device) if device != "cpu" else None, [empty(t) for t in self.inputs], empty(self.out)) for _ in range(SLOTS)]

    def send(self, kernel=True, back=True):
        """All once. A piece follows the earlier one whose slot it takes, on its stream."""
        for n, at in enumerate(range(0, self.row["B"], self.piece)):
            stream, here, out = self.slots[n % SLOTS]
            lo = at % self.ring
            with self.torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                for to, t in zip(here, self.inputs):
                    to.copy_(t[lo : lo + self.piece], non_blocking=True)
                if kernel:
                    self.resample(*here, out=out)
                if back:
                    self.out[lo : lo + self.piece].copy_(out, non_blocking=True)

    def wait(self):
        for stream, _, _ in self.slots:
            if stream:
                stream.synchronize()

    def whole(self, **how):
        self.send(**how)
        self.wait()

    def check(self):
        self.whole()
        for i in (0, 1, self.piece, self.ring // 3, self.ring - 1):
            v, t, g = (x[i : i + 1] for x in self.inputs)
            if not self.torch.equal(self.out[i : i + 1], self.resample(v.clone(), t.clone(), g.clone())):
                raise RuntimeError(f"trajectory {i} is not what the reference gives")


FED = []  # the feeder of the row that runs


def feeder(row, devices=1):
    import torch

    if not FED or FED[0].row is not row:
        FED[:] = [Feeder(row, f"cuda:{torch.cuda.current_device() if devices == 1 else i}") for i in range(devices)]
        for f in FED:
            f.check()
    return FED


def passing(row, said="", **how):
    f = feeder(row)[0]
    return lambda: f.whole(**how) or said


@runner("robocache", ("flow",), f"pieces of {PIECE} from page-locked memory, {SLOTS} at once; copies and kernels overlap", device=("cuda",), role="ours")
def flow(row, x):
    return passing(row, "5 trajectories equal the reference's")


@runner("pcie go", ("flow",), "the same copies without the kernel", device=("cuda",), role="other")
def flow_bare(row, x):
    return passing(row, kernel=False)


@runner("pcie-in go", ("flow",), "the copies to the device alone", device=("cuda",), role="other")
def flow_in(row, x):
    return passing(row, kernel=False, back=False)


def on_two(row, alone):
    """Two devices at once, or one after the other, of which the slower counts: what is expected of both."""
    import torch

    if row["kind"] == "shards-host":
        work = [(f.send, f.wait) for f in feeder(row, 2)]
    else:
        row["calls"], work = CALLS, []
        for d in range(2):
            x = ops.make_inputs(dict(row, kind="fuse"), f"cuda:{d}")
            call = ops_ours.our_call(dict(row, kind="fuse"), x)
            if why := ops.wrong(dict(row, kind="fuse"), call(), ops_ours.truth_of(dict(row, kind="fuse"), x), True):
                raise RuntimeError(f"device {d}: {why}")

            def many(call=call, d=d):
                with torch.cuda.device(d):
                    for _ in range(CALLS):
                        call()

            work.append((many, lambda d=d: torch.cuda.synchronize(d)))

    def call():
        for go, _ in work:
            go()
        for _, wait in work:
            wait()
        return "equal to the reference's on each device"

    def slowest():
        spent = []
        for go, wait in work:
            begin = time.perf_counter()
            go()
            wait()
            spent.append(time.perf_counter() - begin)
        return max(spent)

    return slowest if alone else call


@runner("robocache", ("shards", "shards-host"), "two devices at once, a stream each", device=("cuda",), role="ours")
def shards(row, x):
    return on_two(row, False)


@runner("linear", ("shards", "shards-host"), "one device alone: the slower of the two", device=("cuda",), role="other")
def linear(row, x):
    return on_two(row, True)
