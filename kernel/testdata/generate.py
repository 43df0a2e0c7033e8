"""Writes testdata/vectors: the conformance vectors that pure Go, SIMD, CUDA and Python read.

Run from the repository root: python kernel/testdata/generate.py [FOLDER] [--quick]
FOLDER is where the files go instead; --quick leaves large.json out, which takes some 15 s.
Needs mpmath (slerp only). The logic is its own: rationals and searches by linear scan, by the words of kernels.md.

Files are {"note", "cases": [case, ...]}. In a case:
  times, targets   strings of int64 ns (JSON numbers end at 2^53)
  mode, edge, max_gap, before, after, period, lo      options; strings where int64, hex bits where float64
  plan             kind (0 zero, 1 copy, 2 blend, 3 window), left, right, weight (float64 hex bits), valid
  data             dtype, rows, cols, strides and base in elements, skip = bytes before the first element, memory = hex bits of each element
  out, want, valid type and rows of the result, C order; "nan" stands for any NaN
  ulp              allowed distance in float32 steps (slerp); absent = equal bits
  error            {class, phrase} in place of a result
"""
import hashlib, json, math, os, random, struct, sys
from fractions import Fraction as F

import mpmath

mpmath.mp.prec = 400
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")
FORMATS = {"float64": (53, -1022, 1023, 64), "float32": (24, -126, 127, 32), "float16": (11, -14, 15, 16), "bfloat16": (8, -126, 127, 16)}
INTS = {"bool": (8, 0), "int8": (8, 1), "int16": (16, 1), "int32": (32, 1), "int64": (64, 1), "uint8": (8, 0), "uint16": (16, 0), "uint32": (32, 0), "uint64": (64, 0)}


# --- numbers -----------------------------------------------------------------------------------------------------
def bits_of(x, fmt):
    """Rounds a Fraction or a float (for its zeros and specials) to the format, nearest even; gives the bits or "nan"."""
    p, emin, emax, width = FORMATS[fmt]
    ebits = width - p
    top = ((1 << ebits) - 1) << (p - 1)
    sign = 0
    if isinstance(x, float):
        if math.isnan(x):
            return "nan"
        sign = 1 << (width - 1) if math.copysign(1, x) < 0 else 0
        if math.isinf(x):
            return sign | top
        x = F(x)
    if x == 0:
        return sign
    sign = 1 << (width - 1) if x < 0 else 0
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if F(2) ** e > x:
        e -= 1
    e = max(e, emin)
    q = x / F(2) ** (e - p + 1)
    m = q.numerator // q.denominator
    r = q - m
    if r > F(1, 2) or r == F(1, 2) and m & 1:
        m += 1
    if m == 1 << p:
        m, e = m >> 1, e + 1
    if e > emax:
        return sign | top
    if m < 1 << (p - 1):
        return sign | m  # subnormal
    return sign | (e - emin + 1) << (p - 1) | m - (1 << (p - 1))


def value_of(b, fmt):
    """The float that the bits stand for: exact, because float64 holds the others."""
    p, emin, emax, width = FORMATS[fmt]
    if fmt == "float64":
        return struct.unpack(">d", b.to_bytes(8, "big"))[0]
    s = -1.0 if b >> (width - 1) else 1.0
    e, m = b >> (p - 1) & ((1 << (width - p)) - 1), b & ((1 << (p - 1)) - 1)
    if e == (1 << (width - p)) - 1:
        return math.nan if m else s * math.inf
    return s * math.ldexp(m | (1 << (p - 1) if e else 0), max(e, 1) - 1 + emin - p + 1)


def rnd(x, fmt):
    b = bits_of(x, fmt)
    return math.nan if b == "nan" else value_of(b, fmt)


def plain(*xs):
    return all(math.isfinite(x) for x in xs)


def sub(a, b, fmt):
    if plain(a, b) and F(a) != F(b):
        return rnd(F(a) - F(b), fmt)
    return rnd(a - b, fmt)


def fma(w, d, v):
    """The exact w*d+v: a Fraction, or a float where it is zero or special."""
    if plain(w, d, v):
        x = F(w) * F(d) + F(v)
        if x != 0:
            return x
        if F(w) * F(d) == 0:
            return w * d + v
        return 0.0
    return w * d + v


