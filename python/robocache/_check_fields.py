"""Checks the field names of option groups.

An unknown field raises Misuse, and the hint names the nearest field.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ._errors import Misuse

T = TypeVar("T")


def _unknown_field_hint(cls: type[Any], name: str, known: list[str]) -> str:
    """Returns the hint for an unknown field: the nearest fields, or the group with the field."""
    from . import options  # options imports this module.

    keyword = next((k for k, v in options.GROUPS.items() if v is cls), "")
    names = {
        spelling: field
        for field in known
        for spelling in (f"{keyword}_{field}", options.engine_name(keyword, field), field)
    }
    if name in names:
        return f"did you mean {names[name]!r}?"
    if elsewhere := options.spellings(name):
        return " or ".join(elsewhere)
    near = difflib.get_close_matches(name, names, n=6, cutoff=0.6)
    fields = list(dict.fromkeys(names[k] for k in near))[:3]
    if fields:
        return f"did you mean {' or '.join(map(repr, fields))}?"
    return "known: " + ", ".join(known)


def check_field_names(cls: type[T]) -> type[T]:
    """Makes the class of an option group raise Misuse for an unknown or unnamed field.

    Fields that are not keyword-only may be given without their name. The message shows how to write
    the call.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    known = [f.name for f in fields]
    unnamed = [f.name for f in fields if not f.kw_only]
    title = f"robocache.{cls.__name__}"
    init: Callable[..., None] = cls.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **given: Any) -> None:
        if len(args) > len(unnamed):
            first = "".join(f"{a!r}, " for a in args[: len(unnamed)])
            named = ", ".join(f"{name}=…" for name in known[len(unnamed) :])
            raise Misuse(
                f"{title}: expected its fields by name, found {args[len(unnamed)]!r} without one",
                hint=f"{title}({first}{named})",
            )
        for name in given:
            if name not in known:
                raise Misuse(
                    f"unknown field {name!r} of {title}", hint=_unknown_field_hint(cls, name, known)
                )
            if name in unnamed[: len(args)]:
                raise Misuse(
                    f"{title}: {args[0]!r} and {name}={given[name]!r}: expected one of them"
                )
        init(self, *args, **given)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls
