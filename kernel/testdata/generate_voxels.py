"""Writes testdata/vectors/voxels: the conformance vectors of voxels, depth images and TSDF.

Pure Go, SIMD, CUDA and Python read them.
Run from the repository root: python kernel/testdata/generate_voxels.py [FOLDER]
Needs NumPy. The code is independent of the Go code and follows section 4 of docs/kernels.md. It
keeps cells in dictionaries, adds one number after the other, and computes fma with rationals.

Files are {"note", "cases": [case, ...]}. A tensor is {dtype, shape, stride, base, memory}: strides
and base in elements, memory = hex bits of each element. Fields of a case (absent = 0 or none):

  op               voxelize, unproject or integrate
  voxelize         points, features, lengths, offsets (strings); min, size (hex bits), grid, mode,
                   outside, bits, fill (hex bits)
                   dense: dtype of the result; its stride and base if it is not in C order; want
                   (C order, hex bits, "nan" = any NaN)
                   sparse: capacity, found, coords, counts, rows (C order)
                   stats: numbers of points inside, outside, not finite
  unproject        depth, camera, scale, pose (hex bits); want [.., 3], valid
  integrate        depth, camera, scale, view, min, size, truncate, max_weight; value and weight
                   (tensors before the update); want, want_weight (C order)
  error            {class, phrase} instead of a result

large.json has generated cases. The random numbers u are splitmix64 from the seed on: points, then
features, in C order. A coordinate is float32(x·2^-24·spread + from) with x = u >> 40, computed in
float64. A feature is (x - 2^23)·2^-20. sha256 is the hash of the little-endian result in C order
with NaN as 7fc00000; of a sparse result: coords, counts, rows.
"""

import hashlib, json, math, os, struct, sys
from fractions import Fraction as F

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from vectorgen.numbers import fma, rnd  # numbers only
from vectorgen.camera import move, pixel, turn
from vectorgen.layout import bits32, decode, encode, raw32, tensor

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors", "voxels")
f32 = np.float32
np.seterr(all="ignore")
MODES = ["occupancy", "count", "sum", "mean", "max", "min", "first"]


def cells_of(points, lo, size, grid, outside):
    """Returns the cell of each point, or None for a dropped one, and the numbers of points inside,
    outside and not finite. points are float64 values that are read as float32.
    """
    out, stats = [], [0, 0, 0]
    for p in points:
        p = [f32(x) for x in p]
        if not all(np.isfinite(x) for x in p):
            stats[2] += 1
            out.append(None)
            continue
        f = [np.floor(f32(f32(x - f32(m)) / f32(s))) for x, m, s in zip(p, lo, size)]
        inside = all(0 <= a < g for a, g in zip(f, grid))
        stats[0 if inside else 1] += 1
        if inside or outside == "clip":
            out.append(tuple(int(min(max(float(a), 0), g - 1)) for a, g in zip(f, grid)))
        elif outside == "error":
            raise ValueError("outside")
        else:
            out.append(None)
    return out, stats


def reduce(rows, mode):
    """Returns the row of a cell from the features of its points, which are float64 and in order."""
    n = rows.shape[1]
    if mode == "first":
        return [f32(x) for x in rows[0]]
    if mode in ("sum", "mean"):
        out = []
        for c in range(n):
            s = 0.0
            for x in rows[:, c]:
                s += float(x)
            out.append(f32(s / len(rows) if mode == "mean" else s))
        return out
    out = []
    for c in range(n):
        xs = [f32(x) for x in rows[:, c] if x == x]
        xs.sort(key=lambda x: (float(x), not np.signbit(x)))  # -0 before +0
        edge = -math.inf if mode == "max" else math.inf
        out.append((xs[-1] if mode == "max" else xs[0]) if xs else f32(edge))
    return out


