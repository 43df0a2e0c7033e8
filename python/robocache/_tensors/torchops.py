"""resample and fuse as operators of torch, for autograd, torch.compile, export and subclasses.

_torch imports the module together with torch. The options that select the operation are one text,
which tracing keeps as a constant.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from . import arrays as _arrays, resampling as _resampling, rules as _rules
from .._errors import Misuse, Unsupported
from .prepared import Recent, prepare
from .resampling import Plan, Series
from .results import AllocatingOp, dense_strides

__all__ = ["DIFFERENTIABLE", "as_constant", "constant_result", "run_traced", "tensor_like"]

DIFFERENTIABLE = ("linear", "previous", "next", "nearest")

_library = torch.library.Library("robocache", "DEF")
_library.define(
    "resample(Tensor data, Tensor times, Tensor targets, Tensor[] extras, str options, "
    "ScalarType? dtype, bool valid) -> (Tensor, Tensor)"
)
_library.define(
    "fuse(Tensor[] data, Tensor[] times, Tensor targets, Tensor[] extras, str options, "
    "ScalarType? dtype, bool valid) -> (Tensor, Tensor)"
)
_library.define(
    "resample_backward(Tensor grad, Tensor times, Tensor targets, Tensor[] extras, SymInt[] shape, "
    "str options, ScalarType dtype) -> Tensor"
)

_plans: Recent[Plan] = Recent()
_gradient_ops: Recent[AllocatingOp] = Recent()


@functools.lru_cache(1024)
def _parse_options(options: str) -> dict[str, Any]:
    """Returns the parsed options."""
    return json.loads(options)  # type: ignore[no-any-return]


def _layout_key(t: torch.Tensor) -> tuple[Any, ...]:
    """Returns what a plan depends on: dtype, shape, strides and device."""
    return t.dtype, t.shape, t.stride(), t.device


def _named_extras(
    spec: Mapping[str, Any], extras: Sequence[torch.Tensor]
) -> list[dict[str, torch.Tensor]]:
    """Returns the lengths, offsets and samples of each stream, by name."""
    remaining = iter(extras)
    return [
        {n: next(remaining) for n in ("lengths", "offsets", "samples") if n in s.get("has", ())}
        for s in spec["series"]
    ]


def _make_series(
    spec: Mapping[str, Any],
    data: Sequence[torch.Tensor],
    times: Sequence[torch.Tensor],
    extras: Sequence[torch.Tensor],
) -> list[Series]:
    """Returns the streams of a call."""
    out = []
    named = _named_extras(spec, extras)
    for s, d, t, tensors in zip(spec["series"], data, times, named, strict=True):
        views = {n: _arrays.view(n, x) for n, x in tensors.items()}
        rule = {k: v for k, v in s.items() if k not in ("has", "name")}
        out.append(
            Series(
                s.get("name", "data"),
                _arrays.view(s.get("name", "data"), d),
                _arrays.view("times", t),
                views.get("lengths"),
                views.get("offsets"),
                views.get("samples"),
                rule,
            )
        )
    return out


def _run_fuse(
    data: Sequence[torch.Tensor],
    times: Sequence[torch.Tensor],
    targets: torch.Tensor,
    extras: Sequence[torch.Tensor],
    options: str,
    dtype: Any,
    valid: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs fuse. The operator resample is fuse with one stream.

    Args:
        data: The data of each stream.
        times: The timestamps of each stream.
        targets: The target times.
        extras: The lengths, offsets and samples of all streams in one list. The options list under
            "has" which of these three each stream has.
        options: The text of _options_text.
        dtype: The dtype of the result; None: that of the data.
        valid: Whether to return the validity. An operator of torch returns a fixed number of
            tensors, so the validity is empty otherwise.
    """
    inputs = [t.resolve_neg() for t in (*data, *times, targets, *extras)]
    key = (options, dtype, valid, len(data), *map(_layout_key, inputs))
    plan = _plans.get(key)
    n = len(data)
    data = inputs[:n]
    times = inputs[n : 2 * n]
    targets = inputs[2 * n]
    extras = inputs[2 * n + 1 :]
    spec = _parse_options(options)
    if plan is None:
        series = _make_series(spec, data, times, extras)
        target_view = _arrays.view("target_times", targets)
        chosen = _rules.choose_backend(spec.get("backend"), series[0].values.device)
        if chosen == "pytorch":
            from . import oracle as _oracle

            got, mask = _oracle.fuse(series, target_view, dtype, spec)
            return got, mask if valid else torch.empty(0, dtype=torch.bool, device=got.device)
        plan = _resampling.make_plan(
            series,
            target_view,
            single=False,
            out=None,
            dtype=dtype,
            want_valid=valid,
            validate=spec.get("validate"),
            backend=chosen,
            clock=spec.get("clock", "ns"),
            epsilon=spec.get("epsilon", 0.0),
        )
        _plans.put(key, plan)
    addresses = []
    remaining = iter(extras)
    for s, d, t in zip(spec["series"], data, times, strict=True):
        addresses += [
            d.data_ptr(),
            t.data_ptr(),
            *(next(remaining).data_ptr() for _ in s.get("has", ())),
        ]
    got, mask = _resampling.run_plan(plan, [*addresses, targets.data_ptr()], None, 0)
    return got, mask if mask is not None else torch.empty(0, dtype=torch.bool, device=got.device)


