"""Voxels on the CPU as others make them: NumPy (bincount, unique), Open3D where it is installed."""
import ops_common as ops


def flat(row, np):
    """points → (flat cells of those inside, which they are)."""
    lo, size, grid = (np.asarray(row[k], np.int64 if k == "grid" else np.float32) for k in ("min", "size", "grid"))

    def of(points):
        f = np.floor((points - lo) / size)
        inside = ((f >= 0) & (f < grid)).all(1)
        i = f[inside].astype(np.int64)
        return (i[:, 0] * grid[1] + i[:, 1]) * grid[2] + i[:, 2], inside

    return of


@ops.arm("numpy", ("voxelize",), setting="bincount for count and mean, a store for occupancy, maximum.at for max; sparse by unique")
def numpy_way(row, x):
    import numpy as np

    of, cells, grid, mode = flat(row, np), int(np.prod(row["grid"])), row["grid"], row["mode"]
    points, features = x["points"], x["features"] if "features" in x else None

    def call():
        at, inside = of(points)
        if row["layout"] == "sparse":
            cell, inverse, count = np.unique(at, return_inverse=True, return_counts=True)
            f = features[inside]
            rows = np.stack([np.bincount(inverse, f[:, c], len(cell)) for c in range(f.shape[1])], 1)
            return cell, (rows / count[:, None]).astype(np.float32), count
        if mode == "count":
            return np.bincount(at, minlength=cells).astype(np.int32).reshape(grid)
        if mode == "occupancy":
            out = np.zeros(cells, np.uint8)
            out[at] = 1
            return out.reshape(grid)
        f = features[inside]
        if mode == "mean":
            n = np.maximum(np.bincount(at, minlength=cells), 1)
            return np.stack([(np.bincount(at, f[:, c], cells) / n).astype(np.float32) for c in range(f.shape[1])], 1).reshape(*grid, -1)
        if mode == "max":
            out = np.full((cells, f.shape[1]), -np.inf, np.float32)
            np.maximum.at(out, at, f)
            out[np.isinf(out)] = 0
            return out.reshape(*grid, -1)
        raise ops.Skip()

    return call


@ops.arm("open3d", ("voxelize",), setting="voxel_down_sample of points with colours: the mean of six numbers a voxel", other=True)
def open3d(row, x):
    import numpy as np

    if row["layout"] != "sparse":
        raise ops.Skip()
    import open3d as o3d  # not in every environment: then this arm says so

    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(x["points"].astype(np.float64)))
    cloud.colors = o3d.utility.Vector3dVector(np.ascontiguousarray(x["features"][:, :3]).astype(np.float64))
    return lambda: cloud.voxel_down_sample(float(row["size"][0]))


if __name__ == "__main__":
    ops.serve()
