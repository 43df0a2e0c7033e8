"""The result of a plan and rows."""

import math
from fractions import Fraction as F

import mpmath

from .numbers import FORMATS, bits_of, fma, number, plain, rnd, sub, value_of
from .plan import plan_row

mpmath.mp.prec = 400


def slerp_exact(q0, q1, w):
    """Returns the blend as rationals with 400 bits, or None if a norm is zero or not finite."""
    if not plain(*q0, *q1) or not any(q0) or not any(q1):
        return None
    m = mpmath.mpf
    n0, n1 = mpmath.sqrt(sum(m(x) ** 2 for x in q0)), mpmath.sqrt(sum(m(x) ** 2 for x in q1))
    p0, p1 = [m(x) / n0 for x in q0], [m(x) / n1 for x in q1]
    if sum(F(x) * F(y) for x, y in zip(q0, q1)) < 0:
        p1 = [-x for x in p1]
    th = 2 * mpmath.atan2(
        mpmath.sqrt(sum((x - y) ** 2 for x, y in zip(p0, p1))),
        mpmath.sqrt(sum((x + y) ** 2 for x, y in zip(p0, p1))),
    )
    mw = m(w)
    if th < mpmath.mpf("1e-6"):
        r = [(1 - mw) * x + mw * y for x, y in zip(p0, p1)]
        n = mpmath.sqrt(sum(x**2 for x in r))
        r = [x / n for x in r]
    else:
        r = [
            (mpmath.sin((1 - mw) * th) * x + mpmath.sin(mw * th) * y) / mpmath.sin(th)
            for x, y in zip(p0, p1)
        ]
    return [F(-x._mpf_[1] if x._mpf_[0] else x._mpf_[1]) * F(2) ** x._mpf_[2] for x in r]


def blend(mode, a, b, w, dt, out, o):
    """Returns rows a and b (lists of numbers) blended at weight w, as bits of the output type.
    The second result is false if a quaternion is invalid.
    """
    wide = dt == "float64" or dt not in FORMATS and out == "float64"
    cfmt = "float64" if wide else "float32"
    if mode == "linear":
        res = []
        for v0, v1 in zip(a, b):
            v0, v1 = (
                rnd(F(v0) if isinstance(v0, int) else v0, cfmt),
                rnd(F(v1) if isinstance(v1, int) else v1, cfmt),
            )
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
        r = slerp_exact([float(x) for x in a[c : c + 4]], [float(x) for x in b[c : c + 4]], w)
        if r is None:
            res += ["nan"] * 4
            ok = False
            continue
        res += [bits_of(x, out) if x else 0 for x in r]
    return res, ok


def run(case, s, targets, rows, dt, out, o):
    """Returns the plan, the expected bits and the validity of each row."""
    rows_n = [[number(x, dt) for x in r] for r in rows]
    plan = [plan_row(s, t, o) for t in targets]
    want, valid = [], []
    D = len(rows[0]) if rows else case["cols"]
    for kind, l, r, w, v in plan:
        if kind == 0:
            bits = [0] * D
        elif kind == 1:
            bits = (
                list(rows[l])
                if dt == out
                else [bits_of(F(x) if isinstance(x, int) else x, out) for x in rows_n[l]]
            )
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
