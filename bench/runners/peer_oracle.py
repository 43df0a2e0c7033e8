"""Frames to compare with: python peer_oracle.py ROOT OUT [--count 16] [--window 8] [--seed 0]

Chooses frames by seed, takes them from a sequential decode of the whole file by PyAV, counted from its start, and writes them with their
neighbours: OUT/frames.npy (RGB, CHW) and OUT/frames.json. Frames that hardly differ from a neighbour are passed over: a frame of them
could not tell an off-by-one."""
import argparse, json, os, random

import av
import numpy as np

from peer_set import Set

LEAST = 0.5  # mean difference from a neighbour, of 255


def wanted_rows(s, anchors, window):
    """Every row that an anchor's window begins and ends with."""
    out = set()
    for i in anchors:
        w = s.window(i, window)
        out |= {int(w[0]), int(w[-1])}
    return out


def neighbours(s, i):
    """Row i and those before and after it in its file."""
    out = {"own": i}
    for name, j in (("before", i - 1), ("after", i + 1)):
        if 0 <= j < len(s.file) and s.episode(j) == s.episode(i):
            out[name] = j
    return out


def decode(s, rows):
    """row → frame, from the start of each file on."""
    out = {}
    for f, path in enumerate(s.files):
        at = {int(s.ordinal[r]): r for r in rows if s.file[r] == f}
        if not at:
            continue
        with av.open(path) as c:
            c.streams.video[0].thread_count = 1
            for k, frame in enumerate(c.decode(video=0)):
                if k in at:
                    out[at[k]] = frame.to_ndarray(format="rgb24").transpose(2, 0, 1).copy()
                if k >= max(at):
                    break
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("out")
    p.add_argument("--count", type=int, default=16)
    p.add_argument("--window", type=int, default=8)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    s = Set(a.root)
    total = int(s.ends[-1])
    candidates = random.Random(a.seed).sample(range(total), min(total, 3 * a.count))
    rows = {i: neighbours(s, i) for i in wanted_rows(s, candidates, a.window)}
    imgs = decode(s, {j for n in rows.values() for j in n.values()})
    differs = lambda i, j: np.abs(imgs[i].astype(np.int16) - imgs[j].astype(np.int16)).mean() >= LEAST
    good = {i for i, n in rows.items() if all(differs(i, j) for k, j in n.items() if k != "own")}
    anchors = [i for i in candidates if wanted_rows(s, [i], 1) <= good][: a.count]
    frames, slot, place = [], {}, {}
    for i in sorted(wanted_rows(s, anchors, a.window) & good):
        slot[i] = {}
        for k, j in rows[i].items():
            if j not in place:
                place[j] = len(frames)
                frames.append(imgs[j])
            slot[i][k] = place[j]
    os.makedirs(a.out, exist_ok=True)
    np.save(os.path.join(a.out, "frames.npy"), np.stack(frames))
    tmp = os.path.join(a.out, "frames.json.part")
    with open(tmp, "w") as f:
        json.dump(dict(anchors=anchors, slot=slot, ends=[int(e) for e in s.ends], window=a.window), f)
    os.replace(tmp, os.path.join(a.out, "frames.json"))  # last: a folder with it is complete
    print(json.dumps(dict(anchors=len(anchors), rows=len(slot), of=total)))


if __name__ == "__main__":
    main()
