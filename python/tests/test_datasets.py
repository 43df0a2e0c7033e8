"""The names of the earlier datasets: values, padding, batches and bad input.

Values are compared with the streams of the readers.
"""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robocache
from conftest import dataset_path
from robocache import _memory, _rtx, datasets
from robocache.datasets import (
    CALVINDataset,
    RLDSEpisode,
    RLDSStep,
    RoboMimicDataset,
    RTXDataLoader,
    RTXDataset,
    RTXEpisode,
    create_rtx_dataloader,
)

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module")
def bridge() -> str:
    return dataset_path("bridge_rlds")


@pytest.fixture(scope="module")
def calvin() -> str:
    return dataset_path("calvin_like")


@pytest.fixture(scope="module")
def robomimic() -> str:
    return str(Path(dataset_path("robomimic_like")) / "earliest_gzip.hdf5")


def frames(episode: robocache.Episode, key: str, **how: object) -> np.ndarray:
    return np.asarray(episode.streams[key].frames(image_dtype="float32", **how))  # type: ignore[arg-type]


def test_names(script) -> None:  # type: ignore[no-untyped-def]
    """`import robocache` makes robocache.datasets available without loading it or torch."""
    done = script(
        """
        import sys, robocache
        assert "robocache.datasets" not in sys.modules and "torch" not in sys.modules
        sys.modules["torch"] = None  # importing torch takes longer than the test
        assert robocache.datasets.RTXDataset.__name__ == "RTXDataset"
        assert robocache.RTXDataset is robocache.datasets.RTXDataset
        """
    )
    assert done.returncode == 0, done.stderr
    for name in datasets.__all__:
        assert getattr(robocache.datasets, name).__doc__


def test_rtx_values(bridge: str) -> None:
    """Each sequence holds consecutive rows of the reader's streams.

    After the end, the last row is repeated under a mask, and the action is no motion.
    """
    d = RTXDataset("bridge_dataset", bridge, sequence_length=4, image_size=None)
    reader = robocache.open(bridge, options={"split": "train"})
    assert d.dataset_name == "bridge_dataset" and d.target_hz == 5 and len(d) == 25 * 3
    for e in (0, 7, 24):
        ep = reader.episode(e)
        want = {
            k: np.asarray(ep.streams[k].values) for k in ("action", "observation.state", "reward")
        }
        rgb = frames(ep, "observation.image_0").transpose(0, 2, 3, 1)
        for part in range(3):
            item = d[3 * e + part]
            rows = np.minimum(np.arange(4 * part, 4 * part + 4), 9)
            pad = np.arange(4 * part, 4 * part + 4) > 9
            assert set(item) == {
                "observations",
                "actions",
                "rewards",
                "language",
                "episode_id",
                "rgb_is_pad",
                "proprio_is_pad",
                "actions_is_pad",
                "rewards_is_pad",
            }
            actions = want["action"][rows]
            actions[pad, :6] = 0  # after the end the pose does not change
            assert (
                np.array_equal(item["actions"], actions) and item["actions"].dtype == torch.float32
            )
            assert np.array_equal(item["observations"]["proprio"], want["observation.state"][rows])
            assert np.array_equal(item["rewards"], want["reward"].reshape(-1)[rows])
            assert item["observations"]["rgb"].shape == (4, 64, 64, 3) and np.array_equal(
                item["observations"]["rgb"], rgb[rows]
            )
            assert item["actions_is_pad"].tolist() == item["rgb_is_pad"].tolist() == pad.tolist()
            assert item["language"] == ep.tasks[0] != ""
            assert item["episode_id"] == str(e)
    assert (
        0 <= float(item["observations"]["rgb"].min())
        and 0.1 < float(item["observations"]["rgb"].max()) <= 1
    )


