"""resample and fuse for any input.

The inputs become one prepared operation, and the result is an array of the caller's library.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import arrays as _arrays, rules as _rules, timeline as _timeline
from .arrays import HOST, View
from .._errors import Misuse
from .prepared import Prepared, prepare, raw_stream
from .results import dense_strides, native_dtype, device_name, require_same_device

__all__ = [
    "Plan",
    "Series",
    "index_view",
    "is_jagged",
    "is_ragged",
    "join_ragged",
    "make_plan",
    "make_series",
    "make_targets",
    "move_to",
    "period_of",
    "run_call",
    "run_plan",
    "warn_far",
]

_CLOCKS = ("float64", "float32", "int64")
# Seconds. float32 timestamps beyond this have steps of at least 1/64 s.
FAR_SECONDS = float(1 << 17)


class Series:
    """One stream of a call.

    Attributes:
        name: The name of the stream in messages.
        values: The data, [B, S, D], [S, D] or [S]; [sum of S, D] if ragged.
        times: The timestamps of the data.
        lengths: The number of valid rows of each entry, or None.
        offsets: The first row of each entry of a ragged batch, or None.
        samples: The sample numbers for augment, or None.
        spec: The options of the stream in the engine's form.
        rank: The number of axes of values.
    """

    __slots__ = ("name", "values", "times", "lengths", "offsets", "samples", "spec", "rank")

    def __init__(
        self,
        name: str,
        values: View,
        times: View,
        lengths: View | None,
        offsets: View | None,
        samples: View | None,
        spec: dict[str, Any],
    ) -> None:
        self.name, self.values, self.times = name, values, times
        self.lengths, self.offsets, self.samples, self.spec = lengths, offsets, samples, spec
        self.rank = len(values.shape)

    @property
    def batch(self) -> int | None:
        """The number of entries of the batch; None without a batch."""
        if self.offsets is not None:
            return self.offsets.shape[0] - 1 if self.offsets.shape else 0
        return self.values.shape[0] if self.rank == 3 else None

    def views(self) -> list[View]:
        """Returns the inputs in the order of the operation's tensors."""
        return [
            v
            for v in (self.values, self.times, self.lengths, self.offsets, self.samples)
            if v is not None
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Returns the engine's descriptions of the inputs."""
        is_ragged = self.offsets is not None
        shape, stride = self.values.batched(2 if is_ragged else 3)
        return [
            {"dtype": self.values.dtype, "shape": list(shape), "stride": list(stride)},
            *(v.describe() for v in self.views()[1:]),
        ]


class Plan:
    """A prepared call: the operation, and the shapes of its results. Only addresses are missing."""

    __slots__ = (
        "op",
        "shape",
        "dtype",
        "device",
        "valid",
        "cuda",
        "checks_precision",
        "keeps_dtype",
    )

    def __init__(
        self,
        op: Prepared,
        shape: tuple[int, ...],
        dtype: Any,
        device: Any,
        valid: tuple[int, ...] | None,
        cuda: int,
    ) -> None:
        self.op, self.shape, self.dtype, self.device = op, shape, dtype, device
        self.valid = valid  # The shape of the validity; None if it is not returned.
        self.cuda = cuda
        self.keeps_dtype = False  # Whether the result has the dtype of the data.
        # Whether each call must look for float32 timestamps with large steps (see warn_far). Such
        # a plan is not repeated, because a repeated plan skips the check.
        self.checks_precision = False


def _times_view(name: str, x: Any, like: View) -> View:
    """Returns times as memory on the data's device."""
    v = move_to(_arrays.view_like(name, x, like), like)
    if v.dtype not in _CLOCKS:
        raise Misuse(
            f"{name}: unsupported dtype {v.dtype}: "
            "expected int64 nanoseconds, or float64 or float32 seconds",
            {"tensor": name},
        )
    if len(v.shape) not in (1, 2):
        what, _, of = name.partition(" of ")
        want = (
            "targets must have shape [T] or [B, T]"
            if name == "target_times"
            else f"{what} must have shape [S] or [B, S]"
        )
        raise Misuse(f"{of + ': ' if of else ''}{want}, found {list(v.shape)}", {"tensor": name})
    return v


def move_to(v: View, like: View) -> View:
    """Returns v on the device of like, copied if necessary."""
    if v.device == like.device:
        return v
    torch = _arrays.imported_torch()
    if like.device == HOST:
        return _arrays.view(v.name, v.array.cpu())
    t = v.array if v.tensor else torch.from_numpy(np.ascontiguousarray(v.array))
    return _arrays.view(v.name, t.to(like.array.device))


def index_view(name: str, x: Any, like: View) -> View:
    """Returns lengths, offsets or sample numbers as int64 on the data's device."""
    v = move_to(_arrays.view_like(name, x, like), like)
    if v.dtype != "int64":
        if "int" not in v.dtype:
            raise Misuse(f"{name}: unsupported dtype {v.dtype}: expected int64", {"tensor": name})
        v = _arrays.view(name, v.array.long() if v.tensor else v.array.astype(np.int64))
    if len(v.shape) != 1:
        raise Misuse(f"{name} must have one dimension, found {list(v.shape)}", {"tensor": name})
    return v


def join_ragged(name: str, parts: Sequence[Any]) -> tuple[Any, list[int]]:
    """Returns the rows of a list of arrays in one array, and the first row of each."""
    views = [_arrays.view(f"{name}[{i}]", p) for i, p in enumerate(parts)]
    if len({(v.dtype, v.shape[1:], v.device) for v in views}) > 1 or not views[0].shape:
        raise Misuse(
            f"{name}: the arrays of a ragged batch differ in more than their length: "
            f"{[(v.dtype, list(v.shape)) for v in views]}",
            {"tensor": name},
        )
    offsets = [0]
    for v in views:
        offsets.append(offsets[-1] + v.shape[0])
    if views[0].tensor:
        return _arrays.imported_torch().cat([v.array for v in views]), offsets
    return np.concatenate([v.array for v in views]), offsets


def is_ragged(x: Any) -> bool:
    """Reports whether x is a list of arrays."""
    return (
        isinstance(x, (list, tuple))
        and len(x) > 0
        and all(isinstance(p, np.ndarray) or hasattr(p, "__dlpack__") for p in x)
    )


def is_jagged(x: Any) -> bool:
    """Reports whether x is a nested tensor."""
    return getattr(x, "is_nested", False) is True


def _join_batch(name: str, data: Any, times: Any, of: str) -> tuple[Any, Any, Any]:
    """Returns the joined data, the joined times and the offsets of a ragged batch.

    Args:
        name: The name of the stream, for messages.
        data: A list of arrays, or a jagged nested tensor.
        times: The times in the same form, or the joined times.
        of: Text such as " of stream 1", for messages about the times.
    """
    if is_jagged(data):
        torch = _arrays.imported_torch()
        if data.layout is not torch.jagged:
            raise Misuse(
                f"{name}: a nested tensor of layout {data.layout}",
                {"tensor": name},
                "use layout=torch.jagged",
            )
        if data.lengths() is not None:
            raise Misuse(
                f"{name}: a jagged tensor with holes", {"tensor": name}, "use .contiguous()"
            )
        offsets = data.offsets()
        data = data.values()
        if is_jagged(times):
            times = times.values()
    else:
        data, offsets = join_ragged(name, data)
    is_sequence = isinstance(times, (list, tuple))
    if is_ragged(times) or is_sequence and times and isinstance(times[0], (list, tuple)):
        arrays = [np.asarray(t) if isinstance(t, (list, tuple)) else t for t in times]
        times, time_offsets = join_ragged(f"times{of}", arrays)
        if isinstance(offsets, list) and time_offsets != offsets:
            raise Misuse(
                f"Source length mismatch (length of data and of its timestamps{of}): expected "
                f"{np.diff(offsets).tolist()} rows, found {np.diff(time_offsets).tolist()}"
            )
    return data, times, offsets


def make_series(name: str, data: Any, times: Any, rule: Mapping[str, Any], step: int = 0) -> Series:
    """Returns a stream: dense, padded with lengths, or ragged (lists, offsets, nested tensors).

    Args:
        name: The name of the stream in messages.
        data: The data.
        times: The timestamps.
        rule: The options of the stream, including lengths and offsets.
        step: The period of the targets in ns; 0 if it is not known.
    """
    rule = dict(rule)
    lengths, offsets = rule.pop("lengths", None), rule.pop("offsets", None)
    of = "" if name == "data" else f" of {name}"
    if is_ragged(data) or is_jagged(data):
        if offsets is not None or lengths is not None:
            raise Misuse(
                f"{name}: a ragged batch has lengths of its own: leave lengths= and offsets= out",
                {"tensor": name},
            )
        data, times, offsets = _join_batch(name, data, times, of)
    values = _arrays.view(name, data)
    if not 1 <= len(values.shape) <= 3 or offsets is not None and len(values.shape) > 2:
        want = (
            "[sum of S, D] or [sum of S] with offsets"
            if offsets is not None
            else "[B, S, D], [S, D] or [S]"
        )
        raise Misuse(
            f"{name} must have shape {want}, found {list(values.shape)}",
            {"tensor": name},
            "Flatten the axes after the rows: a row is D channels.",
        )
    shape = values.batched(2)[0]
    aug = rule.get("augment")
    samples = aug.get("samples") if isinstance(aug, Mapping) else None
    return Series(
        name,
        values,
        _times_view(f"times{of}", times, values),
        None if lengths is None else index_view(f"lengths{of}", lengths, values),
        None if offsets is None else index_view(f"offsets{of}", offsets, values),
        None if samples is None else index_view(f"samples{of}", samples, values),
        _rules.series_rule(**rule, channels=shape[-1], step=step),
    )


_warned = False


def warn_far(times: View) -> bool:
    """Warns once about float32 seconds with large steps, such as 128 s for times since 1970.

    Returns whether later calls must check too: the times are float32 on the host, and no warning
    was given yet.
    """
    global _warned
    if _warned or times.dtype != "float32" or times.device != HOST:
        return False
    a = times.array.numpy() if times.tensor else times.array
    if a.size and max(abs(float(a.min())), abs(float(a.max()))) > FAR_SECONDS:
        _warned = True
        warnings.warn(
            f"{times.name}: float32 seconds beyond 2^17 have steps of 1/64 s and more "
            "(at 1.76e9 s: 128 s); give int64 nanoseconds or float64 seconds",
            stacklevel=5,
        )
    return not _warned


def make_targets(target_times: Any, hz: Any, series: list[Series]) -> View:
    """Returns the target times as memory, from target_times= or hz=."""
    like = series[0].values
    if (target_times is None) == (hz is None):
        raise Misuse(
            "expected target times or hz=, one of them",
            hint="hz=50 makes a grid of 50 rows a second over the data",
        )
    if hz is None:
        return _times_view("target_times", target_times, like)
    made = _timeline.uniform_grid(
        [(s.times, s.lengths, s.offsets) for s in series], _timeline.parse_frequency(hz)
    )
    return move_to(_arrays.view("target_times", made), like)


def _series_spec(s: Series) -> dict[str, Any]:
    """Returns a stream in the engine's form."""
    extras = {"lengths": s.lengths, "offsets": s.offsets, "samples": s.samples}
    has = [name for name, value in extras.items() if value is not None]
    return {**s.spec, "name": s.name, "has": has}


def _result_dtype(series: list[Series], out: View | None, dtype: Any) -> str:
    """Returns the type of the result: dtype=, the type of out=, or the type of all streams."""
    if dtype is not None:
        result = _rules.dtype_name(dtype)
        if out is not None and out.dtype != result:
            raise Misuse(
                f"out has wrong dtype: expected {result}, found {out.dtype}", {"tensor": "out"}
            )
        return result
    if out is not None:
        return out.dtype
    types = [s.values.dtype for s in series]
    if len(set(types)) > 1:
        raise Misuse(
            f"Stream dtypes must match (dtypes must match): found {', '.join(types)}",
            hint="Pass dtype=, the dtype of the result.",
        )
    return types[0]


def _check_out(out: View, shape: tuple[int, ...], first: View) -> None:
    """Raises Misuse if out= has another shape, or is on another device than the first stream."""
    if out.shape != shape:
        raise Misuse(
            f"out has wrong shape: expected {list(shape)}, found {list(out.shape)}",
            {"tensor": "out"},
        )
    if out.device != first.device:
        raise Misuse(
            f"out must be on the same device as {first.name}: "
            f"expected {device_name(first)}, found {device_name(out)}",
            {"tensor": "out"},
        )


def make_plan(
    series: list[Series],
    targets: View,
    *,
    single: bool,
    out: View | None,
    dtype: Any,
    want_valid: bool,
    validate: Any,
    backend: str,
    clock: str = "ns",
    epsilon: float = 0.0,
) -> Plan:
    """Returns the plan for these inputs. The engine checks their values.

    Args:
        series: The streams.
        targets: The target times.
        single: Whether the call is resample, so that the result has the axes of its data.
        out: The memory for the result, or None.
        dtype: The dtype of the result, or None.
        want_valid: Whether to also return the validity.
        validate: Whether to check the order of times on a device. On the host it always is.
        backend: "cpu", "cuda" or "reference".
        clock: "ns", or "given" for the float seconds of the old API.
        epsilon: Seconds added to the denominator of the interpolation, for the old API.
    """
    first = series[0].values
    require_same_device([*(v for s in series for v in s.views()), targets])
    batches = [s.batch for s in series]
    batch = batches[0]
    if any(b != batch for b in batches):
        raise Misuse(
            "Batch size mismatch (batch sizes of the streams): "
            f"found {[b if b is not None else 'none' for b in batches]}",
            hint="give all streams a batch, or none",
        )
    if batch is None and len(targets.shape) == 2:
        raise Misuse(
            "Batch size mismatch (batch of the targets): "
            f"expected [T], as the data has no batch, found {list(targets.shape)}"
        )
    result = _result_dtype(series, out, dtype)
    channels = sum(s.values.batched(2)[0][-1] for s in series)
    rows = targets.shape[-1]
    full = (1 if batch is None else batch, rows, channels)
    shape: tuple[int, ...]
    if batch is not None:
        shape = full
    elif single and series[0].rank == 1:
        shape = (rows,)
    else:
        shape = (rows, channels)
    described: dict[str, Any] = {
        "dtype": result,
        "shape": list(full),
        "stride": dense_strides(full),
    }
    if out is not None:
        _check_out(out, shape, first)
        described["stride"] = list(out.batched(3)[1])
    has = []
    tensors = [t for s in series for t in s.describe()] + [targets.describe(), described]
    valid: tuple[int, ...] | None = None
    if want_valid:
        has.append("valid")
        validity = (*full[:2], len(series))
        tensors.append(
            {"dtype": "uint8", "shape": list(validity), "stride": dense_strides(validity)}
        )
        valid = validity if batch is not None else validity[1:]
        if single:
            valid = valid[:-1]
    spec: dict[str, Any] = {
        "op": "fuse",
        "backend": backend,
        "device": max(first.device, 0),
        "tensors": tensors,
        "has": has,
        "clock": clock,
        "series": [_series_spec(s) for s in series],
    }
    if epsilon:
        spec["epsilon"] = epsilon
    if validate or first.device == HOST:
        spec["validate"] = True
    plan = Plan(
        prepare(spec),
        shape,
        native_dtype(result, first),
        first.array.device if first.tensor else None,
        valid,
        first.device,
    )
    plan.keeps_dtype = result == first.dtype
    return plan


def run_plan(p: Plan, inputs: Sequence[int], out: Any, address: int) -> tuple[Any, Any]:
    """Runs a plan and returns the result and the validity, or None in place of the validity.

    Args:
        p: The plan.
        inputs: The addresses of the inputs.
        out: The array or tensor for the result; None: a new one.
        address: The address of out.
    """
    if p.device is None:
        if out is None:
            out = np.empty(p.shape, p.dtype)
            address = out.__array_interface__["data"][0]
        if p.valid is None:
            p.op.run(0, *inputs, address)
            return out, None
        valid: Any = np.empty(p.valid, np.bool_)
        p.op.run(0, *inputs, address, valid.__array_interface__["data"][0])
        return out, valid
    torch = _arrays.imported_torch()
    if out is None:
        out = torch.empty(p.shape, dtype=p.dtype, device=p.device)
        address = out.data_ptr()
    stream = raw_stream(p.cuda) if p.cuda >= 0 else 0
    if p.valid is None:
        p.op.run(stream, *inputs, address)
        return out, None
    valid = torch.empty(p.valid, dtype=torch.bool, device=p.device)
    p.op.run(stream, *inputs, address, valid.data_ptr())
    return out, valid


def _run_torch(
    series: list[Series],
    targets: View,
    single: bool,
    out: Any,
    dtype: Any,
    want_valid: bool,
    clock: str,
    epsilon: float,
) -> tuple[Any, Any, View, None]:
    """Runs a call with torch's operators. Returns what run_call returns, without a plan."""
    from . import oracle as _oracle

    require_same_device([*(v for s in series for v in s.views()), targets])
    kind = None if dtype is None else native_dtype(_rules.dtype_name(dtype), series[0].values)
    got, valid = _oracle.fuse(
        series, targets, kind if out is None else out.dtype, {"clock": clock, "epsilon": epsilon}
    )
    if series[0].batch is None:
        got, valid = got[0], valid[0]
        got = got[..., 0] if single and series[0].rank == 1 else got
    valid = valid[..., 0] if single else valid
    return got if out is None else out.copy_(got), valid if want_valid else None, targets, None


def period_of(hz: Any) -> int:
    """Returns the period of hz= in ns; 0 without hz=."""
    return _timeline.period_ns(_timeline.parse_frequency(hz)) if hz is not None else 0


def run_call(
    streams: list[tuple[str, Any, Any, Mapping[str, Any]]],
    target_times: Any,
    *,
    single: bool,
    hz: Any = None,
    out: Any = None,
    dtype: Any = None,
    want_valid: bool = False,
    validate: Any = None,
    backend: Any = None,
    clock: str = "ns",
    epsilon: float = 0.0,
) -> tuple[Any, Any, View, Plan | None]:
    """Runs one call of resample (single) or fuse, without the operators of torchops.

    The options are those of resample and of make_plan.

    Args:
        streams: The name, data, times and options of each stream.
        target_times: The target times, or None.

    Returns:
        (result, validity, target times, plan). The plan is None for backend="pytorch".
    """
    step = period_of(hz)
    needs_step = any(
        rule.get("mode") == "mean" and rule.get("window") is None for *_, rule in streams
    )
    if needs_step and not step and clock == "ns":
        step = _timeline.even_step(target_times)
    series = [make_series(*s, step=step) for s in streams]
    targets = make_targets(target_times, hz, series)
    # A list, not a generator: each clock is checked.
    checks = [warn_far(v) for v in (*(s.times for s in series), targets)]
    out_view = None if out is None else _arrays.writable_view("out", out)
    chosen = _rules.choose_backend(backend, series[0].values.device)
    if chosen == "pytorch":
        return _run_torch(series, targets, single, out, dtype, want_valid, clock, epsilon)
    plan = make_plan(
        series,
        targets,
        single=single,
        out=out_view,
        dtype=dtype,
        want_valid=want_valid,
        validate=validate,
        backend=chosen,
        clock=clock,
        epsilon=epsilon,
    )
    plan.checks_precision = any(checks)
    inputs = [v.addr for s in series for v in s.views()] + [targets.addr]
    if out_view is None:
        got, valid = run_plan(plan, inputs, None, 0)
    else:
        got, valid = run_plan(plan, inputs, out_view.array, out_view.addr)
    return got if out is None else out, valid, targets, plan
