"""Runs the examples and the snippets of pages on a small synthetic dataset.

Each must print what it promises.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT, synth

import robocache

EXAMPLES = {
    "multirate.py": ["samples in 100 ms"],
    "align.py": ["rows are padding", "rows lie in a gap", "a batch of 147 positions"],
    "resume.py": ["killed after 48 samples", "resumed: 42 samples"],
    "lerobot_dropin.py": ["fork: 90 samples", "spawn: 90 samples"],
    # 90 samples: two ranks read 64, then three ranks read 26 and repeats; then the next epoch
    # begins.
    "ddp.py": [
        "step 4, epoch 0: 2 ranks saw 64 of 90",
        "step 6, epoch 0: 3 ranks saw 48 of 90",
        "step 7, epoch 1: 3 ranks saw 24 of 90",
    ],
    "accelerate_train.py": [
        "4 steps, epoch 0: 2 ranks saw 64 of 90",
        "2 steps, epoch 0: 2 ranks saw 32 of 90",
        "3 steps, epoch 1: 2 ranks saw 16 of 90",
    ],
    "lightning_train.py": [],
    "delta.py": [
        "version 1: 180 rows of 6 episodes, by ['task']",
        "trained on 180 rows of version 1, and there are 90 in version 0",
    ],
    "mixture.py": [
        "240 of most, 80 of some",
        "by the normalizers of most and some",
        "resumed: the 240 samples",
    ],
    "train_policy.py": ["from the file alone: 8 actions of"],
    "guide": ["90\n", "(8, 96, 96, 3) (96, 96, 3)\n2 1\n", "did you mean 'batch_size'"],
    "training": [],
    "batches": [
        "torch.Size([16, 3, 64, 64])\n",
        "torch.Size([16, 3, 44, 60])\n",
        "from the future",
    ],
    "options": ["torch.Size([16, 8, "],
    "jax": ["loss True\n"],
    "README": [],
    "package": [],
    "cli": ["0 0 []\n30\n"],
    "growing": ["4\n"],
    "record": ["2 40\n", "3 {0: 'pick the cube', 1: 'place the cube'}\n0\n"],
}
# The snippets of these pages run one after the other on the dataset "arm". Other pages have their
# own tests: docs/cluster.md (submit/real_test.go), edit.md and view.md (internal/cli), hub.md
# (test_hub.py), lerobot.md (test_lerobot_train.py).
PAGES = {
    **{
        n: f"docs/{n}.md"
        for n in ("guide", "training", "batches", "options", "growing", "record", "cli", "jax")
    },
    "README": "README.md",
    "package": "python/README.md",
}
# Paths of datasets in the pages, which the test replaces by its own.
ELSEWHERE = re.compile(r"/tmp/arm|/data/my_dataset|path/to/lerobot/dataset")
# Packages that an example imports. The example is skipped if one is missing.
NEEDS = {
    "lerobot_dropin.py": [["torch"]],
    "ddp.py": [["torch"]],
    "guide": [["torch"]],
    "training": [["torch"]],
    "batches": [["torch"]],
    "options": [["torch"]],
    "jax": [["flax"], ["optax"]],
    "README": [["torch"]],
    "package": [["torch"]],
    "train_policy.py": [["torch"]],
    "accelerate_train.py": [["accelerate"]],
    "lightning_train.py": [["pytorch_lightning"]],
    "delta.py": [["deltalake"]],
}


def runs_of(name: str) -> list[list[str]]:
    """Returns the arguments of each process of an example, in order. PATH follows the file."""
    torchrun, kept = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node"],
        ["--checkpoint", f"{name}.kept"],
    )
    return {
        "ddp.py": [
            [*torchrun, "2", name, "--steps", "4", *kept],
            [*torchrun, "3", name, "--steps", "7", *kept],
        ],
        "accelerate_train.py": [
            [*torchrun, "2", name, "--steps", "4", *kept],
            [*torchrun, "2", name, "--steps", "3", *kept],
        ],
        "train_policy.py": [[name, "--steps", "60"]],
        "lightning_train.py": [[name, "--devices", "2", "--steps", n, *kept] for n in ("4", "7")],
    }.get(name, [[name]])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates a dataset of three one-second episodes with one camera."""
    return synth(
        tmp_path_factory.mktemp("examples") / "arm",
        "--episodes",
        "3",
        "--seconds",
        "1",
        "--cameras",
        "1",
        "--size",
        "64x64",
    )


