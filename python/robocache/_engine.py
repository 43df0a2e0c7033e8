"""Loads the engine's C library, calls it, and recovers after a fork.

A Go runtime does not survive a fork: a call into it would block forever. So the library remembers
the process that first called it. A forked child opens a private copy of the library (through a
memfd) with its own runtime, and each Handle creates its object again in that copy. The child never
calls the parent's copy, not even in finalizers.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import re
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import Error, Misuse, NotFound, Unsupported, from_engine

ABI = 5
STEP_MS = 50  # The longest time in ms that one call delays Ctrl-C.
DONE, PENDING, END = 0, -1, -2

_CALL_NAMES = (
    "robocache_versions robocache_wait robocache_close robocache_open robocache_episode "
    "robocache_episodes robocache_stats robocache_find robocache_embedded robocache_quality "
    "robocache_deal robocache_stream "
    "robocache_align robocache_map_new robocache_map_items robocache_loader_new "
    "robocache_loader_state robocache_loader_restore robocache_loader_set_epoch "
    "robocache_loader_order robocache_loader_finish robocache_loader_locate robocache_loader_stats "
    "robocache_loader_causality robocache_op_new "
    "robocache_backends robocache_self_test robocache_edit robocache_verb robocache_writer_new "
    "robocache_writer_save robocache_writer_discard robocache_writer_delete "
    "robocache_writer_stats robocache_writer_finish robocache_loader_contract "
    "robocache_contract_parse robocache_contract_check robocache_live_new robocache_live_observe "
    "robocache_live_stats robocache_live_latency robocache_live_reset robocache_live_set_task "
    "robocache_live_record"
).split()

# Functions of Python with which the library makes capsules, in the order that robocache.h defines.
_CAPSULE_FUNCTIONS = (
    "PyCapsule_New PyCapsule_IsValid PyCapsule_GetPointer PyList_New PyList_SetItem Py_DecRef"
).split()

_STATUS, _NUMBER, _ADDRESS = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_CALL_ARGUMENTS: list[Any] = [
    _NUMBER,
    ctypes.c_char_p,
    _STATUS,
    ctypes.POINTER(_NUMBER),
    ctypes.POINTER(_ADDRESS),
]
# The operation, the addresses as packed int64, their number, the stream, and the address that
# receives the text of an error.
_RUN_ARGUMENTS: list[Any] = [_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER, _ADDRESS]

# The functions of robocache.h that do not have the signature of _CALL: attribute of Engine, name,
# result, arguments. Calls of the functions with an attribute keep the GIL.
_FUNCTIONS: list[tuple[str, str, Any, list[Any]]] = [
    ("", "robocache_free", None, [_ADDRESS]),
    ("", "robocache_cancel", None, [_NUMBER]),
    ("", "robocache_interrupt", None, [_NUMBER]),
    ("", "robocache_main", _STATUS, [_STATUS, ctypes.POINTER(ctypes.c_char_p)]),
    (
        "",
        "robocache_loader_take",
        _STATUS,
        [_NUMBER, _NUMBER, _STATUS, _ADDRESS, ctypes.POINTER(_ADDRESS)],
    ),
    ("", "robocache_op_run", _STATUS, _RUN_ARGUMENTS),
    (
        "",
        "robocache_writer_add",
        _STATUS,
        [_NUMBER, ctypes.c_char_p, _ADDRESS, _NUMBER, _STATUS, ctypes.POINTER(_ADDRESS)],
    ),
    (
        "",
        "robocache_writer_sample",
        _STATUS,
        [_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER, ctypes.POINTER(_ADDRESS)],
    ),
    (
        "",
        "robocache_live_push",
        _STATUS,
        [_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER, ctypes.c_char_p, ctypes.POINTER(_NUMBER)]
        + [_STATUS, _NUMBER, _NUMBER, ctypes.POINTER(_ADDRESS)],
    ),
    (
        "",
        "robocache_live_push_message",
        _STATUS,
        [_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER, _NUMBER, _NUMBER, ctypes.POINTER(_ADDRESS)],
    ),
    # A launch does not wait. Getting the GIL again can cost milliseconds if other threads run.
    ("launch", "robocache_op_run", _STATUS, _RUN_ARGUMENTS),
    # These two functions do not enter Go and do not wait. No signal handler runs during the call.
    ("capsules", "robocache_capsules", ctypes.py_object, [_ADDRESS]),
    ("arrived", "robocache_arrived", None, [_ADDRESS]),
    ("update_environment", "robocache_environment", None, [ctypes.c_char_p, _STATUS]),
]


class Engine:
    """One loaded copy of the library, and the process that may call it."""

    launch: Any
    capsules: Any
    arrived: Any
    update_environment: Any

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self._initial = _initial_environment()
        # The environment that was last sent to the engine.
        self._environment: dict[bytes, bytes] | None = None
        self._environment_lock = threading.Lock()
        try:
            self.lib = ctypes.CDLL(path)  # CDLL releases the GIL during calls, PyDLL does not.
        except OSError as e:
            here = (
                f"{platform.system()} on {platform.machine()}, "
                f"{' '.join(platform.libc_ver()).strip() or 'without glibc'}"
            )
            raise Unsupported(
                f"the engine cannot be loaded: {e}",
                {"file": path},
                "the wheels are for Linux with glibc 2.17 or later on x86-64 and arm64, "
                f"this is {here}; 'make lib' in a checkout builds it for the machine that it "
                "runs on",
            ) from e
        self.lib.robocache_abi_version.restype = ctypes.c_int32
        found = self.lib.robocache_abi_version()
        if found != ABI:
            raise Unsupported(
                f"the engine speaks ABI {found}, this package {ABI}",
                {"file": path},
                "build both from one version: 'make lib', or pip install again",
            )
        gil_lib = ctypes.PyDLL(path)  # The same library; its calls keep the GIL.
        calls = [("", name, _STATUS, _CALL_ARGUMENTS) for name in _CALL_NAMES]
        for attribute, name, result, arguments in (*_FUNCTIONS, *calls):
            fn = getattr(gil_lib if attribute else self.lib, name)
            fn.restype, fn.argtypes = result, arguments
            if attribute:
                setattr(self, attribute, fn)
        functions = (ctypes.c_void_p * len(_CAPSULE_FUNCTIONS))(
            *(
                ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value
                for n in _CAPSULE_FUNCTIONS
            )
        )
        gil_lib.robocache_python(functions)

    @property
    def ours(self) -> bool:
        """Whether this process may call this copy.

        False in a process that was forked after the copy was loaded.
        """
        return self.pid == os.getpid()

    def sync_environment(self) -> None:
        """Sends the variables that Python has set or removed to the engine.

        The engine copied the environment when the process started.
        """
        current = dict(os.environb)
        if current == self._environment:
            return
        with self._environment_lock:
            # The first call sends every variable. A variable that was removed and set again differs
            # from the engine's copy, although it equals its value at the start of the process.
            known = self._environment or {}
            gone = self._initial if self._environment is None else known
            changes = [n + b"=" + v for n, v in current.items() if known.get(n) != v]
            changes += [n for n in gone if n not in current]
            text = b"".join(entry + b"\0" for entry in changes)
            self.update_environment(text, len(text))
            self._environment = current

    def main(self, args: list[str]) -> int:
        """Runs the command line on the streams of the process, and returns its exit code.

        The engine handles signals from now on, so the process must end after this call.
        """
        self.sync_environment()
        texts = (ctypes.c_char_p * len(args))(*map(os.fsencode, args))
        return int(self.lib.robocache_main(len(args), texts))

    def call(
        self,
        name: str,
        handle: int = 0,
        args: dict[str, Any] | None = None,
        *,
        settle: bool = False,
    ) -> tuple[int, Any]:
        """Calls the engine and returns (status, answer).

        Waits in short steps without the GIL, so that Python handles signals. An exception cancels
        the work.

        Args:
            name: The function of the library.
            handle: The number of the object, or 0.
            args: The arguments as a JSON object.
            settle: Whether to wait for the end of canceled work, which removes unfinished files. A
                second Ctrl-C ends this wait.
        """
        self.sync_environment()
        payload = None if args is None else _to_json(args)
        ticket = ctypes.c_int64(0)
        out = ctypes.c_void_p()
        try:
            status = getattr(self.lib, name)(
                handle, payload, STEP_MS, ctypes.byref(ticket), ctypes.byref(out)
            )
            while status == PENDING:
                for line in (self.answer(out) or {}).get("log", ()):
                    _log.warning("%s", line)
                out.value = None
                status = self.lib.robocache_wait(
                    0, None, STEP_MS, ctypes.byref(ticket), ctypes.byref(out)
                )
        except BaseException:
            if ticket.value:
                self._cancel_work(ticket, settle)
            raise
        answer = self.answer(out)
        if status in (DONE, END):
            return status, answer
        raise from_engine(answer or {})

    def _cancel_work(self, ticket: ctypes.c_int64, settle: bool) -> None:
        """Cancels the work of a ticket. With settle, first waits until the work has cleaned up."""
        try:
            if settle:
                self.lib.robocache_interrupt(ticket)
                out = ctypes.c_void_p()
                while (
                    self.lib.robocache_wait(
                        0, None, STEP_MS, ctypes.byref(ticket), ctypes.byref(out)
                    )
                    == PENDING
                ):
                    pass
                self.lib.robocache_free(out)
        finally:
            if ticket.value:
                self.lib.robocache_cancel(ticket)

    def answer(self, out: ctypes.c_void_p) -> Any:
        """Returns the JSON answer of a call and frees its memory."""
        if not out.value:
            return None
        text = ctypes.string_at(out.value)
        self.lib.robocache_free(out)
        return json.loads(text)


def _initial_environment() -> dict[bytes, bytes]:
    """Returns the environment at the start of the process, which is the engine's copy."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return {
        name: value for name, found, value in (entry.partition(b"=") for entry in entries) if found
    }


