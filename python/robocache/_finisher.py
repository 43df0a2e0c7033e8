"""Completes raw batches on a device.

Each buffer is copied once. Then one launch casts, normalizes and interpolates all keys, and another
one augments the cameras.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _engine
from ._tensors.prepared import Prepared


class RawBatch(NamedTuple):
    """A batch as it was stored.

    Attributes:
        rows: The number of rows.
        buffers: The buffers with the values of the keys.
        texts: The text columns with their positions among the keys.
    """

    rows: int
    buffers: list[Any]
    texts: list[tuple[int, list[Any]]]


class _FinishPlan:
    """The operations and the layout for batches with a fixed number of rows.

    Attributes:
        ops: (operation, operands) pairs: first the numbers of all keys, then the cameras. An
            operand is (is_output, index of the buffer or output, offset in bytes).
        bases: (index of the buffer, dtype) of the tensors of which fields are views.
        fields: (is_output, index, dtype, shape, strides, offset) of each key. The index is that of
            an output or a base; -1: the field is empty. Strides and offset are in elements.
        outputs: (shape, dtype) of the tensors that the operations write.
    """

    __slots__ = ("ops", "bases", "fields", "outputs")

    def __init__(
        self, engine: _engine.Engine, info: dict[str, Any], keeps_gil: bool, torch: Any
    ) -> None:
        """Builds the plan from the engine's answer.

        Args:
            engine: The engine that runs the operations.
            info: The answer of robocache_loader_finish.
            keeps_gil: Whether a launch keeps the GIL, see Prepared.
            torch: The module torch.
        """
        self.ops = []
        for op, places in (("op", "places"), ("images", "drawn")):
            if info[op]:
                operands = [(p.get("output", False), p["index"], p["offset"]) for p in info[places]]
                prepared = Prepared(engine, info[op], len(operands), 0, keeps_gil)
                self.ops.append((prepared, operands))
        # Each (buffer, dtype) pair becomes one tensor, and each field is one view of it. Slicing
        # the buffer and casting it twice took a third of the time of a batch.
        bases: dict[tuple[int, Any], int] = {}
        self.fields = []
        for f in info["fields"] or []:
            dtype = getattr(torch, f["dtype"])
            shape = tuple(f["shape"])
            is_output = f.get("output", False)
            if is_output:
                index, offset = f["index"], 0
            else:
                index, offset = -1, f["offset"] // dtype.itemsize
                if f["bytes"]:
                    index = bases.setdefault((f["index"], dtype), len(bases))
            strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
            self.fields.append((is_output, index, dtype, shape, strides, offset))
        self.bases = list(bases)
        self.outputs = [
            (tuple(o["shape"]), getattr(torch, o["dtype"])) for o in info["outputs"] or []
        ]


class Finisher:
    """Completes the raw batches of one loader, with a back end and device given by `kernels`."""

    def __init__(
        self, loader: _engine.Handle, torch: Any, target: Any, kernels: dict[str, Any]
    ) -> None:
        self._loader, self._torch, self._target, self._kernels = loader, torch, target, kernels
        self._plans: dict[int, _FinishPlan] = {}
        fields = loader.info["fields"]
        self._texts = [f["key"] for f in fields if f["dtype"] in ("string", "json")]
        self._keys = [f["key"] for f in fields if f["key"] not in self._texts]

    def plan_for_rows(self, rows: int) -> _FinishPlan:
        """Returns the plan for batches of this many rows.

        Raises Unsupported if the kernels cannot run it.
        """
        p = self._plans.get(rows)
        if p is None:
            if len(self._plans) >= 4:
                self._plans.clear()  # An epoch has at most two sizes of batches.
            engine, number = self._loader._resolve()
            args = {"rows": rows, **self._kernels}
            _, info = engine.call("robocache_loader_finish", number, args)
            p = self._plans[rows] = _FinishPlan(
                engine, info, self._kernels["backend"] == "cuda", self._torch
            )
        return p

    def __call__(
        self, raw: RawBatch, copy: Callable[[list[Any], list[Any]], list[Any]], stream: int
    ) -> tuple[dict[str, Any], list[Any]]:
        """Returns the batch on the device, and the tensors that own its memory.

        All memory is allocated first, on the current stream.

        Args:
            raw: The stored batch.
            copy: copy(buffers, outputs) copies the buffers to the device on `stream`. The launch
                follows on the same stream and writes the outputs.
            stream: The CUDA stream of the copies and the launch.
        """
        plan = self.plan_for_rows(raw.rows)
        made = [
            self._torch.empty(shape, dtype=dtype, device=self._target)
            for shape, dtype in plan.outputs
        ]
        moved = copy(raw.buffers, made)
        self._launch_kernels(plan, moved, made, stream)
        bases = [
            moved[index] if dtype == self._torch.uint8 else moved[index].view(dtype)
            for index, dtype in plan.bases
        ]
        values = []
        for is_output, index, dtype, shape, strides, offset in plan.fields:
            if is_output:
                values.append(made[index])
            elif index < 0:
                values.append(self._empty_tensor(dtype, shape))
            else:
                values.append(bases[index].as_strided(shape, strides, offset))
        items = list(zip(self._keys, values))
        for (position, column), key in zip(raw.texts, self._texts):
            items.insert(position, (key, column))
        return dict(items), moved + made

    def _empty_tensor(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Returns an empty tensor on the device."""
        return self._torch.empty(shape, dtype=dtype, device=self._target)

    def _launch_kernels(
        self, plan: _FinishPlan, moved: list[Any], made: list[Any], stream: int
    ) -> None:
        """Runs the operations of the plan.

        Args:
            plan: The plan for the rows of the batch.
            moved: The input buffers, which were copied to the device.
            made: The empty tensors of the results.
            stream: The CUDA stream, or 0.
        """

        def address(is_output: bool, index: int, offset: int) -> int:
            """Returns the device address of an operand."""
            if is_output:
                return made[index].data_ptr()
            return moved[index].data_ptr() + offset

        for op, operands in plan.ops:
            op.run(stream, *(address(*operand) for operand in operands))
