"""Tensors of the op vectors, with any layout."""

from fractions import Fraction as F

from .numbers import FORMATS, bits_of, hexa, width


def strides(shape):
    """Returns the strides of C order."""
    out, n = [], 1
    for d in reversed(shape):
        out.insert(0, n)
        n *= d
    return out


def indices(shape):
    """Yields the indices of all elements in C order."""
    if not shape:
        yield ()
        return
    for i in range(shape[0]):
        for rest in indices(shape[1:]):
            yield (i, *rest)


class Tensor:
    """A tensor. bits has the bits of each element in C order. Without bits the memory is a5a5…, as
    that of a result before a run.
    """

    def __init__(self, dtype, shape, bits=None, stride=None, base=None, skip=0):
        self.dtype, self.shape, self.skip = dtype, list(shape), skip
        self.stride = list(stride) if stride is not None else strides(shape)
        low = (
            sum(min(0, s * (n - 1)) for s, n in zip(self.stride, self.shape))
            if 0 not in self.shape
            else 0
        )
        self.base = -low if base is None else base
        self.places = [
            self.base + sum(i * s for i, s in zip(ix, self.stride)) for ix in indices(self.shape)
        ]
        size = max(self.places, default=-1) + 1
        self.memory = [(0xA5A5A5A5A5A5A5A5 >> (64 - width(dtype)))] * size
        for p, b in zip(self.places, bits or []):
            self.memory[p] = b

    def bits(self):
        """Returns the bits of each element. With stride 0 it is the last one that was written."""
        return [self.memory[p] for p in self.places]

    def json(self, memory=True):
        """Returns the tensor as a case stores it, without its memory if memory is false."""
        d = {"dtype": self.dtype, "shape": self.shape, "stride": self.stride, "base": self.base}
        if self.skip:
            d["skip"] = self.skip
        if memory:
            d["memory"] = [hexa(b, width(self.dtype)) for b in self.memory]
        return d


def nested(tensor):
    """Returns the bits as nested lists."""
    flat = iter(tensor.bits())

    def build(shape):
        """Returns the next elements as lists of this shape."""
        return [build(shape[1:]) for _ in range(shape[0])] if shape else next(flat)

    return build(tensor.shape)


def times(values, dtype="int64", **layout):
    """Returns a tensor of times. values is a list, or one list for each entry: ns for int64, else
    seconds.
    """
    two = bool(values) and isinstance(values[0], (list, tuple))
    flat = [t for e in values for t in e] if two else values
    shape = [len(values), len(values[0])] if two else [len(values)]
    bits = [
        t & (1 << 64) - 1
        if dtype == "int64"
        else bits_of(F(t) if t == t and abs(t) != float("inf") else t, dtype)
        for t in flat
    ]
    nan = {"float64": 0x7FF8 << 48, "float32": 0x7FC00000}
    return Tensor(dtype, shape, [nan[dtype] if b == "nan" else b for b in bits], **layout)
