"""Registers the operators of torch, without importing torch.

A program saved by torch.export, or a compiled graph, refers to torch.ops.robocache.resample. A
process that loads the program needs the operator before its first call.
"""

from __future__ import annotations

import sys
import warnings

__all__ = ["register", "register_when_imported"]


def register() -> None:
    """Registers torch.ops.robocache.resample, fuse and voxelize.

    torch also calls this function if the package is installed (entry point torch.backends).
    """
    try:
        from ._tensors import torchops as _torchops, torchvoxels as _torchvoxels  # noqa: F401
    except Exception as e:  # An error must not break `import torch`.
        warnings.warn(
            f"torch.ops.robocache is not there: {type(e).__name__}: {e}",
            RuntimeWarning,
            stacklevel=2,
        )


def register_when_imported() -> None:
    """Registers the operators if torch is imported.

    If torch is imported later, torch calls register at the end of its own import.
    """
    torch = sys.modules.get("torch")
    if torch is not None and not getattr(torch.__spec__, "_initializing", False):
        register()
