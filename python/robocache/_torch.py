"""Registers the operators of torch, without importing torch.

A program that torch.export saved, or a graph that was compiled, names torch.ops.robocache.resample: who loads it needs the operator before anything calls one.
"""

from __future__ import annotations

import sys
import warnings

__all__ = ["register", "watch"]


def register() -> None:
    """Makes torch.ops.robocache.resample, fuse and voxelize. The installed package is also called by torch itself (the entry point torch.backends)."""
    try:
        from ._tensors import torchops as _torchops, torchvoxels as _torchvoxels  # noqa: F401
    except Exception as e:  # `import torch` must not fail by it
        warnings.warn(
            f"torch.ops.robocache is not there: {type(e).__name__}: {e}",
            RuntimeWarning,
            stacklevel=2,
        )


def watch() -> None:
    """Registers now if torch was imported. If it is imported later, it calls register at the end of its own import."""
    torch = sys.modules.get("torch")
    if torch is not None and not getattr(torch.__spec__, "_initializing", False):
        register()