def hexa(b, width):
    return b if b == "nan" else format(b, "0%dx" % (width // 4))


def width(dt):
    return FORMATS[dt][3] if dt in FORMATS else INTS[dt][0]


def h64(x):
    return format(struct.unpack(">Q", struct.pack(">d", x))[0], "016x")


def number(b, dt):
    if dt in FORMATS:
        return value_of(b, dt)
    w, signed = INTS[dt]
    return b - (1 << w) if signed and b >> (w - 1) else b


# --- plan --------------------------------------------------------------------------------------------------------
class Fail(Exception):
    def __init__(self, cls, phrase):
        self.cls, self.phrase = cls, phrase


def plan_row(s, t, o):
    mode, edge, gap = o["mode"], o["edge"], o.get("max_gap", 0)
    le = [i for i, x in enumerate(s) if x <= t]
    k = le[-1] if le else -1
    if not s or k < 0 or (k == len(s) - 1 and s[k] != t):
        if edge == "error":
            raise Fail("misuse", "outside the source range")
        if edge == "mask" or not s:
            return (0, 0, 0, 0.0, 0)
        if edge == "extrapolate" and mode in ("linear", "angle"):
            at = [i for i in range(len(s)) if i + 1 == len(s) or s[i + 1] != s[i]]  # each distinct stamp's last sample
            if len(at) > 1:
                a, b = at[:2] if k < 0 else at[-2:]
                return (2, a, b, float(t - s[a]) / float(s[b] - s[a]), 0)
        e = 0 if k < 0 else len(s) - 1
        return (1, e, e, 0.0, 0)
    hit = s[k] == t
    near = k if hit or t - s[k] <= s[k + 1] - t else k + 1
    length = None
    if mode == "mean":
        inside = [i for i, x in enumerate(s) if t - o["before"] <= x < t + o["after"]]
        if not inside:
            if edge == "error":
                raise Fail("malformed", "gap exceeds max_gap")
            return (0, 0, 0, 0.0, 0) if edge == "mask" else (1, near, near, 0.0, 0)
        row = (3, inside[0], inside[-1] + 1, 0.0)
        if not hit:
            length = s[k + 1] - s[k]
    elif hit:
        row = (1, k, k, 0.0)
    elif mode == "previous":
        row, length = (1, k, k, 0.0), t - s[k]
    elif mode == "next":
        row, length = (1, k + 1, k + 1, 0.0), s[k + 1] - t
    elif mode == "nearest":
        row, length = (1, near, near, 0.0), abs(t - s[near])
    else:
        row, length = (2, k, k + 1, float(t - s[k]) / float(s[k + 1] - s[k])), s[k + 1] - s[k]
    if gap and length is not None and length > gap:
        if edge == "error":
            raise Fail("malformed", "gap exceeds max_gap")
        return (0, 0, 0, 0.0, 0) if edge == "mask" else row + (0,)
    return row + (1,)


# --- values ------------------------------------------------------------------------------------------------------
def blend(mode, a, b, w, dt, out, o):
    """Rows a and b (lists of numbers) at weight w: bits of the output type, and whether the values are usable."""
    wide = dt == "float64" or dt not in FORMATS and out == "float64"
    cfmt = "float64" if wide else "float32"
    if mode == "linear":
        res = []
        for v0, v1 in zip(a, b):
            v0, v1 = rnd(F(v0) if isinstance(v0, int) else v0, cfmt), rnd(F(v1) if isinstance(v1, int) else v1, cfmt)
            ww = w if wide else rnd(F(w), "float32")
            res.append(bits_of(rnd(fma(ww, sub(v1, v0, cfmt), v0), cfmt), out))
        return res, True
    if mode == "angle":
        P, lo = o.get("period", 2 * math.pi), None
        lo = o.get("lo", -P / 2)
        res = []
        for v0, v1 in zip(map(float, a), map(float, b)):
            d = v1 - v0
            if not plain(d):
                res.append("nan")
                continue
            r = rnd(fma(w, math.remainder(d, P), v0), "float64")
            res.append(bits_of(r - P * math.floor((r - lo) / P), out))
        return res, True
    assert mode == "slerp"
    res, ok = [], True
    for c in range(0, len(a), 4):
        q0, q1 = [float(x) for x in a[c:c + 4]], [float(x) for x in b[c:c + 4]]
        if not plain(*q0, *q1) or not any(q0) or not any(q1):
            res += ["nan"] * 4
            ok = False
            continue
        m = mpmath.mpf
        n0, n1 = mpmath.sqrt(sum(m(x) ** 2 for x in q0)), mpmath.sqrt(sum(m(x) ** 2 for x in q1))
        p0, p1 = [m(x) / n0 for x in q0], [m(x) / n1 for x in q1]
        if sum(F(x) * F(y) for x, y in zip(q0, q1)) < 0:
            p1 = [-x for x in p1]
        th = 2 * mpmath.atan2(mpmath.sqrt(sum((x - y) ** 2 for x, y in zip(p0, p1))), mpmath.sqrt(sum((x + y) ** 2 for x, y in zip(p0, p1))))
        mw = m(w)
        if th < mpmath.mpf("1e-6"):
            r = [(1 - mw) * x + mw * y for x, y in zip(p0, p1)]
            n = mpmath.sqrt(sum(x ** 2 for x in r))
            r = [x / n for x in r]
        else:
            r = [(mpmath.sin((1 - mw) * th) * x + mpmath.sin(mw * th) * y) / mpmath.sin(th) for x, y in zip(p0, p1)]
        for x in r:
            sg, man, ex, _ = x._mpf_
            res.append(bits_of(F(-man if sg else man) * F(2) ** ex, out) if man else 0)
    return res, ok


def run(case, s, targets, rows, dt, out, o):
    rows_n = [[number(x, dt) for x in r] for r in rows]
    plan = [plan_row(s, t, o) for t in targets]
    want, valid = [], []
    D = len(rows[0]) if rows else case["cols"]
    for kind, l, r, w, v in plan:
        if kind == 0:
            bits = [0] * D
        elif kind == 1:
            bits = list(rows[l]) if dt == out else [bits_of(F(x) if isinstance(x, int) else x, out) for x in rows_n[l]]
            if dt in FORMATS:
                bits = ["nan" if b == "nan" or math.isnan(value_of(b, out)) else b for b in bits]
        elif kind == 2:
            bits, ok = blend(o["mode"], rows_n[l], rows_n[r], w, dt, out, o)
            v = v if ok else 0
        else:
            bits = []
            for c in range(D):
                total = float(rows_n[l][c])
                for k in range(l + 1, r):
                    total += float(rows_n[k][c])
                bits.append(bits_of(total / (r - l), out))
        want += bits
        valid.append(v)
    return plan, want, valid


def make(name, s, targets, rows, dt, out=None, layout=None, ulp=None, cols=None, **o):
    o.setdefault("mode", "linear")
    o.setdefault("edge", "clamp")
    out = out or dt
    D = len(rows[0]) if rows else (cols or 1)
    case = {"name": name, "times": [str(x) for x in s], "targets": [str(x) for x in targets], "cols": D}
    for k in ("mode", "edge"):
        case[k] = o[k]
    for k in ("max_gap", "before", "after"):
        if k in o:
            case[k] = str(o[k])
    for k in ("period", "lo"):
        if k in o:
            case[k] = h64(o[k])
    # memory layout: row stride, column stride, base (elements), skip (bytes)
    rs, cs, base, skip = layout or (D, 1, 0, 0)
    w = width(dt)
    offs = [base + i * rs + j * cs for i in range(len(rows)) for j in range(D)]
    size = max(offs, default=-1) + 1
    memory = [(0xA5A5A5A5A5A5A5A5 >> (64 - w))] * size  # what must not be read
    for i, r in enumerate(rows):
        for j, b in enumerate(r):
            memory[base + i * rs + j * cs] = b
    # with stride 0 rows share memory: the last one written is what all of them are
    rows = [[memory[base + i * rs + j * cs] for j in range(D)] for i in range(len(rows))]
    case["data"] = {"dtype": dt, "rows": len(rows), "cols": D, "row_stride": rs, "col_stride": cs, "base": base, "skip": skip, "memory": [hexa(b, w) for b in memory]}
    case["out"] = out
    del case["cols"]
    try:
        plan, want, valid = run({"cols": D}, s, targets, rows, dt, out, o)
    except Fail as f:
        case["error"] = {"class": f.cls, "phrase": f.phrase}
        return case
    case["plan"] = {"kind": [p[0] for p in plan], "left": [p[1] for p in plan], "right": [p[2] for p in plan], "weight": [h64(p[3]) for p in plan], "valid": [p[4] for p in plan]}
    case["want"] = [hexa(b, width(out)) for b in want]
    case["valid"] = valid
    if ulp:
        case["ulp"] = ulp
    return case


def write(name, note, cases):
    path = os.path.join(HERE, name)
    with open(path, "w") as f:
        f.write('{"note": %s,\n"cases": [\n' % json.dumps(note))
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
        f.write("\n]}\n")


def floats(rng, n, D, dt, scale=1.0):
    return [[bits_of(F(rng.uniform(-scale, scale)), dt) for _ in range(D)] for _ in range(n)]


FLOATS = ["float32", "float16", "bfloat16", "float64"]
MODES = ["linear", "previous", "next", "nearest", "slerp", "angle", "mean"]
EDGES = ["clamp", "mask", "extrapolate", "error"]


def policies():
    """each mode x policy x {before, exact first, inside, tie, exact last, after, gap = max_gap, gap + 1}"""
    rng = random.Random(1)
    s = [100, 200, 200, 300, 350, 451]
    places = {"before": 40, "exact first": 100, "inside": 130, "tie": 150, "equal stamps": 200, "left of equal": 199, "exact last": 451, "after": 500,
              "gap": 400, "gap exact": 350, "near end": 450}
    cases = []
    for mode in MODES:
        rows = floats(rng, len(s), 4, "float32", 3)
        for edge in EDGES:
            for gap in ({0, 50, 49, 100, 99, 101} if mode != "mean" else {0, 101, 100}):
                o = dict(mode=mode, edge=edge)
                if gap:
                    o["max_gap"] = gap
                if mode == "mean":
                    o.update(before=30, after=31)
                ulp = 1 if mode == "slerp" else None
                if edge == "error":
                    for n, t in places.items():
                        cases.append(make(f"{mode} {edge} gap {gap} {n}", s, [t], rows, "float32", ulp=ulp, **o))
                else:
                    cases.append(make(f"{mode} {edge} gap {gap}", s, list(places.values()), rows, "float32", ulp=ulp, **o))
    # S = 0, 1, 2; all stamps equal
    for mode in MODES:
        for edge in EDGES[:3]:
            for src in ([], [7], [7, 7], [7, 9]):
                o = dict(before=1, after=2) if mode == "mean" else {}
                cases.append(make(f"{mode} {edge} S={len(src)} {src}", src, [6, 7, 8, 9, 10], floats(rng, len(src), 4, "float32"), "float32", cols=4, mode=mode, edge=edge, ulp=1 if mode == "slerp" else None, **o))
    cases.append(make("no targets", [1, 2], [], floats(rng, 2, 3, "float32"), "float32"))
    cases.append(make("error edge, no samples", [], [1], [], "float32", cols=2, edge="error"))
    # equal stamps at the start and at the end, extrapolated
    for s in ([5, 5, 9], [5, 9, 9], [5, 5, 5, 9, 9, 12, 12], [5, 9, 12, 12, 12]):
        for mode in ("linear", "angle", "previous", "nearest"):
            cases.append(make(f"{mode} extrapolate {s}", s, [1, 4, 5, 6, 9, 11, 12, 13, 40], floats(rng, len(s), 1, "float32"), "float32", mode=mode, edge="extrapolate"))
    write("policies.json", "each mode under each edge policy: before, exact, inside, tie, after, gaps; S = 0, 1, 2; equal stamps", cases)


def linear():
    rng = random.Random(2)
    cases = []
    f32 = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x33800001]
    f16 = [0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00]
    bf = [0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0]
    f64 = [0, 1 << 63, 1, 0x000fffffffffffff, 0x0010000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000]
    for dt, sp in (("float32", f32), ("float16", f16), ("bfloat16", bf), ("float64", f64)):
        pairs = [(a, b) for a in sp for b in sp]
        rows = [[a for a, _ in pairs], [b for _, b in pairs]]
        cases.append(make(f"specials on each side {dt}", [0, 10], [0, 1, 5, 7, 10], rows, dt))
    # the FMA triple: w = 0x33800001, d = 0x3f7ffffe, v0 = 0x3f800001. w by times: 0x33800001 = 8388609·2^-47
    v0 = value_of(0x3f800001, "float32")
    v1 = rnd(F(v0) + F(value_of(0x3f7ffffe, "float32")), "float32")
    cases.append(make("fma: nearly half a step", [0, 1 << 47], [8388609], [[0x3f800001], [bits_of(v1, "float32")]], "float32"))
    cases.append(make("w rounds to 1", [0, 1 << 40], [(1 << 40) - 1], floats(rng, 2, 5, "float32"), "float32"))
    cases.append(make("w rounds to 1 float64 keeps it", [0, 1 << 40], [(1 << 40) - 1], floats(rng, 2, 5, "float64"), "float64"))
    big = 1 << 61
    cases.append(make("widest stamps", [-2 * big + 1, 2 * big - 1], [-big, 0, big, 2 * big - 2], floats(rng, 2, 3, "float32"), "float32"))
    e = 1_760_000_000_000_000_000
    cases.append(make("epoch, steps of 1 ns", [e, e + 1, e + 3, e + 4], [e, e + 1, e + 2, e + 3, e + 4, e + 5], floats(rng, 4, 2, "float32"), "float32"))
    for dt in FLOATS:
        for D in (1, 3, 7, 8, 14, 15, 32, 33, 65):
            s = sorted(rng.randrange(0, 1000) for _ in range(6))
            t = [rng.randrange(-50, 1050) for _ in range(7)]  # any order
            cases.append(make(f"{dt} D={D}, targets in any order", s, t, floats(rng, 6, D, dt, 10), dt))
    for dt, out in (("float32", "float16"), ("float32", "bfloat16"), ("float64", "float32"), ("float16", "float32"), ("bfloat16", "float16"), ("int32", "float32"), ("int64", "float64"), ("uint8", "float32"), ("uint64", "float32")):
        rows = floats(rng, 4, 9, dt, 1e5) if dt in FORMATS else [[rng.randrange(1 << width(dt)) for _ in range(9)] for _ in range(4)]
        cases.append(make(f"cast {dt} to {out}", [0, 10, 20, 31], [0, 5, 10, 13, 29, 31, 40], rows, dt, out))
    # dense random lerps: a double rounding or an unfused product would show here
    for k in range(8):
        s = [0, 1_000_003 + k]
        t = sorted(rng.randrange(1, s[1]) for _ in range(12))
        cases.append(make(f"random lerps {k}", s, t, floats(rng, 2, 33, "float32", 2.0 ** rng.randrange(-30, 30)), "float32"))
    write("linear.json", "linear: specials, casts, widths, the fma triple, stamps at both ends of the range", cases)


def moves():
    rng = random.Random(3)
    cases = []
    for dt in list(FORMATS) + list(INTS):
        w = width(dt)
        rows = [[rng.randrange(2) if dt == "bool" else rng.randrange(1 << w) for _ in range(3)] for _ in range(5)]
        for mode in ("previous", "next", "nearest"):
            cases.append(make(f"{mode} {dt}", [0, 10, 10, 20, 35], [-1, 0, 4, 5, 6, 10, 15, 16, 34, 35, 36], rows, dt, mode=mode, edge=rng.choice(EDGES[:3])))
    for mode in ("linear", "angle", "mean"):
        for dt in ("int16", "uint8"):
            rows = [[rng.randrange(1 << width(dt)) for _ in range(2)] for _ in range(4)]
            o = dict(before=6, after=6) if mode == "mean" else {}
            cases.append(make(f"{mode} {dt} to float32", [0, 10, 20, 30], [0, 3, 10, 22, 30], rows, dt, "float32", mode=mode, **o))
    write("moves.json", "previous, next, nearest move every type bit by bit; integers are computed with only into a float type", cases)


def strides():
    rng = random.Random(4)
    cases = []
    for dt in ("float32", "float16", "float64", "bfloat16", "int16"):
        mode = "nearest" if dt == "int16" else "linear"
        S, D = 5, 7
        for name, lay in {
            "expanded columns": (1, 0, 0, 0), "expanded rows": (0, 1, 0, 0), "every second column": (2 * D, 2, 0, 0), "every second column, odd start": (2 * D, 2, 1, 0),
            "transposed": (1, S, 0, 0), "rows backwards": (-D, 1, (S - 1) * D, 0), "columns backwards": (D, -1, D - 1, 0), "both backwards": (-D - 3, -1, (S - 1) * (D + 3) + D - 1, 0),
            "gap after each row": (D + 5, 1, 2, 0), "unaligned": (D, 1, 0, 1), "unaligned, strided": (3 * D, 3, 1, 3)}.items():
            rows = floats(rng, S, D, dt, 4) if dt in FORMATS else [[rng.randrange(1 << 16) for _ in range(D)] for _ in range(S)]
            cases.append(make(f"{dt} {name}", [0, 10, 20, 30, 40], [0, 3, 15, 40, 27, 50, 20], rows, dt, layout=lay, mode=mode))
    write("strides.json", "strides 0, 2, negative, gaps and bases that are not aligned; memory outside the view is a5a5…", cases)


def slerp():
    rng = random.Random(5)
    cases = []

    def quat():
        q = [rng.gauss(0, 1) for _ in range(4)]
        n = math.sqrt(sum(x * x for x in q))
        return [x / n for x in q]
    s, t = [0, 1000], [0, 1, 250, 333, 500, 999, 1000]
    special = {"equal": ([1, 0, 0, 0], [1, 0, 0, 0]), "opposite signs": ([.5, .5, .5, .5], [-.5, -.5, -.5, -.5]), "90 degrees, dot 0": ([1, 0, 0, 0], [0, 1, 0, 0]),
               "unnormalised": ([3, 0, 0, 0], [0, 0, 5, 5]), "zero": ([0, 0, 0, 0], [1, 0, 0, 0]), "nearly equal": ([1, 0, 0, 0], [1, 2.0 ** -22, 0, 0]),
               "180 degrees": ([0.70703125, 0.70703125, 0, 0], [0.70703125, -0.70703125, 0, 0]), "NaN": ([1, 0, 0, 0], [math.nan, 0, 0, 1]), "Inf": ([1, 0, 0, math.inf], [1, 0, 0, 0])}
    for dt in FLOATS:
        for n, (a, b) in special.items():
            rows = [[0x7fc00000 if x != x and dt == "float32" else (0x7ff8 << 48 if x != x and dt == "float64" else 0x7fc0 if x != x and dt == "bfloat16" else 0x7e00 if x != x else bits_of(float(x), dt)) for x in q] for q in (a, b)]
            cases.append(make(f"{dt} {n}", s, t, rows, dt, mode="slerp", ulp=1))
        rows = [[bits_of(F(x), dt) for _ in range(2) for x in quat()] for _ in range(6)]
        cases.append(make(f"{dt} two quaternions", [0, 100, 200, 200, 300, 420], [-5, 0, 50, 101, 200, 250, 299, 300, 419, 420, 500], rows, dt, mode="slerp", ulp=1))
    write("slerp.json", "quaternions: opposite signs, dot 0, equal, 180 degrees, zero and non-finite norms", cases)


def angle():
    rng = random.Random(6)
    cases = []
    pi = math.pi
    s, t = [0, 1000], [-10, 0, 1, 250, 500, 750, 999, 1000, 1100]
    pairs = [(3, -3), (-3, 3), (pi, -pi), (0, pi), (0, -pi), (pi - 1e-3, -pi + 1e-3), (10, -10), (100, 0.5), (0, 0), (-0.0, 0.0), (1e-40, -1e-40), (3.1415925, 3.1415927)]
    for dt in FLOATS:
        rows = [[bits_of(float(a), dt) for a, _ in pairs], [bits_of(float(b), dt) for _, b in pairs]]
        for edge in ("clamp", "extrapolate"):
            cases.append(make(f"{dt} 2pi {edge}", s, t, rows, dt, mode="angle", edge=edge))
        cases.append(make(f"{dt} from 0", s, t, rows, dt, mode="angle", lo=0.0))
        deg = [[bits_of(F(rng.uniform(-400, 400)), dt) for _ in range(9)] for _ in range(2)]
        cases.append(make(f"{dt} degrees", s, t, deg, dt, mode="angle", period=360.0))
    rows = [[bits_of(x, "float32") for x in (math.inf, 1.0, -90.0)], [bits_of(x, "float32") for x in (1.0, math.inf, 90.0)]]
    cases.append(make("not finite; half a period", s, t, rows, "float32", mode="angle", period=180.0))
    write("angle.json", "angles across the seam, half a period apart, other periods and ranges", cases)


def mean():
    rng = random.Random(7)
    cases = []
    s = [i * 10 + rng.randrange(3) for i in range(40)]
    for dt in FLOATS + ["int16", "uint8"]:
        rows = floats(rng, 40, 3, dt, 100) if dt in FORMATS else [[rng.randrange(1 << width(dt)) for _ in range(3)] for _ in range(40)]
        for b, a in ((10, 10), (25, 26), (0, 1), (1, 0), (200, 200), (3, 3)):
            cases.append(make(f"mean {dt} [-{b}, {a})", s, [-20, 0, 5, 20, 33, 100, 101, 102, 205, 390, 391, 392, 450], rows, dt, dt if dt in FORMATS else "float32", mode="mean", before=b, after=a))
    write("mean.json", "mean over [t-before, t+after): full, one-sample and empty windows, exact hits included", cases)


def fuse():
    """Ragged batches: each entry is a case of its own with its own length; empty rows among them. One output row is the concatenation."""
    rng = random.Random(8)
    groups = []
    for n in range(6):
        targets = sorted(rng.randrange(0, 400) for _ in range(9))
        members = []
        for k, (D, dt, mode) in enumerate([(7, "float32", "linear"), (6, "float32", "nearest"), (4, "float32", "slerp"), (3, "float16", "linear")]):
            S = rng.choice([0, 1, 5, 17])
            s = sorted(rng.randrange(0, 400) for _ in range(S))
            members.append(make(f"entry {n} stream {k}", s, targets, floats(rng, S, D, dt, 2), dt, "float32", cols=D, mode=mode, edge=rng.choice(["clamp", "mask"]), ulp=1 if mode == "slerp" else None))
        groups += members
    write("fuse.json", "entry n of a ragged batch is its streams 0 … 3 side by side; all share the targets and give float32", groups)


def scalar():
    rng = random.Random(9)
    fm = []
    seeds = [(0x33800001, 0x3f7ffffe, 0x3f800001)]
    for _ in range(1500):
        # products near half a step of the sum, and sums near the subnormals
        e = rng.choice([0, 0, -24, -25, -23, -60])
        a, b = rng.getrandbits(23) | 0x3f800000, rng.getrandbits(23) | 0x3f800000
        v = rng.getrandbits(23) | 0x3f800000 | rng.getrandbits(1) << 31
        a = bits_of(F(value_of(a, "float32")) * F(2) ** e, "float32")
        seeds.append((a, b, v))
    for _ in range(500):
        seeds.append(tuple(rng.getrandbits(32) for _ in range(3)))
    for _ in range(500):
        seeds.append((rng.getrandbits(23) | 0x3f000000, rng.getrandbits(24), rng.getrandbits(24) | rng.getrandbits(1) << 31))
    for k in range(0, 256, 2):  # half a step among the subnormals, short of it by k*k*2^-196
        seeds.append(((127 - 75 << 23) + k, (127 - 75 << 23) - 2 * k, rng.getrandbits(23) | rng.getrandbits(1) << 31))
    for w, d, v in seeds:
        x = fma(value_of(w, "float32"), value_of(d, "float32"), value_of(v, "float32"))
        fm.append(["%08x" % w, "%08x" % d, "%08x" % v, hexa(bits_of(x, "float32"), 32)])
    cv = []
    xs = [0, 1 << 63, 1] + [rng.getrandbits(64) for _ in range(200)]
    for b in list(range(0x3f00 - 0x40, 0x3f00 + 0x40)):
        xs.append(bits_of(F(value_of(b << 16, "float32")), "float64"))
    for _ in range(1500):
        x = F(rng.getrandbits(13), 1) * F(2) ** rng.randrange(-30, 8)  # ties of float16, its subnormals and its edge among them
        x *= rng.choice([1, -1])
        x += rng.choice([0, 0, 1, -1]) * F(2) ** rng.randrange(-70, -60)
        xs.append(bits_of(x, "float64") if x else 0)
    xs += [bits_of(float(v), "float64") for v in (65504, 65519.99, 65520, 65536, 1e39, -1e39, 3.3895e38, 3.4e38, math.inf, -math.inf)]
    for b in xs:
        x = value_of(b, "float64")
        cv.append(["%016x" % b, hexa(bits_of(x, "float32"), 32), hexa(bits_of(x, "float16"), 16), hexa(bits_of(x, "bfloat16"), 16)])
    with open(os.path.join(HERE, "scalar.json"), "w") as f:
        f.write('{"note":"fma: w, d, v, w*d+v in float32. convert: float64, and it in float32, float16, bfloat16, each rounded once",\n"fma":[\n')
        f.write(",\n".join(json.dumps(x) for x in fm))
        f.write('\n],\n"convert":[\n')
        f.write(",\n".join(json.dumps(x) for x in cv))
        f.write("\n]}\n")


def errors():
    """Each phrase. what = which field is wrong; the reader builds the call from it."""
    rng = random.Random(10)
    base = make("base", [0, 10], [5], floats(rng, 2, 3, "float32"), "float32")
    cases = []

    def bad(name, cls, phrase, **change):
        c = json.loads(json.dumps(base))
        for k in ("plan", "want", "valid"):
            c.pop(k)
        c.update({"name": name, "error": {"class": cls, "phrase": phrase}})
        for k, v in change.items():
            if isinstance(v, dict):
                c[k].update(v)
            else:
                c[k] = v
        cases.append(c)
    bad("decreasing stamps", "malformed", "timestamps must not decrease", times=["10", "9"])
    bad("stamp out of range", "malformed", "timestamp outside", times=["0", str(1 << 62)])
    bad("target out of range", "malformed", "target time outside", targets=[str(-(1 << 62))])
    bad("outside", "misuse", "outside the source range", targets=["11"], edge="error")
    bad("gap", "malformed", "gap exceeds max_gap", edge="error", max_gap="9")
    bad("data of another length", "misuse", "length mismatch", times=["0", "5", "10"])
    bad("integers computed", "misuse", "unsupported dtype", data={"dtype": "int32"}, out="int32")
    bad("booleans computed", "misuse", "unsupported dtype", data={"dtype": "bool", "memory": ["00"] * 6}, out="float32")
    bad("integers of two types", "misuse", "dtypes must match", data={"dtype": "int32"}, out="int64", mode="previous")
    bad("memory too short", "misuse", "length mismatch", data={"row_stride": 4})
    bad("three channels are no quaternion", "misuse", "quaternions must have shape", mode="slerp")
    bad("mean without a window", "misuse", "mean needs a window", mode="mean")
    write("errors.json", "each error phrase of planning and resampling", cases)


def splitmix(state):
    mask = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def large():
    """An hour: 30, 100 and 333 Hz to 50 Hz. Data by splitmix64: element = ((u >> 40) - 2^23) · 2^-20, C order. sha256 of the
    little-endian rows, then of the validity bytes."""
    cases = []
    for rate, D, mode, seed in ((30, 1, "linear", 11), (100, 3, "linear", 12), (333, 2, "linear", 13), (333, 3, "nearest", 14), (30, 2, "previous", 15)):
        n = rate * 3600 + 1
        s = [(2 * k * 10 ** 9 + rate) // (2 * rate) for k in range(n)]
        T = 50 * 3600 + 1
        t = [(2 * k * 10 ** 9 + 50) // 100 for k in range(T)]
        g = splitmix(seed)
        data = [[((next(g) >> 40) - (1 << 23)) * 2.0 ** -20 for _ in range(D)] for _ in range(n)]
        h = hashlib.sha256()
        valid = bytearray()
        k = 0
        for x in t:
            while k + 1 < n and s[k + 1] <= x:
                k += 1
            hit = s[k] == x
            if not hit and k == n - 1:
                row, ok = data[k], 0
            elif hit or mode == "previous":
                row, ok = data[k], 1
            elif mode == "nearest":
                row, ok = data[k if x - s[k] <= s[k + 1] - x else k + 1], 1
            else:
                w = rnd(F(float(x - s[k]) / float(s[k + 1] - s[k])), "float32")
                row, ok = [], 1
                for v0, v1 in zip(data[k], data[k + 1]):
                    # v1 - v0 is exact here (24 + 1 bits at most on one grid, rounded where it is 25)
                    d = struct.unpack("<f", struct.pack("<f", v1 - v0))[0]
                    x2 = F(w) * F(d) + F(v0)
                    f = float(x2)  # correctly rounded to float64
                    m, _ = math.frexp(f)
                    low = int(abs(m) * (1 << 53)) & ((1 << 29) - 1)
                    row.append(rnd(x2, "float32") if low == 1 << 28 else struct.unpack("<f", struct.pack("<f", f))[0])
            h.update(struct.pack("<%df" % D, *row))
            valid.append(ok)
        h.update(bytes(valid))
        cases.append({"name": f"{rate} Hz to 50 Hz for an hour, {mode}", "rate": rate, "target_rate": 50, "seconds": 3600, "cols": D, "mode": mode, "seed": str(seed), "rows": len(t), "sha256": h.hexdigest()})
    with open(os.path.join(HERE, "large.json"), "w") as f:
        json.dump({"note": large.__doc__, "cases": cases}, f, indent=1, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    args = [a for a in sys.argv[1:] if a != "--quick"]
    HERE = args[0] if args else HERE
    os.makedirs(HERE, exist_ok=True)
    for make_file in (policies, linear, moves, strides, slerp, angle, mean, fuse, scalar, errors, large):
        if make_file is not large or "--quick" not in sys.argv:
            make_file()
