"""The examples, and the snippets of docs/guide.md, run as they stand on a small synthetic dataset, and say what they promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT

EXAMPLES = {
    "align.py": ["rows are padding", "rows lie in a gap", "a batch of 147 places"],
    "resume.py": ["killed after 48 samples", "resumed: 42 samples"],
    "lerobot_dropin.py": ["fork: 90 samples", "spawn: 90 samples"],
    # 90 samples in steps of 2 × 8: the last step is filled up with 6 that came before.
    "ddp.py": ["2 ranks of 6 batches: 90 of 90 samples, 6 of them twice"],
    "mixture.py": ["240 of most, 80 of some", "resumed: the 240 samples"],
    "accelerate_loop.py": ["1 processes, 90 samples in 12 steps", "resumed from the checkpoint: 10 steps"],
    "lightning_fit.py": ["3 epochs of 6 steps", "stopped after 9 steps, resumed for 9"],
    "guide": ["90\n", "did you mean 'batch_size'"],
}
# What an example imports beside ours; without it, it is not run.
NEEDS = {
    "lerobot_dropin.py": [["torch"]], "ddp.py": [["torch"]], "guide": [["torch"]], "accelerate_loop.py": [["accelerate"]],
    "lightning_fit.py": [["lightning", "pytorch_lightning"]],
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three episodes of a second, one camera; made by the command line."""
    path = tmp_path_factory.mktemp("examples") / "arm"
    if (ROOT / "bin" / "robocache").exists():
        command = [str(ROOT / "bin" / "robocache")]
    elif shutil.which("go"):
        command = ["go", "run", "./cmd/robocache"]
    else:
        pytest.skip("no bin/robocache and no go to run it with: 'make build' makes one")
    size = ["--episodes", "3", "--seconds", "1", "--cameras", "1", "--size", "64x64"]
    done = subprocess.run([*command, "synth", str(path), *size], cwd=ROOT, text=True, capture_output=True, timeout=300)
    if done.returncode == 10 and "ffmpeg" in done.stderr or done.returncode == 12:
        pytest.skip(f"synth has no encoder here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def runs(tiny: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """All of them, at the same time: most of what each does is to import torch."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(name, None)
    names = [n for n in EXAMPLES if all(any(find_spec(m) for m in one) for one in NEEDS.get(n, []))]
    guide = tiny.parent / "guide.py"  # beside the dataset, which the guide calls "arm"
    guide.write_text("\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide.md").read_text(), re.DOTALL)))
    files = {n: guide if n == "guide" else ROOT / "examples" / n for n in names}
    started = {
        n: subprocess.Popen([sys.executable, str(f), str(tiny)], env=env, cwd=tiny.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for n, f in files.items()
    }
    yield started
    for p in started.values():
        if p.poll() is None:
            p.kill()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, runs: dict[str, subprocess.Popen[str]]) -> None:
    if name not in runs:
        pytest.skip(f"not installed: {NEEDS[name]}")
    out, errors = runs[name].communicate(timeout=240)
    assert runs[name].returncode == 0, out + errors
    for words in EXAMPLES[name]:
        assert words in out, out
