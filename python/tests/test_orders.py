"""Pools and caches in the Python client give the same samples and images as plain reading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import robocache
from conftest import synth

torch = pytest.importorskip("torch", reason="torch is not installed")
CAM = "observation.images.cam_high"
SMALL = (48, 64)


def loader(path: str, **kwargs) -> robocache.Loader:  # type: ignore[no-untyped-def]
    return robocache.Loader(
        path,
        **{
            "keys": [CAM, "index"],
            "batch_size": 32,
            "seed": 2,
            "threads": 2,
            "image_size": SMALL,
            **kwargs,
        },
    )


@pytest.fixture(scope="module")
def images(h264: str) -> dict[int, torch.Tensor]:
    return {int(i): p for b in loader(h264, shuffle=False) for i, p in zip(b["index"], b[CAM])}


def same(l: robocache.Loader, images: dict[int, torch.Tensor]) -> list[int]:
    got: list[int] = []
    for b in l:
        for i, p in zip(b["index"].tolist(), b[CAM]):
            assert torch.equal(p, images[i]), i
            got.append(i)
    return got


def test_pool(h264: str, images: dict[int, torch.Tensor]) -> None:
    kwargs = {"shuffle": "pool", "order": robocache.Order(pool_episodes=2, pool_shards=1)}
    l = loader(h264, **kwargs)
    for e in range(2):
        got = same(l, images)
        assert got == l.order(e).tolist() and sorted(got) == sorted(images)
    # Resume in mid-epoch with another number of threads.
    it = iter(l)
    head = [next(it)["index"].tolist() for _ in range(4)]
    state = json.loads(json.dumps(l.state_dict()))
    other = loader(h264, threads=1, runtime=robocache.Runtime(prefetch=1), **kwargs)
    other.load_state_dict(state)
    assert sum(head, []) + same(other, images) == l.order(2).tolist()
    # The order depends on the bytes of the pool, not on this machine.
    sized = {"shuffle": "pool", "order": robocache.Order(pool_size="1MiB")}
    assert (
        loader(h264, **sized).order(0).tolist()
        == loader(h264, memory_budget="1GiB", threads=1, **sized).order(0).tolist()
    )


def test_ranks_of_a_pool(h264: str) -> None:
    ranks = [
        loader(
            h264,
            keys=["index"],
            shuffle="pool",
            order=robocache.Order(pool_shards=2),
            rank=r,
            world_size=2,
            batch_size=16,
        )
        for r in range(2)
    ]
    assert len(ranks[0]) == len(ranks[1])
    assert {i for l in ranks for b in l for i in b["index"].tolist()} == set(
        range(ranks[0].num_samples)
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ram", "directory", "planes"])
def test_caches(h264: str, tmp_path: Path, images: dict[int, torch.Tensor], how: str) -> None:
    where = tmp_path / "kept" if how == "directory" else "ram"
    cache = robocache.Cache(where, budget="256MiB", format="yuv" if how == "planes" else None)
    l = loader(h264, cache=cache)
    assert sorted(same(l, images)) == sorted(images)
    decoded = l.stats()["frames_decoded"]
    assert sorted(same(l, images)) == sorted(images)
    assert l.stats()["frames_decoded"] == decoded, "the second epoch decodes nothing"
    l.close()
    if how == "directory":
        again = loader(h264, cache=where)
        assert (
            sorted(same(again, images)) == sorted(images) and again.stats()["frames_decoded"] == 0
        ), "another process decodes nothing either"


def test_documented_last_step(tmp_path: Path) -> None:
    """The example in section 6 of docs/guide.md: 21 samples in batches of 4 on 2 ranks."""
    uri = synth(tmp_path / "set", "--episodes", "1", "--seconds", "0.7", "--cameras", "0")
    for options, last, wrapped in (
        ({}, ([16, 17, 18, 19], [20, 0, 1, 2]), [0, 3]),
        ({"order": robocache.Order(uneven="short")}, ([16, 17], [18, 19, 20]), [0, 0]),
        ({"drop_last": True}, ([8, 9, 10, 11], [12, 13, 14, 15]), [0, 0]),
    ):
        for rank in range(2):
            with robocache.Loader(
                uri, batch_size=4, shuffle=False, keys=["index"], rank=rank, world_size=2, **options
            ) as loader:
                assert len(loader.dataset) == 21
                batches = [b["index"].tolist() for b in loader]
                assert batches[-1] == last[rank] and loader.stats()["wrapped"] == wrapped[rank], (
                    options,
                    rank,
                    batches,
                )
                assert len(batches) == len(loader) == (2 if options.get("drop_last") else 3)
    with robocache.Loader(uri, batch_size=4, shuffle=False, keys=["index"]) as alone:
        assert [len(b["index"]) for b in alone] == [4, 4, 4, 4, 4, 1]


def test_uneven_ends(h264: str) -> None:
    n = loader(h264).num_samples
    for uneven in ("wrap", "short"):
        got = [
            i
            for r in range(3)
            for b in loader(
                h264, keys=["index"], rank=r, world_size=3, order=robocache.Order(uneven=uneven)
            )
            for i in b["index"].tolist()
        ]
        assert set(got) == set(range(n))
        assert (len(got) == n) == (uneven == "short" or n % 96 == 0)
