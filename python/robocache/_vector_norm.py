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
    """Returns the vector of the stored columns of its parts, one part after the other."""
    x = _stored_rows(key, one, v, sum(p["columns"] for p in one["parts"]))
    out = np.zeros((*x.shape[:-2], one["length"] if one["rows"] else 1, one["width"]))
    first = place = 0
    for part in one["parts"]:
        values = _part_values(part, x[..., first : first + part["columns"]], batch)
        n = part["width"]
        out[..., : x.shape[-2], place : place + n] = _normalize(part.get("norm"), values)
        first, place = first + part["columns"], place + n
    out = out.astype(one["dtype"])
    return out if one["rows"] else out[..., 0, :]


def restore_columns(key: str, one: Mapping[str, Any], batch: Mapping[str, Any], v: Any) -> Array:
    """Returns the stored columns of the parts of a vector, without its padding."""
    y = np.asarray(v, np.float64)
    size = (one["length"], one["width"]) if one["rows"] else (one["width"],)
    if y.shape[-len(size) :] != size:
        raise Misuse(f"{key}: values of shape {y.shape}: expected (…, {', '.join(map(str, size))})")
    y = y[..., : one["rows"], :] if one["rows"] else y[..., None, :]
    out, place = [], 0
    for part in one["parts"]:
        values = _denormalize(part, y[..., place : place + part["width"]])
        out.append(_stored_values(part, values, batch))
        place += part["width"]
    x = np.concatenate(out, -1).astype(one["dtype"])
    return x if one["rows"] else x[..., 0, :]


def part_slices(one: Mapping[str, Any]) -> dict[str, slice]:
    """Returns the place of each part among the stored columns."""
    ends = np.cumsum([0, *(p["columns"] for p in one["parts"])]).tolist()
    return {p["name"]: slice(a, b) for p, a, b in zip(one["parts"], ends, ends[1:])}


def _stored_rows(key: str, one: Mapping[str, Any], v: Any, columns: int) -> Array:
    """Returns stored columns as (..., T, columns)."""
    x = np.asarray(v, np.float64)
    size = (one["rows"], columns) if one["rows"] else (columns,)
    if x.shape[-len(size) :] != size:
        raise Misuse(f"{key}: values of shape {x.shape}: expected (…, {', '.join(map(str, size))})")
    return x if one["rows"] else x[..., None, :]


def _round32(x: Array, rounds: Any = True) -> Array:
    """Returns x rounded to float32, if rounds is true."""
    return x.astype(np.float32).astype(np.float64) if rounds else x


def _reference_row(part: Mapping[str, Any], batch: Mapping[str, Any]) -> Array:
    """Returns the reference's number of each column, (..., 1, columns)."""
    key = part["key"]
    if key not in batch:
        raise Misuse(
            f"the part {part['name']!r} is relative to {key!r}, which the batch lacks",
            hint=f'norm.inverse({{…, "{key}": row}}) with the row of the sample, as stored',
        )
    row, at = np.asarray(batch[key], np.float64), part["reference"]
    known = [c for c in at if c < row.shape[-1]]
    numbers = np.zeros((*row.shape[:-1], len(at)))
    numbers[..., : len(known)] = row[..., known]
    return _round32(numbers, part.get("round_input"))[..., None, :]


def _part_values(part: Mapping[str, Any], x: Array, batch: Mapping[str, Any]) -> Array:
    """Returns the values of a part before normalization."""
    x = _round32(x, part.get("round_input"))
    relative, turn = part.get("relative"), part.get("rotation")
    reference = _reference_row(part, batch) if relative else np.zeros(1)
    if relative == "difference":
        x = x - np.where(part["minus"], reference, 0)
    if turn:
        at = turn["at"]
        end = at + form_width(turn["from"])
        m = rotation_matrix(turn["from"], x[..., at:end])
        head = x[..., :at]
        if relative == "pose":
            back = np.swapaxes(rotation_matrix(turn["from"], reference[..., at:end]), -1, -2)
            moved = head[..., at - 3 :] - reference[..., at - 3 : at]
            head = np.concatenate([head[..., : at - 3], (back @ moved[..., None])[..., 0]], -1)
            m = back @ m
        x = np.concatenate([head, rotation_numbers(turn["to"], m), x[..., end:]], -1)
    return _round32(x, part.get("round_values"))


def _stored_values(part: Mapping[str, Any], x: Array, batch: Mapping[str, Any]) -> Array:
    """Returns the stored columns of a part from its values before normalization."""
    relative, turn = part.get("relative"), part.get("rotation")
    reference = _reference_row(part, batch) if relative else np.zeros(1)
    if turn:
        at = turn["at"]
        end = at + form_width(turn["to"])
        m, head = rotation_matrix(turn["to"], x[..., at:end]), x[..., :at]
        if relative == "pose":
            first = rotation_matrix(
                turn["from"], reference[..., at : at + form_width(turn["from"])]
            )
            moved = (first @ head[..., at - 3 :, None])[..., 0] + reference[..., at - 3 : at]
            m, head = first @ m, np.concatenate([head[..., : at - 3], moved], -1)
        x = np.concatenate([head, rotation_numbers(turn["from"], m), x[..., end:]], -1)
    return x + np.where(part["minus"], reference, 0) if relative == "difference" else x


def form_width(form: str) -> int:
    """Returns the number of columns of a form of a rotation."""
    return _WIDTHS.get(form, 3)


def _normalize(norm: Mapping[str, Any] | None, x: Array) -> Array:
    """Normalizes the values (..., T, D) of a part."""
    if norm is None:
        return x
    if norm["mode"] == "sin_cos":
        return np.concatenate([np.sin(x), np.cos(x)], -1)
    if norm["mode"] == "binary":
        return (x > norm["threshold"]).astype(np.float64)
    how, a, b = (np.asarray(norm[n]) for n in ("how", "a", "b"))
    step, rest = norm.get("round"), norm.get("mixed")
    x = _round32(x, step)
    with np.errstate(all="ignore"):
        quotient = _round32(_round32(x - a, step) / b, rest)
        y = np.select(
            [how == n for n in ("centred", "scaled", "affine", "shifted", "constant")],
            [
                quotient,
                _round32(_round32(2 * quotient, rest) - 1, rest),
                _round32(_round32(x * a, step) + b, rest),
                _round32(x - a, rest),
                np.broadcast_to(a, x.shape),
            ],
            x,
        )
    return np.clip(y, -1, 1) if norm.get("clip") else y


def _denormalize(part: Mapping[str, Any], y: Array) -> Array:
    """Returns the values of a part before normalization. Clipped values stay clipped."""
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
