"""robocache.openpi, against samples that openpi's own code made (data/clients/openpi.npz)."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import openpi


@pytest.fixture(scope="module")
def theirs() -> Any:
    with np.load(dataset_path("clients/openpi.npz"), allow_pickle=False) as z:
        return dict(z)


def test_tasks_are_a_dict_and_a_table() -> None:
    meta = openpi.LeRobotDatasetMetadata("local/g1", root=dataset_path("g1_v21"))
    tasks, text = meta.tasks, "Pick up the yellow bottle on the table."
    assert isinstance(tasks, dict) and tasks == {0: text} and tasks.get(1) is None
    assert tasks.get(0) == tasks[0] == text and len(tasks) == 1
    pytest.importorskip("pandas")
    assert tasks.loc[text].task_index == 0 and tasks.iloc[0].name == text
    assert list(tasks.index) == [text] and list(tasks["task_index"]) == [0]
    copy = pickle.loads(pickle.dumps(meta)).tasks
    assert copy == tasks and copy.loc[text].task_index == 0
    with pytest.raises(KeyError):
        tasks[1]
    with pytest.raises(AttributeError):
        tasks.nothing  # noqa: B018


def test_items_are_those_of_openpi(theirs: dict[str, Any]) -> None:
    data = openpi.LeRobotDataset(
        dataset_path("g1_v21"), delta_timestamps={"action": [t / 30 for t in range(50)]}
    )
    assert isinstance(data, robocache.LeRobotDataset)
    rows = theirs["row"].tolist()
    items = data.__getitems__(rows)
    for key in [k.removeprefix("item/") for k in theirs if k.startswith("item/")]:
        got = np.stack([np.asarray(item[key]) for item in items])
        want = theirs[f"item/{key}"]
        assert got.dtype == want.dtype and got.tobytes() == want.tobytes(), key
    assert [data.meta.tasks.get(int(i["task_index"])) for i in items] == theirs["prompt"].tolist()
    for sample, want in zip(theirs["image_sample"], theirs["inputs/image"]):
        image = np.asarray(items[sample]["observation.images.cam_high"])
        assert np.array_equal((255 * image).astype(np.uint8).transpose(1, 2, 0), want)


MASK = [True] * 14 + [False] * 12


def statistics_of(theirs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        key: {s: theirs[f"norm_stats/{key}/{s}"] for s in ("mean", "std", "q01", "q99")}
        for key in ("state", "actions")
    }


def first_batch(config: Any, **options: Any) -> Any:
    return next(iter(openpi.DataLoader(config, **{"framework": "numpy", **options})))


@pytest.mark.parametrize("quantile", [True, False])
@pytest.mark.parametrize("from_file", [True, False])
def test_numbers_of_the_model(
    theirs: dict[str, Any], quantile: bool, from_file: bool, tmp_path: Path
) -> None:
    """Equal to the bit after the cast to float32 that JAX does."""
    stats: Any = statistics_of(theirs)
    name = "quantile" if quantile else "zscore"
    want = {k: theirs[f"padded_{name}/{k}"].astype(np.float32) for k in ("state", "actions")}
    if from_file:  # Numbers of JSON are float64 in openpi too.
        (tmp_path / "norm_stats.json").write_text(str(theirs["norm_stats_json"]))
        stats = tmp_path
        if not quantile:
            wide = {
                k: {s: v.astype(np.float64) for s, v in x.items()}
                for k, x in statistics_of(theirs).items()
            }
            for key, x in (("state", "inputs/state"), ("actions", "delta/actions")):
                z = (theirs[x] - wide[key]["mean"]) / (wide[key]["std"] + 1e-6)
                want[key][..., :26] = z
    config = openpi.Config(
        repo_id=dataset_path("g1_v21"),
        images={},
        delta_mask=MASK,
        norm_stats=stats,
        use_quantile_norm=quantile,
        batch_size=1305,
    )
    batch = first_batch(config)
    for key, x in want.items():
        got = batch[key][theirs["row"]]
        assert got.dtype == np.float32 and got.tobytes() == x.tobytes(), key
    assert batch["prompt"][theirs["row"]].tolist() == theirs["prompt"].tolist()


def test_images_of_the_model(theirs: dict[str, Any]) -> None:
    config = openpi.Config(
        repo_id=dataset_path("g1_v21"),
        images={"base_0_rgb": "observation.images.cam_high", "wrist": None},
        image_mask={"base_0_rgb": True},
        prompt="=go",
        batch_size=221,
    )
    batch = first_batch(config, episodes=[0], skip_norm_stats=True)
    images = batch["image"]["base_0_rgb"]
    assert theirs["row"][theirs["image_sample"][:2]].tolist() == [0, 220]
    assert np.array_equal(images[[0, 220]], theirs["resized/image"][:2])
    assert batch["image"]["wrist"].shape == images.shape and not batch["image"]["wrist"].any()
    assert batch["image_mask"]["base_0_rgb"].all() and not batch["image_mask"]["wrist"].any()
    assert set(batch["prompt"]) == {"go"}


class Transform:
    """A transform of openpi, found by the name of its class."""

    def __init__(self, function: Any = None, **fields: Any) -> None:
        self.function = function
        self.__dict__.update(fields)

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        return self.function(item)


def transform(name: str, **fields: Any) -> Any:
    return type(name, (Transform,), {})(**fields)


def robot_inputs(flip: float = 1) -> Any:
    def function(d: dict[str, Any]) -> dict[str, Any]:
        image = (255 * d["observation.images.cam_high"]).astype(np.uint8).transpose(1, 2, 0)
        return {
            "state": d["observation.state"] * np.float32(flip),
            "actions": d["action"] * np.float32(flip),
            "image": {"base": image, "wrist": np.zeros_like(image)},
            "image_mask": {"base": np.True_, "wrist": np.False_},
            "prompt": d["prompt"],
        }

    return transform("RobotInputs", function=function)


def train_config(own: list[Any], model: list[Any], **fields: Any) -> Any:
    """Returns the part of openpi's TrainConfig that its data loader reads."""
    data = SimpleNamespace(
        repo_id=dataset_path("g1_v21"),
        rlds_data_dir=None,
        norm_stats=None,
        repack_transforms=SimpleNamespace(inputs=[]),
        data_transforms=SimpleNamespace(inputs=own),
        model_transforms=SimpleNamespace(inputs=model),
        use_quantile_norm=True,
        action_sequence_keys=("action",),
        prompt_from_task=True,
    )
    data.__dict__.update(fields)
    return SimpleNamespace(
        data=SimpleNamespace(create=lambda *_: data),
        assets_dirs=None,
        model=SimpleNamespace(action_horizon=50),
        batch_size=8,
        seed=3,
    )


