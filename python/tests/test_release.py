"""scripts/release.sh on a clone: its refusals before anything is built, and their messages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from robocache import __version__

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="go is not on PATH")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Returns a new repository with one commit of the current working tree."""
    to = tmp_path / "clone"
    files = subprocess.run(
        [
            "git",
            "ls-files",
            "-z",
            "scripts",
            "python/robocache",
            "CHANGELOG.md",
            "version.go",
            ".gitignore",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    git(to, "init", "-q")
    git(to, "add", "-A")
    git(to, "commit", "-qm", "all")
    return to


def git(at: Path, *args: str) -> str:
    who = ["-c", "user.name=Me", "-c", "user.email=me@example.org"]
    return subprocess.run(
        ["git", *who, *args], cwd=at, check=True, capture_output=True, text=True
    ).stdout


def release(at: Path, version: str, *args: str) -> tuple[int, str]:
    r = subprocess.run(
        [str(at / "scripts" / "release.sh"), *args],
        cwd=at,
        env={**os.environ, "VERSION": version},
        capture_output=True,
        text=True,
    )
    return r.returncode, r.stderr


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3-rc1", "4c6685b-dirty"])
def test_bad_version(clone: Path, version: str) -> None:
    assert release(clone, version) == (
        2,
        f"release: VERSION={version}: expected 1.2.3, or 1.2.3rc1\n",
    )


def test_refused(clone: Path) -> None:
    """Each reason for refusal is one line. Nothing is built and no tag is created."""
    assert release(clone, "9.9.9") == (
        1,
        "release: python/robocache/_version.py does not say 9.9.9: set it there, and commit\n",
    )
    git(clone, "tag", f"v{__version__}")
    assert release(clone, __version__) == (1, f"release: there is a tag v{__version__}\n")
    git(clone, "tag", "-d", f"v{__version__}")
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n### Added\n")
    assert release(clone, __version__) == (
        1,
        "release: the tree has changes that are not committed\n",
    )
    git(clone, "commit", "-qam", "nothing to say")
    assert release(clone, __version__) == (
        1,
        f"release: CHANGELOG.md has no entries for {__version__}, nor under Unreleased\n",
    )
    assert not git(clone, "tag").strip() and not list((clone / "dist").rglob("robocache-*"))


def test_dry_run(clone: Path, tmp_path: Path) -> None:
    """A dry run lists all reasons for refusal and continues as far as there are wheels.

    The release notes are the version's section of the changelog.
    """
    git(clone, "tag", f"v{__version__}")
    (clone / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## Unreleased\n\n- later\n\n## {__version__} - today\n\n### "
        "Added\n\n- a thing\n\n## 0.0.1\n\n- before\n"
    )
    (tmp_path / "wheels").mkdir()
    code, said = release(clone, __version__, "--dry-run", "--wheels", str(tmp_path / "wheels"))
    assert code == 1 and said.splitlines() == [
        "release: a release would be refused: the tree has changes that are not committed",
        f"release: a release would be refused: there is a tag v{__version__}",
        f"release: {tmp_path}/wheels has no wheel of {__version__} for x86_64",
    ]
    assert (clone / "dist" / f"release-{__version__}" / "notes.md").read_text().split("\n") == [
        "",
        "### Added",
        "",
        "- a thing",
        "",
        "",
    ]
    assert git(clone, "tag") == f"v{__version__}\n"
    assert release(clone, __version__, "--dryrun") == (2, "release: unknown argument --dryrun\n")
