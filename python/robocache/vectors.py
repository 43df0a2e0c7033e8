"""Vector and Part describe keys of a batch that are made of columns of numeric streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from ._check_fields import check_field_names
from ._checks import is_integer
from ._errors import Misuse

__all__ = ["Part", "Vector", "vectors_config"]

_NORM = (
    *("mode", "low", "high", "mean", "std", "scale", "offset", "epsilon", "clip", "constant"),
    *("constant_below", "constant_columns", "isclose", "per_step", "threshold", "precision"),
)


@check_field_names
@dataclass(frozen=True)
class Part:
    """The numbers that a robocache.Vector takes of one stream.

    Each row goes through these steps: columns, relative, rotation, norm.

    Attributes:
        key: The stream.
        start: The first column. Default 0.
        stop: The column after the last one. Default: the end of the row.
        name: The name of the part. Default: key.
        columns: The columns in their order, in place of start and stop.
        beyond: The values of rows outside the episode. Default "repeat".

            - "repeat": the first or last row of the episode.
            - "zero": zeros.
            - "neutral": no motion. Columns that are changes become 0, or the identity rotation.
              All other columns repeat the first or last row.
        pad_normalized: Whether beyond="zero" writes the zeros after norm. Default False: before
            norm, so that they are normalized like other numbers.
        relative: How numbers become relative to a reference row. Default None: values as stored.

            - "difference": the row minus the reference row.
            - "pose": T0⁻¹T, where T is the pose (position and rotation) of the row, and T0 that of
              the reference row. Other columns stay absolute.
        reference: (key, column): the stream of the reference row, and its column for the first
            column of the part. Default: the same columns of the same stream.
        reference_row: The offset of the reference row from the sample, in rows. Default 0. If this
            row is outside the episode, the nearest row of the episode is used.
        absolute: Columns of the part that stay absolute, such as a gripper. Default: none.
        is_relative: Columns of the part that are stored as changes, for beyond="neutral". True: all
            columns. Default: none.
        rotation: (form as stored, form as delivered). Default: no conversion. The forms are:

            - "quat" (x, y, z, w) and "quat_wxyz".
            - "rotvec": a rotation vector in radians.
            - "matrix" (9 numbers by rows), "rot6d" (its first two rows) and "rot6d_columns" (its
              first two columns).
            - "xyz" (about fixed axes) and "XYZ" (about moving axes): Euler angles in radians.
        rotation_at: The first column of the rotation in the part. Default 3 for "pose", else 0.
        precision: What is rounded to float32 before norm. "float64" (default): nothing. "float32":
            the stored numbers, and the results of relative and rotation. "mixed": only the stored
            numbers.
        norm: A mode, or a dict with "mode" and:

            - "low", "high": (D,), or (T, D) with one row per step, for "min_max", "quantiles",
              "quantile10" and "limits": 2 (x - low) / (high - low + epsilon) - 1. "limits" computes
              it as scale · x + offset.
            - "mean", "std": for "mean_std": (x - mean) / (std + epsilon).
            - "scale", "offset": for "affine": x · scale + offset.
            - "sin_cos": all sines, then all cosines. "binary": 1 above "threshold" (0.5), else 0.
            - "epsilon": default 0. "clip": whether to limit results to [-1, 1].
            - "constant": the result of a constant column: "zero" (default without epsilon), "keep"
              (x), "lowest" (-1), "shift" (x - low), or "formula" (default with epsilon).
            - "constant_below": a column is constant if its range is less. "constant_columns":
              columns that are constant in any case. "isclose": also by np.isclose(high, low).
            - "precision": "float64" (default), "float32", or "mixed": the quotient is rounded to
              float32, and the rest is computed in float32.

            Without numbers, the statistics of the dataset apply to columns as stored. Other parts,
            and all with "per_step" (one row of numbers per step), are counted at opening, over
            the windows of the selected episodes. Default: not normalized.

    Example:
        robocache.Part("action", 0, 7, relative="difference", reference=("observation.state", 0))
    """

    key: str
    start: int = 0
    stop: int | None = None
    _: KW_ONLY
    name: str | None = None
    columns: Sequence[int] | None = None
    beyond: Literal["repeat", "zero", "neutral"] | None = None
    pad_normalized: bool = False
    relative: Literal["difference", "pose"] | None = None
    reference: tuple[str, int] | None = None
    reference_row: int = 0
    absolute: Sequence[int] | None = None
    is_relative: Sequence[int] | bool | None = None
    rotation: tuple[str, str] | None = None
    rotation_at: int | None = None
    precision: Literal["float64", "float32", "mixed"] | None = None
    norm: Mapping[str, Any] | str | None = None


@check_field_names
@dataclass(frozen=True, kw_only=True)
class Vector:
    """A key of the batch: the numbers of its parts, one after the other.

    The tensor is (B, length, width), or (B, width) without rows. With rows, `<key>_is_pad` (bool,
    (B, length)) is True for rows outside the episode and for padding. A vector with the key of a
    stream replaces the stream in the batch. Other vectors are added to the streams of keys=.

    Attributes:
        parts: The robocache.Part objects.
        rows: Offsets from the sample, in rows. Default: the sample's own row.
        length: The number of rows after padding with zeros. Default: len(rows).
        width: The number of numbers of a row after padding with zeros. Default: those of the parts.
        mask: The key of a mask, bool (B, length, width): True for numbers of parts, False for
            padding with zeros. Default: no mask.
        separate: Whether each part has a key of its own, "<key>.<name of the part>".
        dropout: The probability that the vector of a sample is zeros: a pure function of seed,
            epoch and sample. Default 0. For Loader only.
        dtype: "float32" (default) or "float64".

    Example:
        robocache.Vector(parts=[robocache.Part("action", 0, 7)], rows=range(16), width=32)
    """

    parts: Sequence[Part]
    rows: Sequence[int] | None = None
    length: int | None = None
    width: int | None = None
    mask: str | None = None
    separate: bool = False
    dropout: float = 0.0
    dtype: Literal["float32", "float64"] | None = None


def vectors_config(name: str, v: Any) -> dict[str, Any]:
    """Returns the engine's configuration of {key: Vector}."""
    if not isinstance(v, Mapping):
        raise Misuse(f"{name}={v!r}: expected a dict of robocache.Vector by key")
    return {str(k): _vector_config(f"{name}[{k!r}]", x) for k, x in v.items()}


