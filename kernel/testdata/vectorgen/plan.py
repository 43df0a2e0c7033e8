"""Plans: the samples and the weight of each target, by a linear search."""

MODES = ["linear", "previous", "next", "nearest", "slerp", "angle", "mean"]
EDGES = ["clamp", "mask", "extrapolate", "error"]


class Fail(Exception):
    def __init__(self, cls, phrase):
        self.cls, self.phrase = cls, phrase


def plan_row(s, t, o):
    """Returns the plan row (kind, left, right, weight, valid) of target t, for timestamps s and
    options o. Kinds are 0 zero, 1 copy, 2 blend and 3 window.
    """
    mode, edge, gap = o["mode"], o["edge"], o.get("max_gap", 0)
    le = [i for i, x in enumerate(s) if x <= t]
    k = le[-1] if le else -1
    if not s or k < 0 or (k == len(s) - 1 and s[k] != t):
        if edge == "error":
            raise Fail("misuse", "outside the source range")
        if edge == "mask" or not s:
            return (0, 0, 0, 0.0, 0)
        if edge == "extrapolate" and mode in ("linear", "angle"):
            at = [
                i for i in range(len(s)) if i + 1 == len(s) or s[i + 1] != s[i]
            ]  # each distinct stamp's last sample
            if len(at) > 1:
                a, b = at[:2] if k < 0 else at[-2:]
                return (2, a, b, float(t - s[a]) / float(s[b] - s[a]), 0)
        e = 0 if k < 0 else len(s) - 1
        return (1, e, e, 0.0, 0)
    hit = s[k] == t
    near = k if hit or t - s[k] <= s[k + 1] - t else k + 1
    length = None
    if mode == "mean":
        inside = [i for i, x in enumerate(s) if t - o["before"] <= x < t + o["after"]]
        if not inside:
            if edge == "error":
                raise Fail("malformed", "gap exceeds max_gap")
            return (0, 0, 0, 0.0, 0) if edge == "mask" else (1, near, near, 0.0, 0)
        row = (3, inside[0], inside[-1] + 1, 0.0)
        if not hit:
            length = s[k + 1] - s[k]
    elif hit:
        row = (1, k, k, 0.0)
    elif mode == "previous":
        row, length = (1, k, k, 0.0), t - s[k]
    elif mode == "next":
        row, length = (1, k + 1, k + 1, 0.0), s[k + 1] - t
    elif mode == "nearest":
        row, length = (1, near, near, 0.0), abs(t - s[near])
    else:
        row, length = (2, k, k + 1, float(t - s[k]) / float(s[k + 1] - s[k])), s[k + 1] - s[k]
    if gap and length is not None and length > gap:
        if edge == "error":
            raise Fail("malformed", "gap exceeds max_gap")
        return (0, 0, 0, 0.0, 0) if edge == "mask" else row + (0,)
    return row + (1,)
