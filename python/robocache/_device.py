"""Batches on a CUDA device: copied on a stream of their own, one batch ahead of the one in use.

Their memory is allocated on the caller's stream, so that a batch can be dropped without a call of the device: where a tensor is used on a stream that is not its memory's,
torch records an event as the tensor goes, and ends the process where that fails because the device did.
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


# of CUDA's messages; internal/cudahost has the numbers. After others, as of a stream that is
# captured, the device works
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
_LOST_HINT = "a kernel before, of any library, broke the process's context, or the device failed. Start the process anew (the loader's state_dict goes on where it was); compute-sanitizer finds such a kernel"


class _Copy:
    """A batch on its way: what it is copied from stays untouched until the event says that it was read."""

    __slots__ = ("event", "tensors", "owners", "stream")

    def __init__(self, event: Any, tensors: dict[str, Any], owners: list[Any], stream: Any) -> None:
        self.event = event
        self.tensors = tensors
        self.owners = owners  # whose memory the tensors are views of
        self.stream = stream  # on which that memory was allocated


def _settle(*flights: deque[Taken]) -> None:
    """Waits for copies that are under way, so that their host memory may go."""
    for queue in flights:
        while queue:
            # it stays there until its copy is done: an interrupt must not let its memory go
            t = queue[0]
            if t.copy is not None:
                try:
                    t.copy.event.synchronize()
                except RuntimeError:
                    # the device has failed, or is gone at exit: nothing reads the memory any more
                    pass
            queue.popleft()


class Device:
    """Gives the batches of a taker on a device.

    What was taken ahead is not the user's yet: `before` names the first such batch, so that a state stands before it.
    """

    def __init__(
        self, batches: Batches, torch: Any, target: Any, finisher: Finisher | None = None
    ) -> None:
        self._batches, self._torch, self._target, self._finisher = batches, torch, target, finisher
        self._stream = torch.cuda.Stream(device=target)
        self._began = torch.cuda.Event()  # what the caller's stream was asked for before a copy
        # events of copies that are over: making one is a call of the driver
        self._spare: list[Any] = []
        # what copies write to: an exception must not let it go while they do
        self._moving: list[Any] = []
        self._ahead: deque[Taken] = deque()  # taken from the engine, not given
        self._behind: deque[Taken] = deque()  # given, copies perhaps under way
        # of the batch that was given last; whether it followed the one before
        self._epoch, self._follows = -2, False
        self._turn = threading.RLock()
        weakref.finalize(self, _settle, self._behind, self._ahead)

    @property
    def pid(self) -> int:
        return self._batches.pid

    @property
    def before(self) -> int:
        """Number of the first batch that was taken and not given; 0 where there is none."""
        return self._ahead[0].seq if self._ahead else 0

    @property
    def waiting(self) -> int | None:
        """Its epoch."""
        return self._ahead[0].epoch if self._ahead else None

    def next(self, epoch: int = -1) -> Taken | None:
        """The next batch on the device, ready on the caller's current stream; None at the end of the epoch. Temporary where the device failed."""
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
        while self._behind:
            copied = self._behind[0].copy.event
            if not copied.query():
                if len(self._behind) <= 2:
                    break
                # or a host that is far ahead of the device collects what is copied from
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
                    # the next epoch's first, as the engine makes it ahead
                    self._batches.next(wait=False, into=self._ahead)
            except Error:
                pass  # it belongs to the next batch, and comes again with it
        for t in self._ahead:
            self._send(t, now)
        # even a wait for a copy that is over holds the stream up for microseconds
        if not first.copy.event.query():
            now.wait_event(first.copy.event)
        tensors = first.copy.tensors
        if first.copy.stream != now:
            # or its memory is given out again while this stream still reads it
            for v in first.copy.owners:
                self._in_use(v, now)
        given = Taken(first.seq, first.epoch, tensors)
        # What it was copied from stays until the copy has read it. In this order an exception in
        # between gives it again.
        self._behind.append(first)
        self._ahead.popleft()
        first.copy.tensors, first.copy.owners = {}, []
        return given

    def _send(self, t: Taken, now: Any) -> None:
        """Starts the copy of a batch, unless it was, into memory of the caller's stream: after the work that is on it, which may still use that memory."""
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
            # part of it may be under way, and nothing else would wait for it
            self._stream.synchronize()
            raise
        finally:
            self._moving = []

    def _copy(self, host: Sequence[Any], made: Sequence[Any] = ()) -> list[Any]:
        """Copies of tensors, also of what the engine decoded on the device, whose memory it writes to again. made: what is written after them, on the same stream."""
        to = [self._torch.empty(v.shape, dtype=v.dtype, device=self._target) for v in host]
        self._moving = [*to, *made]
        # behind the allocation of memory, and what used it before
        self._began.record(self._torch.cuda.current_stream(self._target))
        self._stream.wait_event(self._began)
        self._move(to, host)
        return to

    def _move(self, to: list[Any], host: list[Any]) -> None:
        with self._torch.cuda.stream(self._stream):
            for t, v in zip(to, host):
                t.copy_(v, non_blocking=True)

    def _in_use(self, v: Any, stream: Any) -> None:
        v.record_stream(stream)

    def drop(self) -> None:
        """Forgets what was taken ahead: the loader goes elsewhere."""
        with self._turn:
            while self._ahead:
                t = self._ahead[0]
                if t.copy is not None:
                    self._behind.append(t)
                self._ahead.popleft()

    def close(self) -> None:
        """Waits for copies that are under way."""
        with self._turn:
            _settle(self._behind, self._ahead)


