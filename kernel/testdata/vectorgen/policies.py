"""Each mode under each edge policy."""

import random

from .case import make, write
from .numbers import floats
from .plan import EDGES, MODES


def policies(folder):
    """Writes policies.json: each mode and edge policy with targets at each of these places."""
    rng = random.Random(1)
    s = [100, 200, 200, 300, 350, 451]
    places = {
        "before": 40,
        "exact first": 100,
        "inside": 130,
        "tie": 150,
        "equal stamps": 200,
        "left of equal": 199,
        "exact last": 451,
        "after": 500,
        "gap": 400,
        "gap exact": 350,
        "near end": 450,
    }
    cases = []
    for mode in MODES:
        rows = floats(rng, len(s), 4, "float32", 3)
        for edge in EDGES:
            for gap in {0, 50, 49, 100, 99, 101} if mode != "mean" else {0, 101, 100}:
                o = dict(mode=mode, edge=edge)
                if gap:
                    o["max_gap"] = gap
                if mode == "mean":
                    o.update(before=30, after=31)
                ulp = 1 if mode == "slerp" else None
                if edge == "error":
                    for n, t in places.items():
                        cases.append(
                            make(
                                f"{mode} {edge} gap {gap} {n}",
                                s,
                                [t],
                                rows,
                                "float32",
                                ulp=ulp,
                                **o,
                            )
                        )
                else:
                    cases.append(
                        make(
                            f"{mode} {edge} gap {gap}",
                            s,
                            list(places.values()),
                            rows,
                            "float32",
                            ulp=ulp,
                            **o,
                        )
                    )
    # S = 0, 1, 2; all stamps equal
    for mode in MODES:
        for edge in EDGES[:3]:
            for src in ([], [7], [7, 7], [7, 9]):
                o = dict(before=1, after=2) if mode == "mean" else {}
                cases.append(
                    make(
                        f"{mode} {edge} S={len(src)} {src}",
                        src,
                        [6, 7, 8, 9, 10],
                        floats(rng, len(src), 4, "float32"),
                        "float32",
                        cols=4,
                        mode=mode,
                        edge=edge,
                        ulp=1 if mode == "slerp" else None,
                        **o,
                    )
                )
    cases.append(make("no targets", [1, 2], [], floats(rng, 2, 3, "float32"), "float32"))
    cases.append(make("error edge, no samples", [], [1], [], "float32", cols=2, edge="error"))
    # equal stamps at the start and at the end, extrapolated
    for s in ([5, 5, 9], [5, 9, 9], [5, 5, 5, 9, 9, 12, 12], [5, 9, 12, 12, 12]):
        for mode in ("linear", "angle", "previous", "nearest"):
            cases.append(
                make(
                    f"{mode} extrapolate {s}",
                    s,
                    [1, 4, 5, 6, 9, 11, 12, 13, 40],
                    floats(rng, len(s), 1, "float32"),
                    "float32",
                    mode=mode,
                    edge="extrapolate",
                )
            )
    write(
        folder,
        "policies.json",
        "each mode under each edge policy: before, exact, inside, tie, after, gaps; S = 0, 1, 2; equal stamps",
        cases,
    )