def make(
    name,
    points,
    mode="count",
    features=None,
    lo=(0, 0, 0),
    size=(1, 1, 1),
    grid=(2, 3, 5),
    outside="drop",
    bits=False,
    fill=0.0,
    dtype=None,
    lengths=None,
    offsets=None,
    capacity=None,
    pdt="float32",
    fdt="float32",
    playout={},
    flayout={},
    out=None,
    counts=True,
):
    """Returns a voxelize case with its result. pdt and fdt are the types of points and features,
    playout and flayout their layouts, out the stride and base of the result.
    """
    points = np.asarray(points, dtype=np.float64)
    c = {
        "op": "voxelize",
        "name": name,
        "min": [raw32(x) for x in lo],
        "size": [raw32(x) for x in size],
        "grid": list(grid),
        "mode": mode,
        "outside": outside,
    }
    c["points"], points = tensor(points, pdt, **playout)
    feats = None
    if features is not None:
        c["features"], feats = tensor(features, fdt, **flayout)
    if bits:
        c["bits"] = True
    if fill:
        c["fill"] = raw32(fill)
    if lengths is not None:
        c["lengths"] = [str(x) for x in lengths]
    if offsets is not None:
        c["offsets"] = [str(x) for x in offsets]
    batched = points.ndim == 3 or offsets is not None
    if offsets is not None:
        entries = [list(range(a, b)) for a, b in zip(offsets, offsets[1:])]
        pick = lambda arr, b, i: arr[i]
    elif points.ndim == 3:
        entries = [
            list(range(points.shape[1] if lengths is None else lengths[b]))
            for b in range(points.shape[0])
        ]
        pick = lambda arr, b, i: arr[b, i]
    else:
        entries = [list(range(points.shape[0]))]
        pick = lambda arr, b, i: arr[i]
    stats, held = [0, 0, 0], {}
    for b, rows in enumerate(entries):
        cells, s = cells_of(
            [pick(points, b, i) for i in rows],
            [f32(x) for x in lo],
            [f32(x) for x in size],
            grid,
            outside,
        )
        stats = [x + y for x, y in zip(stats, s)]
        for i, cell in zip(rows, cells):
            if cell is not None:
                held.setdefault((b,) + cell, []).append(i)
    c["stats"] = stats
    row = lambda k: reduce(np.array([pick(feats, k[0], i) for i in held[k]]), mode)
    if capacity is not None:
        c["capacity"], c["found"] = capacity, len(held)
        keys = sorted(held)[:capacity]
        c["coords"] = [x for k in keys for x in k]
        if counts or mode == "count":
            c["counts"] = [len(held[k]) for k in keys]
        if mode not in ("occupancy", "count"):
            c["rows"] = [bits32(x) for k in keys for x in row(k)]
        return c
    c["dtype"] = dtype or {"occupancy": "uint8", "count": "int32"}.get(mode, "float32")
    if out:
        c["stride"], c["base"] = out
    want = []
    code = {
        "uint8": lambda x: "%02x" % x,
        "bool": lambda x: "%02x" % x,
        "int32": lambda x: "%08x" % x,
        "float32": bits32,
    }[c["dtype"]]
    all_cells = [
        (b, x, y, z)
        for b in range(len(entries))
        for x in range(grid[0])
        for y in range(grid[1])
        for z in range(grid[2])
    ]
    if bits:
        n = [1 if k in held else 0 for k in all_cells]
        n += [0] * (-len(n) % 8)
        want = ["%02x" % sum(n[i + j] << j for j in range(8)) for i in range(0, len(n), 8)]
    else:
        for k in all_cells:
            if mode == "occupancy":
                want.append(code(1 if k in held else 0))
            elif mode == "count":
                want.append(code(len(held.get(k, []))))
            elif k in held:
                want += [code(x) for x in row(k)]
            else:
                want += [
                    code(f32(fill) if mode in ("max", "min", "first") else f32(0))
                ] * feats.shape[-1]
    c["want"] = want
    return c


def write(name, note, cases):
    """Writes a file of cases."""
    with open(os.path.join(HERE, name), "w") as f:
        f.write('{"note": %s,\n"cases": [\n' % json.dumps(note))
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
        f.write("\n]}\n")


