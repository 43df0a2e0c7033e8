"""Large Fuse calls, as a generator, a seed and a SHA-256.

All random numbers are splitmix64 from the seed on, in this order: for each stream, ragged: rows of each entry, u % (rows+1); the stamps, entry by
entry: a sum of u % 20000000 from 0; the values in C order, float32 ((u>>40) - 2^23) * 2^-20, others (u>>56) - 128 (u>>56 for uint8). Then the
targets [B,T]: u % (most rows * 10000000), each entry's sorted unless shuffled. sha256 of the little-endian result in C order, then of valid [B,T,N].
"""

import hashlib, json, os
from fractions import Fraction as F

import numpy as np

from .numbers import bits_of, rnd

GAMMA = 0x9E3779B97F4A7C15


class Random:
    def __init__(self, seed):
        self.state = seed

    def take(self, n):
        """Returns the next n random numbers."""
        with np.errstate(over="ignore"):
            z = np.uint64(self.state) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GAMMA)
            self.state = (self.state + n * GAMMA) % (1 << 64)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return z ^ (z >> np.uint64(31))


def lerp(v0, v1, w):
    """Returns fma(w, v1-v0, v0) in float32: by float64, or by rationals if the sum is half way."""
    w32, d = w.astype(np.float32), (v1 - v0).astype(np.float32)
    s = w32.astype(np.float64)[:, None] * d.astype(np.float64) + v0.astype(np.float64)
    out = s.astype(np.float32)
    for i, c in zip(
        *np.nonzero((s.view(np.uint64) & np.uint64((1 << 29) - 1)) == np.uint64(1 << 28))
    ):
        out[i, c] = rnd(F(float(w32[i])) * F(float(d[i, c])) + F(float(v0[i, c])), "float32")
    return np.where((w32 == 0)[:, None], v0, out)


def narrow(x, dtype):
    """Returns float32 numbers rounded to the type, as bits."""
    if dtype == "float32":
        return x.astype("<f4").view(np.uint32)
    if dtype == "float16":
        return x.astype("<f2").view(np.uint16)
    b = x.view(np.uint32).astype(np.uint64)
    return ((b + np.uint64(0x7FFF) + (b >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(
        np.uint16
    )  # nothing here is NaN


def one(case):
    """Returns the case with the hash of its result."""
    g = Random(int(case["seed"]))
    B, T = case["batch"], case["targets"]
    streams, most = [], max(s["rows"] for s in case["streams"])
    for s in case["streams"]:
        n = (
            [s["rows"]] * B
            if not s.get("ragged")
            else [int(x) for x in g.take(B) % np.uint64(s["rows"] + 1)]
        )
        stamps = [np.cumsum((g.take(k) % np.uint64(20000000)).astype(np.int64)) for k in n]
        u = g.take(sum(n) * s["cols"])
        if s["dtype"] == "float32":
            v = ((u >> np.uint64(40)).astype(np.int64) - (1 << 23)) * 2.0**-20
        else:
            v = (u >> np.uint64(56)).astype(np.int64) - (0 if s["dtype"] == "uint8" else 128)
        first = np.concatenate([[0], np.cumsum(n)])
        streams.append((n, first, stamps, v.astype(np.float32).reshape(sum(n), s["cols"])))
    to = (g.take(B * T) % np.uint64(most * 10000000)).astype(np.int64).reshape(B, T)
    if not case.get("shuffled"):
        to.sort(axis=1)
    h = hashlib.sha256()
    valid = np.zeros((B, T, len(streams)), np.uint8)
    for b in range(B):
        parts = []
        for i, (s, (n, first, stamps, v)) in enumerate(zip(case["streams"], streams)):
            at, t, x = stamps[b], to[b], v[first[b] : first[b + 1]]
            if n[b] == 0:
                parts.append(np.zeros((T, s["cols"]), np.float32))
                continue
            k = np.searchsorted(at, t, side="right") - 1
            hit = (k >= 0) & (at[np.maximum(k, 0)] == t)
            inside = (k >= 0) & ((k < n[b] - 1) | hit)
            valid[b, :, i] = inside
            a, e = np.clip(k, 0, n[b] - 1), np.clip(k + 1, 0, n[b] - 1)
            between = inside & ~hit
            if s["mode"] == "nearest":
                e = np.where(between & (t - at[a] > at[e] - t), e, a)
                parts.append(x[e])
                continue
            gap = np.where(between, at[e] - at[a], 1)
            w = np.where(between, (t - at[a]).astype(np.float64) / gap.astype(np.float64), 0)
            parts.append(lerp(x[a], np.where(between[:, None], x[e], x[a]), w))
        h.update(narrow(np.ascontiguousarray(np.concatenate(parts, axis=1)), case["out"]).tobytes())
    h.update(valid.tobytes())
    return {**case, "sha256": h.hexdigest()}


def large(folder):
    """Writes large.json."""
    f = lambda rows, cols, dtype="float32", mode="linear", **o: {
        "dtype": dtype,
        "rows": rows,
        "cols": cols,
        "mode": mode,
        **o,
    }
    cases = [
        {
            "name": "70,000 targets",
            "batch": 1,
            "targets": 70000,
            "streams": [f(1000, 3)],
            "out": "float32",
            "seed": "101",
        },
        {
            "name": "70,000 targets in any order",
            "batch": 1,
            "targets": 70000,
            "shuffled": True,
            "streams": [f(3000, 2, "float16", "nearest"), f(500, 1)],
            "out": "float32",
            "seed": "102",
        },
        {
            "name": "256 x 100 to 50 x 32, bfloat16",
            "batch": 256,
            "targets": 50,
            "streams": [f(100, 32, "bfloat16")],
            "out": "bfloat16",
            "seed": "103",
        },
        {
            "name": "small rows",
            "batch": 512,
            "targets": 50,
            "streams": [f(100, 7)],
            "out": "float32",
            "seed": "104",
        },
        {
            "name": "three streams, bfloat16",
            "batch": 12,
            "targets": 50,
            "streams": [f(30, 512, "bfloat16"), f(100, 64, "bfloat16"), f(200, 12, "bfloat16")],
            "out": "bfloat16",
            "seed": "105",
        },
        {
            "name": "ragged, empty entries among them",
            "batch": 1500,
            "targets": 16,
            "streams": [f(40, 7, ragged=True), f(5, 3, ragged=True, mode="nearest")],
            "out": "float32",
            "seed": "106",
        },
        {
            "name": "4096 rows to 1024",
            "batch": 2,
            "targets": 1024,
            "streams": [f(4096, 40)],
            "out": "float32",
            "seed": "107",
        },
        {
            "name": "70,000 entries",
            "batch": 70000,
            "targets": 1,
            "streams": [f(2, 2)],
            "out": "float32",
            "seed": "108",
        },
        {
            "name": "pictures to float16",
            "batch": 8,
            "targets": 9,
            "streams": [f(12, 768, "uint8")],
            "out": "float16",
            "seed": "109",
        },
    ]
    with open(os.path.join(folder, "large.json"), "w") as out:
        json.dump({"note": __doc__, "cases": [one(c) for c in cases]}, out, indent=1)
        out.write("\n")
