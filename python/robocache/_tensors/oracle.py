"""backend="pytorch": resample, fuse and voxelize with a few of torch's own operators.

It serves GPU tensors without our kernels, and is the oracle of the tests. The results equal those
of the kernels bit by bit, with one exception: linear is a float64 multiply-add rounded to float32,
which in rare cases (one in 1e9) differs from the exact fused one. Sums of voxels are float64
additions in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .arrays import View
from .._errors import Unsupported

__all__ = ["fuse", "voxelize"]


def _to_clock(t: torch.Tensor, given: bool) -> torch.Tensor:
    """Returns times as int64 ns, or as float64 seconds if `given`, for the old API."""
    if given:
        return t.double()
    return t if t.dtype == torch.int64 else (t.double() * 1e9).round().long()


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
    given = spec.get("clock") == "given"
    epsilon = spec.get("epsilon") or 0.0 if given else 0.0
    at = _to_clock(targets.array, given)
    columns, valid = [], []
    for s in series:
        v = s.values.array
        t = _to_clock(s.times.array, given)
        v = (
            v.reshape(1, *v.shape, *(1,) * (2 - v.dim()))
            if v.dim() < 3 and s.offsets is None
            else v.reshape(*v.shape, *(1,) * (2 - v.dim()))
        )
        if s.offsets is None:
            n = (
                s.lengths.array
                if s.lengths is not None
                else torch.full((v.shape[0],), v.shape[1], device=v.device)
            )
        else:  # A ragged batch is padded to its longest entry.
            offsets = s.offsets.array
            n = offsets[1:] - offsets[:-1]
            longest = int((offsets[1:] - offsets[:-1]).max()) if len(offsets) > 1 else 0
            rows = torch.arange(longest, device=v.device)
            padded = (offsets[:-1, None] + rows).clamp(max=max(len(v) - 1, 0))
            v, t = v[padded], t[padded]
        got, ok, zero = _interpolate(
            v, t.expand(len(v), -1), at.expand(len(v), -1), n, s.spec, given, epsilon
        )
        columns.append(_apply_epilogue(got, zero, s.spec, dtype or series[0].values.array.dtype))
        valid.append(ok)
    return torch.cat(columns, -1), torch.stack(valid, -1)


def _interpolate(
    v: Any, t: Any, at: Any, n: Any, rule: Mapping[str, Any], given: bool, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Interpolates one stream.

    Args:
        v: The data, [B, S, D].
        t: The timestamps, [B, S].
        at: The target times, [B, T].
        n: The number of valid rows of each entry, [B].
        rule: The options of the stream in the engine's form.
        given: Whether times are float seconds of the old API.
        epsilon: Seconds added to the denominator of the interpolation.

    Returns:
        (values [B, T, D], valid rows [B, T], rows that become zeros [B, T]).
    """
    mode = rule.get("mode", "linear")
    edge = rule.get("edge", "clamp")
    longest = rule.get("max_gap", 0) / (1e9 if given else 1)  # 0: no limit.
    if (
        mode not in ("linear", "previous", "next", "nearest")
        or edge == "error"
        or "augment" in rule
    ):
        raise Unsupported(
            "backend='pytorch' has no "
            + (
                "augment"
                if "augment" in rule
                else f"edge={edge!r}"
                if edge == "error"
                else f"mode={mode!r}"
            ),
            hint="leave backend= out",
        )
    rows = v.shape[1]
    if rows == 0 or at.shape[1] == 0:
        none = torch.zeros(at.shape, dtype=torch.bool, device=v.device)
        return v.new_zeros((len(v), at.shape[1], v.shape[2])), none, ~none
    n = n[:, None]
    far = torch.finfo(t.dtype).max if t.is_floating_point() else torch.iinfo(t.dtype).max
    # The padding of shorter entries gets the largest time, so that the times stay sorted.
    t = torch.where(torch.arange(rows, device=v.device) < n, t, far).contiguous()
    at = at.contiguous()
    ub = torch.searchsorted(t, at, right=True)
    last = (n - 1).clamp(min=0)
    k = (ub - 1).clamp(min=0)
    exact = (ub > 0) & (t.gather(1, k) == at)
    before = ub == 0
    after = (k >= last) & ~exact & (ub > 0)
    # Targets lie between rows a and b. In the old API, a target at a timestamp is the end of the
    # interval before it; otherwise it is the start of the next one.
    if given and mode == "linear":
        k = torch.where(exact, (torch.searchsorted(t, at) - 1).clamp(min=0), k)
        exact = exact & (at == t[:, :1])
    a = k
    b = torch.minimum(k + 1, last)
    if edge == "extrapolate" and mode == "linear":
        first = torch.searchsorted(t, t[:, :1].contiguous(), right=True) - 1
        second = torch.searchsorted(t, t.gather(1, torch.minimum(first + 1, last)), right=True) - 1
        end = torch.searchsorted(t, t.gather(1, last)) - 1
        # A line needs two different timestamps. It runs through the first or the last two of these.
        has_line = (t[:, :1] != t.gather(1, last)) & (n > 1)
        a = torch.where(before & has_line, first, torch.where(after & has_line, end, a))
        b = torch.where(before & has_line, second, torch.where(after & has_line, last, b))
        before, after = before & ~has_line, after & ~has_line
        outside = (ub == 0) | (at > t.gather(1, last))
    else:
        outside = before | after
    t0, t1 = t.gather(1, a), t.gather(1, b)
    blend = ~exact & ~before & ~after & (n > 0)
    if mode == "linear":
        w = (at - t0).double() / torch.where(blend, (t1 - t0).double() + epsilon, 1)
        gap = t1 - t0
    else:
        takes_next = mode == "next" if mode != "nearest" else at - t0 > t1 - at
        a = torch.where(blend & takes_next, b, a)
        gap = (t.gather(1, a) - at).abs()
        blend = torch.zeros_like(blend)
    wide = (*a.shape, v.shape[2])
    v0 = v.gather(1, a[..., None].expand(wide))
    if mode == "linear":
        compute = torch.float64 if v.dtype == torch.float64 else torch.float32
        x = v0.to(compute)
        y = v.gather(1, b[..., None].expand(wide)).to(compute)
        w = w.to(compute)[..., None]
        # The engine uses a fused multiply-add, which rounds once. torch has none, so the sum is
        # computed in float64 and rounded.
        mixed = (w.double() * (y - x).double() + x.double()).to(compute)
        v0 = (
            torch.where(blend[..., None] & (w != 0), mixed, x)
            if v.dtype != compute
            else torch.where(blend[..., None] & (w != 0), mixed, v0)
        )
    ok = ~outside & (n > 0)
    if longest:
        ok &= exact | (gap <= longest)
    return v0, ok, (n == 0) | (~ok if edge == "mask" else torch.zeros_like(ok))


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
        column = (
            torch.arange(x.shape[-1], device=x.device)
            // max(rule.get("plane", 1), 1)
            % len(norm["a"])
        )
        a, b = (
            torch.tensor(norm[k], dtype=torch.float32, device=x.device)[column].to(x.dtype)
            for k in ("a", "b")
        )
        if norm["kind"] == "mean_std":
            down = (
                torch.tensor(norm["b"], dtype=torch.float32, device=x.device)[column] + 1e-8
            ).to(x.dtype)
            x = torch.where(b == 0, 0, (x - a) / down)
        else:
            down = (b.float() - a.float()).to(x.dtype)
            x = torch.where(down == 0, 0, 2 * (x - a) / torch.where(down == 0, 1, down) - 1)
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
    p = call.points.array.float()
    p = p if p.dim() == 3 else p[None]
    grid = torch.tensor(spec["grid"], device=p.device)
    f = (
        (p - torch.tensor(spec["min"], device=p.device))
        / torch.tensor(spec["size"], device=p.device)
    ).floor()
    finite = p.isfinite().all(-1)
    inside = finite & ((f >= 0) & (f < grid)).all(-1)
    stats = torch.stack([inside.sum(), (finite & ~inside).sum(), (~finite).sum()])
    if spec["outside"] == "clip":
        f = torch.minimum(f.clamp(min=0), grid - 1.0)
        inside = finite
    cells = int(grid.prod())
    i = f.nan_to_num().long()
    entry = torch.arange(len(p), device=p.device)[:, None]
    flat = (((entry * grid[0] + i[..., 0]) * grid[1] + i[..., 1]) * grid[2] + i[..., 2])[inside]
    shape = (*p.shape[: call.points.array.dim() - 2], *spec["grid"])
    count = torch.zeros(len(p) * cells, dtype=torch.int64, device=p.device).index_add_(
        0, flat, torch.ones_like(flat)
    )
    mode = call.mode
    if mode in ("count", "occupancy"):
        kind = torch.int32 if mode == "count" else torch.uint8
        got = (
            (count if mode == "count" else count > 0)
            .to(dtype if isinstance(dtype, torch.dtype) else kind)
            .reshape(shape)
        )
    else:
        x = call.features.array.reshape(len(p), -1, call.width)[inside]
        empty = (count == 0)[:, None]
        if mode in ("sum", "mean"):
            total = torch.zeros(
                len(count), call.width, dtype=torch.float64, device=p.device
            ).index_add_(0, flat, x.double())
            got = (total / count.clamp(min=1)[:, None] if mode == "mean" else total).float()
        elif mode == "first":
            order = torch.arange(len(flat), device=p.device)
            first = torch.full((len(count),), len(flat), device=p.device).scatter_reduce_(
                0, flat, order, "amin"
            )
            got = torch.cat(
                [x.float(), x.new_full((1, call.width), spec["fill"], dtype=torch.float32)]
            )[first]
        else:
            sign = -1.0 if mode == "min" else 1.0
            x = torch.where(x.isnan(), float("-inf"), x.float() * sign)
            start = torch.full((len(count), call.width), float("-inf"), device=p.device)
            got = sign * start.scatter_reduce_(0, flat[:, None].expand(-1, call.width), x, "amax")
            got = torch.where(empty, spec["fill"], got)
        got = got.reshape(*shape, call.width)
    if out is not None:
        got = out.copy_(got)
    return (got, stats) if return_stats else got
