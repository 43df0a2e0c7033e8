"""Registers the operators of torch as soon as both packages are there, whichever is imported first, without importing torch.

A program that torch.export saved, or a graph that was compiled, names torch.ops.robocache.resample: who loads it needs the operator before anything calls one.
"""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import ModuleSpec
from typing import Any

__all__ = ["register", "watch"]


def register() -> None:
    """Makes torch.ops.robocache.resample, fuse and voxelize. The installed package is also called by torch itself (the entry point torch.backends)."""
    try:
        from ._tensors import torchops as _torchops, torchvoxels as _torchvoxels  # noqa: F401
    except Exception as e:  # `import torch` must not fail by it
        warnings.warn(f"torch.ops.robocache is not there: {type(e).__name__}: {e}", RuntimeWarning, stacklevel=2)


def watch() -> None:
    """Registers now where torch was imported, else once it is."""
    torch = sys.modules.get("torch")
    if torch is None:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    elif not getattr(torch.__spec__, "_initializing", False):  # where torch is on its way it calls register itself, or the first operation does
        register()


class _Finder:
    """Finds torch where the others find it, with a loader that registers afterwards."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        for other in sys.meta_path:
            find = getattr(other, "find_spec", None)
            spec = find(name, path, target) if find is not None and other is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec  # type: ignore[no-any-return]
        return None


class _Loader:
    """torch's own loader, and its stand-in until torch runs."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        register()


_finder: Any = _Finder()