def tokens(item: dict[str, Any]) -> dict[str, Any]:
    text = item.pop("prompt").item()
    return {**item, "tokens": np.full(4, len(text)), "first": item["state"][:1]}


MODEL = [
    transform("InjectDefaultPrompt", prompt="never"),
    transform("ResizeImages", height=112, width=96),
    transform("TokenizePrompt", function=tokens),
    transform("PadStatesAndActions", model_action_dim=30),
]


def test_read_config(theirs: dict[str, Any]) -> None:
    stats = {k: SimpleNamespace(**v) for k, v in statistics_of(theirs).items()}
    own = [robot_inputs(), transform("DeltaActions", mask=MASK)]
    config = openpi.read_config(train_config(own, MODEL, norm_stats=stats))
    assert config.images == {"base": "observation.images.cam_high", "wrist": None}
    assert config.image_mask == {"base": True, "wrist": False}
    assert (config.state, config.actions, config.prompt) == ("observation.state", "action", "task")
    assert config.resolution == (112, 96) and config.action_dim == 30
    batch = first_batch(replace(config, images={}))
    at = theirs["row"][:2]
    for key in ("state", "actions"):
        want = theirs[f"padded_quantile/{key}"][:2, ..., :30].astype(np.float32)
        assert batch[key][at].tobytes() == want.tobytes(), key
    assert batch["tokens"].tolist() == [[len(str(theirs["prompt"][0]))] * 4] * 8
    assert batch["first"][at, 0].tolist() == theirs["normalized_quantile/state"][:2, 0].tolist()
    assert "prompt" not in batch


