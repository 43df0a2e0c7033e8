"""Hooks of mkdocs that generate pages for `make docs` in addition to those in docs (mkdocs.yml).

The pages are README, ARCHITECTURE and CHANGELOG, files that pages link to, a page per group of
Python names, and the output of `go doc` for each Go package.
"""

import posixpath
import re
import subprocess
from functools import cache
from pathlib import Path

import griffe
from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
# Pages for developers. They are not in the site (mkdocs.yml, exclude_docs).
OUTSIDE = ("docs/dev/", "docs/gpu/", "docs/perf/", "docs/PERFORMANCE.md")
# Names of robocache, grouped by purpose. python/tests/test_site.py checks that each public name is
# in a group.
API = {
    "Datasets": "open Dataset Episode Stream Feature",
    "Loading": "Loader Mix Normalizer MapDataset Vector Part",
    "Options": "Windows Align Images Augment Order Mixture Cache Device Statistics Runtime Follow Open",
    "LeRobot": "LeRobotDataset LeRobotDatasetMetadata",
    "Recording": "Writer",
    "Running a robot": "Contract Live live",
    "Verbs": "inspect doctor causality index quality find embed diff convert stats "
    "window_statistics pool_statistics pull push",
    "Editing": "merge edit",
    "Arrays": "resample fuse voxelize depth_to_points tsdf_integrate SparseVoxels",
    "Errors": "Error NotFound Malformed Unsupported ResourceLimit Temporary Misuse Internal ForkError",
    "This installation": "versions self_test check_installation print_installation_info is_cuda_available",
    "Ray": "ray",
    "Training repositories": "openpi gr00t diffusion_policy rlds_training",
    "Earlier RoboCache": "datasets compat",
}


def anchor(title: str, separator: str) -> str:
    """Returns the anchor of a heading, as test_docs.py and code hosts form it."""
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).strip().replace(" ", separator)


class NoHTML(Extension):
    """Turns off HTML, because docstrings contain text like <key>_is_pad that is not a tag."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")


class Keywords(griffe.Extension):
    """Turns lines of keywords, as help() shows them, into lists in Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            text = re.sub(
                r"\n(Args|Attributes|Returns|Raises|Example):\n",
                r"\n\n**\1**\n\n",
                obj.docstring.value,
            )
            text = re.sub(r"\n(?:    )?(\w+(?:, \w+)*): ", r"\n\n- **\1**: ", text)
            obj.docstring.value = re.sub(r"(?<![`\w])(__\w+__)", r"`\1`", text)


def on_config(config: MkDocsConfig) -> None:
    config.mdx_configs["toc"] = {"permalink": True, "slugify": anchor}
    config.markdown_extensions.append(NoHTML())
    config.nav = [
        *config.nav,
        {"Python": [{t: f"api/{anchor(t, '-')}.md"} for t in API]},
        {"Go": [{name.split("/", 2)[2]: go_page(name)} for name in packages()]},
    ]


@cache
def packages() -> list[str]:
    """Returns the Go packages that a program can import."""
    listed = subprocess.run(
        ["go", "list", "-f", "{{.Name}} {{.ImportPath}}", "./..."],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [
        path
        for name, path in rows
        if name != "main" and not re.search(r"/(internal|tests|testdata|tools)(/|$)", path)
    ]


def go_page(package: str) -> str:
    return f"go/{'.'.join(package.split('/')[2:])}.md"


def on_files(files: Files, config: MkDocsConfig) -> None:
    def add(at: str, text: str) -> None:
        files.append(File.generated(config, at, content=text))

    for source, at in PAGES.items():
        add(at, (ROOT / source).read_text())
    for source in linked():
        files.append(File.generated(config, f"files/{source}", abs_src_path=str(ROOT / source)))
    for title, names in API.items():
        add(
            f"api/{anchor(title, '-')}.md",
            f"# {title}\n\n" + "".join(f"::: robocache.{n}\n\n" for n in names.split()),
        )
    for name in packages():
        text = subprocess.run(
            ["go", "doc", "-all", name], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        add(go_page(name), f"# {name}\n\n````text\n{text}````\n")


def linked() -> list[str]:
    """Returns the linked files outside of docs that are not pages."""
    found = set()
    for source in [*ROOT.glob("docs/**/*.md"), *(ROOT / p for p in PAGES)]:
        if source.relative_to(ROOT).as_posix().startswith(OUTSIDE):
            continue
        for link in re.findall(r"\]\(([^):#\s]+)", source.read_text()):
            target = posixpath.normpath(
                posixpath.join(source.parent.relative_to(ROOT).as_posix(), link)
            )
            if target not in PAGES and not target.startswith("docs/"):
                found.add(target)
    return sorted(found)


def on_page_markdown(markdown: str, page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the checkout into links between pages.

    A link to a file outside the site becomes text.
    """
    here = page.file.src_uri
    source = {at: s for s, at in PAGES.items()}.get(here, f"docs/{here}")

    def as_text(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        return f"{match[1]} (`{target}`)" if target.startswith(OUTSIDE) else match[0]

    def moved(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        at = PAGES.get(target) or (
            target.removeprefix("docs/") if target.startswith("docs/") else f"files/{target}"
        )
        return f"]({posixpath.relpath(at, posixpath.dirname(here) or '.')}{match[2] or ''})"

    if here.startswith(("api/", "go/")):
        return markdown
    markdown = re.sub(r"\[([^\]\n]*)\]\(([^):#\s]+)(?:#[^)\s]*)?\)", as_text, markdown)
    return re.sub(r"\]\(([^):#\s]+)(#[^)\s]*)?\)", moved, markdown)
