"""torch.distributed on one host with gloo: 2, 4 and 8 processes share an epoch.

This also holds after a resume, after the death of a rank, and with another world size.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import synth

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

WORLDS = (2, 4, 8)
BATCH, HEAD = 6, 3  # samples per batch; steps before the state is taken
ORDERS: dict[str, dict[str, Any]] = {
    "global": {},
    "drop": {"drop_last": True},
    "pool": {"shuffle": "pool", "order": robocache.Order(pool_episodes=8, pool_shards=4)},
    "pool, dropped": {
        "shuffle": "pool",
        "order": robocache.Order(pool_episodes=4, pool_shards=2),
        "drop_last": True,
    },
    "file": {"shuffle": False},
    "mixture": {"sources": 2},
    "mixture of pools": {
        "sources": 2,
        "shuffle": "pool",
        "order": robocache.Order(pool_episodes=4),
    },
}
RESUMED = ("global", "pool", "mixture", "mixture of pools")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns two sets, of 429 and 120 samples. They have no video, to keep the processes fast."""
    folder = tmp_path_factory.mktemp("ddp")
    size = {
        "one": ["--episodes", "13", "--seconds", "1.1"],
        "two": ["--episodes", "5", "--seconds", "0.8", "--seed", "4"],
    }
    return [str(synth(folder / n, "--cameras", "0", *s)) for n, s in size.items()]


def loader(paths: list[str], sources: int = 1, **kwargs: Any) -> robocache.Loader:
    source = (
        [robocache.Mix(p, weight=w) for p, w in zip(paths, (2, 1))] if sources == 2 else paths[0]
    )
    return robocache.Loader(
        source, **{"batch_size": BATCH, "seed": 5, "keys": ["index"], "threads": 1, **kwargs}
    )


def numbers(batch: dict[str, Any]) -> list[int]:
    """Returns the sample numbers of a batch, as order() counts them."""
    ids = batch["index"]
    if "dataset_index" in batch:
        ids = ids + batch["dataset_index"] * 429
    return ids.tolist()


# Code that runs in the ranks.


def stepwise(ld: robocache.Loader, limit: int = 1 << 30) -> list[list[int]]:
    """Reads an epoch with a collective operation in each step.

    The collective would hang if one rank had more steps than another.
    """
    got = []
    for batch in ld:
        got.append(numbers(batch))
        n = torch.tensor([len(got[-1])])
        dist.all_reduce(n)
        if len(got) == limit:
            break
    return got


def epochs(paths: list[str]) -> dict[str, Any]:
    out = {}
    for name, kwargs in ORDERS.items():
        with loader(paths, **kwargs) as ld:
            assert (ld.rank, ld.world_size) == (dist.get_rank(), dist.get_world_size())
            out[name] = []
            for e in (1, 0):
                ld.set_epoch(e)
                out[name].append(stepwise(ld))
                assert len(out[name][-1]) == len(ld)
    return out


def heads(paths: list[str]) -> dict[str, Any]:
    out = {}
    for name in RESUMED:
        with loader(paths, **ORDERS[name]) as ld:
            out[name] = {"got": stepwise(ld, HEAD), "state": ld.state_dict()}
    return out


def tails(paths: list[str], states: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for name, state in states.items():
        with loader(paths, **ORDERS[name]) as ld:
            ld.load_state_dict(state)
            out[name] = [stepwise(ld), stepwise(ld)]
    return out


def joined(paths: list[str], batch: int) -> dict[str, Any]:
    """Trains with uneven="short". Join compensates for the ranks that have one batch less."""
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel

    with loader(
        paths, batch_size=batch, order=robocache.Order(uneven="short"), keys=["index", "action"]
    ) as ld:
        model = DistributedDataParallel(torch.nn.Linear(ld.dataset.features["action"].shape[0], 1))
        got = []
        with Join([model]):
            for b in ld:
                got.append(numbers(b))
                model(b["action"].float()).mean().backward()
        return {"got": got, "len": len(ld)}


def trained(paths: list[str]) -> dict[str, Any]:
    """Trains for an epoch and returns the loss of each step and the final weights."""
    from torch.nn.parallel import DistributedDataParallel

    world = dist.get_world_size() if dist.is_initialized() else 1
    with loader(
        paths, batch_size=24 // world, drop_last=True, keys=["observation.state", "action"]
    ) as ld:
        f = ld.dataset.features
        net = torch.nn.Linear(
            f["observation.state"].shape[0], f["action"].shape[0], dtype=torch.float64
        )
        for p in net.parameters():
            torch.nn.init.constant_(p, 0.1)
        model = DistributedDataParallel(net) if world > 1 else net
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        losses = []
        for b in ld:
            loss = (model(b["observation.state"].double()) - b["action"].double()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            whole = loss.detach() / world
            if world > 1:
                dist.all_reduce(whole)
            losses.append(whole.item())
    return {
        "losses": losses,
        "weights": torch.cat([p.detach().ravel() for p in net.parameters()]).tolist(),
    }


def enter(rank: int, world: int, meet: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meet}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=600),
    )