def _vector_config(name: str, v: Any) -> dict[str, Any]:
    """Returns the engine's configuration of one Vector."""
    if isinstance(v, Mapping):
        return dict(v)  # As the engine returned it.
    if not isinstance(v, Vector):
        raise Misuse(f"{name}={v!r}: expected a robocache.Vector")
    out = _set_fields(v)
    out["parts"] = [_part_config(f"{name}.parts[{i}]", p) for i, p in enumerate(v.parts)]
    if v.rows is not None:
        out["rows"] = _integers(f"{name}.rows", v.rows)
    return out


def _set_fields(v: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that are not None."""
    fields = {f.name: getattr(v, f.name) for f in dataclasses.fields(v)}
    return {k: x for k, x in fields.items() if x is not None}


def _part_config(name: str, p: Any) -> dict[str, Any]:
    """Returns the engine's configuration of one Part."""
    if not isinstance(p, Part):
        raise Misuse(f"{name}={p!r}: expected a robocache.Part")
    out = _set_fields(p)
    for field in ("columns", "absolute"):
        if field in out:
            out[field] = _integers(f"{name}.{field}", out[field])
    if p.reference is not None:
        if not isinstance(p.reference, (tuple, list)) or len(p.reference) != 2:
            raise Misuse(f"{name}.reference={p.reference!r}: expected (key, column)")
        out["reference"] = {"key": p.reference[0], "start": p.reference[1]}
    first_column = out.pop("rotation_at", 3 if p.relative == "pose" else 0)
    if p.rotation is not None:
        if not isinstance(p.rotation, (tuple, list)) or len(p.rotation) != 2:
            raise Misuse(f"{name}.rotation={p.rotation!r}: expected (form, form)")
        out["rotation"] = {"from": p.rotation[0], "to": p.rotation[1], "at": first_column}
    if isinstance(p.is_relative, bool):
        del out["is_relative"]
        if p.is_relative:
            out["all_relative"] = True
    elif p.is_relative is not None:
        out["is_relative"] = _integers(f"{name}.is_relative", p.is_relative)
    if p.norm is not None:
        out["norm"] = _norm_config(f"{name}.norm", p.norm)
    return out


def _norm_config(name: str, v: Any) -> Any:
    """Returns the engine's configuration of a norm."""
    if isinstance(v, str):
        return v
    if not isinstance(v, Mapping) or set(v) - set(_NORM):
        raise Misuse(f"{name}={v!r}: expected a mode, or a dict of {', '.join(_NORM)}")
    out = {k: x for k, x in v.items() if x is not None}
    for k in set(out) & {"low", "high", "mean", "std", "scale", "offset"}:
        try:
            numbers = np.asarray(out[k], np.float64)
        except (TypeError, ValueError):
            numbers = np.empty(())
        if numbers.ndim not in (1, 2) or not np.isfinite(numbers).all():
            raise Misuse(f"{name}[{k!r}]: expected finite numbers (D,) or (T, D)")
        out[k] = numbers.tolist()
    return out


def _integers(name: str, v: Any) -> list[int]:
    """Returns v as a list of ints. Raises Misuse for text, dicts and other numbers."""
    if isinstance(v, (str, bytes, Mapping)) or not all(is_integer(x) for x in v):
        raise Misuse(f"{name}={v!r}: expected a list of integers")
    return [int(x) for x in v]
