"""backend="pytorch": resample, fuse and voxelize with a few of torch's own operators.

It serves GPU tensors without our kernels, and is the oracle of the tests. The results equal those
of the kernels bit by bit, with one exception: linear is a float64 multiply-add rounded to float32,
which in rare cases (one in 1e9) differs from the exact fused one. Sums of voxels are float64
additions in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from .arrays import View
from .._errors import Unsupported

__all__ = ["fuse", "voxelize"]


def _to_clock(times: torch.Tensor, seconds: bool) -> torch.Tensor:
    """Returns times as int64 ns, or as float64 seconds if `seconds`, for the old API."""
    if seconds:
        return times.double()
    return times if times.dtype == torch.int64 else (times.double() * 1e9).round().long()


def fuse(
    series: list[Any], targets: View, dtype: Any, spec: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns [B, T, sum of D] and the validity [B, T, N].

    Args:
        series: The streams.
        targets: The target times.
        dtype: The dtype of the result; None: that of the first stream.
        spec: "clock" and "epsilon", as in resampling.make_plan.
    """
    seconds = spec.get("clock") == "given"
    epsilon = spec.get("epsilon") or 0.0 if seconds else 0.0
    target_times = _to_clock(targets.array, seconds)
    dtype = dtype or series[0].values.array.dtype
    columns, validity = [], []
    for stream in series:
        data, times, lengths = _padded_stream(stream, seconds)
        entries = len(data)
        values, valid, zeros = _interpolate(
            data,
            times.expand(entries, -1),
            target_times.expand(entries, -1),
            lengths,
            stream.spec,
            seconds,
            epsilon,
        )
        columns.append(_apply_epilogue(values, zeros, stream.spec, dtype))
        validity.append(valid)
    return torch.cat(columns, -1), torch.stack(validity, -1)


