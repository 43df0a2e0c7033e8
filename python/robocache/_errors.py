"""The exceptions: one class per class of error of the engine. Branch on the class; the text is for people."""

from __future__ import annotations

from typing import Any

__all__ = [
    "Error",
    "NotFound",
    "Malformed",
    "Unsupported",
    "ResourceLimit",
    "Temporary",
    "Misuse",
    "Internal",
    "ForkError",
]


class Error(RuntimeError):
    """What went wrong, where (`.where`: dataset, file, episode, stream, row …), and what to do about it (`.hint`)."""

    where: dict[str, Any]
    hint: str

    def __init__(
        self, message: str = "", where: dict[str, Any] | None = None, hint: str = ""
    ) -> None:
        if hint and hint not in message:
            message = f"{message}; hint: {hint}"
        super().__init__(message)
        self.where = dict(where or {})
        self.hint = hint

    def within(self, where: dict[str, Any]) -> Error:
        """Returns the same error with more of its place: in .where, and ahead of the message."""
        added = {k: v for k, v in where.items() if k not in self.where}
        place = ", ".join(f"{k} {v}" for k, v in added.items())
        return type(self)(
            f"{place}: {self}" if place else str(self), {**added, **self.where}, self.hint
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.where, self.hint)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotFound(Error, FileNotFoundError):
    """A file, dataset, episode or back end is not there."""


class Malformed(Error):
    """The data breaks its own format; `.where` says where."""


class Unsupported(Error):
    """A named feature that this build or version does not have; `.hint` names the way round."""


class ResourceLimit(Error):
    """A limit in bytes, open files or disk space was met; `.hint` names what to raise."""


class Temporary(Error):
    """It may work when tried again."""


class Misuse(Error, ValueError):
    """The call is wrong: an argument out of range, an unknown name, a closed object."""


class Internal(Error):
    """A fault of RoboCache, never of the data: nothing skips it. Please report the message with its stack."""


class NotIndexed(Misuse, TypeError):
    """An object without items was indexed; `.hint` names the object that has items."""


class ForkError(Error):
    """Something that cannot cross a fork was used in a forked child; `.hint` says what to do instead."""


_CLASSES: dict[str, type[Error]] = {
    "not_found": NotFound,
    "malformed": Malformed,
    "unsupported": Unsupported,
    "resource_limit": ResourceLimit,
    "temporary": Temporary,
    "misuse": Misuse,
    "internal": Internal,
}


def from_engine(failure: dict[str, Any]) -> Error:
    """The exception for an error as the engine tells it."""
    cls = _CLASSES.get(failure.get("class", ""), Error)
    return cls(
        failure.get("message", "the engine failed"), failure.get("where"), failure.get("hint", "")
    )
