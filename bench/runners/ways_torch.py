"""How torch does the work: the vectorised ways that its users write, the same on CPU and GPU. ops_torch.py and ops_gpu.py make arms of them."""
import ops_common as ops


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

    if row.get("mode") != "linear":
        raise ops.Skip()
    if row.get("ragged"):
        raise ops.Skip()  # it has no ragged searchsorted
    first = x.torch("times0").min(1, keepdim=True).values
    seconds = lambda name: ((x.torch(name) - first).double() * 1e-9).float().contiguous()
    streams = [(x.torch(f"values{i}"), seconds(f"times{i}")) for i in range(len(row["streams"]))]
    norm = (x.torch("mean").to(streams[0][0].dtype), x.torch("std").to(streams[0][0].dtype)) if row.get("norm") else None
    return streams, seconds("targets"), norm, getattr(torch, row["out"])


def voxel_way(torch, row, points, features):
    g, lo, size = row["grid"], row["min"], row["size"]
    cells = g[0] * g[1] * g[2]
    if cells >= 1 << 24:
        raise ops.Skip()
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
        raise ops.Skip()

    return run


def voxel_arguments(row, x):
    return x.torch("points"), x.torch("features") if "features" in x else None


def eager(row, x):
    import torch

    if row["kind"] == "voxelize":
        return voxel_way(torch, row, *voxel_arguments(row, x))
    a = fuse_arguments(row, x)
    return lambda: lerp(torch, *a)


def compiled(row, x):
    import torch

    a = fuse_arguments(row, x)
    torch._dynamo.config.recompile_limit = 1000  # a row is a shape; beyond the limit dynamo would run eager without a word
    f = torch.compile(lerp, dynamic=False, fullgraph=True)
    return lambda: f(torch, *a)
