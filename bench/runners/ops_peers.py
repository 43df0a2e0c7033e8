"""The runners of `bench ops`: ours, NumPy's ways, torch's (the vectorised ways that its users write, the same on CPU and GPU), Open3D's, copies, and one call from Python.

Bars name them: "np.interp", "numpy" (any "numpy …"), "torch.compile", "torch" (any), "open3d", "memcpy" (any), on the GPU "copy" (any). torch takes times as float32
seconds since the first timestamp, which is less to move than the int64 that ours reads: its better setting."""
import ops
from ops import Skip, runner

KINDS = ("fuse", "voxelize")


# Ours, as its users call it; results are put where they were before.
def our_call(row, x, backend=None):
    import robocache as rc

    wants_torch = row.get("dtype") == "bfloat16" or x.device != "cpu" or row.get("out") == "bfloat16"
    try:
        import torch
    except ImportError:
        if wants_torch:
            raise
        torch = None
    get = x.torch if torch else x.__getitem__
    if row["kind"] == "voxelize":
        cells = row["grid"][0] * row["grid"][1] * row["grid"][2]
        how = dict(grid_min=tuple(row["min"]), voxel_size=tuple(row["size"]), grid_size=tuple(row["grid"]), mode=row["mode"], layout=row["layout"], backend=backend)
        if row["layout"] == "sparse" and x.device != "cpu":
            how["capacity"] = min(row["N"], cells)
        points, features = get("points"), get("features") if "features" in x else None
        return lambda: rc.voxelize(points, features, **how)
    n = len(row["streams"])
    parts = [(get(f"values{i}"), get(f"times{i}"), dict(offsets=get(f"offsets{i}")) if row.get("ragged") else {}) for i in range(n)]
    how, at = dict(mode=row["mode"], backend=backend), 0
    for s, (_, _, own) in zip(row["streams"], parts):
        if row.get("norm"):
            own["normalize"] = dict(mean=x["mean"][at : at + s["D"]].tolist(), std=(x["std"][at : at + s["D"]] + 1e-8).tolist())
        at += s["D"]
    if torch:
        out = torch.empty(row["B"], row["T"], at, dtype=getattr(torch, row["out"]), device=x.device)
    else:
        import numpy as np

        out = np.empty((row["B"], row["T"], at), row["out"])
    targets = get("targets")
    v, t, own = parts[0]
    call = (lambda: rc.resample(v, t, targets, out=out, **how, **own)) if n == 1 else lambda: rc.fuse(parts, targets, out=out, **how)
    return again(call, (parts, targets, out))


def again(call, held):
    """The operation of a call, as it was prepared: the kernel, without what Python looks at before it (the row `call` measures that)."""
    from robocache._tensors.prepared import Prepared

    run, made = Prepared.run, []
    Prepared.run = lambda op, *addresses: made.append((op, addresses)) or run(op, *addresses)
    try:
        out = call()
    finally:
        Prepared.run = run
    if not made:  # a plan that is known from before goes another way
        return call
    op, addresses = made[-1]
    return lambda held=held: op.run(*addresses) or out


@runner("robocache", KINDS, "resample and fuse prepared once, voxelize as it is called; on a GPU in a CUDA graph", role="ours")
def ours(row, x):
    return our_call(row, x)


@runner("reference", KINDS, "pure Go, one thread", device=("cpu",), role="named")
def reference(row, x):
    return our_call(row, x, "reference")


def truth_of(row, x):
    """The reference's result; for a GPU kernel/cpu's, which equals it to the bit (kernel/conform) and is done before a device is tired of waiting."""
    return our_call(row, x if x.device == "cpu" else x.again("cpu"), "reference" if x.device == "cpu" else "cpu")()


def streams(row, x, modes):
    """(values, times as float64 seconds since the first timestamp) a stream, and the targets."""
    import numpy as np

    if row.get("mode") not in modes or row["dtype"] != "float32" or row.get("ragged"):
        raise Skip()
    first = x["times0"].min(1, keepdims=True)
    seconds = lambda t: (t - first) * 1e-9
    parts = [(x[f"values{i}"], seconds(x[f"times{i}"])) for i in range(len(row["streams"]))]
    norm = (x["mean"], x["std"] + np.float32(1e-8)) if row.get("norm") else None
    return parts, seconds(x["targets"]), norm


