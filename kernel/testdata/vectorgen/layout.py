"""Tensors of the vectors of voxels, depth images and TSDF.

Numbers are stored as hex bits. Axes can be in any order, have gaps, and be flipped or expanded.
"""

import math
from fractions import Fraction as F

import numpy as np

from .numbers import bits_of, hexa, value_of, width

f32 = np.float32


def bits32(x):
    """Returns the float32 bits of x in hexadecimal, or "nan"."""
    x = f32(x)
    return "nan" if x != x else "%08x" % x.view(np.uint32)


def raw32(x):
    """Returns the float32 bits of x in hexadecimal, also of a NaN."""
    return "%08x" % f32(x).view(np.uint32)


def encode(x, dt):
    """Returns the bits of a number of type dt. NaN becomes the quiet NaN of the type."""
    x = float(x)
    if x != x:
        return {
            "float64": 0x7FF8 << 48,
            "float32": 0x7FC00000,
            "float16": 0x7E00,
            "bfloat16": 0x7FC0,
        }[dt]
    if dt == "uint16":
        return int(x)
    return bits_of(x if x == 0 or math.isinf(x) else F(x), dt)


def decode(b, dt):
    """Returns the number with bits b of type dt."""
    return float(b) if dt == "uint16" else value_of(b, dt)


def tensor(values, dt, order=None, gap=1, flip=(), expand=(), skip=0):
    """Returns a tensor of the values, and the values rounded to its type.

    order lists the axes from the outermost to the innermost one, whose stride is gap. Flipped axes
    have negative strides, expanded axes have stride 0.
    """
    values = np.asarray(values, dtype=np.float64)
    shape, n = values.shape, values.ndim
    stride, step, base = [0] * n, gap, skip
    for a in reversed(order or range(n)):
        if a in expand:
            continue
        stride[a] = step
        step *= max(shape[a], 1)
    for a in flip:
        base += stride[a] * max(shape[a] - 1, 0)
        stride[a] = -stride[a]
    size = (
        base + 1 + sum(max(s, 0) * max(d - 1, 0) for s, d in zip(stride, shape))
        if values.size
        else 0
    )
    w = 16 if dt == "uint16" else width(dt)
    memory = [0xA5A5A5A5A5A5A5A5 >> (64 - w)] * size
    for i in np.ndindex(*shape):
        memory[base + sum(a * s for a, s in zip(i, stride))] = encode(values[i], dt)
    held = np.zeros(shape)
    for i in np.ndindex(*shape):
        held[i] = decode(memory[base + sum(a * s for a, s in zip(i, stride))], dt)
    return {
        "dtype": dt,
        "shape": list(shape),
        "stride": stride,
        "base": base,
        "memory": [hexa(b, w) for b in memory],
    }, held
