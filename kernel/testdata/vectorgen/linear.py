"""Linear, and modes that move bits; memory of any strides."""

import random
from fractions import Fraction as F

from .case import make, write
from .numbers import FLOATS, FORMATS, INTS, bits_of, floats, rnd, value_of, width
from .plan import EDGES


def linear(folder):
    """Writes linear.json."""
    rng = random.Random(2)
    cases = []
    f32 = [
        0x00000000,
        0x80000000,
        0x00000001,
        0x80000001,
        0x007FFFFF,
        0x00800000,
        0x3F800000,
        0xBF800000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x33800001,
    ]
    f16 = [
        0x0000,
        0x8000,
        0x0001,
        0x8001,
        0x03FF,
        0x0400,
        0x3C00,
        0xBC00,
        0x7BFF,
        0xFBFF,
        0x7C00,
        0xFC00,
        0x7E00,
    ]
    bf = [
        0x0000,
        0x8000,
        0x0001,
        0x8001,
        0x007F,
        0x0080,
        0x3F80,
        0xBF80,
        0x7F7F,
        0xFF7F,
        0x7F80,
        0xFF80,
        0x7FC0,
    ]
    f64 = [
        0,
        1 << 63,
        1,
        0x000FFFFFFFFFFFFF,
        0x0010000000000000,
        0x3FF0000000000000,
        0xBFF0000000000000,
        0x7FEFFFFFFFFFFFFF,
        0x7FF0000000000000,
        0xFFF0000000000000,
        0x7FF8000000000000,
    ]
    for dt, sp in (("float32", f32), ("float16", f16), ("bfloat16", bf), ("float64", f64)):
        pairs = [(a, b) for a in sp for b in sp]
        rows = [[a for a, _ in pairs], [b for _, b in pairs]]
        cases.append(make(f"specials on each side {dt}", [0, 10], [0, 1, 5, 7, 10], rows, dt))
    # w = 0x33800001, d = 0x3f7ffffe, v0 = 0x3f800001: the sum is almost half way. The times give
    # the weight 0x33800001 = 8388609·2^-47.
    v0 = value_of(0x3F800001, "float32")
    v1 = rnd(F(v0) + F(value_of(0x3F7FFFFE, "float32")), "float32")
    cases.append(
        make(
            "fma: nearly half a step",
            [0, 1 << 47],
            [8388609],
            [[0x3F800001], [bits_of(v1, "float32")]],
            "float32",
        )
    )
    cases.append(
        make(
            "w rounds to 1", [0, 1 << 40], [(1 << 40) - 1], floats(rng, 2, 5, "float32"), "float32"
        )
    )
    cases.append(
        make(
            "w rounds to 1 float64 keeps it",
            [0, 1 << 40],
            [(1 << 40) - 1],
            floats(rng, 2, 5, "float64"),
            "float64",
        )
    )
    big = 1 << 61
    cases.append(
        make(
            "widest stamps",
            [-2 * big + 1, 2 * big - 1],
            [-big, 0, big, 2 * big - 2],
            floats(rng, 2, 3, "float32"),
            "float32",
        )
    )
    e = 1_760_000_000_000_000_000
    cases.append(
        make(
            "epoch, steps of 1 ns",
            [e, e + 1, e + 3, e + 4],
            [e, e + 1, e + 2, e + 3, e + 4, e + 5],
            floats(rng, 4, 2, "float32"),
            "float32",
        )
    )
    for dt in FLOATS:
        for D in (1, 3, 7, 8, 14, 15, 32, 33, 65):
            s = sorted(rng.randrange(0, 1000) for _ in range(6))
            t = [rng.randrange(-50, 1050) for _ in range(7)]  # any order
            cases.append(
                make(f"{dt} D={D}, targets in any order", s, t, floats(rng, 6, D, dt, 10), dt)
            )
    for dt, out in (
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float64", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float16"),
        ("int32", "float32"),
        ("int64", "float64"),
        ("uint8", "float32"),
        ("uint64", "float32"),
    ):
        rows = (
            floats(rng, 4, 9, dt, 1e5)
            if dt in FORMATS
            else [[rng.randrange(1 << width(dt)) for _ in range(9)] for _ in range(4)]
        )
        cases.append(
            make(f"cast {dt} to {out}", [0, 10, 20, 31], [0, 5, 10, 13, 29, 31, 40], rows, dt, out)
        )
    # dense random lerps: a double rounding or an unfused product would show here
    for k in range(8):
        s = [0, 1_000_003 + k]
        t = sorted(rng.randrange(1, s[1]) for _ in range(12))
        cases.append(
            make(
                f"random lerps {k}",
                s,
                t,
                floats(rng, 2, 33, "float32", 2.0 ** rng.randrange(-30, 30)),
                "float32",
            )
        )
    write(
        folder,
        "linear.json",
        "linear: specials, casts, widths, the fma triple, stamps at both ends of the range",
        cases,
    )


