"""Normalizer: what a loader's normalize= did, done and undone where there is no dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _options
from ._errors import Malformed, Misuse

__all__ = ["Normalizer"]

_FIELDS = {"mode", "clip", "shift", "scale", "shape", "image", "double", "dtype", "dims", "width"}


class Normalizer:
    """What a loader's normalize= did to a batch, as a function: norm(batch), norm.inverse(batch). NumPy and torch, on any device.

        norm = loader.normalizer                      # in training
        json.dump(norm.state_dict(), open("normalizer.json", "w"))
        norm = robocache.Normalizer.from_state_dict(json.load(open("normalizer.json")))   # on the robot: no dataset, no engine
        action = norm.inverse({"action": policy(norm({"observation.state": state}))})["action"]

    A batch is a dict of arrays or tensors with any of the keys; leading dimensions are free: [B, T, D], [B, D] or [D]. Keys that were not
    normalised are passed on as they are; a batch with none that was is Misuse. What is given is not changed.

    Loader(..., normalize=norm) and MapDataset(..., normalize=norm) normalise another part of the data, say the held-out episodes, by the same numbers.

    In float32, of float64 streams in float64: mean_std (x - mean) / (std + 1e-8); all others 2 (x - low) / (high - low) - 1, with clip brought
    into [-1, 1]. A constant number (std or high - low of 0) becomes 0, and is its constant again by inverse. norm applied to batches of a loader
    without normalize= equals that loader's batches with normalize=, to the bit, for recorded values (interpolated float16 ones are rounded once more, float64 streams once before they become float32,
    and rows that a mask says are empty are 0 in the loader). inverse brings back what was to the rounding of float32, but for what clip cut off.
    Images are (…, C, H, W): float32 in [0, 1], or uint8.

    Of a mixture there is one of each source: norm["name"] or norm[0]; norm(batch) takes each row's by its dataset_index. Rows that
    missing="pad" padded stay padded: only a source's own numbers are changed (dims).
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._keys: dict[str, dict[str, Any]] = {}
        self._sources: dict[str, Normalizer] = {}
        if state is not None:
            self.load_state_dict(state)

    @classmethod
    def of(cls, sources: list[dict[str, Any]]) -> Normalizer:
        """From what the engine says of a loader: one entry a source."""
        if len(sources) == 1:
            return cls({"version": 1, "keys": sources[0]["keys"]})
        return cls(
            {"version": 1, "sources": [{"name": s["name"], "keys": s["keys"]} for s in sources]}
        )

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Normalizer:
        """What state_dict() gave, as a Normalizer again."""
        return cls(state)

    def state_dict(self) -> dict[str, Any]:
        """All there is to it: a small dict that JSON holds without loss."""
        if self._sources:
            return {
                "version": 1,
                "sources": [
                    {"name": n, "keys": s.state_dict()["keys"]} for n, s in self._sources.items()
                ],
            }
        return {
            "version": 1,
            "keys": {
                k: {n: v for n, v in one.items() if n in _FIELDS} for k, one in self._keys.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what state_dict() gave."""
        if not isinstance(state, Mapping) or not ({"keys", "sources"} & set(state)):
            raise Misuse(
                f"a state of {type(state).__name__}: expected what Normalizer.state_dict() gave"
            )
        if state.get("version") != 1:
            raise Misuse(f"a normalizer's state of version {state.get('version')!r}: expected 1")
        try:
            self._sources = {
                str(s["name"]): Normalizer({"version": 1, "keys": s["keys"]})
                for s in state.get("sources", ())
            }
            self._keys = {k: _ready(k, one) for k, one in state.get("keys", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise Malformed(
                f"a normalizer's state: {type(e).__name__}: {e}",
                hint="expected what Normalizer.state_dict() gave",
            ) from None

    @property
    def keys(self) -> list[str]:
        """The keys that are normalised."""
        return (
            list(dict.fromkeys(k for s in self._sources.values() for k in s.keys))
            if self._sources
            else list(self._keys)
        )

    @property
    def sources(self) -> list[str]:
        """The names of a mixture's sources; empty of one dataset."""
        return list(self._sources)

    @property
    def dims(self) -> dict[str, list[int]]:
        """Of the keys that a mixture pads: where this source's own numbers stand in the padded row."""
        return {k: list(one["dims"]) for k, one in self._keys.items() if one.get("dims")}

    def __getitem__(self, source: str | int) -> Normalizer:
        """The one of a mixture's source, by name or position."""
        if not self._sources:
            raise Misuse(
                f"source {source!r}: this is the normalizer of one dataset", hint="use it as it is"
            )
        names = self.sources
        if _options.is_integer(source):
            if not -len(names) <= int(source) < len(names):
                raise Misuse(f"source {source} of {len(names)}")
            return self._sources[names[int(source)]]
        return self._sources[_options.key(str(source), names, "source")]

    def __iter__(self) -> Any:
        raise TypeError("a Normalizer is no sequence: see .keys and .sources")

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch normalised: a new dict."""
        return self._apply(batch, _forward)

    def inverse(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch as it was before: a new dict. Of clipped values what clip left of them."""
        return self._apply(batch, _backward)

    def _apply(self, batch: Mapping[str, Any], how: Any) -> dict[str, Any]:
        if not isinstance(batch, Mapping):
            raise Misuse(
                f"a batch of {type(batch).__name__}: expected a dict by key",
                hint='norm({"action": x})["action"]',
            )
        known = self.keys
        if known and batch and not set(known) & set(batch):
            raise Misuse(
                f"none of {', '.join(map(repr, batch))} was normalised",
                hint=_options.nearest(str(next(iter(batch))), known),
            )
        if self._sources:
            return self._mixed(batch, how)
        return {
            k: how(self._keys[k], _values(k, v)) if k in self._keys else v for k, v in batch.items()
        }

    def _mixed(self, batch: Mapping[str, Any], how: Any) -> dict[str, Any]:
        if "dataset_index" not in batch:
            raise Misuse(
                "which source a row is of decides how it is normalised: the batch has no dataset_index",
                hint=f"one source's: normalizer[{self.sources[0]!r}]",
            )
        index = np.asarray(_host(batch["dataset_index"]))
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < len(self._sources):
            raise Misuse(
                f"dataset_index {index.min()} to {index.max()} of {len(self._sources)} sources"
            )
        out = dict(batch)
        for k in set(self.keys) & set(batch):
            v = _values(k, batch[k])
            # One column of several sources has one dtype: that of the first that normalises it.
            done = None
            for i, source in enumerate(self._sources.values()):
                at = (
                    np.flatnonzero(index == i)
                    if index.ndim
                    else None
                    if index == i
                    else np.empty(0, int)
                )
                if at is not None and not at.size:
                    continue
                part = v if at is None else v[_like(at, v)]
                if k in source._keys:
                    part = how(source._keys[k], part)
                if at is None:
                    done = part
                    continue
                if done is None:
                    done = _empty(part, v.shape)
                done[_like(at, v)] = part
            out[k] = v if done is None else done
        return out

    def __repr__(self) -> str:
        if self._sources:
            return f"<robocache.Normalizer of the sources {', '.join(self._sources)}>"
        what = ", ".join(f"{k} ({one['mode']})" for k, one in self._keys.items())
        return f"<robocache.Normalizer of {what or 'nothing'}>"


def _ready(key: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """One key's entry, checked, beside its vectors as arrays."""
    out = dict(one)
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


def _torch(v: Any) -> Any:
    """torch, where v is a tensor of it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(v, torch.Tensor) else None


def _host(v: Any) -> Any:
    return v.detach().cpu().numpy() if _torch(v) else v


def _like(at: np.ndarray, v: Any) -> Any:
    torch = _torch(v)
    return torch.from_numpy(at).to(v.device) if torch else at


def _empty(part: Any, shape: Any) -> Any:
    return part.new_empty(shape) if _torch(part) else np.empty(shape, part.dtype)


def _values(key: str, v: Any) -> Any:
    """v as a tensor or array of numbers."""
    if _torch(v):
        return v
    try:
        a = np.asarray(v)
    except ValueError:
        a = np.empty(0, object)
    if a.dtype.kind not in "fiub":
        raise Misuse(f"{key}: expected numbers, found {type(v).__name__}")
    return a


def _vectors(one: dict[str, Any], v: Any, wide: Any, torch: Any) -> tuple[Any, Any]:
    """Shift and scale where v is, in the type that is computed in."""
    if torch is None:
        return tuple(x.astype(wide) for x in one["_vectors"])  # type: ignore[return-value]
    made = one["_made"].get(v.device)
    if made is None:
        made = one["_made"][v.device] = tuple(
            torch.from_numpy(x).to(v.device, wide) for x in one["_vectors"]
        )
    return made


def _rows(one: dict[str, Any], v: Any) -> tuple[Any, Any, Any]:
    """v in the type that is computed in, as rows of as many numbers as there are statistics; and how it becomes v's own shape again, in a type."""
    torch = _torch(v)
    names = torch or np
    wide = names.float64 if one.get("double") else names.float32
    shape, n = [int(d) for d in one["shape"]], len(one["_vectors"][0])
    full, dims = v, None
    if one.get("image"):
        if v.ndim < 3 or v.shape[-3] not in (n, *shape):
            raise Misuse(
                f"an image of shape {tuple(v.shape)}: expected (…, {shape[0]}, height, width)"
            )
        byte = v.dtype == names.uint8
        x = v.to(wide) if torch else v.astype(wide)
        x = x / _scalar(255, x, torch) if byte else x
        x = (x.movedim(-3, -1) if torch else np.moveaxis(x, -3, -1)) if n > 1 else x[..., None]
        return (
            x,
            (
                lambda y, _dtype: (
                    (y.movedim(-1, -3) if torch else np.moveaxis(y, -1, -3)) if n > 1 else y[..., 0]
                )
            ),
            wide,
        )
    if one.get("dims") and v.ndim and v.shape[-1] == one["width"]:
        at = one["dims"]
        dims = at if at != list(range(len(at))) else slice(0, len(at))
        v = v[..., dims]
        if not shape:
            v = v[..., 0]
    if shape and tuple(v.shape[-len(shape) :]) != tuple(shape):
        also = f" or the padded (…, {one['width']})" if one.get("dims") else ""
        raise Misuse(
            f"values of shape {tuple(full.shape)}: expected (…, {', '.join(map(str, shape))}){also}"
        )
    lead = tuple(v.shape[: v.ndim - len(shape)])
    size = int(np.prod(shape))
    x = (v.to(wide) if torch else v.astype(wide)).reshape((*lead, size // n, n))

    def back(y: Any, dtype: Any) -> Any:
        y = y.reshape((*lead, *shape))
        if dims is None:
            return y
        out = full.to(dtype) if torch else full.astype(dtype)
        out = out.clone() if torch and out is full else out
        out[..., dims] = y if shape else y[..., None]
        return out

    return x, back, wide


def _scalar(x: float, like: Any, torch: Any) -> Any:
    """A constant as a tensor where like is: a device multiplies by the reciprocal of a Python number instead of dividing."""
    return torch.full((), x, dtype=like.dtype, device=like.device) if torch else like.dtype.type(x)


def _dtype(one: dict[str, Any], torch: Any) -> Any:
    name = one.get("dtype", "float32")
    if torch is None:
        # NumPy has no bfloat16
        return np.dtype(name) if name in ("float16", "float32", "float64") else np.dtype(np.float32)
    return getattr(torch, name)


def _forward(one: dict[str, Any], v: Any) -> Any:
    torch = _torch(v)
    x, back, wide = _rows(one, v)
    shift, scale = _vectors(one, v, wide, torch)
    constant = scale == 0
    with np.errstate(all="ignore"):
        y = (x - shift if one["mode"] == "mean_std" else 2 * (x - shift)) / scale
        if one["mode"] != "mean_std":
            y = y - 1
    y = (
        torch.where(constant, torch.zeros_like(y), y)
        if torch
        else np.where(constant, y.dtype.type(0), y)
    )
    if one.get("clip"):
        y = y.clamp(-1, 1) if torch else np.clip(y, -1, 1)
    dtype = _dtype(one, torch)
    return _as(back(y, dtype), dtype, torch)


def _backward(one: dict[str, Any], v: Any) -> Any:
    torch = _torch(v)
    y, back, wide = _rows(one, v)
    shift, scale = _vectors(one, v, wide, torch)
    x = y * scale + shift if one["mode"] == "mean_std" else (y + 1) * scale / 2 + shift
    return _as(back(x, wide), wide, torch)


def _as(v: Any, dtype: Any, torch: Any) -> Any:
    return v.to(dtype) if torch else np.ascontiguousarray(v, dtype)


class Vectors(dict[str, dict[str, Any]]):
    """normalize= that came from a Normalizer: its numbers by key, as the engine takes them."""


def taken_over(n: Normalizer) -> Vectors:
    """Returns what normalize= must be to repeat the Normalizer of one dataset to the bit."""
    out = Vectors()
    for key, one in n._keys.items():
        shift, scale = one["_vectors"]
        if one["mode"] == "mean_std":
            std = _solved(scale, scale - np.float32(1e-8), lambda c: c + np.float32(1e-8))
            # 0 would mean a constant
            std = np.where((std == 0) & (scale != 0), np.float32(1e-30), std)
            numbers = {"mean": shift, "std": np.where(scale == 0, np.float32(0), std)}
        else:
            numbers = {"low": shift, "high": _solved(scale, shift + scale, lambda c: c - shift)}
        clip = {"clip": True} if one.get("clip") else {}
        out[key] = {
            "mode": one["mode"],
            **clip,
            **{k: v.astype(np.float64).tolist() for k, v in numbers.items()},
        }
    return out


def _solved(
    want: np.ndarray, guess: np.ndarray, of: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns the float32 numbers next to guess whose image under of is want: rounding hides up to one step."""
    best = guess
    for c in (np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf))):
        best = np.where((of(best) != want) & (of(c) == want), c, best)
    return best


def again(config: dict[str, Any], settled: Any) -> dict[str, Any]:
    """The configuration that makes the same loader without computing statistics again. settled: the engine's normalisation with its vectors."""
    if not settled:
        return config
    return {
        **{k: v for k, v in config.items() if k not in ("stats", "compute_stats")},
        "normalize": settled,
    }
