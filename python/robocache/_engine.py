"""Loads the C library, calls it, and survives fork.

A Go runtime does not survive fork: a call into it would hang for ever. So the process that first called the library is remembered, and a
forked child opens a private copy (through a memfd), which brings a fresh runtime; objects make themselves again there (Handle). The
parent's copy is never called in the child, finalizers included.
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
STEP_MS = 50  # how long one wait may keep Ctrl-C waiting
DONE, PENDING, END = 0, -1, -2

_CALLS = (
    "robocache_versions robocache_wait robocache_close robocache_open robocache_episode robocache_episodes robocache_stats robocache_deal robocache_stream robocache_align "
    "robocache_map_new robocache_map_items robocache_loader_new robocache_loader_state robocache_loader_restore robocache_loader_set_epoch "
    "robocache_loader_order robocache_loader_finish robocache_loader_locate robocache_loader_stats robocache_op_new robocache_backends robocache_self_test "
    "robocache_edit robocache_verb robocache_writer_new robocache_writer_save robocache_writer_discard robocache_writer_delete robocache_writer_stats robocache_writer_finish"
).split()

# What the library makes capsules with, in the order that robocache.h says.
_PYTHON = "PyCapsule_New PyCapsule_IsValid PyCapsule_GetPointer PyList_New PyList_SetItem Py_DecRef".split()

_STATUS, _NUMBER, _PLACE = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_CALL: list[Any] = [
    _NUMBER,
    ctypes.c_char_p,
    _STATUS,
    ctypes.POINTER(_NUMBER),
    ctypes.POINTER(_PLACE),
]
# op, addresses as packed int64, how many, stream, where the text of an error goes
_RUN: list[Any] = [_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER, _PLACE]

# The functions of robocache.h that are no calls: attribute of Engine, name, result, arguments.
# Those with an attribute keep the GIL.
_FUNCTIONS: list[tuple[str, str, Any, list[Any]]] = [
    ("", "robocache_free", None, [_PLACE]),
    ("", "robocache_cancel", None, [_NUMBER]),
    ("", "robocache_interrupt", None, [_NUMBER]),
    ("", "robocache_main", _STATUS, [_STATUS, ctypes.POINTER(ctypes.c_char_p)]),
    (
        "",
        "robocache_loader_take",
        _STATUS,
        [_NUMBER, _NUMBER, _STATUS, _PLACE, ctypes.POINTER(_PLACE)],
    ),
    ("", "robocache_op_run", _STATUS, _RUN),
    (
        "",
        "robocache_writer_add",
        _STATUS,
        [_NUMBER, ctypes.c_char_p, _PLACE, _NUMBER, _STATUS, ctypes.POINTER(_PLACE)],
    ),
    (
        "",
        "robocache_writer_sample",
        _STATUS,
        [_NUMBER, ctypes.c_char_p, _NUMBER, _NUMBER, ctypes.POINTER(_PLACE)],
    ),
    # a launch waits for nothing: with other threads about it can cost milliseconds to have the GIL
    # again
    ("launch", "robocache_op_run", _STATUS, _RUN),
    # these two enter no Go and wait for nothing: no signal handler runs within them
    ("capsules", "robocache_capsules", ctypes.py_object, [_PLACE]),
    ("arrived", "robocache_arrived", None, [_PLACE]),
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
        self._environment: dict[bytes, bytes] | None = None  # as the engine was last told
        self._environment_lock = threading.Lock()
        try:
            self.lib = ctypes.CDLL(path)  # CDLL releases the GIL during calls; PyDLL would not
        except OSError as e:
            here = f"{platform.system()} on {platform.machine()}, {' '.join(platform.libc_ver()).strip() or 'without glibc'}"
            raise Unsupported(
                f"the engine cannot be loaded: {e}",
                {"file": path},
                f"the wheels are for Linux with glibc 2.17 or later on x86-64 and arm64, this is {here}; 'make lib' in a checkout builds it for the machine that it runs on",
            ) from e
        self.lib.robocache_abi_version.restype = ctypes.c_int32
        found = self.lib.robocache_abi_version()
        if found != ABI:
            raise Unsupported(
                f"the engine speaks ABI {found}, this package {ABI}",
                {"file": path},
                "build both from one version: 'make lib', or pip install again",
            )
        held = ctypes.PyDLL(path)  # keeps the GIL
        calls = [("", name, _STATUS, _CALL) for name in _CALLS]
        for attribute, name, result, arguments in (*_FUNCTIONS, *calls):
            fn = getattr(held if attribute else self.lib, name)
            fn.restype, fn.argtypes = result, arguments
            if attribute:
                setattr(self, attribute, fn)
        functions = (ctypes.c_void_p * len(_PYTHON))(
            *(ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value for n in _PYTHON)
        )
        held.robocache_python(functions)

    @property
    def ours(self) -> bool:
        """False in a process that was forked off after this copy was loaded: it must not be called there."""
        return self.pid == os.getpid()

    def sync_environment(self) -> None:
        """Passes variables that Python set or removed to the engine, which copied the environment when the process started."""
        current = dict(os.environb)
        if current == self._environment:
            return
        with self._environment_lock:
            # The first call passes every variable. A variable that was removed and set again
            # differs
            # from the engine's copy, although it equals its value at the start of the process.
            known = self._environment or {}
            gone = self._initial if self._environment is None else known
            changes = [n + b"=" + v for n, v in current.items() if known.get(n) != v]
            changes += [n for n in gone if n not in current]
            text = b"".join(entry + b"\0" for entry in changes)
            self.update_environment(text, len(text))
            self._environment = current

    def main(self, args: list[str]) -> int:
        """Runs the command line on the process's streams, and gives its exit code: the process is to end with it, its signals are the engine's."""
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
        """Calls the engine and gives (status, answer). Waits in short steps without the GIL, so that signals are seen; an exception cancels the work.

        settle: waits for the end of work that was cancelled, which removes what it left unfinished; a second Ctrl-C does not.
        """
        self.sync_environment()
        payload = None if args is None else _json(args)
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
                self._give_up(ticket, settle)
            raise
        answer = self.answer(out)
        if status in (DONE, END):
            return status, answer
        raise from_engine(answer or {})

    def _give_up(self, ticket: ctypes.c_int64, settle: bool) -> None:
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
        """Takes the JSON that a call left, and gives its memory back."""
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


def _json(args: dict[str, Any]) -> bytes:
    """JSON as the library reads it: it has no NaN and no infinities, so they go as null and as numbers beyond all."""
    text = json.dumps(args)
    if "NaN" in text or "Infinity" in text:
        text = _UNTOLD.sub(
            lambda m: m[0] if m[0][0] == '"' else "null" if m[0] == "NaN" else "1e999", text
        )
    return text.encode()


_log = logging.getLogger("robocache")

_UNTOLD = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|Infinity')

_lock = threading.Lock()
_current: Engine | None = None
_kept: list[Engine] = []  # copies of ancestors: never called, never unloaded


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def library_path() -> Path:
    """Where the C library lies: in the package (wheel, or 'make lib' in a checkout), or where ROBOCACHE_LIBRARY says."""
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
    """Opens a copy of the library as a file of its own, so that the loader does not give us the parent's."""
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
        # The descriptor stays open and the pid is in the name: dlopen compares names, and a reused
        # one would give an ancestor's copy.
        return Engine(f"/proc/{os.getpid()}/fd/{fd}")
    except (OSError, Unsupported):
        pass  # no memfd, or not executable there: a file that is removed at once
    with tempfile.NamedTemporaryFile(prefix=f"librobocache-{os.getpid()}-", suffix=".so") as tmp:
        tmp.write(path.read_bytes())
        tmp.flush()
        return Engine(tmp.name)


