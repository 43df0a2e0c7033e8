"""Fuse over batches: padded, ragged, shared and expanded times, any strides, every clock."""

import random
from fractions import Fraction as F

from .case import write
from .numbers import FLOATS, FORMATS, INTS, bits_of, width
from .ops import Series, fuse
from .plan import EDGES, MODES
from .tensor import Tensor, times

E = 1_760_000_000_000_000_000


def some(rng, dt, n, scale=2.0):
    """Returns the bits of n random numbers of type dt."""
    if dt not in FORMATS:
        return [
            rng.randrange(2) if dt == "bool" else rng.randrange(1 << width(dt)) for _ in range(n)
        ]
    return [bits_of(F(rng.uniform(-scale, scale)), dt) for _ in range(n)]


def data(rng, dt, *shape, **layout):
    """Returns a tensor of random numbers."""
    n = 1
    for d in shape:
        n *= d
    return Tensor(dt, shape, some(rng, dt, n), **layout)


def stamps(rng, n, base=0, step=100):
    """Returns n ascending timestamps at random distances, step on average."""
    return sorted(base + rng.randrange(0, step * max(n, 1)) for _ in range(n))


def aims(rng, n, s, shuffled=False):
    """Returns n random targets in and around timestamps s; a fifth of them hit one exactly."""
    lo, hi = (s[0], s[-1]) if s else (0, 100)
    t = [
        rng.choice(s) if s and rng.random() < 0.2 else rng.randrange(lo - 60, hi + 61)
        for _ in range(n)
    ]
    return t if shuffled else sorted(t)


def batches(folder):
    """Writes batches.json."""
    rng = random.Random(20)
    cases = []
    S, T, D, B = 7, 9, 5, 3
    per = [stamps(rng, S) for _ in range(B)]
    to = [aims(rng, T, p) for p in per]
    for dt in FLOATS + ["uint8", "int64"]:
        mode = "linear" if dt in FORMATS else "nearest"
        cases.append(
            fuse(
                f"{dt} dense",
                [Series(data(rng, dt, B, S, D), times(per), mode=mode)],
                times(to),
                dt,
            )
        )
    for mode in MODES:
        o = {"before": 60, "after": 61} if mode == "mean" else {}
        for edge in EDGES[:3]:
            cases.append(
                fuse(
                    f"{mode} {edge} batch",
                    [
                        Series(
                            data(rng, "float32", B, S, 4),
                            times(per),
                            mode=mode,
                            edge=edge,
                            max_gap=130,
                            **o,
                        )
                    ],
                    times(to),
                    "float32",
                )
            )
    x = data(rng, "float32", B, S, D)
    cases.append(fuse("times of all entries", [Series(x, times(per[0]))], times(to[0]), "float32"))
    cases.append(
        fuse(
            "times of all entries, expanded",
            [Series(x, times([per[0]] * B, stride=[0, 1]))],
            times([to[0]] * B, stride=[0, 1]),
            "float32",
        )
    )
    cases.append(fuse("targets of all entries", [Series(x, times(per))], times(to[1]), "float32"))
    cases.append(
        fuse(
            "targets in any order",
            [Series(x, times(per))],
            times([aims(rng, T, p, True) for p in per]),
            "float32",
        )
    )
    cases.append(
        fuse(
            "values of all entries, expanded",
            [Series(data(rng, "float32", B, S, D, stride=[0, D, 1]), times(per))],
            times(to),
            "float32",
        )
    )
    cases.append(fuse("padded", [Series(x, times(per), lengths=[S, 0, 3])], times(to), "float32"))
    cases.append(
        fuse(
            "padded, times of all entries",
            [Series(x, times(per[1]), lengths=[1, S - 1, 2], edge="mask")],
            times(to[1]),
            "float32",
        )
    )
    # ragged: empty entries, and rows that belong to none
    for mode, edge in (
        ("linear", "clamp"),
        ("nearest", "mask"),
        ("angle", "extrapolate"),
        ("slerp", "clamp"),
        ("mean", "clamp"),
    ):
        offsets = [2, 2, 9, 10, 16, 16]
        s = [0, 0] + [t for n in (7, 1, 6) for t in stamps(rng, n)] + [5]
        o = {"before": 60, "after": 61} if mode == "mean" else {}
        cases.append(
            fuse(
                f"ragged {mode} {edge}",
                [
                    Series(
                        data(rng, "float32", 17, 4),
                        times(s),
                        offsets=offsets,
                        mode=mode,
                        edge=edge,
                        **o,
                    )
                ],
                times([aims(rng, 6, []) for _ in range(5)]),
                "float32",
            )
        )
    # extents of 0 and 1
    for mode in ("linear", "nearest", "slerp"):
        for edge in ("clamp", "mask"):
            cases.append(
                fuse(
                    f"{mode} {edge} S=0",
                    [
                        Series(
                            Tensor("float32", [2, 0, 4], []), times([[], []]), mode=mode, edge=edge
                        )
                    ],
                    times([1, 2, 3]),
                    "float32",
                )
            )
            cases.append(
                fuse(
                    f"{mode} {edge} S=1",
                    [Series(data(rng, "float32", 2, 1, 4), times([7]), mode=mode, edge=edge)],
                    times([6, 7, 8]),
                    "float32",
                )
            )
    cases.append(
        fuse(
            "B=0",
            [Series(Tensor("float32", [0, 3, 2], []), times([1, 2, 3]))],
            times([1, 2]),
            "float32",
        )
    )
    cases.append(
        fuse("T=0", [Series(data(rng, "float32", 2, 3, 2), times([1, 2, 3]))], times([]), "float32")
    )
    cases.append(
        fuse(
            "D=0",
            [Series(Tensor("float32", [2, 3, 0], []), times([1, 2, 4]))],
            times([0, 3]),
            "float32",
        )
    )
    write(
        folder,
        "batches.json",
        "Fuse of one stream: dense, padded, ragged; shared and expanded times; extents of 0 and 1",
        cases,
    )


