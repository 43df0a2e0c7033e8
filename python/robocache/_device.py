"""Batches on a CUDA device, copied on their own stream, one batch ahead of the consumer.

The memory of a batch is allocated on the caller's stream, so that dropping the batch needs no call
of the device. For a tensor that is used on another stream, torch records an event when it frees the
tensor. If the device has failed, this event fails, and torch ends the process.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from ._batches import HostBatches, DeliveredBatch, ReadAhead
from ._errors import Error, Temporary
from ._finisher import Finisher


# Texts in CUDA's messages that mean that the device or its context is lost; internal/cudahost has
# their numbers. After other errors, such as those of a captured stream, the device still works.
_LOST_DEVICE_TEXTS = (
    "an illegal memory access",
    "the launch timed out",
    "context is destroyed",
    "device-side assert",
    "hardware stack error",
    "an illegal instruction",
    "misaligned address",
    "global/shared address space",
    "invalid program counter",
    "unspecified launch failure",
    "uncorrectable ECC",
    "uncorrectable NVLink",
    "busy or unavailable",
)
_LOST_HINT = (
    "an earlier kernel of any library broke the process's context, or the device failed. "
    "Start a new process and load the loader's state_dict to continue; "
    "compute-sanitizer finds such a kernel"
)


class _RunningCopy:
    """A copy in progress; its source stays unchanged until the event reports that it was read."""

    __slots__ = ("event", "tensors", "owners", "stream")

    def __init__(self, event: Any, tensors: dict[str, Any], owners: list[Any], stream: Any) -> None:
        self.event = event
        self.tensors = tensors
        self.owners = owners  # The tensors that own the memory of `tensors`.
        self.stream = stream  # The stream on which the memory was allocated.


def _wait_for_copies(*queues: deque[DeliveredBatch]) -> None:
    """Waits until the copies in the queues are complete, so that their host memory can be freed."""
    for queue in queues:
        while queue:
            # The batch stays in the queue until its copy is complete: an interrupt must not free
            # its memory.
            t = queue[0]
            if t.copy is not None:
                try:
                    t.copy.event.synchronize()
                except RuntimeError:
                    # The device has failed or was released at exit. Nothing reads the memory any
                    # more.
                    pass
            queue.popleft()


class DeviceBatches(ReadAhead):
    """Delivers host batches on a device."""

    def __init__(
        self, batches: HostBatches, torch: Any, target: Any, finisher: Finisher | None = None
    ) -> None:
        super().__init__()
        self._batches, self._torch, self._target, self._finisher = batches, torch, target, finisher
        self._stream = torch.cuda.Stream(device=target)
        # Marks the work on the caller's stream that a copy must wait for.
        self._ready_event = torch.cuda.Event()
        # Events of finished copies, for reuse: creating an event is a call of the driver.
        self._spare_events: list[Any] = []
        # The targets of running copies: an exception must not free them.
        self._copy_targets: list[Any] = []
        # Delivered batches whose copies may still be running.
        self._copying: deque[DeliveredBatch] = deque()
        # The epoch of the last delivered batch, and whether it followed the epoch before it.
        self._epoch, self._is_next_epoch = -2, False
        weakref.finalize(self, _wait_for_copies, self._copying, self._pending)

    @property
    def pid(self) -> int:
        """The process that receives the batches."""
        return self._batches.pid

    def next(self, epoch: int = -1) -> DeliveredBatch | None:
        """Returns the next batch on the device, ready on the caller's current stream.

        Returns None at the end of the epoch. Raises Temporary if the device failed.
        """
        try:
            with self._consumer_lock:
                return self._next_on_device(epoch)
        except RuntimeError as e:
            if (
                isinstance(e, Error)
                or "CUDA" not in str(e)
                or not any(text in str(e) for text in _LOST_DEVICE_TEXTS)
            ):
                raise
            raise Temporary(f"the CUDA device failed, and torch says: {e}", hint=_LOST_HINT) from e

    def _next_on_device(self, epoch: int) -> DeliveredBatch | None:
        """Starts the copies of the next two batches and returns the first of them."""
        while self._copying:
            copied = self._copying[0].copy.event
            if not copied.query():
                if len(self._copying) <= 2:
                    break
                # A host that is far ahead of the device would accumulate the sources of copies.
                copied.synchronize()
            self._copying.popleft()
            self._spare_events.append(copied)
        if not self._pending and self._batches.next(epoch, into=self._pending) is None:
            return None
        first = self._pending[0]
        if epoch not in (-1, first.epoch):
            return None
        caller_stream = self._torch.cuda.current_stream(self._target)
        self._start_copy(first, caller_stream)
        if first.epoch != self._epoch:
            self._epoch, self._is_next_epoch = first.epoch, first.epoch == self._epoch + 1
        if len(self._pending) < 2:
            try:
                if (
                    self._batches.next(first.epoch, wait=False, into=self._pending) is None
                    and self._is_next_epoch
                ):
                    # At the end of the epoch, take the first batch of the next one. The engine
                    # prepares it ahead too.
                    self._batches.next(wait=False, into=self._pending)
            except Error:
                pass  # The error belongs to the next batch and is raised again with it.
        for t in self._pending:
            self._start_copy(t, caller_stream)
        # Even a wait for a finished copy delays the stream by microseconds.
        if not first.copy.event.query():
            caller_stream.wait_event(first.copy.event)
        tensors = first.copy.tensors
        if first.copy.stream != caller_stream:
            # Without this call, torch reuses the memory while this stream still reads it.
            for v in first.copy.owners:
                self._record_use(v, caller_stream)
        delivered = DeliveredBatch(first.seq, first.epoch, tensors)
        # The source stays in memory until the copy has read it. In this order, an exception in
        # between delivers the batch again.
        self._copying.append(first)
        self._pending.popleft()
        first.copy.tensors = {}
        first.copy.owners = []
        return delivered

    def _start_copy(self, t: DeliveredBatch, caller_stream: Any) -> None:
        """Starts the copy of a batch, unless it was started before.

        The memory comes from the caller's stream. The copy waits for the work on this stream, which
        may still use the memory.

        Args:
            t: The batch on the host.
            caller_stream: The caller's current stream.
        """
        if t.copy is not None:
            return
        try:
            if self._finisher is not None:
                tensors, owners = self._finisher(t.batch, self._copy, self._stream.cuda_stream)
            else:
                owners = self._copy([v for v in t.batch.values() if not isinstance(v, list)])
                moved = iter(owners)
                tensors = {k: v if isinstance(v, list) else next(moved) for k, v in t.batch.items()}
            event = (
                self._spare_events.pop()
                if self._spare_events
                else self._torch.cuda.Event(blocking=True)
            )
            event.record(self._stream)
            t.copy = _RunningCopy(event, tensors, owners, caller_stream)
        except BaseException:
            # A part of the copy may be running, and nothing else would wait for it.
            self._stream.synchronize()
            raise
        finally:
            self._copy_targets = []

    def _copy(self, host: Sequence[Any], made: Sequence[Any] = ()) -> list[Any]:
        """Copies tensors to the device, and returns the copies.

        The sources may be images that the engine decoded on the device; the engine reuses their
        memory.

        Args:
            host: The tensors to copy.
            made: Tensors that are written after the copies, on the same stream.
        """
        to = [self._torch.empty(v.shape, dtype=v.dtype, device=self._target) for v in host]
        self._copy_targets = [*to, *made]
        # The memory comes from the caller's stream, where earlier work may still use it. The copy
        # waits for this work.
        self._ready_event.record(self._torch.cuda.current_stream(self._target))
        self._stream.wait_event(self._ready_event)
        self._move(to, host)
        return to

    def _move(self, to: list[Any], host: list[Any]) -> None:
        """Copies the tensors in `host` to those in `to`, on the stream for copies."""
        with self._torch.cuda.stream(self._stream):
            for t, v in zip(to, host):
                t.copy_(v, non_blocking=True)

    def _record_use(self, v: Any, stream: Any) -> None:
        """Prevents the reuse of a tensor's memory while a stream reads it."""
        v.record_stream(stream)

    def drop_pending(self) -> None:
        """Drops the batches that were read ahead, because the position of the loader changes."""
        with self._consumer_lock:
            while self._pending:
                t = self._pending[0]
                if t.copy is not None:
                    self._copying.append(t)
                self._pending.popleft()

    def close(self) -> None:
        """Waits for the running copies."""
        with self._consumer_lock:
            _wait_for_copies(self._copying, self._pending)