@runner("np.interp", ("fuse",), "a Python loop over trajectories and channels", device=("cpu",))
def interp(row, x):
    import numpy as np

    parts, targets, norm = streams(row, x, ("linear",))
    if norm is not None or len(parts) > 1:
        raise Skip()
    v, t = parts[0]
    out = np.empty((row["B"], row["T"], v.shape[2]), np.float32)

    def call():
        for b in range(len(v)):
            for d in range(v.shape[2]):
                out[b, :, d] = np.interp(targets[b], t[b], v[b, :, d])
        return out

    return call


@runner("numpy", ("fuse",), "searchsorted and lerp a trajectory", device=("cpu",))
def numpy_lerp(row, x):
    import numpy as np

    parts, targets, norm = streams(row, x, ("linear",))
    out = np.empty((row["B"], row["T"], sum(v.shape[2] for v, _ in parts)), np.float32)

    def call():
        for b in range(row["B"]):
            col = 0
            for v, t in parts:
                i = np.clip(np.searchsorted(t[b], targets[b], "right"), 1, len(t[b]) - 1)
                w = np.clip((targets[b] - t[b, i - 1]) / (t[b, i] - t[b, i - 1]), 0, 1).astype(np.float32)[:, None]
                v0 = v[b, i - 1]
                out[b, :, col : col + v.shape[2]] = v0 + w * (v[b, i] - v0)
                col += v.shape[2]
        if norm is not None:
            np.subtract(out, norm[0], out=out)
            np.divide(out, norm[1], out=out)
        return out

    return call


def blend(np, q0, q1, w):
    q0 = q0 / np.linalg.norm(q0, axis=-1, keepdims=True)
    q1 = q1 / np.linalg.norm(q1, axis=-1, keepdims=True)
    dot = (q0 * q1).sum(-1, keepdims=True)
    q1 = np.where(dot < 0, -q1, q1)
    th = np.arccos(np.clip(np.abs(dot), 0, 1))
    s = np.sin(th)
    near = s < 1e-6
    s = np.where(near, 1, s)
    a, b = np.where(near, 1 - w, np.sin((1 - w) * th) / s), np.where(near, w, np.sin(w * th) / s)
    return (a * q0 + b * q1).astype(np.float32)


@runner("numpy slerp", ("fuse",), "all trajectories in one vectorised expression, float64", device=("cpu",))
def slerp(row, x):
    import numpy as np

    parts, targets, _ = streams(row, x, ("slerp",))
    v, t = parts[0]
    base = (np.arange(row["B"]) * 1e3)[:, None]  # one searchsorted for all: trajectories on one axis, far apart
    flat = (t + base).ravel()

    def call():
        n = t.shape[1]
        i = np.searchsorted(flat, (targets + base).ravel(), "right").reshape(targets.shape)
        i = np.clip(i - np.arange(len(t))[:, None] * n, 1, n - 1)
        t0, t1 = np.take_along_axis(t, i - 1, 1), np.take_along_axis(t, i, 1)
        w = np.clip((targets - t0) / (t1 - t0), 0, 1)[..., None]
        q0, q1 = (np.take_along_axis(v, k[..., None], 1).astype(np.float64) for k in (i - 1, i))
        return blend(np, q0, q1, w)

    return call


@runner("numpy voxels", ("voxelize",), "floor, then bincount; sparse by unique and a bincount a channel, int32 indices", device=("cpu",))
def numpy_voxels(row, x):
    import numpy as np

    if row["mode"] not in ("count", "occupancy", "mean"):
        raise Skip()
    points, features = x["points"], x["features"] if "features" in x else None
    g, f = row["grid"], row.get("F", 0)
    lo, size, top = (np.array(row[k], np.float32) for k in ("min", "size", "grid"))
    cells = g[0] * g[1] * g[2]
    kind = np.int32 if cells < 2**31 else np.int64

    def means(at, part, count, n):
        out = np.empty((n, f), np.float32)
        for c in range(f):
            out[:, c] = np.bincount(at, weights=part[:, c], minlength=n) / count
        return out

    def run():
        c = np.floor((points - lo) / size)
        inside = ((c >= 0) & (c < top)).all(1)
        if inside.all():
            inside = slice(None)
        else:
            c = c[inside]
        c = c.astype(kind)
        at = (c[:, 0] * g[1] + c[:, 1]) * g[2] + c[:, 2]
        if row["layout"] == "sparse":
            cell, inverse, count = np.unique(at, return_inverse=True, return_counts=True)
            return cell, means(inverse, features[inside], count, len(cell)) if row["mode"] == "mean" else None, count
        if row["mode"] == "occupancy":
            out = np.zeros(cells, np.uint8)
            out[at] = 1
            return out.reshape(g)
        count = np.bincount(at, minlength=cells)
        if row["mode"] == "count":
            return count.reshape(g)
        return means(at, features[inside], np.maximum(count, 1), cells).reshape(*g, f)

    return run


