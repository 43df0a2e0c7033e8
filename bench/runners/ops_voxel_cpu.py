"""Voxels on the CPU by NumPy and by Open3D. `pip install open3d` into an environment of its own and name its folder in PYTHONPATH; without it the arm says so."""
import ops_common as ops


@ops.arm("numpy voxels", ("voxelize",), setting="floor, then bincount; sparse by unique and a bincount a channel, int32 indices")
def numpy_way(row, x):
    import numpy as np

    if row["mode"] not in ("count", "occupancy", "mean"):
        raise ops.Skip()
    points, features = x["points"], x["features"] if "features" in x else None
    g, f = row["grid"], row.get("F", 0)
    lo, size, top = (np.array(row[k] if k != "grid" else g, np.float32) for k in ("min", "size", "grid"))
    cells = g[0] * g[1] * g[2]
    kind = np.int32 if cells < 2**31 else np.int64

    def index():
        c = np.floor((points - lo) / size)
        inside = ((c >= 0) & (c < top)).all(1)
        if inside.all():
            inside = slice(None)
        else:
            c = c[inside]
        c = c.astype(kind)
        return (c[:, 0] * g[1] + c[:, 1]) * g[2] + c[:, 2], inside

    def run():
        at, inside = index()
        if row["layout"] == "sparse":
            cell, inverse, count = np.unique(at, return_inverse=True, return_counts=True)
            if row["mode"] != "mean":
                return cell, None, count
            part = features[inside]
            rows = np.empty((len(cell), f), np.float32)
            for c in range(f):
                rows[:, c] = np.bincount(inverse, weights=part[:, c]) / count
            return cell, rows, count
        if row["mode"] == "occupancy":
            out = np.zeros(cells, np.uint8)
            out[at] = 1
            return out.reshape(g)
        count = np.bincount(at, minlength=cells)
        if row["mode"] == "count":
            return count.reshape(g)
        part = features[inside]
        out = np.empty((cells, f), np.float32)
        by = np.maximum(count, 1)
        for c in range(f):
            out[:, c] = np.bincount(at, weights=part[:, c], minlength=cells) / by
        return out.reshape(*g, f)

    return run


@ops.arm("open3d", ("voxelize",), setting="voxel_down_sample of float64 points: the mean of x, y, z of each cell, no other channel, no list of cells; its grid begins half a cell below the lowest point", other=True)
def open3d_way(row, x):
    if row["layout"] != "sparse" or row["mode"] != "mean":
        raise ops.Skip()
    try:
        import open3d
    except ImportError as e:
        raise ops.Skip(f"no open3d: {e}")
    import numpy as np

    points = x["points"].astype(np.float64)
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
    return lambda: cloud.voxel_down_sample(float(row["size"][0]))


if __name__ == "__main__":
    ops.serve()