@pytest.mark.parametrize(
    ("own", "model", "says"),
    [
        ([transform("DeltaActions", mask=MASK), robot_inputs()], MODEL, "not the last transform"),
        ([robot_inputs(flip=-1)], MODEL, "state are not a stream as recorded"),
        ([robot_inputs()], MODEL[::-1], "TokenizePrompt follows PadStatesAndActions"),
    ],
)
def test_configurations_without_equivalent(own: Any, model: Any, says: str) -> None:
    with pytest.raises(robocache.Unsupported, match=says) as e:
        openpi.DataLoader(train_config(own, model))
    assert "LeRobotDataset" in e.value.hint


def test_statistics_are_needed(tmp_path: Path) -> None:
    config = openpi.Config(repo_id=dataset_path("g1_v21"), images={})
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    for change, error, says in [
        ({}, robocache.Misuse, "without norm_stats"),
        ({"norm_stats": {"state": {"mean": [0], "std": [1]}}}, robocache.Misuse, "no 'q01'"),
        ({"norm_stats": tmp_path / "none"}, robocache.NotFound, "there is no"),
        ({"norm_stats": wrong}, robocache.Malformed, "not a norm_stats.json"),
    ]:
        with pytest.raises(error, match=says):
            openpi.DataLoader(replace(config, **change), framework="numpy")
    with pytest.raises(robocache.Misuse, match="framework"):
        openpi.DataLoader(config, framework="tensorflow")


@pytest.mark.parametrize("framework", ["jax", "pytorch"])
def test_arrays_of_the_frameworks(framework: str) -> None:
    pytest.importorskip({"jax": "jax", "pytorch": "torch"}[framework])
    config = openpi.Config(repo_id=dataset_path("g1_v21"), images={}, batch_size=8)
    loader = openpi.DataLoader(config, skip_norm_stats=True, framework=framework, num_batches=2)
    want = first_batch(config, skip_norm_stats=True)
    batches = list(loader)
    assert len(batches) == 2 and len(loader) == 1305 // 8
    for key in ("state", "actions"):
        got = batches[0][key]
        assert type(got).__module__.split(".")[0] in ("jax", "jaxlib", "torch")
        assert np.asarray(got).tobytes() == want[key].tobytes()
    images = {"head": "observation.images.cam_high", "wrist": None}
    config = replace(config, images=images, transforms=[tokens], resolution=(48, 64))
    batch = first_batch(config, skip_norm_stats=True, framework=framework, episodes=[0])
    want = first_batch(config, skip_norm_stats=True, episodes=[0])
    for name, masks in want.pop("image_mask").items():
        assert np.array_equal(np.asarray(batch["image_mask"][name]), masks)
        assert np.array_equal(np.asarray(batch["image"][name]), want["image"][name])
    del want["image"]
    assert want.keys() == {"state", "actions", "tokens", "first"}
    for key, x in want.items():
        assert np.array_equal(np.asarray(batch[key]), x), key
    assert sorted(batch) == sorted([*want, "image", "image_mask"])


def test_norm_stats(theirs: dict[str, Any], tmp_path: Path) -> None:
    config = openpi.Config(repo_id=dataset_path("g1_v21"), images={}, delta_mask=MASK)
    got = openpi.norm_stats(config, tmp_path / "assets", exact=False)
    for key, stats in got.items():
        for name, value in stats.items():
            want = theirs[f"norm_stats/{key}/{name}"]
            # Sums of openpi are float32: mean within 1e-6, std within 2e-5.
            bound = {"mean": 1e-6, "std": 2e-5}.get(name, 0)
            assert np.abs(np.array(value) - want).max() <= bound, (key, name)
    loader = openpi.DataLoader(
        replace(config, norm_stats=tmp_path / "assets"), framework="numpy", num_batches=1
    )
    assert next(iter(loader))["actions"].shape == (32, 50, 32)
    keys = ["observation.state"]
    rows = robocache.MapDataset(dataset_path("g1_v21"), keys=keys).batch(range(1305))[keys[0]]
    exact = openpi.norm_stats(config)["state"]["q01"]
    assert np.allclose(exact, np.quantile(np.asarray(rows), 0.01, axis=0), atol=1e-6)
    with pytest.raises(robocache.Misuse):
        openpi.norm_stats(replace(config, actions="actoin"))