def voxels():
    """Writes voxel.json."""
    rng = np.random.default_rng(1)
    nan, inf = math.nan, math.inf
    cases = []
    one = [[0.5, 1.5, 3.5]]
    # section 8 of kernels.md: what the earlier RoboCache got wrong
    for g in ((4, 4, 4), (2, 3, 5)):
        for mode in ("count", "occupancy"):
            cases.append(make(f"cell (0,1,3) of {g}, {mode}", one, mode, grid=g))
    cases.append(make("max of -3 and -1", [[0, 0, 0]] * 2, "max", [[-3.0], [-1.0]], grid=(1, 1, 2)))
    cases.append(
        make(
            "a NaN point is dropped and counted apart",
            [[nan, 0, 0], [0, nan, 0], [0, 0, nan], [0.5, 0.5, 0.5]],
        )
    )
    for policy in ("drop", "clip"):
        pts = [
            [-0.5, 0, 0],
            [2, 0, 0],
            [0, 3, 0],
            [0, 0, 5],
            [0, 0, 4.9999995],
            [1e38, -1e38, 7],
            [inf, 0, 0],
            [-inf, 0, 0],
            [nan, 9, 9],
            [1, 1, 1],
        ]
        for mode in ("count", "occupancy"):
            cases.append(make(f"outside, {policy}, {mode}", pts, mode, outside=policy))
    cases.append(
        make("1.3 at a size of 0.1 is cell 12", [[1.3, 0, 0]], grid=(20, 1, 1), size=(0.1, 1, 1))
    )
    # both faces, and one step beside them
    for lo, size, g in (
        ((0, 0, 0), (1, 1, 1), (2, 3, 5)),
        ((-1.5, 0.1, 1e-3), (0.1, 0.3, 0.7), (7, 4, 3)),
        ((-10, -10, -10), (0.1, 0.1, 0.1), (5, 5, 5)),
        ((1e6, -1e6, 0), (0.25, 3, 1e-4), (3, 3, 3)),
    ):
        pts = []
        for a in range(3):
            for k in range(g[a] + 1):
                edge = f32(f32(lo[a]) + f32(f32(k) * f32(size[a])))
                for x in (edge, np.nextafter(edge, f32(-inf)), np.nextafter(edge, f32(inf))):
                    p = [f32(f32(lo[i]) + f32(size[i]) * f32(0.5)) for i in range(3)]
                    p[a] = x
                    pts.append(p)
        for mode in ("count", "occupancy"):
            cases.append(make(f"faces of {g} from {lo}", pts, mode, lo=lo, size=size, grid=g))
    cases.append(
        make(
            "-0, subnormals and quotients that underflow",
            [[-0.0, 0, 0], [-1e-45, 0, 0], [1e-45, 0, 0], [-1e-40, 0, 0], [0, -1e-45, 0]],
            size=(1e10, 1, 1e-40),
            grid=(2, 2, 2),
        )
    )
    cases.append(
        make(
            "differences and quotients that overflow",
            [[3e38, 0, 0], [-3e38, 0, 0], [1, 1, 1]],
            lo=(-3e38, 0, 0),
            size=(1e-40, 1, 1),
            grid=(2, 2, 2),
            outside="clip",
        )
    )
    cases.append(
        make(
            "float64 points are read as float32",
            [[0.99999999, 0, 0], [1e300, 0, 0], [-1e-300, 0, 0]],
            pdt="float64",
        )
    )
    # nothing at all
    for mode in MODES:
        f = np.zeros((0, 3)) if mode in MODES[2:] else None
        cases.append(
            make(f"N = 0, {mode}", np.zeros((0, 3)), mode, f, fill=2.5 if mode == "max" else 0.0)
        )
        f = np.zeros((0, 4, 3)) if mode in MODES[2:] else None
        cases.append(make(f"B = 0, {mode}", np.zeros((0, 4, 3)), mode, f))
        cases.append(
            make(
                f"sparse, N = 0, {mode}",
                np.zeros((0, 3)),
                mode,
                np.zeros((0, 2)) if mode in MODES[2:] else None,
                capacity=3,
            )
        )
        if mode in MODES[2:]:
            cases.append(make(f"F = 0, {mode}", one, mode, np.zeros((1, 0))))
    cases.append(make("bits, N = 0", np.zeros((0, 3)), "occupancy", bits=True))
    # every mode on one cloud: all types of features, all layouts, batches
    pts = rng.uniform(-0.6, 5.6, (60, 3))
    pts[7] = [nan, 1, 1]
    pts[11] = [1, inf, 1]
    special = [nan, inf, -inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38]
    feats = rng.normal(size=(60, 3))
    for i, x in enumerate(special):
        feats[4 * i, i % 3] = x
    size, g = (1, 1.3, 1.1), (5, 4, 5)
    for mode in MODES:
        f = feats if mode in MODES[2:] else None
        cases.append(make(f"cloud, {mode}", pts, mode, f, size=size, grid=g))
        cases.append(
            make(
                f"cloud, {mode}, sparse",
                pts,
                mode,
                f,
                size=size,
                grid=g,
                capacity=100,
                counts=mode != "max",
            )
        )
        cases.append(
            make(f"cloud, {mode}, sparse, 5 places", pts, mode, f, size=size, grid=g, capacity=5)
        )
        cases.append(make(f"cloud, {mode}, no place", pts, mode, f, size=size, grid=g, capacity=0))
        for pdt in ("float16", "bfloat16", "float64"):
            cases.append(
                make(
                    f"cloud, {mode}, points {pdt}, clip",
                    pts[:20],
                    mode,
                    f if f is None else f[:20],
                    size=size,
                    grid=g,
                    pdt=pdt,
                    outside="clip",
                )
            )
        three = pts[:30].reshape(3, 10, 3)
        f3 = None if f is None else f[:30].reshape(3, 10, 3)
        for cap in (None, 40):
            kind = "" if cap is None else ", sparse"
            cases.append(
                make(
                    f"batch, {mode}{kind}",
                    three,
                    mode,
                    f3,
                    size=(2, 2, 3),
                    grid=(3, 3, 2),
                    capacity=cap,
                )
            )
            cases.append(
                make(
                    f"lengths, {mode}{kind}",
                    three,
                    mode,
                    f3,
                    size=(2, 2, 3),
                    grid=(3, 3, 2),
                    lengths=[4, 0, 10],
                    capacity=cap,
                )
            )
            cases.append(
                make(
                    f"ragged, {mode}{kind}",
                    pts[:30],
                    mode,
                    None if f is None else f[:30],
                    size=(2, 2, 3),
                    grid=(3, 3, 2),
                    offsets=[2, 2, 11, 11, 29],
                    capacity=cap,
                )
            )
        for label, layout in (
            ("gaps", dict(gap=2, skip=1)),
            ("columns first", dict(order=[1, 0])),
            ("backwards", dict(flip=[0, 1])),
            ("rows expanded", dict(expand=[0])),
        ):
            fl = {} if f is None else dict(flayout=layout)
            cases.append(
                make(
                    f"{label}, {mode}",
                    pts[:20],
                    mode,
                    None if f is None else f[:20],
                    size=size,
                    grid=g,
                    playout=layout if label != "rows expanded" else {},
                    **fl,
                )
            )
        cases.append(
            make(
                f"all points one, {mode}",
                np.tile(pts[:1], (6, 1)),
                mode,
                None if f is None else f[:6],
                size=(9, 9, 9),
                grid=(1, 2, 1),
                lo=(-1, -1, -1),
                playout=dict(expand=[0]),
            )
        )
        cases.append(
            make(
                f"cloud over the batch, {mode}",
                np.tile(pts[None, :8], (3, 1, 1)),
                mode,
                None if f is None else np.tile(f[None, :8], (3, 1, 1)),
                size=(2, 2, 2),
                grid=(2, 3, 2),
                playout=dict(expand=[0]),
                **({} if f is None else dict(flayout=dict(expand=[0], order=[2, 1, 0]))),
            )
        )
    for mode in MODES[2:]:
        for fdt in ("float16", "bfloat16", "float64"):
            cases.append(
                make(
                    f"features {fdt}, {mode}",
                    pts[:24],
                    mode,
                    feats[:24],
                    size=(2, 2, 3),
                    grid=(3, 3, 2),
                    fdt=fdt,
                )
            )
        cases.append(
            make(
                f"features of NaN only, {mode}",
                [[0, 0, 0], [1, 1, 1], [1, 1, 1]],
                mode,
                [[nan, 1], [nan, -0.0], [2, 0.0]],
                fill=7.5,
            )
        )
        cases.append(
            make(
                f"out with gaps, {mode}",
                pts[:24],
                mode,
                feats[:24, :2],
                size=(2, 2, 3),
                grid=(3, 3, 2),
                out=([-41, 12, 3, 1], 90),
            )
        )
    for n in (1, 2, 5, 6, 9):
        wide = np.tile(feats, (1, 3))[:, :n]
        for mode in ("sum", "mean", "max"):
            cases.append(
                make(
                    f"{n} features, {mode}, sparse",
                    pts,
                    mode,
                    wide,
                    size=size,
                    grid=g,
                    capacity=100,
                )
            )
            cases.append(make(f"{n} features, {mode}", pts, mode, wide, size=size, grid=g))
    cases.append(
        make(
            "features that only float64 tells apart",
            [[0, 0, 0]] * 3,
            "sum",
            [[1.0], [2.0**-40], [-1.0]],
            fdt="float64",
            grid=(1, 1, 1),
        )
    )
    cases.append(
        make(
            "a sum whose order counts",
            [[0, 0, 0]] * 4,
            "sum",
            [[1e17], [1.0], [-1e17], [1.0]],
            fdt="float64",
            grid=(1, 1, 1),
        )
    )
    cases.append(
        make(
            "a sum beyond float32",
            [[0, 0, 0]] * 4,
            "mean",
            [[3e38], [3e38], [3e38], [-1.0]],
            grid=(1, 1, 1),
        )
    )
    cases.append(make("a sum of -0 begins at +0", [[0, 0, 0]], "sum", [[-0.0]], grid=(1, 1, 1)))
    cases.append(
        make("out with gaps, count", pts, "count", size=size, grid=g, out=([100, -20, 2], 61))
    )
    for dt in ("int32", "float32", "bool"):
        cases.append(make(f"occupancy as {dt}", pts, "occupancy", size=size, grid=g, dtype=dt))
    for p in (pts, pts[:30].reshape(3, 10, 3)):
        cases.append(
            make(f"bits, rank {p.ndim}", p, "occupancy", size=(2, 2, 2), grid=(3, 3, 3), bits=True)
        )
    cases.append(
        make(
            "a grid of 2^61 cells, sparse",
            [[0, 0, 0], [2097151.5, 2097151.5, 524287.5], [1, 2, 3]],
            "count",
            grid=(1 << 21, 1 << 21, 1 << 19),
            capacity=4,
        )
    )
    write("voxel.json", voxels_note, cases)


