"""Epoch: one pass of a `for` over a Loader."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ._errors import Misuse

if TYPE_CHECKING:
    from .loader import Loader


class Epoch:
    """One pass of a `for`."""

    def __init__(self, loader: Loader, turn: int) -> None:
        self._loader = loader
        self._turn = turn
        self._done = False
        self._epoch = -1  # known with the first batch
        self._taking = (
            threading.Lock()
        )  # a thread that asked before that, and was late, would be given the next epoch's first

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._done:
            raise StopIteration
        if self._loader._turn != self._turn:
            raise Misuse(
                "another `for`, set_epoch or load_state_dict has moved this Loader",
                hint="begin a new `for`",
            )
        with self._taking:
            taken = None if self._done else self._loader._next(self._epoch)
            if taken is None:
                self._done = True
                raise StopIteration
            self._epoch = taken.epoch
        return taken.batch

    def __len__(self) -> int:
        return len(self._loader)