def test_rtx_options(bridge: str, tmp_path: Path) -> None:
    """Search paths of a dataset, splits, rates, roles of cameras, and the cache."""
    own = f"{bridge}/bridge_dataset/1.0.0"
    for how in (
        dict(path=bridge),
        dict(path=own),
        dict(data_dir=own),
        dict(dataset_name="anything", data_dir=own),
        dict(dataset_name="bridge_dataset", data_dir=bridge),
    ):
        d = RTXDataset(**how, sequence_length=10, max_episodes=3, image_size=(20, 30))  # type: ignore[arg-type]
        assert len(d) == 3 and d[2]["observations"]["rgb"].shape == (10, 20, 30, 3)
        d.close()
    assert (
        len(RTXDataset(path=own, split=None, sequence_length=10)) == 50
        and len(RTXDataset(path=own, split="val", sequence_length=10)) == 25
    )
    fast = RTXDataset(
        path=own, target_hz=50.0, sequence_length=91, modalities=["proprio", "language"]
    )
    item = fast[0]
    reader = fast.dataset.episode(0)
    at, state = np.arange(91) / 50, np.asarray(reader.streams["observation.state"].values)
    want = np.stack([np.interp(at, np.arange(10) / 5, c) for c in state.T.astype(np.float64)], 1)
    assert set(item["observations"]) == {"proprio"} and np.allclose(
        item["observations"]["proprio"], want, atol=1e-6
    )
    assert (
        not item["proprio_is_pad"].any()
        and item["rewards"].shape == (91,)
        and item["rewards_is_pad"].all()
        and not item["rewards"].any()
    )
    more = RTXDataset(
        path=own,
        sequence_length=10,
        image_size=None,
        cache_in_memory=True,
        streams={
            "rgb": "observation.image_1",
            "wrist_rgb": "observation.image_2",
            "proprio": ["observation.state", "discount"],
        },
    )
    item, ep = more[4], more.dataset.episode(4)
    for name, key in (("rgb", "observation.image_1"), ("wrist_rgb", "observation.image_2")):
        assert np.array_equal(item["observations"][name], frames(ep, key).transpose(0, 2, 3, 1))
    assert item["observations"]["proprio"].shape == (10, 8) and np.array_equal(
        item["observations"]["proprio"][:, 7], ep.streams["discount"].values.reshape(-1)
    )
    assert more[4]["actions"] is item["actions"] is more[-21]["actions"]
    size = sum(v.nbytes for v in more[4].values() if hasattr(v, "nbytes")) + sum(
        v.nbytes for v in more[4]["observations"].values()
    )
    few = RTXDataset(
        path=own,
        sequence_length=10,
        image_size=None,
        cache_in_memory=int(2.5 * size),
        streams=more._streams,
    )
    kept = [few[i] for i in range(4)]
    # the cache has space for two sequences
    assert [few[i]["actions"] is kept[i]["actions"] for i in range(4)] == [True, True, False, False]
    assert all(torch.equal(few[i]["actions"], kept[i]["actions"]) for i in range(4))
    with pytest.raises(robocache.Misuse, match="cache_in_memory"):
        RTXDataset(path=own, sequence_length=10, cache_in_memory="much")
    again = pickle.loads(pickle.dumps(fast))
    assert torch.equal(again[1]["actions"], fast[1]["actions"])
    loader = torch.utils.data.DataLoader(fast, batch_size=4, num_workers=2)
    assert torch.equal(next(iter(loader))["actions"][2], fast[2]["actions"])


def test_cache_of_batches(bridge: str, tmp_path: Any) -> None:
    """cache_in_memory= limits the bytes in memory.

    It sets no budget if a directory is the cache, or if no cache is requested.
    """
    how = dict(
        data_dir=bridge,
        sequence_length=5,
        image_size=(16, 16),
        cache_in_memory="1MiB",
        batch_size=8,
        num_workers=1,
    )
    for own in ({}, {"cache": str(tmp_path / "disk")}, {"cache": None}):
        with RTXDataLoader("bridge_dataset", **how, **own) as loader:  # type: ignore[arg-type]
            assert loader._config.get("cache_budget") == (None if own else 1 << 20)
            assert len(next(iter(loader))["actions"]) == 8


