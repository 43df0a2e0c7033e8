"""The results of FuseOp and FuseGradOp, element by element, by the rules of kernel/doc.go."""

import math
from fractions import Fraction as F

from .numbers import (
    FORMATS,
    INTS,
    arith,
    bits_of,
    fma,
    fused,
    h64,
    hexa,
    number,
    plain,
    rnd,
    sub,
    value_of,
    width,
)
from .plan import Fail, plan_row
from .tensor import Tensor, nested
from .values import slerp_exact


class Norm:
    def __init__(self, kind, a, b):
        self.kind, self.a, self.b = (
            kind,
            [rnd(F(x), "float32") for x in a],
            [rnd(F(x), "float32") for x in b],
        )

    def json(self):
        """Returns the fields as a case stores them."""
        f = lambda v: [hexa(bits_of(F(x) if x else x, "float32"), 32) for x in v]
        return {"kind": self.kind, "a": f(self.a), "b": f(self.b)}

    def run(self, x, channel, fmt):
        """Returns x after this step, with each operation rounded to fmt."""
        a, b = self.a[channel], self.b[channel]
        if b == 0:
            return 0.0
        if self.kind == "mean_std":
            return arith("/", arith("-", x, a, fmt), b, fmt)
        return arith("-", arith("/", arith("*", 2.0, arith("-", x, a, fmt), fmt), b, fmt), 1.0, fmt)


