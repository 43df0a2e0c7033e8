"""push and pull compared with huggingface_hub in both directions, on a mock of the Hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("huggingface_hub", reason="push goes through huggingface_hub")

from conftest import HERE, dataset_path
from hubmock import TOKEN, Hub, Repo, environment

REPO = "me/arm"


@pytest.fixture
def hub() -> Iterator[Hub]:
    h = Hub()
    yield h
    assert not h.tokens, "a token was sent to the address of the files"
    h.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates four episodes with video, each in files of its own."""
    path = tmp_path_factory.mktemp("hub") / "made"
    done = command(
        None,
        "synth",
        str(path),
        "--episodes",
        "4",
        "--seconds",
        "1",
        "--size",
        "96x64",
        "--cameras",
        "1",
        "--task",
        "reach <b>|x|",
    )
    if done.returncode == 12:
        pytest.skip(f"no encoder: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def arm(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "arm")  # type: ignore[no-any-return]


def command(
    hub: Hub | None, *args: str, cwd: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    base = environment(hub, "/nonexistent-robocache-home") if hub else dict(os.environ)
    base.update(
        {
            "PYTHONPATH": str(HERE.parent),
            "ROBOCACHE_PYTHON": sys.executable,
            "HF_HUB_OFFLINE": "0",
            **env,
        }
    )
    done = subprocess.run(
        [sys.executable, "-m", "robocache", *args],
        env=base,
        text=True,
        capture_output=True,
        timeout=300,
        cwd=cwd,
    )
    assert TOKEN not in done.stdout + done.stderr
    return done


def ok(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def python(hub: Hub, text: str, **env: str) -> str:
    """Runs a program that uses huggingface_hub and robocache."""
    base = {
        **environment(hub, env.pop("HF_HOME", "/nonexistent-robocache-home")),
        "PYTHONPATH": str(HERE.parent),
        "HF_HUB_OFFLINE": "0",
        **env,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=base,
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not any(x.startswith(".") for x in p.relative_to(folder).parts)
    }


def remote(hub: Hub, rev: str = "main") -> dict[str, bytes]:
    repo = hub.repos[REPO]
    return {p: b for p, b in repo.commits[repo.at(rev) or ""].items() if p != ".gitattributes"}


def test_both_sides(hub: Hub, arm: Path, tmp_path: Path) -> None:
    """robocache and huggingface_hub can each pull what the other pushed."""
    dry = ok(command(hub, "push", str(arm), REPO, "--dry-run", "--json"))
    assert (
        dry["dry_run"]
        and "commit" not in dry
        and "data/chunk-000/file-000.parquet" in dry["added"]
        and not hub.repos
        and "robocache" not in (arm / "README.md").read_text()
    )
    done = ok(command(hub, "push", str(arm), REPO, "--private", "--license", "cc-by-4.0", "--json"))
    repo = hub.repos[REPO]
    assert (
        repo.private
        and repo.tags == {"v3.0": done["commit"]}
        and done["commit"] == repo.branches["main"]
    )
    assert remote(hub) == tree(arm) and sorted(done["added"]) == sorted(tree(arm))
    card = (arm / "README.md").read_text()
    assert (
        card == done["card"]
        and "license: cc-by-4.0" in card
        and "config_name: default" in card
        and "- LeRobot" in card
        and "4 episodes" in card
    )
    assert (
        r"reach \<b\>\|x\|" in card
        and "| action |" in card
        and (arm / "assets" / "preview.png").exists()
    )
    again = ok(command(hub, "push", str(arm), REPO, "--private", "--json"))
    assert (
        again["added"] == []
        and again["commit"] == done["commit"]
        and (arm / "README.md").read_text() == card
    )

    python(
        hub,
        f"import huggingface_hub as h; h.snapshot_download({REPO!r}, repo_type='dataset', "
        f"revision='v3.0', local_dir={str(tmp_path / 'theirs')!r})",
    )
    assert tree(tmp_path / "theirs") == tree(arm)
    pulled = ok(
        command(hub, "pull", f"hf://datasets/{REPO}@v3.0", str(tmp_path / "ours"), "--json")
    )
    assert (
        tree(tmp_path / "ours") == tree(arm)
        and pulled["commit"] == done["commit"]
        and pulled["left_out"] == 0
    )

    other = shutil.copytree(arm, tmp_path / "other")
    (other / "notes.json").write_text("{}")
    python(
        hub,
        "import huggingface_hub as h; a = h.HfApi(); a.create_repo('me/theirs', "
        "repo_type='dataset'); a.upload_folder(repo_id='me/theirs', repo_type='dataset', "
        f"folder_path={str(other)!r})",
    )
    ok(command(hub, "pull", "hf://datasets/me/theirs", str(tmp_path / "back"), "--json"))
    assert tree(tmp_path / "back") == tree(other)


def test_python(hub: Hub, arm: Path, tmp_path: Path) -> None:
    out = python(
        hub,
        f"""
        import robocache
        p = robocache.push({str(arm)!r}, {REPO!r}, license="mit")
        q = robocache.pull("hf://datasets/{REPO}", {str(tmp_path / "back")!r}, episodes=[2])
        print(p.commit == q.commit, p.tag, q.left_out)
    """,
    )
    assert (
        out.split()[:2] == ["True", "v3.0"] and tree(tmp_path / "back").keys() <= tree(arm).keys()
    )


def test_edit_between(hub: Hub, arm: Path, tmp_path: Path) -> None:
    """After push, delete and push, the remote tree equals the local tree.

    The text and keys of the README are kept, and no licence is invented.
    """
    (arm / "README.md").write_text(
        "---\nlicense: mit\nlanguage: [de]\ntags: [LeRobot, mine]\n---\n# Mine\n\nMy words.\n"
    )
    ok(command(hub, "push", str(arm), REPO, "--json"))
    first = remote(hub)
    assert (
        b"license: mit" in first["README.md"]
        and b"My words." in first["README.md"]
        and b"mine" in first["README.md"]
        and b"language" in first["README.md"]
    )
    less = tmp_path / "less"
    done = command(None, "edit", "delete", str(arm), str(less), "--episodes", "1,3")
    assert done.returncode in (0, 3), done.stderr
    (less / "README.md").unlink(missing_ok=True)
    second = ok(command(hub, "push", str(less), REPO, "--json"))
    assert (
        remote(hub) == tree(less) != first
        and hub.repos[REPO].tags == {"v3.0": second["commit"]}
        and "license" not in second["card"]
    )


def test_killed_before_the_tag(hub: Hub, arm: Path, tmp_path: Path) -> None:
    """Readers of the tag see the old dataset until the new one is complete."""
    old = ok(command(hub, "push", str(arm), REPO, "--json"))["commit"]
    before = remote(hub)
    (arm / "extra.json").write_text("1")
    hub.strike = lambda method, path: 403 if "/refs" in path or "/tag/" in path else None
    done = command(hub, "push", str(arm), REPO)
    assert done.returncode == 2 and "denies access" in done.stderr, done.stderr
    assert (
        hub.repos[REPO].tags == {"v3.0": old}
        and remote(hub, "v3.0") == before
        and "extra.json" in remote(hub)
    )
    python(
        hub,
        f"import huggingface_hub as h; h.snapshot_download({REPO!r}, repo_type='dataset', "
        f"revision='v3.0', local_dir={str(tmp_path / 'x')!r})",
    )
    assert "extra.json" not in tree(tmp_path / "x")
    hub.strike = lambda method, path: None
    new = ok(command(hub, "push", str(arm), REPO, "--json"))
    assert (
        new["added"] == []
        and hub.repos[REPO].tags == {"v3.0": new["commit"]}
        and new["commit"] != old
    )


@pytest.mark.parametrize(
    ("what", "where", "code", "says"),
    [
        (401, "/preupload", 2, "denies access"),
        (429, "/commit/", 0, ""),
        ("reset", "/lfs/", 0, ""),
        ("reset", "/commit/", 0, ""),
        (500, "/repos/create", 0, ""),
        (409, "/commit/", 75, "by another commit"),
    ],
)
def test_faults(hub: Hub, arm: Path, what: Any, where: str, code: int, says: str) -> None:
    """Temporary faults are retried. Other faults are reported in one line with their class."""
    n = []
    lasting = code != 0

    def strike(method: str, path: str) -> Any:
        if where in path and method in ("POST", "PUT"):
            n.append(path)
            return what if lasting or len(n) == 1 else None
        return None

    hub.strike = strike
    done = command(hub, "push", str(arm), REPO, "--skip-doctor", "--json")
    assert (
        n and done.returncode == code and says in done.stderr and "Traceback" not in done.stderr
    ), done
    if code == 0:
        assert remote(hub) == tree(arm) and list(hub.repos[REPO].tags) == ["v3.0"]
    else:
        assert len(done.stderr.strip().splitlines()) == 1 and not hub.repos[REPO].tags


def test_moved_parent(hub: Hub, arm: Path) -> None:
    """A commit of another writer between our read and our commit is not lost."""
    ok(command(hub, "push", str(arm), REPO, "--json"))
    (arm / "extra.json").write_text("1")
    repo = hub.repos[REPO]

    def strike(method: str, path: str) -> Any:
        if "/commit/" in path and "theirs.json" not in remote(hub):
            repo.add("main", {**repo.commits[repo.branches["main"]], "theirs.json": b"2"})

    hub.strike = strike
    done = command(hub, "push", str(arm), REPO)
    assert (
        done.returncode == 75
        and "another commit" in done.stderr
        and "theirs.json" in remote(hub)
        and "extra.json" not in remote(hub)
    ), done


def test_refused(hub: Hub, arm: Path, tmp_path: Path) -> None:
    """Each refusal is one clear line.

    Covers no token, no package, no Python, a public dataset requested as private, doctor's errors,
    and a bad name.
    """

    def line(done: subprocess.CompletedProcess[str], code: int, says: str) -> None:
        assert (
            done.returncode == code
            and says in done.stderr
            and len(done.stderr.strip().splitlines()) == 1
        ), done

    line(command(hub, "push", str(arm), REPO, HF_TOKEN="", HF_HOME=str(tmp_path)), 2, "no token")
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    line(
        command(hub, "push", str(arm), REPO, "--python", str(bare / "bin" / "python")),
        12,
        "pip install -U huggingface_hub",
    )
    line(
        command(hub, "push", str(arm), REPO, "--python", "/nonexistent/python"),
        12,
        "no Python interpreter",
    )
    line(command(hub, "push", str(arm), "no-owner"), 2, "owner/name")
    assert not hub.repos
    ok(command(hub, "push", str(arm), REPO, "--json"))
    line(command(hub, "push", str(arm), REPO, "--private"), 2, "public")
    line(command(hub, "push", str(arm), REPO, HF_TOKEN="hf_wrong"), 2, "denies access")
    video = next(arm.rglob("*.mp4"))
    video.write_bytes(video.read_bytes()[:-500])
    line(command(hub, "push", str(arm), REPO), 11, "--skip-doctor")
    line(command(hub, "pull", "hf://datasets/me/none", str(tmp_path / "x")), 10, "me/none")
    line(command(hub, "pull", str(arm), str(tmp_path / "x")), 2, "hf://")


def test_branch(hub: Hub, arm: Path) -> None:
    done = ok(command(hub, "push", str(arm), REPO, "--branch", "trial", "--json"))
    assert (
        "tag" not in done
        and not hub.repos[REPO].tags
        and remote(hub, "trial") == tree(arm)
        and remote(hub) == {}
    )
    assert ok(command(hub, "push", str(arm), REPO, "--branch", "trial", "--json"))["added"] == []


def test_pull_some(hub: Hub, tmp_path: Path) -> None:
    """--episodes pulls the metadata and the files that hold these episodes.

    A second pull transfers nothing. Damaged and partial files are repaired.
    """
    source = Path(dataset_path("gr00t_picknplace_v20"))
    hub.repos[REPO] = Repo(False)
    hub.repos[REPO].add("main", tree(source))
    all_files = tree(source)
    dst = tmp_path / "part"
    some = ok(
        command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--episodes", "1,3", "--json")
    )
    there = tree(dst)
    assert (
        some["left_out"] > 0
        and some["files"] + some["left_out"] == len(all_files)
        and there.items() <= all_files.items()
    )
    assert {p for p in there if p.startswith(("data/", "videos/"))} == {
        p
        for p in all_files
        if p.startswith(("data/", "videos/")) and ("_000001." in p or "_000003." in p)
    }
    read = (
        f"import robocache; b = next(iter(robocache.Loader({str(dst)!r}, batch_size=4, "
        "episodes=[1, 3]))); print(len(b['action']))"
    )
    assert python(hub, read).strip() == "4"
    done = command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--episodes", "99999")
    assert done.returncode == 2 and "The dataset has 0-4" in done.stderr
    whole = ok(command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--json"))
    assert tree(dst) == all_files and whole["unchanged"] == some["files"]
    before = len(hub.log)
    third = ok(command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--json"))
    assert third["bytes"] == 0 and not any("/cdn/" in p for _, p in hub.log[before:])
    video = next(p for p in sorted(all_files) if p.endswith(".mp4"))
    good = all_files[video]
    (dst / video).write_bytes(b"x" + good[1:])
    assert (
        ok(command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--json"))["bytes"] == len(good)
        and tree(dst) == all_files
    )
    part = dst / f"{video}.{hashlib.sha256(good).hexdigest()[:8]}.incomplete"
    (dst / video).unlink()
    part.write_bytes(good[: len(good) // 2])
    got = ok(command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--json"))
    assert (
        got["bytes"] == len(good) - len(good) // 2 and tree(dst) == all_files and not part.exists()
    )
    (dst / video).unlink()
    part.write_bytes(b"y" + good[1 : len(good) // 2])  # damaged: the download restarts
    assert (
        ok(command(hub, "pull", f"hf://datasets/{REPO}", str(dst), "--json"))["bytes"] > len(good)
        and tree(dst) == all_files
    )


def test_docs(hub: Hub, arm: Path, tmp_path: Path) -> None:
    """Runs the commands of docs/hub.md in order."""
    ok(command(hub, "push", str(arm), "me/arm", "--private", "--json"))
    (tmp_path / "work").mkdir()
    text = (HERE.parents[1] / "docs" / "hub.md").read_text()
    commands = [
        line.split("#")[0].strip()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(commands) == 7
    for line in commands:
        program, *args = shlex.split(line)
        assert program == "robocache"
        done = command(hub, *args, cwd=str(tmp_path / "work"))
        assert done.returncode == 0, (line, done.stderr)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    python(hub, f"import os; os.chdir({str(tmp_path / 'work')!r})\n{program}")
    assert (
        hub.repos["me/arm"].tags
        and tree(tmp_path / "work" / "arm") == remote(hub)
        and b"cc-by-4.0" in remote(hub)["README.md"]
    )
