"""Decodes files for ever: a line with a path and a number of times comes in, CPU seconds a time go out (see still_peers_test.go)."""
import io
import sys
import time
import zlib

from PIL import Image


def frame(data):
    with Image.open(io.BytesIO(data)) as im:
        im.convert("RGB").load()


for line in sys.stdin:
    path, times = line.rsplit(" ", 1)
    with open(path, "rb") as f:
        data = f.read()
    run = zlib.decompress if path.endswith(".zlib") else frame
    run(data)
    before = time.process_time()
    for _ in range(int(times)):
        run(data)
    print((time.process_time() - before) / int(times), flush=True)
