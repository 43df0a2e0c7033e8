"""The order of a Loader's samples, and where it stands in it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _memory, _options
from ._device import Device
from ._errors import Misuse

if TYPE_CHECKING:
    from . import _engine
    from ._batches import Batches
    from ._device import PageLocked

__all__ = ["Located", "Ordered"]


class Located(NamedTuple):
    """Where samples lie: int64 arrays."""

    dataset_index: np.ndarray  # position among the sources; 0 of a single dataset
    episode: np.ndarray  # its index in its dataset
    row: np.ndarray  # of its episode; with hz, position on its timeline


class Ordered:
    """What of a Loader concerns its order, the epoch and the position in it."""

    if TYPE_CHECKING:  # the Loader's own
        _batches: Batches | Device | PageLocked | None
        _midway: bool
        _given: int
        _turn: int

        _positioned: bool

        def _open(self) -> _engine.Handle: ...
        def _use(self) -> _engine.Handle: ...

    def _moved(self) -> None:
        """The loader stands elsewhere: a `for` that is under way has ended, and so has what was taken ahead."""
        self._midway = False
        self._turn += 1
        if isinstance(self._batches, Device):
            self._batches.drop()

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch. Right after load_state_dict for that same epoch it keeps the position."""
        epoch = _options.whole("epoch", epoch, least=0)
        ahead = self._batches.waiting if isinstance(self._batches, Device) else None
        if ahead == epoch and not (self._midway and self._given == epoch):
            self._midway = False
            self._turn += 1
            return  # what was taken ahead is what comes, and nothing of this epoch was given
        self._open().call("robocache_loader_set_epoch", {"epoch": epoch})
        self._positioned = True
        self._moved()

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: a small JSON-able dict. It counts the samples that were handed out, not those prefetched."""
        before = self._batches.before if isinstance(self._batches, Device) else 0
        handle = self._use()
        return handle.call("robocache_loader_state", {"before": before} if before else None)

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Goes on from a state: exactly, at any world size, batch size and number of threads. A state of other data (also of equal lengths: some values
        of the actions are compared) is Misuse that says what differs, unless force=True. States of earlier versions do not tell of values."""
        if not isinstance(state, Mapping):
            raise Misuse(f"a state of {type(state).__name__}: expected what state_dict() gave")
        self._open().call("robocache_loader_restore", {"state": dict(state), "force": bool(force)})
        self._positioned = True
        self._moved()

    def order(self, epoch: int = 0, *, rank: int | None = None) -> np.ndarray:
        """Sample numbers in the order of an epoch, over all ranks: int64. Nothing is decoded for it. rank: what that rank gives, batch after batch.

        Step t takes the positions [t·G, (t + 1)·G) of order(epoch), G = batch_size · world_size, and rank r the r-th slice of batch_size of
        them. With shuffle="pool" a step's positions are sorted by pool (pool_shards) before they are sliced, so that a rank keeps to few pools;
        what it gets it gives in the order of positions. The ranks' orders together are order(epoch): less what drop_last leaves out, more the
        epoch's first samples with which uneven="wrap" fills the last step.

        Samples are numbered as MapDataset counts; those of a mixture one source after the other. locate() says where they lie.
        """
        which = {} if rank is None else {"rank": operator.index(rank)}
        # the epoch does not depend on the ranks; a rank's share does
        handle = self._open() if rank is None else self._use()
        return _memory.values(
            handle.call("robocache_loader_order", {"epoch": operator.index(epoch), **which})
        )["order"]

    def locate(self, samples: Any) -> Located:
        """Where samples lie that order() named: dataset_index, episode (its index) and row, int64 arrays."""
        a = np.asarray(samples)
        if a.dtype.kind not in "iu" and a.size:
            raise Misuse(f"samples of {a.dtype}: expected integers")
        got = _memory.values(
            self._open().call("robocache_loader_locate", {"samples": a.ravel().tolist()})
        )
        return Located(*(got[k].reshape(a.shape) for k in Located._fields))
