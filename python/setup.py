"""Builds the engine, a Go c-shared library, into a wheel that fits every Python 3 on this platform.

The engine is built from the source checkout, for this machine. Variables change this:

- ROBOCACHE_ENGINE is a finished library, which is used in place of a build.
- ROBOCACHE_PLATFORM is then the last tag of the wheel.
- ROBOCACHE_NATIVE is then the folder with the licences of the linked parts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NATIVE = Path(os.environ.get("ROBOCACHE_NATIVE") or ROOT / ".build" / "native")

# The sources of the engine. A library that is newer than all of them is up to date.
SOURCES = (
    *(
        "align",
        "cache",
        "cmd",
        "convert",
        "diagnose",
        "edit",
        "format",
        "hub",
        "inspect",
        "internal",
        "kernel",
        "loader",
        "mapping",
        "metrics",
    ),
    *("selftest", "shard", "stats", "store", "submit", "synth", "video", "view"),
)


def exit_with_message(message: str) -> None:
    """Exits with a message."""
    raise SystemExit(f"robocache: {message}")


def print_to_terminal(message: str) -> None:
    """Prints a message to the terminal.

    pip shows the output of a build only with -v or after an error.
    """
    print(f"robocache: {message}", file=sys.stderr, flush=True)
    try:
        with open("/dev/tty", "w") as terminal:
            print(f"\n  robocache: {message}", file=terminal)
    except OSError:
        pass  # There is no terminal.


def decoders_built() -> bool:
    """Reports whether scripts/native.sh built every part.

    `make demo` may have linked the system's FFmpeg instead.
    """
    built = {p.stem for p in NATIVE.glob("*.built")}
    return built >= {p.stem for p in (ROOT / "scripts" / "native").glob("*.sh")}


def is_up_to_date(library: Path) -> bool:
    """Reports whether a library built by 'make lib' is newer than every file of the engine."""
    if not library.is_file():
        return False
    built = library.stat().st_mtime
    files = [*ROOT.glob("*.go"), ROOT / "go.mod", ROOT / "go.sum"]
    for folder in SOURCES:
        # Folders too: a deleted file changes their time.
        files += [p for p in (ROOT / folder).rglob("*") if not p.name.endswith("_test.go")]
    files += NATIVE.glob("*.built")
    return all(p.stat().st_mtime <= built for p in files if p.exists())


def build_engine(target: Path) -> None:
    """Builds the engine like 'make lib', or copies a library that exists and is up to date."""
    library = target / "librobocache.so"
    target.mkdir(parents=True, exist_ok=True)
    if finished := os.environ.get("ROBOCACHE_ENGINE"):
        if not Path(finished).is_file():
            exit_with_message(f"ROBOCACHE_ENGINE names no file: {finished}")
        shutil.copy(finished, library)
        return
    if not (ROOT / "go.mod").is_file() or not (ROOT / "cmd" / "librobocache").is_dir():
        exit_with_message(
            "the engine is built from a source checkout: run 'pip install ./python' in one, "
            "or name a finished one by ROBOCACHE_ENGINE"
        )
    ready = HERE / "robocache" / "_lib" / "librobocache.so"
    if decoders_built() and is_up_to_date(ready):
        print_to_terminal(f"the engine is built already and fresh: {ready} is taken")
        if ready != library:
            shutil.copy(ready, library)
    else:
        compile_engine(library)


def compile_engine(library: Path) -> None:
    """Compiles the decoders, if necessary, and the engine."""
    go = os.environ.get("GO") or shutil.which("go")
    if go is None:
        exit_with_message(
            "the engine is written in Go, and no 'go' is on PATH: "
            "install Go 1.26 or later (https://go.dev/dl), then try again"
        )
    if decoders_built():
        print_to_terminal(
            "builds the engine, a Go library: about a minute, seconds where Go's cache has it"
        )
    else:
        print_to_terminal(
            "builds the decoders first (FFmpeg's, dav1d, libjpeg-turbo, libdeflate, libzstd: "
            "once a checkout, about 4 minutes on two cores), "
            "then the engine, a Go library (one to two minutes). "
            "It needs gcc, nasm, meson, cmake and ninja ('make deps' installs them). "
            "'pip install -v' shows the steps"
        )
    run([str(ROOT / "scripts" / "native.sh")], "building the decoders")
    describe = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    version = describe.stdout.strip() or "unknown"
    exports = ROOT / "cmd" / "librobocache" / "exports.map"
    ldflags = (
        f"-s -w -X main.version={version} "
        f'-extldflags "-Wl,--exclude-libs,ALL -Wl,--version-script={exports}"'
    )
    run(
        [
            go,
            "build",
            "-trimpath",
            "-buildmode=c-shared",
            "-ldflags",
            ldflags,
            "-o",
            str(library),
            "./cmd/librobocache",
        ],
        "building the engine",
    )
    library.with_suffix(".h").unlink(missing_ok=True)


def run(command: list[str], what: str) -> None:
    """Runs a command in the checkout. Exits if it fails."""
    r = subprocess.run(command, cwd=ROOT, env={**os.environ, "CGO_ENABLED": "1"})
    if r.returncode != 0:
        exit_with_message(
            f"{what} failed (exit code {r.returncode}); its own words are above. "
            "'make build' in the checkout installs what is missing and does the same"
        )


class BuildWithEngine(build_py):
    """Adds the engine to the package."""

    def run(self) -> None:
        super().run()
        build_engine(
            (HERE if self.editable_mode else Path(self.build_lib).absolute()) / "robocache" / "_lib"
        )

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        lib = Path(self.build_lib, "robocache", "_lib")
        return [*super().get_outputs(include_bytecode), *(str(p) for p in lib.glob("*"))]


class PlatformWheel(bdist_wheel):
    """Builds a wheel for this platform and every Python 3."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        # ctypes needs no Python ABI; the library needs this platform.
        return (
            "py3",
            "none",
            os.environ.get("ROBOCACHE_PLATFORM")
            or sysconfig.get_platform().replace("-", "_").replace(".", "_"),
        )

    def write_wheelfile(self, wheelfile_base: str, **more: str) -> None:
        super().write_wheelfile(wheelfile_base, **more)
        licenses = Path(wheelfile_base, "licenses")
        licenses.mkdir(exist_ok=True)
        for notice in [
            ROOT / "LICENSE",
            ROOT / "NOTICE",
            *NATIVE.glob("COPYING*"),
            *(ROOT / "video" / "jpegxl" / "data").glob("COPYING*"),
        ]:
            if notice.is_file():
                shutil.copyfile(notice, licenses / notice.name)


class WithLibrary(Distribution):
    """Marks the distribution as platform-specific."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel}, distclass=WithLibrary)
