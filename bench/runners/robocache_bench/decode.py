"""Decoding peers on one thread (runner:

ffmpeg, torchcodec, pyav), with decoders kept open.

They decode every frame of every file to RGB24, or `count` single frames in random order. A sample
is a delivered frame.
"""

import random, subprocess

from . import common


def ffmpeg(a):
    """Returns a function that decodes all files and returns the number of frames.

    Random access is not measured: it would start one process per frame.
    """

    def frames():
        n = 0
        for f in a.files:
            # The null muxer discards the RGB frames without a copy.
            r = subprocess.run(
                [
                    "ffmpeg",
                    "-nostdin",
                    "-v",
                    "error",
                    "-stats",
                    "-threads",
                    "1",
                    "-filter_threads",
                    "1",
                    "-i",
                    f,
                    "-map",
                    "0:v:0",
                    "-vf",
                    "scale=flags=bilinear,format=rgb24",
                    "-fps_mode",
                    "passthrough",
                    "-c:v",
                    "wrapped_avframe",
                    "-f",
                    "null",
                    "-",
                ],
                stderr=subprocess.PIPE,
                text=True,
                check=True,
            )
            n += int(r.stderr.replace("=", " ").split("frame")[-1].split()[0])
        return n

    return frames, None, None


def torchcodec(a):
    import torch

    torch.set_num_threads(1)
    from torchcodec.decoders import VideoDecoder

    # The same settings as lerobot. Exact seeking would scan the file when it is opened, outside the
    # window. Approximate seeking may return other frames.
    ds = [VideoDecoder(f, num_ffmpeg_threads=1, seek_mode="approximate") for f in a.files]

    def frames():
        n = 0
        for d in ds:
            for i in range(len(d)):
                d[i]
                n += 1
        return n

    return frames, [len(d) for d in ds], lambda k, i: ds[k][i]


def pyav(a):
    from .lerobot_set import Video

    vs = [Video(f) for f in a.files]
    return (
        lambda: sum(1 for v in vs for _ in v.frames()),
        [v.stream.frames for v in vs],
        lambda k, i: next(vs[k].frames(i)),
    )


def main(a):
    frames, lengths, one = {"ffmpeg": ffmpeg, "torchcodec": torchcodec, "pyav": pyav}[a.runner](a)

    def picked():
        rng = random.Random(0)
        for _ in range(a.count):
            k = rng.choices(range(len(lengths)), lengths)[0]
            one(k, rng.randrange(lengths[k]))
        return a.count

    common.passes(frames if a.pattern == "sequential" else picked)


common.run(main)
