"""Converts rotations between matrices and other forms, in NumPy."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def rotation_matrix(form: str, v: Array) -> Array:
    """Returns the matrices (..., 3, 3) of rotations (..., n).

    Args:
        form: "matrix", "rot6d" (the first two rows), "rot6d_columns", "rotvec", "quat" (x, y, z,
            w), "quat_wxyz", or the axes of Euler angles: lower case for fixed axes ("xyz"), upper
            case for moving axes ("ZYX").
        v: The rotations.
    """
    if form == "matrix":
        return v.reshape(*v.shape[:-1], 3, 3)
    if form in ("rot6d", "rot6d_columns"):
        # Gram-Schmidt: b becomes orthogonal to a.
        a = v[..., :3] / _lengths(v[..., :3])
        b = v[..., 3:] - np.sum(a * v[..., 3:], -1, keepdims=True) * a
        b = b / _lengths(b)
        m = np.stack([a, b, np.cross(a, b)], -2)
        return m if form == "rot6d" else np.swapaxes(m, -1, -2)
    # All other forms except Euler angles are first converted to x, y, z, w.
    if form == "rotvec":
        angle = np.linalg.norm(v, axis=-1, keepdims=True)
        v = np.concatenate([v * np.sinc(angle / (2 * np.pi)) / 2, np.cos(angle / 2)], -1)
    elif form == "quat_wxyz":
        v = np.roll(v, -1, -1)
    elif form != "quat":
        return _euler_matrix(form, v)
    x, y, z, w = np.moveaxis(v / _lengths(v), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(r, -1) for r in rows], -2)


def rotation_numbers(form: str, m: Array) -> Array:
    """Returns the rotations (..., n) of matrices (..., 3, 3). Inverts rotation_matrix.

    A quaternion has w ≥ 0.
    """
    if form in ("matrix", "rot6d"):
        return m.reshape(*m.shape[:-2], 9)[..., : 9 if form == "matrix" else 6]
    if form == "rot6d_columns":
        return np.swapaxes(m, -1, -2).reshape(*m.shape[:-2], 9)[..., :6]
    if form not in ("quat", "quat_wxyz", "rotvec"):
        return _euler_angles(form, m)
    q = _quaternions(m)
    if form == "rotvec":
        sine = np.linalg.norm(q[..., :3], axis=-1, keepdims=True)
        angle = 2 * np.arctan2(sine, q[..., 3:])
        return q[..., :3] * np.where(sine > 1e-12, angle / np.maximum(sine, 1e-12), 2)
    return q if form == "quat" else np.roll(q, 1, -1)


def _lengths(v: Array) -> Array:
    """Returns the lengths of vectors, with a last axis of 1."""
    return np.linalg.norm(v, axis=-1, keepdims=True)


def _quaternions(m: Array) -> Array:
    """Returns the unit quaternions x, y, z, w of matrices, with w ≥ 0.

    Each row of `rows` is the quaternion times one of its components. The row of the largest
    component loses the least precision.
    """
    a, b, c, d, e, f, g, h, i = np.moveaxis(m.reshape(*m.shape[:-2], 9), -1, 0)
    rows = [
        [1 + a - e - i, b + d, c + g, h - f],
        [b + d, 1 - a + e - i, f + h, c - g],
        [c + g, f + h, 1 - a - e + i, d - b],
        [h - f, c - g, d - b, 1 + a + e + i],
    ]
    q = np.stack([np.stack(r, -1) for r in rows], -2)
    best = np.argmax(np.diagonal(q, axis1=-2, axis2=-1), -1)
    q = np.take_along_axis(q, best[..., None, None], -2)[..., 0, :]
    return q / _lengths(q) * np.where(q[..., 3:] < 0, -1, 1)


def _fixed_axes(form: str) -> tuple[int, int, int]:
    """Returns the axes of Euler angles as turns about fixed axes, in the order of the turns.

    Turns about moving axes equal turns about fixed axes in reverse order.
    """
    i, j, k = ("xyz".index(c) for c in form.lower())
    return (i, j, k) if form.islower() else (k, j, i)


def _euler_matrix(form: str, v: Array) -> Array:
    """Returns the matrices of Euler angles in radians."""
    angles = v if form.islower() else v[..., ::-1]
    m = np.eye(3)
    for axis, t in zip(_fixed_axes(form), np.moveaxis(angles, -1, 0)):
        j, k = (axis + 1) % 3, (axis + 2) % 3
        turn = np.zeros((*t.shape, 3, 3))
        turn[..., axis, axis] = 1
        turn[..., j, j] = turn[..., k, k] = np.cos(t)
        turn[..., k, j], turn[..., j, k] = np.sin(t), -np.sin(t)
        m = turn @ m
    return m


def _euler_angles(form: str, m: Array) -> Array:
    """Returns the Euler angles in radians of matrices."""
    i, j, last = _fixed_axes(form)
    k = 3 - i - j  # The axis that is neither i nor j.
    # 1 if i, j, k is a cyclic permutation of x, y, z.
    sign = 1 if (j - i) % 3 == 1 else -1
    if i == last:
        size = np.hypot(m[..., i, j], m[..., i, k])  # The sine of the middle angle.
        middle = np.arctan2(size, m[..., i, i])
        first = np.arctan2(m[..., i, j], sign * m[..., i, k])
        third = np.arctan2(m[..., j, i], -sign * m[..., k, i])
    else:
        size = np.hypot(m[..., i, i], m[..., j, i])  # The cosine of the middle angle.
        middle = np.arctan2(-sign * m[..., k, i], size)
        first = np.arctan2(sign * m[..., k, j], m[..., k, k])
        third = np.arctan2(sign * m[..., j, i], m[..., i, i])
    # Gimbal lock: only the sum or difference of the outer angles is defined. The third one is 0.
    is_locked = size < 1e-7
    first = np.where(is_locked, np.arctan2(-sign * m[..., j, k], m[..., j, j]), first)
    out = np.stack([first, middle, np.where(is_locked, 0, third)], -1)
    return out if form.islower() else out[..., ::-1]
