"""What editors and type checkers know of the package: pyright --verifytypes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def test_types_are_complete():
    tool = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if tool is None:
        pytest.skip("no pyright: pip install pyright")
    got = subprocess.run(
        [tool, "--pythonpath", sys.executable, "--ignoreexternal", "--verifytypes", "robocache", "--outputjson"], capture_output=True, text=True, timeout=300
    )
    try:
        report = json.loads(got.stdout)["typeCompleteness"]
    except ValueError:
        pytest.skip(f"pyright does not run here: {(got.stderr or got.stdout)[-300:]}")
    unknown = [s["name"] for s in report["symbols"] if s["isExported"] and not s["isTypeKnown"]]
    assert report["completenessScore"] >= 0.98, unknown
    assert {"robocache.dataset.Dataset.fps", "robocache.dataset.Stream.values"} <= {s["name"] for s in report["symbols"] if s["isTypeKnown"]}
    assert report["pyTypedPath"]