voxels_note = "points into cells: borders, what is outside, not finite, empty; modes, types, strides, batches, dense and sparse"


def depths():
    """Writes depth.json."""
    rng = np.random.default_rng(2)
    cases = []
    nan, inf = math.nan, math.inf

    def add(name, depth, dt, cam=(3.5, 4.25, 2.1, 1.7), scale=0.0, pose=None, out=None, **layout):
        """Adds a case with its result."""
        t, held = tensor(depth, dt, **layout)
        c = {
            "op": "unproject",
            "name": name,
            "depth": t,
            "camera": [raw32(x) for x in cam],
            "scale": raw32(scale),
        }
        if pose is not None:
            c["pose"] = [raw32(x) for x in pose]
        if out:
            c["stride"], c["base"] = out
        s = scale or (0.001 if dt == "uint16" else 1.0)
        want, valid = [], []
        for i in np.ndindex(*held.shape):
            p, ok = pixel(held[i], i[-1], i[-2], [f32(x) for x in cam], f32(s), pose)
            want += [bits32(x) for x in p]
            valid.append(ok)
        c["want"], c["valid"] = want, valid
        cases.append(c)

    d = rng.uniform(0.2, 6, (5, 7))
    d[0, :5] = [0, nan, inf, -inf, -1.5]
    d[1, :3] = [-0.0, 1e-40, 3e38]
    for dt in ("float32", "float16", "bfloat16", "float64"):
        add(f"{dt}", d, dt)
        add(f"{dt}, pose", d, dt, pose=turn(rng))
        add(f"{dt}, scale", d, dt, scale=0.25)
    mm = rng.integers(0, 65536, (4, 6)).astype(float)
    mm[0, 0] = 0
    mm[1, 2] = 65535
    add("uint16 millimetres", mm, "uint16")
    add("uint16, scale", mm, "uint16", scale=1 / 5000, pose=turn(rng))
    add("a scale that makes 0", [[1.0, 2.0]], "float32", scale=1e-45)
    add("a scale that makes Inf", [[1e30, -1e30]], "float32", scale=1e30)
    two = rng.uniform(0.2, 6, (2, 3, 4))
    add("batch", two, "float32", pose=turn(rng))
    add("transposed", two, "float32", order=[0, 2, 1])
    add("gaps, backwards", two, "float32", gap=2, flip=[1, 2])
    add("batch expanded", np.tile(two[:1], (2, 1, 1)), "float32", expand=[0])
    add("points side by side", two[0], "float32", out=([20, 5, 1], 1))
    add("points in planes", two[0], "float32", out=([4, 1, 12], 0))
    for shape in ((0, 4), (4, 0), (0, 3, 3)):
        add(f"empty {shape}", np.zeros(shape), "float32")
    write(
        "depth.json",
        "depth images to points: types, scales, poses, strides, pixels without depth",
        cases,
    )


