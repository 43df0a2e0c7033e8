"""Live gives a running robot the observations that its policy was trained on.

replay() compares the live observations of a recording with a Loader's samples, bit by bit, and
verify() those of a file that Live.record() wrote.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _checks, _engine, _keywords, _memory
from ._errors import Error, ForkError, Misuse, from_engine
from ._feature import Feature
from ._results import Result
from ._verbs import run_verb
from .contract import Contract

__all__ = ["Live", "Observation", "Replayed", "replay", "verify"]

_NOW = -(2**63)  # ROBOCACHE_NOW


class Observation(dict[str, Any]):
    """The values of a tick: a dict like one training sample, without the batch axis.

    The keys, their order, dtypes and shapes are those of Contract.outputs. The masks
    `<key>_is_pad` come along.

    Attributes:
        tick_ns: The tick in ns, on the clock of the arrivals.
        ages: {stream: seconds from the timestamp of its newest sample to the tick}; None if no
            sample had arrived.
        masks: {key: bool}, or a bool array (T,) for a window of T steps. True: no sample
            was young enough to give the value.
    """

    def __init__(self, values: Mapping[str, Any], tick_ns: int, ages: dict[str, Any]) -> None:
        super().__init__(values)
        self.tick_ns = tick_ns
        self.ages: dict[str, float | None] = ages
        self.masks: dict[str, Any] = {}
        for key, v in values.items():
            if key.endswith("_is_pad"):
                mask = np.asarray(v)
                self.masks[key.removesuffix("_is_pad")] = mask if mask.ndim else bool(mask)


class Live:
    """Gives a running robot the observations of a contract, equal to training samples bit by bit.

    Samples are pushed as they arrive, and observe() returns the observation of a tick. It uses only
    samples that have arrived by the tick, and masks those older than the contract's max_age.
    Samples that are late, repeated, lost or reordered, clocks that step and publishers that restart
    are handled and counted in stats().

    All methods may be called from several threads. push and push_message never wait for observe.
    The GIL is free during calls, and Ctrl-C stops observe. A Live stays in the process that made
    it.

    Args:
        contract: A Contract, or the path of its file.
        source: The URI of a transport that runs in the background, such as "foxglove://robot:8765",
            "dds://" or "mcap:///data/recording.mcap". Default None: samples are pushed. Errors of
            the transport are in `error`, and it connects again.
        memory_budget: Bytes, or text such as "4GiB", for the samples of all streams. The oldest
            samples of a stream are dropped beyond its share. Default "1GiB".
        record: A new file, as in record(). It begins before the first sample of source=. Default
            None.

    Raises:
        NotFound: The file of the contract does not exist.
        Malformed: The file holds no contract, or its numbers were changed.
        Unsupported: Another version of RoboCache made the contract, or the source is not supported.
        Misuse: No transport has the scheme of the source, or no stream comes from messages.

    Example:
        with robocache.Live("policy.contract.json") as live:
            live.push("observation.state", np.zeros(26, np.float32), stamp_ns=time.time_ns())
            observation = live.observe()
            print(observation.ages, observation.masks)
    """

    @_keywords.check_keywords
    def __init__(
        self,
        contract: Contract | str | os.PathLike[str],
        source: str | None = None,
        *,
        memory_budget: int | str = "1GiB",
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        self.contract: Contract = _as_contract(contract)
        args: dict[str, Any] = {
            "contract": self.contract.to_json(),
            "memory_budget": _checks.parse_bytes("memory_budget", memory_budget),
        }
        for name, path in (("source", source), ("record", record)):
            if path is not None:
                args[name] = _checks.path_text(path)
        streams = self.contract.streams
        self._names = list(streams)
        self._converters = {k: _Converter(f) for k, f in streams.items()}
        self._pid = os.getpid()
        self._handle = _engine.Handle(lambda: self._open(args)).open()

    def _open(self, args: dict[str, Any]) -> tuple[int, Any]:
        """Creates the engine's Live. Raises ForkError in another process."""
        if os.getpid() != self._pid:
            raise ForkError(
                "a Live stays in the process that made it",
                {"pid": os.getpid()},
                "make a Live in the process that observes",
            )
        answer = _engine.call_engine("robocache_live_new", args)
        return answer["live"], answer

    def push(self, key: str, value: Any, stamp_ns: int, arrival_ns: int | None = None) -> None:
        """Adds a sample of a stream. The value is copied.

        Args:
            key: A key of Contract.streams.
            value: Numbers in the stream's shape: a number, a sequence, a NumPy array or a tensor.
                An array or tensor of another dtype is cast only if no value changes. Floats of
                Python, which have no dtype, are rounded to the stream's dtype. For a camera, an
                array (height, width, 3) of uint8 in the order red, green, blue (depth: (height,
                width) in the stream's dtype), or the bytes of a JPEG or PNG file. For a text, a
                str.
            stamp_ns: When the sample was measured, in int ns.
            arrival_ns: When it arrived, in int ns on the clock of the ticks. Default None: now.

        Raises:
            NotFound: The contract has no such stream.
            Misuse: The value has another dtype or shape than the stream, and cannot be cast.
            Malformed: The value does not fit the contract: numbers that are not finite, a damaged
                image or one of another size, or a timestamp far from the arrival.
        """
        converter = self._converters.get(key)
        # The engine reports an unknown key.
        dtype, data = converter.convert(value) if converter else (None, _buffer(b""))
        shape = (ctypes.c_int64 * data.ndim)(*data.shape)
        self._send(
            "robocache_live_push",
            key,
            stamp_ns,
            arrival_ns,
            dtype,
            shape,
            data.ndim,
            data.ctypes.data,
            data.nbytes,
        )

    def push_message(
        self,
        topic: str,
        payload: Any,
        stamp_ns: int | None = None,
        arrival_ns: int | None = None,
    ) -> None:
        """Adds a message as it was received. It is decoded as in training.

        Args:
            topic: The topic, such as "/joint_states". Topics that the contract does not need are
                ignored.
            payload: The bytes of the message, such as CDR of ROS 2.
            stamp_ns: When the message was published, in int ns. Only record() uses it: it stores
                this time with the message. Default None: now. The timestamp of the sample is that
                of the message's header, or arrival_ns if the contract uses the recorder's clock.
            arrival_ns: When the message arrived, in int ns on the clock of the ticks. Default None:
                now.

        Raises:
            Malformed: The message cannot be decoded, or its value does not fit the contract.
            Unsupported: The contract was made from a dataset without messages.
        """
        data = _buffer(payload)
        self._send(
            "robocache_live_push_message",
            topic,
            _NOW if stamp_ns is None else stamp_ns,
            arrival_ns,
            data.ctypes.data,
            data.nbytes,
        )

    def _send(
        self, name: str, key: str, stamp_ns: int, arrival_ns: int | None, *value: Any
    ) -> None:
        """Calls a function of the engine that adds a sample or a message."""
        if not isinstance(key, str):
            raise Misuse(f"expected a name as text, found {type(key).__name__}")
        stamp = _checks.check_integer("stamp_ns", stamp_ns)
        arrival = _NOW if arrival_ns is None else _checks.check_integer("arrival_ns", arrival_ns)
        engine, number = self._handle._resolve()
        out = ctypes.c_void_p()
        call = getattr(engine.lib, name)
        if call(number, key.encode(), stamp, arrival, *value, ctypes.byref(out)) != _engine.DONE:
            raise from_engine(engine.answer(out) or {})

    def observe(
        self, tick_ns: int | None = None, timeout_s: float = 0.05, *, as_numpy: bool = False
    ) -> Observation:
        """Returns the observation at a tick.

        Args:
            tick_ns: The tick in int ns, on the clock of the arrivals. Default None: now, that is
                the newest arrival plus the time since then.
            timeout_s: The time in seconds to wait for streams that have no sample yet. Their values
                are masked afterwards. Default 0.05.
            as_numpy: Whether the values are NumPy arrays. Default False: torch tensors, if torch is
                installed. They use the engine's memory without a copy.

        Returns:
            The Observation.

        Raises:
            Malformed: A stream with stale="error" has no sample that is young enough.
            Misuse: The Live is closed.
        """
        args: dict[str, Any] = {"timeout_s": _checks.check_nonnegative("timeout_s", timeout_s)}
        if tick_ns is not None:
            args["tick_ns"] = _checks.check_integer("tick_ns", tick_ns)
        answer = self._handle.call("robocache_live_observe", args)
        torch = None if as_numpy else _memory.torch_module()
        values = {
            k: v[0] if isinstance(v, list) else v
            for k, v in _memory.batch_values(answer, torch, True).items()
        }
        ages = {
            k: None if age < 0 else age / 1e9
            for k, age in zip(self._names, answer["ages_ns"], strict=True)
            if k != "task"
        }
        return Observation(values, answer["tick_ns"], ages)

    def latency(self) -> dict[str, dict[str, Any]]:
        """Returns the rate and the delays of each stream.

        Returns:
            A dict by stream: rate_hz, the samples per second of arrivals; median_ns, p99_ns and
            max_ns, the delay from timestamp to arrival of the last 128 samples in ns; age_ns, the
            age in ns of the newest sample at the newest arrival of any stream, or -1.
        """
        return self._ordered(self._handle.call("robocache_live_latency"))

    def stats(self) -> dict[str, dict[str, int]]:
        """Returns the counters of each stream since the Live was made.

        Returns:
            A dict by stream: received; rejected, which do not fit the contract; late, older than a
            sample that arrived before; repeated; clock_steps; dropped, over memory_budget; and
            no_frame, packets of video without a picture.
        """
        return self._ordered(self._handle.call("robocache_live_stats")["streams"])

    @property
    def error(self) -> Error | None:
        """The newest error of the transport or of a message that it received; None without one."""
        failure = self._handle.call("robocache_live_stats").get("error")
        return from_engine(failure) if failure else None

    def _ordered(self, by_key: Mapping[str, Any]) -> dict[str, Any]:
        """Returns an answer of the engine in the order of the contract's streams."""
        return {k: by_key[k] for k in self._names if k in by_key and k != "task"}

    def reset(self) -> None:
        """Begins another episode: all samples are forgotten, and the next tick is the first one."""
        self._handle.call("robocache_live_reset")

    def set_task(self, task: str) -> None:
        """Sets the text of the key "task".

        Args:
            task: The instruction, such as "Pick up the cup."
        """
        if not isinstance(task, str):
            raise Misuse(f"a task is text, not {type(task).__name__}")
        self._handle.call("robocache_live_set_task", {"task": task})

    def record(self, path: str | os.PathLike[str]) -> None:
        """Records samples and ticks to an MCAP file, until close().

        The file has the contract, the samples or messages, and the ticks. verify() replays it. Call
        record before the first sample.

        Args:
            path: The path of the new file.

        Raises:
            Misuse: The file exists or cannot be created, or a recording is being written already.
        """
        self._handle.call("robocache_live_record", {"path": _checks.path_text(path)})

    def close(self) -> None:
        """Ends the transport and the recording. Observations that were returned stay valid."""
        self._handle.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise Misuse("a Live cannot be pickled", hint="pass its contract, and make a Live there")

    def __repr__(self) -> str:
        state = "closed" if self._handle.closed else f"{self.contract.rate_hz:g} Hz"
        return f"<robocache.Live of {len(self._names)} streams: {state}>"


