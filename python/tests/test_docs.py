"""What the documents name is there, and what is there is named."""

from __future__ import annotations

import inspect
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

import robocache

DOCS = sorted((ROOT / "docs").rglob("*.md")) + [ROOT / "README.md", ROOT / "ARCHITECTURE.md"]

MEASURED = "docs/PERFORMANCE.md"  # made by measuring a machine: a checkout may be without it


def anchor(title: str) -> str:
    """The name that a heading is linked by."""
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("doc", DOCS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(doc: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", doc.read_text()):
        if "://" in link or link == MEASURED:
            continue
        name, _, place = link.partition("#")
        target = (doc.parent / name) if name else doc
        assert target.exists(), link
        if place:
            assert place in [
                anchor(t) for t in re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            ], link


def test_tour_names_exist() -> None:
    """A link of docs/dev/tour.md names something that the linked file contains."""
    tour = ROOT / "docs" / "dev" / "tour.md"
    links = re.findall(r"\[`([\w.]+)`\]\(([^)#]+\.(?:go|py|js))\)", tour.read_text())
    assert len(links) > 60
    for label, link in links:
        name = label.rsplit(".", 1)[-1]
        if name not in ("go", "py", "js", "__init__"):
            text = (tour.parent / link).read_text()
            assert re.search(rf"\b{name}\b", text), f"{link} has no {label}"


PARAMETERS = {
    f"{prefix}{cls.__name__}": set(inspect.signature(cls).parameters)
    for cls in [
        robocache.Loader,
        robocache.MapDataset,
        robocache.Mix,
        robocache.LeRobotDataset,
        *robocache.options.GROUPS.values(),
        robocache.open,
    ]
    for prefix in ("robocache.", "" if cls is not robocache.open else "robocache.")
}


def keywords_of(text: str) -> list[str]:
    """Returns the keywords of a call whose arguments text begins with, those of inner calls aside."""
    depth, own = 1, ""
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            break
        own += letter if depth == 1 else ""
    return re.findall(r"(?<![\w.])(\w+)=(?!=)", re.sub(r'"[^"]*"|#[^\n]*', "", own))


@pytest.mark.parametrize("doc", DOCS, ids=lambda p: str(p.relative_to(ROOT)))
def test_keywords_exist(doc: Path) -> None:
    """The calls in the documents have keywords that the functions take. History may keep old ones."""
    if "perf" in doc.parts or "dev" in doc.parts:
        pytest.skip("tells what was measured")
    names = "|".join(re.escape(name) for name in PARAMETERS)
    text = doc.read_text()
    for call in re.finditer(rf"(?<![\w.])({names})\(", text):
        unknown = set(keywords_of(text[call.end() :])) - PARAMETERS[call[1]]
        assert unknown <= {"batchsize"}, text[call.start() : call.end() + 80]  # an error to show


def test_changes_are_readable() -> None:
    """They become a release's notes. Merges keep the lines of both sides, so that a section may come back whole."""
    for name, text in re.findall(
        r"^## (.*?)\n(.*?)(?=^## |\Z)",
        (ROOT / "CHANGELOG.md").read_text(),
        re.MULTILINE | re.DOTALL,
    ):
        kinds, lines = (
            re.findall(r"^### (.*)$", text, re.MULTILINE),
            re.findall(r"^- .*$", text, re.MULTILINE),
        )
        assert kinds == [k for k in ("Added", "Changed", "Fixed", "Removed") if k in kinds], name
        assert text.strip().startswith("### ") and len(lines) == len(set(lines)), name


def test_every_verb_is_documented() -> None:
    binary = ROOT / "bin" / "robocache"
    if not binary.exists():
        pytest.skip("no bin/robocache: 'make build' makes one")
    listed = subprocess.run(
        [str(binary), "--help"], text=True, capture_output=True, check=True
    ).stdout
    verbs = re.findall(
        r"^  ([a-z-]+) +\S", listed.split("Available Commands:")[1].split("Flags:")[0], re.MULTILINE
    )
    titles = re.findall(r"^## (.*)$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert not [v for v in verbs if v != "help" and not any(v in t for t in titles)]