def worker(rank: int, world: int, folder: str, jobs: dict[str, dict[str, Any]]) -> None:
    enter(rank, world, os.path.join(folder, "meet"))
    done: dict[str, Callable[..., Any]] = {
        "epochs": epochs,
        "heads": heads,
        "tails": tails,
        "joined": joined,
        "trained": trained,
    }
    results = {name: done[name](**kwargs) for name, kwargs in jobs.items()}
    Path(folder, f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def doomed(
    rank: int,
    world: int,
    folder: str,
    paths: list[str],
    kwargs: dict[str, Any],
    turn: int,
    die: int,
) -> None:
    """Trains and saves the state after each step. Rank 1 is killed in the middle of step die."""
    enter(rank, world, os.path.join(folder, f"meet{turn}"))
    saved = Path(folder, "state.json")
    with loader(paths, **kwargs) as ld, open(Path(folder, f"{turn}.{rank}.log"), "w") as log:
        if saved.exists():
            ld.load_state_dict(json.loads(saved.read_text()))
        for n, batch in enumerate(ld, 1):
            state = ld.state_dict()
            log.write(json.dumps([state["epoch"], state["position"], numbers(batch)]) + "\n")
            log.flush()
            if n == die and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
            if rank == 0:
                saved.with_suffix(".new").write_text(json.dumps(state))
                os.replace(saved.with_suffix(".new"), saved)
    dist.destroy_process_group()


# Tests.


def server() -> str:
    """Returns the start method of the processes.

    A fork server imports torch once for all ranks. Its children are as clean as spawned ones.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    multiprocessing.set_forkserver_preload(
        ["torch", "torch.distributed", "torch.nn.parallel", "robocache"]
    )
    return "forkserver"


def group(world: int, folder: Path, jobs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    folder.mkdir()
    mp.start_processes(worker, (world, str(folder), jobs), nprocs=world, start_method=server())
    return [json.loads((folder / f"{r}.json").read_text()) for r in range(world)]


def odd_batch(world: int, samples: int) -> int:
    """Returns a batch size for which the last step has fewer samples than ranks."""
    return next(
        b for b in range(2, samples) if 0 < samples % (b * world) < world and samples > b * world
    )


@pytest.fixture(scope="module")
def runs(
    paths: list[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("runs")

    def jobs(w: int) -> dict[str, dict[str, Any]]:
        return {
            "epochs": {"paths": paths},
            "joined": {"paths": paths, "batch": odd_batch(w, 429)},
            "trained": {"paths": paths},
        }

    out = {4: group(4, folder / "4", {**jobs(4), "heads": {"paths": paths}})}
    # The state of any rank can be loaded by all ranks.
    states = {n: out[4][2]["heads"][n]["state"] for n in RESUMED}
    for w in (2, 8):
        out[w] = group(w, folder / str(w), {**jobs(w), "tails": {"paths": paths, "states": states}})
    return out


def check(
    ranks: list[list[list[int]]], order: list[int], start: int, name: str, batch: int = BATCH
) -> None:
    """Asserts that the steps of the ranks are consecutive parts of the order, from start on.

    The last step is filled up with the first samples of the order.
    """
    world, pool, drop = len(ranks), "pool" in name, "drop" in name
    size = batch * world
    steps = (len(order) - start) // size if drop else -(-(len(order) - start) // size)
    assert [len(r) for r in ranks] == [steps] * world, "all ranks have the same number of batches"
    for t in range(steps):
        got = [i for r in ranks for i in r[t]]
        at = start + t * size
        want = (order[at:] + order)[:size]
        assert len(got) == size
        assert (sorted(got) == sorted(want)) if pool else (got == want), (name, t)
        if pool and len(order) - at >= size and len(set(want)) == size:
            place = {s: p for p, s in enumerate(want)}
            for r in ranks:
                assert [place[i] for i in r[t]] == sorted(place[i] for i in r[t]), (
                    "each rank follows the order of positions"
                )


def order(paths: list[str], name: str, epoch: int) -> list[int]:
    with loader(paths, **ORDERS[name], rank=0, world_size=1) as ld:
        return ld.order(epoch).tolist()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ORDERS)
def test_ranks_are_the_epoch(name: str, world: int, runs: dict[int, Any], paths: list[str]) -> None:
    for k, epoch in enumerate((1, 0)):
        whole = order(paths, name, epoch)
        check([r["epochs"][name][k] for r in runs[world]], whole, 0, name)
        if "mixture" not in name:
            assert sorted(whole) == list(range(429))
    assert order(paths, name, 0) != order(paths, name, 1) or name == "file"


@pytest.mark.parametrize("world", (2, 8))
@pytest.mark.parametrize("name", RESUMED)
def test_a_state_of_four_ranks_on_more_and_on_fewer(
    name: str, world: int, runs: dict[int, Any], paths: list[str]
) -> None:
    heads = [r["heads"][name] for r in runs[4]]
    assert all({**h["state"], "rank": 0} == {**heads[0]["state"], "rank": 0} for h in heads), (
        "all ranks have the same state"
    )
    whole, at = order(paths, name, 0), HEAD * 4 * BATCH
    given = [i for t in range(HEAD) for h in heads for i in h["got"][t]]
    assert heads[0]["state"]["position"] == at == len(given) and sorted(given) == sorted(whole[:at])
    check([r["tails"][name][0] for r in runs[world]], whole, at, name)
    check([r["tails"][name][1] for r in runs[world]], order(paths, name, 1), 0, name)


@pytest.mark.parametrize("world", WORLDS)
def test_a_short_end_under_join(world: int, runs: dict[int, Any], paths: list[str]) -> None:
    ranks = [r["joined"] for r in runs[world]]
    counts = [len(r["got"]) for r in ranks]
    assert counts == [r["len"] for r in ranks] and max(counts) - min(counts) == 1, (
        "some ranks have one batch less"
    )
    assert sorted(i for r in ranks for b in r["got"] for i in b) == list(range(429)), (
        "every sample once"
    )


@pytest.mark.parametrize("world", WORLDS)
def test_training_is_that_of_one_process(
    world: int, runs: dict[int, Any], paths: list[str]
) -> None:
    one = trained(paths)
    assert len(one["losses"]) == 429 // 24 and one["losses"][-1] < one["losses"][0]
    for r in runs[world]:
        for what in ("losses", "weights"):
            assert r["trained"][what] == pytest.approx(one[what], rel=1e-9), what


@pytest.mark.parametrize("name", ("global", "mixture of pools"))
def test_killed_ranks(name: str, paths: list[str], tmp_path: Path) -> None:
    """A rank is killed twice, and training resumes with another world size each time.

    The run resumes from the last saved state. The counted samples must equal the order exactly.
    """
    context = multiprocessing.get_context(server())
    whole, at, counted = order(paths, name, 0), 0, []
    for turn, (world, die) in enumerate([(4, 5), (2, 7), (3, 0)]):
        args = (str(tmp_path), paths, ORDERS[name], turn, die)
        ranks = [context.Process(target=doomed, args=(r, world, *args)) for r in range(world)]
        for p in ranks:
            p.start()
        ranks[1].join(240)
        assert ranks[1].exitcode == (-signal.SIGKILL if die else 0)
        for p in ranks:
            if die:
                p.kill()  # as a launcher does with the other ranks
            p.join(240)
        if die:
            state = json.loads((tmp_path / "state.json").read_text())
            done = (state["position"] - at) / (world * BATCH)
            assert done in (die - 2, die - 1), (
                "the step of the death does not count; the step before may not have been saved yet"
            )
        logs = [
            [
                json.loads(line)
                for line in (tmp_path / f"{turn}.{r}.log").read_text().splitlines()
                if line.endswith("]")
            ]
            for r in range(world)
        ]
        end = state["position"] if die else len(whole)
        for t in range(-(-(end - at) // (world * BATCH))):
            got = [i for log in logs for i in log[t][2]]
            want = (whole[at + t * world * BATCH :] + whole)[: world * BATCH]
            assert sorted(got) == sorted(want), (turn, t)
            counted += got
        at = end
    lost, extra = Counter(whole) - Counter(counted), Counter(counted) - Counter(whole)
    assert not lost and extra.total() < 3 * BATCH, "only the last step repeats samples"
