"""robocache.gr00t, against samples that GR00T's own code made (data/clients/gr00t.npz)."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import _modality, gr00t

TAG = "new_embodiment"


@pytest.fixture(scope="module")
def theirs() -> Any:
    with np.load(dataset_path("clients/gr00t.npz"), allow_pickle=False) as z:
        return {k: json.loads(str(v)) if v.shape == () else v for k, v in z.items()}


@pytest.fixture(scope="module")
def source() -> str:
    return dataset_path("gr00t_picknplace_v20")


def differing_bits(got: Any, want: np.ndarray) -> int:
    got = np.asarray(got)
    assert got.dtype == want.dtype == np.float32 and got.shape == want.shape
    return int((got.view(np.uint32) != want.view(np.uint32)).sum())


def without_video(configs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in configs.items() if k != "video"}


def test_steps(theirs: dict[str, Any], source: str) -> None:
    configs = {k: SimpleNamespace(**v) for k, v in theirs["config"]["modality_configs"].items()}
    ds = gr00t.ShardedSingleStepDataset(source, TAG, configs)
    images = dict(zip(theirs["image_sample"].tolist(), theirs["image_raw"], strict=True))
    bits = 0
    for i, (e, s) in enumerate(zip(theirs["episode"], theirs["step"], strict=True)):
        if i % 5 and i not in images:
            continue  # Each image takes a decode from its key frame.
        (step,) = ds.read_steps(e, [s])
        for key in (k for k in theirs if k.startswith("step/")):
            kind, name = key.removeprefix("step/").split(".", 1)
            got = {"state": step.states, "action": step.actions}[kind][name]
            bits += differing_bits(got, theirs[key][i])
        assert step.text == theirs["text_raw"][i] and step.embodiment == TAG
        if i in images:
            np.testing.assert_array_equal(step.images["ego_view"], images[i][None])
    assert bits == 0


def test_shards(theirs: dict[str, Any], source: str) -> None:
    """Every step whose action fits is in one shard; the shards are those of NumPy's generator."""
    configs = without_video(theirs["config"]["modality_configs"])
    ds = gr00t.ShardedSingleStepDataset(source, TAG, configs, shard_size=300, seed=7)
    assert len(ds) == 7 and ds.shard_lengths.sum() == 2021
    assert ds.shard_lengths.max() - ds.shard_lengths.min() <= 48
    steps = [(e, s) for shard in ds.sharded_episodes for e, part in shard for s in part.tolist()]
    usable = theirs["sampled_length"][::5]
    assert sorted(steps) == [(e, s) for e, n in enumerate(usable) for s in range(n)]
    rng = np.random.default_rng(7)
    episode = rng.permutation(5)[0]
    first = np.arange(usable[episode])
    rng.shuffle(first)
    assert ds.sharded_episodes[0][0][0] == episode
    assert ds.sharded_episodes[0][0][1].tolist() == first[::10].tolist()
    with pytest.raises(robocache.Misuse, match="no processor"):
        ds.get_shard(0)
    ds.set_processor(lambda messages: messages[0]["content"].states["waist"])
    assert len(ds.get_shard(3)) == ds.get_shard_length(3)


@pytest.mark.parametrize("variant", ["processed", "minmax", "absolute", "sincos"])
def test_model_inputs(theirs: dict[str, Any], source: str, variant: str) -> None:
    configs = copy.deepcopy(theirs["config"]["modality_configs"])
    config = {
        "processed": {},
        "minmax": {"use_percentiles": False},
        "absolute": {"use_relative_action": False},
        "sincos": {"apply_sincos_state_encoding": True},
    }[variant]
    if variant == "sincos":
        keys = theirs["config"]["variants"]["sincos"]
        configs["state"] |= {k: v for k, v in keys.items() if k.endswith("embedding_keys")}
    loader = gr00t.Loader(
        source,
        embodiment_tag=TAG,
        modality_configs=without_video(configs),
        config=config,
        training=False,
        batch_size=256,
        shuffle=False,
    )
    batches = list(loader)
    starts = np.cumsum(theirs["sampled_length"][::5]) - theirs["sampled_length"][::5]
    rows = starts[theirs["episode"]] + theirs["step"]
    got = {k: np.concatenate([b[k] for b in batches]) for k in batches[0] if k != "text"}
    assert len(got["state"]) == 2021
    bits = differing_bits(got["state"][rows], theirs[f"{variant}/state"])
    if variant == "sincos":  # NumPy's float32 sine is not correctly rounded.
        assert bits <= 30
        np.testing.assert_allclose(got["state"][rows], theirs["sincos/state"], rtol=0, atol=6e-8)
    else:
        assert bits == 0
    assert differing_bits(got["action"][rows], theirs[f"{variant}/action"]) == 0
    np.testing.assert_array_equal(got["action_mask"][rows], theirs["processed/action_mask"])
    texts = [t for b in batches for t in b["text"]]
    assert [texts[r] for r in rows] == theirs["text"].tolist()
    np.testing.assert_array_equal(got["embodiment_id"][rows], theirs["embodiment_id"])


