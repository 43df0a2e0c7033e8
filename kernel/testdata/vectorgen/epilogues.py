"""Normalise, clip, augment, cast; gradients."""

import random
from fractions import Fraction as F

from .batches import aims, data, stamps
from .case import write
from .numbers import FLOATS, FORMATS, INTS, bits_of
from .ops import Epilogue, Norm, Series, fuse, grad
from .philox import Augment
from .tensor import Tensor, times

SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    127.0,
    127.5,
    128.0,
    -128.5,
    -129.0,
    255.0,
    255.9,
    256.0,
    65504.0,
    65519.0,
    65520.0,
    1e10,
    -1e10,
    2.0**31,
    2.0**63,
    -(2.0**63),
    2.0**64,
    3.3e38,
    3.4e38,
    1e-42,
    float("inf"),
    float("-inf"),
]


def epilogues(folder):
    """Writes epilogues.json."""
    rng = random.Random(30)
    cases = []
    B, S, T = 2, 6, 7
    per = [stamps(rng, S) for _ in range(B)]
    to = times([aims(rng, T, p) for p in per])

    def norm(n, kind, constant=True):
        """Returns random statistics of n channels. One channel is constant unless constant is
        false.
        """
        b = [rng.uniform(0.1, 3) for _ in range(n)]
        if constant and n > 1:
            b[1] = 0
        return Norm(kind, [rng.uniform(-2, 2) for _ in range(n)], b)

    for kind in ("mean_std", "min_max"):
        for dt, out in (
            ("float32", "float32"),
            ("float32", "bfloat16"),
            ("float32", "float16"),
            ("bfloat16", "bfloat16"),
            ("float16", "float32"),
            ("float64", "float64"),
            ("float64", "float32"),
            ("uint8", "float32"),
            ("int64", "float64"),
            ("bool", "float32"),
        ):
            mode = "nearest" if dt == "bool" else "linear"
            cases.append(
                fuse(
                    f"{kind} {dt} to {out}",
                    [
                        Series(
                            data(rng, dt, B, S, 6),
                            times(per),
                            mode=mode,
                            edge=e,
                            epilogue=Epilogue(norm=norm(6, kind)),
                        )
                        for e in ("clamp", "mask")
                    ],
                    to,
                    out,
                )
            )
        for n, plane in ((3, 1), (3, 4), (2, 6), (1, 1), (12, 0), (1, 12)):
            cases.append(
                fuse(
                    f"{kind} of {n} channels, planes of {plane}",
                    [
                        Series(
                            data(rng, "float32", B, S, 12),
                            times(per),
                            epilogue=Epilogue(norm=norm(n, kind), plane=plane),
                        )
                    ],
                    to,
                    "float32",
                )
            )
        for mode in ("angle", "slerp", "mean", "previous"):
            o = {"before": 60, "after": 61} if mode == "mean" else {}
            cases.append(
                fuse(
                    f"{kind} after {mode}",
                    [
                        Series(
                            data(rng, "float32", B, S, 4),
                            times(per),
                            mode=mode,
                            epilogue=Epilogue(norm=norm(4, kind, False)),
                            **o,
                        )
                    ],
                    to,
                    "float32",
                )
            )
        cases.append(
            fuse(
                f"{kind} of quaternions among other channels",
                [
                    Series(
                        data(rng, "float32", B, S, 6),
                        times(per),
                        mode="slerp",
                        quats=[[1, 2, 3, 5]],
                        epilogue=Epilogue(norm=norm(6, kind, False)),
                    )
                ],
                to,
                "float32",
            )
        )
    for out in FLOATS:
        cases.append(
            fuse(
                f"pictures to {out}",
                [
                    Series(
                        Tensor("uint8", [1, 1, 256], list(range(256))),
                        times([0]),
                        mode="nearest",
                        epilogue=Epilogue(unit=True),
                    )
                ],
                times([0]),
                out,
            )
        )
        cases.append(
            fuse(
                f"pictures, blended, normalised, to {out}",
                [
                    Series(
                        data(rng, "uint8", B, S, 12),
                        times(per),
                        epilogue=Epilogue(unit=True, norm=norm(3, "mean_std", False), plane=4),
                    )
                ],
                to,
                out,
            )
        )
        cases.append(
            fuse(
                f"clip to {out}",
                [
                    Series(
                        data(rng, "float32", B, S, 9),
                        times(per),
                        epilogue=Epilogue(norm=norm(9, "min_max"), clip=(-0.5, 0.75)),
                    )
                ],
                to,
                out,
            )
        )
    nan = {"float32": 0x7FC00000, "float64": 0x7FF8 << 48}
    for dt in ("float32", "float64"):
        row = [bits_of(x, dt) for x in SPECIALS] + [nan[dt]]
        v = lambda: Tensor(dt, [1, 1, len(row)], row)
        for out in FLOATS + list(INTS)[1:]:
            cases.append(fuse(f"cast {dt} to {out}", [Series(v(), times([0]))], times([0, 1]), out))
        for out in FLOATS:
            cases.append(
                fuse(
                    f"clip of specials, {dt} to {out}",
                    [Series(v(), times([0]), epilogue=Epilogue(clip=(-1, 1e9)))],
                    times([0]),
                    out,
                )
            )
            cases.append(
                fuse(
                    f"norm of specials, {dt} to {out}",
                    [Series(v(), times([0]), epilogue=Epilogue(norm=Norm("mean_std", [1], [0.5])))],
                    times([0]),
                    out,
                )
            )
    for dt in list(INTS):
        v = data(rng, dt, 1, 4, 9)
        for out in FLOATS:
            cases.append(
                fuse(
                    f"cast {dt} to {out}",
                    [Series(v, times([0, 1, 2, 3]), mode="previous")],
                    times([0, 1, 2, 3]),
                    out,
                )
            )
    write(
        folder,
        "epilogues.json",
        "x/255, statistics by channel and plane, clip, and casts to every type, with the counts of what overflowed",
        cases,
    )


