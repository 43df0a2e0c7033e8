"""The engine inside a Python process: import, signals, exit, threads and symbols."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import HERE

import robocache
from robocache import _engine


def test_import_is_light(script) -> None:  # type: ignore[no-untyped-def]
    r = script("""
        import sys, robocache
        print(sorted(m for m in ("torch", "pandas", "robocache.lerobot") if m in sys.modules), "librobocache" in open("/proc/self/maps").read())
    """)
    assert r.stdout.strip() == "[] False", r.stdout + r.stderr


def test_without_torch(script, h264: str) -> None:  # type: ignore[no-untyped-def]
    """Without torch everything returns NumPy arrays."""
    r = script(
        """
        import sys
        sys.modules["torch"] = None  # as if torch were not installed
        import numpy as np, robocache
        m = robocache.MapDataset(sys.argv[1], image_size=(24, 32), delta_timestamps={"action": [0.0, 1/30]})
        item = m[3]
        assert all(isinstance(v, (np.ndarray, str)) for v in item.values()), {k: type(v) for k, v in item.items()}
        assert item["index"].shape == () and item["action"].shape[0] == 2
        with robocache.Loader(sys.argv[1], batch_size=8, keys=["action", "task"]) as loader:
            b = next(iter(loader))
        assert isinstance(b["action"], np.ndarray) and b["action"].flags.c_contiguous and isinstance(b["task"], list)
        try:
            robocache.Loader(sys.argv[1], device=robocache.Device(pin_memory=True))
        except robocache.Unsupported as e:
            print("told:", e)
        robocache.self_test()
        """,
        h264,
    )
    assert r.returncode == 0, r.stderr
    assert "told: " in r.stdout


def start(text: str, *args: str, tmp_path: Path) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    # A shell starts background jobs with SIGINT ignored, and children inherit this. CI may run in
    # such a job.
    path.write_text(
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + textwrap.dedent(text)
    )
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    p = subprocess.Popen(
        [sys.executable, "-u", str(path), *args],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert p.stdout is not None
    while (line := p.stdout.readline()) and line.strip() != "ready":
        pass
    assert line, p.communicate()[1]
    return p


def interrupted(p: subprocess.Popen[str]) -> tuple[str, int]:
    p.send_signal(signal.SIGINT)
    try:
        out, err = p.communicate(timeout=120)  # the test fails if the process does not end
    except subprocess.TimeoutExpired:
        p.kill()
        pytest.fail("Ctrl-C does not end it: " + p.communicate()[1])
    return out + err, p.returncode


@pytest.mark.slow
def test_ctrl_c_in_an_epoch(exact: str, tmp_path: Path) -> None:
    p = start(
        """
        import sys, robocache
        loader = robocache.Loader(sys.argv[1], batch_size=64, threads=2)
        n = 0
        while True:
            for b in loader:
                n += 1
                if n == 1: print("ready")
        """,
        exact,
        tmp_path=tmp_path,
    )
    time.sleep(0.3)
    text, code = interrupted(p)
    assert "KeyboardInterrupt" in text and code in (-signal.SIGINT, 130, 1)


@pytest.mark.slow
def test_ctrl_c_loses_no_batch(exact: str, tmp_path: Path) -> None:
    """A loop that catches Ctrl-C continues with the next batch.

    The state counts the batches that were delivered.
    """
    p = start(
        """
        import sys, robocache
        loader = robocache.Loader(sys.argv[1], batch_size=32, threads=1, runtime=robocache.Runtime(prefetch=1), seed=1)
        want, got = loader.order(0), []
        it = iter(loader)
        print("ready")
        hits = 0
        while True:
            try:
                b = next(it, None)
                if b is None: break
                got += b["index"].tolist()
            except KeyboardInterrupt as e:
                hits += 1
                if e.__traceback__.tb_next is None:
                    break  # interrupted in this script, where the batch no longer belongs to the loader
                assert loader.state_dict()["position"] == len(got), (loader.state_dict(), len(got))
                if len(got) > 300: break
        assert got == want[:len(got)].tolist(), "a batch was lost"
        print("hits", hits, len(got))
        """,
        exact,
        tmp_path=tmp_path,
    )
    for _ in range(40):
        time.sleep(0.1)
        if p.poll() is not None:
            break
        p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    # SIGINT between two statements of the script may end the script, which is no fault. A lost
    # batch raises AssertionError. The traceback quotes source lines, so the test looks for the
    # raised error only.
    assert "AssertionError" not in err, err


@pytest.mark.parametrize("how", ["end", "raise", "sys.exit", "thread"])
def test_exit_with_a_loader_open(  # type: ignore[no-untyped-def]
    script, h264: str, how: str
) -> None:
    r = script(
        """
        import sys, threading, robocache
        sys.modules["torch"] = None  # importing torch takes longer than the test
        loader = robocache.Loader(sys.argv[1], batch_size=16, threads=2)
        it = iter(loader)
        batch = next(it)
        if sys.argv[2] == "raise": raise RuntimeError("in the loop")
        if sys.argv[2] == "sys.exit": sys.exit(7)
        if sys.argv[2] == "thread":
            threading.Thread(target=lambda: [None for _ in it], daemon=True).start()
        """,
        h264,
        how,
    )
    assert r.returncode == {"end": 0, "raise": 1, "sys.exit": 7, "thread": 0}[how], r.stderr
    assert ("RuntimeError" in r.stderr) == (how == "raise") and "fatal error" not in r.stderr


def test_broken_pipe_and_faulthandler(script, h264: str) -> None:  # type: ignore[no-untyped-def]
    """Python's own handling of signals is unchanged."""
    r = script(
        """
        import faulthandler, os, signal, sys, robocache
        sys.modules["torch"] = None  # importing torch takes longer than the test
        faulthandler.enable()
        before = signal.getsignal(signal.SIGINT)
        m = robocache.MapDataset(sys.argv[1], keys=["index"]); m[0]
        assert signal.getsignal(signal.SIGINT) is before
        r, w = os.pipe(); os.close(r)
        try:
            os.write(w, b"x")
        except BrokenPipeError:
            print("broken pipe is an exception")
        got = []
        signal.signal(signal.SIGUSR1, lambda *a: got.append(a)); os.kill(os.getpid(), signal.SIGUSR1); m[1]
        print("usr1", len(got), flush=True)
        faulthandler._sigsegv()
        """,
        h264,
    )
    assert "broken pipe is an exception" in r.stdout and "usr1 1" in r.stdout
    assert (
        r.returncode == -signal.SIGSEGV
        and "Segmentation fault" in r.stderr
        and "script.py" in r.stderr
    )