class _Converter:
    """Converts the values of one stream to the memory that the engine copies."""

    def __init__(self, f: Feature) -> None:
        self.key = f.key
        self.is_text = f.kind in ("text", "event")
        self.is_camera = f.kind in ("image", "video")
        self.dtype = None if self.is_text else np.dtype(f.dtype)

    def convert(self, v: Any) -> tuple[bytes | None, np.ndarray]:
        """Returns the name of the dtype and a contiguous array.

        The name is None for texts and encoded images.
        """
        if self.is_text:
            if not isinstance(v, str):
                raise self._mismatch("text", type(v).__name__)
            return None, _buffer(v.encode())
        if self.is_camera and isinstance(v, (bytes, bytearray, memoryview)):
            return None, _buffer(v)
        a = v
        if not isinstance(v, np.ndarray):
            if str(getattr(v, "dtype", "")) == "torch.bfloat16":
                v = v.float()  # NumPy has no bfloat16. Each value is a float32.
            try:
                a = v.detach().cpu().numpy() if hasattr(v, "detach") else np.asarray(v)
            except (TypeError, ValueError) as e:
                raise self._mismatch(f"numbers of {self.dtype}", f"{type(v).__name__}: {e}") from e
        if a.dtype.kind not in "biuf":
            raise self._mismatch(f"numbers of {self.dtype}", str(a.dtype))
        if not self.is_camera and a.dtype != self.dtype:
            a = self._cast(a, has_dtype=hasattr(v, "dtype"))
        a = a.astype(a.dtype.newbyteorder("="), copy=False)
        return a.dtype.name.encode(), np.ascontiguousarray(a).reshape(a.shape)

    def _cast(self, a: np.ndarray, has_dtype: bool) -> np.ndarray:
        """Returns an array in the stream's dtype. Raises Misuse if a value would change."""
        assert self.dtype is not None
        with np.errstate(all="ignore"):
            out = a.astype(self.dtype)
            if not has_dtype and a.dtype.kind == self.dtype.kind == "f":
                return out
            # Both comparisons are needed: an int8 of -1 becomes a uint8 of 255, and is equal again
            # after the cast back.
            back = out.astype(a.dtype)
        nan = a.dtype.kind == self.dtype.kind == "f"
        if not (np.array_equal(back, a, nan) and np.array_equal(out, a, nan)):
            raise self._mismatch(
                str(self.dtype), f"values of {a.dtype} that {self.dtype} does not hold"
            )
        return out

    def _mismatch(self, want: str, got: str) -> Misuse:
        """Returns the error for a value that does not fit the stream."""
        return Misuse(f"{self.key}: expected {want}, found {got}", {"stream": self.key})