def _run_resample(
    data: Any, times: Any, targets: Any, extras: Any, options: str, dtype: Any, valid: bool
) -> Any:
    """Runs resample."""
    return _run_fuse([data], [times], targets, extras, options, dtype, valid)


def _run_backward(
    grad: Any, times: Any, targets: Any, extras: Any, shape: Sequence[int], options: str, dtype: Any
) -> Any:
    """Runs the backward pass of resample.

    Args:
        grad: The gradient of the result.
        times, targets, extras, options: As in _run_fuse, for one stream.
        shape: The shape of the data.
        dtype: The dtype of the data.

    Returns:
        The gradient of the data.
    """
    spec = _parse_options(options)
    inputs = [t.resolve_neg() for t in (times, *extras, targets, grad)]
    key = (options, dtype, tuple(shape), *map(_layout_key, inputs))
    made = _gradient_ops.get(key)
    if made is None:
        views = [_arrays.view("grad", t) for t in inputs]
        series = {k: v for k, v in spec["series"][0].items() if k not in _EPILOGUE}
        like = views[-1]
        tensors = [v.describe() for v in views] + [
            {
                "dtype": _rules.dtype_name(dtype),
                "shape": list(shape),
                "stride": dense_strides(shape),
            }
        ]
        chosen = _rules.choose_backend(
            None if spec.get("backend") == "pytorch" else spec.get("backend"), like.device
        )
        whole = {
            "op": "fuse_grad",
            "backend": chosen,
            "device": max(like.device, 0),
            "tensors": tensors,
            "series": [series],
            "clock": spec.get("clock", "ns"),
            "epsilon": spec.get("epsilon", 0.0),
        }
        made = AllocatingOp(prepare(whole), [(tuple(shape), dtype)], like)
        _gradient_ops.put(key, made)
    return made.run([t.data_ptr() for t in inputs])[0]


def constant_result(f: Any) -> Any:
    """Marks a function like torch.compiler.assume_constant_result.

    Importing the compiler takes seconds, and this module is imported with torch.
    """
    f._dynamo_marked_constant = True
    return f


# The options that are applied to the interpolated values.
_EPILOGUE = ("norm", "unit", "plane", "clip", "augment")

for _key in ("CPU", "CUDA"):
    _library.impl("resample", _run_resample, _key)
    _library.impl("fuse", _run_fuse, _key)
    _library.impl("resample_backward", _run_backward, _key)


@torch.library.register_fake("robocache::fuse", lib=_library)
def _fake_fuse(
    data: Any, times: Any, targets: Any, extras: Any, options: str, dtype: Any, valid: bool
) -> Any:
    """Returns results of fuse without values, only with shapes and dtypes, for tracing."""
    spec = _parse_options(options)
    more = _named_extras(spec, extras)[0]
    batch = more["offsets"].shape[0] - 1 if "offsets" in more else data[0].shape[0]
    rows = targets.shape[-1]
    channels = sum(d.shape[-1] for d in data)
    out = data[0].new_empty((batch, rows, channels), dtype=dtype or data[0].dtype)
    return out, data[0].new_empty((batch, rows, len(data)) if valid else (0,), dtype=torch.bool)


@torch.library.register_fake("robocache::resample", lib=_library)
def _fake_resample(
    data: Any, times: Any, targets: Any, extras: Any, options: str, dtype: Any, valid: bool
) -> Any:
    """Returns results of resample without data, for tracing."""
    return _fake_fuse([data], [times], targets, extras, options, dtype, valid)


