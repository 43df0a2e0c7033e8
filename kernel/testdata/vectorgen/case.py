"""Cases of stored plans, and the writer of files of cases."""

import json, os

from .numbers import h64, hexa, width
from .plan import Fail
from .values import run


def make(name, s, targets, rows, dt, out=None, layout=None, ulp=None, cols=None, **o):
    """Returns a case of a stored plan with its result. s are the timestamps; rows are the bits of
    the samples; layout is (row stride, column stride, base, skip); o are options of the rule.
    """
    o.setdefault("mode", "linear")
    o.setdefault("edge", "clamp")
    out = out or dt
    D = len(rows[0]) if rows else (cols or 1)
    case = {
        "name": name,
        "times": [str(x) for x in s],
        "targets": [str(x) for x in targets],
        "cols": D,
    }
    for k in ("mode", "edge"):
        case[k] = o[k]
    for k in ("max_gap", "before", "after"):
        if k in o:
            case[k] = str(o[k])
    for k in ("period", "lo"):
        if k in o:
            case[k] = h64(o[k])
    # memory layout: row stride, column stride, base (elements), skip (bytes)
    rs, cs, base, skip = layout or (D, 1, 0, 0)
    w = width(dt)
    offs = [base + i * rs + j * cs for i in range(len(rows)) for j in range(D)]
    size = max(offs, default=-1) + 1
    memory = [(0xA5A5A5A5A5A5A5A5 >> (64 - w))] * size  # what must not be read
    for i, r in enumerate(rows):
        for j, b in enumerate(r):
            memory[base + i * rs + j * cs] = b
    # with stride 0 rows share memory: the last one written is what all of them are
    rows = [[memory[base + i * rs + j * cs] for j in range(D)] for i in range(len(rows))]
    case["data"] = {
        "dtype": dt,
        "rows": len(rows),
        "cols": D,
        "row_stride": rs,
        "col_stride": cs,
        "base": base,
        "skip": skip,
        "memory": [hexa(b, w) for b in memory],
    }
    case["out"] = out
    del case["cols"]
    try:
        plan, want, valid = run({"cols": D}, s, targets, rows, dt, out, o)
    except Fail as f:
        case["error"] = {"class": f.cls, "phrase": f.phrase}
        return case
    case["plan"] = {
        "kind": [p[0] for p in plan],
        "left": [p[1] for p in plan],
        "right": [p[2] for p in plan],
        "weight": [h64(p[3]) for p in plan],
        "valid": [p[4] for p in plan],
    }
    case["want"] = [hexa(b, width(out)) for b in want]
    case["valid"] = valid
    if ulp:
        case["ulp"] = ulp
    return case


def write(folder, name, note, cases):
    """Writes a file of cases."""
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write('{"note": %s,\n"cases": [\n' % json.dumps(note))
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
        f.write("\n]}\n")
