"""Normalisation by one word, statistics computed at opening, and inversion without a dataset."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import Mix, Normalizer

torch = pytest.importorskip("torch", reason="torch is not installed")
MODES = ("mean_std", "min_max", "quantiles", "quantile10")


@pytest.fixture(scope="module")
def demos() -> str:
    return dataset_path("robomimic_like/earliest_gzip_shuffle.hdf5")


def everything(loader: robocache.Loader) -> dict:
    with loader:
        batches = list(loader)
    return {
        k: torch.cat([b[k] for b in batches])
        for k in batches[0]
        if isinstance(batches[0][k], torch.Tensor)
    }


def numpy_of(batch: dict) -> dict:
    return {k: v.numpy() for k, v in batch.items()}


@pytest.mark.parametrize(
    "name",
    [
        "bridge_rlds/bridge_dataset",
        "robomimic_like/earliest_gzip_shuffle.hdf5",
        "g1_v21",
        "mcap_robot/recording_zstd.mcap",
        "diffusion_policy_zarr/replay_buffer.zarr",
    ],
)
@pytest.mark.parametrize("mode", ["mean_std", "quantiles"])
def test_one_word_leaves_nothing_raw(
    name: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """normalize="…" normalises each float key of every format.

    Statistics that the dataset lacks are computed and reported in the log.
    """
    ds = robocache.open(dataset_path(name))
    keys = [
        k
        for k, f in ds.features.items()
        if f.kind == "numeric"
        and f.dtype.startswith("float")
        and not f.default
        and "timestamp" not in k
    ][:3]
    assert keys
    how = {
        "keys": keys,
        "batch_size": 64,
        "shuffle": False,
        "open": robocache.Open(rows_hz=10 if "hdf5" in name or "zarr" in name else None),
        "split": "all" if ds.splits else None,
    }
    how = {k: v for k, v in how.items() if v is not None}
    source = dataset_path(name)
    with caplog.at_level(logging.WARNING, "robocache"):
        loader = robocache.Loader(source, normalize=mode, **how)
    raw = everything(robocache.Loader(source, **how))
    norm = loader.normalizer
    got = everything(loader)
    assert sorted(norm.keys) == sorted(keys), "each one"
    own = ds.stats
    lacking = [k for k in keys if ("q01" if mode == "quantiles" else "mean") not in own.get(k, {})]
    applied = [r.message for r in caplog.records if "is applied to" in r.message]
    assert len(applied) == 1 and all(applied[0].count(k) >= 1 for k in keys), (
        "each normalised key is named"
    )
    said = [
        r.message
        for r in caplog.records
        if r.message not in applied and "after the tick" not in r.message
    ]
    assert all("no statistics" in s and lacking for s in said) and len(said) <= 1, (
        "logged once, and not again in this process"
    )
    counted = ds.compute_stats(lacking) if lacking else {}
    for k in keys:
        s = counted.get(k) or own[k]
        low, high = (s["mean"], s["std"]) if mode == "mean_std" else (s["q01"], s["q99"])
        x = raw[k].double().numpy().reshape(len(raw[k]), -1, np.asarray(low).size)
        low, high = np.asarray(low).ravel(), np.asarray(high).ravel()
        scale = high if mode == "mean_std" else high - low
        keep = scale > 1e-6
        want = (
            (x - low) / np.where(keep, scale, 1)
            if mode == "mean_std"
            else 2 * (x - low) / np.where(keep, scale, 1) - 1
        )
        np.testing.assert_allclose(
            got[k].double().numpy().reshape(x.shape)[..., keep],
            want[..., keep],
            rtol=1e-3,
            atol=1e-3,
        )


def test_over_the_selected_episodes(demos: str) -> None:
    """Held-out episodes do not contribute to computed statistics.

    Statistics(compute=True) replaces the dataset's own statistics.
    """
    ds = robocache.open(demos)
    want = ds.compute_stats(["action"], episodes=[0])["action"]
    for m in (
        robocache.Loader(demos, keys=["action"], episodes=[0], normalize="mean_std"),
        robocache.MapDataset(demos, keys=["action"], episodes=[0], normalize="mean_std"),
    ):
        np.testing.assert_array_equal(
            np.float32(m.normalizer.state_dict()["keys"]["action"]["shift"]),
            want["mean"].astype(np.float32),
        )
    g1 = dataset_path("g1_v30_exact")
    own = robocache.open(g1).stats["action"]["mean"].astype(np.float32)
    shift = {
        c: np.float32(
            robocache.Loader(
                g1,
                keys=["action"],
                episodes=[0],
                normalize="mean_std",
                statistics=robocache.Statistics(compute=c),
            ).normalizer.state_dict()["keys"]["action"]["shift"]
        )
        for c in (None, True)
    }
    np.testing.assert_array_equal(shift[None], own)
    assert not np.array_equal(shift[True], own)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clip", [False, True])
def test_the_formulas_of_training(h264: str, mode: str, clip: bool) -> None:
    """norm of a raw batch equals the loader's batch to the bit, in NumPy and torch.

    inverse restores the raw values.
    """
    entry = {"mode": mode, "clip": True} if clip and mode != "mean_std" else mode
    cam = "observation.images.cam_high"
    how = {
        "batch_size": 16,
        "shuffle": False,
        "episodes": [0],
        "keys": ["action", "observation.state", cam, "task"],
        "images": robocache.Images(dtype="float32"),
        "image_size": (24, 32),
        "delta_timestamps": {"action": [0, 1 / 30]},
    }
    img = {"mode": "mean_std", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    with robocache.Loader(
        h264,
        normalize={"action": entry, "observation.state": mode, cam: img},
        statistics=robocache.Statistics(compute=True),
        **how,
    ) as loader:
        state = json.loads(json.dumps(loader.normalizer.state_dict()))
        normal = next(iter(loader))
    norm = Normalizer.from_state_dict(state)
    with robocache.Loader(h264, **how) as plain:
        raw = next(iter(plain))
    assert len(json.dumps(state)) < 10_000 and norm.state_dict() == state
    for made in (norm(raw), norm({k: v for k, v in raw.items() if k != cam} | {cam: raw[cam]})):
        for k in ("action", "observation.state", cam):
            assert made[k].dtype == normal[k].dtype and torch.equal(made[k], normal[k]), k
        assert made["task"] is raw["task"] and torch.equal(
            made["action_is_pad"], raw["action_is_pad"]
        )
    tensors = {k: v for k, v in raw.items() if isinstance(v, torch.Tensor)}
    for k, v in norm(numpy_of(tensors)).items():
        assert np.array_equal(v, normal[k].numpy()), k
    back = norm.inverse(normal)
    for k in ("observation.state", cam, *([] if clip else ["action"])):
        scale = (
            np.abs(np.asarray(state["keys"][k]["scale"], np.float32)).max()
            + np.abs(np.asarray(state["keys"][k]["shift"], np.float32)).max()
        )
        constant = np.asarray(state["keys"][k]["scale"]) == 0
        off = (back[k] - raw[k]).abs()
        assert off.max() <= 4e-7 * scale * max(1, normal[k].abs().max().item()) or constant.any(), k
    # A normalizer accepts single rows, windows and any subset of the keys. It does not change its
    # input.
    row = raw["action"][3, 0].clone()
    assert torch.equal(norm({"action": row})["action"], normal["action"][3, 0]) and torch.equal(
        row, raw["action"][3, 0]
    )
    assert torch.equal(
        norm({"action": raw["action"].half().float()[:, :1]})["action"].isfinite(),
        torch.ones_like(raw["action"][:, :1], dtype=torch.bool),
    )


def test_without_an_engine_or_torch(demos: str, tmp_path: Path) -> None:
    """A robot needs only NumPy and a state in a file."""
    ds = robocache.MapDataset(demos, keys=["action"], normalize="mean_std")
    raw = robocache.MapDataset(demos, keys=["action"])
    (tmp_path / "norm.json").write_text(json.dumps(ds.normalizer.state_dict()))
    np.save(tmp_path / "raw.npy", raw[5]["action"].numpy())
    np.save(tmp_path / "want.npy", ds[5]["action"].numpy())
    code = """
