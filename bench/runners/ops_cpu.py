"""NumPy's ways on the CPU, one thread: the double loop of np.interp that the earlier RoboCache was measured against, searchsorted and lerp, slerp."""
import ops_common as ops


def streams(row, x, modes):
    """(values, times as float64 seconds since the first timestamp) a stream, and the targets."""
    import numpy as np

    if row.get("mode") not in modes or row["dtype"] != "float32" or row.get("ragged"):
        raise ops.Skip()
    first = x["times0"].min(1, keepdims=True)
    seconds = lambda t: (t - first) * 1e-9
    parts = [(x[f"values{i}"], seconds(x[f"times{i}"])) for i in range(len(row["streams"]))]
    norm = (x["mean"], x["std"] + np.float32(1e-8)) if row.get("norm") else None
    return parts, seconds(x["targets"]), norm


@ops.arm("np.interp", ("fuse",), setting="a Python loop over trajectories and channels")
def interp(row, x):
    import numpy as np

    parts, targets, norm = streams(row, x, ("linear",))
    if norm is not None or len(parts) > 1:
        raise ops.Skip()
    v, t = parts[0]
    out = np.empty((row["B"], row["T"], v.shape[2]), np.float32)

    def call():
        for b in range(len(v)):
            for d in range(v.shape[2]):
                out[b, :, d] = np.interp(targets[b], t[b], v[b, :, d])
        return out

    return call


@ops.arm("numpy", ("fuse",), setting="searchsorted and lerp a trajectory")
def lerp(row, x):
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


@ops.arm("numpy slerp loop", ("fuse",), setting="a trajectory at a time, float64")
def slerp_loop(row, x):
    import numpy as np

    parts, targets, norm = streams(row, x, ("slerp",))
    v, t = parts[0]
    out = np.empty((row["B"], row["T"], 4), np.float32)

    def call():
        for b in range(row["B"]):
            i = np.clip(np.searchsorted(t[b], targets[b], "right"), 1, t.shape[1] - 1)
            w = np.clip((targets[b] - t[b, i - 1]) / (t[b, i] - t[b, i - 1]), 0, 1)[:, None]
            out[b] = blend(np, v[b, i - 1].astype(np.float64), v[b, i].astype(np.float64), w)
        return out

    return call


@ops.arm("numpy slerp", ("fuse",), setting="all trajectories in one vectorised expression, float64")
def slerp(row, x):
    import numpy as np

    parts, targets, norm = streams(row, x, ("slerp",))
    v, t = parts[0]
    base = (np.arange(row["B"]) * 1e3)[:, None]  # one searchsorted for all: trajectories on one axis, far apart
    flat = (t + base).ravel()

    def call():
        n = t.shape[1]
        i = np.searchsorted(flat, (targets + base).ravel(), "right").reshape(targets.shape)
        first = np.arange(len(t))[:, None] * n
        i = np.clip(i - first, 1, n - 1)
        t0, t1 = np.take_along_axis(t, i - 1, 1), np.take_along_axis(t, i, 1)
        w = np.clip((targets - t0) / (t1 - t0), 0, 1)[..., None]
        q0 = np.take_along_axis(v, (i - 1)[..., None], 1).astype(np.float64)
        q1 = np.take_along_axis(v, i[..., None], 1).astype(np.float64)
        return blend(np, q0, q1, w)

    return call


if __name__ == "__main__":
    ops.serve()
