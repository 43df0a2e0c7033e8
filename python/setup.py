"""Builds the engine (a Go c-shared library) from the source checkout into the wheel, which fits every Python 3 on this platform."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def stop(message: str) -> None:
    raise SystemExit(f"robocache: {message}")


def build_engine(target: Path) -> None:
    """go build, as 'make lib' does it."""
    if not (ROOT / "go.mod").is_file() or not (ROOT / "cmd" / "librobocache").is_dir():
        stop("the engine is built from a source checkout: run 'pip install ./python' in one")
    go = os.environ.get("GO") or shutil.which("go")
    if go is None:
        stop("the engine is written in Go, and no 'go' is on PATH: install Go 1.26 or later (https://go.dev/dl), then try again")
    subprocess.run([str(ROOT / "scripts" / "native.sh")], cwd=ROOT, check=True)
    describe = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    version = describe.stdout.strip() or "unknown"
    exports = ROOT / "cmd" / "librobocache" / "exports.map"
    ldflags = f'-s -w -X main.version={version} -extldflags "-Wl,--exclude-libs,ALL -Wl,--version-script={exports}"'
    target.mkdir(parents=True, exist_ok=True)
    library = target / "librobocache.so"
    subprocess.run(
        [go, "build", "-trimpath", "-buildmode=c-shared", "-ldflags", ldflags, "-o", str(library), "./cmd/librobocache"],
        cwd=ROOT,
        env={**os.environ, "CGO_ENABLED": "1"},
        check=True,
    )
    library.with_suffix(".h").unlink(missing_ok=True)
    native = ROOT / ".build" / "native"
    for notice in [ROOT / "LICENSE", ROOT / "NOTICE", *native.glob("COPYING*"), *(ROOT / "video" / "jpegxl" / "data").glob("COPYING*")]:
        if notice.is_file():
            shutil.copy(notice, target)


class BuildWithEngine(build_py):
    def run(self) -> None:
        super().run()
        build_engine((HERE if self.editable_mode else Path(self.build_lib).absolute()) / "robocache" / "_lib")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        lib = Path(self.build_lib, "robocache", "_lib")
        return [*super().get_outputs(include_bytecode), *(str(p) for p in lib.glob("*"))]


class PlatformWheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        # ctypes needs no Python ABI; the library needs this platform.
        return "py3", "none", sysconfig.get_platform().replace("-", "_").replace(".", "_")


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel}, distclass=WithLibrary)