@runner("open3d", ("voxelize",), "voxel_down_sample of float64 points: the mean of x, y, z of each cell, no other channel, no list of cells; its grid begins half a cell below the lowest point",
        device=("cpu",), role="other")
def open3d_way(row, x):
    if row["layout"] != "sparse" or row["mode"] != "mean":
        raise Skip()
    try:
        import open3d
    except ImportError as e:  # `pip install open3d` into an environment of its own, and name its folder in PYTHONPATH
        raise Skip(f"no open3d: {e}")
    import numpy as np

    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(x["points"].astype(np.float64)))
    return lambda: cloud.voxel_down_sample(float(row["size"][0]))


def lerp(torch, streams, targets, norm, out_type):
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

    if row.get("mode") != "linear" or row.get("ragged"):  # it has no ragged searchsorted
        raise Skip()
    first = x.torch("times0").min(1, keepdim=True).values
    seconds = lambda name: ((x.torch(name) - first).double() * 1e-9).float().contiguous()
    streams = [(x.torch(f"values{i}"), seconds(f"times{i}")) for i in range(len(row["streams"]))]
    norm = (x.torch("mean").to(streams[0][0].dtype), x.torch("std").to(streams[0][0].dtype)) if row.get("norm") else None
    return streams, seconds("targets"), norm, getattr(torch, row["out"])


@runner("torch eager", ("fuse", "call"), "searchsorted, gather, lerp; times float32 seconds; on a GPU in a CUDA graph")
def eager(row, x):
    import torch

    a = fuse_arguments(row, x)
    return lambda: lerp(torch, *a)


@runner("torch.compile", ("fuse", "call"), "the same through inductor, static shapes")
def compiled(row, x):
    import torch

    a = fuse_arguments(row, x)
    torch._dynamo.config.recompile_limit = 1000  # a row is a shape; beyond the limit dynamo would run eager without a word
    f = torch.compile(lerp, dynamic=False, fullgraph=True)
    return lambda: f(torch, *a)


def voxels(row, x):
    import torch

    points, features = x.torch("points"), x.torch("features") if "features" in x else None
    g, lo, size = row["grid"], row["min"], row["size"]
    cells = g[0] * g[1] * g[2]
    if cells >= 1 << 24:
        raise Skip()
    ones = torch.ones(points.shape[0], dtype=torch.int32, device=points.device)
    weights = ones.float()
    low, sizes, shape = (torch.tensor(v, device=points.device) for v in (lo, size, g))

    def index():
        if row["layout"] == "sparse" and points.is_cuda:  # launched one by one: fewer launches are faster
            f = torch.floor((points - low) / sizes)
            i = f.long()
            return torch.where(((f >= 0) & (f < shape)).all(1), (i[:, 0] * g[1] + i[:, 1]) * g[2] + i[:, 2], cells)
        # Column by column: three times as fast on a CPU as rows of three. float32 holds the flat index of up to 2^24 cells.
        x, y, z = (torch.floor((points[:, a] - lo[a]) / size[a]) for a in range(3))
        inside = (x >= 0) & (x < g[0]) & (y >= 0) & (y < g[1]) & (z >= 0) & (z < g[2])
        return torch.where(inside, (x * g[1] + y) * g[2] + z, float(cells)).long()  # a cell behind the grid takes what is outside: no wait for a mask

    def run():
        at = index()
        mode = row["mode"]
        if row["layout"] == "sparse":
            cell, inverse, count = torch.unique(at, return_inverse=True, return_counts=True)
            rows = torch.zeros(cell.shape[0], row["F"], device=points.device).index_add_(0, inverse, features)
            return cell, rows / count.unsqueeze(1), count
        if mode == "count":
            return torch.zeros(cells + 1, dtype=torch.int32, device=points.device).scatter_add_(0, at, ones)[:cells].view(g)
        if mode == "occupancy":
            return torch.zeros(cells + 1, dtype=torch.uint8, device=points.device).index_fill_(0, at, 1)[:cells].view(g)
        wide = at.unsqueeze(1).expand(-1, row["F"])
        if mode == "mean":
            s = torch.zeros(cells + 1, row["F"], device=points.device).index_add_(0, at, features)
            n = torch.zeros(cells + 1, device=points.device).scatter_add_(0, at, weights)
            return (s / n.clamp(min=1).unsqueeze(1))[:cells].view(*g, row["F"])
        if mode == "max":
            m = torch.full((cells + 1, row["F"]), -torch.inf, device=points.device).scatter_reduce_(0, wide, features, "amax")
            return torch.where(m == -torch.inf, 0.0, m)[:cells].view(*g, row["F"])
        raise Skip()

    return run


