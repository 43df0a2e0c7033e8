"""The RoboCache runners of `robocache-bench ops`, and the reference."""

import numpy as np
from .ops import KINDS, runner


def our_call(row, x, backend=None):
    """Returns a call of RoboCache as users write it. Each call writes into the same output."""
    import robocache as rc

    wants_torch = (
        row.get("dtype") == "bfloat16" or x.device != "cpu" or row.get("out") == "bfloat16"
    )
    try:
        import torch
    except ImportError:
        if wants_torch:
            raise
        torch = None
    get = x.torch if torch else x.__getitem__
    if row["kind"] == "voxelize":
        cells = row["grid"][0] * row["grid"][1] * row["grid"][2]
        how = dict(
            grid_min=tuple(row["min"]),
            voxel_size=tuple(row["size"]),
            grid_size=tuple(row["grid"]),
            mode=row["mode"],
            layout=row["layout"],
            backend=backend,
        )
        if row["layout"] == "sparse" and x.device != "cpu":
            how["capacity"] = min(row["N"], cells)
        points, features = get("points"), get("features") if "features" in x else None
        return lambda: rc.voxelize(points, features, **how)
    n = len(row["streams"])
    parts = [
        (
            get(f"values{i}"),
            get(f"times{i}"),
            dict(offsets=get(f"offsets{i}")) if row.get("ragged") else {},
        )
        for i in range(n)
    ]
    how, at = dict(mode=row["mode"], backend=backend), 0
    for s, (_, _, own) in zip(row["streams"], parts):
        if row.get("norm"):
            own["normalize"] = dict(
                mean=x["mean"][at : at + s["D"]].tolist(),
                std=(x["std"][at : at + s["D"]] + 1e-8).tolist(),
            )
        at += s["D"]
    if torch:
        out = torch.empty(row["B"], row["T"], at, dtype=getattr(torch, row["out"]), device=x.device)
    else:
        out = np.empty((row["B"], row["T"], at), row["out"])
    targets = get("targets")
    v, t, own = parts[0]
    call = (
        (lambda: rc.resample(v, t, targets, out=out, **how, **own))
        if n == 1
        else lambda: rc.fuse(parts, targets, out=out, **how)
    )
    return reuse_prepared(call, (parts, targets, out))


def reuse_prepared(call, held):
    """Returns the prepared kernel of a call.

    It leaves out the checks in Python before the kernel; the row `call` measures those.
    """
    from robocache._tensors.prepared import Prepared

    run, made = Prepared.run, []
    Prepared.run = lambda op, *addresses: made.append((op, addresses)) or run(op, *addresses)
    try:
        out = call()
    finally:
        Prepared.run = run
    if not made:  # a cached plan does not use Prepared.run
        return call
    op, addresses = made[-1]
    return lambda held=held: op.run(*addresses) or out


@runner(
    "robocache",
    KINDS,
    "resample and fuse prepared once, voxelize as it is called; on a GPU in a CUDA graph",
    role="ours",
)
def ours(row, x):
    return our_call(row, x)


@runner("reference", KINDS, "pure Go, one thread", device=("cpu",), role="named")
def reference(row, x):
    return our_call(row, x, "reference")


def truth_of(row, x):
    """Returns the result of the reference.

    For a GPU it uses kernel/cpu instead, which is faster and has the same bits as the reference
    (kernel/conform).
    """
    return our_call(
        row, x if x.device == "cpu" else x.again("cpu"), "reference" if x.device == "cpu" else "cpu"
    )()
