"""The batches of a Loader as NumPy arrays or as JAX arrays, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._batches import DeliveredBatch, HostBatches, ReadAhead
from ._errors import Error, Misuse, Unsupported

if TYPE_CHECKING:
    from . import _engine
    from .loader import Loader

# The dtypes that JAX has only with jax_enable_x64, and those that take their place.
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


class NumpyBatches:
    """The batches of a Loader as NumPy arrays over the engine's memory: loader.as_numpy().

    Each `for` delivers an epoch of the loader. The loader keeps the position: its set_epoch(),
    state_dict() and load_state_dict() apply here.
    """

    def __init__(self, loader: Loader, method: str = "as_numpy()") -> None:
        if loader._target.device is not None or loader.pin_memory:
            raise Misuse(
                f"{method} of a Loader with device={loader.device!r}, "
                f"pin_memory={loader.pin_memory}",
                hint='make the Loader with device="cpu"; as_jax() moves batches to JAX\'s devices',
            )
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.loader._begin_pass(self)

    def __len__(self) -> int:
        """Returns the number of batches of an epoch on this rank."""
        return len(self.loader)

    def _open_source(self, handle: _engine.Handle) -> HostBatches | JaxSource:
        """Returns the object that receives the batches of the loader's engine object."""
        return HostBatches(handle, as_numpy=True)


