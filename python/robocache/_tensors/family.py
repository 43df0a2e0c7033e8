"""Converts results to the library of the first argument.

NumPy and torch results stay as they are. Other libraries use their own from_dlpack.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import arrays as _arrays

__all__ = ["deliver", "foreign_constructor"]


def foreign_constructor(x: Any) -> Any:
    """Returns the from_dlpack function of x's library; None for NumPy, torch, lists and numbers."""
    if isinstance(x, np.ndarray) or _arrays.is_tensor(x):
        return None
    if isinstance(x, (list, tuple)) and x:
        return foreign_constructor(x[0])
    if not hasattr(x, "__dlpack__"):
        return None
    namespace = getattr(x, "__array_namespace__", None)
    if namespace is not None:
        make = getattr(namespace(), "from_dlpack", None)
        if make is not None:
            return make
    root = sys.modules.get(type(x).__module__.partition(".")[0])
    for module in (
        root,
        getattr(root, "dlpack", None),
        getattr(getattr(root, "utils", None), "dlpack", None),
    ):
        make = getattr(module, "from_dlpack", None)
        if make is not None:
            return make
    return None


def deliver(results: tuple[Any, ...], like: Any) -> Any:
    """Returns the results that are not None, in the library of like.

    One result is returned alone, several as a tuple.
    """
    found = [r for r in results if r is not None]
    make = foreign_constructor(like)
    if make is not None:
        found = [make(r) if isinstance(r, np.ndarray) or _arrays.is_tensor(r) else r for r in found]
    return found[0] if len(found) == 1 else tuple(found)
