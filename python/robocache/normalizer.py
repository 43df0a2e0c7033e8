"""Normalizer applies and inverts the normalization of a loader, without the dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _checks
from ._vector_norm import compute_vector, part_slices, restore_columns
from ._errors import Malformed, Misuse

__all__ = ["Normalizer"]

_FIELDS = {
    "mode",
    "clip",
    "shift",
    "scale",
    "shape",
    "image",
    "channels_last",
    "double",
    "dtype",
    "dims",
    "width",
}


class Normalizer:
    """The normalization of a loader as a function.

    norm(batch) applies the normalization, and norm.inverse(batch) inverts it. Both work with NumPy
    and torch, on any device. A batch is a dict of arrays or tensors with any of the keys. Leading
    dimensions are free: [B, T, D], [B, D] or [D]. Keys that are not normalized are returned
    unchanged. A batch without any normalized key raises Misuse. The input is not modified.

    Loader(..., normalize=norm) and MapDataset(..., normalize=norm) normalize another part of the
    data, such as the held-out episodes, with the same numbers.

    Formulas, in float32, or in float64 for float64 streams:

    - mean_std: (x - mean) / (std + 1e-8), as in lerobot.
    - All others: 2 * (x - low) / (high - low) - 1. With clip, the result is limited to [-1, 1].
    - A constant number (std or high - low is 0) becomes 0, and inverse returns the constant.

    norm applied to recorded values of a loader without normalize= equals the batches of the same
    loader with normalize=, bit by bit. There are three exceptions: interpolated float16 values are
    rounded once more, float64 streams are rounded before they become float32, and rows without a
    value are 0 in the loader. inverse returns the original values up to the rounding of float32,
    except for values that clip has limited.

    Images are (..., C, H, W), or (..., H, W, C) of a loader with layout="hwc", float32 in [0, 1] or
    uint8.

    A mixture has one Normalizer per source: norm["name"] or norm[0]. norm(batch) selects the source
    of each row by dataset_index. If missing="pad" padded the rows, only the source's own numbers
    are normalized (dims).

    A robocache.Vector is made of the columns of its parts as stored, one part after the other, and
    inverse returns these columns: norm.slices(key) has the place of each part. Both need the
    reference rows of relative parts by the key of their stream, without an axis of rows:
    norm.inverse({"action": chunk, "observation.state": state})["action"]. The result is on the
    host's NumPy path, and equals the vectors of the loader bit by bit, except for sines, cosines
    and rotations.

    Args:
        state: What state_dict() returned. Default None: an empty Normalizer.

    Raises:
        Misuse: state is not a state of a Normalizer.
        Malformed: The content of state is damaged.

    Example:
        norm = loader.normalizer  # during training
        json.dump(norm.state_dict(), open("normalizer.json", "w"))
        # On the robot, without dataset and engine:
        norm = robocache.Normalizer.from_state_dict(json.load(open("normalizer.json")))
        action = norm.inverse({"action": policy(norm({"observation.state": state}))})["action"]
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        # The checked entry of each normalized key, see _check_entry.
        self._keys: dict[str, dict[str, Any]] = {}
        # The engine's description of each vector and its parts.
        self._vectors: dict[str, dict[str, Any]] = {}
        # The sources of a mixture by name. If there are sources, _keys and _vectors are empty.
        self._sources: dict[str, Normalizer] = {}
        if state is not None:
            self.load_state_dict(state)

    @classmethod
    def of(cls, sources: list[dict[str, Any]]) -> Normalizer:
        """Returns the Normalizer for the engine's description of a loader, one entry per source."""
        if len(sources) == 1:
            return cls({"version": 1, **_content_of(sources[0])})
        return cls(
            {"version": 1, "sources": [{"name": s["name"], **_content_of(s)} for s in sources]}
        )

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Normalizer:
        """Returns a Normalizer from a state.

        Args:
            state: What state_dict() returned.

        Raises:
            Misuse: state is not a state of a Normalizer.
            Malformed: The content of state is damaged.
        """
        return cls(state)

    def state_dict(self) -> dict[str, Any]:
        """Returns the whole content as a small dict that JSON stores without loss."""
        if self._sources:
            return {
                "version": 1,
                "sources": [
                    {"name": n, **_content_of(s.state_dict())} for n, s in self._sources.items()
                ],
            }
        keys = {
            k: {n: v for n, v in entry.items() if n in _FIELDS} for k, entry in self._keys.items()
        }
        return {"version": 1, **_content_of({"keys": keys, "vectors": self._vectors})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the content by a state.

        Args:
            state: What state_dict() returned.

        Raises:
            Misuse: state is not a state of a Normalizer.
            Malformed: The content of state is damaged.
        """
        if not isinstance(state, Mapping) or not ({"keys", "sources"} & set(state)):
            raise Misuse(
                f"a state of {type(state).__name__}: expected what Normalizer.state_dict() gave"
            )
        if state.get("version") != 1:
            raise Misuse(f"a normalizer's state of version {state.get('version')!r}: expected 1")
        try:
            self._sources = {
                str(s["name"]): Normalizer({"version": 1, **_content_of(s)})
                for s in state.get("sources", ())
            }
            self._keys = {k: _check_entry(k, entry) for k, entry in state.get("keys", {}).items()}
            self._vectors = {k: dict(entry) for k, entry in state.get("vectors", {}).items()}
            for entry in self._vectors.values():
                part_slices(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise Malformed(
                f"a normalizer's state: {type(e).__name__}: {e}",
                hint="expected what Normalizer.state_dict() gave",
            ) from None

    @property
    def keys(self) -> list[str]:
        """The keys that are normalized."""
        return (
            list(dict.fromkeys(k for s in self._sources.values() for k in s.keys))
            if self._sources
            else list(self._keys)
        )

    @property
    def vectors(self) -> list[str]:
        """The keys of the vectors."""
        own = [k for s in self._sources.values() for k in s.vectors]
        return list(dict.fromkeys([*self._vectors, *own]))

    def slices(self, key: str) -> dict[str, slice]:
        """Returns {name of the part: place among the stored columns} of a vector.

        Args:
            key: The key of the vector.

        Raises:
            Misuse: There is no such vector.
        """
        return part_slices(self._vectors[_checks.check_key(key, self._vectors, "vector")])

    @property
    def sources(self) -> list[str]:
        """The names of a mixture's sources; empty for one dataset."""
        return list(self._sources)

    @property
    def dims(self) -> dict[str, list[int]]:
        """{key: positions of the source's numbers in the padded row}, for a mixture that pads."""
        return {k: list(entry["dims"]) for k, entry in self._keys.items() if entry.get("dims")}

    def __getitem__(self, source: str | int) -> Normalizer:
        """Returns the Normalizer of a mixture's source, by name or position.

        Raises:
            Misuse: There is no such source, or this is not a mixture.
        """
        if not self._sources:
            raise Misuse(
                f"source {source!r}: this is the normalizer of one dataset", hint="use it as it is"
            )
        names = self.sources
        if _checks.is_integer(source):
            if not -len(names) <= int(source) < len(names):
                raise Misuse(f"source {source} of {len(names)}")
            return self._sources[names[int(source)]]
        return self._sources[_checks.check_key(str(source), names, "source")]

    def __iter__(self) -> Any:
        raise TypeError("a Normalizer is no sequence: see .keys and .sources")

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the normalized batch, a new dict.

        Args:
            batch: A dict of arrays or tensors by key.

        Raises:
            Misuse: No key is normalized, or a shape or type does not fit.
        """
        return self._apply_keys(batch, _normalize_key, compute_vector)

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the batch before normalization, a new dict. Clipped values stay clipped.

        Args:
            batch: A dict of arrays or tensors by key.

        Raises:
            Misuse: No key is normalized, or a shape or type does not fit.
        """
        return self._apply_keys(batch, _denormalize_key, restore_columns)

    def _apply_keys(
        self, batch: Mapping[str, Any], convert_key: Any, convert_vector: Any
    ) -> dict[str, Any]:
        """Returns the batch with converted keys and vectors.

        Args:
            batch: The batch.
            convert_key: _normalize_key or _denormalize_key.
            convert_vector: compute_vector or restore_columns.
        """
        if not isinstance(batch, Mapping):
            raise Misuse(
                f"a batch of {type(batch).__name__}: expected a dict by key",
                hint='norm({"action": x})["action"]',
            )
        known = [*self.keys, *self.vectors]
        if known and batch and not set(known) & set(batch):
            raise Misuse(
                f"none of {', '.join(map(repr, batch))} was normalised",
                hint=_checks.nearest_names(str(next(iter(batch))), known),
            )
        if self._sources:
            if named := set(self.vectors) & set(batch):
                raise Misuse(
                    f"the vector {min(named)!r} of a mixture",
                    hint=f"one source's: normalizer[{self.sources[0]!r}]",
                )
            return self._apply_mixture(batch, convert_key)
        out = {
            k: convert_key(self._keys[k], _as_numbers(k, v)) if k in self._keys else v
            for k, v in batch.items()
        }
        if self._vectors:
            # Vectors are computed with NumPy, on the host.
            arrays = {k: _to_host(_as_numbers(k, v)) for k, v in batch.items() if self._reads(k)}
            for k in set(self._vectors) & set(batch):
                converted = convert_vector(k, self._vectors[k], arrays, arrays[k])
                out[k] = _like(batch[k], converted)
        return out

    def _reads(self, key: str) -> bool:
        """Reports whether a vector, or the reference of one of its parts, has this key."""
        parts = [p for entry in self._vectors.values() for p in entry["parts"]]
        return key in self._vectors or any(p.get("key") == key for p in parts)

    def _apply_mixture(self, batch: Mapping[str, Any], convert_key: Any) -> dict[str, Any]:
        """Returns the batch of a mixture, each row converted with the statistics of its source.

        Args:
            batch: The batch. dataset_index has the position of the source of each row.
            convert_key: _normalize_key or _denormalize_key.
        """
        if "dataset_index" not in batch:
            raise Misuse(
                "the batch of a mixture has no dataset_index, which names the source of each row",
                hint="Request the key dataset_index, or normalize one source: "
                f"normalizer[{self.sources[0]!r}](batch)",
            )
        index = np.asarray(_to_host(batch["dataset_index"]))
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < len(self._sources):
            raise Misuse(
                f"dataset_index {index.min()} to {index.max()} of {len(self._sources)} sources"
            )
        out = dict(batch)
        is_batch = index.ndim > 0  # False for one sample, whose index is one number.
        for key in set(self.keys) & set(batch):
            values = _as_numbers(key, batch[key])
            # The result. It has the dtype of the first source with rows in the batch.
            result = None
            for position, source in enumerate(self._sources.values()):
                rows = np.flatnonzero(index == position)
                if not rows.size:
                    continue
                part = values[_index_like(rows, values)] if is_batch else values
                if key in source._keys:
                    part = convert_key(source._keys[key], part)
                if not is_batch:
                    result = part
                    continue
                if result is None:
                    result = _empty_like(part, values.shape)
                result[_index_like(rows, values)] = part
            out[key] = values if result is None else result
        return out

    def __repr__(self) -> str:
        if self._sources:
            return f"<robocache.Normalizer of the sources {', '.join(self._sources)}>"
        names = [f"{k} ({entry['mode']})" for k, entry in self._keys.items()]
        what = ", ".join([*names, *(f"{k} (vector)" for k in self._vectors)])
        return f"<robocache.Normalizer of {what or 'nothing'}>"


def _content_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys and the vectors of a state."""
    vectors = state.get("vectors")
    return {"keys": state["keys"], **({"vectors": vectors} if vectors else {})}


def _like(v: Any, x: np.ndarray) -> Any:
    """Returns an array as a tensor on the device of v, if v is a tensor."""
    torch = _torch_of(v)
    return torch.from_numpy(x).to(v.device) if torch else x


def _check_entry(key: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the checked entry of one key.

    "_vectors" has shift and scale as float32 arrays. "_made" caches them as tensors by device.
    """
    out = dict(entry)
    shift, scale = (np.asarray(out[n], np.float32) for n in ("shift", "scale"))
    size = int(np.prod(out["shape"]))
    if (
        shift.ndim != 1
        or shift.shape != scale.shape
        or not shift.size
        or size % shift.size
        or not isinstance(out["mode"], str)
    ):
        raise ValueError(f"{key}: a shift and a scale for each of {out['shape']}")
    if out.get("dims") and (
        len(out["dims"]) != size or min(out["dims"]) < 0 or max(out["dims"]) >= out["width"]
    ):
        raise ValueError(f"{key}: a position among {out['width']} for each of {size} numbers")
    out["_vectors"] = (shift, scale)
    out["_made"] = {}
    return out


def _torch_of(v: Any) -> Any:
    """Returns the torch module if v is a tensor, else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(v, torch.Tensor) else None


def _to_host(v: Any) -> Any:
    """Returns v as an array on the host."""
    return v.detach().cpu().numpy() if _torch_of(v) else v


def _index_like(at: np.ndarray, v: Any) -> Any:
    """Returns an index array on the device of v."""
    torch = _torch_of(v)
    return torch.from_numpy(at).to(v.device) if torch else at


def _empty_like(part: Any, shape: Any) -> Any:
    """Returns an uninitialized array or tensor with the dtype and device of part."""
    return part.new_empty(shape) if _torch_of(part) else np.empty(shape, part.dtype)


def _as_numbers(key: str, v: Any) -> Any:
    """Returns v as a tensor or an array of numbers."""
    if _torch_of(v):
        return v
    try:
        a = np.asarray(v)
    except ValueError:
        a = np.empty(0, object)
    if a.dtype.kind not in "fiub":
        raise Misuse(f"{key}: expected numbers, found {type(v).__name__}")
    return a


def _shift_and_scale(entry: dict[str, Any], v: Any, wide: Any, torch: Any) -> tuple[Any, Any]:
    """Returns shift and scale of an entry, on the device of v and in the dtype `wide`."""
    if torch is None:
        return tuple(x.astype(wide) for x in entry["_vectors"])  # type: ignore[return-value]
    made = entry["_made"].get(v.device)
    if made is None:
        made = entry["_made"][v.device] = tuple(
            torch.from_numpy(x).to(v.device, wide) for x in entry["_vectors"]
        )
    return made


def _as_rows(entry: dict[str, Any], values: Any) -> tuple[Any, Any, Any]:
    """Returns values as rows of numbers for the computation.

    A value with padding (dims) contributes only the columns of its source.

    Args:
        entry: The entry of the key.
        values: An array or a tensor.

    Returns:
        (rows, restore_shape, wide). The rows have shape (..., n), where n is the number of
        statistics, and the dtype `wide` of the computation: float32, or float64 for float64 streams.
        restore_shape(rows, dtype) converts rows back to the shape of values. Padding keeps its
        numbers from values, in this dtype.

    Raises:
        Misuse: The shape of values does not fit the entry.
    """
    library = _torch_of(values) or np
    wide = library.float64 if entry.get("double") else library.float32
    if entry.get("image"):
        rows, restore_shape = _image_rows(entry, values, wide)
    else:
        rows, restore_shape = _number_rows(entry, values, wide)
    return rows, restore_shape, wide


def _image_rows(entry: dict[str, Any], images: Any, wide: Any) -> tuple[Any, Any]:
    """Returns the rows of images, and their restore_shape; see _as_rows."""
    torch = _torch_of(images)
    channels = int(entry["shape"][0])
    statistics = len(entry["_vectors"][0])  # One per channel, or one for all channels.
    axis = -1 if entry.get("channels_last") else -3
    if images.ndim < 3 or images.shape[axis] not in (statistics, *map(int, entry["shape"])):
        shape = f"height, width, {channels}" if axis == -1 else f"{channels}, height, width"
        raise Misuse(f"an image of shape {tuple(images.shape)}: expected (…, {shape})")
    is_byte = images.dtype == (torch or np).uint8
    rows = images.to(wide) if torch else images.astype(wide)
    rows = rows / _scalar_like(255, rows, torch) if is_byte else rows
    # The channels become the last axis. With one statistic for all of them, the image keeps its
    # axes and gets a last axis of length 1.
    if statistics > 1:
        rows = rows.movedim(axis, -1) if torch else np.moveaxis(rows, axis, -1)
    else:
        rows = rows[..., None]

    def restore_shape(rows: Any, _dtype: Any) -> Any:
        """Returns the channels at their axis."""
        if statistics == 1:
            return rows[..., 0]
        return rows.movedim(-1, axis) if torch else np.moveaxis(rows, -1, axis)

    return rows, restore_shape


def _number_rows(entry: dict[str, Any], values: Any, wide: Any) -> tuple[Any, Any]:
    """Returns the rows of values that are no images, and their restore_shape; see _as_rows."""
    torch = _torch_of(values)
    shape = tuple(int(extent) for extent in entry["shape"])
    dims: slice | list[int] | None = None  # The columns of the source; None: no padding.
    own = values  # The values without padding.
    if entry.get("dims") and values.ndim and values.shape[-1] == entry["width"]:
        columns = entry["dims"]
        is_prefix = columns == list(range(len(columns)))
        dims = slice(0, len(columns)) if is_prefix else columns  # A slice makes no copy.
        own = values[..., dims]
        if not shape:
            own = own[..., 0]
    if shape and tuple(own.shape[-len(shape) :]) != shape:
        also = f" or the padded (…, {entry['width']})" if entry.get("dims") else ""
        expected = ", ".join(map(str, shape))
        raise Misuse(f"values of shape {tuple(values.shape)}: expected (…, {expected}){also}")
    statistics = len(entry["_vectors"][0])
    leading = tuple(own.shape[: own.ndim - len(shape)])
    rows_per_value = int(np.prod(shape)) // statistics
    numbers = own.to(wide) if torch else own.astype(wide)

    def restore_shape(rows: Any, dtype: Any) -> Any:
        """Returns rows in the shape of values, with the padding of values."""
        restored = rows.reshape((*leading, *shape))
        if dims is None:
            return restored
        out = values.to(dtype) if torch else values.astype(dtype)
        # Copy: never write into the caller's tensor.
        out = out.clone() if torch and out is values else out
        out[..., dims] = restored if shape else restored[..., None]
        return out

    return numbers.reshape((*leading, rows_per_value, statistics)), restore_shape


def _scalar_like(x: float, like: Any, torch: Any) -> Any:
    """Returns a constant as a tensor on the device of like.

    For a Python number, a device multiplies by the reciprocal in place of a division.
    """
    return torch.full((), x, dtype=like.dtype, device=like.device) if torch else like.dtype.type(x)


def _result_dtype(entry: dict[str, Any], torch: Any) -> Any:
    """Returns the dtype of normalized values."""
    name = entry.get("dtype", "float32")
    if torch is None:
        # NumPy has no bfloat16: the result is float32.
        return np.dtype(name) if name in ("float16", "float32", "float64") else np.dtype(np.float32)
    return getattr(torch, name)


def _normalize_key(entry: dict[str, Any], v: Any) -> Any:
    """Returns the normalized values v of one key. entry is the entry of the key."""
    torch = _torch_of(v)
    x, restore_shape, wide = _as_rows(entry, v)
    shift, scale = _shift_and_scale(entry, v, wide, torch)
    is_constant = scale == 0  # Constant columns become 0.
    with np.errstate(all="ignore"):
        if entry["mode"] == "mean_std":
            y = (x - shift) / scale
        else:
            y = 2 * (x - shift) / scale - 1
    if torch:
        y = torch.where(is_constant, torch.zeros_like(y), y)
    else:
        y = np.where(is_constant, y.dtype.type(0), y)
    if entry.get("clip"):
        y = y.clamp(-1, 1) if torch else np.clip(y, -1, 1)
    dtype = _result_dtype(entry, torch)
    return _cast_to(restore_shape(y, dtype), dtype, torch)


def _denormalize_key(entry: dict[str, Any], v: Any) -> Any:
    """Returns the values of one key before normalization. entry is the entry of the key."""
    torch = _torch_of(v)
    y, restore_shape, wide = _as_rows(entry, v)
    shift, scale = _shift_and_scale(entry, v, wide, torch)
    x = y * scale + shift if entry["mode"] == "mean_std" else (y + 1) * scale / 2 + shift
    return _cast_to(restore_shape(x, wide), wide, torch)


def _cast_to(v: Any, dtype: Any, torch: Any) -> Any:
    """Returns v in a dtype."""
    return v.to(dtype) if torch else np.ascontiguousarray(v, dtype)


class NormVectors(dict[str, dict[str, Any]]):
    """A normalize= value that came from a Normalizer: its numbers by key, in the engine's form."""


def repeat_normalizer(n: Normalizer) -> NormVectors:
    """Returns the normalize= value that repeats the Normalizer of one dataset, bit by bit.

    The engine does not accept shift and scale. It computes them in float32 from mean and std + 1e-8,
    or from low and high - low. This function therefore finds the std or high whose rounded result is
    exactly the scale of the Normalizer.
    """
    out = NormVectors()
    for key, entry in n._keys.items():
        shift, scale = entry["_vectors"]
        if entry["mode"] == "mean_std":
            epsilon = np.float32(1e-8)
            std = _solve_rounding(scale, scale - epsilon, lambda std: std + epsilon)
            # The engine reads std 0 as a constant column. A column that is not constant therefore
            # gets a tiny number instead.
            std = np.where((std == 0) & (scale != 0), np.float32(1e-30), std)
            std = np.where(scale == 0, np.float32(0), std)
            statistics = {"mean": shift, "std": std}
        else:
            high = _solve_rounding(scale, shift + scale, lambda high: high - shift)
            statistics = {"low": shift, "high": high}
        out[key] = {"mode": entry["mode"]}
        if entry.get("clip"):
            out[key]["clip"] = True
        for name, values in statistics.items():
            out[key][name] = values.astype(np.float64).tolist()
    return out


def _solve_rounding(
    want: np.ndarray, guess: np.ndarray, convert: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns float32 numbers next to guess that `convert` maps to want.

    Rounding changes the result by at most one step, so the neighbours of guess are tried.
    """
    best = guess
    for direction in (-np.inf, np.inf):
        neighbour = np.nextafter(guess, np.float32(direction))
        is_better = (convert(best) != want) & (convert(neighbour) == want)
        best = np.where(is_better, neighbour, best)
    return best


def settled_config(config: dict[str, Any], settled: Any) -> dict[str, Any]:
    """Returns the configuration for the same loader without computing statistics again.

    Args:
        config: The configuration of the loader.
        settled: The engine's normalization with its vectors, or a false value.
    """
    if not settled:
        return config
    return {
        **{k: v for k, v in config.items() if k not in ("stats", "compute_stats")},
        "normalize": settled,
    }
