"""Images that imagecodecs encodes as JPEG XL, and their pixels by it: name, stream, values, size of an element, lossless; each a u32
length and bytes. usage: imagecodecs_jxl.py
"""
import struct
import sys

import imagecodecs
import numpy as np

rng = np.random.default_rng(5)


def scene(h, w):
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([127 + 90 * np.sin(x / 9 + y / 31), 255 * ((x // 16 + y // 16) % 2), 255 * y / h], -1).clip(0, 255).astype(np.uint8)


def put(name, stream, lossless):
    a = imagecodecs.jpegxl_decode(stream)
    for b in (name.encode(), stream, np.ascontiguousarray(a).tobytes(), bytes([a.itemsize]), bytes([lossless])):
        sys.stdout.buffer.write(struct.pack("<I", len(b)) + b)


for h, w in ((224, 224), (1, 1), (57, 301), (300, 520)):
    rgb = scene(h, w)
    noise = rng.integers(0, 256, (h, w, 4), np.uint8)
    for effort in (1, 3, 7):
        put(f"lossless {h}x{w} e{effort}", imagecodecs.jpegxl_encode(rgb, lossless=True, effort=effort), True)
        for distance in (0.5, 1.0, 4.0):
            put(f"lossy {h}x{w} e{effort} d{distance}", imagecodecs.jpegxl_encode(rgb, lossless=False, distance=distance, effort=effort), False)
    put(f"noise {h}x{w}", imagecodecs.jpegxl_encode(noise[..., :3], lossless=True), True)
    put(f"grey {h}x{w}", imagecodecs.jpegxl_encode(rgb[..., 0], lossless=True), True)
    put(f"lossy grey {h}x{w}", imagecodecs.jpegxl_encode(rgb[..., 0], lossless=False, distance=1.0), False)
    put(f"grey and alpha {h}x{w}", imagecodecs.jpegxl_encode(noise[..., :2].copy(), lossless=True), True)
    put(f"alpha {h}x{w}", imagecodecs.jpegxl_encode(noise, lossless=True), True)
    put(f"16 bits {h}x{w}", imagecodecs.jpegxl_encode(noise.astype(np.uint16)[..., :3] * 251 + 7, lossless=True), True)
    put(f"16 bits grey {h}x{w}", imagecodecs.jpegxl_encode(noise[..., 1].astype(np.uint16) * 257, lossless=True), True)
    put(f"container {h}x{w}", imagecodecs.jpegxl_encode(rgb, lossless=True, usecontainer=True), True)
put("frames", imagecodecs.jpegxl_encode(rng.integers(0, 256, (5, 33, 40, 3), np.uint8), lossless=True), True)
put("grey frames", imagecodecs.jpegxl_encode(rng.integers(0, 256, (7, 33, 40), np.uint8), lossless=True), True)