def test_a_collected_loader_leaves_nothing(  # type: ignore[no-untyped-def]
    script, h264: str
) -> None:
    r = script(
        """
        import gc, os, sys, time, robocache
        sys.modules["torch"] = None  # importing torch takes longer than the test
        path = sys.argv[1]
        def count(): return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        def use():
            loader = robocache.Loader(path, batch_size=4, threads=2, image_size=(24, 32))
            for i, b in enumerate(loader):
                if i == 3: raise KeyError("user code")
        for _ in range(3):
            try: use()
            except KeyError: pass
        gc.collect(); time.sleep(0.3); before = count()
        for _ in range(8):
            try: use()
            except KeyError: pass
        gc.collect()
        for _ in range(600):
            after = count()
            if after[0] <= before[0] and after[1] <= before[1] + 4: break
            time.sleep(0.1)
        print(before, after)
        assert after[0] <= before[0], "file descriptors"
        assert after[1] <= before[1] + 4, "threads"   # Go keeps a few idle threads
        """,
        h264,
    )
    assert r.returncode == 0, r.stdout + r.stderr


def test_symbols() -> None:
    """The library exports no FFmpeg symbol.

    PyAV and torchcodec load their own FFmpeg into the same process.
    """
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("nm (binutils) is not installed")
    out = subprocess.run(
        [nm, "-D", "--defined-only", str(_engine.library_path())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {line.split()[-1] for line in out.splitlines()}
    assert {n for n in names if not n.startswith("robocache_")} == set()
    assert {"robocache_abi_version", "robocache_loader_take", "robocache_free"} <= names


def test_every_call_is_declared() -> None:
    lib = _engine.current_engine().lib
    for name in _engine._CALL_NAMES:
        assert hasattr(lib, name)


def test_versions_and_self_test(capsys: pytest.CaptureFixture[str]) -> None:
    v = robocache.versions()
    assert (
        v["abi"] == _engine.ABI
        and "lerobot" in v["formats"]
        and v["package"] == robocache.__version__
    )
    assert {"av1", "h264", "hevc", "mpeg4"} <= set(v["codecs"])
    assert robocache.self_test() is True
    assert "decoder" in capsys.readouterr().out


def test_missing_library(script) -> None:  # type: ignore[no-untyped-def]
    r = script("""
        import os; os.environ["ROBOCACHE_LIBRARY"] = "/nonexistent/lib.so"
        import robocache
        try: robocache.open("x")
        except robocache.NotFound as e: print(e)
    """)
    assert "make lib" in r.stdout, r.stderr


def test_names() -> None:
    for name in robocache.__all__:
        assert getattr(robocache, name) is not None
    with pytest.raises(AttributeError, match="'Loader'"):
        robocache.Loadr  # noqa: B018
    for cls, base in (
        (robocache.NotFound, FileNotFoundError),
        (robocache.Misuse, ValueError),
        (robocache.Error, RuntimeError),
        (robocache.ForkError, robocache.Error),
    ):
        e = cls("text", {"file": "f"}, "do that")
        assert (
            isinstance(e, base)
            and isinstance(e, robocache.Error)
            and e.where == {"file": "f"}
            and e.hint == "do that"
            and "do that" in str(e)
        )


def test_stale_and_foreign_handles() -> None:
    e = _engine.current_engine()
    for name in (
        "robocache_stats",
        "robocache_map_items",
        "robocache_loader_state",
        "robocache_close",
    ):
        with pytest.raises(robocache.Misuse):
            e.call(name, 10**12)
    with pytest.raises(robocache.Misuse):
        e.call("robocache_open", 0, {"uri": "x", "colour": 1})


def test_help_names_every_keyword() -> None:
    """help() of a class mentions each of its keywords."""
    import inspect
    import pydoc

    for cls in (robocache.Loader, robocache.Mix, robocache.MapDataset):
        for name in inspect.signature(cls.__init__).parameters:
            assert name == "self" or name in (cls.__doc__ or ""), f"{cls.__name__}: {name}"
    text = pydoc.plain(pydoc.render_doc(robocache.Loader)) + pydoc.plain(
        pydoc.render_doc(robocache)
    )
    assert all(word in text for word in ("state_dict", "locate(", "Mix(", "order(epoch)"))
