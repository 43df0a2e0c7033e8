"""CPU seconds per 1,000 frames, decoded to RGB on one thread: this package, the ffmpeg CLI, torchcodec, PyAV. Arms take turns.

usage: compare.py VIDEO [--repeats 5] [--frames 600] [--random 300] [--binary TESTBINARY] [--json FILE]

TESTBINARY is this package's test binary (go test -c); without it one is built. Start-up is outside every arm: decoders are
opened and warmed first, and of the CLI's time that of one frame is taken off.
"""
import argparse
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile


def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


def torchcodec(path, frames, randoms):
    import torch
    from torchcodec.decoders import VideoDecoder

    torch.set_num_threads(1)
    d = VideoDecoder(path, num_ffmpeg_threads=1, seek_mode="exact")
    n = len(d)
    d[0]
    if randoms:
        rng = random.Random(3)
        at = [rng.randrange(n) for _ in range(frames)]
        for k in at[:4]:
            d[k]
        start = cpu()
        for k in at:
            d[k]
        return (cpu() - start) / frames
    start, done = cpu(), 0
    while done < frames:
        part = min(n, frames - done)
        for k in range(part):
            d[k]
        done += part
    return (cpu() - start) / done


def pyav(path, frames, randoms):
    import av

    c = av.open(path)
    s = c.streams.video[0]
    s.thread_count = 1
    pts = sorted(p.pts for p in c.demux(s) if p.pts is not None)
    if randoms:
        rng = random.Random(3)

        def one(k):
            c.seek(pts[k], stream=s, backward=True)
            for f in c.decode(s):
                if f.pts >= pts[k]:
                    return f.to_ndarray(format="rgb24")

        at = [rng.randrange(len(pts)) for _ in range(frames)]
        for k in at[:4]:
            one(k)
        start = cpu()
        for k in at:
            one(k)
        return (cpu() - start) / frames
    c.seek(0)
    start, done = cpu(), 0
    while done < frames:
        for f in c.decode(s):
            f.to_ndarray(format="rgb24")
            done += 1
            if done == frames:
                break
        else:
            c.seek(0)
    return (cpu() - start) / done


def children(cmd):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def ffmpeg(path, frames, randoms):
    if randoms:
        return None
    cmd = ["ffmpeg", "-nostdin", "-v", "error", "-threads", "1", "-i", path, "-an", "-vf", "format=rgb24", "-filter_threads", "1", "-f", "null"]
    whole, _ = children([*cmd, "-frames:v", str(frames), "-"])
    one, _ = children([*cmd, "-frames:v", "1", "-"])
    return (whole - one) / (frames - 1)


def robocache(path, frames, randoms, binary):
    os.environ["ROBOCACHE_BENCH_VIDEO"] = os.path.abspath(path)
    bench = "BenchmarkRandomFrame$" if randoms else "BenchmarkSequentialRGB$"
    _, out = children([binary, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", f"{frames}x", "-test.cpu", "1"])
    return float(re.search(r"([\d.e+]+) cpu-ns/frame", out).group(1)) / 1e9


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("video")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--frames", type=int, default=600)
    p.add_argument("--random", type=int, default=300)
    p.add_argument("--binary")
    p.add_argument("--json")
    p.add_argument("--arm", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.arm:  # a fresh process for each run
        name, kind = a.arm.split(":")
        print({"torchcodec": torchcodec, "pyav": pyav}[name](a.video, a.frames, kind == "random"))
        return
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as tmp:
        binary = a.binary or os.path.join(tmp, "ffmpeg.test")
        if not a.binary:
            subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=os.path.dirname(here), check=True)
        result = {}
        for _ in range(a.repeats):
            for kind, frames in (("sequential", a.frames), ("random", a.random)):
                for name in ("robocache", "ffmpeg", "torchcodec", "pyav"):
                    if name == "robocache":
                        v = robocache(a.video, frames, kind == "random", binary)
                    elif name == "ffmpeg":
                        v = ffmpeg(a.video, frames, kind == "random")
                    else:
                        out = subprocess.run([sys.executable, __file__, a.video, "--frames", str(frames), "--arm", f"{name}:{kind}"],
                                             stdout=subprocess.PIPE, text=True, check=True).stdout
                        v = float(out)
                    if v is not None:
                        result.setdefault(kind, {}).setdefault(name, []).append(1000 * v)
        for kind, arms in result.items():
            print(f"{kind}: CPU s per 1,000 frames, median (least to most) of {a.repeats}")
            for name, values in arms.items():
                print(f"  {name:11} {statistics.median(values):8.3f}  ({min(values):.3f} to {max(values):.3f})")
        if a.json:
            with open(a.json, "w") as f:
                json.dump({"video": a.video, "cpu_s_per_1000": result}, f, indent=1)


if __name__ == "__main__":
    main()
