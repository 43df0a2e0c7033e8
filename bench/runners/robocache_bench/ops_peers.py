"""The runners of `robocache-bench ops`.

This module is the program.

The peers are NumPy, torch (the vectorized code that its users write, the same on CPU and GPU),
Open3D, copies, and one call from Python. Bars name them: "np.interp", "numpy" (any "numpy …"),
"torch.compile", "torch" (any), "open3d", "memcpy" (any), and on the GPU "copy" (any). torch takes
times as float32 seconds since the first timestamp. These are half the bytes of the int64 timestamps
that RoboCache reads, so this is the better setting for torch.
"""

import numpy as np
from . import ops
from . import ops_ours
from .ops import KINDS, Skip, runner


def streams(row, x, modes):
    """Returns (values, times) for each stream, the targets, and the normalization or None.

    Times are float64 seconds since the first timestamp.
    """

    if row.get("mode") not in modes or row["dtype"] != "float32" or row.get("ragged"):
        raise Skip()
    first = x["times0"].min(1, keepdims=True)
    seconds = lambda t: (t - first) * 1e-9
    parts = [(x[f"values{i}"], seconds(x[f"times{i}"])) for i in range(len(row["streams"]))]
    norm = (x["mean"], x["std"] + np.float32(1e-8)) if row.get("norm") else None
    return parts, seconds(x["targets"]), norm


@runner("np.interp", ("fuse",), "a Python loop over trajectories and channels", device=("cpu",))
def interp(row, x):
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
    parts, targets, norm = streams(row, x, ("linear",))
    out = np.empty((row["B"], row["T"], sum(v.shape[2] for v, _ in parts)), np.float32)

    def call():
        for b in range(row["B"]):
            col = 0
            for v, t in parts:
                i = np.clip(np.searchsorted(t[b], targets[b], "right"), 1, len(t[b]) - 1)
                w = np.clip((targets[b] - t[b, i - 1]) / (t[b, i] - t[b, i - 1]), 0, 1).astype(
                    np.float32
                )[:, None]
                v0 = v[b, i - 1]
                out[b, :, col : col + v.shape[2]] = v0 + w * (v[b, i] - v0)
                col += v.shape[2]
        if norm is not None:
            np.subtract(out, norm[0], out=out)
            np.divide(out, norm[1], out=out)
        return out

    return call


def slerp_pairs(q0, q1, w):
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


@runner(
    "numpy slerp",
    ("fuse",),
    "all trajectories in one vectorised expression, float64",
    device=("cpu",),
)
def slerp(row, x):
    parts, targets, _ = streams(row, x, ("slerp",))
    v, t = parts[0]
    # One searchsorted for all trajectories: they are placed on one axis, far apart.
    base = (np.arange(row["B"]) * 1e3)[:, None]
    flat = (t + base).ravel()

    def call():
        n = t.shape[1]
        i = np.searchsorted(flat, (targets + base).ravel(), "right").reshape(targets.shape)
        i = np.clip(i - np.arange(len(t))[:, None] * n, 1, n - 1)
        t0, t1 = np.take_along_axis(t, i - 1, 1), np.take_along_axis(t, i, 1)
        w = np.clip((targets - t0) / (t1 - t0), 0, 1)[..., None]
        q0, q1 = (np.take_along_axis(v, k[..., None], 1).astype(np.float64) for k in (i - 1, i))
        return slerp_pairs(q0, q1, w)

    return call


@runner(
    "numpy voxels",
    ("voxelize",),
    "floor, then bincount; sparse by unique and a bincount a channel, int32 indices",
    device=("cpu",),
)
def numpy_voxels(row, x):
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
            return (
                cell,
                means(inverse, features[inside], count, len(cell))
                if row["mode"] == "mean"
                else None,
                count,
            )
        if row["mode"] == "occupancy":
            out = np.zeros(cells, np.uint8)
            out[at] = 1
            return out.reshape(g)
        count = np.bincount(at, minlength=cells)
        if row["mode"] == "count":
            return count.reshape(g)
        return means(at, features[inside], np.maximum(count, 1), cells).reshape(*g, f)

    return run


@runner(
    "open3d",
    ("voxelize",),
    "voxel_down_sample of float64 points: the mean of x, y, z of each cell, no other channel, "
    "no list of cells; its grid begins half a cell below the lowest point",
    device=("cpu",),
    role="other",
)
def open3d_way(row, x):
    if row["layout"] != "sparse" or row["mode"] != "mean":
        raise Skip()
    try:
        import open3d
    except ImportError as e:
        # install open3d in a separate environment, and add its folder to PYTHONPATH
        raise Skip(f"no open3d: {e}")

    cloud = open3d.geometry.PointCloud(
        open3d.utility.Vector3dVector(x["points"].astype(np.float64))
    )
    return lambda: cloud.voxel_down_sample(float(row["size"][0]))


def torch_lerp(torch, streams, targets, norm, out_type):
    """Searches, gathers both neighbors and interpolates, vectorized; streams are concatenated."""
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

    if row.get("mode") != "linear" or row.get("ragged"):  # torch has no ragged searchsorted
        raise Skip()
    first = x.torch("times0").min(1, keepdim=True).values
    seconds = lambda name: ((x.torch(name) - first).double() * 1e-9).float().contiguous()
    streams = [(x.torch(f"values{i}"), seconds(f"times{i}")) for i in range(len(row["streams"]))]
    norm = (
        (x.torch("mean").to(streams[0][0].dtype), x.torch("std").to(streams[0][0].dtype))
        if row.get("norm")
        else None
    )
    return streams, seconds("targets"), norm, getattr(torch, row["out"])


