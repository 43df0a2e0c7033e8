"""The package's syntax is valid in the oldest Python version that it supports."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECK = """
import sys
assert sys.version_info[:2] == (3, 10)
for name in sys.argv[1:]:
    compile(open(name, encoding="utf-8").read(), name, "exec")
"""


def oldest() -> str:
    """Returns a working Python 3.10.

    The shims of pyenv fail unless a version is set, so each candidate is tried.
    """
    roots = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    for name in [
        shutil.which("python3.10"),
        *glob.glob(f"{roots}/versions/3.10*/bin/python3"),
        "/usr/bin/python3.10",
    ]:
        if name and not subprocess.run([name, "-c", ""], capture_output=True).returncode:
            return name
    pytest.skip("Python 3.10 is not installed")


def test_every_file_compiles_on_python_3_10() -> None:
    files = [str(p) for p in (ROOT / "robocache").rglob("*.py")]
    assert len(files) > 30
    ran = subprocess.run([oldest(), "-c", CHECK, *files], capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