def test_episodes(bridge: str) -> None:
    """Steps and streams of an episode, and the earlier dict of tensors."""
    d = RTXDataset(path=bridge, max_episodes=2)
    ep, reader = d.episode(1), d.dataset.episode(1)
    assert (
        isinstance(ep, RLDSEpisode)
        and isinstance(ep.steps[0], RLDSStep)
        and len(ep) == 10
        and len(list(d.episodes)) == 2
    )
    assert (
        ep.dataset_name == "bridge_dataset"
        and ep.language_instruction == reader.tasks[0] == ep.steps[5].language_instruction
        and ep.success is None
    )
    assert (
        ep.episode_id == "1"
        and ep.steps[0].metadata["episode_id"]
        == reader.streams["episode_metadata.episode_id"].values[0]
    )
    assert [s.timestamp_ms for s in ep.steps[:3]] == [0, 200, 400]
    t = ep.to_tensor_dict()
    assert set(t) == {"observations", "actions", "rewards", "terminals", "episode_id", "success"}
    assert np.array_equal(t["actions"], reader.streams["action"].values) and np.array_equal(
        t["observations"]["proprio"], reader.streams["observation.state"].values
    )
    assert np.array_equal(
        t["observations"]["rgb"], frames(reader, "observation.image_0").transpose(0, 2, 3, 1)
    )
    assert t["rewards"].dtype == torch.float32 and np.array_equal(
        t["rewards"], reader.streams["reward"].values.reshape(-1)
    )
    assert t["terminals"].dtype == torch.bool and np.array_equal(
        t["terminals"], reader.streams["is_terminal"].values.reshape(-1)
    )
    with pytest.raises(robocache.Misuse, match="no steps"):
        RLDSEpisode([], "e", "d", None).to_tensor_dict()
    r = RTXEpisode.of(reader)
    assert (
        len(r) == 10
        and r.vision.shape == (10, 3, 64, 64)
        and r.vision.dtype == torch.uint8
        and r.proprio_times[1] == 0.2
    )
    got = robocache.resample_trajectories(
        r.actions[None], r.action_times[None], torch.tensor([[0.0, 0.1, 1.8]], dtype=torch.float64)
    )
    assert torch.allclose(got[0, 1], (r.actions[0] + r.actions[1]) / 2, atol=1e-6)


def test_rtx_batches(bridge: str) -> None:
    """The samples of batches are those of the dataset, each once, also after a resume."""
    how = dict(data_dir=bridge, sequence_length=5, image_size=(16, 16))
    d = RTXDataset("bridge_dataset", **how)  # type: ignore[arg-type]
    one = {(i["episode_id"], tuple(i["actions"][0].tolist())): i for i in d}
    with RTXDataLoader(
        "bridge_dataset", batch_size=8, num_workers=2, cache_in_memory=True, seed=1, **how
    ) as loader:  # type: ignore[arg-type]
        assert (
            len(loader) == 7 and isinstance(loader, robocache.Loader) and loader.num_samples == 50
        )
        seen = 0
        for b in loader:
            assert b["observations"]["rgb"].shape[1:] == (5, 16, 16, 3) and isinstance(
                b["language"], list
            )
            for i in range(len(b["actions"])):
                want = one[b["episode_id"][i], tuple(b["actions"][i, 0].tolist())]
                assert (
                    torch.equal(b["actions"][i], want["actions"])
                    and b["language"][i] == want["language"]
                )
                assert torch.equal(
                    b["observations"]["rgb"][i], want["observations"]["rgb"]
                ) and torch.equal(b["rewards"][i], want["rewards"])
                seen += 1
        assert seen == 50
        it = iter(loader)
        next(it)
        state, second = loader.state_dict(), next(it)
    with RTXDataLoader(
        "bridge_dataset", batch_size=8, seed=1, memory_budget="1GiB", threads=1, **how
    ) as again:  # type: ignore[arg-type]
        again.load_state_dict(state)
        assert (
            torch.equal(next(iter(again))["actions"], second["actions"])
            and again._config["threads"] == 1
            and again._config["memory_budget"] == 2**30
        )
    with RTXDataLoader("bridge_dataset", batch_size=50, split="val", **how) as val:  # type: ignore[arg-type]
        b = next(iter(val))
        # not shuffled
        assert [int(i) for i in b["episode_id"][::2]] == [
            int(val.sequences[i]["episode_id"]) for i in range(0, 50, 2)
        ]


