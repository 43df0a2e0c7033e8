"""Prints the MD5 of every frame of a video as RGB24 rows: one line a frame, "pyav torchcodec" ("-" where a peer is absent or fails).

usage: peers.py COUNT VIDEO...    ("== VIDEO" opens the list of each file's first COUNT frames; exit code 3: a peer is missing)
"""
import hashlib
import importlib.util
import itertools
import sys

count = int(sys.argv[1])
if not all(importlib.util.find_spec(name) for name in ("av", "torchcodec")):
    sys.exit(3)


def pyav(path):
    import av

    with av.open(path) as c:
        stream = c.streams.video[0]
        stream.thread_count = 1
        return [hashlib.md5(f.to_ndarray(format="rgb24").tobytes()).hexdigest() for f in itertools.islice(c.decode(stream), count)]


def torchcodec(path):
    from torchcodec.decoders import VideoDecoder

    d = VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="exact")
    sums = []
    n = min(count, len(d))
    for start in range(0, n, 16):
        batch = d.get_frames_in_range(start, min(start + 16, n)).data
        sums += [hashlib.md5(f.contiguous().numpy().tobytes()).hexdigest() for f in batch]
    return sums


for path in sys.argv[2:]:
    sums = []
    for peer in (pyav, torchcodec):
        try:
            sums.append(peer(path))
        except Exception as e:  # a peer that cannot read a file says nothing about ours
            print(f"{peer.__name__}: {path}: {e}", file=sys.stderr)
            sums.append([])
    print("==", path)
    for i in range(max(map(len, sums), default=0)):
        print(*(s[i] if i < len(s) else "-" for s in sums))
