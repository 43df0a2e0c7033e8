"""The types that editors and type checkers see in the package: pyright --verifytypes."""

import json
import subprocess
import sys

import pytest


def test_types_are_complete() -> None:
    pytest.importorskip(
        "basedpyright", reason="no basedpyright: pip install -r python/requirements-formats.txt"
    )
    tool = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    got = subprocess.run(
        [*tool, "--ignoreexternal", "--verifytypes", "robocache", "--outputjson"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert got.stdout, got.stderr
    report = json.loads(got.stdout)["typeCompleteness"]
    unknown = [s["name"] for s in report["symbols"] if s["isExported"] and not s["isTypeKnown"]]
    assert report["completenessScore"] >= 0.98, unknown
    assert {"robocache.dataset.Dataset.fps", "robocache.episode.Stream.values"} <= {
        s["name"] for s in report["symbols"] if s["isTypeKnown"]
    }
    assert report["pyTypedPath"]
