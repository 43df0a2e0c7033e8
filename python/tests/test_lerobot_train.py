"""lerobot-train over robocache.LeRobotDataset gives lerobot's losses, to the bit.

This holds for every step and for the held-out episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import dataset_path, synth

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
script = pytest.importorskip(
    "lerobot.scripts.lerobot_train", reason="lerobot is not installed: it needs Python 3.12"
)
pytest.importorskip("accelerate", reason="accelerate is not installed: lerobot trains with it")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        synth(
            tmp_path_factory.mktemp("train") / "set",
            "--episodes",
            "4",
            "--seconds",
            "1",
            "--size",
            "96x64",
        )
    )


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[float]]:
    """Returns a function that trains ACT through lerobot's entry point.

    The function returns the loss of each forward pass, in training and in evaluation.
    """
    from lerobot.configs.default import DatasetConfig, WandBConfig
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.datasets import factory
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    losses: list[float] = []
    forward = ACTPolicy.forward

    def recorded(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        out = forward(self, batch, *args, **kwargs)
        losses.append(out[0].item())
        return out

    monkeypatch.setattr(ACTPolicy, "forward", recorded)
    # it would reconfigure the root logger
    monkeypatch.setattr(script, "init_logging", lambda **_: None)

    def run(
        path: str,
        ours: bool,
        workers: int = 0,
        image_transforms: bool = False,
        meta: bool = False,
        steps: int = 4,
        **data: Any,
    ) -> list[float]:
        losses.clear()
        with monkeypatch.context() as m:
            if ours:
                m.setattr(factory, "LeRobotDataset", robocache.LeRobotDataset)
            if meta:
                m.setattr(factory, "LeRobotDatasetMetadata", robocache.LeRobotDatasetMetadata)
            dataset = DatasetConfig(repo_id="local/set", root=path, **data)
            dataset.image_transforms.enable = image_transforms
            policy = ACTConfig(
                device="cpu",
                push_to_hub=False,
                pretrained_backbone_weights=None,
                chunk_size=4,
                n_action_steps=4,
                dim_model=16,
                n_heads=2,
                dim_feedforward=32,
                n_encoder_layers=1,
                n_vae_encoder_layers=1,
                latent_dim=8,
            )
            cfg = TrainPipelineConfig(
                dataset=dataset,
                policy=policy,
                output_dir=tmp_path / f"run{len(list(tmp_path.iterdir()))}",
                job_name="test",
                seed=7,
                num_workers=workers,
                batch_size=3,
                steps=steps,
                log_freq=0,
                save_checkpoint=False,
                eval_steps=2 if data.get("eval_split") else 0,
                max_eval_samples=4,
                wandb=WandBConfig(enable=False),
            )
            script.train(cfg)
        return list(losses)

    return run


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"episodes": [2, 0], "image_transforms": True, "workers": 1},
        {"eval_split": 0.4, "episodes": [0, 1, 3], "image_transforms": True},
        {"eval_split": 0.25, "meta": True},
    ],
    ids=["plain", "workers", "eval", "meta"],
)
def test_losses_are_equal(
    small: str, train: Callable[..., list[float]], how: dict[str, Any]
) -> None:
    want = train(small, False, **{k: v for k, v in how.items() if k != "meta"})
    got = train(small, True, **how)
    assert len(want) > 4 if "eval_split" in how else len(want) == 4
    assert got == want


def test_version_that_it_refuses(train: Callable[..., list[float]]) -> None:
    """A v2.1 set, which lerobot rejects, can be trained on with our metadata class.

    The losses equal those of the same episodes in v3.0, except for the effect of statistics. v2.1
    keeps statistics by episode.
    """
    want = train(dataset_path("g1_v30_exact"), False, episodes=[1], steps=2)
    assert train(dataset_path("g1_v21"), True, meta=True, episodes=[1], steps=2) == pytest.approx(
        want, rel=1e-4
    )


def test_a_recording_converted_for_lerobot_trains(
    tmp_path: Path, train: Callable[..., list[float]]
) -> None:
    """`convert --preset lerobot` of a ROS 2 recording gives a set that lerobot can train on.

    lerobot's class opens the set, and ACT runs three steps on it.
    """
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    recording = Path(dataset_path("mcap_robot")) / "recording_zstd.mcap"
    path = tmp_path / "set"
    report = robocache.convert(recording, path, preset="lerobot")
    ds = LeRobotDataset("local/set", root=path, delta_timestamps={"action": [0, 1 / 30]})
    assert (ds.num_episodes, len(ds)) == (1, report.num_frames) and len(ds) > 60
    assert sorted(k for k in ds.features if k.startswith(("action", "observation."))) == [
        "action",
        "observation.images.camera",
        "observation.state",
    ]
    item = ds[10]
    assert (
        item["observation.state"].shape == (26,)
        and item["action"].shape == (2, 26)
        and item["observation.images.camera"].shape == (3, 240, 320)
    )
    assert item["task"] == "Pick up the yellow bottle on the table."
    # the action is the state of the next row, because the recording has no commands
    assert torch.equal(item["action"][0], ds[11]["observation.state"])
    losses = train(str(path), False, steps=3)
    assert len(losses) == 3 and all(torch.isfinite(torch.tensor(losses)))
