"""A fault of the engine raises robocache.Internal.

on_bad_episode="skip" does not skip it, because the data is not at fault.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import robocache
from robocache import _errors

ROOT = Path(__file__).parents[2]

PROGRAM = """
import pathlib, sys
import robocache

source, folder = sys.argv[1], pathlib.Path(sys.argv[2])

def train():
    loader = robocache.Loader(source, batch_size=2, order=robocache.Order(on_bad_episode="skip"))
    for _ in loader:
        pass

calls = {
    "Loader": train,
    "convert": lambda: robocache.convert(source, str(folder / "converted"), skip_bad=True),
    "stats": lambda: robocache.stats(source, skip_bad=True),
    "doctor": lambda: robocache.doctor(source),
}
for name, call in calls.items():
    try:
        call()
    except robocache.Internal as e:
        assert "nil pointer dereference" in str(e) and "toy.go" in str(e), str(e)
        assert e.hint.startswith("Report"), e.hint
        print(name)
"""


def test_class() -> None:
    error = _errors.from_engine({"class": "internal", "message": "m", "hint": "Report it."})
    assert type(error) is robocache.Internal
    assert not isinstance(error, robocache.Malformed)


@pytest.mark.skipif(
    shutil.which("go") is None, reason="the library with a faulty reader is built by Go"
)
@pytest.mark.slow
def test_surfaces(tmp_path: Path) -> None:
    library = tmp_path / "librobocache.so"
    build = ["go", "build", "-trimpath", "-tags", "toy", "-buildmode=c-shared", "-ldflags=-s -w"]
    subprocess.run([*build, "-o", str(library), "./cmd/librobocache"], cwd=ROOT, check=True)
    source = tmp_path / "faulty.toy"
    rows = [[[float(3 * e + r)] for r in range(3)] for e in range(3)]
    source.write_text(
        json.dumps({"fps": 10, "key": "action", "width": 1, "fault": 1, "rows": rows})
    )
    env = {**os.environ, "ROBOCACHE_LIBRARY": str(library), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(source), str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["Loader", "convert", "stats", "doctor"], (
        done.stdout + done.stderr
    )
