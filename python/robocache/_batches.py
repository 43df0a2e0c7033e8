"""Batches of an engine loader, as tensors over the engine's memory.

No tensor is copied, and no tensor needs its own engine call or Python finalizer. A batch is
acknowledged by arrived(), as the last step. If the consumer is interrupted earlier, the engine
delivers the batch again.
"""

from __future__ import annotations

import ctypes
import json
import struct
import threading
from collections import deque
from typing import Any

from . import _engine, _memory
from ._errors import Misuse, from_engine
from ._finisher import RawBatch

# The number of int64 words in robocache_taken (robocache.h): rows, epoch, position, tensors, seq,
# batch, text, text_bytes.
_HEADER_WORDS = 8


class DeliveredBatch:
    """A batch that the engine delivered."""

    __slots__ = ("seq", "epoch", "batch", "copy")

    def __init__(self, seq: int, epoch: int, batch: Any) -> None:
        self.seq = seq  # Counts from 1.
        self.epoch = epoch
        self.batch = batch  # A dict by key, or a RawBatch if the engine delivers raw batches.
        self.copy: Any = None  # The copy to a device that is in progress, if any.


class ReadAhead:
    """Keeps the batches that were taken from the engine before the consumer asked for them.

    A saved state begins at the first of them.
    """

    def __init__(self) -> None:
        self._pending: deque[DeliveredBatch] = deque()
        self._consumer_lock = threading.RLock()

    @property
    def first_pending_seq(self) -> int:
        """The number of the first batch that was taken and not delivered; 0 if there is none."""
        return self._pending[0].seq if self._pending else 0

    @property
    def pending_epoch(self) -> int | None:
        """The epoch of the first batch that was taken and not delivered; None if there is none."""
        return self._pending[0].epoch if self._pending else None

    def drop_pending(self) -> None:
        """Drops the batches that were read ahead, because the position of the loader changes."""
        with self._consumer_lock:
            self._pending.clear()


class HostBatches:
    """Receives the batches of one engine loader."""

    def __init__(self, handle: _engine.Handle, raw: bool = False, as_numpy: bool = False) -> None:
        self._raw = raw
        self._engine, self._number = handle._resolve()
        self.pid = self._engine.pid
        self._take_batch = self._engine.lib.robocache_loader_take
        self._fields = handle.info["fields"]
        self._keys = [f["key"] for f in self._fields]
        text = ("string", "json")
        self._tensors = [f for f in self._fields if f["dtype"] not in text]
        self._texts = [
            (i, f["dtype"] == "json") for i, f in enumerate(self._fields) if f["dtype"] in text
        ]
        self._header = (ctypes.c_int64 * _HEADER_WORDS)()
        self._header_address = ctypes.addressof(self._header)
        torch = None if as_numpy else _memory.torch_module()
        self._convert = None if torch is None else _memory.dlpack_converter(torch)
        # One consumer at a time: each batch must be acknowledged before the next one is taken.
        self._consumer_lock = threading.Lock()

    def next(
        self, epoch: int = -1, wait: bool = True, into: deque[DeliveredBatch] | None = None
    ) -> DeliveredBatch | None | bool:
        """Returns the next batch.

        Waits without the GIL, in short steps, so that Python handles signals.

        Args:
            epoch: The epoch of the earlier batches of this pass; -1 before the first batch.
            wait: Whether to wait until the batch is complete.
            into: A queue that receives the batch before the acknowledgement, so that an exception
                in between does not lose the batch.

        Returns:
            The batch, None at the end of the epoch, or False if wait is False and the batch is not
            complete.
        """
        with self._consumer_lock:
            out = ctypes.c_void_p()
            step = _engine.STEP_MS if wait else 0
            while True:
                status = self._take_batch(self._number, epoch, step, self._header_address, out)
                if status == 0:
                    return self._receive_batch(into)
                if status != _engine.PENDING:
                    break
                if not wait:
                    return False
        if status == _engine.END:
            return None
        raise from_engine(self._engine.answer(out) or {})

    def _receive_batch(self, into: deque[DeliveredBatch] | None) -> DeliveredBatch:
        """Builds the tensors of the batch in the header, and acknowledges the batch."""
        rows, epoch, _, count, seq, batch, text, text_bytes = self._header
        capsules = self._engine.capsules(batch)
        if len(capsules) != count:
            raise Misuse(
                "the loader was closed or moved while a batch was on its way",
                hint="begin a new `for`",
            )
        values = (
            list(map(self._convert, capsules))
            if self._convert is not None
            else self._numpy_columns(capsules, rows)
        )
        texts = self._read_texts(rows, ctypes.string_at(text, text_bytes)) if self._texts else []
        if self._raw:
            taken = DeliveredBatch(seq, epoch, RawBatch(rows, values, texts))
        else:
            for position, column in texts:
                values.insert(position, column)
            taken = DeliveredBatch(seq, epoch, dict(zip(self._keys, values)))
        if into is not None:
            # If an exception came before the acknowledgement, the engine delivers the same batch
            # again.
            if into and into[-1].seq == seq:
                into.pop()
            into.append(taken)
        self._engine.arrived(batch)
        return taken

    def _numpy_columns(self, capsules: list[Any], rows: int) -> list[Any]:
        """Returns the numeric columns of a batch as NumPy arrays."""
        columns = []
        for capsule, field in zip(capsules, self._tensors):
            if field.get("ragged"):
                # The first axis joins the values of all rows.
                shape = (_memory.first_extent(capsule), *field["shape"][1:])
            else:
                shape = (rows, *field["shape"])
            columns.append(_memory.capsule_to_array(capsule, field["dtype"], shape))
        return columns

    def _read_texts(self, rows: int, blob: bytes) -> list[tuple[int, list[Any]]]:
        """Returns the text columns with their positions among the fields.

        robocache.h describes the layout of blob. A column has the number of distinct texts, their
        size in bytes, the length of each, the number of the text of each row (if there is more than
        one text), and the texts, padded to a multiple of 4 bytes.
        """
        found: list[tuple[int, list[Any]]] = []
        offset = 0
        for position, is_json in self._texts:
            distinct, size = struct.unpack_from("<ii", blob, offset)
            lengths = struct.unpack_from(f"<{distinct}i", blob, offset + 8)
            offset += 8 + 4 * distinct
            codes: tuple[int, ...] | None = None  # None: all rows have the same text.
            if distinct > 1:
                codes = struct.unpack_from(f"<{rows}i", blob, offset)
                offset += 4 * rows
            texts = []
            for n in lengths:
                texts.append(str(blob[offset : offset + n], "utf-8", "replace"))
                offset += n
            offset += (-size) % 4
            column = texts * rows if codes is None else [texts[c] for c in codes]
            # Each row gets its own value: a change to the value of one row must not affect another
            # row.
            found.append((position, [json.loads(t) for t in column] if is_json else column))
        return found
