"""Ragged batches, scalars, errors, and an hour of data."""

import hashlib, json, math, os, random, struct
from fractions import Fraction as F

from .case import make, write
from .numbers import bits_of, floats, fma, hexa, rnd, splitmix, value_of


def fuse(folder):
    """Writes fuse.json: ragged batches. Each stream of each entry is a case; some have no samples."""
    rng = random.Random(8)
    groups = []
    for n in range(6):
        targets = sorted(rng.randrange(0, 400) for _ in range(9))
        members = []
        for k, (D, dt, mode) in enumerate(
            [
                (7, "float32", "linear"),
                (6, "float32", "nearest"),
                (4, "float32", "slerp"),
                (3, "float16", "linear"),
            ]
        ):
            S = rng.choice([0, 1, 5, 17])
            s = sorted(rng.randrange(0, 400) for _ in range(S))
            members.append(
                make(
                    f"entry {n} stream {k}",
                    s,
                    targets,
                    floats(rng, S, D, dt, 2),
                    dt,
                    "float32",
                    cols=D,
                    mode=mode,
                    edge=rng.choice(["clamp", "mask"]),
                    ulp=1 if mode == "slerp" else None,
                )
            )
        groups += members
    write(
        folder,
        "fuse.json",
        "entry n of a ragged batch is its streams 0 … 3 side by side; all share the targets and give float32",
        groups,
    )


def scalar(folder):
    """Writes scalar.json: fused multiply-adds and conversions of single numbers."""
    rng = random.Random(9)
    fm = []
    seeds = [(0x33800001, 0x3F7FFFFE, 0x3F800001)]
    for _ in range(1500):
        # products near half a step of the sum, and sums near the subnormals
        e = rng.choice([0, 0, -24, -25, -23, -60])
        a, b = rng.getrandbits(23) | 0x3F800000, rng.getrandbits(23) | 0x3F800000
        v = rng.getrandbits(23) | 0x3F800000 | rng.getrandbits(1) << 31
        a = bits_of(F(value_of(a, "float32")) * F(2) ** e, "float32")
        seeds.append((a, b, v))
    for _ in range(500):
        seeds.append(tuple(rng.getrandbits(32) for _ in range(3)))
    for _ in range(500):
        seeds.append(
            (
                rng.getrandbits(23) | 0x3F000000,
                rng.getrandbits(24),
                rng.getrandbits(24) | rng.getrandbits(1) << 31,
            )
        )
    for k in range(0, 256, 2):  # half a step among the subnormals, short of it by k*k*2^-196
        seeds.append(
            (
                (127 - 75 << 23) + k,
                (127 - 75 << 23) - 2 * k,
                rng.getrandbits(23) | rng.getrandbits(1) << 31,
            )
        )
    for w, d, v in seeds:
        x = fma(value_of(w, "float32"), value_of(d, "float32"), value_of(v, "float32"))
        fm.append(["%08x" % w, "%08x" % d, "%08x" % v, hexa(bits_of(x, "float32"), 32)])
    cv = []
    xs = [0, 1 << 63, 1] + [rng.getrandbits(64) for _ in range(200)]
    for b in list(range(0x3F00 - 0x40, 0x3F00 + 0x40)):
        xs.append(bits_of(F(value_of(b << 16, "float32")), "float64"))
    for _ in range(1500):
        x = F(rng.getrandbits(13), 1) * F(2) ** rng.randrange(
            -30, 8
        )  # ties of float16, its subnormals and its edge among them
        x *= rng.choice([1, -1])
        x += rng.choice([0, 0, 1, -1]) * F(2) ** rng.randrange(-70, -60)
        xs.append(bits_of(x, "float64") if x else 0)
    xs += [
        bits_of(float(v), "float64")
        for v in (
            65504,
            65519.99,
            65520,
            65536,
            1e39,
            -1e39,
            3.3895e38,
            3.4e38,
            math.inf,
            -math.inf,
        )
    ]
    for b in xs:
        x = value_of(b, "float64")
        cv.append(
            [
                "%016x" % b,
                hexa(bits_of(x, "float32"), 32),
                hexa(bits_of(x, "float16"), 16),
                hexa(bits_of(x, "bfloat16"), 16),
            ]
        )
    with open(os.path.join(folder, "scalar.json"), "w") as f:
        f.write(
            '{"note":"fma: w, d, v, w*d+v in float32. convert: float64, and it in float32, float16, bfloat16, each rounded once",\n"fma":[\n'
        )
        f.write(",\n".join(json.dumps(x) for x in fm))
        f.write('\n],\n"convert":[\n')
        f.write(",\n".join(json.dumps(x) for x in cv))
        f.write("\n]}\n")