def test_images(theirs: dict[str, Any], source: str) -> None:
    """The evaluation's images are GR00T's; those of training are cropped elsewhere."""
    e, step = (theirs[k][theirs["image_sample"]] for k in ("episode", "step"))
    configs = theirs["config"]["modality_configs"]
    at = int(np.flatnonzero(e == 0)[-1])  # Few frames are decoded.
    options: dict[str, Any] = {"modality_configs": configs, "batch_size": 8, "shuffle": False}
    row, frames = int(step[at]), []
    for training in (False, True):
        loader = gr00t.Loader(source, embodiment_tag=TAG, training=training, **options)
        batch = next(b for i, b in enumerate(loader) if i == row // 8)
        frames.append(np.asarray(batch["images.ego_view"])[row % 8, 0].transpose(1, 2, 0))
    np.testing.assert_array_equal(frames[0], theirs["image_eval"][at])
    assert frames[1].shape == (256, 256, 3) and (frames[0] != frames[1]).mean() > 0.1


def test_statistics(theirs: dict[str, Any], source: str, tmp_path: Path) -> None:
    """Statistics are GR00T's to the bit: those of the files, computed, relative and pooled."""
    stored, relative = theirs["meta_stats_json"], theirs["meta_relative_stats_json"]
    configs = without_video(theirs["config"]["modality_configs"])
    parts = _modality.ModalityParts(source, configs, _modality.SETTINGS)
    own = parts.statistics()
    for key in ("observation.state", "action"):
        rows = [e.streams[key].values.astype(np.float32) for e in parts.dataset]
        measured = _modality.measure_rows(np.concatenate(rows))
        for name, values in measured.items():
            np.testing.assert_array_equal(values, stored[key][name])
    for group in ("left_arm", "right_arm"):
        for name, values in own["relative_action"][group].items():
            np.testing.assert_array_equal(values, relative[group][name])
    pooled = _modality.pool_statistics([own], [2.0])
    for kind, groups in theirs["statistics_json"].items():
        for group, values in groups.items():
            for name, want in values.items():
                np.testing.assert_array_equal(pooled[kind][group][name], want)
    two = _modality.pool_statistics(
        [
            {"mean": 0, "std": 1, **dict.fromkeys(("min", "max", "q01", "q99"), 1)},
            {"mean": 4, "std": 3, **dict.fromkeys(("min", "max", "q01", "q99"), 5)},
        ],
        [3, 1],
    )
    assert two["mean"] == 1 and two["std"] == np.sqrt((3 * 1 + 25) / 4 - 1)
    assert (two["min"], two["q01"], two["max"], two["q99"]) == (1, 1, 5, 5)
    copied = Path(shutil.copytree(source, tmp_path / "set"))
    (copied / "meta").chmod(0o755)
    relative = {k: {n: np.asarray(v) * 2 for n, v in relative[k].items()} for k in relative}
    text = json.dumps({k: {n: v.tolist() for n, v in one.items()} for k, one in relative.items()})
    (copied / "meta/relative_stats.json").write_text(text)
    ds = gr00t.ShardedSingleStepDataset(copied, TAG, configs)
    got = ds.get_dataset_statistics()["relative_action"]
    np.testing.assert_array_equal(got["left_arm"]["max"], relative["left_arm"]["max"])


def test_mixture(theirs: dict[str, Any], source: str) -> None:
    configs = without_video(theirs["config"]["modality_configs"])
    loader = gr00t.Loader(
        [source, source],
        embodiment_tag=[TAG, "arm"],
        modality_configs={TAG: configs, "arm": configs},
        mix_ratio={TAG: 3, "arm": 1},
        embodiment_ids={"arm": 31},
        config=SimpleNamespace(max_state_dim=64, state_dropout_prob=0.5),
        batch_size=400,
        seed=1,
    )
    batch = next(iter(loader))
    ids = np.where(np.asarray(batch["dataset_index"]) == 0, 10, 31)
    np.testing.assert_array_equal(batch["embodiment_id"], ids)
    assert abs((ids == 10).sum() - 300) <= 3 and batch["state"].shape == (400, 1, 64)
    dropped = (np.asarray(batch["state"]) == 0).all((1, 2)).mean()
    assert 0.4 < dropped < 0.6


def test_poses(theirs: dict[str, Any], source: str) -> None:
    """Relative poses become vectors with their form of rotation, also as dicts of a checkpoint."""
    configs = without_video(theirs["config"]["modality_configs"])
    pose = {"rep": "RELATIVE", "type": "EEF", "format": "XYZ_ROTVEC", "state_key": "right_hand"}
    configs |= {
        "action": {
            **configs["action"],
            "modality_keys": ["left_hand"],
            "action_configs": [pose],
        },
    }
    parts = _modality.ModalityParts(source, configs, _modality.SETTINGS)
    got = parts.relative("left_hand")
    assert got["relative"] == "pose" and got["rotation"] == ("rotvec", "rotvec")
    assert got["reference"] == ("observation.state", 29) and got["reference_row"] == 0
    pose["format"] = "DEFAULT"
    with pytest.raises(robocache.Unsupported, match="default"):
        parts.relative("left_hand")


@pytest.mark.parametrize(
    "change,words",
    [
        ({"embodiment_tag": "other"}, "no id of the embodiment 'other'"),
        ({"embodiment_tag": [TAG, TAG]}, "2 embodiment tags for 1 datasets"),
        ({"mix_ratio": {"arm": 1}}, "mix_ratio has no weight"),
        ({"group": "tail"}, "names no state 'tail'"),
        ({"language": "annotation.mood"}, "names no annotation 'mood'"),
        ({"language": "sub_task"}, "sub_task"),
        ({"paths": "g1_v21"}, "no meta/modality.json"),
    ],
)
def test_misuse(theirs: dict[str, Any], source: str, change: dict[str, Any], words: str) -> None:
    configs = copy.deepcopy(without_video(theirs["config"]["modality_configs"]))
    options: dict[str, Any] = {"embodiment_tag": TAG, **change}
    if "group" in options:
        configs["state"]["modality_keys"] = [options.pop("group")]
    if "language" in options:
        configs["language"]["modality_keys"] = [options.pop("language")]
    path = dataset_path(options.pop("paths")) if "paths" in options else source
    with pytest.raises((robocache.Misuse, robocache.Unsupported), match=words):
        gr00t.Loader(path, modality_configs=configs, **options)
