"""Writes JPEGs of many kinds with what PIL makes of them: name, bytes, size, RGB (see turbojpeg_test.go)."""
import io
import struct
import sys

import numpy as np
from PIL import Image

try:
    import imagecodecs
except ImportError:
    imagecodecs = None

out = sys.stdout.buffer
rng = np.random.default_rng(7)


def scene(h, w, channels):
    y, x = np.mgrid[0:h, 0:w]
    base = np.stack([128 + 100 * np.sin(x / (3 + c) + c) * np.cos(y / (5 - c / 2)) for c in range(channels)], -1)
    return np.clip(base + rng.normal(0, 12, base.shape), 0, 255).astype(np.uint8)


def put(name, data, judged=None):
    with Image.open(io.BytesIO(judged or data)) as im:
        rgb = np.asarray(im.convert("RGB"))
    for b in (name.encode(), data, struct.pack("<ii", rgb.shape[1], rgb.shape[0]), rgb.tobytes()):
        out.write(struct.pack("<I", len(b)))
        out.write(b)


def pil(name, array, mode, **options):
    b = io.BytesIO()
    Image.fromarray(array, mode).save(b, "JPEG", **options)
    put(name, b.getvalue())


sizes = [(1, 1), (1, 9), (7, 1), (2, 2), (3, 5), (8, 8), (9, 17), (16, 16), (31, 33), (64, 47), (120, 161)]
for h, w in sizes:
    rgb = scene(h, w, 3)
    for sub in (0, 1, 2):
        for quality in (20, 75, 97):
            pil(f"{h}x{w} sub{sub} q{quality}", rgb, "RGB", subsampling=sub, quality=quality)
        pil(f"{h}x{w} sub{sub} progressive", rgb, "RGB", subsampling=sub, progressive=True)
        pil(f"{h}x{w} sub{sub} optimised", rgb, "RGB", subsampling=sub, optimize=True)
        pil(f"{h}x{w} sub{sub} restarts", rgb, "RGB", subsampling=sub, restart_marker_blocks=1)
        pil(f"{h}x{w} sub{sub} restart rows", rgb, "RGB", subsampling=sub, restart_marker_rows=1, progressive=True)
    pil(f"{h}x{w} keep_rgb", rgb, "RGB", keep_rgb=True)
    pil(f"{h}x{w} grey", rgb[..., 0], "L")
    pil(f"{h}x{w} grey progressive", rgb[..., 0], "L", progressive=True)
    pil(f"{h}x{w} cmyk", scene(h, w, 4), "CMYK")
    pil(f"{h}x{w} cmyk progressive", scene(h, w, 4), "CMYK", progressive=True, quality=40)
    pil(f"{h}x{w} exif", rgb, "RGB", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0")
    if imagecodecs is not None:
        for sub in ("440", "411", "422", "420"):
            put(f"{h}x{w} imagecodecs {sub}", imagecodecs.jpeg8_encode(rgb, level=80, subsampling=sub))
        put(f"{h}x{w} imagecodecs ycck", imagecodecs.jpeg8_encode(scene(h, w, 4), level=80, colorspace="CMYK", outcolorspace="YCCK"))
b = io.BytesIO()
Image.fromarray(scene(40, 40, 3)).save(b, "JPEG")
whole = b.getvalue()
put("no end marker", whole[:-2], whole)  # PIL refuses it, libjpeg and OpenCV read it
put("zeros behind", whole + bytes(100))
put("bytes behind", whole + b"rubbish\xff\xd8\xff")
