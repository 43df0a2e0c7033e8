"""Epoch is the iterator of one `for` over a Loader."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ._errors import Misuse

if TYPE_CHECKING:
    from .loader import Loader


class Epoch:
    """Iterates over the batches of one epoch of a Loader."""

    def __init__(self, loader: Loader, pass_number: int) -> None:
        self._loader = loader
        self._pass_number = pass_number
        self._done = False
        self._epoch = -1  # Known after the first batch.
        # The lock protects _epoch. Without it, a thread could call the loader before the epoch is
        # known, wait until the epoch has ended, and receive the first batch of the next epoch.
        self._consumer_lock = threading.Lock()

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._done:
            raise StopIteration
        if self._loader._pass_number != self._pass_number:
            raise Misuse(
                "another `for`, set_epoch or load_state_dict has moved this Loader",
                hint="begin a new `for`",
            )
        with self._consumer_lock:
            taken = None if self._done else self._loader._next_batch(self._epoch)
            if taken is None:
                self._done = True
                raise StopIteration
            self._epoch = taken.epoch
        return taken.batch

    def __len__(self) -> int:
        return len(self._loader)
