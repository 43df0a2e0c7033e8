"""Floats as bits. Every rounding is that of a rational number, to nearest even."""

import math, struct
from fractions import Fraction as F

FORMATS = {
    "float64": (53, -1022, 1023, 64),
    "float32": (24, -126, 127, 32),
    "float16": (11, -14, 15, 16),
    "bfloat16": (8, -126, 127, 16),
}
INTS = {
    "bool": (8, 0),
    "int8": (8, 1),
    "int16": (16, 1),
    "int32": (32, 1),
    "int64": (64, 1),
    "uint8": (8, 0),
    "uint16": (16, 0),
    "uint32": (32, 0),
    "uint64": (64, 0),
}


def bits_of(x, fmt):
    """Returns the bits of x in the format, or "nan".

    x is a Fraction, or a float for zeros, infinities and NaN.
    """
    p, emin, emax, width = FORMATS[fmt]  # significant bits, exponents of normal numbers, bits
    ebits = width - p
    top = ((1 << ebits) - 1) << (p - 1)
    sign = 0
    if isinstance(x, float):
        if math.isnan(x):
            return "nan"
        sign = 1 << (width - 1) if math.copysign(1, x) < 0 else 0
        if math.isinf(x):
            return sign | top
        x = F(x)
    if x == 0:
        return sign
    sign = 1 << (width - 1) if x < 0 else 0
    x = abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if F(2) ** e > x:
        e -= 1
    e = max(e, emin)
    # x is q times its last place. Round q to the integer m; r is the remainder.
    q = x / F(2) ** (e - p + 1)
    m = q.numerator // q.denominator
    r = q - m
    if r > F(1, 2) or r == F(1, 2) and m & 1:
        m += 1
    if m == 1 << p:
        m, e = m >> 1, e + 1
    if e > emax:
        return sign | top
    if m < 1 << (p - 1):
        return sign | m  # subnormal
    return sign | (e - emin + 1) << (p - 1) | m - (1 << (p - 1))


def value_of(b, fmt):
    """Returns the number with bits b, which is exact in float64."""
    p, emin, emax, width = FORMATS[fmt]
    if fmt == "float64":
        return struct.unpack(">d", b.to_bytes(8, "big"))[0]
    s = -1.0 if b >> (width - 1) else 1.0
    e, m = b >> (p - 1) & ((1 << (width - p)) - 1), b & ((1 << (p - 1)) - 1)
    if e == (1 << (width - p)) - 1:
        return math.nan if m else s * math.inf
    return s * math.ldexp(m | (1 << (p - 1) if e else 0), max(e, 1) - 1 + emin - p + 1)


def rnd(x, fmt):
    """Returns x rounded once to the format, as a float."""
    b = bits_of(x, fmt)
    return math.nan if b == "nan" else value_of(b, fmt)


def plain(*xs):
    """Reports whether all numbers are finite."""
    return all(math.isfinite(x) for x in xs)


def sub(a, b, fmt):
    """Returns a-b, rounded once."""
    if plain(a, b) and F(a) != F(b):
        return rnd(F(a) - F(b), fmt)
    return rnd(a - b, fmt)


def fma(w, d, v):
    """Returns the exact w*d+v: a Fraction, or a float if it is zero, infinite or NaN."""
    if plain(w, d, v):
        x = F(w) * F(d) + F(v)
        if x != 0:
            return x
        if F(w) * F(d) == 0:
            return w * d + v
        return 0.0
    return w * d + v


def fused(w, d, v, fmt):
    """Returns w*d+v, rounded once."""
    return rnd(fma(w, d, v), fmt)


def arith(op, a, b, fmt):
    """Returns a op b, rounded once. Zeros, infinities and NaN follow Python's floats."""
    if plain(a, b) and not (op == "/" and b == 0):
        x = {"+": F.__add__, "-": F.__sub__, "*": F.__mul__, "/": F.__truediv__}[op](F(a), F(b))
        if x != 0:
            return rnd(x, fmt)
    return rnd(
        {"+": float.__add__, "-": float.__sub__, "*": float.__mul__, "/": float.__truediv__}[op](
            float(a), float(b)
        ),
        fmt,
    )


def hexa(b, width):
    """Returns bits in hexadecimal; "nan" stays."""
    return b if b == "nan" else format(b, "0%dx" % (width // 4))


def width(dt):
    """Returns the number of bits of a type."""
    return FORMATS[dt][3] if dt in FORMATS else INTS[dt][0]


def h64(x):
    """Returns the float64 bits of x in hexadecimal."""
    return format(struct.unpack(">Q", struct.pack(">d", x))[0], "016x")


def number(b, dt):
    """Returns the number with bits b of type dt: a float or an int."""
    if dt in FORMATS:
        return value_of(b, dt)
    w, signed = INTS[dt]
    return b - (1 << w) if signed and b >> (w - 1) else b


FLOATS = ["float32", "float16", "bfloat16", "float64"]


def floats(rng, n, D, dt, scale=1.0):
    """Returns n rows of D random numbers, as bits."""
    return [[bits_of(F(rng.uniform(-scale, scale)), dt) for _ in range(D)] for _ in range(n)]


def splitmix(state):
    """Yields the numbers of SplitMix64."""
    mask = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)