def layouts(folder):
    """Writes layouts.json."""
    rng = random.Random(21)
    cases = []
    S, T, D, B = 5, 6, 7, 2
    per = [stamps(rng, S) for _ in range(B)]
    to = [aims(rng, T, p) for p in per]
    for dt in ("float32", "bfloat16", "float64", "float16"):
        for name, lay in {
            "every second column": dict(stride=[S * 2 * D, 2 * D, 2], base=0),
            "every second column, odd start": dict(stride=[S * 2 * D, 2 * D, 2], base=1),
            "batch inside": dict(stride=[1, B * D, B]),
            "rows backwards": dict(stride=[S * D, -D, 1]),
            "columns backwards": dict(stride=[S * D, D, -1]),
            "batch backwards, gaps": dict(stride=[-S * (D + 3), D + 3, 1]),
            "expanded columns": dict(stride=[S, 1, 0]),
            "unaligned": dict(skip=1),
            "unaligned by 4": dict(skip=4),
        }.items():
            cases.append(
                fuse(
                    f"{dt} {name}",
                    [Series(data(rng, dt, B, S, D, **lay), times(per))],
                    times(to),
                    dt,
                )
            )
        for name, lay in {
            "out has gaps": dict(stride=[T * (D + 5), D + 5, 1]),
            "out every second column": dict(stride=[2 * T * D, 2 * D, 2]),
            "out batch inside": dict(stride=[1, B * D, B]),
            "out rows backwards": dict(stride=[T * D, -D, 1]),
            "out unaligned": dict(skip=3),
            "out base": dict(base=5),
        }.items():
            cases.append(
                fuse(
                    f"{dt} {name}",
                    [Series(data(rng, dt, B, S, D), times(per))],
                    times(to),
                    dt,
                    out_layout=lay,
                    valid_layout=dict(stride=[1, 2 * B, 2 * B * T]),
                )
            )
    for name, lay in {
        "times have gaps": dict(stride=[2 * S + 1, 2]),
        "times backwards in memory": dict(stride=[S, -1]),
        "times unaligned": dict(skip=3),
    }.items():
        cases.append(
            fuse(
                name,
                [Series(data(rng, "float32", B, S, D), times(per, **lay))],
                times(to),
                "float32",
            )
        )
        lay = dict(lay)
        if "stride" in lay:
            lay["stride"] = [lay["stride"][0] + 2 * (T - S), lay["stride"][1]]
        cases.append(
            fuse(
                name.replace("times", "targets"),
                [Series(data(rng, "float32", B, S, D), times(per))],
                times(to, **lay),
                "float32",
            )
        )
    # widths around those of vectors, as single streams and side by side
    for D in (1, 2, 3, 4, 7, 8, 13, 14, 15, 16, 31, 32, 33, 64, 65, 130):
        for dt in ("float32", "bfloat16"):
            cases.append(
                fuse(f"{dt} D={D}", [Series(data(rng, dt, B, S, D), times(per))], times(to), dt)
            )
    write(
        folder,
        "layouts.json",
        "Fuse with strides of every kind on values, times and results; memory outside the views is a5a5…",
        cases,
    )


