"""The exceptions: one class per error class of the engine.

Programs decide by the class. The text is for people.
"""

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
    """Base class of all errors of RoboCache.

    Attributes:
        where: The place of the error: dataset, file, episode, stream, row, and so on.
        hint: What to do about the error; "" if there is no advice.

    Example:
        try:
            loader = robocache.Loader("path")
        except robocache.Error as e:
            print(e, e.where, e.hint)
    """

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
        """Returns the same error with a more precise place, in .where and before the message.

        Args:
            where: The entries to add. Existing entries of .where are kept.
        """
        added = {k: v for k, v in where.items() if k not in self.where}
        prefix = ", ".join(f"{k} {v}" for k, v in added.items())
        message = f"{prefix}: {self}" if prefix else str(self)
        return type(self)(message, {**added, **self.where}, self.hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.where, self.hint)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotFound(Error, FileNotFoundError):
    """A file, dataset, episode or back end does not exist. Also a FileNotFoundError."""


class Malformed(Error):
    """The data violates its own format. `.where` has the place."""


class Unsupported(Error):
    """This build or version lacks a feature. `.hint` names an alternative."""


class ResourceLimit(Error):
    """A limit of bytes, open files or disk space was reached. `.hint` names the limit to raise."""


class Temporary(Error):
    """The operation failed for a reason that may pass. A retry may succeed."""


class Misuse(Error, ValueError):
    """The call is wrong: an invalid argument, an unknown name, or a closed object.

    Also a ValueError.
    """


class Internal(Error):
    """A fault of RoboCache, not of the data.

    on_bad_episode="skip" does not skip it. Please report the message with its stack.
    """


class NotIndexed(Misuse, TypeError):
    """An object without items was indexed. `.hint` names the object that has items."""


class ForkError(Error):
    """An object that does not work after a fork was used in a forked child.

    `.hint` says what to use instead.
    """


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
    """Returns the exception for an error of the engine."""
    cls = _CLASSES.get(failure.get("class", ""), Error)
    return cls(
        failure.get("message", "the engine failed"), failure.get("where"), failure.get("hint", "")
    )