@torch.library.register_fake("robocache::resample_backward", lib=_library)
def _fake_backward(
    grad: Any, times: Any, targets: Any, extras: Any, shape: Any, options: str, dtype: Any
) -> Any:
    """Returns a gradient without data, for tracing."""
    return grad.new_empty(tuple(shape), dtype=dtype)


@functools.lru_cache(1024)
def _single_stream(options: str, i: int) -> tuple[str, dict[str, Any]]:
    """Returns the options of one stream without its epilogue, and the epilogue.

    torch multiplies by the slope of the epilogue itself.
    """
    spec = dict(_parse_options(options))
    series = dict(spec["series"][i])
    epilogue = {k: series.pop(k) for k in _EPILOGUE if k in series}
    series["has"] = [h for h in series.get("has", ()) if h != "samples"]
    return json.dumps({**spec, "series": [series]}), epilogue


def _scale_gradient(g: torch.Tensor, epilogue: Mapping[str, Any]) -> torch.Tensor:
    """Returns the gradient with respect to the interpolated values.

    The normalizations of the epilogue are linear, so g is multiplied by their slope. Constant
    columns become 0, so their slope is 0.
    """
    if epilogue.get("unit"):
        g = g / 255
    norm = epilogue.get("norm")
    if norm is None:
        return g
    a = torch.tensor(norm["a"], dtype=torch.float32)
    b = torch.tensor(norm["b"], dtype=torch.float32)
    if norm["kind"] == "mean_std":
        numerator, denominator, is_constant = 1, b + 1e-8, b == 0
    else:
        numerator, denominator, is_constant = 2, b - a, b - a == 0
    slope = torch.where(is_constant, 0, numerator / torch.where(is_constant, 1, denominator))
    column = torch.arange(g.shape[-1]) // max(epilogue.get("plane", 1), 1) % len(slope)
    return g * slope[column].to(g)


def _check_differentiable(spec: Mapping[str, Any]) -> None:
    """Raises Unsupported if a mode or option of a stream has no gradient."""
    for s in spec["series"]:
        mode = s.get("mode", "linear")
        if mode not in DIFFERENTIABLE:
            raise Unsupported(
                f"mode={mode!r} has no gradient: {', '.join(DIFFERENTIABLE)} have",
                hint="use data.detach(), or torch.no_grad()",
            )
        for k in ("clip", "augment"):
            if k in s:
                raise Unsupported(
                    f"{k}= has no gradient",
                    hint="clip and augment by torch afterwards, or use data.detach()",
                )


def _setup_fuse(ctx: Any, inputs: Any, output: Any) -> None:
    """Stores the inputs of fuse for the backward pass."""
    data, times, targets, extras, options, _, _ = inputs
    _check_differentiable(_parse_options(options))
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*times, targets, *extras)
    ctx.streams = [(tuple(d.shape), d.dtype) for d in data]
    ctx.options = options


def _grad_fuse(ctx: Any, g: Any, _: Any) -> Any:
    """Returns the gradients of fuse's inputs: those of the data, None for all others."""
    n = len(ctx.streams)
    saved = ctx.saved_tensors  # The times of n streams, the targets, and all extras.
    times, targets, all_extras = saved[:n], saved[n], saved[n + 1 :]
    spec = _parse_options(ctx.options)
    named = _named_extras(spec, all_extras)
    out = []
    column = 0
    for i, (shape, dtype) in enumerate(ctx.streams):
        own = g[..., column : column + shape[-1]]
        column += shape[-1]
        options, epilogue = _single_stream(ctx.options, i)
        extras = [v for k, v in named[i].items() if k != "samples"]
        out.append(
            torch.ops.robocache.resample_backward(
                _scale_gradient(own, epilogue), times[i], targets, extras, shape, options, dtype
            )
        )
    return out, [None] * n, None, [None] * len(all_extras), None, None, None


def _setup_resample(ctx: Any, inputs: Any, output: Any) -> None:
    """Stores the inputs of resample for the backward pass."""
    data, times, *rest = inputs
    _setup_fuse(ctx, ([data], [times], *rest), output)


def _grad_resample(ctx: Any, g: Any, _: Any) -> Any:
    """Returns the gradients of resample's inputs."""
    data, times, *rest = _grad_fuse(ctx, g, _)
    return data[0], times[0], *rest


