#!/usr/bin/env python3
"""Runs lerobot's own dataset tests with its class and with robocache.LeRobotDataset.

Prints the tests that pass only with lerobot's class.

    PYTHONPATH=python .venv/bin/python scripts/tests/lerobot-tests.py PATH_OF_LEROBOT [ARGUMENTS]

PATH_OF_LEROBOT is a checkout of lerobot's source at the installed version, because the wheel has no
tests. ARGUMENTS go to pytest (default: tests/datasets). Tests that need the Hub fail in both runs
and do not count. Our class only reads, so create and resume are lerobot's. If a test lets its
mocked Hub write the files, lerobot's class is opened first. The exit status is 1 if more tests fail
than --allowed (default 21).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any


def replace() -> None:
    """Replaces lerobot's class in all its modules before a conftest imports it."""
    import importlib

    import lerobot.datasets as package

    import robocache

    theirs = package.LeRobotDataset

    class LeRobotDataset(robocache.LeRobotDataset):
        create, resume = theirs.create, theirs.resume

        def __init__(self, repo_id: Any, root: Any = None, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(Exception):  # our class must raise by itself
                root = theirs(repo_id, root, *args, **kwargs).root
            super().__init__(repo_id, root, *args, **kwargs)

    # pickle looks the class up under this name
    LeRobotDataset.__module__, LeRobotDataset.__qualname__ = theirs.__module__, theirs.__qualname__
    for name in (
        "lerobot_dataset",
        "factory",
        "dataset_tools",
        "aggregate",
        "multi_dataset",
        "streaming_dataset",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module("lerobot.datasets." + name)
    for name, module in list(sys.modules.items()):
        if name.startswith("lerobot") and getattr(module, "LeRobotDataset", None) is theirs:
            module.LeRobotDataset = LeRobotDataset


def run(checkout: Path, tests: list[str], ours: bool) -> dict[str, str]:
    """Returns "passed", "skipped" or the first line of the failure for each test."""
    with tempfile.TemporaryDirectory() as tmp:
        report = Path(tmp, "report.xml")
        here = Path(__file__).resolve()
        plugin = Path(tmp, "robocache_in_lerobot.py")
        plugin.symlink_to(here)
        path = os.pathsep.join(
            [tmp, str(here.parents[2] / "python"), os.environ.get("PYTHONPATH", "")]
        )
        env = {
            **os.environ,
            "PYTHONPATH": path,
            "HF_HUB_OFFLINE": "1",
            "HF_LEROBOT_HOME": str(Path(tmp, "home")),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"--junitxml={report}",
            *(["-p", "robocache_in_lerobot"] if ours else []),
            *tests,
        ]
        subprocess.run(command, cwd=checkout, env=env, stdout=sys.stderr, check=False)
        if not report.exists():
            sys.exit(f"pytest made no report: {' '.join(command)}")
        out = {}
        for case in xml.parse(report).iter("testcase"):
            bad = [e for e in case if e.tag in ("failure", "error", "skipped")]
            told = (bad[0].get("message") or "").strip().splitlines() if bad else []
            out[f"{case.get('classname')}::{case.get('name')}"] = (
                "passed"
                if not bad
                else "skipped"
                if bad[0].tag == "skipped"
                else told[0]
                if told
                else "failed"
            )
        return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--allowed", type=int, default=21)
    args, tests = parser.parse_known_args()
    tests = tests or ["tests/datasets"]
    if not (args.checkout / tests[0].split("::")[0]).exists():
        sys.exit(
            f"{args.checkout}: no {tests[0]} there: expected a checkout of lerobot with its tests"
        )
    theirs, ours = run(args.checkout, tests, False), run(args.checkout, tests, True)
    lost = [
        t for t, how in theirs.items() if how == "passed" and ours.get(t, "not run") != "passed"
    ]
    for who, how in (("lerobot", theirs), ("robocache", ours)):
        print(
            f"{who}: {sum(v == 'passed' for v in how.values())} passed, {sum(v not in ('passed', 'skipped') for v in how.values())} failed of {len(how)}"
        )
    print(f"{len(lost)} pass with lerobot's class only:")
    for t in lost:
        print(f"  {t}: {ours.get(t, 'not run')[:160]}")
    sys.exit(1 if len(lost) > args.allowed else 0)


if __name__ == "__main__":
    main()
else:
    replace()
