"""Prints the MD5 of every picture of a video as RGB24 rows: one line a picture, "pyav torchcodec" ("-" where a peer is absent or fails).

usage: peers.py VIDEO...    ("== VIDEO" opens each file's list)
"""
import hashlib
import sys


def pyav(path):
    import av

    with av.open(path) as c:
        stream = c.streams.video[0]
        stream.thread_count = 1
        return [hashlib.md5(f.to_ndarray(format="rgb24").tobytes()).hexdigest() for f in c.decode(stream)]


def torchcodec(path):
    from torchcodec.decoders import VideoDecoder

    d = VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode="exact")
    sums = []
    for start in range(0, len(d), 16):
        batch = d.get_frames_in_range(start, min(start + 16, len(d))).data
        sums += [hashlib.md5(f.contiguous().numpy().tobytes()).hexdigest() for f in batch]
    return sums


for path in sys.argv[1:]:
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
