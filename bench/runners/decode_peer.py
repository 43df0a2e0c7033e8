"""Decoding peers, one thread, decoders kept open: python decode_peer.py PEER PATTERN COUNT FILE...

PEER: ffmpeg | torchcodec | pyav. PATTERN: sequential (every frame of every file, to RGB24) | random (COUNT single frames).
Prints one Outcome; a sample is a frame delivered."""
import json, random, resource, subprocess, sys, time

peer, pattern, count, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]


def cpu():
    a, b = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return a.ru_utime + a.ru_stime + b.ru_utime + b.ru_stime


def ffmpeg():
    if pattern != "sequential":
        raise SystemExit("the ffmpeg CLI has no random access worth measuring")

    def run():
        n = 0
        for f in files:
            # To RGB and away: the null muxer throws the frames away without a copy.
            r = subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-stats", "-threads", "1", "-filter_threads", "1", "-i", f, "-map", "0:v:0", "-vf", "scale=flags=bilinear,format=rgb24",
                                "-fps_mode", "passthrough", "-c:v", "wrapped_avframe", "-f", "null", "-"], stderr=subprocess.PIPE, text=True, check=True)
            n += int(r.stderr.replace("=", " ").split("frame")[-1].split()[0])
        return n

    return run


def torchcodec():
    import torch

    torch.set_num_threads(1)
    from torchcodec.decoders import VideoDecoder

    # Exact seeking scans the file once, at opening, outside the window: as lerobot uses it (approximate) the frames can be others.
    ds = [VideoDecoder(f, num_ffmpeg_threads=1, seek_mode="approximate") for f in files]

    def sequential():
        n = 0
        for d in ds:
            for i in range(len(d)):
                d[i]
                n += 1
        return n

    return sequential if pattern == "sequential" else lambda: pick([len(d) for d in ds], lambda k, i: ds[k][i])


def pyav():
    import av

    cs = [av.open(f) for f in files]
    for c in cs:
        c.streams.video[0].thread_count = 1
        c.streams.video[0].thread_type = "NONE"
    streams = [c.streams.video[0] for c in cs]
    step = [int(round(1 / (s.time_base * s.average_rate))) for s in streams]

    def sequential():
        n = 0
        for c in cs:
            c.seek(0)
            for f in c.decode(video=0):
                f.to_ndarray(format="rgb24")
                n += 1
        return n

    def one(k, i):
        pts = i * step[k]
        cs[k].seek(pts, stream=streams[k])
        for f in cs[k].decode(video=0):
            if f.pts >= pts:
                return f.to_ndarray(format="rgb24")

    return sequential if pattern == "sequential" else lambda: pick([s.frames for s in streams], one)


def pick(lengths, get):
    rng = random.Random(0)
    for _ in range(count):
        k = rng.choices(range(len(lengths)), lengths)[0]
        get(k, rng.randrange(lengths[k]))
    return count


run = {"ffmpeg": ffmpeg, "torchcodec": torchcodec, "pyav": pyav}[peer]()
c, t = cpu(), time.perf_counter()
n = run()
print(json.dumps(dict(samples=n, seconds=time.perf_counter() - t, cpu_seconds=cpu() - c)))
