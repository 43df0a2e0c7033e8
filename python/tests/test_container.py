"""Checks the Dockerfile and the devcontainer as text, without a Docker engine.

`make test-containers` builds the images.
"""

from __future__ import annotations

import json
import re
import subprocess
from fnmatch import fnmatch

import pytest
from conftest import ROOT

TARGETS = ("cli", "ffmpeg", "python", "cuda")  # stages that users run


def stages() -> dict[str, list[tuple[str, str]]]:
    """Returns the instructions of each stage in order. The first instruction is FROM."""
    out: dict[str, list[tuple[str, str]]] = {}
    text = re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.split(" AS ")[1]
            assert name not in out, name
            out[name] = []
        out[name].append((word, rest))
    return out


STAGES = stages()


def lineage(stage: str) -> list[str]:
    """Returns a stage and the stages that it is built on."""
    base = STAGES[stage][0][1].split(" AS ")[0]
    return [stage, *(lineage(base) if base in STAGES else [])]


def made(stage: str, path: str) -> bool:
    """Reports whether a stage contains path.

    The path may come from the checkout, from a command of the stage, or from Debian's package of
    certificates.
    """
    inside = path.removeprefix("/src/")
    ran = " ".join(rest for s in lineage(stage) for word, rest in STAGES[s] if word == "RUN")
    targets = re.findall(r"make ([a-z ]+)", ran)
    makefile = (ROOT / "Makefile").read_text()
    recipes = "".join(
        re.findall(
            rf"(?m)^(?:{'|'.join(' '.join(targets).split()) or '-'}):.*\n(?:\t.*\n)*", makefile
        )
    )
    return (
        f"-o {inside}" in recipes
        or f"-w {path}" in ran
        or path == "/etc/ssl/certs/ca-certificates.crt"
    )


def test_stages_and_sources() -> None:
    assert set(TARGETS) < set(STAGES) and list(STAGES)[-1] == "cli"  # the last stage is the default
    tracked = set(
        subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\n")
    )
    seen: set[str] = set()
    for name, instructions in STAGES.items():
        base = instructions[0][1].split(" AS ")[0]
        assert (
            base in seen
            or base == "scratch"
            or re.fullmatch(r"[a-z]+(/[a-z]+)?:(?!latest)[\w.-]+", base)
        ), f"{name}: an image without a version, or of a named host: {base}"
        for word, rest in instructions[1:]:
            for source in re.findall(r"(?:--from=|--mount=from=)([\w-]+)", rest):
                assert source in seen, f"{name}: {rest}"
                path = re.findall(r"source=([^,\s]+)", rest) or re.findall(
                    r"--from=\S+ (\S+)", rest
                )
                assert made(source, path[0]), f"{name}: nothing makes {path[0]} in {source}"
            if word == "COPY" and "--from" not in rest:
                for source in rest.split()[:-1]:
                    assert (
                        source == "."
                        or source in tracked
                        or any(t.startswith(source + "/") for t in tracked)
                    ), f"{name}: {rest}"
            for target in re.findall(r"make ([a-z]+)", rest) if word == "RUN" else ():
                assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text()), target
        seen.add(name)


@pytest.mark.parametrize("target", TARGETS)
def test_runs_as_nobody(target: str) -> None:
    said = dict(STAGES[target])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said["USER"]) and said["ENTRYPOINT"].startswith("[")
    assert [word for word, _ in STAGES[target]].index("USER") > max(
        n for n, (word, _) in enumerate(STAGES[target]) if word in ("RUN", "COPY")
    )
    assert "VOLUME" not in said
    assert f"`{target}`" in (ROOT / "docs" / "install.md").read_text()


def test_what_was_built_here_stays_here() -> None:
    """Build outputs of this machine are not copied into the image.

    Otherwise an old library would be taken for a new one.
    """
    patterns = [
        p for p in (ROOT / ".dockerignore").read_text().split("\n") if p and not p.startswith("#")
    ]
    for path in (
        ".build",
        ".venv",
        ".venv-zarr",
        "bin",
        "dist",
        "python/robocache/_lib",
        "python/build",
    ):
        assert any(fnmatch(path, p) for p in patterns), path
    assert not [p for p in patterns if fnmatch(".git", p)]


def test_devcontainer() -> None:
    said = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    build = said["build"]
    assert (
        ROOT / ".devcontainer" / build["dockerfile"]
    ).resolve() == ROOT / "Dockerfile" and build["target"] in STAGES
    assert f" {said['remoteUser']}" in " ".join(
        rest for word, rest in STAGES[build["target"]] if "useradd" in rest
    )
    for target in said["postCreateCommand"].split()[1:]:
        assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text()), target
