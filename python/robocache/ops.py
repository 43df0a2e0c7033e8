"""Interpolation of rows at new times: resample for one stream, fuse for several in one launch.

The functions take NumPy arrays, torch tensors on the CPU or a CUDA device, and any object with
__dlpack__. Results have the library and the device of the first argument. Inputs are not copied to
make them contiguous. On a GPU, the work is queued on the caller's current stream.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks
from ._tensors import resampling as _resampling, rules as _rules
from ._errors import Misuse, Unsupported
from ._tensors.family import deliver
from ._tensors.prepared import Recent
from ._tensors.resampling import Plan

__all__ = ["resample", "fuse"]

_recent_plans: Recent[Plan] = Recent()

_RESAMPLE = (
    "data",
    "times",
    "target_times",
    "mode",
    "edge",
    "max_gap",
    "out",
    "hz",
    "dtype",
    "return_valid",
    "return_times",
    "normalize",
    "clip",
    "augment",
    "window",
    "period",
    "lo",
    "quats",
    "sign",
    "lengths",
    "offsets",
    "backend",
    "validate",
)
_FUSE = tuple(n for n in _RESAMPLE if n not in ("data", "times", "lengths", "offsets"))


# Parts of torch, set by _bind_torch when the first tensor is seen.
_tensor: Any = None  # torch.Tensor.
_compiling: Any = None  # Reports whether torch.compile traces the call.
_modes: Any = None  # Returns the number of active dispatch modes.
_transforms: Any = None  # Returns the active function transform, such as vmap, or None.
# torch.autograd.forward_ad. A tensor of forward-mode AD has the type of other tensors, so its level
# is checked.
_dual: Any = None
_stream: Any = None  # Returns the caller's current stream on a CUDA device.
_bool: Any = None  # torch.bool.
_strided: Any = None  # torch.strided.
_guards: Any = None  # TensorGuards, or None if this version of torch has none.


def _bind_torch(torch: Any) -> None:
    """Stores the parts of torch that each call needs.

    Looking them up costs as much as calling them.
    """
    global _tensor, _compiling, _modes, _transforms, _dual, _stream, _bool, _strided, _guards
    _compiling = torch.compiler.is_compiling
    _modes = torch._C._len_torch_dispatch_stack
    _transforms = torch._C._functorch.peek_interpreter_stack
    _stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    _bool = torch.bool
    _strided = torch.strided
    try:
        # The guards of torch.compile: one call checks types, shapes, strides, devices, that no
        # gradient is required, and that nothing is traced.
        from torch._C._dynamo.guards import TensorGuards as _guards
    except ImportError:
        pass
    _dual = torch.autograd.forward_ad
    _tensor = torch.Tensor


def _is_traced(torch: Any) -> bool:
    """Reports whether torch records operations, apart from torch.compile, which is checked first.

    If torch records operations, only torch's own operators may run.
    """
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def resample(
    data: Any,
    times: Any,
    target_times: Any = None,
    *,
    mode: str = "linear",
    edge: str = "clamp",
    max_gap: float | None = None,
    out: Any = None,
    hz: Any = None,
    dtype: Any = None,
    return_valid: bool = False,
    return_times: bool = False,
    normalize: Any = None,
    clip: tuple[float, float] | None = None,
    augment: Mapping[str, Any] | None = None,
    window: Any = None,
    period: float | None = None,
    lo: float | None = None,
    quats: Sequence[Sequence[int]] | None = None,
    sign: str | None = None,
    lengths: Any = None,
    offsets: Any = None,
    backend: str | None = None,
    validate: bool | None = None,
    **unknown: Any,
) -> Any:
    """Interpolates rows at new times.

    Linear interpolation is x0 + w * (x1 - x0) with w = (t - t0) / (t1 - t0). docs/kernels.md has
    the other formulas and the rule for ties.

    Args:
        data: [B, S, D], [S, D] or [S], with any strides. float32, float16, bfloat16 or float64; any
            type for the modes previous, next and nearest. A ragged batch is a list of [S, D], a
            jagged nested tensor, or all rows [sum of S, D] with offsets=.
        times: [S] for all entries of the batch, or [B, S]. int64 nanoseconds, or float seconds.
            They must not decrease.
        target_times: [T] or [B, T] in any order, in the unit of times. Give either target_times or
            hz.
        mode: "linear" (default), "nearest", "previous", "next", "slerp", "angle" or "mean".
        edge: The rule for rows outside the data or in a gap longer than max_gap: "clamp" (default),
            "mask", "extrapolate" or "error".
        max_gap: The longest gap that is interpolated, in seconds. Default None: no limit.
        out: An array or tensor for the result. Default None: a new one.
        hz: The rate of a uniform grid over the data, in Hz. Default None.
        dtype: The dtype of the result. Default None: that of data.
        return_valid: Whether to also return the validity, bool [B, T], True for rows inside the
            data and in no gap. Default False.
        return_times: Whether to also return the target times. Default False.
        normalize: "unit" (x / 255), {"mean", "std"}, {"min", "max"}, or (name, statistics). Default
            None.
        clip: (lowest, highest), applied after normalize. Default None.
        augment: {"seed", "noise", "scale", "dropout"}, applied after clip. The result is then
            rounded once to dtype. Default None.
        window: For mode "mean": the seconds around each target, or (before, after). Default None:
            the period of the targets.
        period: For mode "angle": the period of the values. Default None: 2 pi.
        lo: For mode "angle": the lower end of the range of values. Default None.
        quats: For mode "slerp": groups of four channels that are quaternions. Default None.
        sign: For mode "slerp": "continuous" chooses the sign of each quaternion nearest to the one
            before. Default None.
        lengths: int64 [B], the number of valid rows of each entry of [B, S, D]. Default None.
        offsets: int64 [B + 1], the first row of each entry of a ragged batch. Default None.
        backend: None or "auto" (by the device of data), "cpu", "cuda" or "pytorch".
        validate: Whether to check the order of times. Default None: only on the host, because a GPU
            must wait for the result.

    Returns:
        [B, T, D], [T, D] or [T], with the dtype, device and library of data; never a view of data.
        With return_valid or return_times, a tuple. The result is differentiable in data for the
        modes linear, previous, next and nearest.

    Raises:
        Misuse: A shape, dtype or option is invalid.
        Malformed: Times decrease; the message has the entry and the index.
        Unsupported: The device or back end is not available.

    Example:
        values = robocache.resample(states, times, hz=50)
    """
    if unknown:
        raise _unknown_keyword("resample", unknown, _RESAMPLE)
    kind: Any = type(data)
    key: Any = None
    # Without other options, the plan of an earlier call with these shapes can be repeated.
    if (
        kind is _tensor
        and (_compiling() or _dual._current_level >= 0)
        or not (
            hz is None
            and dtype is None
            and normalize is None
            and clip is None
            and augment is None
            and window is None
            and period is None
            and lo is None
            and quats is None
            and sign is None
            and lengths is None
            and offsets is None
            and not return_times
            and type(times) is kind
            and type(target_times) is kind
        )
    ):
        pass
    elif kind is _tensor:
        options = (
            mode,
            edge,
            None if max_gap is None else _checks.to_nanoseconds("max_gap", max_gap),
            return_valid,
            backend,
            validate,
            out is None,
        )
        tensors: tuple[Any, ...] = (
            (data, times, target_times) if out is None else (data, times, target_times, out)
        )
        try:
            plan = None
            for check, known in guarded_plans.get(options) or ():
                if check(*tensors):
                    plan = known
                    break
        except TypeError:
            # An option cannot be hashed, so it is invalid. The general path reports the error.
            tensors = ()
        if plan is None and tensors:
            key, plan = find_plan(options, tensors)
        if plan is not None:
            got = out
            if out is None:
                got = (
                    data.new_empty(plan.shape)
                    if plan.keeps_dtype
                    else data.new_empty(plan.shape, dtype=plan.dtype)
                )
            op = plan.op
            stream = _stream(plan.cuda) if plan.cuda >= 0 else 0
            if plan.valid is None:
                if op.start(
                    op.number,
                    op.pack(
                        data.data_ptr(), times.data_ptr(), target_times.data_ptr(), got.data_ptr()
                    ),
                    op.count,
                    stream,
                    None,
                ):
                    # The launch failed. run repeats it and raises the error with its text.
                    op.run(
                        stream,
                        data.data_ptr(),
                        times.data_ptr(),
                        target_times.data_ptr(),
                        got.data_ptr(),
                    )
                return got
            valid = data.new_empty(plan.valid, dtype=_bool)
            op.run(
                stream,
                data.data_ptr(),
                times.data_ptr(),
                target_times.data_ptr(),
                got.data_ptr(),
                valid.data_ptr(),
            )
            return got, valid
    elif kind is np.ndarray:
        gap = None if max_gap is None else _checks.to_nanoseconds("max_gap", max_gap)
        key, plan, got = _repeat_call(
            (mode, edge, gap, return_valid, backend), (data, times, target_times), out
        )
        if plan is not None:
            return got
    rule = {
        "mode": mode,
        "edge": edge,
        "max_gap": max_gap,
        "window": window,
        "period": period,
        "lo": lo,
        "quats": quats,
        "sign": sign,
        "normalize": normalize,
        "clip": clip,
        "augment": augment,
        "lengths": lengths,
        "offsets": offsets,
    }
    return general_call(
        [("data", data, times, rule)],
        target_times,
        key,
        True,
        hz=hz,
        out=out,
        dtype=dtype,
        want_valid=return_valid,
        return_times=return_times,
        validate=validate,
        backend=backend,
    )


def fuse(
    streams: Sequence[Any],
    target_times: Any = None,
    *,
    mode: Any = "linear",
    edge: Any = "clamp",
    max_gap: Any = None,
    out: Any = None,
    hz: Any = None,
    dtype: Any = None,
    return_valid: bool = False,
    return_times: bool = False,
    normalize: Any = None,
    clip: Any = None,
    augment: Any = None,
    window: Any = None,
    period: Any = None,
    lo: Any = None,
    quats: Any = None,
    sign: Any = None,
    backend: str | None = None,
    validate: bool | None = None,
    **unknown: Any,
) -> Any:
    """Interpolates several streams at the same times and joins the results, in one launch.

    Any option of a stream may also be a list with one entry per stream. The options that are not
    listed here are those of resample.

    Args:
        streams: Pairs (data, times), each as in resample. A third part has the options of this
            stream: (data, times, {"mode": "nearest", "lengths": ...}).
        target_times: [T] or [B, T]. Give either target_times or hz.
        mode: As in resample. Default "linear".
        edge: As in resample. Default "clamp".
        max_gap: As in resample. Default None.
        out: An array or tensor for the result. Default None: a new one.
        hz: The rate of a uniform grid in Hz. It starts when all streams have begun, and ends when
            the first one ends. Default None.
        dtype: The dtype of the result. Required if the streams have different dtypes and out is
            None.
        return_valid: Whether to also return the validity, bool [B, T, N], one column per stream.
            Default False.
        return_times: Whether to also return the target times. Default False.
        normalize: As in resample. Default None.
        clip: As in resample. Default None.
        augment: As in resample. Default None.
        window: As in resample. Default None.
        period: As in resample. Default None.
        lo: As in resample. Default None.
        quats: As in resample. Default None.
        sign: As in resample. Default None.
        backend: As in resample. Default None.
        validate: As in resample. Default None.

    Returns:
        [B, T, sum of D], the streams in the given order. With return_valid or return_times, a
        tuple.

    Raises:
        Misuse: A shape, dtype or option is invalid.
        Malformed: Times decrease; the message has the entry and the index.
        Unsupported: The device or back end is not available.

    Example:
        values = robocache.fuse([(states, state_times), (forces, force_times)], hz=50)
    """
    if unknown:
        raise _unknown_keyword("fuse", unknown, _FUSE)
    options = {
        "mode": mode,
        "edge": edge,
        "max_gap": max_gap,
        "window": window,
        "period": period,
        "lo": lo,
        "quats": quats,
        "sign": sign,
        "normalize": normalize,
        "clip": clip,
        "augment": augment,
    }
    arrays = []
    key = None
    plain = (
        hz is None and not return_times and normalize is None and augment is None and quats is None
    )
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        plain = False
    try:
        for s in streams:
            if not isinstance(s, (tuple, list)):  # Rows of an array are not a pair.
                raise TypeError
            if len(s) != 2:
                plain = False
            arrays += s[:2]
    except TypeError:
        raise Misuse(
            f"streams: expected (data, times) pairs, found {_type_names(streams)}",
            hint="resample(data, times, …) takes one stream",
        ) from None
    if plain and arrays:
        given = tuple(
            tuple(v) if isinstance(v, list) else v for v in (mode, edge, period, lo, clip)
        )
        # In nanoseconds, because one duration has several forms: 1, 1.0 and text with a unit.
        key, plan, got = _repeat_call(
            (
                *given,
                _gaps_ns(window),
                _gaps_ns(max_gap),
                str(dtype),
                return_valid,
                backend,
                validate,
                "fuse",
            ),
            (*arrays, target_times),
            out,
        )
        if plan is not None:
            return got
    return general_call(
        _expand_options(streams, options),
        target_times,
        key,
        False,
        hz=hz,
        out=out,
        dtype=dtype,
        want_valid=return_valid,
        return_times=return_times,
        validate=validate,
        backend=backend,
    )


def needs_torch_operators(torch: Any, streams: Sequence[Any], target_times: Any) -> bool:
    """Reports whether a call must use torch's operators.

    This is the case if the call is traced, needs a gradient, or has tensors of a subclass.

    Args:
        torch: The module torch.
        streams: The name, data, times and options of each stream. Ragged data is a list.
        target_times: The target times, or None.
    """
    if torch.compiler.is_compiling():
        return any(
            isinstance(data, torch.Tensor)
            or isinstance(data, (list, tuple))
            and isinstance(data[0], torch.Tensor)
            for _, data, _, _ in streams
        )
    tensors = [
        part
        for _, data, _, _ in streams
        for part in (data if isinstance(data, (list, tuple)) else (data,))
        if isinstance(part, torch.Tensor)
    ]
    if not tensors:
        return False
    reject_tangents(torch, tensors)
    if _is_traced(torch) or torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return True
    plain = (torch.Tensor, torch.nn.Parameter)
    return any(
        isinstance(t, torch.Tensor) and type(t) not in plain and not t.is_nested
        for t in (*tensors, *(s[2] for s in streams), target_times)
    )


def reject_tangents(torch: Any, tensors: Sequence[Any]) -> None:
    """Rejects tensors of forward-mode AD.

    Operators of torch.library drop their tangents, so the derivative would silently be zero.
    """
    if torch.autograd.forward_ad._current_level < 0:
        return
    for t in tensors:
        if (
            isinstance(t, torch.Tensor)
            and t.is_floating_point()
            and torch.autograd.forward_ad.unpack_dual(t).tangent is not None
        ):
            raise Unsupported(
                "there is no derivative in forward mode (jvp, jacfwd, dual numbers)",
                hint="use reverse mode: torch.autograd.grad, .backward()",
            )


def _unknown_keyword(op: str, unknown: Mapping[str, Any], known: Sequence[str]) -> Misuse:
    """Returns the error for an unknown keyword."""
    name = next(iter(unknown))
    return Misuse(f"unknown keyword {name!r} of {op}", hint=_checks.nearest_names(name, known))


def _type_names(streams: Any) -> str:
    """Returns the types of streams as text."""
    if not isinstance(streams, (tuple, list)):
        return type(streams).__name__
    return ", ".join(type(s).__name__ for s in streams)


def _gaps_ns(v: Any) -> Any:
    """Returns durations in nanoseconds: of one stream, or a tuple for a list of streams."""
    if isinstance(v, (list, tuple)):
        return tuple(_gaps_ns(x) for x in v)
    return None if v is None else _checks.to_nanoseconds("max_gap", v)


def _expand_options(
    streams: Sequence[Any], options: Mapping[str, Any]
) -> list[tuple[str, Any, Any, Mapping[str, Any]]]:
    """Returns the name, data, times and options of each stream."""
    n = len(streams)
    spread = {k: _rules.per_stream(k, v, n) for k, v in options.items()}
    out: list[tuple[str, Any, Any, Mapping[str, Any]]] = []
    for i, s in enumerate(streams):
        if len(s) not in (2, 3):
            raise Misuse(
                f"stream {i}: expected (data, times) or (data, times, options), "
                f"found {len(s)} parts",
                {"stream": i},
            )
        own = dict(s[2]) if len(s) == 3 else {}
        for k in own:
            if k not in _rules.RULE_NAMES:
                raise Misuse(
                    f"stream {i}: unknown option {k!r}",
                    {"stream": i},
                    _checks.nearest_names(k, _rules.RULE_NAMES),
                )
        out.append((f"stream {i}", s[0], s[1], {**{k: v[i] for k, v in spread.items()}, **own}))
    return out


# Lists of (check, plan) by options. check(*tensors) reports whether the plan fits the tensors.
guarded_plans: Recent[list[tuple[Any, Any]]] = Recent()
_MAX_GUARDS = 4  # The number of shapes per kind of call for which a check is kept.


def find_plan(
    options: tuple[Any, ...], tensors: Sequence[Any], kept: Recent[Any] = _recent_plans
) -> tuple[Any, Any]:
    """Returns the key and the plan of a call with tensors.

    The key holds everything that the plan depends on. It is None if the plan cannot be kept. A plan
    that is found again also gets a check in guarded_plans, which is faster than building the key.

    Args:
        options: All options that the plan depends on.
        tensors: The tensors of the call.
        kept: The plans of earlier calls by key.
    """
    if _modes() or _transforms() is not None or _dual._current_level >= 0:
        return None, None
    key: list[Any] = [options]
    for t in tensors:
        if type(t) is not _tensor or t.requires_grad or t.is_neg() or t.is_nested or t.is_meta:
            return None, None
        key += (
            (t.dtype, t.shape, t.layout, t.get_device())
            if t.layout is not _strided
            else (t.dtype, t.shape, t.stride(), t.get_device())
        )
    whole = tuple(key)
    plan = kept.get(whole)
    if plan is not None and _guards is not None:
        guarded = guarded_plans.get(options)
        if guarded is None:
            guarded = []
            guarded_plans.put(options, guarded)
        if len(guarded) < _MAX_GUARDS:
            sizes = [list(t.shape) for t in tensors]
            strides = [list(t.stride()) for t in tensors]
            guards = _guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
            guarded.append((guards.check, plan))
    return whole, plan


def _repeat_call(
    options: tuple[Any, ...], arrays: tuple[Any, ...], out: Any
) -> tuple[Any, Plan | None, Any]:
    """Repeats the plan of an earlier call with other addresses.

    Args:
        options: All options that the plan depends on.
        arrays: The data and times of the streams, and the target times.
        out: The array or tensor for the result, or None.

    Returns:
        (key, plan, result). The key is None if the plan of this call cannot be kept. Plan and
        result are None if there is no plan yet.
    """
    kind: Any = type(arrays[0])
    if (
        kind is not _tensor
        and kind is not np.ndarray
        or kind is _tensor
        and _dual._current_level >= 0
    ):
        return None, None, None
    given = arrays if out is None else (*arrays, out)
    options = (options, out is None)
    key, plan = None, None
    try:
        if kind is _tensor:
            for check, known in guarded_plans.get(options) or ():
                if check(*given):
                    plan = known
                    break
            if plan is None:
                key, plan = find_plan(options, given)
            addresses = [a.data_ptr() for a in given] if plan is not None else []
        else:
            whole: list[Any] = [options]
            for a in given:
                if type(a) is not kind:
                    return None, None, None
                whole += (a.dtype, a.shape, a.strides)
            if out is not None:
                whole.append(out.flags.writeable)
            key = tuple(whole)
            plan = _recent_plans.get(key)
            addresses = (
                [a.__array_interface__["data"][0] for a in given] if plan is not None else []
            )
    except TypeError:  # An option cannot be hashed.
        return None, None, None
    if plan is None:
        return key, None, None
    out_address = 0 if out is None else addresses.pop()
    got, valid = _resampling.run_plan(plan, addresses, out, out_address)
    return key, plan, got if valid is None else (got, valid)


def general_call(
    streams: list[Any],
    target_times: Any,
    key: Any,
    single: bool,
    *,
    return_times: bool,
    want_valid: bool,
    **options: Any,
) -> Any:
    """Runs a call with any options, and keeps its plan for _repeat_call.

    Args:
        streams: The name, data, times and options of each stream.
        target_times: The target times, or None.
        key: The key for the plan; None: the plan is not kept.
        single: Whether the call is resample, whose result may have fewer axes.
        return_times: Whether to also return the target times.
        want_valid: Whether to also return the validity.
        options: The other options of the call.
    """
    if not streams:
        raise Misuse("no stream: expected at least one (data, times) pair")
    torch = sys.modules.get("torch")
    if torch is not None and _tensor is None and not torch.compiler.is_compiling():
        _bind_torch(torch)
    if torch is not None and needs_torch_operators(torch, streams, target_times):
        from ._tensors import torchops as _torchops

        return _torchops.run_traced(
            streams,
            target_times,
            single=single,
            want_valid=want_valid,
            return_times=return_times,
            **options,
        )
    got, valid, targets, plan = _resampling.run_call(
        streams, target_times, single=single, want_valid=want_valid, **options
    )
    if key is not None and plan is not None and not plan.checks_precision:
        _recent_plans.put(key, plan)
    return deliver(
        (got, valid if want_valid else None, targets.array if return_times else None), streams[0][1]
    )
