"""Philox4x32-10 and the draws of an augmentation (kernel.K16).

Words are Python integers; mpmath computes the normal numbers.
"""

from fractions import Fraction as F

import mpmath

from .numbers import arith, bits_of, fused, rnd, value_of

MASK = 0xFFFFFFFF
NOISE, DROPOUT, SCALE = 0, 1, 2


def philox(counter, key):
    """Returns one block of Philox4x32-10."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def halves(x):
    """Returns the low and the high word of a 64-bit number."""
    x &= (1 << 64) - 1
    return x & MASK, x >> 32


class Augment:
    """seed, epoch, op; noise, dropout, lo and hi are float32 values."""

    def __init__(self, seed=0, epoch=0, op=0, noise=0.0, dropout=0.0, lo=0.0, hi=0.0, samples=None):
        self.seed, self.epoch, self.op, self.samples = seed, epoch, op, samples
        self.noise, self.dropout, self.lo, self.hi = (
            rnd(F(x), "float32") for x in (noise, dropout, lo, hi)
        )
        self.key = philox([*halves(epoch), op, 0], halves(seed))[:2]

    def words(self, purpose, sample, row, col):
        """Returns the four words for a purpose, and a row and column of a sample."""
        return philox([purpose << 30 | col >> 2, row, *halves(sample)], self.key)

    def drops(self, sample, row):
        """Reports whether a row becomes zeros."""
        return (
            self.dropout > 0
            and (self.words(DROPOUT, sample, row, 0)[0] >> 8) * 2.0**-24 < self.dropout
        )

    def scale(self, sample):
        """Returns the scale of a sample."""
        u = (self.words(SCALE, sample, 0, 0)[0] >> 8) * 2.0**-24
        return arith(
            "+",
            self.lo,
            arith("*", arith("-", self.hi, self.lo, "float32"), u, "float32"),
            "float32",
        )

    def normal(self, sample, row, col):
        """Returns the normal number of an element."""
        w = self.words(NOISE, sample, row, col)
        x, y = (w[0], w[1]) if col & 2 == 0 else (w[2], w[3])
        r = mpmath.sqrt(-2 * mpmath.log(mpmath.mpf((x >> 8) + 1) / 2**24))
        a = 2 * mpmath.pi * mpmath.mpf(y >> 8) / 2**24
        g = r * (mpmath.sin(a) if col & 1 else mpmath.cos(a))
        sign, man, ex, _ = g._mpf_
        return (
            value_of(bits_of(F(-man if sign else man) * F(2) ** ex, "float32"), "float32")
            if man
            else 0.0
        )

    def run(self, x, sample, row, col, fmt):
        """Returns x after the augmentation, with each operation rounded to fmt."""
        if self.drops(sample, row):
            return 0.0
        if self.lo or self.hi:
            x = arith("*", x, self.scale(sample), fmt)
        if self.noise > 0:
            x = fused(self.noise, self.normal(sample, row, col), x, fmt)
        return x