def test_one_of_several_cameras() -> None:
    cameras = ["observation.images.cam_high", "observation.images.cam_high_flip"]

    def batches(camera: Any, prompt: Any = "task") -> list[Any]:
        config = openpi.Config(
            repo_id=dataset_path("g1_h264_v30"),
            images={"base": camera},
            prompt=prompt,
            resolution=(48, 64),
            batch_size=16,
        )
        options: dict[str, Any] = {"framework": "numpy", "shuffle": "pool", "num_batches": 2}
        return list(openpi.DataLoader(config, skip_norm_stats=True, episodes=[0], **options))

    first, second, drawn = batches(cameras[0]), batches(cameras[1]), batches(cameras, ["task"])
    found = set()
    for a, b, one in zip(first, second, drawn, strict=True):
        assert a["state"].tobytes() == one["state"].tobytes()
        assert one["prompt"].tolist() == a["prompt"].tolist() and one["image_mask"]["base"].all()
        for x, y, image in zip(a["image"]["base"], b["image"]["base"], one["image"]["base"]):
            assert np.array_equal(image, x) != np.array_equal(image, y)
            found.add(np.array_equal(image, x))
    assert found == {True, False}


def test_joined_streams(theirs: dict[str, Any]) -> None:
    stats = statistics_of(theirs)
    twice = {k: {s: np.tile(v, 2) for s, v in x.items()} for k, x in stats.items()}
    one = openpi.Config(
        repo_id=dataset_path("g1_v21"), images={}, delta_mask=MASK, norm_stats=stats, action_dim=26
    )
    state, actions = ["observation.state"] * 2, ["action"] * 2
    two = replace(one, state=state, actions=actions, delta_mask=MASK * 2, norm_stats=twice)
    want, got = first_batch(one), first_batch(two)
    for key in ("state", "actions"):
        assert np.array_equal(got[key], np.concatenate([want[key], want[key]], -1)), key
    with pytest.raises(robocache.Misuse, match="equally many"):
        openpi.DataLoader(replace(two, state="observation.state"), framework="numpy")


def test_droid_segments(tmp_path: Path) -> None:
    """An episode without a success or without ranges has no samples."""
    lengths, path = [30, 20, 25, 10], tmp_path / "droid"
    files = ["a/success/1.h5", "a/failure/2.h5", "a/success/3.h5", "a/success/4.h5"]
    numbers = {"dtype": "float32", "shape": (2,)}
    text = {"dtype": "string", "shape": (1,)}
    features = {"observation.state": numbers, "action": numbers, "folder": text, "file": text}
    with robocache.Writer(path, fps=15, features=features) as writer:
        for n, file in zip(lengths, files, strict=True):
            for t in range(n):
                row = {"observation.state": np.full(2, t, np.float32), "action": np.zeros(2)}
                writer.add_frame({**row, "folder": "gs://x", "file": file, "task": "x"})
            writer.save_episode()
    ranges = {f"gs://x--{files[0]}": [[2, 9], [25, 90]], f"gs://x--{files[1]}": [[0, 5]]}
    ranges[f"gs://x--{files[2]}"] = [[4, 4], [7, 3], [24, 25]]
    (tmp_path / "ranges.json").write_text(json.dumps(ranges))
    segments = openpi.droid_segments(path, tmp_path / "ranges.json", keys=("folder", "file"))
    assert segments == {0: [(2, 9), (25, 30)], 2: [(24, 25)]}
    config = openpi.Config(repo_id=str(path), images={}, action_horizon=4, batch_size=13)
    order = robocache.Order(segments=segments)
    batch = first_batch(config, skip_norm_stats=True, order=order)
    assert batch["state"][:, 0].tolist() == [*range(2, 9), *range(25, 30), 24]
    (tmp_path / "ranges.json").write_text("[1]")
    with pytest.raises(robocache.Malformed):
        openpi.droid_segments(path, tmp_path / "ranges.json")
    with pytest.raises(robocache.NotFound):
        openpi.droid_segments(path, tmp_path / "none.json")


def droid_inputs(d: dict[str, Any]) -> dict[str, Any]:
    """Has the form of openpi's repacking and its inputs of DROID."""
    observation = d["observation"]
    state = np.concatenate([observation["joint_position"], observation["gripper_position"]])
    images = {"base": observation["image"], "wrist": observation["wrist_image"]}
    images["right"] = np.zeros_like(images["base"])
    return {
        "state": state,
        "actions": d["actions"],
        "image": images,
        "image_mask": {k: np.bool_(k != "right") for k in images},
        "prompt": d["prompt"],
    }