def tsdfs():
    """Writes tsdf.json."""
    rng = np.random.default_rng(3)
    cases = []

    def add(
        name,
        depth,
        dt,
        view,
        value,
        weight,
        lo,
        size,
        cam=(8, 8.5, 4, 3),
        scale=0.0,
        tau=0.3,
        top=4.0,
        vlayout={},
        **layout,
    ):
        """Adds a case with its result."""
        t, held = tensor(depth, dt, **layout)
        vt, v = tensor(value, "float32", **vlayout)
        wt, w = tensor(weight, "float32", **vlayout)
        c = {
            "op": "integrate",
            "name": name,
            "depth": t,
            "camera": [raw32(x) for x in cam],
            "scale": raw32(scale),
            "view": [raw32(x) for x in view],
            "min": [raw32(x) for x in lo],
            "size": [raw32(x) for x in size],
            "truncate": raw32(tau),
            "max_weight": raw32(top),
            "value": vt,
            "weight": wt,
        }
        s = f32(scale or (0.001 if dt == "uint16" else 1.0))
        cam, tau, top = [f32(x) for x in cam], f32(tau), f32(top)
        h, wd = held.shape
        touched = 0
        for i in np.ndindex(*v.shape):
            centre = [
                f32(rnd(fma(i[a] + 0.5, float(f32(size[a])), float(f32(lo[a]))), "float32"))
                for a in range(3)
            ]
            x, y, z = move(view, *centre)
            if not z > 0:
                continue
            pu = np.floor(f32(f32(f32(f32(cam[0] * x) / z) + cam[2]) + f32(0.5)))
            pv = np.floor(f32(f32(f32(f32(cam[1] * y) / z) + cam[3]) + f32(0.5)))
            if not (0 <= pu < wd and 0 <= pv < h):
                continue
            depth_here = f32(f32(held[int(pv), int(pu)]) * s)
            if not np.isfinite(depth_here) or depth_here <= 0:
                continue
            sdf = f32(depth_here - z)
            if sdf < -tau:
                continue
            d = min(f32(1), f32(sdf / tau))
            old = f32(w[i])
            if old > 0:
                v[i] = f32(f32(f32(old * f32(v[i])) + d) / f32(old + f32(1)))
                w[i] = min(f32(old + f32(1)), top)
            else:
                v[i], w[i] = d, min(f32(1), top)
            touched += 1
        c["want"], c["want_weight"] = [bits32(x) for x in v.ravel()], [bits32(x) for x in w.ravel()]
        c["name"] += f" ({touched} voxels)"
        cases.append(c)

    straight = [f32(x) for x in (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0)]
    wall = np.full((6, 8), 1.5)
    lo, size = (-0.6, -0.5, 0.4), (0.15, 0.2, 0.25)
    zeros = np.zeros((8, 5, 7))
    add("a wall, unset", wall, "float32", straight, zeros, zeros, lo, size)
    add(
        "unset is weight 0, whatever the value",
        wall,
        "float32",
        straight,
        np.full(zeros.shape, math.nan),
        zeros,
        lo,
        size,
    )
    add(
        "seen before",
        wall,
        "float32",
        straight,
        rng.uniform(-1, 1, zeros.shape),
        rng.integers(0, 5, zeros.shape),
        lo,
        size,
    )
    add(
        "weights not > 0 are unset",
        wall,
        "float32",
        straight,
        rng.uniform(-1, 1, zeros.shape),
        np.where(rng.random(zeros.shape) < 0.5, -2.0, math.nan),
        lo,
        size,
    )
    add("the largest weight below 1", wall, "float32", straight, zeros, zeros, lo, size, top=0.5)
    holes = rng.uniform(0.5, 2.5, (6, 8))
    holes[0, :6] = [0, math.nan, math.inf, -math.inf, -1, -0.0]
    for dt in ("float32", "float16", "bfloat16", "float64"):
        add(
            f"{dt}",
            holes,
            dt,
            straight,
            rng.uniform(-1, 1, zeros.shape),
            rng.integers(0, 3, zeros.shape),
            lo,
            size,
        )
    add(
        "uint16",
        np.where(np.isfinite(holes), np.abs(holes) * 1000, 0).round(),
        "uint16",
        straight,
        zeros,
        zeros,
        lo,
        size,
    )
    for n in range(4):
        add(
            f"turned {n}",
            rng.uniform(0.5, 2.5, (6, 8)),
            "float32",
            turn(rng),
            rng.uniform(-1, 1, zeros.shape),
            rng.integers(0, 3, zeros.shape),
            (-1.5, -1.5, -1.5),
            (0.4, 0.5, 0.45),
        )
    add("behind the camera", wall, "float32", straight, zeros, zeros, (-0.6, -0.5, -3), size)
    add(
        "strides",
        holes,
        "float32",
        straight,
        rng.uniform(-1, 1, zeros.shape),
        rng.integers(0, 3, zeros.shape),
        lo,
        size,
        vlayout=dict(order=[2, 0, 1], gap=2, flip=[1]),
        order=[1, 0],
        flip=[0],
    )
    add("no pixel", np.zeros((0, 8)), "float32", straight, zeros, zeros, lo, size)
    write("tsdf.json", "TSDF updates: unset, weights, holes, poses, types, strides", cases)