def moves(folder):
    """Writes moves.json."""
    rng = random.Random(3)
    cases = []
    for dt in list(FORMATS) + list(INTS):
        w = width(dt)
        rows = [
            [rng.randrange(2) if dt == "bool" else rng.randrange(1 << w) for _ in range(3)]
            for _ in range(5)
        ]
        for mode in ("previous", "next", "nearest"):
            cases.append(
                make(
                    f"{mode} {dt}",
                    [0, 10, 10, 20, 35],
                    [-1, 0, 4, 5, 6, 10, 15, 16, 34, 35, 36],
                    rows,
                    dt,
                    mode=mode,
                    edge=rng.choice(EDGES[:3]),
                )
            )
    for mode in ("linear", "angle", "mean"):
        for dt in ("int16", "uint8"):
            rows = [[rng.randrange(1 << width(dt)) for _ in range(2)] for _ in range(4)]
            o = dict(before=6, after=6) if mode == "mean" else {}
            cases.append(
                make(
                    f"{mode} {dt} to float32",
                    [0, 10, 20, 30],
                    [0, 3, 10, 22, 30],
                    rows,
                    dt,
                    "float32",
                    mode=mode,
                    **o,
                )
            )
    write(
        folder,
        "moves.json",
        "previous, next, nearest move every type bit by bit; integers are computed with only into a float type",
        cases,
    )


def strides(folder):
    """Writes strides.json."""
    rng = random.Random(4)
    cases = []
    for dt in ("float32", "float16", "float64", "bfloat16", "int16"):
        mode = "nearest" if dt == "int16" else "linear"
        S, D = 5, 7
        for name, lay in {
            "expanded columns": (1, 0, 0, 0),
            "expanded rows": (0, 1, 0, 0),
            "every second column": (2 * D, 2, 0, 0),
            "every second column, odd start": (2 * D, 2, 1, 0),
            "transposed": (1, S, 0, 0),
            "rows backwards": (-D, 1, (S - 1) * D, 0),
            "columns backwards": (D, -1, D - 1, 0),
            "both backwards": (-D - 3, -1, (S - 1) * (D + 3) + D - 1, 0),
            "gap after each row": (D + 5, 1, 2, 0),
            "unaligned": (D, 1, 0, 1),
            "unaligned, strided": (3 * D, 3, 1, 3),
        }.items():
            rows = (
                floats(rng, S, D, dt, 4)
                if dt in FORMATS
                else [[rng.randrange(1 << 16) for _ in range(D)] for _ in range(S)]
            )
            cases.append(
                make(
                    f"{dt} {name}",
                    [0, 10, 20, 30, 40],
                    [0, 3, 15, 40, 27, 50, 20],
                    rows,
                    dt,
                    layout=lay,
                    mode=mode,
                )
            )
    write(
        folder,
        "strides.json",
        "strides 0, 2, negative, gaps and bases that are not aligned; memory outside the view is a5a5…",
        cases,
    )