@runner(
    "torch eager",
    ("fuse", "call"),
    "searchsorted, gather, lerp; times float32 seconds; on a GPU in a CUDA graph",
)
def eager(row, x):
    import torch

    a = fuse_arguments(row, x)
    return lambda: torch_lerp(torch, *a)


@runner("torch.compile", ("fuse", "call"), "the same through inductor, static shapes")
def compiled(row, x):
    import torch

    a = fuse_arguments(row, x)
    # one row per shape; beyond the limit, dynamo would silently run eager
    torch._dynamo.config.recompile_limit = 1000
    f = torch.compile(torch_lerp, dynamic=False, fullgraph=True)
    return lambda: f(torch, *a)


def torch_voxel_call(row, x):
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
        # Calls are launched directly here, so fewer launches are faster.
        if row["layout"] == "sparse" and points.is_cuda:
            f = torch.floor((points - low) / sizes)
            i = f.long()
            return torch.where(
                ((f >= 0) & (f < shape)).all(1), (i[:, 0] * g[1] + i[:, 1]) * g[2] + i[:, 2], cells
            )
        # Working column by column is three times as fast on a CPU as rows of three. float32
        # represents the flat index of up to 2^24 cells exactly.
        x, y, z = (torch.floor((points[:, a] - lo[a]) / size[a]) for a in range(3))
        inside = (x >= 0) & (x < g[0]) & (y >= 0) & (y < g[1]) & (z >= 0) & (z < g[2])
        # Points outside go to a cell behind the grid, which avoids waiting for a mask.
        return torch.where(inside, (x * g[1] + y) * g[2] + z, float(cells)).long()

    def run():
        at = index()
        mode = row["mode"]
        if row["layout"] == "sparse":
            cell, inverse, count = torch.unique(at, return_inverse=True, return_counts=True)
            rows = torch.zeros(cell.shape[0], row["F"], device=points.device).index_add_(
                0, inverse, features
            )
            return cell, rows / count.unsqueeze(1), count
        if mode == "count":
            return (
                torch.zeros(cells + 1, dtype=torch.int32, device=points.device)
                .scatter_add_(0, at, ones)[:cells]
                .view(g)
            )
        if mode == "occupancy":
            return (
                torch.zeros(cells + 1, dtype=torch.uint8, device=points.device)
                .index_fill_(0, at, 1)[:cells]
                .view(g)
            )
        wide = at.unsqueeze(1).expand(-1, row["F"])
        if mode == "mean":
            s = torch.zeros(cells + 1, row["F"], device=points.device).index_add_(0, at, features)
            n = torch.zeros(cells + 1, device=points.device).scatter_add_(0, at, weights)
            return (s / n.clamp(min=1).unsqueeze(1))[:cells].view(*g, row["F"])
        if mode == "max":
            m = torch.full((cells + 1, row["F"]), -torch.inf, device=points.device).scatter_reduce_(
                0, wide, features, "amax"
            )
            return torch.where(m == -torch.inf, 0.0, m)[:cells].view(*g, row["F"])
        raise Skip()

    return run


@runner(
    "torch voxels",
    ("voxelize",),
    "floor, index_add_ / index_fill_ / scatter_reduce_, unique for sparse; points outside go to a "
    "cell behind the grid; dense ones on a GPU in a CUDA graph",
)
def torch_voxels(row, x):
    if x.device != "cpu" and row["layout"] == "sparse":
        raise Skip()  # see "torch unique": unique cannot be captured
    return torch_voxel_call(row, x)


@runner(
    "torch unique",
    ("voxelize",),
    "torch.unique + index_add, launched one by one: unique waits for the device and cannot be "
    "captured",
    device=("cuda",),
    launched=True,
)
def unique(row, x):
    if row["layout"] != "sparse":
        raise Skip()
    return torch_voxel_call(row, x)


# The limits copy as many bytes as the row touches: half of them are read, half written.


@runner("memcpy numpy", KINDS, "np.copyto, one thread", device=("cpu",), role="limit")
def numpy_copy(row, x):
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


@runner(
    "copy torch",
    KINDS,
    "copy_ of 1 GiB on the stream, scaled to the row's bytes",
    device=("cuda",),
    role="limit",
    scaled=2 << 30,
)
def big_copy(row, x):
    import torch

    if not BIG:
        BIG.extend(torch.zeros(1 << 28, dtype=torch.float32, device="cuda") for _ in range(2))
    return lambda: BIG[1].copy_(BIG[0])


# The runner of rows of the kind "call".
@runner("robocache", ("call",), "robocache.resample(…, out=out) on torch tensors", role="ours")
def call_out(row, x):
    import robocache as rc
    import torch

    v, t, g = x.torch("values0"), x.torch("times0"), x.torch("targets")
    out = torch.empty(row["B"], row["T"], v.shape[2], dtype=v.dtype, device=v.device)
    return lambda: rc.resample(v, t, g, out=out)


if __name__ == "__main__":
    ops.main(ops_ours.truth_of)
