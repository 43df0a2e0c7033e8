"""The shared functions of the peer arms on small cases that can be counted by hand. Run by TestPeerFacts."""
import json, os, sys, tempfile

import numpy as np

import peer
from peer_set import Set


def near(a, b):
    assert abs(a - b) < 1e-12, (a, b)


def order():
    # Two episodes of two samples, batches of two: 0 1 | 2 3 keeps to one episode a batch; 0 2 | 1 3 has two.
    low = peer.order_facts([[np.array([0, 1]), np.array([2, 3])]], [2, 2], 2)
    high = peer.order_facts([[np.array([0, 2]), np.array([1, 3])]], [2, 2], 2)
    near(low["shuffle_randomness_frac"], 0.5)
    near(high["shuffle_randomness_frac"], 1.0)
    near(low["neighbour_share"], 2 / 3)
    near(high["neighbour_share"], 0.0)
    # Of the 6 pairs, 2 lie in one episode: (2·1 + 4·2)/6 distinct episodes, half of it a sample.
    near(low["randomness_ideal"], 5 / 6)
    assert (low["coverage_min"], low["coverage_max"]) == (1, 1)
    assert low["order_sha256"] != high["order_sha256"]
    # SHA-256 of the numbers as little-endian int64, as the engine's arms hash them.
    assert low["order_sha256"] == "a1e03200f1f82ad2c1cec8795c271aaecf98f5aa2d151d2229ec5fa0c177cf77", low["order_sha256"]
    # An incomplete last batch counts for coverage, not for randomness.
    part = peer.order_facts([[np.array([0, 2]), np.array([1])]], [2, 2], 2)
    near(part["shuffle_randomness_frac"], 1.0)
    assert (part["coverage_min"], part["coverage_max"]) == (0, 1)
    # Doubled in one epoch, lost in the other: seen, though the sum over epochs would be even.
    two = peer.order_facts([[np.array([0, 0]), np.array([2, 3])], [np.array([1, 1]), np.array([2, 3])]], [2, 2], 2)
    assert (two["coverage_min"], two["coverage_max"]) == (0, 2)
    try:
        peer.order_facts([[np.array([4])]], [2, 2], 1)
    except ValueError:
        pass
    else:
        raise AssertionError("a sample outside the dataset passed")


def check(folder):
    rng = np.random.default_rng(0)
    right = rng.integers(0, 200, (4, 3, 8, 8)).astype(np.uint8)
    right[2] = right[1] + 1  # as near as neighbours come
    np.save(os.path.join(folder, "frames.npy"), right)
    # Row 1 with both neighbours, row 3 (the last of its episode) with the one before.
    with open(os.path.join(folder, "frames.json"), "w") as f:
        json.dump(dict(anchors=[1], ends=[4], slot={1: dict(own=1, before=0, after=2), 3: dict(own=3, before=2)}), f)

    def verdict(window, *frames):
        c = peer.Check(folder, window)
        for p in frames:
            c.keep(np.array([7, 1]), np.stack([p * 0, p]))
        v = c.verdict()
        return v["frames_checked"], v["wrong_frames"]

    assert verdict(0, right[1]) == (1, 0)
    assert verdict(0, right[1].astype(np.float32) / 255) == (1, 0)
    assert verdict(0, right[2]) == (1, 1)  # off by one: below the limit, but the neighbour is nearer
    speckled = right[1].copy()
    speckled[:, ::4] += 1
    assert verdict(0, speckled) == (1, 0)
    assert verdict(0, 255 - right[1]) == (1, 1)
    window = np.stack([right[1], right[2], right[3], right[3]])  # 4 frames from row 1: the last is clamped to row 3
    assert verdict(4, window) == (2, 0)
    window[3] = right[2]
    assert verdict(4, window) == (2, 1)


def placed(root):
    """Where frames lie, against the oracle that came with the data."""
    s = Set(root)
    with open(os.path.join(root, "oracle", "frames.json")) as f:
        oracle = json.load(f)
    n = 0
    for o in oracle:
        e, k = o["episode"], o["frame"]
        i = int(s.ends[e]) - s.lengths[e] + k
        assert s.files[s.file[i]].endswith(o["file"]) and s.ordinal[i] == o["ordinal"], (o, s.files[s.file[i]], s.ordinal[i])
        n += 1
    assert s.window(int(s.ends[0]) - 2, 4).tolist() == [int(s.ends[0]) - 2] + [int(s.ends[0]) - 1] * 3
    return n


if __name__ == "__main__":
    order()
    with tempfile.TemporaryDirectory() as d:
        check(d)
    print("ok", placed(sys.argv[1]) if len(sys.argv) > 1 else "")