def errors():
    """Writes errors.json."""
    cases = []
    good = make("good", [[0.5, 0.5, 0.5]], "count")

    def bad(name, cls, phrase, **change):
        """Adds a copy of a valid case with changed fields and the expected error."""
        c = json.loads(json.dumps(good))
        for k in ("want", "stats"):
            c.pop(k)
        c.update(change)
        c.update({"name": name, "error": {"class": cls, "phrase": phrase}})
        cases.append(c)

    pts = lambda *shape: tensor(np.zeros(shape), "float32")[0]
    for n, x in (("0", 0.0), ("negative", -0.1), ("NaN", math.nan), ("infinite", math.inf)):
        bad(
            f"voxel size {n}",
            "misuse",
            "voxel_size must be positive",
            size=[raw32(1), raw32(x), raw32(1)],
        )
    bad("origin NaN", "misuse", "not finite", min=[raw32(0), raw32(math.nan), raw32(0)])
    bad("grid 0", "misuse", "Invalid grid dimensions", grid=[4, 0, 4])
    bad("grid negative", "misuse", "Invalid grid dimensions", grid=[4, 4, -1])
    bad("grid of 2^66 bytes", "resource limit", "memory budget", grid=[1 << 22, 1 << 21, 1 << 21])
    bad(
        "grid of 2^65 cells, sparse",
        "resource limit",
        "memory budget",
        grid=[1 << 22, 1 << 22, 1 << 21],
        capacity=3,
        dtype="",
    )
    bad("points [N]", "misuse", "points must have shape", points=pts(3))
    bad("points [N,2]", "misuse", "points must have shape", points=pts(1, 2))
    bad("points of rank 4", "misuse", "points must have shape", points=pts(1, 1, 1, 3))
    for m in MODES[2:]:
        bad(
            f"{m} without features",
            "misuse",
            "features required for mean/max modes",
            mode=m,
            dtype="float32",
        )
    bad(
        "features of another length",
        "misuse",
        "length mismatch",
        mode="sum",
        dtype="float32",
        features=pts(2, 1),
    )
    bad(
        "features of another batch",
        "misuse",
        "atch size mismatch",
        mode="sum",
        dtype="float32",
        points=pts(2, 1, 3),
        features=pts(3, 1, 1),
    )
    bad("integer points", "misuse", "unsupported dtype", points=dict(pts(1, 3), dtype="int32"))
    bad(
        "lengths beyond the points",
        "misuse",
        "length mismatch",
        points=pts(2, 3, 3),
        lengths=["3", "4"],
    )
    bad("a negative length", "misuse", "length mismatch", points=pts(2, 3, 3), lengths=["3", "-1"])
    bad(
        "lengths of another batch",
        "misuse",
        "atch size mismatch",
        points=pts(2, 3, 3),
        lengths=["3"],
    )
    bad(
        "offsets that decrease",
        "misuse",
        "length mismatch",
        points=pts(3, 3),
        offsets=["0", "2", "1"],
    )
    bad(
        "offsets beyond the points",
        "misuse",
        "length mismatch",
        points=pts(3, 3),
        offsets=["0", "4"],
    )
    bad(
        "outside is an error",
        "misuse",
        "outside the grid",
        outside="error",
        points=tensor([[0, 0, 0], [0, 0, 5]], "float32")[0],
    )
    write(
        "errors.json",
        "each error phrase of voxels. The result is laid out as the options say, as far as they say it",
        cases,
    )