def engine() -> Engine:
    """The copy of the library that this process may call."""
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
            _kept.append(e)
            _current = _private_copy(path)
        return _current


def call(name: str, args: dict[str, Any] | None = None) -> Any:
    """A call without an object."""
    return engine().call(name, 0, args)[1]


def _close(e: Engine, number: int) -> None:
    if e.ours:
        try:
            e.call("robocache_close", number)
        except Error:
            pass  # an object that fails to close is gone all the same


class Handle:
    """An object of the engine. In a forked or other process it makes itself again; collected, it closes itself."""

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
        self._make = make
        self._engine: Engine | None = None
        self._number = 0
        self._mutex = threading.RLock()
        self._process = os.getpid()  # whose threads may hold _mutex
        self._finalizer: Any = None
        self.closed = False
        self.info: Any = None  # what making it answered

    def open(self) -> Handle:
        self._resolve()
        return self

    @property
    def foreign(self) -> bool:
        """Whether it was made in a process that this one was forked off."""
        return self._engine is not None and not self._engine.ours

    def _resolve(self) -> tuple[Engine, int]:
        """The engine of this process and the object's number in it."""
        if self.closed:
            raise Misuse("the object is closed", hint="make a new one")
        e = self._engine
        if e is not None and e.pid == os.getpid():
            return e, self._number
        if self._process != os.getpid():
            # A thread of the parent may hold the lock, and is not here to give it back.
            self._mutex, self._process, self._engine = threading.RLock(), os.getpid(), None
        with self._mutex:
            if self._engine is None:
                e = engine()
                self._number, self.info = self._make()
                self._finalizer = weakref.finalize(self, _close, e, self._number)
                self._engine = e
            return self._engine, self._number

    @property
    def number(self) -> int:
        return self._resolve()[1]

    def call(self, name: str, args: dict[str, Any] | None = None) -> Any:
        e, n = self._resolve()
        return e.call(name, n, args)[1]

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        f, e = self._finalizer, self._engine
        if f is not None and e is not None:
            if e.ours:
                f()
            else:
                f.detach()