def test_create_rtx_dataloader(bridge: str) -> None:
    """The earlier keys and shapes, with recorded frames or with vectors from an encoder."""
    loader = create_rtx_dataloader(
        bridge, batch_size=4, target_hz=10.0, episode_length_sec=2.5, device="cpu", seed=2
    )
    b = next(iter(loader))
    assert (
        b["vision"].shape == (4, 25, 3, 64, 64)
        and b["vision"].dtype == torch.float32
        and float(b["vision"].max()) <= 1
    )
    assert b["proprio"].shape == b["actions"].shape == (4, 25, 7) and torch.equal(
        b["fused"], b["proprio"]
    )
    assert len(b["language"]) == len(b["episode_id"]) == 4 and all(b["language"])
    for k in ("vision", "proprio", "actions", "rewards"):
        assert b[k + "_is_pad"].tolist() == [[False] * 19 + [True] * 6] * 4
    reader = {str(e.position): e for e in loader.datasets[0]}
    for i, name in enumerate(b["episode_id"]):
        x = np.asarray(reader[name].streams["action"].values, np.float64)
        want = np.stack([np.interp(np.arange(25) / 10, np.arange(10) / 5, c) for c in x.T], 1)
        want[:, :6] = 0
        # each tick has half of a row's change of pose
        want[:20, :6] = np.repeat(x[:, :6] / 2, 2, axis=0)
        assert np.allclose(b["actions"][i], want, atol=1e-6)
        assert np.array_equal(b["vision"][i, :19:2], frames(reader[name], "observation.image_0"))
    seen = []

    def encoder(f: torch.Tensor) -> torch.Tensor:
        seen.append((tuple(f.shape), torch.is_grad_enabled()))
        return f.mean((2, 3))

    v = next(
        iter(
            create_rtx_dataloader(
                bridge,
                batch_size=4,
                target_hz=10.0,
                episode_length_sec=2.5,
                device="cpu",
                seed=2,
                vision_encoder=encoder,
            )
        )
    )
    assert seen == [((25, 3, 64, 64), False)] * 4
    assert (
        torch.allclose(v["vision"], b["vision"].mean((3, 4)))
        and v["fused"].shape == (4, 25, 10)
        and torch.equal(v["fused"][..., 3:], b["proprio"])
    )
    raw = next(
        iter(
            create_rtx_dataloader(
                bridge,
                batch_size=2,
                device="cpu",
                image_dtype="uint8",
                image_size=(8, 8),
                modalities=["vision"],
            )
        )
    )
    assert (
        raw["vision"].shape == (2, 250, 3, 8, 8)
        and raw["vision"].dtype == torch.uint8
        and raw["proprio"] is None
        and raw["fused"] is None
    )
    vectors = next(
        iter(
            create_rtx_dataloader(
                bridge, batch_size=2, device="cpu", streams={"vision": "language_embedding"}
            )
        )
    )
    assert vectors["vision"].shape == (2, 250, 512) and vectors["fused"].shape == (2, 250, 519)
    with pytest.raises(robocache.Misuse, match=r"expected \(T, D\)"):
        next(
            iter(
                create_rtx_dataloader(
                    bridge, batch_size=2, device="cpu", vision_encoder=lambda f: f.mean()
                )
            )
        )
    with pytest.raises(robocache.Misuse, match="there are none"):
        next(
            iter(
                create_rtx_dataloader(
                    bridge,
                    batch_size=2,
                    device="cpu",
                    modalities=["proprio"],
                    vision_encoder=encoder,
                )
            )
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_create_rtx_dataloader_on_a_device(bridge: str) -> None:
    b = next(iter(create_rtx_dataloader(bridge, batch_size=4, seed=2)))
    host = next(iter(create_rtx_dataloader(bridge, batch_size=4, seed=2, device="cpu")))
    assert b["episode_id"] == host["episode_id"]
    for k, v in host.items():
        assert not torch.is_tensor(v) or b[k].is_cuda and torch.equal(b[k].cpu(), v)


def test_without_torch(bridge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, the values are the same and the type is a NumPy array."""
    with_torch = RTXDataset(
        path=bridge,
        sequence_length=4,
        image_size=(8, 8),
        streams={"proprio": ["observation.state", "discount"]},
        modalities=["vision", "proprio"],
    )[2]
    monkeypatch.setattr(_memory, "torch_module", lambda: None)
    d = RTXDataset(
        path=bridge,
        sequence_length=4,
        image_size=(8, 8),
        streams={"proprio": ["observation.state", "discount"]},
        modalities=["vision", "proprio"],
    )
    item = d[2]
    for k, v in (
        ("rgb", item["observations"]["rgb"]),
        ("proprio", item["observations"]["proprio"]),
    ):
        assert isinstance(v, np.ndarray) and np.array_equal(v, with_torch["observations"][k])
    assert item["rewards"].dtype == np.float32 and item["rewards_is_pad"].all()
    assert isinstance(d.episode(0).to_tensor_dict()["terminals"], np.ndarray)
    b = next(
        iter(
            create_rtx_dataloader(
                bridge, batch_size=2, device="cpu", vision_encoder=lambda f: f.mean((2, 3))
            )
        )
    )
    assert isinstance(b["fused"], np.ndarray) and b["fused"].shape == (2, 250, 10)


def test_calvin(calvin: str) -> None:
    """Annotated windows become episodes; tasks are found by name.

    Runs can be read as recorded, and cameras have roles.
    """
    d = CALVINDataset(calvin, sequence_length=10)
    reader = robocache.open(calvin, options={"language": "episodes"})
    assert len(d) == 2 + 2 + 3 and d.target_hz == 30
    at = 0
    for ep in reader:
        for first in range(0, len(ep), 10):
            rows = np.minimum(np.arange(first, first + 10), len(ep) - 1)
            item = d[at]
            assert np.array_equal(
                item["actions"], np.asarray(ep.streams["action"].values)[rows].astype(np.float32)
            )
            assert np.array_equal(
                item["proprio"],
                np.asarray(ep.streams["observation.robot_obs"].values)[rows].astype(np.float32),
            )
            assert (
                item["actions_is_pad"].tolist()
                == (np.arange(first, first + 10) >= len(ep)).tolist()
            )
            assert (
                item["language"] == ep.tasks[0]
                and item["episode_id"] == str(ep.position)
                and torch.equal(item["fused"], item["proprio"])
            )
            assert np.array_equal(item["vision"], frames(ep, "observation.rgb_static")[rows])
            assert np.array_equal(
                item["vision_gripper"], frames(ep, "observation.rgb_gripper")[rows]
            )
            at += 1
    names = [e.streams["language_task"].values[0] for e in reader]
    one = CALVINDataset(
        calvin, [names[0]], cameras=["gripper"], depth=True, target_hz=15, sequence_length=100
    )
    assert [i["episode_id"] for i in one] == [str(i) for i, n in enumerate(names) if n == names[0]]
    item = one[0]
    assert (
        item["vision"].shape == (100, 3, 84, 84)
        and item["depth"].shape == (100, 1, 84, 84)
        and "vision_gripper" not in item
    )
    in_mm = robocache.open(calvin, options={"language": "episodes"}, depth_unit="mm").episode(0)
    assert np.array_equal(
        item["depth"][:3], np.asarray(in_mm.streams["observation.depth_gripper"].values)[:6:2]
    )
    runs = CALVINDataset(calvin, None, sequence_length=100, streams={"actions": "rel_actions"})
    assert len(runs) == 2 and int((~runs[1]["actions_is_pad"]).sum()) == 28
    assert np.array_equal(
        runs[1]["actions"][:28],
        np.asarray(runs.dataset.episode(1).streams["rel_actions"].values).astype(np.float32),
    )


def test_robomimic(robomimic: str, tmp_path: Path) -> None:
    """Numbers without and with cameras, masks, another rate, and tasks by name or by words."""
    d = RoboMimicDataset(robomimic, sequence_length=16)
    reader = robocache.open(robomimic)
    assert len(d) == 2 + 2 + 3 and "observation.image" not in d.map.keys
    item, ep = d[1], reader.episode(0)
    rows = np.minimum(np.arange(16, 32), 23)
    assert np.array_equal(item["proprio"], np.asarray(ep.streams["observation.state"].values)[rows])
    assert np.array_equal(
        item["actions"], np.asarray(ep.streams["action"].values)[rows].astype(np.float32)
    )
    assert np.array_equal(
        item["rewards"],
        np.asarray(ep.streams["rewards"].values).reshape(-1)[rows].astype(np.float32),
    )
    assert (
        item["actions_is_pad"].tolist() == [False] * 8 + [True] * 8
        and item["language"] == ep.tasks[0]
    )
    seen = RoboMimicDataset(
        robomimic, obs_modality="image", split="valid", target_hz=10, sequence_length=59
    )
    assert len(seen) == 1 and seen[0]["episode_id"] == "1"
    assert np.array_equal(seen[0]["vision"][::2], frames(reader.episode(1), "observation.image"))
    assert (
        len(RoboMimicDataset(robomimic, [reader.episode(0).tasks[0].upper()], sequence_length=100))
        == 3
    )
    h5py = pytest.importorskip("h5py")
    named = tmp_path / "named.hdf5"
    shutil.copy(robomimic, named)
    with h5py.File(named, "r+") as f:
        f["data"].attrs["env_args"] = json.dumps(
            {
                "env_name": "G1PickBottle",
                "type": 2,
                "env_kwargs": {"control_freq": 20, "task": "pick the bottle up"},
            }
        )
    # by the name of the environment, or by words of the task
    for name in ("G1PickBottle", "pick the bottle up"):
        assert len(RoboMimicDataset(str(named), [name], sequence_length=100)) == 3
    with robocache.Loader(d.map, batch_size=7) as loader:  # map is an ordinary MapDataset
        assert next(iter(loader))["action"].shape == (7, 16, 26)


def test_use_robocache_warns_once(bridge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rtx, "_warned", False)
    with pytest.warns(UserWarning, match="one path"):
        a = RTXDataset(path=bridge, use_robocache=False, sequence_length=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create_rtx_dataloader(bridge, use_robocache=False, device="cpu")
        b = RTXDataset(path=bridge, sequence_length=4)
    assert torch.equal(a[0]["actions"], b[0]["actions"])


def test_bad_input(
    bridge: str, calvin: str, robomimic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad arguments are rejected at once.

    The class of the error fits, and the message names a remedy.
    """
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("TFDS_DATA_DIR", bridge)
    # found through the environment variable
    assert len(RTXDataset("bridge_dataset", sequence_length=10)) == 25
    for error, words, make in (
        (robocache.NotFound, "missing", lambda: create_rtx_dataloader(missing)),
        (robocache.NotFound, "missing", lambda: RTXDataset("bridge_dataset", missing)),
        (robocache.NotFound, "missing", lambda: RTXDataset(path=missing)),
        (robocache.NotFound, "missing", lambda: CALVINDataset(missing)),
        (robocache.NotFound, "missing", lambda: RoboMimicDataset(missing)),
        (
            robocache.NotFound,
            "did you mean 'bridge_dataset'",
            lambda: RTXDataset("bridge_datset", bridge),
        ),
        (robocache.NotFound, "bridge_dataset", lambda: RTXDataLoader("rt_1")),
        (robocache.NotFound, "features.json", lambda: RTXDataset(path=calvin)),
        (robocache.Misuse, "train, val", lambda: RTXDataset(path=bridge, split="test")),
        (robocache.Misuse, "expected dataset_name=, data_dir= or path=", RTXDataset),
        (robocache.Misuse, "one of them", lambda: RTXDataset(path=bridge, data_dir=bridge)),
        (
            robocache.Misuse,
            "did you mean 'vision'",
            lambda: RTXDataset(path=bridge, modalities=["visoin"]),
        ),
        (robocache.Misuse, "expected a list", lambda: RTXDataset(path=bridge, modalities="vision")),
        (robocache.Misuse, "to be depth", lambda: RTXDataset(path=bridge, modalities=["depth"])),
        (
            robocache.Misuse,
            "did you mean 'observation.state'",
            lambda: RTXDataset(path=bridge, streams={"proprio": "observation.stat"}),
        ),
        (
            robocache.Misuse,
            "expected numbers",
            lambda: RTXDataset(path=bridge, streams={"actions": "observation.image_0"}),
        ),
        (
            robocache.Misuse,
            "text",
            lambda: RTXDataset(path=bridge, streams={"proprio": "language_instruction"}),
        ),
        (
            robocache.Misuse,
            "expected a role",
            lambda: RTXDataset(path=bridge, streams={"language": "language_embedding"}),
        ),
        (robocache.Misuse, "sequence_length", lambda: RTXDataset(path=bridge, sequence_length=0)),
        (robocache.Misuse, "target_hz", lambda: RTXDataset(path=bridge, target_hz=-1)),
        (
            robocache.Misuse,
            "did you mean 'sequence_length'",
            lambda: RTXDataset(path=bridge, sequence_lenght=5),
        ),
        (
            robocache.Misuse,
            "sequence_lenght",
            lambda: RTXDataLoader("bridge_dataset", sequence_lenght=5),
        ),
        (robocache.Misuse, "num_workers", lambda: RTXDataLoader("bridge_dataset", num_workers=-1)),
        (
            robocache.Misuse,
            "vision_encoder",
            lambda: create_rtx_dataloader(bridge, vision_encoder=3),
        ),
        (
            robocache.Misuse,
            "more than 0",
            lambda: create_rtx_dataloader(bridge, episode_length_sec=0, device="cpu"),
        ),
        (robocache.Misuse, "cameras", lambda: CALVINDataset(calvin, cameras=["top"])),
        (robocache.Misuse, "tasks", lambda: CALVINDataset(calvin, ["no_such_task"])),
        (robocache.Misuse, "split", lambda: CALVINDataset(calvin, split="validation")),
        (
            robocache.Misuse,
            "did you mean 'depth'",
            lambda: RoboMimicDataset(robomimic, obs_modality="dept"),
        ),
        (
            robocache.Misuse,
            "no depth images",
            lambda: RoboMimicDataset(robomimic, obs_modality="depth"),
        ),
        (robocache.Misuse, "tasks", lambda: RoboMimicDataset(robomimic, tasks=["lift"])),
    ):
        with pytest.raises(error, match=words):
            make()
    if not torch.cuda.is_available():
        with pytest.raises(robocache.Unsupported, match="cuda"):
            create_rtx_dataloader(bridge)
