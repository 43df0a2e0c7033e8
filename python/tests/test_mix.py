"""Mixtures: sources, keys, shares, rates, statistics, resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path, synth

import robocache
from robocache import Mix

torch = pytest.importorskip("torch", reason="torch is not installed")
KEYS = ["action", "index", "task"]


@pytest.fixture(scope="module")
def other() -> str:
    return dataset_path("g1_v30_exact")


def pair(
    h264: str, other: str, weights: tuple[float | None, float | None] = (3, 1), **kwargs
) -> robocache.Loader:  # type: ignore[no-untyped-def]
    return robocache.Loader(
        [Mix(h264, weight=weights[0], name="a"), Mix(other, weight=weights[1], name="b")],
        **{"keys": KEYS, "batch_size": 32, **kwargs},
    )


def test_a_batch_is_of_several_datasets(h264: str, other: str) -> None:
    loader = pair(h264, other, seed=2)
    maps = [robocache.MapDataset(p, keys=KEYS) for p in (h264, other)]
    assert loader.num_samples == sum(map(len, maps)) and loader.keys == [
        "action",
        "index",
        "dataset_index",
        "task",
    ]
    order = loader.order(0)
    place = loader.locate(order)
    first = [np.concatenate([[0], np.cumsum(m.dataset.episodes["lengths"])]) for m in maps]
    at, counts = 0, np.zeros(2)
    for b in loader:
        d = b["dataset_index"].tolist()
        n = len(d)
        assert d == place.dataset_index[at : at + n].tolist()
        for r in range(0, n, 5):
            i = int(b["index"][r])
            assert first[d[r]][place.episode[at + r]] + place.row[at + r] == i
            want = maps[d[r]][i]
            assert torch.equal(b["action"][r], want["action"]) and b["task"][r] == want["task"]
        at += n
        counts += np.bincount(d, minlength=2)
        assert abs(counts[0] - 0.75 * at) <= 3, "the shares hold in every prefix"
    assert at == loader.num_samples


def test_shares_without_weights_go_by_size(h264: str, other: str) -> None:
    loader = pair(h264, other, (None, None))
    sizes = [len(robocache.MapDataset(p, keys=["index"])) for p in (h264, other)]
    d = loader.locate(loader.order(0)).dataset_index
    assert np.bincount(d).tolist() == sizes
    assert sorted(loader.order(0).tolist()) == list(range(sum(sizes))), "every sample once"


def test_epochs_of_a_given_size_and_exact_shares(h264: str, other: str) -> None:
    loader = pair(
        h264, other, (1, 1), mixture=robocache.Mixture(epoch_size=320, stratified=True), seed=1
    )
    sizes = [b["dataset_index"].sum().item() for b in loader]
    assert loader.num_samples == 320 and sizes == [16] * 10
    assert [
        pair(h264, other, (1, 1), mixture=robocache.Mixture(stop=s)).num_samples >= 2 * 1
        for s in ("first", "all")
    ] == [True, True]
    assert (
        pair(h264, other, (1, 1), mixture=robocache.Mixture(stop="first")).num_samples
        <= pair(h264, other, (1, 1), mixture=robocache.Mixture(stop="all")).num_samples
    )
    even = pair(h264, other, (9, 1), mixture=robocache.Mixture(temperature=1e6))
    d = even.locate(even.order(0)[:1000]).dataset_index
    assert abs(d.mean() - 0.5) < 0.02


def test_resume_in_a_mixture(h264: str, other: str) -> None:
    a = pair(h264, other, seed=7)
    it = iter(a)
    for _ in range(5):
        next(it)
    state = json.loads(json.dumps(a.state_dict()))
    rest = [b["index"].tolist() for b in it]
    b = pair(h264, other, seed=7, threads=1, runtime=robocache.Runtime(prefetch=1))
    b.load_state_dict(state)
    assert [x["index"].tolist() for x in b] == rest
    with pytest.raises(robocache.Misuse):
        robocache.Loader(h264, keys=KEYS).load_state_dict(state)


def test_rename_missing_and_own_sizes(h264: str, other: str) -> None:
    cam = "observation.images.cam_high"
    two = [
        Mix(h264, rename={cam: "front"}, image_size=(24, 32), weight=1),
        Mix(other, rename={cam: "front"}, weight=1),
    ]
    b = next(iter(robocache.Loader(two, keys=["front"], image_size=(24, 32), batch_size=8)))
    assert b["front"].shape == (8, 3, 24, 32)
    flip = cam + "_flip"  # only one source has this key
    with pytest.raises(robocache.Misuse, match="missing"):
        robocache.Loader([h264, other], keys=["index", flip], image_size=(24, 32))
    b = next(
        iter(
            robocache.Loader(
                [h264, other],
                keys=["index", flip],
                image_size=(24, 32),
                windows=robocache.Windows(missing="pad"),
                batch_size=32,
            )
        )
    )
    pad = b[flip + "_is_pad"].reshape(-1)
    assert (
        torch.equal(pad, b["dataset_index"] == 1) and not b[flip][pad].any() and b[flip][~pad].any()
    )


def test_primary_balance_and_constants(h264: str, other: str) -> None:
    sizes = [len(robocache.MapDataset(p, keys=KEYS)) for p in (h264, other)]
    ids = [24, np.int64(7)]
    loader = robocache.Loader(
        [
            Mix(h264, weight=3, primary=True, constants={"embodiment": ids[0], "box": [1, 2.5]}),
            Mix(other, weight=1, constants={"embodiment": ids[1], "box": np.float32([0, -1])}),
        ],
        keys=["action"],
        batch_size=32,
        mixture=robocache.Mixture(balance_weights=True),
    )
    shares = np.array(sizes) * [3, 1] / (np.array(sizes) * [3, 1]).sum()
    assert abs(loader.num_samples - sizes[0] / shares[0]) <= 1 / shares[0] + 1
    counts = np.zeros(2)
    for b in loader:
        d = b["dataset_index"].numpy()
        assert b["embodiment"].dtype == torch.int64
        assert np.array_equal(b["embodiment"].numpy(), np.array([24, 7])[d])
        assert np.array_equal(b["box"].numpy(), np.float32([[1, 2.5], [0, -1]])[d])
        counts += np.bincount(d, minlength=2)
    assert abs(counts / counts.sum() - shares).max() < 0.01 and counts[0] >= sizes[0]
    one = robocache.Loader(
        [Mix(h264, constants={"id": 5, "list": [6]})], keys=["action"], batch_size=2
    )
    batch = next(iter(one))
    assert batch["id"].tolist() == [5, 5] and batch["list"].tolist() == [[6], [6]]
    with pytest.raises(robocache.Misuse, match="no such key"):
        robocache.Loader([Mix(h264, constants={"id": 5}), Mix(other)], keys=["action"])
    with pytest.raises(robocache.Misuse, match="source lacks"):
        robocache.Loader([Mix(h264, constants={"action": 5})], batch_size=4)
    with pytest.raises(robocache.Misuse, match="primary"):
        robocache.Loader(
            [Mix(h264, primary=True), Mix(other)],
            keys=["action"],
            mixture=robocache.Mixture(epoch_size=9),
        )


def test_statistics_stay_per_source(h264: str, other: str) -> None:
    n = len(robocache.open(h264).stats["action"]["mean"])
    mine = {"action": {"mean": np.full(n, 5.0), "std": np.full(n, 2.0)}}
    loader = robocache.Loader(
        [Mix(h264, statistics=robocache.Statistics(values=mine)), Mix(other)],
        keys=["action", "index"],
        normalize={"action": "mean_std"},
        batch_size=64,
    )
    maps = [robocache.MapDataset(p, keys=["action"]) for p in (h264, other)]
    b = next(iter(loader))
    st = robocache.open(other).stats["action"]
    for r in range(64):
        d, raw = (
            int(b["dataset_index"][r]),
            maps[int(b["dataset_index"][r])][int(b["index"][r])]["action"].double(),
        )
        want = (
            (raw - 5.0) / (2.0 + 1e-8)
            if d == 0
            else (raw - torch.tensor(st["mean"])) / (torch.tensor(st["std"]) + 1e-8)
        )
        good = torch.ones(n, dtype=torch.bool) if d == 0 else torch.tensor(st["std"]) > 1e-6
        assert torch.allclose(b["action"][r].double()[good], want[good], atol=1e-4)


@pytest.mark.parametrize(
    "kwargs,words",
    [
        ({"weight": -1}, "at least 0"),
        ({"weight": "much"}, "number"),
        ({"rename": {"acton": "action"}}, "'action'"),
        ({"rename": {"action": "index"}}, "two keys"),
        ({"rename": ["action", "index"]}, "expected a dict"),
        ({"statistics": robocache.Statistics(values={"acton": {}})}, "'action'"),
        ({"statistics": robocache.Statistics(values={"action": {"median": [1]}})}, "median"),
        (
            {"statistics": robocache.Statistics(values={"action": {"mean": [float("inf")]}})},
            "infinite",
        ),
        ({"keys": ["acton"]}, "'action'"),
        ({"hz": -1}, "rate"),
        ({"constants": {"id": "five"}}, "a number"),
        ({"constants": {"id": [float("nan")]}}, "finite"),
        ({"constants": [5]}, "dict"),
        ({"primary": "yes"}, "primary"),
        ({"wait": 2}, "'weight'"),
    ],
)
def test_misuse_of_mix(h264: str, kwargs: dict, words: str) -> None:
    with pytest.raises(robocache.Misuse, match=words):
        Mix(h264, **kwargs)


def test_misuse_of_mixtures(h264: str, other: str) -> None:
    with pytest.raises(robocache.Misuse, match="weight"):
        pair(h264, other, (1, None))
    with pytest.raises(robocache.Misuse, match="no datasets"):
        robocache.Loader([])
    with pytest.raises(robocache.Misuse, match="datasets"):
        pair(h264, other).dataset  # noqa: B018
    assert not hasattr(pair(h264, other), "dataset"), (
        "Lightning tests for the attribute in this way"
    )
    with pytest.raises(robocache.Misuse, match="MapDataset"):
        Mix(robocache.MapDataset(h264))
    with pytest.raises(robocache.Misuse, match="stop"):
        pair(h264, other, mixture=robocache.Mixture(stop="never"))
    with pytest.raises(robocache.Misuse, match="out of range|index"):
        robocache.Loader(h264, keys=["index"]).locate([10**9])
    loader = robocache.Loader(h264, keys=["index", "episode_index"], shuffle=False, batch_size=64)
    got = loader.locate(loader.order(0)[:64])
    assert got.episode.tolist() == next(iter(loader))["episode_index"].tolist() and set(
        got.dataset_index
    ) == {0}


def test_mixture_in_another_process(h264: str, other: str) -> None:
    import pickle

    loader = pair(h264, other, seed=3)
    twin = pickle.loads(pickle.dumps(loader))
    assert twin.order(1).tolist() == loader.order(1).tolist() and repr(twin) == repr(loader)


def test_errors_name_the_source(tmp_path: Path) -> None:
    a, b = (
        str(synth(tmp_path / name, "--episodes", "2", "--seconds", "0.5", "--codec", "png"))
        for name in "ab"
    )
    with pytest.raises(robocache.Misuse, match=f"dataset {b}.*actoin") as e:
        robocache.Mix(b, keys=["actoin"])
    assert e.value.where["dataset"] == b
    with pytest.raises(robocache.Misuse) as e:
        robocache.Loader([robocache.Mix(a), robocache.Mix(b, episodes=[7])], batch_size=2)
    assert (e.value.where["source"], e.value.where["dataset"]) == (1, b)
    with pytest.raises(robocache.NotFound, match="source 1") as e:
        robocache.Loader([a, str(tmp_path / "nowhere")], batch_size=2)
    assert e.value.where["source"] == 1
    nowhere = robocache.Mix(str(tmp_path / "nowhere"), weight=2, name="lab")
    assert "nowhere" in repr(nowhere) and nowhere.weight == 2
    with pytest.raises(robocache.NotFound, match="source 1") as e:
        robocache.Loader([robocache.Mix(a, weight=1), nowhere], batch_size=2)
    assert (e.value.where["source"], e.value.where["name"]) == (1, "lab")
    for use in (lambda: nowhere.dataset, lambda: nowhere.features):
        with pytest.raises(robocache.NotFound, match="nowhere"):
            use()
