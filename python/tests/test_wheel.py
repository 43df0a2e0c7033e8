"""pip install ./python: the wheel, its tag and contents, and its use in a new environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import HERE

pytestmark = pytest.mark.skipif(
    shutil.which("go") is None, reason="go is not on PATH: no wheel can be built"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pytest.importorskip(
        "setuptools", minversion="70.1", reason="setuptools 70.1 or later is not installed"
    )
    # The same as pip, without the download of setuptools into an isolated environment.
    r = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--disable-pip-version-check",
            "-w",
            str(out),
            str(HERE.parent),
        ],
        capture_output=True,
        text=True,
    )
    assert r.returncode == 0, r.stderr
    (found,) = out.glob("*.whl")
    return found


def test_contents(wheel: Path) -> None:
    assert wheel.name.startswith("robocache-") and "-py3-none-linux_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in ("robocache/__init__.py", "robocache/py.typed", "robocache/_lib/librobocache.so"):
        assert name in names, name
    parts = ("LGPLv2.1", "dav1d", "libdeflate", "libjpeg-turbo", "libjxl", "jpegxl", "libzstd")
    assert {n.partition(".dist-info/licenses/")[2] for n in names if "/licenses/" in n} == {
        "LICENSE",
        "NOTICE",
        *(f"COPYING.{p}" for p in parts),
    }
    (entry,) = (n for n in names if n.endswith("/entry_points.txt"))
    assert "robocache = robocache.__main__:main" in zipfile.ZipFile(wheel).read(entry).decode()
    assert not any("tests/" in n or n.endswith((".h", ".go")) for n in names)


def test_installed(wheel: Path, tmp_path: Path, h264: str) -> None:
    target = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--disable-pip-version-check",
            "--target",
            str(target),
            str(wheel),
        ],
        check=True,
    )
    text = (
        "import sys; sys.modules['torch'] = None\n"
        "import robocache\n"
        "assert robocache.__file__.startswith(sys.argv[1]), robocache.__file__\n"
        "robocache.self_test()\n"
        "b = next(iter(robocache.Loader(sys.argv[2], batch_size=4)))\n"
        "print(len(b['task']))"
    )
    env = {k: v for k, v in os.environ.items() if k != "ROBOCACHE_LIBRARY"} | {
        "PYTHONPATH": str(target)
    }
    r = subprocess.run(
        [sys.executable, "-c", text, str(target), h264],
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert r.returncode == 0 and r.stdout.strip().endswith("4"), r.stderr
    # pip writes the interpreter that ran it into the script.
    r = subprocess.run(
        [str(target / "bin" / "robocache"), "inspect", h264],
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert r.returncode == 0 and "lerobot v3.0" in r.stdout, r.stderr


def test_torch_knows_the_operators(wheel: Path, tmp_path: Path) -> None:
    """A process that never imports robocache has its operators.

    torch loads the entry point of the installed package.
    """
    pytest.importorskip("torch", minversion="2.5", reason="torch 2.5 or later is not installed")
    target = tmp_path / "site"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            "--disable-pip-version-check",
            "--target",
            str(target),
            str(wheel),
        ],
        check=True,
    )
    text = (
        "import sys, torch; assert torch.ops.robocache.voxelize and "
        "torch.ops.robocache.fuse; print(sys.modules['robocache'].__file__)"
    )
    env = {**os.environ, "PYTHONPATH": str(target)}
    r = subprocess.run(
        [sys.executable, "-c", text], env=env, capture_output=True, text=True, cwd=tmp_path
    )
    assert r.returncode == 0 and r.stdout.startswith(str(target)), r.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a checkout in which nothing is built, and whose engine is one source file."""
    root = tmp_path / "checkout"
    shutil.copytree(
        HERE.parent,
        root / "python",
        ignore=shutil.ignore_patterns("_lib", "tests", "build", "*.egg-info", "__pycache__"),
    )
    for name in ("go.mod", "LICENSE", "NOTICE"):
        shutil.copy(HERE.parents[1] / name, root)
    for name in ("cmd/librobocache/main.go", "python/robocache/_lib/librobocache.so"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(name)
    return root


def build(root: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": str(root), **more}  # the go command is not in PATH
    env.pop("GO", None)
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(root / "out")],
        cwd=root / "python",
        env=env,
        capture_output=True,
        text=True,
    )