def _buffer(v: Any) -> np.ndarray:
    """Returns the bytes of a message, a text or an encoded image as an array, without a copy."""
    try:
        return np.frombuffer(v, np.uint8)
    except (TypeError, ValueError, BufferError) as e:
        raise Misuse(f"expected bytes, found {type(v).__name__}: {e}") from None


def _as_contract(v: Any) -> Contract:
    """Returns a contract, or reads it from a path."""
    return v if isinstance(v, Contract) else Contract.load(v)


class Replayed(Result):
    """The comparison of live observations with training samples: the answer of replay and verify.

    Attributes:
        ticks: The number of ticks.
        different_ticks: The number of ticks on which an observation differs. 0: all are equal.
        different_bits: The number of bits that differ. verify does not count bits and values.
        different_keys: {key: the number of ticks with a difference}.
        first_different_tick_ns: The first tick with a difference, in ns.
        masked: The number of values that are masked.

    ["values"] is the number of values of all keys and steps.
    """

    ticks: int
    different_ticks: int
    different_bits: int
    different_keys: dict[str, int] | None
    first_different_tick_ns: int | None
    masked: int


def replay(
    recording: str | os.PathLike[str],
    contract: Contract | str | os.PathLike[str],
    episodes: Iterable[int] | str | None = None,
    max_ticks: int | None = None,
    *,
    progress: bool | None = None,
    **options: Any,
) -> Replayed:
    """Compares the live observations of a recording with a Loader's samples, bit by bit.

    The samples are pushed in the order of their arrival. The GIL is free during the call. Ctrl-C
    stops the work.

    Args:
        recording: A path or URI of any readable format.
        contract: A Contract, or the path of its file.
        episodes: Indices of episodes, or text such as "0,3,5-9". Default None: all.
        max_ticks: The number of ticks to compare. Default None: all.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache live replay --help`, with _ in place of -, such as format=.

    Returns:
        A Replayed.

    Raises:
        NotFound: The recording or the contract does not exist.
        Misuse: The recording does not fit the contract, or an option is invalid.

    Example:
        contract = robocache.Contract.load("policy.contract.json")
        assert robocache.live.replay("recording.mcap", contract).different_bits == 0
    """
    given = {
        "contract": _as_contract(contract).to_json(),
        "episodes": episodes if episodes is None or isinstance(episodes, str) else list(episodes),
        "max_ticks": None if max_ticks is None else _checks.check_whole("max_ticks", max_ticks),
        **options,
    }
    return Replayed(run_verb("live replay", [_checks.path_text(recording)], given, progress))


def verify(path: str | os.PathLike[str]) -> Replayed:
    """Replays a file that Live.record() wrote, and compares the observations, bit by bit.

    Args:
        path: The path of the file.

    Returns:
        A Replayed.

    Raises:
        NotFound: The file does not exist.
        Malformed: The file is damaged, or Live.record() did not write it.
    """
    return Replayed(run_verb("live verify", [_checks.path_text(path)], {}, None))