def _padded_stream(stream: Any, seconds: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns a stream with a batch axis: data [B, S, D], times and the rows of each entry [B].

    A ragged batch is padded to its longest entry.

    Args:
        stream: The stream.
        seconds: Whether times are float seconds of the old API.
    """
    data = stream.values.array
    times = _to_clock(stream.times.array, seconds)
    channel_axes = (1,) * (2 - data.dim())  # [S] has one channel.
    if stream.offsets is None:
        if data.dim() < 3:
            data = data.reshape(1, *data.shape, *channel_axes)
        if stream.lengths is not None:
            return data, times, stream.lengths.array
        return data, times, torch.full((data.shape[0],), data.shape[1], device=data.device)
    data = data.reshape(*data.shape, *channel_axes)
    offsets = stream.offsets.array
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max()) if len(lengths) else 0
    rows = offsets[:-1, None] + torch.arange(longest, device=data.device)
    rows = rows.clamp(max=max(len(data) - 1, 0))
    return data[rows], times[rows], lengths


def _check_supported(rule: Mapping[str, Any]) -> None:
    """Raises Unsupported if this back end cannot compute a stream with these options."""
    mode, edge = rule.get("mode", "linear"), rule.get("edge", "clamp")
    if "augment" in rule:
        option = "augment"
    elif edge == "error":
        option = f"edge={edge!r}"
    elif mode not in ("linear", "previous", "next", "nearest"):
        option = f"mode={mode!r}"
    else:
        return
    raise Unsupported(f"backend='pytorch' has no {option}", hint="leave backend= out")


class _Intervals(NamedTuple):
    """The samples around each target: the target lies between rows left and right of its entry.

    All tensors are [B, T].
    """

    left: torch.Tensor
    right: torch.Tensor
    exact: torch.Tensor  # The target is at the timestamp of row left.
    before: torch.Tensor  # The target is before the first sample, and is not extrapolated.
    after: torch.Tensor  # The target is after the last sample, and is not extrapolated.
    outside: torch.Tensor  # The target is before the first or after the last sample.


def _find_intervals(
    times: torch.Tensor,
    targets: torch.Tensor,
    lengths: torch.Tensor,
    rule: Mapping[str, Any],
    seconds: bool,
) -> _Intervals:
    """Returns the samples around each target.

    Args:
        times: The timestamps, [B, S], ascending also in the padding.
        targets: The target times, [B, T].
        lengths: The number of valid rows of each entry, [B, 1].
        rule: The options of the stream in the engine's form.
        seconds: Whether times are float seconds of the old API.
    """
    is_linear = rule.get("mode", "linear") == "linear"
    samples_until = torch.searchsorted(times, targets, right=True)  # Samples up to the target.
    last = (lengths - 1).clamp(min=0)
    left = (samples_until - 1).clamp(min=0)
    exact = (samples_until > 0) & (times.gather(1, left) == targets)
    before = samples_until == 0
    after = (left >= last) & ~exact & (samples_until > 0)
    # In the old API, a target at a timestamp is the end of the interval before it; otherwise it is
    # the start of the next one.
    if seconds and is_linear:
        left = torch.where(exact, (torch.searchsorted(times, targets) - 1).clamp(min=0), left)
        exact = exact & (targets == times[:, :1])
    right = torch.minimum(left + 1, last)
    if rule.get("edge", "clamp") != "extrapolate" or not is_linear:
        return _Intervals(left, right, exact, before, after, before | after)
    # A line needs two different timestamps. It runs through the first or the last two of these.
    # Of samples with equal timestamps, the last one counts.
    first_time, last_time = times[:, :1].contiguous(), times.gather(1, last)
    first = torch.searchsorted(times, first_time, right=True) - 1
    second_time = times.gather(1, torch.minimum(first + 1, last))
    second = torch.searchsorted(times, second_time, right=True) - 1
    next_to_last = torch.searchsorted(times, last_time) - 1
    has_line = (first_time != last_time) & (lengths > 1)
    left = torch.where(before & has_line, first, torch.where(after & has_line, next_to_last, left))
    right = torch.where(before & has_line, second, torch.where(after & has_line, last, right))
    outside = before | (targets > last_time)
    return _Intervals(left, right, exact, before & ~has_line, after & ~has_line, outside)


def _interpolate(
    data: Any,
    times: Any,
    targets: Any,
    lengths: Any,
    rule: Mapping[str, Any],
    seconds: bool,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Interpolates one stream.

    Args:
        data: The data, [B, S, D].
        times: The timestamps, [B, S].
        targets: The target times, [B, T].
        lengths: The number of valid rows of each entry, [B].
        rule: The options of the stream in the engine's form.
        seconds: Whether times are float seconds of the old API.
        epsilon: Seconds added to the denominator of the interpolation.

    Returns:
        (values [B, T, D], valid rows [B, T], rows that become zeros [B, T]).
    """
    _check_supported(rule)
    mode = rule.get("mode", "linear")
    max_gap = rule.get("max_gap", 0) / (1e9 if seconds else 1)  # 0: no limit.
    rows, width = data.shape[1:]
    if rows == 0 or targets.shape[1] == 0:
        nowhere = torch.zeros(targets.shape, dtype=torch.bool, device=data.device)
        return data.new_zeros((len(data), targets.shape[1], width)), nowhere, ~nowhere
    lengths = lengths[:, None]
    # The padding of shorter entries gets the largest time, so that the times stay sorted.
    limits = torch.finfo if times.is_floating_point() else torch.iinfo
    is_sample = torch.arange(rows, device=data.device) < lengths
    times = torch.where(is_sample, times, limits(times.dtype).max).contiguous()
    targets = targets.contiguous()
    found = _find_intervals(times, targets, lengths, rule, seconds)
    left, right = found.left, found.right
    left_time, right_time = times.gather(1, left), times.gather(1, right)
    blend = ~found.exact & ~found.before & ~found.after & (lengths > 0)

    def rows_at(index: torch.Tensor) -> torch.Tensor:
        """Returns the rows of the data with the numbers index [B, T]."""
        return data.gather(1, index[..., None].expand(*index.shape, width))

    if mode == "linear":
        gap = right_time - left_time
        weight = (targets - left_time).double() / torch.where(blend, gap.double() + epsilon, 1)
        values = _blend_rows(rows_at(left), rows_at(right), weight, blend)
    else:
        is_right_nearer = targets - left_time > right_time - targets
        takes_right = is_right_nearer if mode == "nearest" else mode == "next"
        chosen = torch.where(blend & takes_right, right, left)
        gap = (times.gather(1, chosen) - targets).abs()
        values = rows_at(chosen)
    valid = ~found.outside & (lengths > 0)
    if max_gap:
        valid &= found.exact | (gap <= max_gap)
    zeros = lengths == 0
    if rule.get("edge", "clamp") == "mask":
        zeros = zeros | ~valid
    return values, valid, zeros | torch.zeros_like(valid)


def _blend_rows(
    left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, blend: torch.Tensor
) -> torch.Tensor:
    """Returns left + weight · (right - left) where blend is True, else left.

    Args:
        left: The left rows, [B, T, D].
        right: The right rows, [B, T, D].
        weight: The weights of the right rows, float64 [B, T].
        blend: Whether the rows are blended, [B, T].
    """
    computing = torch.float64 if left.dtype == torch.float64 else torch.float32
    x, y = left.to(computing), right.to(computing)
    weight = weight.to(computing)[..., None]
    # The engine uses a fused multiply-add, which rounds once. torch has none, so the sum is
    # computed in float64 and rounded.
    mixed = (weight.double() * (y - x).double() + x.double()).to(computing)
    return torch.where(blend[..., None] & (weight != 0), mixed, x)


def _apply_epilogue(
    x: torch.Tensor, zero: torch.Tensor, rule: Mapping[str, Any], dtype: Any
) -> torch.Tensor:
    """Applies normalize and clip, and rounds once to dtype.

    Args:
        x: The interpolated values.
        zero: The rows that become zeros, whatever the normalization.
        rule: The options of the stream in the engine's form.
        dtype: The dtype of the result.
    """
    norm = rule.get("norm")
    if rule.get("unit"):
        x = x.float() / 255
    if norm is not None:
        x = x if x.dtype == torch.float64 else x.float()
        # Adjacent columns share an entry of the statistics, as the pixels of a channel do.
        entry = torch.arange(x.shape[-1], device=x.device) // max(rule.get("plane", 1), 1)
        entry = entry % len(norm["a"])
        a, b = (
            torch.tensor(norm[k], dtype=torch.float32, device=x.device)[entry] for k in ("a", "b")
        )
        if norm["kind"] == "mean_std":
            denominator = (b + 1e-8).to(x.dtype)
            x = torch.where(b == 0, 0, (x - a.to(x.dtype)) / denominator)
        else:
            denominator = (b - a).to(x.dtype)
            is_constant = denominator == 0
            scaled = 2 * (x - a.to(x.dtype)) / torch.where(is_constant, 1, denominator) - 1
            x = torch.where(is_constant, 0, scaled)
    if "clip" in rule:
        x = (x if x.is_floating_point() else x.float()).clamp(*rule["clip"])
    return torch.where(zero[..., None], 0, x).to(dtype)


def voxelize(
    call: Any, spec: Mapping[str, Any], *, dtype: Any, capacity: Any, return_stats: bool, out: Any
) -> Any:
    """Returns a dense grid [(B,) X, Y, Z(, F)]."""
    if (
        call.offsets is not None
        or call.lengths is not None
        or spec["bits"]
        or capacity is not None
        or spec["outside"] == "error"
    ):
        raise Unsupported(
            "backend='pytorch' makes dense grids of [N, 3] or [B, N, 3] points",
            hint="leave backend= out",
        )
    points = call.points.array.float()
    points = points if points.dim() == 3 else points[None]
    device = points.device
    grid = torch.tensor(spec["grid"], device=device)
    minimum = torch.tensor(spec["min"], device=device)
    cell = ((points - minimum) / torch.tensor(spec["size"], device=device)).floor()
    is_finite = points.isfinite().all(-1)
    is_counted = is_finite & ((cell >= 0) & (cell < grid)).all(-1)
    stats = torch.stack([is_counted.sum(), (is_finite & ~is_counted).sum(), (~is_finite).sum()])
    if spec["outside"] == "clip":
        cell = torch.minimum(cell.clamp(min=0), grid - 1.0)
        is_counted = is_finite
    x, y, z = cell.nan_to_num().long().unbind(-1)
    entry = torch.arange(len(points), device=device)[:, None]
    flat = (((entry * grid[0] + x) * grid[1] + y) * grid[2] + z)[is_counted]
    shape = (*points.shape[: call.points.array.dim() - 2], *spec["grid"])
    cells = len(points) * int(grid.prod())
    counts = torch.zeros(cells, dtype=torch.int64, device=device)
    counts.index_add_(0, flat, torch.ones_like(flat))
    if call.mode in ("count", "occupancy"):
        usual = torch.int32 if call.mode == "count" else torch.uint8
        numbers = counts if call.mode == "count" else counts > 0
        got = numbers.to(dtype if isinstance(dtype, torch.dtype) else usual).reshape(shape)
    else:
        features = call.features.array.reshape(len(points), -1, call.width)[is_counted]
        got = _reduce_features(call.mode, features, flat, counts, spec["fill"])
        got = got.reshape(*shape, call.width)
    if out is not None:
        got = out.copy_(got)
    return (got, stats) if return_stats else got


def _reduce_features(
    mode: str, features: torch.Tensor, flat: torch.Tensor, counts: torch.Tensor, fill: float
) -> torch.Tensor:
    """Returns the features of each cell as float32, [cells, F].

    Args:
        mode: "sum", "mean", "first", "min" or "max".
        features: The features of the points, [points, F].
        flat: The cell of each point, [points].
        counts: The number of points of each cell, [cells].
        fill: The value of empty cells, except for sums and means, which are 0.
    """
    shape, device = (len(counts), features.shape[-1]), features.device
    if mode in ("sum", "mean"):
        total = torch.zeros(shape, dtype=torch.float64, device=device)
        total.index_add_(0, flat, features.double())
        return (total / counts.clamp(min=1)[:, None] if mode == "mean" else total).float()
    if mode == "first":
        # The first point of each cell. Empty cells have the number of an additional row of fill.
        order = torch.arange(len(flat), device=device)
        first = torch.full(shape[:1], len(flat), device=device)
        first.scatter_reduce_(0, flat, order, "amin")
        filling = features.new_full((1, shape[1]), fill, dtype=torch.float32)
        return torch.cat([features.float(), filling])[first]
    # A minimum is the negative maximum of the negative values. NaN does not take part.
    sign = -1.0 if mode == "min" else 1.0
    signed = torch.where(features.isnan(), float("-inf"), features.float() * sign)
    largest = torch.full(shape, float("-inf"), device=device)
    largest.scatter_reduce_(0, flat[:, None].expand(-1, shape[1]), signed, "amax")
    return torch.where((counts == 0)[:, None], fill, sign * largest)
