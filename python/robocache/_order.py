"""The order of a Loader's samples, and its position in the order."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _memory, _checks
from ._batches import ReadAhead
from ._errors import Misuse

if TYPE_CHECKING:
    from . import _engine
    from ._batches import HostBatches
    from ._device import PinnedBatches

__all__ = ["Located", "OrderMixin"]


class Located(NamedTuple):
    """The places of samples, as int64 arrays.

    Attributes:
        dataset_index: The position of the dataset among the sources; 0 for a single dataset.
        episode: The index of the episode in its dataset.
        row: The row in the episode. With hz=, the position on the timeline.
    """

    dataset_index: np.ndarray
    episode: np.ndarray
    row: np.ndarray


class OrderMixin:
    """The part of Loader that deals with the order, the epoch and the position."""

    if TYPE_CHECKING:  # Attributes of Loader.
        _batches: HostBatches | ReadAhead | PinnedBatches | None
        _epoch_is_open: bool
        _last_epoch: int
        _pass_number: int

        _positioned: bool

        def _open(self) -> _engine.Handle: ...
        def _open_for_use(self) -> _engine.Handle: ...
        def _drop_batch_source(self) -> None: ...

    def _after_move(self) -> None:
        """Ends the current `for` and drops the batches that were read ahead."""
        self._epoch_is_open = False
        self._pass_number += 1
        if isinstance(self._batches, ReadAhead):
            self._batches.drop_pending()

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of an epoch.

        Keeps the position if load_state_dict for the same epoch was called directly before.

        Args:
            epoch: The number of the epoch, at least 0.

        Raises:
            Misuse: epoch is not an integer of at least 0.
        """
        epoch = _checks.check_whole("epoch", epoch, least=0)
        ahead = self._batches.pending_epoch if isinstance(self._batches, ReadAhead) else None
        if ahead == epoch and not (self._epoch_is_open and self._last_epoch == epoch):
            self._epoch_is_open = False
            self._pass_number += 1
            # No call is needed: no batch of this epoch was delivered, and its first batches were
            # already read ahead.
            return
        self._open().call("robocache_loader_set_epoch", {"epoch": epoch})
        self._positioned = True
        self._after_move()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the loader as a small dict that JSON can store.

        The position counts the samples that were delivered, not those that were prefetched.

        Example:
            torch.save({"model": model.state_dict(), "data": loader.state_dict()}, "checkpoint.pt")
        """
        before = self._batches.first_pending_seq if isinstance(self._batches, ReadAhead) else 0
        handle = self._open_for_use()
        return handle.call("robocache_loader_state", {"before": before} if before else None)

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Continues from a state, exactly, at any world size, batch size and number of threads.

        States of earlier versions do not contain values of the data, so only the lengths are
        compared.

        Args:
            state: The dict that state_dict() returned.
            force: Whether to accept a state of other data. Default False.

        Raises:
            Misuse: The state belongs to other data; the message names the difference. Some values
                of the actions are compared, so data of equal lengths is also detected.
        """
        if not isinstance(state, Mapping):
            raise Misuse(f"a state of {type(state).__name__}: expected what state_dict() gave")
        handle = self._open()
        restored = handle.call(
            "robocache_loader_restore", {"state": dict(state), "force": bool(force)}
        )
        if restored is not None:  # The normalization of a growing dataset is part of its state.
            handle.info.update(restored)
            self._drop_batch_source()
        self._positioned = True
        self._after_move()

    def order(self, epoch: int = 0, *, rank: int | None = None) -> np.ndarray:
        """Returns the sample numbers of an epoch in their order, over all ranks. Decodes nothing.

        Samples are numbered as in MapDataset. In a mixture, the sources are numbered one after the
        other. locate() returns the episodes and rows of samples.

        Let G = batch_size * world_size. Step t takes the positions [t*G, (t + 1)*G) of
        order(epoch), and rank r takes the r-th slice of batch_size positions. With shuffle="pool",
        the positions of a step are sorted by pool (pool_shards) before they are sliced, so that a
        rank uses few pools. A rank delivers its samples in the order of their positions.

        All ranks together deliver order(epoch), with two differences. drop_last leaves out the last
        step if it is not full. uneven="wrap" fills the last step with the first samples of the
        epoch.

        Args:
            epoch: The number of the epoch. Default 0.
            rank: Return only the samples of this rank, batch after batch. Default None: all ranks.

        Returns:
            An int64 array of sample numbers.
        """
        rank_argument = {} if rank is None else {"rank": operator.index(rank)}
        # The order of an epoch does not depend on the ranks, but the share of a rank does.
        handle = self._open() if rank is None else self._open_for_use()
        args = {"epoch": operator.index(epoch), **rank_argument}
        return _memory.batch_values(handle.call("robocache_loader_order", args))["order"]

    def locate(self, samples: Any) -> Located:
        """Returns the places of samples.

        Args:
            samples: Sample numbers, as order() returns them: an int or an integer array of any
                shape.

        Returns:
            A Located with three int64 arrays in the shape of samples: dataset_index, episode (the
            index of the episode) and row.

        Raises:
            Misuse: samples are not integers, or a number is out of range.
        """
        a = np.asarray(samples)
        if a.dtype.kind not in "iu" and a.size:
            raise Misuse(f"samples of {a.dtype}: expected integers")
        got = _memory.batch_values(
            self._open().call("robocache_loader_locate", {"samples": a.ravel().tolist()})
        )
        return Located(*(got[k].reshape(a.shape) for k in Located._fields))
