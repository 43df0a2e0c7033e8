"""Compares frame positions of a LeRobot set with the reference in the data.

TestPeerFacts runs it.
"""

import json, os, sys

from robocache_bench.lerobot_set import Set


def placed(root):
    """Checks all positions of the reference and returns their number."""
    s = Set(root)
    with open(os.path.join(root, "oracle", "frames.json")) as f:
        oracle = json.load(f)
    n = 0
    for o in oracle:
        e, k = o["episode"], o["frame"]
        i = int(s.ends[e]) - s.lengths[e] + k
        assert s.files[s.file[i]].endswith(o["file"]) and s.number[i] == o["ordinal"], (
            o,
            s.files[s.file[i]],
            s.number[i],
        )
        n += 1
    assert (
        s.window(int(s.ends[0]) - 2, 4).tolist() == [int(s.ends[0]) - 2] + [int(s.ends[0]) - 1] * 3
    )
    return n


print("ok", placed(sys.argv[1]))