@runner("torch voxels", ("voxelize",), "floor, index_add_ / index_fill_ / scatter_reduce_, unique for sparse; points outside go to a cell behind the grid; dense ones on a GPU in a CUDA graph")
def torch_voxels(row, x):
    if x.device != "cpu" and row["layout"] == "sparse":
        raise Skip()  # below: unique cannot be captured
    return voxels(row, x)


@runner("torch unique", ("voxelize",), "torch.unique + index_add, launched one by one: unique waits for the device and cannot be captured", device=("cuda",), launched=True)
def unique(row, x):
    if row["layout"] != "sparse":
        raise Skip()
    return voxels(row, x)


# The limits: copying as many bytes as the row touches (half of them read, half written).


@runner("memcpy numpy", KINDS, "np.copyto, one thread", device=("cpu",), role="limit")
def numpy_copy(row, x):
    import numpy as np

    if row.get("threads", 1) > 1:
        raise Skip()
    src = np.zeros(max(row["bytes"] // 2, 1), np.uint8)
    dst = np.ones_like(src)
    return lambda: np.copyto(dst, src)


@runner("memcpy torch", KINDS, "copy_", device=("cpu",), role="limit")
def torch_copy(row, x):
    import torch

    src = torch.zeros(max(row["bytes"] // 8, 1), dtype=torch.int32)
    dst = torch.ones_like(src)
    return lambda: dst.copy_(src)


BIG = []


@runner("copy torch", KINDS, "copy_ of 1 GiB on the stream, scaled to the row's bytes", device=("cuda",), role="limit", scaled=2 << 30)
def big_copy(row, x):
    import torch

    if not BIG:
        BIG.extend(torch.zeros(1 << 28, dtype=torch.float32, device="cuda") for _ in range(2))
    return lambda: BIG[1].copy_(BIG[0])


# One call from Python.
@runner("robocache", ("call",), "robocache.resample(…, out=out) on torch tensors", role="ours")
def call_out(row, x):
    import robocache as rc
    import torch

    v, t, g = x.torch("values0"), x.torch("times0"), x.torch("targets")
    out = torch.empty(row["B"], row["T"], v.shape[2], dtype=v.dtype, device=v.device)
    return lambda: rc.resample(v, t, g, out=out)


@runner("robocache new result", ("call",), "robocache.resample(…), the result allocated in each call")
def call_new(row, x):
    import robocache as rc

    v, t, g = x.torch("values0"), x.torch("times0"), x.torch("targets")
    return lambda: rc.resample(v, t, g)


@runner("torch.add", ("call",), "one elementwise operation, out=: what a call costs in torch; not the same work", role="other")
def call_add(row, x):
    import torch

    v = x.torch("values0")
    out = torch.empty_like(v)
    return lambda: torch.add(v, v, out=out)


# A million trajectories over PCIe, and two devices.
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
        import contextlib

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
    import time

    import torch

    if row["kind"] == "shards-host":
        work = [(f.send, f.wait) for f in feeder(row, 2)]
    else:
        row["calls"], work = CALLS, []
        for d in range(2):
            x = ops.make_inputs(dict(row, kind="fuse"), f"cuda:{d}")
            call = our_call(dict(row, kind="fuse"), x)
            if why := ops.wrong(dict(row, kind="fuse"), call(), truth_of(dict(row, kind="fuse"), x), True):
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


if __name__ == "__main__":
    ops.main(truth_of)
