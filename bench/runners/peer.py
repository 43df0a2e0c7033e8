"""What the arms of `bench peers` share: the window of whole epochs, and what is checked of the work.

After --warm epochs that are not measured, --epochs whole epochs are (more, until --seconds are full). What is counted of the order
(hash, coverage, randomness) is counted after the window, from the sample numbers that were put aside in it; frames are put aside
in the last warm epoch and compared after the window, so that checking costs the arm nothing."""
import argparse, hashlib, json, math, os, sys, time

import numpy as np

from common import T0, Peak, cpu_seconds, ideal, pss_mb

MOST_EPOCHS = 5000
PACKAGES = ("torch", "torchvision", "torchcodec", "numpy", "lerobot", "datasets", "av", "cv2", "h5py", "robomimic", "pyarrow", "robocache")


def args(*more):
    """The options of every peer arm; more: functions that add an arm's own."""
    p = argparse.ArgumentParser()
    p.add_argument("root")
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--warm", type=int, default=1, help="epochs before the window")
    p.add_argument("--epochs", type=int, default=1, help="measured epochs, at least")
    p.add_argument("--seconds", type=float, default=0.0, help="and as many more as fill so many seconds")
    p.add_argument("--video", default="one", choices=["one", "none"])
    p.add_argument("--window", type=int, default=0, help="frames and rows a window; 0 = single")
    p.add_argument("--image-size", type=int, nargs=2, help="height width; default: as stored")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--oracle", default="", help="folder of peer_oracle.py: frames to compare with")
    for f in more:
        f(p)
    return p.parse_args()


def order_facts(epochs, lengths, batch):
    """epochs: arrays of the sample numbers of each batch, a list an epoch. Randomness is that of whole batches."""
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    digest = hashlib.sha256()
    distinct, full, same, pairs = 0.0, 0, 0, 0
    low, high = None, 0
    for batches in epochs:
        given = np.concatenate(batches) if batches else np.zeros(0, np.int64)
        digest.update(given.astype("<i8").tobytes())
        if ((given < 0) | (given >= total)).any():
            raise ValueError("a sample number outside the dataset")
        counts = np.bincount(given, minlength=total)
        low, high = int(counts.min()) if low is None else min(low, int(counts.min())), max(high, int(counts.max()))
        episode = np.searchsorted(ends, given, "right")
        same += int((episode[1:] == episode[:-1]).sum())
        pairs += max(len(given) - 1, 0)
        at = 0
        for b in batches:
            if len(b) == batch:
                distinct += len(np.unique(episode[at : at + batch])) / batch
                full += 1
            at += len(b)
    return dict(order_sha256=digest.hexdigest(), coverage_min=low or 0, coverage_max=high, shuffle_randomness_frac=distinct / full if full else 0.0,
                randomness_ideal=ideal(lengths, batch), neighbour_share=same / pairs if pairs else 0.0)


class Check:
    """Delivered frames against the oracle's. A frame is wrong where its mean distance from the right one is above the limit,
    or where a neighbour of the right one is nearer: converters differ by a little, neighbours by more (the oracle chose such)."""

    LIMIT = 3.0  # of 255, mean over the frame

    def __init__(self, folder, window):
        with open(os.path.join(folder, "frames.json")) as f:
            o = json.load(f)
        self.folder, self.window = folder, max(window, 1)
        self.ends, self.slot = o["ends"], {int(k): v for k, v in o["slot"].items()}
        self.anchors = np.array(sorted(o["anchors"]), np.int64)
        self.kept = []

    def frame_of(self, anchor, offset):
        """The row that a window shows: clamped to the anchor's episode."""
        end = next(e for e in self.ends if anchor < e)
        return min(anchor + offset, end - 1)

    def keep(self, index, imgs):
        for i in np.flatnonzero(np.isin(index, self.anchors)):
            pic = imgs[int(i)]
            for offset in sorted({0, self.window - 1}):
                one = pic[offset] if self.window > 1 else pic
                row = self.frame_of(int(index[i]), offset)
                if row in self.slot:
                    self.kept.append((row, np.array(one, copy=True)))

    def verdict(self):
        right = np.load(os.path.join(self.folder, "frames.npy"), mmap_mode="r")
        wrong, worst = 0, 0.0
        for row, got in self.kept:
            d = {k: distance(got, right[s]) for k, s in self.slot[row].items()}
            worst = max(worst, d["own"])
            wrong += d["own"] > self.LIMIT or any(v < d["own"] for k, v in d.items() if k != "own")
        return dict(frames_checked=len(self.kept), wrong_frames=int(wrong), worst_mean_difference=worst)


def distance(got, right):
    """Mean difference of two CHW frames, of 255; the right one is brought to the size of the other."""
    if got.dtype != np.uint8:
        got = np.rint(np.asarray(got, np.float32) * 255)
    if got.shape != right.shape:
        import cv2

        right = cv2.resize(np.ascontiguousarray(right.transpose(1, 2, 0)), got.shape[:0:-1], interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
    return float(np.abs(got.astype(np.int16) - right.astype(np.int16)).mean())


def versions():
    from importlib.metadata import PackageNotFoundError, version

    out = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        if name in sys.modules:
            try:
                out[name] = version("opencv-python-headless" if name == "cv2" else name)
            except PackageNotFoundError:
                out[name] = str(getattr(sys.modules[name], "__version__", "?"))
    return out


def measure(epoch, a, lengths, opened, imgs=None, extra=dict):
    """epoch(): a fresh iterator of (sample numbers, batch). frames(batch): its frames, [B, (window,) C, H, W].
    opened: seconds of importing and of opening. extra(): more keys of the outcome, asked for after the window."""
    check = Check(a.oracle, a.window) if a.oracle and imgs else None
    lengths = [int(n) for n in lengths]
    peak = Peak()
    peak.start()
    first, last = None, 0.0
    for k in range(max(a.warm, 1)):
        t = time.perf_counter()
        for index, batch in epoch():
            if first is None:
                first = time.perf_counter() - t
            if check and k == max(a.warm, 1) - 1:
                check.keep(np.asarray(index), imgs(batch))
        last = time.perf_counter() - t
    if first is None:
        raise SystemExit("no batch came")
    peak.stop.set()
    peak.join()
    pss = max(peak.peak, pss_mb())
    n = min(max(a.epochs, math.ceil(a.seconds / max(last, 1e-6))), MOST_EPOCHS)
    taken = []
    c0, t0 = cpu_seconds(), time.perf_counter()
    for _ in range(n):
        one = []
        for index, batch in epoch():
            one.append(np.array(index, np.int64))
        taken.append(one)
    seconds, cpu = time.perf_counter() - t0, cpu_seconds() - c0
    out = dict(samples=sum(len(b) for e in taken for b in e), epochs=n, seconds=seconds, cpu_seconds=cpu, import_s=opened[0], open_s=opened[1],
               first_batch_latency_s=first, pss_peak_mb=pss, versions=versions())
    out.update(order_facts(taken, lengths, a.batch_size))
    if check:
        out.update(check.verdict())
    out.update(extra())
    print(json.dumps(out))
    sys.stdout.flush()


def failed(e):
    """An arm that cannot: its own words, as the outcome."""
    words = str(e).strip().splitlines() or ["no message"]
    print(json.dumps(dict(error=f"{type(e).__name__}: {words[0][:300]}", versions=versions())))
    sys.stdout.flush()


def since_start():
    return time.perf_counter() - T0
