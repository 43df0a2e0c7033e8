"""Points of the pixels of a depth image, by section 4 of docs/kernels.md.

Every step is rounded to float32; fma is computed with rationals.
"""

import math

import numpy as np

from .numbers import fma, rnd

f32 = np.float32


def pixel(d, u, v, cam, scale, pose):
    """Returns the point of a pixel with depth d, and 1 if the depth is valid."""
    z = f32(f32(d) * f32(scale))
    if z == 0 or not np.isfinite(z):
        return [math.nan] * 3, 0
    x = f32(f32(f32(f32(u) - cam[2]) * z) / cam[0])
    y = f32(f32(f32(f32(v) - cam[3]) * z) / cam[1])
    return (list(move(pose, x, y, z)) if pose is not None else [x, y, z]), 1


def move(m, x, y, z):
    """Returns the product of a 3×4 matrix and a point."""
    out = []
    for r in range(3):
        a = float(m[4 * r + 3])
        for k, c in ((0, x), (1, y), (2, z)):
            a = rnd(fma(float(m[4 * r + k]), float(c), a), "float32")
        out.append(f32(a))
    return out


def turn(rng):
    """A rotation and a translation, float32."""
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return [f32(x) for x in np.concatenate([q, rng.normal(size=(3, 1))], axis=1).ravel()]