@pytest.fixture(scope="module")
def runs(tiny: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Starts all examples at the same time, because most of their time is the import of torch."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(name, None)
    names = [n for n in EXAMPLES if all(any(find_spec(m) for m in one) for one in NEEDS.get(n, []))]
    started = {}
    for n in names:
        file = ROOT / "examples" / n
        if n in PAGES:
            # Next to the dataset, which the guide calls "arm". jax.py would hide the module jax.
            file = tiny.parent / f"page_{n}.py"
            text = ELSEWHERE.sub("arm", (ROOT / PAGES[n]).read_text())
            file.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
        commands = [
            [
                sys.executable,
                *(w for a in args for w in ((str(file), str(tiny)) if a == n else (a,))),
            ]
            for args in runs_of(n)
        ]
        started[n] = subprocess.Popen(
            " && ".join(map(shlex.join, commands)),
            shell=True,
            start_new_session=True,
            env=env,
            cwd=tiny.parent,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    yield started
    for p in started.values():
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tiny: Path, runs: dict[str, subprocess.Popen[str]]) -> None:
    if name not in runs:
        pytest.skip(f"not installed: {NEEDS[name]}")
    out, errors = runs[name].communicate(timeout=400)
    assert runs[name].returncode == 0, out + errors
    for words in EXAMPLES[name]:
        assert words in out, out
    if name == "lightning_train.py":
        check_lightning(out, tiny)


def test_commands(tmp_path: Path) -> None:
    """Runs the command lines of the guide and of the README in order.

    A verb that has findings exits with 3.
    """
    synth(
        tmp_path / "once", "--episodes", "1", "--seconds", "1", "--cameras", "1", "--size", "64x64"
    )
    lines = [
        line
        for page in ("docs/guide.md", "README.md")
        for line in re.findall(r"^robocache .*$", (ROOT / page).read_text(), re.MULTILINE)
    ]
    assert len(lines) > 15
    small = " --seconds 1 --size 64x64 --episodes 3"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    run = f"{shlex.quote(sys.executable)} -m robocache "
    for line in [
        "robocache convert once recording --to mcap",
        "mv recording/*.mcap recording.mcap",
        *lines,
    ]:
        command = re.sub("/tmp/", "new", line.split("#")[0])
        command = command.replace("robocache ", run, 1) + (small if " synth " in command else "")
        r = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True
        )
        # a 30 Hz camera at 50 Hz repeats frames, which is a finding
        repeats_frames = "recording.mcap" in line and "--hz 50" in line
        assert r.returncode == (3 if repeats_frames else 0), f"{line}\n{r.stdout}{r.stderr}"


def check_lightning(out: str, path: Path) -> None:
    """Asserts that the global batches of two ranks follow the order.

    The run stops after four steps and resumes in mid-epoch.
    """
    lines = re.findall(r"step (\d) rank (\d): \[(.*?)\]", out)
    got = {(int(step), int(rank)): [int(i) for i in ids.split(",")] for step, rank, ids in lines}
    assert len(lines) == len(got) == 2 * 7
    with robocache.Loader(path, batch_size=16, seed=3, keys=["index"]) as loader:
        orders = [loader.order(e).tolist() for e in range(2)]
    for step in range(7):
        e, at = divmod(step, 6)
        assert got[step, 0] + got[step, 1] == (orders[e] * 2)[at * 16 : at * 16 + 16], step
