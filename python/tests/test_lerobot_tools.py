"""lerobot's dataset tools and its aggregation, applied to our class.

Their output has the same items as when they are applied to lerobot's class.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
tools = pytest.importorskip(
    "lerobot.datasets.dataset_tools", reason="lerobot is not installed: it needs Python 3.12"
)
Theirs = tools.LeRobotDataset
Ours = robocache.LeRobotDataset

REWARD = {"dtype": "float32", "shape": (1,), "names": None}
VALUES = np.arange(20, dtype=np.float32).reshape(20, 1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tools") / "set"
    features = {
        "action": {"dtype": "float32", "shape": (6,), "names": None},
        "observation.images.top": {
            "dtype": "image",
            "shape": (64, 96, 3),
            "names": ["height", "width", "channels"],
        },
    }
    try:
        w = Theirs.create("local/tools", fps=10, features=features, root=root, use_videos=False)
        rng = np.random.default_rng(0)
        for e in range(4):
            for _ in range(5):
                w.add_frame(
                    {
                        "action": rng.normal(size=6).astype(np.float32),
                        "observation.images.top": rng.integers(0, 256, (64, 96, 3), dtype=np.uint8),
                        "task": f"task {e % 2}",
                    }
                )
            w.save_episode()
        w.finalize()
    except Exception as e:  # versions of lerobot differ in what they can record
        pytest.skip(f"this lerobot cannot record the test set: {e}")
    return root


def copied(d: Any, out: Path) -> Any:
    shutil.copytree(d.root, out)
    return type(d)("local/copy", root=out)


def renamed(d: Any, out: Path) -> Any:
    d = tools.modify_tasks(copied(d, out), new_task="another")
    assert d.meta.total_tasks == len(d.meta.tasks) == 1 and d.meta.episodes[3]["tasks"] == [
        "another"
    ]
    # the tool rewrote the rows on disk, so the set is opened again
    return type(d)("local/renamed", root=out)


def joined(d: Any, out: Path) -> Any:
    from lerobot.datasets.aggregate import aggregate_datasets

    aggregate_datasets(repo_ids=["a", "b"], roots=[d.root, d.root], aggr_repo_id="c", aggr_root=out)
    return type(d)("c", root=out)


@pytest.mark.parametrize(
    "use",
    [
        lambda d, out: tools.delete_episodes(d, [1], output_dir=out),
        lambda d, out: tools.split_dataset(d, {"train": [0, 1], "val": [2, 3]}, output_dir=out)[
            "val"
        ],
        lambda d, out: tools.merge_datasets([d, d], output_repo_id="m", output_dir=out),
        lambda d, out: tools.add_features(d, {"reward": (VALUES, REWARD)}, output_dir=out),
        lambda d, out: tools.modify_features(
            tools.add_features(d, {"reward": (VALUES, REWARD)}, output_dir=out / "first"),
            add_features={"done": (VALUES, REWARD)},
            remove_features="reward",
            output_dir=out / "second",
        ),
        lambda d, out: tools.remove_feature(d, "observation.images.top", output_dir=out),
        lambda d, out: tools.recompute_stats(copied(d, out)),
        renamed,
        lambda d, out: tools.convert_image_to_video_dataset(d, output_dir=out),
        joined,
    ],
    ids=[
        "delete",
        "split",
        "merge",
        "add",
        "modify",
        "remove",
        "stats",
        "tasks",
        "video",
        "aggregate",
    ],
)
def test_tool(
    use: Callable[[Any, Path], Any], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = use(Theirs("local/tools", root=source), tmp_path / "theirs")
    monkeypatch.setattr(tools, "LeRobotDataset", Ours)
    made = use(Ours("local/tools", root=source), tmp_path / "ours")
    for got in (made, Ours("local/again", root=made.root), Theirs("local/again", root=made.root)):
        assert len(got) == len(want) and got.meta.features.keys() == want.meta.features.keys()
        for i in range(len(want)):
            x, y = got[i], want[i]
            assert list(x) == list(y)
            for k, v in y.items():
                assert torch.equal(x[k], v) if isinstance(v, torch.Tensor) else x[k] == v, (i, k)
