"""Writes testdata/vectors/images: the conformance vectors of augmented images (kernel.K22, kernel.K23).

Run from the repository root: python kernel/testdata/generate_images.py [FOLDER]
Needs NumPy. The logic is its own, by the words of docs/kernels.md section 8: whole arrays in int64, one step after the other.

In a case:
  seed, epoch, sample (strings), camera, step   whose draws they are
  size, crop, pad                               [H, W] of the image, [h, w] of the result
  brightness, contrast, saturation, hue         [low, high], absent = none
  flip, noise                                   probability, standard deviation
  src, want                                     bytes as hex, [3, H, W] and [3, h, w]
  draw                                          the words of kernel.ImageDraw, unsigned
"""
import json, math, os, sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors", "images")
M32 = 0xFFFFFFFF
LUMA = [0.299, 0.587, 0.114]
K = [[-0.168, -0.329, 0.497], [0.328, -0.035, -0.293], [-1.25, 1.046, 0.204]]


def philox(c, k):
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def two(x):
    return [x & M32, x >> 32 & M32]


def unit(word):
    return (word >> 8) * 2.0**-24


def case(name, rng, size, crop=None, pad=0, seed=0, epoch=0, sample=0, camera=7, step=0, flip=0.0, noise=0.0, **ranges):
    H, W = size
    h, w = crop or size
    src = rng.integers(0, 256, (3, H, W))
    src[:, 0, 0] = 0
    src[:, -1, -1] = 255
    key = philox([*two(epoch), camera, 0], two(seed))[:2]
    first = philox([3 << 30, 0, *two(sample)], key)
    second = philox([3 << 30 | 1, 0, *two(sample)], key)
    y0 = (first[0] * (H + 2 * pad - h + 1) >> 32) - pad
    x0 = (first[1] * (W + 2 * pad - w + 1) >> 32) - pad
    flips = flip > 0 and unit(philox([3 << 30, 0, *two(sample)], philox([*two(epoch), 0, 0], two(seed))[:2])[0]) < np.float32(flip)
    img = src[:, np.clip(np.arange(y0, y0 + h), 0, H - 1)][:, :, np.clip(np.arange(x0, x0 + w), 0, W - 1)]
    if flips:
        img = img[:, :, ::-1]
    pick = lambda n, word, none: none if n not in ranges else ranges[n][0] + (ranges[n][1] - ranges[n][0]) * unit(word)
    b, c = pick("brightness", first[2], 1.0), pick("contrast", first[3], 1.0)
    s, t = pick("saturation", second[0], 1.0), 2 * math.pi * pick("hue", second[1], 0.0)
    m = [[round(b * c * (LUMA[j] + s * (math.cos(t) * ((i == j) - LUMA[j]) + math.sin(t) * K[i][j])) * 4096) for j in range(3)] for i in range(3)]
    offset = round((1 - c) * 127.5 * 4096)
    if not ranges:
        assert m == [[4096, 0, 0], [0, 4096, 0], [0, 0, 4096]] and offset == 0
    step_of = round(noise * 255 * 65536 / math.sqrt(21845))
    extra = np.zeros((3, h, w), np.int64)
    for ch in range(3) if noise else ():
        for y in range(h):
            for x in range(w):
                word = philox([x >> 2, (3 * step + ch) * h + y, *two(sample)], key)[x & 3]
                extra[ch, y, x] = (sum(word.to_bytes(4, "little")) - 510) * step_of // 16  # floors, as a signed shift does
    total = np.einsum("ij,jyx->iyx", np.array(m, np.int64), img.astype(np.int64)) + offset + extra + 2048
    assert abs(total).max() < 2**31
    want = np.clip(total // 4096, 0, 255).astype(np.uint8)
    draw = [y0, x0, int(flips), 0, *[x for r in m for x in r], offset, step_of, *key, *two(sample), 3 * step, int(bool(ranges)), 0, 0, 0]
    return {"name": name, "seed": str(seed), "epoch": str(epoch), "sample": str(sample), "camera": camera, "step": step, "size": [H, W], "crop": [h, w], "pad": pad, **ranges, "flip": flip, "noise": noise,
            "src": src.astype(np.uint8).tobytes().hex(), "want": want.tobytes().hex(), "draw": [x & M32 for x in draw]}  # fmt: skip


def images():
    rng = np.random.default_rng(22)
    jitter = {"brightness": [0.6, 1.4], "contrast": [0.6, 1.4], "saturation": [0.5, 1.5], "hue": [-0.1, 0.1]}
    wild = {"brightness": [0.0, 4.0], "contrast": [0.0, 4.0], "saturation": [0.0, 4.0], "hue": [-0.5, 0.5]}
    out = [
        case("nothing", rng, (5, 8)), case("one pixel", rng, (1, 1)), case("flip", rng, (4, 7), flip=1.0, sample=3), case("crop", rng, (9, 12), (4, 8), sample=5),
        case("crop of odd width", rng, (9, 13), (5, 7), sample=6, flip=0.5), case("shift", rng, (6, 8), pad=3, sample=7), case("larger than the image", rng, (3, 4), (7, 8), pad=2),
        case("noise", rng, (5, 11), noise=0.1, sample=2**40 + 9, step=2), case("full noise", rng, (4, 16), noise=1.0, seed=2**63 + 5, epoch=2**33), case("little noise", rng, (4, 4), noise=1e-5),
        case("jitter", rng, (6, 8), **jitter), case("hue", rng, (4, 8), hue=[0.25, 0.25]), case("grey", rng, (4, 8), saturation=[0.0, 0.0]), case("black", rng, (2, 4), brightness=[0.0, 0.0]),
        case("flat", rng, (2, 4), contrast=[0.0, 0.0]), case("no change", rng, (4, 4), brightness=[1.0, 1.0]),
    ]  # fmt: skip
    for i in range(12):
        H, W = (int(x) for x in rng.integers(2, 14, 2))
        pad = int(rng.integers(0, 4))
        h, w = int(rng.integers(1, H + 2 * pad + 1)), int(rng.integers(1, W + 2 * pad + 1))
        out.append(case(f"all of it, {i}", rng, (H, W), (h, w), pad, seed=int(rng.integers(2**62)), epoch=i, sample=int(rng.integers(2**45)), camera=int(rng.integers(1, 2**32)), step=i % 3,
                        flip=0.5, noise=0.05 * (i % 2), **(wild if i % 3 == 0 else jitter)))  # fmt: skip
    assert {c["draw"][2] for c in out} == {0, 1}
    with open(os.path.join(HERE, "images.json"), "w") as f:
        json.dump({"note": "see generate_images.py", "cases": out}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    HERE = sys.argv[1] if len(sys.argv) > 1 else HERE
    os.makedirs(HERE, exist_ok=True)
    images()
