"""Batches of a loader of the engine: tensors over its memory, without a copy, a call or a finalizer of Python per tensor.

A batch counts once `arrived` is told, as the last step: interrupted before, it is given again.
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
from ._finish import Raw

_TAKEN = 8  # words of robocache_taken: rows, epoch, position, tensors, seq, batch, text, text_bytes


class Taken:
    """A batch that the engine gave."""

    __slots__ = ("seq", "epoch", "batch", "copy")

    def __init__(self, seq: int, epoch: int, batch: Any) -> None:
        self.seq = seq  # 1 for the first, and so on
        self.epoch = epoch
        self.batch = batch  # a dict; Raw where the engine gives raw ones
        self.copy: Any = None  # on its way to a device


class Batches:
    """Takes the batches of one loader of the engine."""

    def __init__(self, handle: _engine.Handle, raw: bool = False) -> None:
        self._raw = raw
        self._engine, self._number = handle._resolve()
        self.pid = self._engine.pid
        self._take = self._engine.lib.robocache_loader_take
        self._fields = handle.info["fields"]
        self._keys = [f["key"] for f in self._fields]
        text = ("string", "json")
        self._tensors = [f for f in self._fields if f["dtype"] not in text]
        self._texts = [
            (i, f["dtype"] == "json") for i, f in enumerate(self._fields) if f["dtype"] in text
        ]
        self._taken = (ctypes.c_int64 * _TAKEN)()
        self._at = ctypes.addressof(self._taken)
        self._torch = _memory.torch_module()
        self._convert = None if self._torch is None else _memory.converter(self._torch)
        # one taker at a time: what was taken must be told before the next
        self._turn = threading.Lock()

    def next(
        self, epoch: int = -1, wait: bool = True, into: deque[Taken] | None = None
    ) -> Taken | None | bool:
        """The next batch; None at the end of the epoch; False where wait is False and it is not finished.

        epoch: of the batches that this pass has had. into: a queue that takes it before it counts, so that an exception in between loses
        nothing. Waits without the GIL, in steps, so that signals are seen.
        """
        with self._turn:
            out = ctypes.c_void_p()
            step = _engine.STEP_MS if wait else 0
            while True:
                status = self._take(self._number, epoch, step, self._at, out)
                if status == 0:
                    return self._arrive(into)
                if status != _engine.PENDING:
                    break
                if not wait:
                    return False
        if status == _engine.END:
            return None
        raise from_engine(self._engine.answer(out) or {})

    def _arrive(self, into: deque[Taken] | None) -> Taken:
        rows, epoch, _, count, seq, batch, text, text_bytes = self._taken
        capsules = self._engine.capsules(batch)
        if len(capsules) != count:
            raise Misuse(
                "the loader was closed or moved while a batch was on its way",
                hint="begin a new `for`",
            )
        values = (
            list(map(self._convert, capsules))
            if self._convert is not None
            else self._arrays(capsules, rows)
        )
        texts = self._read_texts(rows, ctypes.string_at(text, text_bytes)) if self._texts else []
        if self._raw:
            taken = Taken(seq, epoch, Raw(rows, values, texts))
        else:
            for position, column in texts:
                values.insert(position, column)
            taken = Taken(seq, epoch, dict(zip(self._keys, values)))
        if into is not None:
            # given again, because an exception came before it counted
            if into and into[-1].seq == seq:
                into.pop()
            into.append(taken)
        self._engine.arrived(batch)
        return taken

    def _arrays(self, capsules: list[Any], rows: int) -> list[Any]:
        first = [
            _memory.entries(c) if f.get("ragged") else rows for c, f in zip(capsules, self._tensors)
        ]
        return [
            _memory.array(c, f["dtype"], (n, *f["shape"][bool(f.get("ragged")) :]))
            for c, f, n in zip(capsules, self._tensors, first)
        ]

    def _read_texts(self, rows: int, blob: bytes) -> list[tuple[int, list[Any]]]:
        """The text columns, each beside its position among the fields; robocache.h says how they are written."""
        found: list[tuple[int, list[Any]]] = []
        at = 0
        for position, is_json in self._texts:
            distinct, size = struct.unpack_from("<ii", blob, at)
            lengths = struct.unpack_from(f"<{distinct}i", blob, at + 8)
            at += 8 + 4 * distinct
            codes: tuple[int, ...] | None = None
            if distinct > 1:
                codes = struct.unpack_from(f"<{rows}i", blob, at)
                at += 4 * rows
            texts, end = [], at
            for n in lengths:
                texts.append(str(blob[end : end + n], "utf-8", "replace"))
                end += n
            at = end + (-size) % 4
            column = texts * rows if codes is None else [texts[c] for c in codes]
            # Each row has a value of its own: what a user changes in one must not show in another.
            found.append((position, [json.loads(t) for t in column] if is_json else column))
        return found