def stream(seed, n):
    """Returns n numbers of SplitMix64 as one array."""
    with np.errstate(over="ignore"):
        k = np.arange(1, n + 1, dtype=np.uint64)
        z = np.uint64(seed) + k * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def large():
    """Writes large.json: generated point clouds, with the hash of their results."""
    cases = []
    specs = [
        (n, m, layout, g, b)
        for n, m, layout, g, b in [
            (200000, "count", "dense", (64, 64, 64), 1),
            (200000, "occupancy", "dense", (64, 64, 64), 1),
            (200000, "occupancy", "bits", (63, 31, 17), 1),
            (200000, "mean", "dense", (64, 64, 64), 1),
            (200000, "max", "dense", (40, 96, 13), 1),
            (200000, "min", "sparse", (40, 96, 13), 1),
            (200000, "mean", "sparse", (128, 128, 128), 1),
            (200000, "first", "sparse", (1000, 1000, 1000), 1),
            (150000, "sum", "dense", (33, 17, 9), 5),
            (150000, "mean", "sparse", (50, 60, 70), 5),
            (150000, "count", "sparse", (50, 60, 70), 5),
            (300000, "mean", "dense", (2, 2, 2), 1),
        ]
    ]
    for k, (n, mode, layout, grid, batch) in enumerate(specs):
        seed, fch = 100 + k, (8 if mode == "mean" else 3) if mode in MODES[2:] else 0
        spread, start = 8.0, -0.5
        u = (stream(seed, n * (3 + fch)) >> np.uint64(40)).astype(np.float64)
        pts = (u[: n * 3] * 2.0**-24 * spread + start).astype(np.float32).reshape(n, 3)
        feats = ((u[n * 3 :] - 2.0**23) * 2.0**-20).astype(np.float32).reshape(n, fch)
        size = np.array([f32(7.0 / g) for g in grid], dtype=np.float32)
        f = np.floor(pts / size)
        ok = ((f >= 0) & (f < np.array(grid, np.float32))).all(axis=1)
        cell = f[ok].astype(np.int64)
        entry = (np.arange(n) // (n // batch))[ok]  # [B, N/B, 3]
        flat = ((entry * grid[0] + cell[:, 0]) * grid[1] + cell[:, 1]) * grid[2] + cell[:, 2]
        found, where, counts = np.unique(flat, return_inverse=True, return_counts=True)
        rows = None
        if fch:
            part = feats[ok]
            if mode in ("sum", "mean"):
                total = np.zeros((len(found), fch))
                np.add.at(total, where, part.astype(np.float64))  # one by one, in order
                rows = (total / counts[:, None] if mode == "mean" else total).astype(np.float32)
            elif mode == "first":
                first = np.full(len(found), n)
                np.minimum.at(first, where, np.arange(len(part)))
                rows = part[first]
            else:
                rows = np.full((len(found), fch), -np.inf if mode == "max" else np.inf, np.float32)
                (np.maximum if mode == "max" else np.minimum).at(rows, where, part)
                assert not ((rows == 0) & np.signbit(rows)).any()
        h = hashlib.sha256()
        if layout == "sparse":
            coords = np.empty((len(found), 4), np.int32)
            rest = found
            for a, g in ((3, grid[2]), (2, grid[1]), (1, grid[0])):
                coords[:, a] = rest % g
                rest = rest // g
            coords[:, 0] = rest
            h.update(coords.tobytes())
            h.update(counts.astype(np.int32).tobytes())
            if rows is not None:
                h.update(rows.tobytes())
        else:
            total = batch * grid[0] * grid[1] * grid[2]
            if mode == "occupancy":
                o = np.zeros(total, np.uint8)
                o[found] = 1
                h.update(
                    np.packbits(o, bitorder="little").tobytes() if layout == "bits" else o.tobytes()
                )
            elif mode == "count":
                o = np.zeros(total, np.int32)
                o[found] = counts
                h.update(o.tobytes())
            else:
                o = np.zeros((total, fch), np.float32)
                o[found] = rows
                h.update(o.tobytes())
        cases.append(
            {
                "name": f"{n} points, {mode}, {layout}, {grid} x {batch}",
                "seed": str(seed),
                "points": n,
                "batch": batch,
                "features": fch,
                "mode": mode,
                "layout": layout,
                "grid": list(grid),
                "size": [raw32(x) for x in size],
                "spread": spread,
                "from": start,
                "stats": [int(ok.sum()), int(n - ok.sum()), 0],
                "found": len(found),
                "sha256": h.hexdigest(),
            }
        )
    with open(os.path.join(HERE, "large.json"), "w") as f:
        json.dump({"note": "seeds and sums; see generate_voxels.py", "cases": cases}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    HERE = sys.argv[1] if len(sys.argv) > 1 else HERE
    os.makedirs(HERE, exist_ok=True)
    for make_file in (voxels, depths, tsdfs, errors, large):
        make_file()
