"""Writes testdata/vectors/images: the conformance vectors of augmented images.

They cover kernel.K22 and kernel.K23.
Run from the repository root: python kernel/testdata/generate_images.py [FOLDER]
Needs NumPy. The code is independent of the Go code and follows section 8 of docs/kernels.md. It
computes one step after the other on whole arrays of int64.

Fields of a case (absent = none):

  seed, epoch, sample (strings), camera, step   select the draws
  size, crop, pad                               [H, W] of the image, [h, w] of the crop
  brightness, contrast, saturation, hue         [low, high]
  flip, noise                                   probability, standard deviation
  scale                                         [filter, height, width]: scales the crop
  rotation                                      [low, high] in degrees
  channels_last, shared                         flags
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
    """Returns one block of Philox4x32-10 for counter c and key k."""
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def two(x):
    """Returns the low and the high word of a 64-bit number."""
    return [x & M32, x >> 32 & M32]


def unit(word):
    """Returns 24 bits of a word as a number in [0, 1)."""
    return (word >> 8) * 2.0**-24


def weights(filter, n, m):
    """Returns the matrix [m, n] that scales an axis by Pillow's rules, with 22 fractional bits."""
    s = n / m
    if filter == "nearest":
        return (np.arange(n)[None] == ((np.arange(m) + 0.5) * s).astype(int)[:, None]).astype(
            np.int64
        ) << 22
    x = np.abs(np.arange(n)[None] + 0.5 - (np.arange(m)[:, None] + 0.5) * s) / max(s, 1)
    w = np.maximum(0, 1 - x)
    w /= w.sum(1, keepdims=True)
    return np.floor(w * 2.0**22 + 0.5).astype(np.int64)


def scaled(img, filter, h, w):
    """Returns [3, h, w]: along rows, rounded to bytes, then along columns."""
    for axis, size in ((2, w), (1, h)):
        img = np.moveaxis(
            np.moveaxis(img, axis, -1) @ weights(filter, img.shape[axis], size).T, -1, axis
        )
        img = np.clip((img + 2**21) >> 22, 0, 255)
    return img


def mirrored(i, n):
    """Returns indices, mirrored at 0 or n-1 if they lie outside, then clamped."""
    i = np.abs(i)
    return np.clip(np.where(i >= n, 2 * n - 2 - i, i), 0, n - 1)


def turned(img, cos, sin):
    """Returns the image rotated about its center. cos and sin have 16 fractional bits."""
    h, w = img.shape[1:]
    Y, X = (2 * np.arange(h) - (h - 1))[:, None], 2 * np.arange(w) - (w - 1)
    px, py = cos * X - sin * Y + ((w - 1) << 16), sin * X + cos * Y + ((h - 1) << 16)
    fx, fy, total = px >> 10 & 127, py >> 10 & 127, 8192
    for dy, wy in ((0, 128 - fy), (1, fy)):
        for dx, wx in ((0, 128 - fx), (1, fx)):
            total = (
                total + img[:, mirrored((py >> 17) + dy, h), mirrored((px >> 17) + dx, w)] * wy * wx
            )
    return total >> 14