import json, sys
import numpy as np
import robocache
norm = robocache.Normalizer()
norm.load_state_dict(json.load(open("norm.json")))
raw, want = np.load("raw.npy"), np.load("want.npy")
got = norm({"action": raw})["action"]
assert got.dtype == want.dtype and np.array_equal(got, want)
assert np.allclose(norm.inverse({"action": want})["action"], raw, rtol=1e-5, atol=1e-6)
assert np.allclose(norm.inverse({"action": want.tolist()})["action"], raw, rtol=1e-5, atol=1e-6)
assert "torch" not in sys.modules and robocache._engine._current is None
"""
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(robocache.__file__).parent.parent),
        "ROBOCACHE_LIBRARY": "/nowhere",
    }
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device(h264: str) -> None:
    how = {
        "batch_size": 16,
        "shuffle": False,
        "episodes": [0],
        "keys": ["action", "observation.state"],
    }
    for mode in MODES:
        with (
            robocache.Loader(
                h264, normalize=mode, statistics=robocache.Statistics(compute=True), **how
            ) as loader,
            robocache.Loader(h264, **how) as plain,
        ):
            norm, normal, raw = loader.normalizer, next(iter(loader)), next(iter(plain))
        made = norm({k: v.cuda() for k, v in raw.items()})
        for k in how["keys"]:
            assert made[k].is_cuda and torch.equal(made[k].cpu(), normal[k])


def test_computed_once(demos: str, tmp_path: Path) -> None:
    """Workers and copies use the computed statistics and read nothing again."""
    ds = robocache.MapDataset(
        demos, keys=["action"], normalize="mean_std", statistics=robocache.Statistics(compute=True)
    )
    assert (
        "compute_stats" not in ds._settled_config
        and ds._settled_config["normalize"]["action"]["mean"]
    )
    copy = pickle.loads(pickle.dumps(ds))
    assert (
        torch.equal(copy[3]["action"], ds[3]["action"])
        and copy.normalizer.state_dict() == ds.normalizer.state_dict()
    )
    workers = torch.utils.data.DataLoader(ds, batch_size=4, num_workers=1)
    assert torch.equal(
        next(iter(workers))["action"], torch.stack([ds[i]["action"] for i in range(4)])
    )
    loader = robocache.Loader(
        demos,
        keys=["action"],
        normalize="mean_std",
        statistics=robocache.Statistics(compute=True),
        cache=tmp_path / "cache",
        shuffle=False,
    )
    again = pickle.loads(pickle.dumps(loader))
    assert torch.equal(next(iter(again))["action"], next(iter(loader))["action"])
    # A Loader over a MapDataset uses its normalisation, unless it has its own.
    assert torch.equal(
        next(iter(robocache.Loader(ds, shuffle=False)))["action"], next(iter(loader))["action"]
    )
    assert (
        robocache.Loader(ds, normalize="min_max").normalizer.state_dict()["keys"]["action"]["mode"]
        == "min_max"
    )


def test_of_a_mixture(h264: str) -> None:
    """Each source of a mixture is normalised with its own statistics.

    Covers a mixture in which one source has none, and selection by name, position and
    dataset_index.
    """
    sources = [
        Mix(h264, name="g1", weight=1),
        Mix(dataset_path("bridge_rlds/bridge_dataset"), name="demos", weight=1),
    ]
    how = {
        "keys": ["action"],
        "batch_size": 64,
        "windows": robocache.Windows(missing="pad"),
        "seed": 3,
    }
    with (
        robocache.Loader(sources, normalize="mean_std", **how) as loader,
        robocache.Loader(sources, **how) as plain,
    ):
        norm, normal, raw = loader.normalizer, next(iter(loader)), next(iter(plain))
    norm = Normalizer.from_state_dict(json.loads(json.dumps(norm.state_dict())))
    assert norm.sources == ["g1", "demos"] and norm.keys == ["action"]
    made = norm(raw)
    assert torch.equal(made["action"], normal["action"]) and np.array_equal(
        norm(numpy_of(raw))["action"], normal["action"].numpy()
    )
    off = (norm.inverse(normal)["action"] - raw["action"]).abs().max()
    assert off < 1e-4
    one = raw["dataset_index"] == 1
    assert torch.equal(
        norm["demos"]({"action": raw["action"][one]})["action"], normal["action"][one]
    )
    n = len(norm[1].dims["action"])
    assert torch.equal(
        norm[1]({"action": raw["action"][one][:, :n]})["action"], normal["action"][one][:, :n]
    ), "each source keeps its width"
    with pytest.raises(robocache.Misuse, match="dataset_index"):
        norm({"action": raw["action"]})
    with pytest.raises(robocache.Misuse, match="'demos'"):
        norm["demo"]


def test_misuse(demos: str) -> None:
    norm = robocache.Loader(demos, keys=["action"], normalize="mean_std").normalizer
    width = len(norm.state_dict()["keys"]["action"]["shift"])
    for bad, words in (
        (lambda: norm({"actions": np.zeros(width)}), "'action'"),
        (lambda: norm(np.zeros(width)), "dict"),
        (lambda: norm({"action": np.zeros(width + 1)}), "shape"),
        (lambda: norm({"action": "x"}), "numbers"),
        (lambda: Normalizer.from_state_dict({}), "state"),
        (lambda: Normalizer.from_state_dict({"version": 2, "keys": {}}), "version"),
        (lambda: norm["a"], "one dataset"),
        (
            lambda: robocache.Loader(
                demos,
                keys=["action"],
                normalize="mean_std",
                statistics=robocache.Statistics(
                    values={"action": {"min": [0.0] * width, "max": [1.0] * width}}
                ),
            ),
            "mean_std",
        ),
    ):
        with pytest.raises(robocache.Misuse, match=words):
            bad()
    with pytest.raises(robocache.Malformed, match="shift"):
        Normalizer.from_state_dict({"version": 1, "keys": {"action": {"mode": "mean_std"}}})
    assert robocache.Loader(demos, keys=["action"]).normalizer({"action": np.ones(3)})[
        "action"
    ].tolist() == [1, 1, 1], "the batch is unchanged"