def test_finished_engine_is_taken(checkout: Path) -> None:
    """A library newer than its sources is used without Go. An older one is built again.

    If the go command is missing, the message says so.
    """
    library, source = (
        checkout / "python/robocache/_lib/librobocache.so",
        checkout / "cmd/librobocache/main.go",
    )
    now = library.stat().st_mtime
    os.utime(library, (now + 9, now + 9))
    r = build(checkout)
    assert r.returncode == 0 and "is built already and fresh" in r.stderr, r.stderr
    assert (checkout / "out/robocache/_lib/librobocache.so").read_text() == library.read_text()
    os.utime(source, (now + 19, now + 19))
    r = build(checkout)
    assert r.returncode != 0 and "no 'go' is on PATH" in r.stderr
    (checkout / "go").write_text("#!/bin/sh\necho 'no such flag'\nexit 7")
    (checkout / "go").chmod(0o755)
    r = build(checkout)
    assert (
        r.returncode != 0
        and "builds the engine" in r.stderr
        and "Traceback" not in r.stderr
        and "minute" in r.stderr
    ), r.stderr
    assert "building the decoders failed" in r.stderr or "No such file" in r.stderr


def test_given_engine(checkout: Path) -> None:
    """ROBOCACHE_ENGINE needs neither Go nor sources.

    The wheel has the given tag. The same files give the same bytes, whatever their modification
    times.
    """
    engine = checkout / "engine.so"
    engine.write_text("for another machine")
    env = {
        **os.environ,
        "PATH": "/nowhere",
        "SOURCE_DATE_EPOCH": "1700000000",
        "ROBOCACHE_ENGINE": str(engine),
        "ROBOCACHE_PLATFORM": "manylinux_2_17_aarch64",
    }
    wheels = []
    for n in range(2):
        shutil.rmtree(checkout / "python/build", ignore_errors=True)
        for f in (checkout / "python").rglob("*"):
            os.utime(f, (1.7e9 + 999 * n, 1.7e9 + 999 * n))
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--disable-pip-version-check",
            "-w",
            str(checkout / f"w{n}"),
        ]
        subprocess.run([*command, str(checkout / "python")], env=env, check=True)
        (found,) = (checkout / f"w{n}").glob("robocache-*-py3-none-manylinux_2_17_aarch64.whl")
        wheels.append(found.read_bytes())
    assert wheels[0] == wheels[1]
    assert zipfile.ZipFile(found).read("robocache/_lib/librobocache.so") == b"for another machine"
    r = build(checkout, ROBOCACHE_ENGINE="/no/such.so")
    assert (
        r.returncode != 0
        and "ROBOCACHE_ENGINE names no file: /no/such.so" in r.stderr
        and "Traceback" not in r.stderr
    )


def test_environment_knows_the_checkout(checkout: Path) -> None:
    """After scripts/venv.sh, .venv/bin/python finds the package from any folder.

    PYTHONPATH takes precedence. `make demo` and `make test` run this script.
    """
    (checkout / "scripts").mkdir()
    shutil.copy(HERE.parents[1] / "scripts" / "venv.sh", checkout / "scripts")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(checkout / ".venv")], check=True
    )
    (site,) = (checkout / ".venv" / "lib").glob("python*/site-packages")
    (site / "numpy.py").write_text("")  # as if numpy were installed
    subprocess.run(["bash", "scripts/venv.sh", "demo"], cwd=checkout, check=True)
    find = [
        str(checkout / ".venv/bin/python"),
        "-c",
        "import importlib.util; print(importlib.util.find_spec('robocache').origin)",
    ]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    assert (
        subprocess.check_output(find, env=env, text=True, cwd="/")
        == f"{checkout}/python/robocache/__init__.py\n"
    )
    other = subprocess.check_output(
        find, env={**env, "PYTHONPATH": str(HERE.parent)}, text=True, cwd="/"
    )
    assert other == f"{HERE.parent}/robocache/__init__.py\n"
    # An environment that is a link belongs to another checkout and is not changed.
    (checkout / "second").mkdir()
    shutil.copytree(checkout / "scripts", checkout / "second" / "scripts")
    (checkout / "second" / ".venv").symlink_to(checkout / ".venv")
    subprocess.run(["bash", "scripts/venv.sh", "demo"], cwd=checkout / "second", check=True)
    assert (
        subprocess.check_output(find, env=env, text=True, cwd="/")
        == f"{checkout}/python/robocache/__init__.py\n"
    )
