"""Texts: normalization, and episodes without one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import Order, Windows

TASKS = ['Pick UP, the "Ärm"_2 — déjà-vu!\t½ ①', "  ", "", "!?", "日本 ТЕСТ c'est.", "A\x1fb"]


@pytest.fixture(scope="module")
def labeled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a copy of a dataset with other tasks, of which some are empty."""
    source = Path(dataset_path("gr00t_picknplace_v20"))
    copy = tmp_path_factory.mktemp("texts")
    for entry in source.rglob("*.*"):
        if entry.suffix in (".parquet", ".json", ".jsonl", ".mp4") and entry.is_file():
            (to := copy / entry.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(entry.read_bytes())
    lines = [{"task_index": i, "task": TASKS[i % len(TASKS)]} for i in range(64)]
    (copy / "meta/tasks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(copy)


def test_texts_are_normalized_as_gr00t_does(labeled: str) -> None:
    keys = ["task", "task_index"]
    rule = Windows(text={"task": "lower_alphanumeric"})
    stored = robocache.MapDataset(labeled, keys=keys)
    normalized = robocache.MapDataset(labeled, keys=keys, windows=rule)
    plain, ours = (d.batch(range(len(d))) for d in (stored, normalized))
    assert len(set(plain["task"])) > 2 and max(plain["task"], key=len) == TASKS[0]
    assert ours["task"] == [re.sub(r"[^\w\s]", "", s.lower()) for s in plain["task"]]
    loader = robocache.Loader(labeled, keys=keys, batch_size=8, windows=rule, seed=3)
    want = dict(zip(plain["task_index"].tolist(), ours["task"]))
    batch = next(iter(loader))
    assert batch["task"] == [want[int(k)] for k in batch["task_index"]]


def test_episodes_without_a_text_are_left_out(labeled: str) -> None:
    keys = ["task", "episode_index"]
    every = robocache.MapDataset(labeled, keys=keys)
    every = every.batch(range(len(every)))
    episodes = every["episode_index"].numpy()
    texts = np.array(every["task"])
    want = [e for e in np.unique(episodes) if any(texts[episodes == e] != "")]
    assert 0 < len(want) < len(np.unique(episodes))
    order = Order(require_text="task")
    some = robocache.MapDataset(labeled, keys=keys, order=order)
    got = some.batch(range(len(some)))["episode_index"].numpy()
    assert np.array_equal(got, episodes[np.isin(episodes, want)])
    loader = robocache.Loader(labeled, keys=keys, batch_size=16, order=order)
    assert loader.num_samples == len(got)
    state = loader.state_dict()
    with pytest.raises(robocache.Misuse, match="other data"):
        robocache.Loader(labeled, keys=keys, batch_size=16).load_state_dict(state)


@pytest.mark.parametrize(
    "groups,words",
    [
        ({"windows": Windows(text={"action": "lower_alphanumeric"})}, "texts"),
        ({"windows": Windows(text={"tsk": "lower_alphanumeric"})}, "'task'"),
        ({"windows": Windows(text={"task": "upper"})}, "lower_alphanumeric"),
        ({"order": Order(require_text="action")}, "texts"),
        ({"order": Order(require_text="tasks")}, "'task'"),
    ],
)
def test_misuse_of_texts(labeled: str, groups: dict, words: str) -> None:
    with pytest.raises(robocache.Misuse, match=words):
        robocache.Loader(labeled, batch_size=4, **groups)
