"""Ranks of a Loader that is created before or after the process group.

Two processes share an epoch, or the Loader raises Misuse.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, synth
from test_ddp import server

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from rank_script import make_loader, run_rank  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

N = 93


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        synth(
            tmp_path_factory.mktemp("ranks") / "arm",
            "--cameras",
            "0",
            "--episodes",
            "3",
            "--seconds",
            str(31 / 30),
        )
    )


def check_union(out: Path, path: str) -> None:
    """Asserts that the ranks' samples are the epoch.

    Each sample occurs once, except for repeats that fill up the last step.
    """
    ranks = [json.loads((out / f"{r}.json").read_text()) for r in range(2)]
    assert [r["place"] for r in ranks] == [[0, 2], [1, 2]]
    assert ranks[0]["len"] == ranks[1]["len"] == 6
    for r, got in enumerate(ranks):
        assert (
            got["samples"]
            == robocache.Loader(path, batch_size=8, seed=3, keys=["index"], rank=r, world_size=2)
            .order(0, rank=r)
            .tolist()
        )
    samples = ranks[0]["samples"] + ranks[1]["samples"]
    assert len(samples) == 96 and set(samples) == set(range(N))


@pytest.mark.parametrize("when", ("before", "after", "parent"))
@pytest.mark.slow
def test_spawned_ranks_are_the_epoch(when: str, path: str, tmp_path: Path) -> None:
    """Covers three places of creation.

    before and after: in the rank's process, before or after the group. parent: in the launcher, and
    pickled.
    """
    loader = make_loader(path) if when == "parent" else None
    mp.start_processes(
        run_rank, (when, path, str(tmp_path), loader), nprocs=2, start_method=server()
    )
    check_union(tmp_path, path)


@pytest.mark.parametrize(
    ("launcher", "when"),
    [
        ("torchrun", "before,after"),
        ("accelerate", "before,after"),
        ("lightning", "before"),
        ("lightning", "after"),
    ],
)
@pytest.mark.slow
def test_launched_ranks_are_the_epoch(launcher: str, when: str, path: str, tmp_path: Path) -> None:
    if launcher != "torchrun":
        module = "pytorch_lightning" if launcher == "lightning" else launcher
        pytest.importorskip(module, reason=f"{module} is not installed: scripts/venv.sh peers")
    for name in when.split(","):
        (tmp_path / name).mkdir()
    run = (
        []
        if launcher == "lightning"
        else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    )
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), env.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    done = subprocess.run(
        [sys.executable, *run, str(HERE / "rank_script.py"), launcher, when, path, str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for name in when.split(","):
        check_union(tmp_path / name, path)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the rank and world size that torch.distributed reports."""

    def say(rank: int, world: int) -> None:
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: world)

    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return say


USES: dict[str, Any] = {
    "len": len,
    "iter": lambda ld: next(iter(ld)),
    "state_dict": lambda ld: ld.state_dict(),
    "order": lambda ld: ld.order(0, rank=0),
}


@pytest.mark.parametrize("use", USES)
def test_a_group_after_the_first_use_is_misuse(use: str, path: str, group: Any) -> None:
    with make_loader(path) as ld:
        USES[use](ld)
        group(1, 2)
        for later in USES.values():
            with pytest.raises(
                robocache.Misuse,
                match=r"used as rank 0 of 1, and torch\.distributed says rank 1 of 2",
            ):
                later(ld)


def test_an_environment_after_the_first_use_is_misuse(
    path: str, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_loader(path) as ld:
        assert len(ld) == 12
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(robocache.Misuse, match="RANK, WORLD_SIZE"):
            iter(ld)


def test_another_group_is_misuse_and_no_group_is_not(path: str, group: Any) -> None:
    with make_loader(path) as ld:
        group(1, 2)
        assert (len(ld), ld.rank, ld.world_size) == (6, 1, 2)
        group(0, 2)
        with pytest.raises(robocache.Misuse, match="as rank 1 of 2"):
            iter(ld)
    with robocache.Loader(path, batch_size=8, rank=0, world_size=1, keys=["index"]) as ld:
        # explicit arguments override the group: model-parallel ranks share their data
        assert len(ld) == 12


def test_a_position_from_before_the_group_stays(path: str, group: Any) -> None:
    with make_loader(path) as ld:
        ld.set_epoch(3)
        # these do not fix the rank
        assert ld.keys and ld.features and ld.num_samples == N and repr(ld)
        group(1, 2)
        assert ld.state_dict()["epoch"] == 3
        assert [i for b in ld for i in b["index"].tolist()] == ld.order(3, rank=1).tolist()


@pytest.mark.slow
def test_a_worker_process_has_its_parents_rank(path: str, tmp_path: Path) -> None:
    """A DataLoader worker has no process group and must keep the rank of its parent."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        ld = make_loader(path)
        dist_rank, dist_world = dist.get_rank, dist.get_world_size
        dist.get_rank, dist.get_world_size = (lambda: 1), (lambda: 2)
        try:
            data = DataLoader(ld, batch_size=None, num_workers=1, multiprocessing_context="spawn")
            got = [i for b in data for i in b["index"].tolist()]
        finally:
            dist.get_rank, dist.get_world_size = dist_rank, dist_world
        assert (
            got
            == robocache.Loader(path, batch_size=8, seed=3, keys=["index"], rank=1, world_size=2)
            .order(0, rank=1)
            .tolist()
        )
    finally:
        dist.destroy_process_group()
