"""robocache.openpi, against samples that openpi's own code made (data/clients/openpi.npz)."""

from __future__ import annotations

import pickle
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