def _setup_backward(ctx: Any, inputs: Any, output: Any) -> None:
    """Stores the inputs of resample_backward for its own backward pass."""
    grad, times, targets, extras, _, options, _ = inputs
    ctx.save_for_backward(times, targets, *extras)
    ctx.dtype = grad.dtype
    ctx.options = options


def _grad_backward(ctx: Any, g: Any) -> Any:
    """Returns the gradients of resample_backward's inputs.

    The backward pass is linear in grad, and its transpose is resample without the epilogue.
    """
    times, targets, *extras = ctx.saved_tensors
    options, _ = _single_stream(ctx.options, 0)
    out, _ = torch.ops.robocache.resample(g, times, targets, extras, options, ctx.dtype, False)
    return out, None, None, [None] * len(extras), None, None, None


torch.library.register_autograd(
    "robocache::fuse", _grad_fuse, setup_context=_setup_fuse, lib=_library
)
torch.library.register_autograd(
    "robocache::resample", _grad_resample, setup_context=_setup_resample, lib=_library
)
torch.library.register_autograd(
    "robocache::resample_backward", _grad_backward, setup_context=_setup_backward, lib=_library
)


@constant_result
def _options_text(
    rules: Any,
    names: Any,
    has: Any,
    channels: Any,
    validate: Any,
    backend: Any,
    clock: str,
    epsilon: Any,
) -> str:
    """Returns the options that select the operation, as text.

    Tracing calls it once, with constants.
    """
    series = [
        {**_rules.series_rule(**dict(r), channels=c), "name": n, "has": list(h)}
        for r, n, h, c in zip(rules, names, has, channels, strict=True)
    ]
    return json.dumps(
        {
            "series": series,
            "validate": bool(validate),
            "backend": backend,
            "clock": clock,
            "epsilon": epsilon or 0.0,
        },
        sort_keys=True,
    )


def tensor_like(name: str, x: Any, like: torch.Tensor) -> torch.Tensor:
    """Returns times, lengths or offsets as a tensor on the data's device."""
    if not isinstance(x, torch.Tensor):
        x = torch.as_tensor(np.asarray(x))
    return x.to(like.device)


def as_constant(v: Any) -> Any:
    """Returns an option for torch.compile, with numbers as constants of the operation.

    A graph cannot read numbers from a tensor.
    """
    if isinstance(v, (torch.Tensor, np.ndarray)):
        raise Unsupported(
            "under torch.compile options must be numbers, not arrays",
            hint="use .tolist() outside of the compiled function",
        )
    if isinstance(v, dict):
        return {k: as_constant(v[k]) for k in v}
    if isinstance(v, (list, tuple)):
        return [as_constant(x) for x in v]
    if isinstance(v, (int, float)):
        # Under dynamic shapes, torch.compile replaces numbers by symbols. As the key of a dict, a
        # symbol becomes a number again.
        return list({v: None})[0]
    return v


class _TracedStream(NamedTuple):
    """A stream of a call that torch's operators compute."""

    name: str
    data: torch.Tensor  # [B, S, D], or ragged [sum of S, D].
    times: torch.Tensor
    rule: dict[str, Any]
    has: tuple[str, ...]  # Which of lengths, offsets and samples exist.
    extras: list[torch.Tensor]  # Those that exist, in the order of `has`.
    channels: int  # The number of channels if they are normalized, else 1.
    rank: int  # The number of axes of the data as given; 3 if ragged.