def case(
    name,
    rng,
    size,
    crop=None,
    pad=0,
    seed=0,
    epoch=0,
    sample=0,
    camera=7,
    step=0,
    flip=0.0,
    noise=0.0,
    scale=None,
    rotation=None,
    channels_last=False,
    shared=False,
    **ranges,
):
    """Returns one case: draws the values, applies the steps one after the other, and stores the
    result. ranges are the ranges of the color jitter.
    """
    H, W = size
    h, w = crop or size
    src = rng.integers(0, 256, (3, H, W))
    src[:, 0, 0] = 0
    src[:, -1, -1] = 255
    key = philox([*two(epoch), camera, 0], two(seed))[:2]
    draws = philox([*two(epoch), M32, 0], two(seed))[:2] if shared else key
    first = philox([3 << 30, 0, *two(sample)], draws)
    second = philox([3 << 30 | 1, 0, *two(sample)], draws)
    y0 = (first[0] * (H + 2 * pad - h + 1) >> 32) - pad
    x0 = (first[1] * (W + 2 * pad - w + 1) >> 32) - pad
    flips = flip > 0 and unit(
        philox([3 << 30, 0, *two(sample)], philox([*two(epoch), 0, 0], two(seed))[:2])[0]
    ) < np.float32(flip)
    img = src[:, np.clip(np.arange(y0, y0 + h), 0, H - 1)][
        :, :, np.clip(np.arange(x0, x0 + w), 0, W - 1)
    ]
    more, rotated = {}, [0, 0, 0]
    if scale:
        img, more["scale"] = scaled(img, *scale), scale
        h, w = scale[1:]
    if rotation:
        angle = math.radians(rotation[0] + (rotation[1] - rotation[0]) * unit(second[2]))
        rotated, more["rotation"] = (
            [1, round(math.cos(angle) * 65536), round(math.sin(angle) * 65536)],
            rotation,
        )
        img = turned(img, *rotated[1:])
    if shared:
        more["shared"] = True
    if flips:
        img = img[:, :, ::-1]
    pick = lambda n, word, none: (
        none if n not in ranges else ranges[n][0] + (ranges[n][1] - ranges[n][0]) * unit(word)
    )
    b, c = pick("brightness", first[2], 1.0), pick("contrast", first[3], 1.0)
    s, t = pick("saturation", second[0], 1.0), 2 * math.pi * pick("hue", second[1], 0.0)
    m = [
        [
            round(
                b
                * c
                * (LUMA[j] + s * (math.cos(t) * ((i == j) - LUMA[j]) + math.sin(t) * K[i][j]))
                * 4096
            )
            for j in range(3)
        ]
        for i in range(3)
    ]
    offset = round((1 - c) * 127.5 * 4096)
    if not ranges:
        assert m == [[4096, 0, 0], [0, 4096, 0], [0, 0, 4096]] and offset == 0
    step_of = round(noise * 255 * 65536 / math.sqrt(21845))
    extra = np.zeros((3, h, w), np.int64)
    for ch in range(3) if noise else ():
        for y in range(h):
            for x in range(w):
                word = philox([x >> 2, (3 * step + ch) * h + y, *two(sample)], key)[x & 3]
                extra[ch, y, x] = (
                    (sum(word.to_bytes(4, "little")) - 510) * step_of // 16
                )  # floors, as a signed shift does
    total = (
        np.einsum("ij,jyx->iyx", np.array(m, np.int64), img.astype(np.int64))
        + offset
        + extra
        + 2048
    )
    assert abs(total).max() < 2**31
    want = np.clip(total // 4096, 0, 255).astype(np.uint8)
    draw = [
        y0,
        x0,
        int(flips),
        0,
        *[x for r in m for x in r],
        offset,
        step_of,
        *key,
        *two(sample),
        3 * step,
        int(bool(ranges)),
        *rotated,
    ]
    if channels_last:
        want, more["channels_last"] = want.transpose(1, 2, 0), True
    return {
        "name": name,
        "seed": str(seed),
        "epoch": str(epoch),
        "sample": str(sample),
        "camera": camera,
        "step": step,
        "size": [H, W],
        "crop": list(crop or size),
        "pad": pad,
        **more,
        **ranges,
        "flip": flip,
        "noise": noise,
        "src": src.astype(np.uint8).tobytes().hex(),
        "want": want.tobytes().hex(),
        "draw": [x & M32 for x in draw],
    }


def images():
    """Writes images.json."""
    rng = np.random.default_rng(22)
    jitter = {
        "brightness": [0.6, 1.4],
        "contrast": [0.6, 1.4],
        "saturation": [0.5, 1.5],
        "hue": [-0.1, 0.1],
    }
    wild = {
        "brightness": [0.0, 4.0],
        "contrast": [0.0, 4.0],
        "saturation": [0.0, 4.0],
        "hue": [-0.5, 0.5],
    }
    out = [
        case("nothing", rng, (5, 8)),
        case("one pixel", rng, (1, 1)),
        case("flip", rng, (4, 7), flip=1.0, sample=3),
        case("crop", rng, (9, 12), (4, 8), sample=5),
        case("crop of odd width", rng, (9, 13), (5, 7), sample=6, flip=0.5),
        case("shift", rng, (6, 8), pad=3, sample=7),
        case("larger than the image", rng, (3, 4), (7, 8), pad=2),
        case("noise", rng, (5, 11), noise=0.1, sample=2**40 + 9, step=2),
        case("full noise", rng, (4, 16), noise=1.0, seed=2**63 + 5, epoch=2**33),
        case("little noise", rng, (4, 4), noise=1e-5),
        case("jitter", rng, (6, 8), **jitter),
        case("hue", rng, (4, 8), hue=[0.25, 0.25]),
        case("grey", rng, (4, 8), saturation=[0.0, 0.0]),
        case("black", rng, (2, 4), brightness=[0.0, 0.0]),
        case("flat", rng, (2, 4), contrast=[0.0, 0.0]),
        case("no change", rng, (4, 4), brightness=[1.0, 1.0]),
    ]
    for i in range(12):
        H, W = (int(x) for x in rng.integers(2, 14, 2))
        pad = int(rng.integers(0, 4))
        h, w = int(rng.integers(1, H + 2 * pad + 1)), int(rng.integers(1, W + 2 * pad + 1))
        out.append(
            case(
                f"all of it, {i}",
                rng,
                (H, W),
                (h, w),
                pad,
                seed=int(rng.integers(2**62)),
                epoch=i,
                sample=int(rng.integers(2**45)),
                camera=int(rng.integers(1, 2**32)),
                step=i % 3,
                flip=0.5,
                noise=0.05 * (i % 2),
                **(wild if i % 3 == 0 else jitter),
            )
        )
    bilinear, nearest, turn = ["pil-bilinear", 9, 13], ["nearest", 4, 5], [-180.0, 180.0]
    out += [
        case("scaled up", rng, (7, 8), (5, 6), scale=bilinear, sample=11),
        case("scaled down", rng, (31, 40), (28, 37), scale=bilinear, sample=12, flip=1.0),
        case("nearest", rng, (9, 12), (8, 10), 2, scale=nearest, sample=13),
        case("quarter turn", rng, (6, 6), rotation=[90.0, 90.0]),
        case("turned", rng, (9, 14), rotation=turn, sample=15),
        case("turned line", rng, (1, 9), rotation=[-30.0, 30.0], sample=16),
        case("channels last", rng, (5, 6), channels_last=True, sample=17),
        case("shared", rng, (9, 12), (4, 8), sample=18, shared=True, noise=0.1),
        case(
            "all of it, 12",
            rng,
            (20, 17),
            (15, 14),
            2,
            scale=bilinear,
            rotation=turn,
            channels_last=True,
            shared=True,
            sample=19,
            flip=0.5,
            noise=0.05,
            **jitter,
        ),
    ]
    assert {c["draw"][2] for c in out} == {0, 1}
    with open(os.path.join(HERE, "images.json"), "w") as f:
        json.dump({"note": "see generate_images.py", "cases": out}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    HERE = sys.argv[1] if len(sys.argv) > 1 else HERE
    os.makedirs(HERE, exist_ok=True)
    images()
