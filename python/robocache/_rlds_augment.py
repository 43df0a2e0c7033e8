"""Random changes of images with TensorFlow's formulas, as OpenVLA's image_augment_kwargs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import Misuse, Unsupported

__all__ = ["ImageAugmentation"]

Planes = np.ndarray[Any, np.dtype[np.float32]]  # (3, T, H, W), values in [0, 1].


def _between(u: float, low: float, high: float) -> np.float32:
    """Returns the draw of a number between two bounds, in float32."""
    return np.float32(u) * np.float32(high - low) + np.float32(low)


def _crop_box(u: float, scale: Sequence[float], ratio: Sequence[float]) -> tuple[Any, ...]:
    """Returns top, left, height and width of the crop, as fractions. dlimp draws all from u."""
    area = _between(u, *scale)
    aspect = np.exp(_between(u, math.log(ratio[0]), math.log(ratio[1])))
    height = np.clip(np.sqrt(area / aspect), 0, 1)
    width = np.clip(np.sqrt(area * aspect), 0, 1)
    return np.float32(u) * (1 - height), np.float32(u) * (1 - width), height, width


def _blend_axis(x: Planes, start: Any, extent: Any, axis: int) -> Planes:
    """Returns x resampled along an axis: the part from start, of extent, at the same length.

    Neighbours are blended as in tf.image.crop_and_resize.
    """
    n = x.shape[axis]
    at = np.float32(start) * np.float32(n - 1) + np.arange(n, dtype=np.float32) * np.float32(extent)
    low = np.clip(np.floor(at), 0, n - 1)
    high = np.clip(np.ceil(at), 0, n - 1)
    weight = (at - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    first = x.take(low.astype(np.intp), axis)
    return first + (x.take(high.astype(np.intp), axis) - first) * weight


def _resized_crop(x: Planes, u: float, scale: Sequence[float], ratio: Sequence[float]) -> Planes:
    """Crops a random part and scales it back."""
    top, left, height, width = _crop_box(u, scale, ratio)
    return _blend_axis(_blend_axis(x, left, width, 3), top, height, 2)


def _brightness(x: Planes, u: float, max_delta: float) -> Planes:
    """Adds a random number."""
    return x + _between(u, -max_delta, max_delta)


def _contrast(x: Planes, u: float, lower: float, upper: float) -> Planes:
    """Scales the distance from the mean of each channel and frame."""
    mean = x.mean((2, 3), dtype=np.float32, keepdims=True)
    return (x - mean) * _between(u, lower, upper) + mean


def _saturation(x: Planes, u: float, lower: float, upper: float) -> Planes:
    """Scales the saturation of HSV, up to 1."""
    value = x.max(0)
    chroma = value - x.min(0)
    # A saturation s = chroma / value becomes min(s · factor, 1).
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.fmin(value / chroma, _between(u, lower, upper))
    return value - (value - x) * factor


def _hue(x: Planes, u: float, max_delta: float) -> Planes:
    """Turns the hue of HSV by a random part of the circle."""
    red, green, blue = x
    value = x.max(0)
    chroma = value - x.min(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sixths = np.where(
            value == red,
            (green - blue) / chroma,
            np.where(value == green, (blue - red) / chroma + 2, (red - green) / chroma + 4),
        )
    sixths = np.where(chroma > 0, sixths, 0) + np.float32(6) * _between(u, -max_delta, max_delta)
    out = np.empty_like(x)
    for channel, shift in enumerate((5, 3, 1)):
        k = sixths + np.float32(shift)
        k -= np.float32(6) * np.floor(k * np.float32(1 / 6))
        out[channel] = value - chroma * np.clip(np.minimum(k, 4 - k), 0, 1)
    return out


def _flip(axis: int) -> Callable[[Planes, float], Planes]:
    """Returns the operation that reverses an axis of every second image."""
    return lambda x, u: np.flip(x, axis) if u < 0.5 else x


def _quarter_turns(x: Planes, u: float) -> Planes:
    """Rotates by a random number of quarter turns counterclockwise."""
    return np.rot90(x, int(4 * u), (2, 3))


# The operations by name, and the names of their arguments.
_OPERATIONS: dict[str, tuple[Callable[..., Planes], tuple[str, ...]]] = {
    "random_resized_crop": (_resized_crop, ("scale", "ratio")),
    "random_brightness": (_brightness, ("max_delta",)),
    "random_contrast": (_contrast, ("lower", "upper")),
    "random_saturation": (_saturation, ("lower", "upper")),
    "random_hue": (_hue, ("max_delta",)),
    "random_flip_left_right": (_flip(3), ()),
    "random_flip_up_down": (_flip(2), ()),
    "random_rot90": (_quarter_turns, ()),
}


class ImageAugmentation:
    """The random changes of the images of one camera.

    Args:
        kwargs: {"augment_order": [operation, ...], operation: its arguments by position or name}.
    """

    def __init__(self, kwargs: Mapping[str, Any]) -> None:
        where = "image_augment_kwargs"
        if not isinstance(kwargs, Mapping) or "augment_order" not in kwargs:
            raise Misuse(f"{where}: expected a dict with augment_order, or one per camera")
        self._steps: list[tuple[Callable[..., Planes], list[Any]]] = []
        if unknown := kwargs.keys() - {*kwargs["augment_order"], "augment_order"}:
            raise Misuse(f"{where}: {min(unknown)!r} is not in augment_order")
        for name in kwargs["augment_order"]:
            if name not in _OPERATIONS:
                hint = f"use {', '.join(_OPERATIONS)}"
                raise Unsupported(f"{where}: the operation {name!r}", hint=hint)
            function, names = _OPERATIONS[name]
            given = kwargs.get(name, ())
            values = given if isinstance(given, Mapping) else dict(zip(names, given))
            if set(values) != set(names) or len(given) != len(names):
                raise Misuse(f"{where}: {name}={given!r}: expected {', '.join(names) or 'nothing'}")
            self._steps.append((function, [values[n] for n in names]))

    def __call__(self, frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns frames (T, H, W, 3), uint8, with one draw per operation for all frames."""
        x = np.ascontiguousarray(frames.transpose(3, 0, 1, 2)) * np.float32(1 / 255)
        for function, arguments in self._steps:
            x = np.clip(function(x, rng.random(), *arguments), 0, 1)
        # TensorFlow's conversion to bytes.
        return np.minimum(x * np.float32(255.5), 255).astype(np.uint8).transpose(1, 2, 3, 0)
