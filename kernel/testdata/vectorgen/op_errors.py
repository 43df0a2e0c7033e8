"""Each error phrase of Fuse and FuseGrad. Class and phrase stand in place of a result."""

import copy, random
from fractions import Fraction as F

from .batches import data
from .case import write
from .numbers import bits_of, h64
from .ops import Epilogue, Norm, Series, fuse, grad
from .philox import Augment
from .tensor import Tensor, times


def errors(folder):
    rng = random.Random(40)
    cases = []
    s = lambda **o: Series(data(rng, "float32", 2, 3, 4), times([[0, 10, 20], [5, 6, 30]]), **o)
    base = fuse("base", [s(), s()], times([5, 6]), "float32")
    back = grad("base", s(), times([5, 6]), data(rng, "float32", 2, 2, 4))

    def case(name, cls, phrase, change, of=base):
        """Adds a copy of a valid case, changed by a function, with the expected error."""
        c = copy.deepcopy(of)
        for k in ("want", "valid", "counts", "slack"):
            c.pop(k, None)
        c.update(name=name, error={"class": cls, "phrase": phrase})
        change(c)
        cases.append(c)

    def put(c, i, **kw):
        """Changes fields of stream i."""
        c["series"][i].update(kw)

    T = lambda *a, **k: Tensor(*a, **k).json()
    ns = lambda v, **k: times(v, **k).json()
    mis = lambda name, phrase, change, of=base: case(name, "misuse", phrase, change, of)
    bad = lambda name, phrase, change, of=base: case(name, "malformed", phrase, change, of)
    mis(
        "times of another batch",
        "Batch size mismatch (batch",
        lambda c: put(c, 0, times=ns([[0, 10, 20]] * 3)),
    )
    mis(
        "a stream of another batch",
        "Batch size mismatch (batch",
        lambda c: put(c, 1, values=T("float32", [3, 3, 4], [0] * 36)),
    )
    mis(
        "times of one entry in a batch of two",
        "batch size mismatch",
        lambda c: put(c, 0, times=ns([[0, 10, 20]])),
    )
    mis(
        "targets of another batch",
        "Batch size mismatch (batch",
        lambda c: c.update(targets=ns([[5, 6]] * 3)),
    )
    mis(
        "lengths of another batch",
        "Batch size mismatch (batch",
        lambda c: put(c, 0, lengths=["1", "2", "3"]),
    )
    mis(
        "offsets of another batch",
        "Batch size mismatch (batch",
        lambda c: put(
            c,
            1,
            values=T("float32", [3, 4], [0] * 12),
            times=ns([0, 1, 2]),
            offsets=["0", "1", "2", "3"],
        ),
    )
    mis(
        "samples of another batch",
        "Batch size mismatch (batch",
        lambda c: put(c, 0, epilogue=Epilogue(augment=Augment(noise=1, samples=[1, 2, 3])).json()),
    )
    mis(
        "times of another length",
        "Source length mismatch (length",
        lambda c: put(c, 0, times=ns([0, 10])),
    )
    mis(
        "times of another length, two axes",
        "length mismatch",
        lambda c: put(c, 1, times=ns([[0, 10, 20, 30]] * 2)),
    )
    mis(
        "ragged times of another length",
        "Source length mismatch (length",
        lambda c: put(
            c, 0, values=T("float32", [3, 4], [0] * 12), times=ns([0, 1]), offsets=["0", "1", "3"]
        ),
    )
    mis(
        "statistics of other channels",
        "length mismatch",
        lambda c: put(c, 0, epilogue=Epilogue(norm=Norm("mean_std", [1, 2, 3], [1, 2, 3])).json()),
    )
    mis(
        "planes that do not fit",
        "length mismatch",
        lambda c: put(c, 0, epilogue=Epilogue(norm=Norm("mean_std", [1], [2]), plane=3).json()),
    )
    mis(
        "memory too short",
        "length mismatch",
        lambda c: c["series"][0]["values"].update(stride=[12, 5, 1]),
    )
    mis(
        "integers of two types",
        "dtypes must match",
        lambda c: (
            put(c, 0, values=T("int32", [2, 3, 4], [0] * 24), mode="previous"),
            c["out"].update(dtype="int64"),
        ),
    )
    mis(
        "integers computed",
        "unsupported dtype",
        lambda c: (
            put(c, 0, values=T("int32", [2, 3, 4], [0] * 24)),
            c["out"].update(dtype="int32"),
        ),
    )
    mis(
        "booleans computed",
        "unsupported dtype",
        lambda c: put(c, 0, values=T("bool", [2, 3, 4], [0] * 24)),
    )
    mis(
        "integers normalised",
        "unsupported dtype",
        lambda c: (
            c["out"].update(dtype="int8"),
            [put(c, i, mode="nearest", epilogue=Epilogue(unit=True).json()) for i in (0, 1)],
        ),
    )
    mis(
        "times of a type that is none",
        "unsupported dtype",
        lambda c: put(c, 0, times=T("int32", [3], [0, 1, 2])),
    )
    mis(
        "targets of a type that is none",
        "unsupported dtype",
        lambda c: c.update(targets=T("uint64", [2], [0, 1])),
    )
    case(
        "text",
        "unsupported",
        "unsupported dtype",
        lambda c: c["series"][0]["values"].update(dtype="string"),
    )
    mis(
        "out of another shape: rows",
        "out has wrong shape",
        lambda c: c["out"].update(shape=[2, 3, 8], stride=[24, 8, 1]),
    )
    mis(
        "out of another shape: columns",
        "out has wrong shape",
        lambda c: c["out"].update(shape=[2, 2, 7], stride=[14, 7, 1]),
    )
    mis(
        "out of another shape: axes",
        "out has wrong shape",
        lambda c: c["out"].update(shape=[4, 8], stride=[8, 1]),
    )
    mis(
        "valid of another shape",
        "out has wrong shape",
        lambda c: c.update(valid_out=T("uint8", [2, 2, 1])),
    )
    mis(
        "valid of another type",
        "unsupported dtype",
        lambda c: c.update(valid_out=T("float32", [2, 2, 2])),
    )
    mis("out overlaps itself", "out overlaps itself", lambda c: c["out"].update(stride=[16, 0, 1]))
    mis(
        "out overlaps itself: rows that reach into each other",
        "out overlaps itself",
        lambda c: c["out"].update(stride=[16, 7, 1]),
    )
    bad(
        "decreasing stamps",
        "timestamps must not decrease",
        lambda c: put(c, 1, times=ns([[0, 10, 20], [5, 4, 30]])),
    )
    bad(
        "decreasing stamps, ragged",
        "timestamps must not decrease",
        lambda c: put(
            c,
            1,
            values=T("float32", [4, 4], [0] * 16),
            times=ns([0, 3, 2, 1]),
            offsets=["0", "2", "4"],
        ),
    )
    bad(
        "decreasing seconds",
        "timestamps must not decrease",
        lambda c: put(c, 0, times=ns([0.0, 1.0, 0.5], dtype="float64")),
    )
    for dt in ("float64", "float32"):
        for x in (float("nan"), float("inf"), float("-inf")):
            bad(
                f"{dt} {x} among the stamps",
                "not finite",
                lambda c: put(c, 0, times=ns([0.0, 1.0, x], dtype=dt)),
            )
            bad(
                f"{dt} {x} among the targets",
                "not finite",
                lambda c: c.update(targets=ns([0.0, x], dtype=dt)),
            )
    bad(
        "NaN stamps are no order",
        "timestamps must not decrease",
        lambda c: put(c, 0, times=ns([0.0, float("nan"), 2.0], dtype="float64")),
    )
    bad("stamps out of range", "timestamp outside", lambda c: put(c, 0, times=ns([0, 1, 1 << 62])))
    bad(
        "seconds out of range",
        "timestamp outside",
        lambda c: put(c, 0, times=ns([0.0, 1.0, 4.7e9], dtype="float64")),
    )
    bad(
        "targets out of range",
        "target time outside",
        lambda c: c.update(targets=ns([-(1 << 62), 0])),
    )
    mis(
        "outside under error",
        "outside the source range",
        lambda c: (put(c, 1, edge="error"), c.update(targets=ns([6, 31]))),
    )
    mis(
        "no samples under error",
        "outside the source range",
        lambda c: put(
            c, 1, edge="error", values=T("float32", [2, 0, 4], []), times=T("int64", [2, 0], [])
        ),
    )
    bad("a gap under error", "gap exceeds max_gap", lambda c: put(c, 0, edge="error", max_gap="9"))
    bad(
        "an empty window under error",
        "gap exceeds max_gap",
        lambda c: put(c, 0, edge="error", mode="mean", before="0", after="1"),
    )
    bad("a length beyond the data", "length mismatch", lambda c: put(c, 0, lengths=["3", "4"]))
    bad("a negative length", "length mismatch", lambda c: put(c, 0, lengths=["3", "-1"]))
    for name, o in {
        "beyond the data": ["0", "2", "5"],
        "that decrease": ["0", "3", "2"],
        "that are negative": ["-1", "2", "3"],
    }.items():
        bad(
            "offsets " + name,
            "length mismatch",
            lambda c: put(
                c, 1, values=T("float32", [3, 4], [0] * 12), times=ns([0, 1, 2]), offsets=o
            ),
        )
    mis(
        "lengths and offsets",
        "lengths and offsets",
        lambda c: put(
            c,
            1,
            values=T("float32", [3, 4], [0] * 12),
            times=ns([0, 1, 2]),
            offsets=["0", "2", "3"],
            lengths=["1", "1"],
        ),
    )
    mis(
        "values without a batch",
        "values must have shape",
        lambda c: put(c, 0, values=T("float32", [3, 4], [0] * 12)),
    )
    mis(
        "times of three axes",
        "times must have shape",
        lambda c: put(c, 0, times=T("int64", [2, 3, 1], [0] * 6)),
    )
    mis(
        "targets of three axes",
        "targets must have shape",
        lambda c: c.update(targets=T("int64", [2, 3, 1], [0] * 6)),
    )
    mis(
        "three channels are no quaternion",
        "quaternions must have shape",
        lambda c: (
            put(c, 0, values=T("float32", [2, 3, 3], [0] * 18), mode="slerp"),
            c["out"].update(shape=[2, 2, 7], stride=[14, 7, 1]),
        ),
    )
    mis(
        "a channel that is none",
        "quaternion channel",
        lambda c: put(c, 0, mode="slerp", quats=[[0, 1, 2, 4]]),
    )
    mis(
        "a channel in two quaternions",
        "quaternion channel",
        lambda c: put(c, 0, mode="slerp", quats=[[0, 1, 2, 0]]),
    )
    mis("mean without a window", "mean needs a window", lambda c: put(c, 0, mode="mean"))
    mis("a negative gap", "max_gap", lambda c: put(c, 0, max_gap="-1"))
    for p in (-1.0, float("inf")):
        mis(f"period {p}", "invalid period", lambda c: put(c, 0, mode="angle", period=h64(p)))
    mis(
        "as given, in ns",
        "unsupported dtype",
        lambda c: c.update(clock="as_given", epsilon=h64(1e-8)),
    )
    secs = lambda c: (
        [put(c, i, times=ns([0.0, 1.0, 2.0], dtype="float64")) for i in (0, 1)],
        c.update(targets=ns([0.5, 1.0], dtype="float32"), clock="as_given", epsilon=h64(1e-8)),
    )
    mis(
        "as given, mean",
        "Invalid mode",
        lambda c: (secs(c), put(c, 0, mode="mean", before="5", after="5")),
    )
    mis(
        "as given, negative epsilon",
        "invalid epsilon",
        lambda c: (secs(c), c.update(epsilon=h64(-1.0))),
    )
    bad(
        "as given, decreasing",
        "timestamps must not decrease",
        lambda c: (secs(c), put(c, 1, times=ns([0.0, 2.0, 1.0], dtype="float32"))),
    )
    bad(
        "as given, NaN",
        "not finite",
        lambda c: (secs(c), put(c, 1, times=ns([0.0, float("nan"), 1.0], dtype="float32"))),
    )
    bad(
        "as given, NaN among the targets",
        "not finite",
        lambda c: (secs(c), c.update(targets=ns([float("nan"), 1.0], dtype="float64"))),
    )
    mis(
        "as given, outside under error",
        "outside the source range",
        lambda c: (
            secs(c),
            put(c, 1, edge="error"),
            c.update(targets=ns([1.0, 2.5], dtype="float64")),
        ),
    )
    mis(
        "clip backwards",
        "invalid clip",
        lambda c: put(c, 0, epilogue=Epilogue(clip=(1, -1)).json()),
    )
    mis(
        "dropout above 1",
        "invalid dropout",
        lambda c: put(c, 0, epilogue=Epilogue(augment=Augment(dropout=1.5)).json()),
    )
    mis(
        "negative noise",
        "invalid noise",
        lambda c: put(c, 0, epilogue=Epilogue(augment=Augment(noise=-1)).json()),
    )
    mis(
        "scale backwards",
        "invalid scale",
        lambda c: put(c, 0, epilogue=Epilogue(augment=Augment(lo=2, hi=1)).json()),
    )
    mis("no stream", "no stream", lambda c: c.update(series=[]))
    mis(
        "gradient of another shape",
        "out has wrong shape",
        lambda c: c.update(gradient=T("float32", [2, 2, 3], [0] * 12)),
        back,
    )
    mis(
        "gradient to another shape",
        "out has wrong shape",
        lambda c: c["out"].update(shape=[2, 2, 4], stride=[8, 4, 1]),
        back,
    )
    mis("gradient to integers", "unsupported dtype", lambda c: c["out"].update(dtype="int32"), back)
    case(
        "gradient of integers",
        "unsupported",
        "unsupported dtype",
        lambda c: put(c, 0, values=T("int32", [2, 3, 4], [0] * 24), mode="nearest"),
        back,
    )
    case("gradient of slerp", "unsupported", "no gradient", lambda c: put(c, 0, mode="slerp"), back)
    case(
        "gradient through an epilogue",
        "unsupported",
        "no gradient",
        lambda c: put(c, 0, epilogue=Epilogue(unit=True).json()),
        back,
    )
    bad(
        "gradient, decreasing stamps",
        "timestamps must not decrease",
        lambda c: put(c, 0, times=ns([3, 2, 1])),
        back,
    )
    mis(
        "gradient, targets of another batch",
        "Batch size mismatch (batch",
        lambda c: c.update(targets=ns([[5, 6]] * 3)),
        back,
    )
    mis(
        "gradient, times of another length",
        "Source length mismatch (length",
        lambda c: put(c, 0, times=ns([5, 6])),
        back,
    )
    mis(
        "gradient overlaps itself",
        "out overlaps itself",
        lambda c: c["out"].update(stride=[12, 0, 1]),
        back,
    )
    write(folder, "errors.json", errors.__doc__, cases)