def _plain_number(match: re.Match[str]) -> str:
    """Returns the replacement of a match of _NON_FINITE. A string stays as it is.

    "Infinity" becomes 1e999. "-Infinity" becomes -1e999, because the sign is not in the match.
    """
    found = match[0]
    if found.startswith('"'):
        return found
    return "null" if found == "NaN" else "1e999"


def _to_json(args: dict[str, Any]) -> bytes:
    """Returns args as JSON for the engine.

    The engine's JSON has no NaN and no infinities. NaN becomes null, and an infinity becomes a
    number that overflows to infinity.
    """
    text = json.dumps(args)
    if "NaN" in text or "Infinity" in text:
        text = _NON_FINITE.sub(_plain_number, text)
    return text.encode()


_log = logging.getLogger("robocache")

# Matches strings too, so that a "NaN" in a string is not replaced.
_NON_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|Infinity')

_lock = threading.Lock()
_current: Engine | None = None
_parent_engines: list[Engine] = []  # Copies of the parent processes: never called, never unloaded.


def _replace_lock() -> None:
    """Replaces the lock in a forked child."""
    global _lock
    _lock = threading.Lock()  # Another thread of the parent may have held the lock.


os.register_at_fork(after_in_child=_replace_lock)


def library_path() -> Path:
    """Returns the path of the C library.

    This is the file in the package (of a wheel, or of 'make lib' in a checkout), or the file in the
    variable ROBOCACHE_LIBRARY.
    """
    named = os.environ.get("ROBOCACHE_LIBRARY")
    path = Path(named) if named else Path(__file__).resolve().parent / "_lib" / "librobocache.so"
    if not path.is_file():
        raise NotFound(
            f"the engine's library is not there: {path}",
            {"file": str(path)},
            "in a checkout run 'make lib'; otherwise 'pip install ./python'",
        )
    return path