class JaxBatches(NumpyBatches):
    """The batches of a Loader as JAX arrays: loader.as_jax()."""

    def __init__(self, loader: Loader, sharding: Any = None) -> None:
        super().__init__(loader, "as_jax()")
        try:
            import jax
        except ImportError:
            raise Unsupported("as_jax(): jax is not installed", hint="pip install jax") from None
        self._jax = jax
        if isinstance(sharding, jax.Device):
            sharding = jax.sharding.SingleDeviceSharding(sharding)
        if sharding is not None and not isinstance(sharding, jax.sharding.Sharding):
            raise Misuse(
                f"sharding={sharding!r}: expected a jax.sharding.Sharding, a jax.Device or None"
            )
        self._sharding = sharding
        self._bfloat16: set[str] = set()  # Keys whose arrays are the bits of bfloat16.
        (device,) = jax.device_put(np.zeros(())).devices()
        # Whether batches need no copy. JAX places an array from DLPack on the first CPU device, so
        # this must be the default device.
        self._in_place = (
            sharding is None
            and device.platform == "cpu"
            and device == jax.local_devices(backend="cpu")[0]
        )
        if sharding is not None:
            if jax.process_count() > 1:
                share = _share_of_process(jax, sharding)
                loader._rank_resolver.assign(*share, "the sharding")
                self._refuse_uneven_steps()
            self._check_rows()

    def _refuse_uneven_steps(self) -> None:
        """Raises Misuse if the ranks of a step would not deliver equally many rows."""
        if self.loader._config.get("uneven") == "short" and not self.loader._config["drop_last"]:
            raise Misuse(
                'as_jax(sharding) of several processes with Order(uneven="short")',
                hint='pass drop_last=True, or leave uneven="wrap"',
            )

    def _check_rows(self) -> None:
        """Raises Misuse if a step of the epoch or a key cannot be cut into equal shards."""
        batch, world = self.loader.batch_size, self.loader.world_size
        steps = [batch * world]  # The rows of a step, and of the last step if it is shorter.
        if world == 1 and not self.loader._config["drop_last"]:
            steps.append(self.loader.num_samples % batch or batch)
        for rows in steps:
            try:
                self._sharding.shard_shape((rows,))
            except ValueError as e:
                raise Misuse(
                    f"a step of {rows} rows cannot be sharded: {e}",
                    hint="pass a sharding of the first axis, such as "
                    'PartitionSpec("data"), a batch_size that its devices divide, and '
                    "drop_last=True",
                ) from None
        spec = getattr(self._sharding, "spec", ())
        for field in self.loader._open().open().info["fields"]:
            if field["dtype"] not in ("string", "json") and len(spec) > 1 + len(field["shape"]):
                raise Misuse(
                    f"{field['key']} has {1 + len(field['shape'])} axes, and the sharding {spec}",
                    {"stream": field["key"]},
                    'pass PartitionSpec("data"), or leave the key out of keys=',
                )

    def _open_source(self, handle: _engine.Handle) -> JaxSource:
        """Returns the object that receives batches and converts them to JAX arrays."""
        if self._sharding is not None:
            self._check_rows()  # The batch size may have changed.
        self._bfloat16 = {f["key"] for f in handle.info["fields"] if f["dtype"] == "bfloat16"}
        return JaxSource(HostBatches(handle, as_numpy=True), self, ahead=not self._in_place)

    def convert(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Returns a batch of NumPy arrays as JAX arrays. Copies to a device are only started.

        JAX keeps the NumPy arrays, which own the engine's memory, until it has no use for them.
        """
        jax = self._jax
        arrays = {k: self._as_known_dtype(k, v) for k, v in batch.items() if type(v) is not list}
        if self._in_place:
            converted = {k: self._from_host(v) for k, v in arrays.items()}
        elif self._sharding is None or jax.process_count() == 1:
            converted = jax.device_put(arrays, self._sharding)
        else:
            make = jax.make_array_from_process_local_data
            converted = {k: make(self._sharding, v) for k, v in arrays.items()}
        return {k: converted.get(k, v) for k, v in batch.items()}

    def _from_host(self, array: np.ndarray) -> Any:
        """Returns an array in host memory as a JAX array over the same memory."""
        if array.dtype.kind == "V":  # NumPy's DLPack lacks bfloat16.
            return self._jax.device_put(array)
        return self._jax.dlpack.from_dlpack(array)

    def _as_known_dtype(self, key: str, array: np.ndarray) -> np.ndarray:
        """Returns an array with a dtype that JAX has, a copy if the dtype is of 64 bits."""
        if key in self._bfloat16:
            return array.view(self._jax.numpy.bfloat16)
        to = _NARROW.get(array.dtype.name)
        if to is None or self._jax.config.jax_enable_x64:
            return array
        if array.dtype.kind in "iu" and array.size:
            low, high = int(array.min()), int(array.max())
            if low < np.iinfo(to).min or high > np.iinfo(to).max:
                raise Misuse(
                    f"{key}: a value of {low if low < 0 else high} does not fit {to}",
                    {"stream": key},
                    'call jax.config.update("jax_enable_x64", True), or leave the key out of keys=',
                )
        return array.astype(to)


class JaxSource(ReadAhead):
    """Receives the batches of one engine loader, and starts their copies one batch ahead."""

    def __init__(self, batches: HostBatches, view: JaxBatches, ahead: bool) -> None:
        super().__init__()
        self._batches, self._view, self._ahead = batches, view, ahead
        self.pid = batches.pid

    def next(self, epoch: int = -1) -> DeliveredBatch | None:
        """Returns the next batch as JAX arrays; None at the end of the epoch."""
        with self._consumer_lock:
            pending = self._pending
            if not pending and self._batches.next(epoch, into=pending) is None:
                return None
            self._start_copy(pending[0])
            if self._ahead and len(pending) < 2:
                try:
                    if self._batches.next(pending[0].epoch, wait=False, into=pending):
                        self._start_copy(pending[1])
                except Error:
                    pass  # The error belongs to the next batch and is raised again with it.
            first = pending[0]
            delivered = DeliveredBatch(first.seq, first.epoch, first.copy)
            pending.popleft()
            return delivered

    def _start_copy(self, taken: DeliveredBatch) -> None:
        """Converts a batch, unless it was converted before."""
        if taken.copy is None:
            taken.copy = self._view.convert(taken.batch)


def _share_of_process(jax: Any, sharding: Any) -> tuple[int, int]:
    """Returns (rank, world size): the part of a step that this process holds, and their number.

    Processes that hold the same rows, as in model parallelism, have the same rank.
    """
    count = len(sharding.device_set)
    # The rows that each process holds, for an array of one row per device.
    rows: dict[int, set[int]] = {}
    for device, index in sharding.devices_indices_map((count,)).items():
        rows.setdefault(device.process_index, set()).update(range(count)[index[0]])
    parts = sorted({tuple(sorted(r)) for r in rows.values()})
    own = tuple(sorted(rows.get(jax.process_index(), ())))
    if own not in parts or sum(map(len, parts)) != count or len({*map(len, parts)}) > 1:
        raise Misuse(
            "the sharding does not give each process an equal part of the rows",
            hint='use a mesh of all devices, such as jax.sharding.Mesh(jax.devices(), ("data",)), '
            'with PartitionSpec("data")',
        )
    return parts.index(own), len(parts)


class ViewsMixin:
    """The part of Loader that delivers batches as arrays of other libraries."""

    def as_numpy(self) -> NumpyBatches:
        """Returns an iterable over the batches as NumPy arrays, also if torch is installed.

        The arrays are views of the engine's memory, which lives as long as an array over it. A
        batch is not overwritten later. NumPy has no bfloat16: its bits are uint16. Text is a list
        of str. set_epoch(), state_dict() and load_state_dict() of the loader apply.

        Returns:
            An iterable with len(). Each `for` delivers one epoch.

        Raises:
            Misuse: The loader delivers on a CUDA device, or in page-locked memory.

        Example:
            for batch in loader.as_numpy():
                train(batch["action"])
        """
        return NumpyBatches(self)  # type: ignore[arg-type]

    def as_jax(self, sharding: Any = None) -> JaxBatches:
        """Returns an iterable over the batches as JAX arrays. Needs no torch.

        On the CPU without a sharding, arrays are views of the engine's memory. On other devices,
        copies are started one batch ahead. Text stays a list of str, of this process's rows. int64,
        uint64 and float64 become 32 bits wide unless jax_enable_x64 is set. docs/jax.md has
        a training loop.

        Args:
            sharding: A jax.sharding.Sharding of the first axis, or a jax.Device. With several
                processes, batches are global arrays, and this loader delivers the rows of this
                process: batch_size is the number of rows per process. Default None: JAX's
                default device; each process receives its own batches.

        Returns:
            An iterable with len(). Each `for` delivers one epoch.

        Raises:
            Misuse: The sharding cannot cut the steps of the loader, or contradicts its rank, or
                an integer does not fit 32 bits, or the loader delivers on a CUDA device.
            Unsupported: jax is not installed.

        Example:
            mesh = jax.sharding.Mesh(jax.devices(), ("data",))
            sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
            for batch in loader.as_jax(sharding):
                state = train_step(state, batch["observation.state"], batch["action"])
        """
        return JaxBatches(self, sharding)  # type: ignore[arg-type]