def _trace_stream(name: str, data: Any, times: Any, options: Mapping[str, Any]) -> _TracedStream:
    """Returns a stream with a batch axis.

    Args:
        name: The name of the stream in messages.
        data: The data.
        times: The timestamps.
        options: The options of the stream, including lengths, offsets and augment's samples.
    """
    rule = dict(options)
    extras = {
        "lengths": rule.pop("lengths", None),
        "offsets": rule.pop("offsets", None),
        "samples": None,
    }
    if rule.get("augment") is not None:
        rule["augment"] = dict(rule["augment"])
        extras["samples"] = rule["augment"].pop("samples", None)
    if isinstance(data, (list, tuple)):
        extras["offsets"] = [0]
        for part in data:
            extras["offsets"].append(extras["offsets"][-1] + part.shape[0])
        data = torch.cat(list(data))
        times = torch.cat(list(times)) if isinstance(times, (list, tuple)) else times
    elif data.is_nested:
        extras["offsets"] = data.offsets()
        data = data.values()
        times = times.values() if isinstance(times, torch.Tensor) and times.is_nested else times
    if not isinstance(data, torch.Tensor):
        raise Misuse(
            f"{name}: expected a torch tensor, as the other streams, found {type(data).__name__}",
            {"tensor": name},
        )
    if torch.compiler.is_compiling():
        rule = as_constant(rule)
    is_ragged = extras["offsets"] is not None
    if not 1 <= data.dim() <= (2 if is_ragged else 3):
        raise Misuse(
            f"{name} must have shape [B, S, D], [S, D] or [S], found {list(data.shape)}",
            {"tensor": name},
        )
    rank = 3 if is_ragged else data.dim()
    if data.dim() == 1:
        data = data[:, None]
    if data.dim() == 2 and not is_ragged:
        data = data[None]
    has = tuple(k for k in ("lengths", "offsets", "samples") if extras[k] is not None)
    return _TracedStream(
        name=name,
        data=data,
        times=tensor_like("times", times, data),
        rule=rule,
        has=has,
        extras=[tensor_like(k, extras[k], data) for k in has],
        channels=as_constant(data.shape[-1]) if rule.get("normalize") is not None else 1,
        rank=rank,
    )


def run_traced(
    streams: Sequence[tuple[str, Any, Any, Mapping[str, Any]]],
    target_times: Any,
    *,
    single: bool,
    hz: Any = None,
    out: Any = None,
    dtype: Any = None,
    want_valid: bool = False,
    return_times: bool = False,
    validate: Any = None,
    backend: Any = None,
    clock: str = "ns",
    epsilon: float | None = None,
) -> Any:
    """Runs one call of resample or fuse with torch's operators only."""
    if hz is not None and torch.compiler.is_compiling():
        raise Unsupported(
            "hz= looks at the times, which torch.compile cannot: give target times",
            hint="robocache.resample(…, hz=…, return_times=True) makes them",
        )
    traced = [_trace_stream(name, d, t, given) for name, d, t, given in streams]
    data = [s.data for s in traced]
    times = [s.times for s in traced]
    extras = [x for s in traced for x in s.extras]
    rules = [s.rule for s in traced]
    names = [s.name for s in traced]
    has = [s.has for s in traced]
    channels = [s.channels for s in traced]
    ranks = [s.rank for s in traced]
    if hz is not None:
        step = _resampling.period_of(hz)
        target_times = _resampling.make_targets(
            None, hz, [_resampling.make_series(n, d, t, r, step) for n, d, t, r in streams]
        ).array
        for r in rules:
            r["window"] = (
                step if r.get("mode") == "mean" and r.get("window") is None else r.get("window")
            )
    if target_times is None:
        raise Misuse(
            "expected target times or hz=, one of them",
            hint="hz=50 makes a grid of 50 rows a second over the data",
        )
    targets = tensor_like("target_times", target_times, data[0])
    if min(ranks) < 3 and (max(ranks) == 3 or targets.dim() > 1):
        raise Misuse(
            "Batch size mismatch (batch sizes of the streams and targets): "
            f"ranks {ranks} and {targets.dim()}",
            hint="give all a batch, or none",
        )
    wanted = getattr(torch, _rules.dtype_name(dtype)) if dtype is not None else None
    if len({d.dtype for d in data}) > 1 and wanted is None and out is None:
        raise Misuse(
            f"Stream dtypes must match (dtypes must match): found {[d.dtype for d in data]}",
            hint="Pass dtype=, the dtype of the result.",
        )
    if out is not None:
        if torch.is_grad_enabled() and (out.requires_grad or any(d.requires_grad for d in data)):
            raise Misuse("out= keeps no gradient: leave it out, or use torch.no_grad()")
        wanted = wanted or out.dtype
    options = _options_text(rules, names, has, channels, validate, backend, clock, epsilon)
    if len(data) == 1:
        got, valid = torch.ops.robocache.resample(
            data[0], times[0], targets, extras, options, wanted, want_valid
        )
    else:
        got, valid = torch.ops.robocache.fuse(
            data, times, targets, extras, options, wanted, want_valid
        )
    if max(ranks) < 3:
        got = got[0]
        valid = valid[0] if want_valid else valid
        if single and ranks[0] == 1:
            got = got[..., 0]
    if single and want_valid:
        valid = valid[..., 0]
    if out is not None:
        got = out.copy_(got)
    results = [got] + ([valid] if want_valid else []) + ([targets] if return_times else [])
    return results[0] if len(results) == 1 else tuple(results)