def streams(folder):
    """Writes streams.json."""
    rng = random.Random(22)
    cases = []
    B, T = 3, 8
    to = [aims(rng, T, list(range(0, 800, 10))) for _ in range(B)]

    def one(D, dt="float32", kind="dense", **o):
        """Returns a random stream of D columns. kind is dense, ragged or padded."""
        n = rng.choice([1, 6, 13])
        if kind == "ragged":
            offsets = [0]
            for _ in range(B):
                offsets.append(offsets[-1] + rng.choice([0, 1, n]))
            s = [t for i in range(B) for t in stamps(rng, offsets[i + 1] - offsets[i])]
            return Series(data(rng, dt, offsets[-1], D), times(s), offsets=offsets, **o)
        lengths = [rng.randrange(n + 1) for _ in range(B)] if kind == "padded" else None
        return Series(
            data(rng, dt, B, n, D), times([stamps(rng, n) for _ in range(B)]), lengths=lengths, **o
        )

    cases.append(fuse("three streams", [one(12), one(5), one(3)], times(to), "float32"))
    cases.append(
        fuse(
            "three streams, bfloat16",
            [one(16, "bfloat16"), one(8, "bfloat16"), one(12, "bfloat16")],
            times(to),
            "bfloat16",
        )
    )
    cases.append(
        fuse(
            "odd widths, float16",
            [one(7, "float16"), one(1, "float16"), one(13, "float16")],
            times(to),
            "float16",
        )
    )
    cases.append(
        fuse(
            "modes, policies and kinds of batch",
            [
                one(3, kind="ragged", edge="mask"),
                one(4, kind="padded", mode="slerp"),
                one(2, mode="nearest", max_gap=40),
                one(1, kind="ragged", mode="angle", edge="extrapolate"),
                one(6, kind="padded", mode="mean", before=50, after=50),
                one(2, mode="previous"),
                one(2, mode="next", kind="ragged"),
            ],
            times(to),
            "float32",
        )
    )
    cases.append(
        fuse(
            "types to float32",
            [
                one(3, "float16"),
                one(4, "float64"),
                one(5, "bfloat16"),
                one(3, "uint8", mode="nearest"),
                one(2, "int32", mode="linear"),
                one(1, "bool", mode="previous"),
                one(2),
            ],
            times(to),
            "float32",
        )
    )
    cases.append(
        fuse(
            "types to float64",
            [one(3, "float16"), one(4, "float64"), one(2, "int64"), one(1, "uint32"), one(2)],
            times(to),
            "float64",
        )
    )
    cases.append(
        fuse(
            "33 streams",
            [one(1 + i % 3, kind=("dense", "ragged", "padded")[i % 3]) for i in range(33)],
            times(to),
            "float32",
        )
    )
    cases.append(
        fuse(
            "quaternions among other channels",
            [one(11, mode="slerp", quats=[[1, 2, 3, 4], [10, 6, 8, 7]])],
            times(to),
            "float32",
        )
    )
    shared = times(stamps(rng, 9))
    cases.append(
        fuse(
            "streams on one clock",
            [
                Series(data(rng, "float32", B, 9, 3), shared),
                Series(data(rng, "float16", B, 9, 2), shared, mode="nearest"),
            ],
            times(to[0]),
            "float32",
        )
    )
    # a bag of one result: streams side by side in a wider row
    cases.append(
        fuse(
            "into a wider row",
            [one(3), one(2)],
            times(to),
            "float32",
            out_layout=dict(stride=[T * 9, 9, 1], base=2),
        )
    )
    for sign in (False, True):
        q = [[rng.gauss(0, 1) * rng.choice([1, -1]) for _ in range(4)] for _ in range(2 * 9)]
        q[3] = [-x for x in q[2]]
        v = Tensor("float32", [2, 9, 4], [bits_of(F(x), "float32") for r in q for x in r])
        cases.append(
            fuse(
                "signs " + ("continuous" if sign else "as recorded"),
                [Series(v, times(list(range(0, 90, 10))), mode="slerp", continuous=sign)],
                times([-3, 0, 5, 10, 18, 25, 30, 31, 47, 66, 80, 99]),
                "float32",
            )
        )
    write(
        folder,
        "streams.json",
        "Fuse of several streams, each with its own kind of batch, mode, policy and type",
        cases,
    )


