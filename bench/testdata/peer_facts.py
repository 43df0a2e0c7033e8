"""Where the frames of a LeRobot set lie, against the oracle that came with the data. Run by TestPeerFacts."""
import json, os, sys

from robocache_bench.lerobot_set import Set


def placed(root):
    """Where frames lie, against the oracle that came with the data."""
    s = Set(root)
    with open(os.path.join(root, "oracle", "frames.json")) as f:
        oracle = json.load(f)
    n = 0
    for o in oracle:
        e, k = o["episode"], o["frame"]
        i = int(s.ends[e]) - s.lengths[e] + k
        assert s.files[s.file[i]].endswith(o["file"]) and s.number[i] == o["ordinal"], (o, s.files[s.file[i]], s.number[i])
        n += 1
    assert s.window(int(s.ends[0]) - 2, 4).tolist() == [int(s.ends[0]) - 2] + [int(s.ends[0]) - 1] * 3
    return n


print("ok", placed(sys.argv[1]))