def augments(folder):
    """Seeded augmentation: scale and dropout to the bit, noise within the case's slack."""
    rng = random.Random(31)
    cases = []
    B, S, T = 3, 6, 8
    per = [stamps(rng, S) for _ in range(B)]
    to = times([aims(rng, T, p) for p in per])
    big = (1 << 63) + 12345

    def case(name, dt="float32", out=None, D=7, batch=True, **a):
        """Adds a case with this augmentation."""
        e = Epilogue(augment=Augment(**a))
        cases.append(
            fuse(
                name,
                [Series(data(rng, dt, B, S, D), times(per), edge="mask", epilogue=e)],
                to,
                out or dt,
            )
        )

    for dt in FLOATS:
        case(f"scale {dt}", dt, seed=1, lo=0.5, hi=1.5)
        case(f"dropout {dt}", dt, seed=2, dropout=0.4)
        case(f"noise {dt}", dt, seed=3, noise=0.1)
    case(
        "all three, samples named",
        seed=big,
        epoch=big + 7,
        op=9,
        lo=0.9,
        hi=1.1,
        dropout=0.2,
        noise=0.05,
        samples=[5, (1 << 40) + 1, 2],
    )
    case(
        "all three, cast",
        "float32",
        "bfloat16",
        seed=7,
        epoch=2,
        op=1,
        lo=0.9,
        hi=1.1,
        dropout=0.2,
        noise=0.05,
    )
    case("scale of one value", seed=4, lo=2, hi=2)
    case("dropout of all", seed=4, dropout=1)
    case("other epoch", seed=1, epoch=1, lo=0.5, hi=1.5)
    case("other op", seed=1, op=1, lo=0.5, hi=1.5)
    case("uint8 to float32", "uint8", "float32", seed=6, lo=0.5, hi=1, dropout=0.1)
    e = Epilogue(
        norm=Norm("mean_std", [0.5], [2]), clip=(-0.25, 0.25), augment=Augment(seed=8, lo=3, hi=4)
    )
    cases.append(
        fuse(
            "after normalising and clipping",
            [Series(data(rng, "float32", B, S, 3), times(per), epilogue=e)],
            to,
            "float32",
        )
    )
    long = Epilogue(augment=Augment(seed=9, noise=1, samples=[77]))
    cases.append(
        fuse(
            "noise over a long row",
            [Series(Tensor("float32", [1, 1, 150], [0] * 150), times([0]), epilogue=long)],
            times([0, 1]),
            "float32",
        )
    )
    write(folder, "augments.json", augments.__doc__, cases)


