"""lerobot's dataset classes in the form that openpi's data loader uses.

import robocache.openpi as lerobot_dataset  # in openpi/training/data_loader.py
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from . import _lerobotmeta, lerobot

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata"]


class TaskTable(dict[int, str]):
    """The tasks of a dataset: {task_index: text}, with the attributes of lerobot's table.

    tasks.get(0) and tasks.items() act as in lerobot 0.1, tasks.loc[text], tasks.index and
    tasks["task_index"] as in later versions.
    """

    def __init__(self, texts: Mapping[int, str], table: Any) -> None:
        super().__init__(texts)
        self._table = table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    def __missing__(self, key: Any) -> Any:
        return self._table[key]


class LeRobotDatasetMetadata(_lerobotmeta.LeRobotDatasetMetadata):
    """robocache.LeRobotDatasetMetadata whose tasks are also a dict {task_index: text}."""

    @cached_property
    def tasks(self) -> Any:
        """A TaskTable, or None if the dataset has no tasks."""
        table = super().tasks
        return None if table is None else TaskTable(self._dataset.tasks, table)


class LeRobotDataset(lerobot.LeRobotDataset):
    """robocache.LeRobotDataset whose meta.tasks is also a dict {task_index: text}.

    Example:
        import robocache.openpi as lerobot_dataset  # in openpi/training/data_loader.py
    """

    _metadata_class = LeRobotDatasetMetadata
