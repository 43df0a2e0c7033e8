"""The table of metrics of a dataset: one row per episode."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _checks
from ._errors import Misuse, Unsupported
from ._results import Finding, Result
from ._verbs import run_verb

__all__ = ["Metric", "Quality", "quality"]


class Metric(Result):
    """A metric of a Quality. docs/quality.md describes all of them.

    Attributes:
        name: The name of the column.
        group: "motion", "gripper", "consistency", "clocks", "images",
            "outcome" or "set".
        unit: The unit: "s", "Hz", "share", "count" and so on. None: none.
        summary: What the metric measures, in one sentence.
        worse: 1 if large values are suspicious, -1 if small ones are, None if both are.
        source: Where the formula is from.
        inferred: True if a finding is inferred, None if it is measured.
        count: The number of episodes with a value.
        min: The smallest value, or None.
        median: The median, or None.
        max: The largest value, or None.
        findings: The number of episodes with a finding.
    """

    name: str
    group: str
    unit: str | None
    summary: str
    worse: int | None
    source: str
    inferred: bool | None
    count: int
    min: float | None
    median: float | None
    max: float | None
    findings: int


class Quality(Mapping[str, Any]):
    """The metrics of the episodes of a dataset: a mapping of column names to columns.

    A column of numbers is a NumPy array, with NaN for a missing value. The columns of texts (task,
    source, error) are arrays of objects. pandas and polars use the numbers without a copy:
    `pandas.DataFrame(q.columns, copy=False)` and `polars.DataFrame(q)`, which needs pyarrow.

    Attributes:
        uri: The path or URI of the dataset.
        out: The table that was written, or None.
        columns: The columns by name: episode_index, task, length, source, source_episode, error,
            and the metrics.
        metrics: The metrics, in the order of the columns.
        findings: The episodes that differ from the others, and those that cannot be measured.
    """

    uri: str
    out: str | None
    columns: dict[str, np.ndarray]
    metrics: list[Metric]
    findings: list[Finding]

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.uri = answer["uri"]
        self.out = answer.get("out")
        self.metrics = [Metric(m) for m in answer["metrics"]]
        self.findings = [Finding(f) for f in answer["findings"]]
        self.columns = {}
        for c in answer["columns"]:
            if c["dtype"] == "text":
                column = np.array(c.get("texts") or [], dtype=object)
            else:
                data = base64.b64decode(c.get("data") or "")
                column = np.frombuffer(data, dtype=np.dtype(c["dtype"]).newbyteorder("<"))
            self.columns[c["name"]] = column

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self.columns[name]
        except KeyError:
            hint = _checks.nearest_names(name, self.columns)
            raise Misuse(f"no column {name!r}", {"column": name}, hint) from None

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return len(self.columns["episode_index"])

    def to_pandas(self) -> Any:
        """Returns the table as a pandas.DataFrame, which shares the memory of the numbers.

        Raises:
            Unsupported: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as e:
            raise Unsupported("pandas is not installed", {}, "pip install pandas") from e
        return pandas.DataFrame(self.columns, copy=False)

    def to_arrow(self) -> Any:
        """Returns the table as a pyarrow.Table, which shares the memory of the numbers.

        Raises:
            Unsupported: pyarrow is not installed.
        """
        try:
            import pyarrow
        except ImportError as e:
            raise Unsupported("pyarrow is not installed", {}, "pip install pyarrow") from e
        arrays = {
            name: pyarrow.array(c, type=pyarrow.string() if c.dtype == object else None)
            for name, c in self.columns.items()
        }
        return pyarrow.table(arrays)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return (
            f"<robocache.Quality of {self.uri!r}: {self.num_episodes} episodes, "
            f"{len(self.metrics)} metrics, {len(self.findings)} findings>"
        )


def quality(uri: Any, *, progress: bool | None = None, **options: Any) -> Quality:
    """Measures every episode of a dataset, and lists those that differ from the others.

    The table is written as the command line does: into a local dataset, or to out. An interrupted
    call continues with the episodes that it measured. The GIL is free during the call. Ctrl-C stops
    the work.

    Args:
        uri: A path or URI of any readable format.
        progress: Whether to show progress on stderr. Default: if stderr is a terminal.
        options: Flags of `robocache quality --help`, with _ in place of -: frames= ("all", "sample"
            or "none"), episodes=, out= (a .parquet, .csv or .json file, or "-" for none), threads=,
            budget=, format=, map= and so on.

    Returns:
        A Quality.

    Raises:
        NotFound: The dataset does not exist.
        Unsupported: RoboCache cannot read the dataset.
        Misuse: An option is unknown or invalid.

    Example:
        q = robocache.quality("data/pusht", frames="none")
        good = q["episode_index"][q["idle"] < 0.3]
        table = q.to_pandas()
    """
    return Quality(run_verb("quality", [_checks.path_text(uri)], options, progress))