class PageLocked:
    """Gives page-locked batches of the host to a user who copies them with non_blocking=True.

    Such a copy may still read when the user's tensor is gone, as torch knows of its own page-locked memory and cannot of ours. So each tensor
    is kept here until nobody else has it, and then until the device has done what stood in the caller's stream.
    """

    _LOOKED_AT = 256  # kept tensors of a call: a user may collect thousands

    def __init__(self, batches: Batches, torch: Any, device: Any) -> None:
        self._batches, self._torch, self._device = batches, torch, device
        self._given: deque[Any] = deque()  # tensors, the newest last
        self._older: deque[Any] = deque()  # those that stayed in use for some batches
        self._left: deque[tuple[Any, list[Any]]] = deque()  # nobody's, copies perhaps under way
        self._turn = threading.RLock()
        self._count = getattr(torch._C, "_storage_Use_Count", None)
        # of a tensor that is nobody else's; versions of Python and torch differ
        self._alone = self._holders(deque([torch.empty(1)]))
        weakref.finalize(self, _quiet, torch, device, self._given, self._older, self._left)

    @property
    def pid(self) -> int:
        return self._batches.pid

    def next(self, epoch: int = -1) -> Taken | None:
        with self._turn:
            self._let_go()
            taken = self._batches.next(epoch)
            if isinstance(taken, Taken):
                self._given.extend(v for v in taken.batch.values() if not isinstance(v, list))
                return taken
            return None

    def _holders(self, queue: deque[Any]) -> tuple[int, int]:
        """How many references a queue's first tensor has, and how many its memory: views have their own."""
        t = queue[0]
        return sys.getrefcount(t), 0 if self._count is None else self._count(
            t.untyped_storage()._cdata
        )

    def _let_go(self) -> None:
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
        """Waits for what the device was asked for."""
        with self._turn:
            _quiet(self._torch, self._device, self._given, self._older, self._left)


def _quiet(torch: Any, device: Any, *kept: deque[Any]) -> None:
    """Waits for the device, so that the memory of tensors may go."""
    if any(kept):
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            pass  # it has failed, or is gone at exit
    for queue in kept:
        queue.clear()
