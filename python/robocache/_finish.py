"""Raw batches made whole on a device: each buffer is moved once, then one launch casts, normalises and interpolates all keys."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _engine


class Raw(NamedTuple):
    """A batch as it was stored: whole buffers, and the columns of text beside the places that they have among the keys."""

    rows: int
    buffers: list[Any]
    texts: list[tuple[int, list[Any]]]


class _Plan:
    """What is done to batches of so many rows."""

    __slots__ = ("handle", "op", "addrs", "places", "fields", "outputs")

    def __init__(self, handle: _engine.Handle, torch: Any) -> None:
        handle.open()
        info = handle.info
        self.handle = handle  # it closes the prepared launch
        self.op = info["op"]
        self.places = [(p.get("output", False), p["index"], p["offset"]) for p in info["places"] or []]
        self.addrs = (ctypes.c_int64 * max(len(self.places), 1))()
        self.fields = []
        for f, p in zip(info["fields"] or [], info["at"] or []):
            dtype, size = getattr(torch, f["dtype"]), f["bytes"]
            self.fields.append((f["key"], p.get("output", False), p["index"], p["offset"], p["offset"] + size, dtype, tuple(f["shape"])))
        self.outputs = [(tuple(o["shape"]), getattr(torch, o["dtype"])) for o in info["outputs"] or []]


class Finisher:
    """Finishes the raw batches of one loader. Runs on the stream that is current."""

    def __init__(self, loader: _engine.Handle, torch: Any, target: Any, backend: str, device: int) -> None:
        self._loader, self._torch, self._target = loader, torch, target
        self._where = {"backend": backend, "device": device}
        self._plans: dict[int, _Plan] = {}
        self._keys = [f["key"] for f in loader.info["fields"] if f["dtype"] not in ("string", "json")]
        self._texts = [f["key"] for f in loader.info["fields"] if f["dtype"] in ("string", "json")]
        self._run = loader._resolve()[0].lib.robocache_op_run

    def plan(self, rows: int) -> _Plan:
        """What is done to batches of so many rows; Unsupported where the device cannot."""
        p = self._plans.get(rows)
        if p is None:
            if len(self._plans) >= 4:
                self._plans.clear()  # an epoch has two sizes of batches
            answer: Callable[[], tuple[int, Any]] = lambda: self._ask(rows)
            p = self._plans[rows] = _Plan(_engine.Handle(answer), self._torch)
        return p

    def _ask(self, rows: int) -> tuple[int, Any]:
        got = self._loader.call("robocache_loader_finish", {"rows": rows, **self._where})
        return got["op"], got

    def __call__(self, raw: Raw, copy: Callable[[Any], Any], stream: Any) -> dict[str, Any]:
        """The batch on the device. copy moves one buffer there; both it and the launch are of the current stream."""
        plan = self.plan(raw.rows)
        moved = [copy(b) for b in raw.buffers]
        made = [self._torch.empty(shape, dtype=dtype, device=self._target) for shape, dtype in plan.outputs]
        if plan.op:
            self._launch(plan, moved, made, stream)
        values = []
        for _, output, index, begin, end, dtype, shape in plan.fields:
            values.append(made[index] if output else moved[index][begin:end].view(dtype).view(shape))
        batch = dict(zip(self._keys, values))
        if raw.texts:
            items = list(batch.items())
            for (place, column), key in zip(raw.texts, self._texts):
                items.insert(place, (key, column))
            batch = dict(items)
        return batch

    def _launch(self, plan: _Plan, moved: list[Any], made: list[Any], stream: Any) -> None:
        for i, (output, index, offset) in enumerate(plan.places):
            plan.addrs[i] = made[index].data_ptr() if output else moved[index].data_ptr() + offset
        out = ctypes.c_void_p()
        status = self._run(plan.op, plan.addrs, len(plan.places), stream, ctypes.byref(out))
        if status != _engine.DONE:
            e = self._loader._resolve()[0]
            raise _engine.from_engine(e.answer(out) or {})
