"""The modes that compute in float64."""

import math, random
from fractions import Fraction as F

from .case import make, write
from .numbers import FLOATS, FORMATS, bits_of, floats, width


def slerp(folder):
    """Writes slerp.json."""
    rng = random.Random(5)
    cases = []

    def quat():
        """Returns a random unit quaternion."""
        q = [rng.gauss(0, 1) for _ in range(4)]
        n = math.sqrt(sum(x * x for x in q))
        return [x / n for x in q]

    s, t = [0, 1000], [0, 1, 250, 333, 500, 999, 1000]
    special = {
        "equal": ([1, 0, 0, 0], [1, 0, 0, 0]),
        "opposite signs": ([0.5, 0.5, 0.5, 0.5], [-0.5, -0.5, -0.5, -0.5]),
        "90 degrees, dot 0": ([1, 0, 0, 0], [0, 1, 0, 0]),
        "unnormalised": ([3, 0, 0, 0], [0, 0, 5, 5]),
        "zero": ([0, 0, 0, 0], [1, 0, 0, 0]),
        "nearly equal": ([1, 0, 0, 0], [1, 2.0**-22, 0, 0]),
        "180 degrees": ([0.70703125, 0.70703125, 0, 0], [0.70703125, -0.70703125, 0, 0]),
        "NaN": ([1, 0, 0, 0], [math.nan, 0, 0, 1]),
        "Inf": ([1, 0, 0, math.inf], [1, 0, 0, 0]),
    }
    for dt in FLOATS:
        for n, (a, b) in special.items():
            rows = [
                [
                    0x7FC00000
                    if x != x and dt == "float32"
                    else (
                        0x7FF8 << 48
                        if x != x and dt == "float64"
                        else 0x7FC0
                        if x != x and dt == "bfloat16"
                        else 0x7E00
                        if x != x
                        else bits_of(float(x), dt)
                    )
                    for x in q
                ]
                for q in (a, b)
            ]
            cases.append(make(f"{dt} {n}", s, t, rows, dt, mode="slerp", ulp=1))
        rows = [[bits_of(F(x), dt) for _ in range(2) for x in quat()] for _ in range(6)]
        cases.append(
            make(
                f"{dt} two quaternions",
                [0, 100, 200, 200, 300, 420],
                [-5, 0, 50, 101, 200, 250, 299, 300, 419, 420, 500],
                rows,
                dt,
                mode="slerp",
                ulp=1,
            )
        )
    write(
        folder,
        "slerp.json",
        "quaternions: opposite signs, dot 0, equal, 180 degrees, zero and non-finite norms",
        cases,
    )


def angle(folder):
    """Writes angle.json."""
    rng = random.Random(6)
    cases = []
    pi = math.pi
    s, t = [0, 1000], [-10, 0, 1, 250, 500, 750, 999, 1000, 1100]
    pairs = [
        (3, -3),
        (-3, 3),
        (pi, -pi),
        (0, pi),
        (0, -pi),
        (pi - 1e-3, -pi + 1e-3),
        (10, -10),
        (100, 0.5),
        (0, 0),
        (-0.0, 0.0),
        (1e-40, -1e-40),
        (3.1415925, 3.1415927),
    ]
    for dt in FLOATS:
        rows = [
            [bits_of(float(a), dt) for a, _ in pairs],
            [bits_of(float(b), dt) for _, b in pairs],
        ]
        for edge in ("clamp", "extrapolate"):
            cases.append(make(f"{dt} 2pi {edge}", s, t, rows, dt, mode="angle", edge=edge))
        cases.append(make(f"{dt} from 0", s, t, rows, dt, mode="angle", lo=0.0))
        deg = [[bits_of(F(rng.uniform(-400, 400)), dt) for _ in range(9)] for _ in range(2)]
        cases.append(make(f"{dt} degrees", s, t, deg, dt, mode="angle", period=360.0))
    rows = [
        [bits_of(x, "float32") for x in (math.inf, 1.0, -90.0)],
        [bits_of(x, "float32") for x in (1.0, math.inf, 90.0)],
    ]
    cases.append(
        make("not finite; half a period", s, t, rows, "float32", mode="angle", period=180.0)
    )
    write(
        folder,
        "angle.json",
        "angles across the seam, half a period apart, other periods and ranges",
        cases,
    )


def mean(folder):
    """Writes mean.json."""
    rng = random.Random(7)
    cases = []
    s = [i * 10 + rng.randrange(3) for i in range(40)]
    for dt in FLOATS + ["int16", "uint8"]:
        rows = (
            floats(rng, 40, 3, dt, 100)
            if dt in FORMATS
            else [[rng.randrange(1 << width(dt)) for _ in range(3)] for _ in range(40)]
        )
        for b, a in ((10, 10), (25, 26), (0, 1), (1, 0), (200, 200), (3, 3)):
            cases.append(
                make(
                    f"mean {dt} [-{b}, {a})",
                    s,
                    [-20, 0, 5, 20, 33, 100, 101, 102, 205, 390, 391, 392, 450],
                    rows,
                    dt,
                    dt if dt in FORMATS else "float32",
                    mode="mean",
                    before=b,
                    after=a,
                )
            )
    write(
        folder,
        "mean.json",
        "mean over [t-before, t+after): full, one-sample and empty windows, exact hits included",
        cases,
    )
