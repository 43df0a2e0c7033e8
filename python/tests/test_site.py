"""`make docs` builds each page, no link is dead, and no page loads anything from another host."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import ROOT

import robocache

MKDOCS = ROOT / ".build" / "docs" / "bin" / "python"
pytestmark = [
    pytest.mark.skipif(
        not MKDOCS.exists(), reason="no mkdocs in .build/docs: scripts/venv.sh docs, or make docs"
    ),
    pytest.mark.skipif(
        shutil.which("go") is None, reason="go is not on PATH: the site has what go doc says"
    ),
]


class Page(HTMLParser):
    """The links of a page, the resources that it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        a = {k: v or "" for k, v in attrs}
        self.names |= {a[k] for k in ("id", "name") if k in a}
        if tag == "a":
            self.links += [a["href"]] if "href" in a else []
        elif tag == "link" and a.get("rel") in ("canonical", "prev", "next"):
            pass  # shown, not loaded
        else:
            self.loads += [a[k] for k in ("src", "href", "data", "poster") if a.get(k)]
            self.loads += [u.split()[0] for u in a.get("srcset", "").split(",") if u]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    r = subprocess.run(
        [str(MKDOCS), "-m", "mkdocs", "build", "--strict", "-d", str(out)],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert r.returncode == 0, r.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {p: Page(p) for p in site.rglob("*.html")}


def test_every_page_is_there(pages: dict[Path, Page], site: Path) -> None:
    for doc in (ROOT / "docs").rglob("*.md"):
        if doc.relative_to(ROOT / "docs").parts[0] in ("dev", "gpu", "perf", "PERFORMANCE.md"):
            continue  # for developers, not part of the site
        assert site / doc.relative_to(ROOT / "docs").with_suffix(".html") in pages, doc
    text = (site / "index.html").read_text()
    for doc in pages:  # the first page links to all others
        assert doc.name == "404.html" or f'href="{doc.relative_to(site).as_posix()}"' in text, doc


def test_every_name_is_there(pages: dict[Path, Page], site: Path) -> None:
    named = {n for p, page in pages.items() if p.parent.name == "api" for n in page.names}
    assert not {
        n for n in robocache.__all__ if n != "__version__" and f"robocache.{n}" not in named
    }
    assert {f"robocache.Loader.{n}" for n in ("state_dict", "order", "stats")} <= named
    assert "Package robocache defines the terms" in (site / "go" / "robocache.html").read_text()


def test_links(pages: dict[Path, Page], site: Path) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            u = urlsplit(link)
            # 404.html is served at any address, so its links are relative to the site's root
            if u.scheme or u.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(u.path)).resolve() if u.path else path
            if not target.is_file() or (
                u.fragment and target in pages and unquote(u.fragment) not in pages[target].names
            ):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead


def test_nothing_is_asked_of_another_host(pages: dict[Path, Page], site: Path) -> None:
    asked = [
        f"{p.relative_to(site)}: {u}"
        for p, page in pages.items()
        for u in page.loads
        if urlsplit(u).netloc
    ]
    for sheet in site.rglob("*.css"):
        asked += [
            f"{sheet.relative_to(site)}: {u}"
            for u in re.findall(
                r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", sheet.read_text()
            )
        ]
    # The theme's script loads mermaid from another host if a page has a mermaid diagram. It
    # contacts a code host if a repository is configured.
    for p in pages:
        text = p.read_text()
        assert not re.search(r"<p>[^<]*\n([-|]|1\.) ", text), (
            f"{p}: a list or table without a blank line before it is prose here"
        )
        asked += [
            f"{p.relative_to(site)}: {w}"
            for w in ('class="mermaid"', 'data-md-component="source"')
            if w in text
        ]
        assert str(ROOT) not in text, p
    assert not asked