def errors(folder):
    """Writes errors.json: a case for each error phrase."""
    rng = random.Random(10)
    base = make("base", [0, 10], [5], floats(rng, 2, 3, "float32"), "float32")
    cases = []

    def bad(name, cls, phrase, **change):
        """Adds a copy of a valid case with changed fields and the expected error."""
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
    bad(
        "booleans computed",
        "misuse",
        "unsupported dtype",
        data={"dtype": "bool", "memory": ["00"] * 6},
        out="float32",
    )
    bad(
        "integers of two types",
        "misuse",
        "dtypes must match",
        data={"dtype": "int32"},
        out="int64",
        mode="previous",
    )
    bad("memory too short", "misuse", "length mismatch", data={"row_stride": 4})
    bad("three channels are no quaternion", "misuse", "quaternions must have shape", mode="slerp")
    bad("mean without a window", "misuse", "mean needs a window", mode="mean")
    write(folder, "errors.json", "each error phrase of planning and resampling", cases)


def large(folder):
    """An hour: 30, 100 and 333 Hz to 50 Hz. Data by splitmix64: element = ((u >> 40) - 2^23) · 2^-20, C order. sha256 of the
    little-endian rows, then of the validity bytes."""
    cases = []
    for rate, D, mode, seed in (
        (30, 1, "linear", 11),
        (100, 3, "linear", 12),
        (333, 2, "linear", 13),
        (333, 3, "nearest", 14),
        (30, 2, "previous", 15),
    ):
        n = rate * 3600 + 1
        s = [(2 * k * 10**9 + rate) // (2 * rate) for k in range(n)]
        T = 50 * 3600 + 1
        t = [(2 * k * 10**9 + 50) // 100 for k in range(T)]
        g = splitmix(seed)
        data = [[((next(g) >> 40) - (1 << 23)) * 2.0**-20 for _ in range(D)] for _ in range(n)]
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
                    # v1 - v0 has at most 25 bits. It is exact in float64 and rounded to float32.
                    d = struct.unpack("<f", struct.pack("<f", v1 - v0))[0]
                    x2 = F(w) * F(d) + F(v0)
                    f = float(x2)  # correctly rounded to float64
                    m, _ = math.frexp(f)
                    low = int(abs(m) * (1 << 53)) & ((1 << 29) - 1)
                    row.append(
                        rnd(x2, "float32")
                        if low == 1 << 28
                        else struct.unpack("<f", struct.pack("<f", f))[0]
                    )
            h.update(struct.pack("<%df" % D, *row))
            valid.append(ok)
        h.update(bytes(valid))
        cases.append(
            {
                "name": f"{rate} Hz to 50 Hz for an hour, {mode}",
                "rate": rate,
                "target_rate": 50,
                "seconds": 3600,
                "cols": D,
                "mode": mode,
                "seed": str(seed),
                "rows": len(t),
                "sha256": h.hexdigest(),
            }
        )
    with open(os.path.join(folder, "large.json"), "w") as f:
        json.dump({"note": large.__doc__, "cases": cases}, f, indent=1, ensure_ascii=False)
        f.write("\n")