def clocks(folder):
    """ns beyond float64, seconds of both types, and the clock of the earlier RoboCache."""
    rng = random.Random(23)
    cases = []
    x = lambda *shape: data(rng, "float32", *shape)
    cases.append(
        fuse(
            "1.76e9 s, +0.1 s, +50 s",
            [Series(x(1, 3, 2), times([E, E + 10**8, E + 5 * 10**10]))],
            times(
                [E, E + 1, E + 5 * 10**7, E + 10**8, E + 10**8 + 1, E + 25 * 10**9, E + 5 * 10**10]
            ),
            "float32",
        )
    )
    cases.append(
        fuse(
            "x(t)=t is clamped on both sides",
            [Series(Tensor("float32", [1, 2, 1], [0, 0x3F800000]), times([0.0, 1.0], "float64"))],
            times([2.0, -1.0, 0.25], "float64"),
            "float32",
        )
    )
    for dt in ("float64", "float32"):
        s = sorted(rng.uniform(0, 3) for _ in range(9))
        t = sorted(rng.uniform(-0.3, 3.3) for _ in range(11)) + [s[4]]
        for mode in MODES:
            o = {"before": 300_000_000, "after": 300_000_000} if mode == "mean" else {}
            cases.append(
                fuse(
                    f"{dt} seconds {mode}",
                    [Series(x(1, 9, 4), times(s, dt), mode=mode, max_gap=400_000_000, **o)],
                    times(t, dt),
                    "float32",
                )
            )
    half = [0.0000000005, 0.0000000015, 0.0000000025, 0.1, 0.3, 1 / 3, 123456.789012345678]
    cases.append(
        fuse(
            "seconds round to even ns",
            [Series(x(1, 7, 1), times(half, "float64"))],
            times([0, 1, 2, 10**8, 3 * 10**8, 333333333, 123456789012346]),
            "float32",
        )
    )
    cases.append(
        fuse(
            "ns, and seconds of both types",
            [
                Series(x(1, 3, 1), times([0, 10**9, 2 * 10**9])),
                Series(x(1, 3, 1), times([0.0, 0.5, 2.0], "float32")),
            ],
            times([0.0, 0.25, 1.75, 2.0], "float64"),
            "float32",
        )
    )
    s = [0.0, 0.1, 0.2, 0.2, 0.2, 0.35, 0.5, 0.50001, 1.0]
    t = [-0.5, 0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.35, 0.425, 0.5, 0.500005, 0.75, 1.0, 1.5]
    for dt in ("float64", "float32"):
        for eps in (1e-8, 0.0):
            for mode in MODES[:-1]:
                for edge in EDGES[:3]:
                    cases.append(
                        fuse(
                            f"as given {dt} eps {eps} {mode} {edge}",
                            [
                                Series(
                                    x(1, 9, 4),
                                    times(s, dt),
                                    mode=mode,
                                    edge=edge,
                                    max_gap=200_000_000,
                                )
                            ],
                            times(t, dt),
                            "float32",
                            clock="as_given",
                            eps=eps,
                        )
                    )
    cases.append(
        fuse(
            "as given, equal stamps at both ends",
            [
                Series(x(1, 5, 2), times([1.0, 1.0, 2.0, 3.0, 3.0], "float64"), edge=e)
                for e in EDGES[:3]
            ],
            times([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0], "float64"),
            "float32",
            clock="as_given",
            eps=1e-8,
        )
    )
    cases.append(
        fuse(
            "as given, batch",
            [
                Series(
                    data(rng, "bfloat16", 2, 4, 3),
                    times([[0.0, 1.0, 2.0, 4.0], [1.0, 1.0, 2.0, 2.0]], "float32"),
                    lengths=[4, 3],
                )
            ],
            times([[0.0, 0.5, 1.0, 3.0, 4.0], [1.0, 1.5, 2.0, 2.5, 0.0]], "float64"),
            "bfloat16",
            clock="as_given",
            eps=1e-8,
        )
    )
    cases.append(
        fuse(
            "as given, one sample and none",
            [
                Series(x(1, 1, 2), times([1.0], "float64")),
                Series(Tensor("float32", [1, 0, 2], []), times([], "float64")),
            ],
            times([0.5, 1.0, 1.5], "float64"),
            "float32",
            clock="as_given",
            eps=1e-8,
        )
    )
    write(folder, "clocks.json", clocks.__doc__, cases)