def test_own_configuration_of_droid(tmp_path: Path) -> None:
    """The configuration reads cameras, joined streams, instructions and the idle filter."""
    numbers = {"joint_position": 7, "gripper_position": 1}
    sizes = {f"{k}.{n}": w for k in ("observation", "action_dict") for n, w in numbers.items()}
    texts = [
        *(f"language_instruction{n}" for n in ("", "_2", "_3")),
        "episode_metadata.recording_folderpath",
        "episode_metadata.file_path",
    ]
    cameras = [f"observation.exterior_image_{n}_left" for n in (1, 2)]
    cameras.append("observation.wrist_image_left")
    features: dict[str, Any] = {k: {"dtype": "float32", "shape": (n,)} for k, n in sizes.items()}
    features |= {k: {"dtype": "string", "shape": (1,)} for k in texts}
    features |= {k: {"dtype": "image", "shape": (8, 8, 3)} for k in cameras}
    with robocache.Writer(tmp_path / "droid/1.0.1", fps=15, features=features) as writer:
        for episode, n in enumerate((12, 9)):
            for t in range(n):
                row: dict[str, Any] = {k: np.full(w, t, np.float32) for k, w in sizes.items()}
                row |= {k: k for k in texts}
                row[texts[-1]] = ("a/success/1.h5", "a/failure/2.h5")[episode]
                shades = (10, 100, 200)
                row |= {k: np.full((8, 8, 3), s, np.uint8) for k, s in zip(cameras, shades)}
                writer.add_frame({**row, "task": "x"})
            writer.save_episode()
    ranges = tmp_path / "ranges.json"
    ranges.write_text(json.dumps({f"{texts[3]}--a/success/1.h5": [[2, 6], [8, 10]]}))
    one = SimpleNamespace(name="droid", version="1.0.1", weight=1.0, filter_dict_path=str(ranges))
    own = [
        transform("DroidInputs", function=droid_inputs),
        transform("DeltaActions", mask=[True] * 7 + [False]),
    ]
    given = train_config(
        own,
        [transform("PadStatesAndActions", model_action_dim=10)],
        repo_id="droid",
        rlds_data_dir=str(tmp_path),
        datasets=[one],
        action_space=SimpleNamespace(name="JOINT_POSITION"),
        prompt_from_task=False,
    )
    config = openpi.read_config(given)
    assert config.images == {"base": cameras[:2], "wrist": cameras[2], "right": None}
    assert config.state == ["observation.joint_position", "observation.gripper_position"]
    assert config.actions == ["action_dict.joint_position", "action_dict.gripper_position"]
    assert config.prompt == texts[:3] and config.idle_filter == str(ranges)
    config = replace(config, action_horizon=3, batch_size=6)
    batch = first_batch(config, skip_norm_stats=True, shuffle=True)
    rows = batch["state"][:, 0]
    assert sorted(rows.tolist()) == [2, 3, 4, 5, 8, 9]
    later = np.minimum(rows[:, None] + np.arange(3), 11)
    assert np.array_equal(batch["actions"][:, :, 0], later - rows[:, None])
    assert np.array_equal(batch["actions"][:, :, 7], later) and not batch["actions"][..., 8:].any()
    assert set(batch["image"]["base"][:, 0, 0, 0].tolist()) <= {10, 100}
    assert (batch["image"]["wrist"] == 200).all() and not batch["image"]["right"].any()
    assert set(batch["prompt"].tolist()) <= set(texts[:3])
    whole = first_batch(replace(config, idle_filter=""), skip_norm_stats=True, shuffle=False)
    assert whole["state"][:, 0].tolist() == [*range(6)]
    given.data.create().action_space.name = "JOINT_VELOCITY"
    assert openpi.read_config(given).actions[0] == "action_dict.joint_velocity"
    with pytest.raises(robocache.Unsupported, match="idle filter"):
        openpi.norm_stats(config)
    order = robocache.Order(segments={0: [(0, 3)]})
    with pytest.raises(robocache.Misuse, match="idle_filter"):
        first_batch(config, skip_norm_stats=True, order=order)
    one.filter_dict_path = "gs://openpi-assets/droid/droid_sample_ranges_v1_0_1.json"
    with pytest.raises(robocache.Unsupported, match="remote"):
        openpi.read_config(given)
    given.data.create().datasets = [one, one]
    with pytest.raises(robocache.Unsupported, match="2 datasets"):
        openpi.read_config(given)
