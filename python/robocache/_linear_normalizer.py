"""The normalization that diffusion_policy's policies take: one scale and one offset per column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _memory


class Field(NamedTuple):
    """The normalization of one key: output = input * scale + offset. Tensors are float32, (D,)."""

    scale: Any
    offset: Any
    input_stats: dict[str, Any]  # min, max, mean and std of the input.


class Normalizer(dict[str, Field]):
    """The normalization of each key, {key: Field}.

    policy.set_normalizer(normalizer) of diffusion_policy accepts it.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the tensors under the names of diffusion_policy's LinearNormalizer."""
        out = {}
        for key, field in self.items():
            for name in ("scale", "offset"):
                out[f"params_dict.{key}.{name}"] = getattr(field, name)
            for name, value in field.input_stats.items():
                out[f"params_dict.{key}.input_stats.{name}"] = value
        return out

    def normalize(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the normalized tensors of a dict, float32."""
        return {k: x.to(self[k].scale) * self[k].scale + self[k].offset for k, x in batch.items()}

    def unnormalize(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the tensors of a dict of normalized tensors in their recorded unit, float32."""
        return {k: (x.to(self[k].scale) - self[k].offset) / self[k].scale for k, x in batch.items()}


def fit_field(x: Any, mode: str, low: float, high: float, eps: float) -> Field:
    """Returns the normalization that is fitted to the rows x, (N, D) in float32.

    Args:
        x: The rows.
        mode: "gaussian": mean 0 and standard deviation 1. "limits": from low to high.
        low, high: The outputs of "limits".
        eps: The range or deviation below which a column is constant. A constant column is only
            shifted: to 0 or to the middle of low and high.
    """
    torch = _memory.torch_module()
    stats = {"min": x.amin(0), "max": x.amax(0), "mean": x.mean(0), "std": x.std(0)}
    if mode == "gaussian":
        scale = 1 / torch.where(stats["std"] < eps, torch.ones_like(x[0]), stats["std"])
        return Field(scale, -stats["mean"] * scale, stats)
    width = stats["max"] - stats["min"]
    is_constant = width < eps
    scale = (high - low) / torch.where(is_constant, torch.full_like(width, high - low), width)
    shift_to_middle = (high + low) / 2 - stats["min"]
    offset = torch.where(is_constant, shift_to_middle, low - scale * stats["min"])
    return Field(scale, offset, stats)


def image_field() -> Field:
    """Returns the normalization of images from [0, 1] to [-1, 1]."""
    torch = _memory.torch_module()
    # The statistics of a uniform distribution over [0, 1].
    numbers = {"min": 0, "max": 1, "mean": 0.5, "std": np.sqrt(1 / 12)}
    stats = {k: torch.tensor([v], dtype=torch.float32) for k, v in numbers.items()}
    return Field(torch.tensor([2.0]), torch.tensor([-1.0]), stats)