def gradients(folder):
    """FuseGrad: the gradient of the values from that of the result."""
    rng = random.Random(32)
    cases = []
    B, S, T, D = 2, 6, 11, 5
    per = [stamps(rng, S) for _ in range(B)]
    up = times([aims(rng, T, p) for p in per])
    for dt in FLOATS:
        cases.append(
            grad(f"{dt}", Series(data(rng, dt, B, S, D), times(per)), up, data(rng, dt, B, T, D))
        )
    s = lambda **o: Series(data(rng, "float32", B, S, D), times(per), **o)
    g = lambda **lay: data(rng, "float32", B, T, D, **lay)
    for edge in ("mask", "extrapolate"):
        cases.append(grad(f"{edge}", s(edge=edge, max_gap=120), up, g()))
    cases.append(
        grad("targets in any order", s(), times([aims(rng, T, p, True) for p in per]), g())
    )
    cases.append(
        grad("many targets in one interval", s(), times([per[0][2] + i for i in range(T)]), g())
    )
    cases.append(grad("every target the same", s(), times([per[0][3]] * T), g()))
    cases.append(grad("padded", s(lengths=[2, 0]), up, g()))
    cases.append(
        grad(
            "ragged",
            Series(
                data(rng, "float32", 9, D),
                times([0] + stamps(rng, 5) + stamps(rng, 2) + [3]),
                offsets=[1, 6, 8],
            ),
            up,
            g(),
        )
    )
    for mode in ("previous", "next", "nearest"):
        cases.append(grad(mode, s(mode=mode), up, g()))
    cases.append(grad("gradient expanded", s(), up, g(stride=[0, 0, 0])))
    cases.append(
        grad(
            "gradient transposed, result with gaps",
            s(),
            up,
            g(stride=[1, B * D, B]),
            grad_layout=dict(stride=[S * (D + 2), D + 2, 1]),
        )
    )
    cases.append(
        grad("bfloat16 gradient of float32 values", s(), up, data(rng, "bfloat16", B, T, D))
    )
    cases.append(grad("float32 gradient to float16", s(), up, g(), dtype="float16"))
    cases.append(
        grad(
            "seconds",
            Series(data(rng, "float64", 1, 4, 3), times([0.0, 0.1, 0.2, 0.5], "float64")),
            times([0.0, 0.05, 0.1, 0.35, 0.5, 0.6], "float64"),
            data(rng, "float64", 1, 6, 3),
        )
    )
    cases.append(
        grad(
            "as given",
            Series(data(rng, "float32", 1, 4, 3), times([0.0, 0.1, 0.2, 0.5], "float32")),
            times([0.0, 0.05, 0.1, 0.35, 0.5, 0.6], "float32"),
            data(rng, "float32", 1, 6, 3),
            clock="as_given",
            eps=1e-8,
        )
    )
    cases.append(
        grad(
            "S=0",
            Series(Tensor("float32", [1, 0, 2], []), times([])),
            times([1, 2]),
            data(rng, "float32", 1, 2, 2),
        )
    )
    cases.append(
        grad(
            "T=0",
            Series(data(rng, "float32", 1, 3, 2), times([1, 2, 3])),
            times([]),
            Tensor("float32", [1, 0, 2], []),
        )
    )
    for D in (1, 8, 33, 65):
        cases.append(
            grad(
                f"D={D}",
                Series(data(rng, "float32", B, S, D), times(per)),
                up,
                data(rng, "float32", B, T, D),
            )
        )
    write(folder, "gradients.json", gradients.__doc__, cases)
