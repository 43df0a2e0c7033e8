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

from ._batches import Batches, Taken
from ._errors import Error, Temporary
from ._finish import Finisher


# Texts in CUDA's messages that mean that the device or its context is lost; internal/cudahost has
# their numbers. After other errors, such as those of a captured stream, the device still works.
_LOST = (
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


class _Copy:
    """A copy in progress; its source stays unchanged until the event reports that it was read."""

    __slots__ = ("event", "tensors", "owners", "stream")

    def __init__(self, event: Any, tensors: dict[str, Any], owners: list[Any], stream: Any) -> None:
        self.event = event
        self.tensors = tensors
        self.owners = owners  # The tensors that own the memory of `tensors`.
        self.stream = stream  # The stream on which the memory was allocated.


def _settle(*flights: deque[Taken]) -> None:
    """Waits until the copies in the queues are complete, so that their host memory can be freed."""
    for queue in flights:
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


class Device:
    """Delivers host batches on a device.

    A batch that was read ahead has not been delivered yet. first_pending_seq names the first such
    batch, so that a saved state begins at this batch.
    """

    def __init__(
        self, batches: Batches, torch: Any, target: Any, finisher: Finisher | None = None
    ) -> None:
        self._batches, self._torch, self._target, self._finisher = batches, torch, target, finisher
        self._stream = torch.cuda.Stream(device=target)
        # Marks the work on the caller's stream that a copy must wait for.
        self._began = torch.cuda.Event()
        # Events of finished copies, for reuse: creating an event is a call of the driver.
        self._spare: list[Any] = []
        # The targets of running copies: an exception must not free them.
        self._moving: list[Any] = []
        self._ahead: deque[Taken] = deque()  # Batches taken from the engine and not delivered.
        self._behind: deque[Taken] = deque()  # Delivered batches whose copies may still be running.
        # The epoch of the last delivered batch, and whether it followed the epoch before it.
        self._epoch, self._follows = -2, False
        self._turn = threading.RLock()
        weakref.finalize(self, _settle, self._behind, self._ahead)

    @property
    def pid(self) -> int:
        """The process that receives the batches."""
        return self._batches.pid

    @property
    def before(self) -> int:
        """The number of the first batch that was taken and not delivered; 0 if there is none."""
        return self._ahead[0].seq if self._ahead else 0

    @property
    def waiting(self) -> int | None:
        """The epoch of the first batch that was taken and not delivered; None if there is none."""
        return self._ahead[0].epoch if self._ahead else None

    def next(self, epoch: int = -1) -> Taken | None:
        """Returns the next batch on the device, ready on the caller's current stream.

        Returns None at the end of the epoch. Raises Temporary if the device failed.
        """
        try:
            with self._turn:
                return self._next(epoch)
        except RuntimeError as e:
            if (
                isinstance(e, Error)
                or "CUDA" not in str(e)
                or not any(said in str(e) for said in _LOST)
            ):
                raise
            raise Temporary(f"the CUDA device failed, and torch says: {e}", hint=_LOST_HINT) from e

    def _next(self, epoch: int) -> Taken | None:
        """Starts the copies of the next two batches and returns the first of them."""
        while self._behind:
            copied = self._behind[0].copy.event
            if not copied.query():
                if len(self._behind) <= 2:
                    break
                # A host that is far ahead of the device would accumulate the sources of copies.
                copied.synchronize()
            self._behind.popleft()
            self._spare.append(copied)
        if not self._ahead and self._batches.next(epoch, into=self._ahead) is None:
            return None
        first = self._ahead[0]
        if epoch not in (-1, first.epoch):
            return None
        now = self._torch.cuda.current_stream(self._target)
        self._send(first, now)
        if first.epoch != self._epoch:
            self._epoch, self._follows = first.epoch, first.epoch == self._epoch + 1
        if len(self._ahead) < 2:
            try:
                if (
                    self._batches.next(first.epoch, wait=False, into=self._ahead) is None
                    and self._follows
                ):
                    # The first batch of the next epoch, which the engine also prepares ahead.
                    self._batches.next(wait=False, into=self._ahead)
            except Error:
                pass  # The error belongs to the next batch and is raised again with it.
        for t in self._ahead:
            self._send(t, now)
        # Even a wait for a finished copy delays the stream by microseconds.
        if not first.copy.event.query():
            now.wait_event(first.copy.event)
        tensors = first.copy.tensors
        if first.copy.stream != now:
            # Without this call, torch reuses the memory while this stream still reads it.
            for v in first.copy.owners:
                self._in_use(v, now)
        given = Taken(first.seq, first.epoch, tensors)
        # The source stays in memory until the copy has read it. In this order, an exception in
        # between delivers the batch again.
        self._behind.append(first)
        self._ahead.popleft()
        first.copy.tensors, first.copy.owners = {}, []
        return given

    def _send(self, t: Taken, now: Any) -> None:
        """Starts the copy of a batch, unless it was started before.

        The memory comes from the caller's stream. The copy waits for the work on this stream, which
        may still use the memory.
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
            event = self._spare.pop() if self._spare else self._torch.cuda.Event(blocking=True)
            event.record(self._stream)
            t.copy = _Copy(event, tensors, owners, now)
        except BaseException:
            # A part of the copy may be running, and nothing else would wait for it.
            self._stream.synchronize()
            raise
        finally:
            self._moving = []

    def _copy(self, host: Sequence[Any], made: Sequence[Any] = ()) -> list[Any]:
        """Copies tensors to the device, and returns the copies.

        The sources may be images that the engine decoded on the device; the engine reuses their
        memory.

        Args:
            host: The tensors to copy.
            made: Tensors that are written after the copies, on the same stream.
        """
        to = [self._torch.empty(v.shape, dtype=v.dtype, device=self._target) for v in host]
        self._moving = [*to, *made]
        # The copy waits for the allocation of its memory, and for the earlier users of the memory.
        self._began.record(self._torch.cuda.current_stream(self._target))
        self._stream.wait_event(self._began)
        self._move(to, host)
        return to

    def _move(self, to: list[Any], host: list[Any]) -> None:
        """Copies the tensors in `host` to those in `to`, on the stream for copies."""
        with self._torch.cuda.stream(self._stream):
            for t, v in zip(to, host):
                t.copy_(v, non_blocking=True)

    def _in_use(self, v: Any, stream: Any) -> None:
        """Prevents the reuse of a tensor's memory while a stream reads it."""
        v.record_stream(stream)

    def drop(self) -> None:
        """Drops the batches that were read ahead, because the position of the loader changes."""
        with self._turn:
            while self._ahead:
                t = self._ahead[0]
                if t.copy is not None:
                    self._behind.append(t)
                self._ahead.popleft()

    def close(self) -> None:
        """Waits for the running copies."""
        with self._turn:
            _settle(self._behind, self._ahead)


class PageLocked:
    """Delivers page-locked host batches to a caller that copies them with non_blocking=True.

    Such a copy may still read the memory after the caller has dropped the tensor. torch keeps its
    own page-locked memory in this case, but not the engine's. So this class keeps each tensor until
    there is no other reference to it. Then it waits until the device has done the work in the
    caller's stream.
    """

    # The number of kept tensors that one call examines: a caller may hold thousands.
    _LOOKED_AT = 256

    def __init__(self, batches: Batches, torch: Any, device: Any) -> None:
        self._batches, self._torch, self._device = batches, torch, device
        self._given: deque[Any] = deque()  # Delivered tensors, the newest last.
        self._older: deque[Any] = deque()  # Tensors that have been in use for several batches.
        # Tensors without other references, whose copies may still be running.
        self._left: deque[tuple[Any, list[Any]]] = deque()
        self._turn = threading.RLock()
        self._count = getattr(torch._C, "_storage_Use_Count", None)
        # The reference counts of a tensor without other references; they differ between versions of
        # Python and torch.
        self._alone = self._holders(deque([torch.empty(1)]))
        weakref.finalize(self, _quiet, torch, device, self._given, self._older, self._left)

    @property
    def pid(self) -> int:
        """The process that receives the batches."""
        return self._batches.pid

    def next(self, epoch: int = -1) -> Taken | None:
        """Returns the next batch; None at the end of the epoch."""
        with self._turn:
            self._let_go()
            taken = self._batches.next(epoch)
            if isinstance(taken, Taken):
                self._given.extend(v for v in taken.batch.values() if not isinstance(v, list))
                return taken
            return None

    def _holders(self, queue: deque[Any]) -> tuple[int, int]:
        """Returns the reference counts of a queue's first tensor and of its storage.

        A view has its own tensor object and shares the storage.
        """
        t = queue[0]
        return sys.getrefcount(t), 0 if self._count is None else self._count(
            t.untyped_storage()._cdata
        )

    def _let_go(self) -> None:
        """Releases the tensors that nothing uses any more."""
        while self._left and self._left[0][0].query():
            self._left.popleft()
        free: list[Any] = []
        for queue, n in (
            (self._given, len(self._given)),
            (self._older, min(len(self._older), self._LOOKED_AT)),
        ):
            for _ in range(n):
                used = self._holders(queue) != self._alone
                (queue if used else free).append(queue[0])
                queue.popleft()
        while len(self._given) > self._LOOKED_AT:
            self._older.append(self._given[0])
            self._given.popleft()
        if free:
            event = self._torch.cuda.Event()
            event.record(self._torch.cuda.current_stream(self._device))
            self._left.append((event, free))

    def close(self) -> None:
        """Waits for the work that was queued on the device."""
        with self._turn:
            _quiet(self._torch, self._device, self._given, self._older, self._left)


def _quiet(torch: Any, device: Any, *kept: deque[Any]) -> None:
    """Waits for the device and clears the queues, so that their tensors can be freed."""
    if any(kept):
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            pass  # The device has failed or was released at exit.
    for queue in kept:
        queue.clear()