class Epilogue:
    def __init__(self, unit=False, norm=None, plane=0, clip=None, augment=None):
        self.unit, self.norm, self.plane, self.augment = unit, norm, plane, augment
        self.clip = clip and [rnd(F(x), "float32") for x in clip]

    def any(self):
        """Reports whether the epilogue changes values."""
        return self.unit or self.norm or self.clip or self.augment

    def json(self):
        """Returns the fields as a case stores them."""
        d = {}
        f32 = lambda x: hexa(bits_of(F(x) if x else x, "float32"), 32)
        if self.unit:
            d["unit"] = True
        if self.norm:
            d.update(norm=self.norm.json(), plane=self.plane)
        if self.clip:
            d["clip"] = [f32(x) for x in self.clip]
        if self.augment:
            a = self.augment
            d["augment"] = {
                "seed": str(a.seed),
                "epoch": str(a.epoch),
                "op": a.op,
                "noise": f32(a.noise),
                "dropout": f32(a.dropout),
                "scale": [f32(a.lo), f32(a.hi)],
            }
            if a.samples is not None:
                d["augment"]["samples"] = [str(s) for s in a.samples]
        return d

    def run(self, x, sample, row, col, fmt):
        """Returns x after this step, with each operation rounded to fmt."""
        if self.unit:
            x = arith("/", x, 255.0, fmt)
        if self.norm:
            x = self.norm.run(x, col // max(self.plane, 1) % len(self.norm.a), fmt)
        if self.clip:
            lo, hi = self.clip
            x = lo if x < lo else hi if x > hi else x
        if self.augment:
            x = self.augment.run(x, sample, row, col, fmt)
        return x


class Counts:
    def __init__(self):
        self.overflow = self.nan = 0

    def store(self, x, out):
        """Returns the bits of a computed value in the output type, and counts overflows and NaN."""
        if out in FORMATS:
            b = bits_of(F(x) if plain(x) and x else x, out)
            if b != "nan" and math.isinf(value_of(b, out)) and not math.isinf(x):
                self.overflow += 1
            return b
        w, signed = INTS[out]
        if math.isnan(x):
            self.nan += 1
            return 0
        lo, hi = (-(1 << w - 1), (1 << w - 1) - 1) if signed else (0, (1 << w) - 1)
        n = (hi + 1 if x > 0 else lo - 1) if math.isinf(x) else math.trunc(x)
        if not lo <= n <= hi:
            self.overflow += 1
            n = lo if n < lo else hi
        return n & (1 << w) - 1


def computed(plan, rows, rule, dt, out):
    """Returns a row before its epilogue: its kind, its contents and its validity.

    Contents by kind: "zero" has None, "copy" has (bits, [(value, type)]), "values" has
    [(value, type)], where type is the computing type.
    """
    kind, l, r, w, valid = plan
    wide = dt == "float64" or dt not in FORMATS and out == "float64"
    cfmt = "float64" if wide else "float32"
    load = lambda b, fmt: rnd(F(n) if isinstance(n := number(b, dt), int) else n, fmt)
    mode = rule["mode"]
    if kind == 2 and (w == 0 or mode == "linear" and not wide and rnd(F(w), "float32") == 0):
        kind = 1
    if kind == 0:
        return "zero", None, valid
    if kind == 1:
        return "copy", (rows[l], [(load(b, cfmt), cfmt) for b in rows[l]]), valid
    D = len(rows[l])
    if kind == 3:
        res = []
        for c in range(D):
            total = float(number(rows[l][c], dt))
            for k in range(l + 1, r):
                total += float(number(rows[k][c], dt))
            res.append((total / (r - l), "float64"))
        return "values", res, valid
    if mode == "angle":
        P = rule.get("period", 2 * math.pi)
        lo = rule.get("lo", -P / 2)
        res = []
        for a, b in zip(rows[l], rows[r]):
            v0, v1 = load(a, "float64"), load(b, "float64")
            if not plain(v0, v1):
                res.append((math.nan, "float64"))
                continue
            x = rnd(fma(w, math.remainder(v1 - v0, P), v0), "float64")
            res.append((x - P * math.floor((x - lo) / P), "float64"))
        return "values", res, valid
    ww = w if wide else rnd(F(w), "float32")
    line = lambda a, b: (
        fused(ww, sub(load(b, cfmt), load(a, cfmt), cfmt), load(a, cfmt), cfmt),
        cfmt,
    )
    res = [line(a, b) for a, b in zip(rows[l], rows[r])]
    if mode == "slerp":
        for q in rule.get("quats") or [[c, c + 1, c + 2, c + 3] for c in range(0, D, 4)]:
            x = slerp_exact(
                [float(number(rows[l][c], dt)) for c in q],
                [float(number(rows[r][c], dt)) for c in q],
                w,
            )
            if x is None:
                valid = 0
            for i, c in enumerate(q):
                res[c] = (rnd(x[i], "float64") if x else math.nan, "float64")
    return "values", res, valid


def continuous(rows, rule, dt):
    """Returns the rows with continuous signs (kernel.K20)."""
    rows = [list(r) for r in rows]
    top = 1 << (width(dt) - 1)
    for q in rule.get("quats") or [
        [c, c + 1, c + 2, c + 3] for c in range(0, len(rows[0]) if rows else 0, 4)
    ]:
        for i in range(1, len(rows)):
            a, b = [[number(rows[k][c], dt) for c in q] for k in (i - 1, i)]
            if plain(*a, *b) and sum(F(x) * F(y) for x, y in zip(a, b)) < 0:
                for c in q:
                    rows[i][c] ^= top
    return rows


def as_given(s, t, rule, eps):
    """plan_row for the clock AsGiven: times are unchanged seconds, and modes that compute use the
    interval t0 < t <= t1.
    """
    mode, edge, gap = rule["mode"], rule["edge"], rule.get("max_gap", 0) / 1e9
    cut = mode in ("linear", "slerp", "angle")
    below = [i for i, x in enumerate(s) if (x < t if cut else x <= t)]
    k = below[-1] if below else -1
    weight = lambda a, b: (t - s[a]) / ((s[b] - s[a]) + eps)
    if not s or t < s[0] or t > s[-1]:
        if edge == "error":
            raise Fail("misuse", "outside the source range")
        if edge == "mask" or not s:
            return (0, 0, 0, 0.0, 0)
        if edge == "extrapolate" and mode in ("linear", "angle"):
            at = [i for i in range(len(s)) if i + 1 == len(s) or s[i + 1] != s[i]]
            if len(at) > 1:
                a, b = at[:2] if t < s[0] else at[-2:]
                return (2, a, b, weight(a, b), 0)
        e = 0 if t < s[0] else len(s) - 1
        return (1, e, e, 0.0, 0)
    if cut and k < 0:
        return (1, 0, 0, 0.0, 1)
    if cut:
        row, length = (2, k, k + 1, weight(k, k + 1)), s[k + 1] - s[k]
    elif s[k] == t:
        return (1, k, k, 0.0, 1)
    else:
        take = {"previous": k, "next": k + 1, "nearest": k if t - s[k] <= s[k + 1] - t else k + 1}[
            mode
        ]
        row, length = (1, take, take, 0.0), abs(t - s[take])
    if gap and length > gap:
        if edge == "error":
            raise Fail("malformed", "gap exceeds max_gap")
        return ((0, 0, 0, 0.0) if edge == "mask" else row) + (0,)
    return row + (1,)


def entry_times(tensor, b, clock):
    """Returns the times of entry b: ns, or seconds under as_given."""
    x = nested(tensor)
    if len(tensor.shape) == 2:
        x = x[b]
    if tensor.dtype == "int64":
        return [v - (1 << 64) if v >> 63 else v for v in x]
    sec = [value_of(v, tensor.dtype) for v in x]
    return sec if clock == "as_given" else [round(v * 1e9) for v in sec]


class Series:
    """values: a Tensor [B,S,D], or [sum of S, D] with offsets."""

    def __init__(self, values, times, lengths=None, offsets=None, epilogue=None, name=None, **rule):
        self.values, self.times, self.lengths, self.offsets, self.name = (
            values,
            times,
            lengths,
            offsets,
            name,
        )
        self.epilogue = epilogue or Epilogue()
        self.rule = {"mode": "linear", "edge": "clamp", **rule}

    def json(self):
        """Returns the fields as a case stores them."""
        d = {
            "values": self.values.json(),
            "times": self.times.json(),
            "mode": self.rule["mode"],
            "edge": self.rule["edge"],
        }
        if self.name:
            d["name"] = self.name
        for k in ("lengths", "offsets"):
            if getattr(self, k) is not None:
                d[k] = [str(x) for x in getattr(self, k)]
        for k in ("max_gap", "before", "after"):
            if k in self.rule:
                d[k] = str(self.rule[k])
        for k in ("period", "lo"):
            if k in self.rule:
                d[k] = h64(self.rule[k])
        for k in ("quats", "continuous"):
            if self.rule.get(k):
                d[k] = self.rule[k]
        if self.epilogue.any():
            d["epilogue"] = self.epilogue.json()
        return d

    def entry(self, b):
        """Returns the first row and the number of rows of entry b."""
        if self.offsets is not None:
            return self.offsets[b], self.offsets[b + 1] - self.offsets[b]
        return 0, self.lengths[b] if self.lengths is not None else self.values.shape[1]

    def plan(self, b, targets, clock, eps):
        """Returns the plan row of each target for entry b."""
        first, n = self.entry(b)
        s = entry_times(self.times, b, clock)[first : first + n]
        if clock == "as_given":
            return [as_given(s, t, self.rule, eps) for t in targets]
        return [plan_row(s, t, self.rule) for t in targets]

    def rows(self, b):
        """Returns the rows of entry b, as bits."""
        first, n = self.entry(b)
        x = nested(self.values)
        rows = (x if self.offsets is not None else x[b])[first : first + n]
        return (
            continuous(rows, self.rule, self.values.dtype) if self.rule.get("continuous") else rows
        )

    def slack(self, out):
        """Returns the tolerance of the stream (kernel.K5, kernel.K16); 0 = equal bits."""
        s = 0.0
        e = self.epilogue
        if self.rule["mode"] == "slerp":
            s = 2.0**-23 * max([1.0] + [2 / abs(b) for b in (e.norm.b if e.norm else []) if b])
        if e.augment:
            s = s * max(1.0, abs(e.augment.lo), abs(e.augment.hi)) + e.augment.noise * 2.0**-20
        if s:
            s += {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(out, 0.0)
        return s


def finish(made, e, sample, row, cols, dt, out, counts):
    """Returns the bits of a row after its epilogue and cast. made is the result of computed."""
    kind, x = made
    if kind == "zero":
        return [0] * cols
    if kind == "copy":
        if dt == out and not e.any():
            return ["nan" if dt in FORMATS and math.isnan(value_of(b, dt)) else b for b in x[0]]
        x = x[1]
    return [counts.store(e.run(v, sample, row, c, fmt), out) for c, (v, fmt) in enumerate(x)]


def fuse(
    name, series, targets, out, clock="ns", eps=0.0, out_layout=None, valid_layout=None, **extra
):
    """Returns a case of a FuseOp with its result. out is the type of the result."""
    s0 = series[0]
    B = len(s0.offsets) - 1 if s0.offsets is not None else s0.values.shape[0]
    T = targets.shape[-1]
    cols = [s.values.shape[-1] for s in series]
    counts, want, valid = Counts(), [], []
    case = {
        "op": "fuse",
        "name": name,
        "series": [s.json() for s in series],
        "targets": targets.json(),
    }
    if clock != "ns":
        case.update(clock=clock, epsilon=h64(eps))
    result = Tensor(out, [B, T, sum(cols)], **(out_layout or {}))
    case["out"] = result.json(memory=False)
    if valid_layout:
        case["valid_out"] = Tensor("uint8", [B, T, len(series)], **valid_layout).json(memory=False)
    case.update(extra)
    try:
        plans = [
            [s.plan(b, entry_times(targets, b, clock), clock, eps) for s in series]
            for b in range(B)
        ]
    except Fail as f:
        case["error"] = {"class": f.cls, "phrase": f.phrase}
        return case
    for b in range(B):
        rows = [s.rows(b) for s in series]
        for t in range(T):
            for i, s in enumerate(series):
                dt = s.values.dtype
                kind, x, ok = computed(plans[b][i][t], rows[i], s.rule, dt, out)
                a = s.epilogue.augment
                sample = a.samples[b] if a and a.samples is not None else b
                want += finish((kind, x), s.epilogue, sample, t, cols[i], dt, out, counts)
                valid.append(ok)
    case["want"] = [hexa(b, width(out)) for b in want]
    case["valid"] = valid
    slack = [s.slack(out) for s in series for _ in range(s.values.shape[-1])]
    if any(slack):
        case["slack"] = [h64(x) for x in slack]
    else:
        case["counts"] = [counts.overflow, counts.nan]
    return case


def grad(name, series, targets, g, dtype=None, grad_layout=None, clock="ns", eps=0.0):
    """Returns a case of a FuseGradOp with its result. g is the gradient of the fused result."""
    dt = dtype or series.values.dtype
    wide = series.values.dtype == "float64"
    fmt = "float64" if wide else "float32"
    B, T, D = g.shape
    flat = [[0.0] * D for _ in range(math.prod(series.values.shape[:-1]))]
    for b in range(B):
        plan = series.plan(b, entry_times(targets, b, clock), clock, eps)
        first, _ = series.entry(b)
        at = first if series.offsets is not None else b * series.values.shape[1]
        for t in range(T):
            kind, l, r, w, _ = plan[t]
            row = [rnd(value_of(x, g.dtype), fmt) for x in nested(g)[b][t]]
            w = w if wide else rnd(F(w), fmt)
            if kind == 0:
                continue
            if kind == 2 and w == 0:
                kind = 1
            for c, v in enumerate(row):
                if kind == 1:
                    flat[at + l][c] = fused(1.0, v, flat[at + l][c], fmt)
                else:
                    flat[at + l][c] = fused(arith("-", 1.0, w, fmt), v, flat[at + l][c], fmt)
                    flat[at + r][c] = fused(w, v, flat[at + r][c], fmt)
    case = {
        "op": "fuse_grad",
        "name": name,
        "series": [series.json()],
        "targets": targets.json(),
        "gradient": g.json(),
    }
    if clock != "ns":
        case.update(clock=clock, epsilon=h64(eps))
    case["out"] = Tensor(dt, series.values.shape, **(grad_layout or {})).json(memory=False)
    case["want"] = [
        hexa(bits_of(F(x) if plain(x) and x else x, dt), width(dt)) for r in flat for x in r
    ]
    return case