def _private_copy(path: Path) -> Engine:
    """Loads a second copy of the library from its own file.

    For the original file, dlopen would return the parent's copy.
    """
    size = path.stat().st_size
    try:
        fd = os.memfd_create("librobocache", os.MFD_CLOEXEC)
        with open(path, "rb") as src:
            done = 0
            while done < size:
                n = os.sendfile(fd, src.fileno(), done, size - done)
                if n == 0:
                    break
                done += n
        # The descriptor stays open, and the name contains the pid. dlopen compares names: a reused
        # name would return the copy of a parent process.
        return Engine(f"/proc/{os.getpid()}/fd/{fd}")
    except (OSError, Unsupported):
        # There is no memfd, or code in it cannot be executed. Use a file that is removed at once.
        pass
    with tempfile.NamedTemporaryFile(prefix=f"librobocache-{os.getpid()}-", suffix=".so") as tmp:
        tmp.write(path.read_bytes())
        tmp.flush()
        return Engine(tmp.name)


def current_engine() -> Engine:
    """Returns the copy of the library that this process may call."""
    global _current
    e = _current
    if e is not None and e.pid == os.getpid():
        return e
    with _lock:
        e = _current
        if e is not None and e.ours:
            return e
        path = library_path()
        if e is None:
            _current = Engine(str(path))
        else:
            _parent_engines.append(e)
            _current = _private_copy(path)
        return _current