class PinnedBatches:
    """Delivers page-locked host batches to a caller that copies them with non_blocking=True.

    Such a copy may still read the memory after the caller has dropped the tensor. torch keeps its
    own page-locked memory in this case, but not the engine's. So this class keeps each tensor until
    there is no other reference to it. Then it waits until the device has done the work in the
    caller's stream.
    """

    # The number of kept tensors that one call examines: a caller may hold thousands.
    _MAX_EXAMINED = 256

    def __init__(self, batches: HostBatches, torch: Any, device: Any) -> None:
        self._batches, self._torch, self._device = batches, torch, device
        self._delivered: deque[Any] = deque()  # Delivered tensors, the newest last.
        self._older: deque[Any] = deque()  # Tensors that have been in use for several batches.
        # Tensors without other references, whose copies may still be running.
        self._releasing: deque[tuple[Any, list[Any]]] = deque()
        self._consumer_lock = threading.RLock()
        # Returns the number of references to a storage; None in versions of torch without it.
        self._count = getattr(torch._C, "_storage_Use_Count", None)
        # The reference counts of a tensor without other references; they differ between versions of
        # Python and torch.
        self._unused_counts = self._reference_counts(deque([torch.empty(1)]))
        weakref.finalize(
            self,
            _synchronize_and_clear,
            torch,
            device,
            self._delivered,
            self._older,
            self._releasing,
        )

    @property
    def pid(self) -> int:
        """The process that receives the batches."""
        return self._batches.pid

    def next(self, epoch: int = -1) -> DeliveredBatch | None:
        """Returns the next batch; None at the end of the epoch."""
        with self._consumer_lock:
            self._release_unused()
            taken = self._batches.next(epoch)
            if isinstance(taken, DeliveredBatch):
                self._delivered.extend(v for v in taken.batch.values() if not isinstance(v, list))
                return taken
            return None

    def _reference_counts(self, queue: deque[Any]) -> tuple[int, int]:
        """Returns the reference counts of a queue's first tensor and of its storage.

        A view has its own tensor object and shares the storage.
        """
        t = queue[0]
        return sys.getrefcount(t), 0 if self._count is None else self._count(
            t.untyped_storage()._cdata
        )

    def _release_unused(self) -> None:
        """Releases the tensors to which nothing else refers.

        Their memory is freed only after the device has done the work that is queued now, because
        this work may be a copy from them.
        """
        while self._releasing and self._releasing[0][0].query():
            self._releasing.popleft()
        free: list[Any] = []
        for queue, n in (
            (self._delivered, len(self._delivered)),
            (self._older, min(len(self._older), self._MAX_EXAMINED)),
        ):
            for _ in range(n):
                used = self._reference_counts(queue) != self._unused_counts
                (queue if used else free).append(queue[0])
                queue.popleft()
        while len(self._delivered) > self._MAX_EXAMINED:
            self._older.append(self._delivered[0])
            self._delivered.popleft()
        if free:
            event = self._torch.cuda.Event()
            event.record(self._torch.cuda.current_stream(self._device))
            self._releasing.append((event, free))

    def close(self) -> None:
        """Waits for the work that was queued on the device."""
        with self._consumer_lock:
            _synchronize_and_clear(
                self._torch, self._device, self._delivered, self._older, self._releasing
            )


def _synchronize_and_clear(torch: Any, device: Any, *kept: deque[Any]) -> None:
    """Waits for the device and clears the queues, so that their tensors can be freed."""
    if any(kept):
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            pass  # The device has failed or was released at exit.
    for queue in kept:
        queue.clear()
