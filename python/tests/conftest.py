"""Fixtures and helpers shared by the tests, and the location of the test data."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NO_DATA = "no test data"  # prefix of the skip reason of a test that has no test data
sys.path.insert(0, str(HERE.parent))
# Quiet and offline: a peer that needs the network must fail at once instead of waiting.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
# A shell starts background jobs with SIGINT ignored, and programs that tests interrupt inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    try:
        import torch
    except ImportError:
        return
    # otherwise torch's threads take the cores that other tests measure and use
    torch.set_num_threads(1)


# Modules that `make test-fast` leaves out: they run peers, other programs or training.
SLOW_MODULES = {
    "test_against_lerobot",
    "test_bench_ops",
    "test_container",
    "test_ddp",
    "test_deploy_example",
    "test_device",
    "test_docs",
    "test_edit_against_lerobot",
    "test_examples",
    "test_frameworks",
    "test_hub",
    "test_lerobot_meta",
    "test_lerobot_tools",
    "test_lerobot_train",
    "test_notebook",
    "test_oldest_python",
    "test_process",
    "test_ray",
    "test_release",
    "test_ros2_node",
    "test_site",
    "test_train_data",
    "test_train_models",
    "test_trainer_statistics",
    "test_types",
    "test_wheel",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="leave out what runs peers, other programs or trainings",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out slow modules before their import: importing lerobot takes 8 s of CPU time."""
    return (config.getoption("--fast") and collection_path.stem in SLOW_MODULES) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--fast"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Appends the id of a test that skips because of missing data to $ROBOCACHE_SKIPPED, if set.

    scripts/tests/with-data.sh runs these tests again.
    """
    path = os.environ.get("ROBOCACHE_SKIPPED")
    if (
        path
        and report.skipped
        and isinstance(report.longrepr, tuple)
        and NO_DATA in report.longrepr[2]
    ):
        with open(path, "a") as f:
            f.write(f"{report.nodeid}\n")


@pytest.fixture(autouse=True)
def ordinary_priority() -> Iterator[None]:
    """Resets the scheduling policy of the process after each test.

    lerobot encodes AV1 through PyAV. If the process runs as root, SVT-AV1 gives the encoding thread
    the highest real-time priority, and child processes inherit it.
    """
    yield
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def data_root() -> Path:
    root = Path(os.environ.get("ROBOCACHE_TESTDATA") or ROOT.parent / "shared" / "data")
    # fallback: the small datasets in the repository
    return root if root.exists() else ROOT / "testdata" / "shared"


def dataset_path(name: str) -> str:
    path = data_root() / name
    if not path.exists():
        pytest.skip(f"{NO_DATA} {name} in {data_root()}: set ROBOCACHE_TESTDATA")
    return str(path)


def cli(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line and returns the finished process."""
    if (ROOT / "bin" / "robocache").exists():
        command = [str(ROOT / "bin" / "robocache")]
    else:  # the command line of the Python package
        command = [sys.executable, "-m", "robocache"]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep),
    }
    return run_program([*command, *args], env)


def run_program(
    command: list[str], env: dict[str, str], timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs a program. If it does not end in time, the failure shows where its threads block."""
    pipe = subprocess.PIPE
    p = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe, env=env, start_new_session=True
    )
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        state = describe_hang(p.pid)
        p.send_signal(signal.SIGQUIT)  # a Go program prints the stacks of its goroutines
        try:
            _, err = p.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            err = "it ignores SIGQUIT"
        pytest.fail(f"{command} did not end in {timeout} s\n{state}\n{err}", pytrace=False)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)  # and its children
    return subprocess.CompletedProcess(command, p.returncode, out, err)


def run_case(name: str, path: Path, *variant: str) -> Path:
    """Makes an input with a script of testdata/cases and returns its path.

    The script runs in this process, because a new one takes 0.7 s to import PyArrow.
    """
    script = str(ROOT / "testdata" / "cases" / f"{name}.py")
    with mock.patch.object(sys, "argv", [script, str(path), *variant]):
        runpy.run_path(script, run_name="__main__")
    return path


def describe_hang(pid: int) -> str:
    """Returns the threads of a process and of those it started, with their native stacks (by gdb).

    The first lines are the threads of the machine that used most time. One of the class FF has
    real-time priority, and may have kept the others from running.
    """
    script = f"""
        cat /proc/loadavg
        fields=pid,tid,cls,stat,etimes,time,wchan:24,args
        ps -eL -o $fields --sort=-time | cut -c -150 | head -30
        ps -L -o $fields -p {pid} --ppid {pid} | cut -c -150
        for p in {pid} $(pgrep -P {pid}); do gdb -batch -p $p -ex 'thread apply all bt 9'; done
    """
    done = subprocess.run(
        ["bash", "-c", script], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout


def synth(path: Path, *options: str) -> Path:
    """Creates a synthetic dataset with the command line and returns its path."""
    done = cli("synth", str(path), *options)
    if done.returncode == 10 and "ffmpeg" in done.stderr or done.returncode == 12:
        pytest.skip(f"synth has no encoder on this machine: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session")
def exact() -> str:
    """Returns the path of a set with AV1 video, five episodes in one mp4, and exact timestamps."""
    return dataset_path("g1_v30_exact")


@pytest.fixture(scope="session")
def h264() -> str:
    """Returns the path of a set with H.264 video with B-frames and two cameras of small images."""
    return dataset_path("g1_h264_v30")


@pytest.fixture(scope="session")
def torch():  # type: ignore[no-untyped-def]
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def script(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Returns a function that runs Python source in a fresh process, as a user's script runs."""

    def run(
        text: str, *args: str, timeout: float = 300, **kwargs: object
    ) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(text))
        env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        return subprocess.run(
            [sys.executable, str(path), *args],
            env=env,
            text=True,
            capture_output=True,
            timeout=timeout,
            **kwargs,
        )  # type: ignore[call-overload]

    return run
