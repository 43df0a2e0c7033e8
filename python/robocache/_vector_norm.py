"""Computes and restores vectors in NumPy, by the engine's description of their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._errors import Misuse
from ._rotation_forms import rotation_matrix, rotation_numbers

Array = np.ndarray
_WIDTHS = {"quat": 4, "quat_wxyz": 4, "matrix": 9, "rot6d": 6, "rot6d_columns": 6}


def compute_vector(key: str, one: Mapping[str, Any], batch: Mapping[str, Any], v: Any) -> Array:
    """Returns the vector that the engine makes of stored columns.

    Args:
        key: The key of the vector, for messages.
        one: The engine's description of the vector.
        batch: The batch with the reference rows of relative parts.
        v: The stored columns of the parts, one part after the other.
    """
    x = _stored_rows(key, one, v, sum(p["columns"] for p in one["parts"]))
    out = np.zeros((*x.shape[:-2], one["length"] if one["rows"] else 1, one["width"]))
    source = target = 0  # The first column of the part, in x and in the vector.
    for part in one["parts"]:
        columns, width = part["columns"], part["width"]
        values = _part_values(part, x[..., source : source + columns], batch)
        out[..., : x.shape[-2], target : target + width] = _normalize(part.get("norm"), values)
        source, target = source + columns, target + width
    out = out.astype(one["dtype"])
    return out if one["rows"] else out[..., 0, :]


def restore_columns(key: str, one: Mapping[str, Any], batch: Mapping[str, Any], v: Any) -> Array:
    """Returns the stored columns of the parts of a vector, without its padding.

    The arguments are those of compute_vector, except that v is the vector.
    """
    y = np.asarray(v, np.float64)
    size = (one["length"], one["width"]) if one["rows"] else (one["width"],)
    if y.shape[-len(size) :] != size:
        raise Misuse(f"{key}: values of shape {y.shape}: expected (…, {', '.join(map(str, size))})")
    y = y[..., : one["rows"], :] if one["rows"] else y[..., None, :]
    out, first = [], 0
    for part in one["parts"]:
        values = _denormalize(part, y[..., first : first + part["width"]])
        out.append(_stored_values(part, values, batch))
        first += part["width"]
    x = np.concatenate(out, -1).astype(one["dtype"])
    return x if one["rows"] else x[..., 0, :]


def part_slices(one: Mapping[str, Any]) -> dict[str, slice]:
    """Returns the stored columns of each part, by the name of the part."""
    ends = np.cumsum([0, *(p["columns"] for p in one["parts"])]).tolist()
    return {p["name"]: slice(a, b) for p, a, b in zip(one["parts"], ends, ends[1:])}


def _stored_rows(key: str, one: Mapping[str, Any], v: Any, columns: int) -> Array:
    """Returns stored columns as float64 (..., T, columns). T is 1 for a vector without rows."""
    x = np.asarray(v, np.float64)
    size = (one["rows"], columns) if one["rows"] else (columns,)
    if x.shape[-len(size) :] != size:
        raise Misuse(f"{key}: values of shape {x.shape}: expected (…, {', '.join(map(str, size))})")
    return x if one["rows"] else x[..., None, :]


def _round32(x: Array, rounds: Any = True) -> Array:
    """Returns x rounded to float32, if rounds is true."""
    return x.astype(np.float32).astype(np.float64) if rounds else x


def _reference_row(part: Mapping[str, Any], batch: Mapping[str, Any]) -> Array:
    """Returns the reference value of each column of a relative part, (..., 1, columns).

    Columns that the stream of the reference does not have are 0.
    """
    key = part["key"]
    if key not in batch:
        raise Misuse(
            f"the part {part['name']!r} is relative to {key!r}, which the batch lacks",
            hint=f'norm.inverse({{…, "{key}": row}}) with the row of the sample, as stored',
        )
    row, columns = np.asarray(batch[key], np.float64), part["reference"]
    known = [c for c in columns if c < row.shape[-1]]
    numbers = np.zeros((*row.shape[:-1], len(columns)))
    numbers[..., : len(known)] = row[..., known]
    return _round32(numbers, part.get("round_input"))[..., None, :]


def _part_values(part: Mapping[str, Any], x: Array, batch: Mapping[str, Any]) -> Array:
    """Returns the values of a part before normalization, from its stored columns x.

    A pose has its position in the three columns before the rotation. A relative pose is the pose in
    the frame of the reference.
    """
    x = _round32(x, part.get("round_input"))
    relative, rotation = part.get("relative"), part.get("rotation")
    reference = _reference_row(part, batch) if relative else np.zeros(1)
    if relative == "difference":
        x = x - np.where(part["minus"], reference, 0)
    if rotation:
        start = rotation["at"]
        end = start + form_width(rotation["from"])
        m = rotation_matrix(rotation["from"], x[..., start:end])
        head = x[..., :start]  # The columns before the rotation.
        if relative == "pose":
            reference_m = rotation_matrix(rotation["from"], reference[..., start:end])
            inverse = np.swapaxes(reference_m, -1, -2)
            moved = head[..., start - 3 :] - reference[..., start - 3 : start]
            position = (inverse @ moved[..., None])[..., 0]
            head = np.concatenate([head[..., : start - 3], position], -1)
            m = inverse @ m
        x = np.concatenate([head, rotation_numbers(rotation["to"], m), x[..., end:]], -1)
    return _round32(x, part.get("round_values"))


def _stored_values(part: Mapping[str, Any], x: Array, batch: Mapping[str, Any]) -> Array:
    """Returns the stored columns of a part. Inverts _part_values; x are its results."""
    relative, rotation = part.get("relative"), part.get("rotation")
    reference = _reference_row(part, batch) if relative else np.zeros(1)
    if rotation:
        start = rotation["at"]
        end = start + form_width(rotation["to"])
        m = rotation_matrix(rotation["to"], x[..., start:end])
        head = x[..., :start]  # The columns before the rotation.
        if relative == "pose":
            reference_end = start + form_width(rotation["from"])
            reference_m = rotation_matrix(rotation["from"], reference[..., start:reference_end])
            turned = (reference_m @ head[..., start - 3 :, None])[..., 0]
            position = turned + reference[..., start - 3 : start]
            head = np.concatenate([head[..., : start - 3], position], -1)
            m = reference_m @ m
        x = np.concatenate([head, rotation_numbers(rotation["from"], m), x[..., end:]], -1)
    return x + np.where(part["minus"], reference, 0) if relative == "difference" else x


def form_width(form: str) -> int:
    """Returns the number of columns of a form of a rotation."""
    return _WIDTHS.get(form, 3)


def _normalize(norm: Mapping[str, Any] | None, x: Array) -> Array:
    """Returns the normalized values of a part, from its values x (..., T, D).

    norm["how"] selects the formula of each column:
        centred: (x - a) / b
        scaled: 2 * (x - a) / b - 1
        affine: x * a + b
        shifted: x - a
        constant: a
        any other: x

    Results are rounded to float32 if the engine computes them in float32: norm["round"] is for the
    first operation on x, norm["mixed"] for the others.
    """
    if norm is None:
        return x
    if norm["mode"] == "sin_cos":
        return np.concatenate([np.sin(x), np.cos(x)], -1)
    if norm["mode"] == "binary":
        return (x > norm["threshold"]).astype(np.float64)
    how, a, b = (np.asarray(norm[n]) for n in ("how", "a", "b"))
    rounds_first, rounds_rest = norm.get("round"), norm.get("mixed")
    x = _round32(x, rounds_first)
    with np.errstate(all="ignore"):
        quotient = _round32(_round32(x - a, rounds_first) / b, rounds_rest)
        y = np.select(
            [how == n for n in ("centred", "scaled", "affine", "shifted", "constant")],
            [
                quotient,
                _round32(_round32(2 * quotient, rounds_rest) - 1, rounds_rest),
                _round32(_round32(x * a, rounds_first) + b, rounds_rest),
                _round32(x - a, rounds_rest),
                np.broadcast_to(a, x.shape),
            ],
            x,
        )
    return np.clip(y, -1, 1) if norm.get("clip") else y


def _denormalize(part: Mapping[str, Any], y: Array) -> Array:
    """Returns the values of a part before normalization. Clipped values stay clipped.

    Inverts the formulas of _normalize. The result for a constant column is norm["b"].
    """
    norm = part.get("norm")
    if norm is None or norm["mode"] == "binary":
        return y
    if norm["mode"] == "sin_cos":
        return np.arctan2(y[..., : part["values"]], y[..., part["values"] :])
    how, a, b = (np.asarray(norm[n]) for n in ("how", "a", "b"))
    with np.errstate(all="ignore"):
        return np.select(
            [how == n for n in ("centred", "scaled", "affine", "shifted", "constant")],
            [y * b + a, (y + 1) / 2 * b + a, (y - b) / a, y + a, np.broadcast_to(b, y.shape)],
            y,
        )