def call_engine(name: str, args: dict[str, Any] | None = None) -> Any:
    """Calls a function of the engine that needs no object, and returns the answer."""
    return current_engine().call(name, 0, args)[1]


def close_object(e: Engine, number: int) -> None:
    """Closes an object of the engine, if this process may call the engine."""
    if e.ours:
        try:
            e.call("robocache_close", number)
        except Error:
            pass  # An object whose close fails is unusable anyway.


class Handle:
    """An object of the engine.

    The handle creates its object again in a forked child and after unpickling. A handle that is
    garbage collected closes its object.
    """

    __slots__ = (
        "_engine",
        "_number",
        "_finalizer",
        "_make",
        "_mutex",
        "_process",
        "closed",
        "info",
        "__weakref__",
    )

    def __init__(self, make: Callable[[], tuple[int, Any]]) -> None:
        """Stores make, which creates the object and returns its number and the engine's answer."""
        self._make = make
        self._engine: Engine | None = None
        self._number = 0
        self._mutex = threading.RLock()
        self._process = os.getpid()  # The process whose threads may hold _mutex.
        self._finalizer: Any = None
        self.closed = False
        self.info: Any = None  # The engine's answer to the creation of the object.

    def open(self) -> Handle:
        """Creates the object if it does not exist, and returns the handle."""
        self._resolve()
        return self

    @property
    def foreign(self) -> bool:
        """Whether the object was created in a process from which this one was forked."""
        return self._engine is not None and not self._engine.ours

    def _resolve(self) -> tuple[Engine, int]:
        """Returns the engine of this process and the number of the object in it."""
        if self.closed:
            raise Misuse("the object is closed", hint="make a new one")
        e = self._engine
        if e is not None and e.pid == os.getpid():
            return e, self._number
        if self._process != os.getpid():
            # A thread of the parent may hold the lock and does not exist in this process to release
            # it.
            self._mutex = threading.RLock()
            self._process = os.getpid()
            self._engine = None
        with self._mutex:
            if self._engine is None:
                e = current_engine()
                self._number, self.info = self._make()
                self._finalizer = weakref.finalize(self, close_object, e, self._number)
                self._engine = e
            return self._engine, self._number

    @property
    def number(self) -> int:
        """The number of the object in the engine of this process."""
        return self._resolve()[1]

    def call(self, name: str, args: dict[str, Any] | None = None) -> Any:
        """Calls a function of the object and returns the answer."""
        e, n = self._resolve()
        return e.call(name, n, args)[1]

    def close(self) -> None:
        """Closes the object. Further calls raise Misuse."""
        if self.closed:
            return
        self.closed = True
        finalizer, engine = self._finalizer, self._engine
        if finalizer is not None and engine is not None:
            if engine.ours:
                finalizer()
            else:
                finalizer.detach()  # The object belongs to a parent process.
