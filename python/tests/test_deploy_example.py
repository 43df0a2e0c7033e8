"""Runs examples/deploy and the commands of docs/live.md: from a recording to a running policy."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT

EXAMPLE = ROOT / "examples" / "deploy"
PAGES = [ROOT / "docs" / "live.md", EXAMPLE / "README.md"]

needs_mcap = pytest.mark.skipif(find_spec("mcap") is None, reason="the package mcap is missing")
needs_foxglove = pytest.mark.skipif(
    find_spec("foxglove") is None, reason="the package foxglove-sdk is missing"
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}


def run_example(name: str, *args: str | Path) -> str:
    """Runs a program of the example, and returns its output."""
    command = [sys.executable, str(EXAMPLE / name), *map(str, args)]
    done = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port() -> int:
    """Returns a port that is free, and whose next port is free for UDP."""
    while True:
        with socket.socket() as a, socket.socket(type=socket.SOCK_DGRAM) as b:
            a.bind(("127.0.0.1", 0))
            port = a.getsockname()[1]
            try:
                b.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings, and a policy with its contract."""
    folder = tmp_path_factory.mktemp("deploy")
    run_example("record.py", folder / "recordings", "--episodes", "4", "--seconds", "10")
    out = run_example("train.py", folder / "recordings", folder / "policy", "--align", "delayed")
    assert "Contract at 20 Hz" in out and "/target" in out
    return folder


@needs_mcap
def test_recordings_are_deterministic(folder: Path, tmp_path: Path) -> None:
    run_example("record.py", tmp_path, "--episodes", "1", "--seconds", "10")
    name = "episode_000.mcap"
    assert (tmp_path / name).read_bytes() == (folder / "recordings" / name).read_bytes()


@needs_mcap
def test_live_equals_training(folder: Path) -> None:
    """The messages of a recording give the samples of the loader, bit by bit."""
    import robocache

    contract = robocache.Contract.load(folder / "policy.contract.json")
    assert contract.check(folder / "recordings") == []
    result = robocache.live.replay(folder / "recordings", contract)
    assert result.different_bits == 0 and result.ticks > 700


@needs_mcap
def test_experiment(tmp_path: Path) -> None:
    """Without delays in training, the policy imitates better and tracks worse."""
    out = run_example(
        "experiment.py",
        *("--seeds", "1", "--recorded", "4", "--episodes", "3", "--seconds", "10"),
        *("--json", tmp_path / "result.json"),
    )
    assert "| delayed | all |" in out
    results = json.loads((tmp_path / "result.json").read_text())
    default, causal, delayed = (results[k][0] for k in ("default", "causal", "delayed"))
    assert default["training_error_m_s"] < delayed["training_error_m_s"]
    assert max(causal["error_m"], delayed["error_m"]) < default["error_m"] < 0.2
    for row in (default, causal, delayed):
        assert 0.08 < row["median_delay_s"]["target"] < row["max_delay_s"]["target"] < 0.14
        assert 0.003 < row["median_delay_s"]["joint_states.position"] < 0.015


@needs_mcap
@needs_foxglove
def test_deploy(folder: Path) -> None:
    """The policy follows the target of a robot in another process."""
    import robocache

    port = str(free_port())
    command = [sys.executable, str(EXAMPLE / "robot.py"), "--seconds", "60", "--port", port]
    robot = subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE)
    try:
        assert robot.stdout is not None and "the robot runs" in robot.stdout.readline()
        seen = folder / "seen.mcap"
        out = run_example(
            "deploy.py", folder / "policy", "--port", port, "--seconds", "5", "--record", seen
        )
    finally:
        robot.kill()
        robot.wait()
    assert len(re.findall(r"target \d+ ms; masked", out)) >= 4, out
    assert "masked: none" in out
    error = re.search(r"mean error ([\d.]+) cm", out)
    assert error and float(error[1]) < 20, out  # the machine may be slow
    verified = robocache.live.verify(seen)
    assert verified.ticks >= 100 and verified.different_ticks == 0


@needs_mcap
@needs_foxglove
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_page(page: Path, tmp_path: Path) -> None:
    """The commands and snippets of a page run, in their order."""
    port = free_port()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, module in {"python": "", "robocache": "-m robocache"}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        program.chmod(0o755)
    lines = ["set -e", f'PATH="{tmp_path}/bin:$PATH"']
    for language, text in re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL):
        if language == "python":
            lines.append(f"python - <<'END'\n{text}END")
            continue
        text = re.sub(r"^pip install .*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"(robot|deploy)\.py", rf"\g<0> --port {port}", text)
        text = text.replace("experiment.py", "experiment.py --seeds 1 --recorded 2 --episodes 1")
        lines.append(text.replace(":8765", f":{port}"))
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "mean error" in done.stdout
    if page.name == "live.md":
        assert done.stdout.count(" ticks, 0 differ") == 2, done.stdout
        assert "(3, 3)" in done.stdout and "the recording fits the contract" in done.stdout
