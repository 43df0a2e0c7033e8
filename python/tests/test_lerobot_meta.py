"""LeRobotDatasetMetadata: lerobot's constructor, attributes and columns of the episodes table.

Covers each version of the format.
"""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path, synth

import robocache


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        synth(
            tmp_path_factory.mktemp("meta") / "set",
            "--episodes",
            "3",
            "--seconds",
            "1",
            "--size",
            "96x64",
            "--cameras",
            "1",
        )
    )


@pytest.fixture(scope="module")
def theirs() -> Any:
    return pytest.importorskip(
        "lerobot.datasets.dataset_metadata", reason="lerobot is not installed: it needs Python 3.12"
    ).LeRobotDatasetMetadata


@pytest.mark.parametrize("name", ["small", "g1_v30_exact", "g1_h264_v30", "g1_v30_drift"])
def test_as_lerobot(name: str, small: str, theirs: Any) -> None:
    path = small if name == "small" else dataset_path(name)
    a, b = (
        f("local/set", root=path, revision=None, force_cache_sync=False)
        for f in (robocache.LeRobotDatasetMetadata, theirs)
    )
    public = [n for n in dir(theirs) if not n.startswith("_")]
    assert [n for n in public if not hasattr(a, n)] == []
    simple = (
        "repo_id root fps robot_type features names shapes video_keys image_keys camera_keys "
        "depth_keys has_language_columns total_episodes total_frames"
    )
    simple += (
        " total_tasks chunks_size data_files_size_in_mb video_files_size_in_mb data_path "
        "video_path url_root"
    )
    for n in simple.split():
        assert getattr(a, n) == getattr(b, n), n
    assert a.get_chunk_settings() == b.get_chunk_settings()
    assert a.tasks.equals(b.tasks) and a.tasks.index.name == b.tasks.index.name

    for n, v in vars(b.info).items():
        assert getattr(a.info, n) == a.info[n] == v and n in a.info, n
    assert a.info.to_dict() == json.loads(json.dumps(a.info.to_dict()))
    assert {k: v for k, v in a.info.to_dict().items() if k in b.info.to_dict()} == b.info.to_dict()

    assert a.episodes.features == b.episodes.features and list(a.episodes) == list(b.episodes)
    assert a.episodes[-1] == b.episodes[-1] and a.episodes[1:3] == b.episodes[1:3]
    assert a.episodes["data/file_index"] == list(b.episodes["data/file_index"])
    assert a.episodes.to_pandas().equals(b.episodes.to_pandas())
    assert list(a.episodes.select([1, 0])) == list(b.episodes.select([1, 0]))
    middle = sorted(b.episodes["length"])[1]
    assert a.filter_episodes(lambda e: e["length"] >= middle) == b.filter_episodes(
        lambda e: e["length"] >= middle
    )
    assert (
        a.filter_episodes(lambda e: True, candidates=[2, 0])
        == b.filter_episodes(lambda e: True, candidates=[2, 0])
        == [0, 2]
    )
    for e in range(-1, a.total_episodes):
        assert a.get_data_file_path(e) == b.get_data_file_path(e)
        for k in b.video_keys:
            assert a.get_video_file_path(e, k) == b.get_video_file_path(e, k)
    for m in (a, b):
        with pytest.raises(IndexError):
            m.get_data_file_path(a.total_episodes)
        with pytest.raises(KeyError):
            m.get_video_file_path(0, "nope")
        m.ensure_readable()
    assert a.stats.keys() == b.stats.keys()
    for k, s in b.stats.items():
        for n, v in s.items():
            assert a.stats[k][n].shape == np.asarray(v).shape, (k, n)
            np.testing.assert_allclose(a.stats[k][n], v, rtol=1e-12, err_msg=f"{k} {n}")
    assert repr(a).splitlines()[:-1] == repr(b).splitlines()[:-1]


@pytest.mark.parametrize("name", ["g1_v21", "gr00t_picknplace_v20"])
def test_earlier_versions(name: str) -> None:
    """v2.0 and v2.1, which lerobot rejects, give the same table.

    The table includes the columns that v3.0 uses to find files.
    """
    path = dataset_path(name)
    m = robocache.LeRobotDatasetMetadata(path)
    rows = [
        json.loads(line) for line in (Path(path) / "meta/episodes.jsonl").read_text().splitlines()
    ]
    assert list(m.episodes["length"]) == [r["length"] for r in rows] and list(
        m.episodes["tasks"]
    ) == [r["tasks"] for r in rows]
    for i, r in enumerate(rows):
        assert (m.root / m.get_data_file_path(i)).is_file()
        for k in m.video_keys:
            assert (m.root / m.get_video_file_path(i, k)).is_file()
            assert m.episodes[i][f"videos/{k}/from_timestamp"] == 0.0
            assert m.episodes[i][f"videos/{k}/to_timestamp"] == pytest.approx(r["length"] / m.fps)
    assert m.episodes["dataset_to_index"][-1] == m.total_frames
    assert m.info.codebase_version == m.info["codebase_version"] and "episode_index" in m.data_path


def test_set_and_copied(small: str) -> None:
    ds = robocache.LeRobotDataset("local/set", root=small)
    ds.meta.stats["action"]["mean"] = "mine"
    # the statistics of the dataset are another object
    assert isinstance(ds.dataset.stats["action"]["mean"], np.ndarray)
    ds.meta.stats = {"action": {"mean": np.zeros(2)}}
    assert list(ds.meta.stats) == ["action"]
    m = robocache.LeRobotDatasetMetadata(small)
    # the pickle must not contain data that can be read again
    _ = m.episodes, m.get_data_file_path(0)
    size = len(pickle.dumps(m))
    for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
        assert (
            list(other.episodes) == list(m.episodes)
            and other.info == m.info
            and other.root == m.root
        )
    m.episodes = m.episodes.select([0])
    assert len(pickle.loads(pickle.dumps(m)).episodes) == 1 and size < 20_000
    assert (
        ds.reader.num_frames == len(ds)
        and ds.writer is None
        and ds.has_pending_frames() is False
        and ds.finalize() is None
    )
    assert {str(p).split("/")[0] for p in ds.reader.get_episodes_file_paths()} == {"data", "videos"}


def test_wrong_use(small: str, tmp_path: Path) -> None:
    with pytest.raises(robocache.NotFound, match="root="):
        robocache.LeRobotDatasetMetadata("nobody/nothing-of-that-name")
    with pytest.raises(robocache.NotFound):
        robocache.LeRobotDatasetMetadata("local/set", root=tmp_path / "nothing")
    with pytest.raises(robocache.Misuse, match="revision"):
        robocache.LeRobotDatasetMetadata(small, revison="main")
    with pytest.raises(ValueError, match="repo_type"):
        robocache.LeRobotDatasetMetadata(small, repo_type="model")
    m = robocache.LeRobotDatasetMetadata(small)
    with pytest.raises(AttributeError, match="total_frames"):
        _ = m.info.total_frame
    with pytest.raises(robocache.Misuse, match="episodes"):
        robocache.LeRobotDataset(small, episodes=[0, 7])
    for f in (
        m.save_episode,
        m.create,
        robocache.LeRobotDataset.create,
        robocache.LeRobotDataset(small).push_to_hub,
    ):
        with pytest.raises(robocache.Unsupported, match="read-only"):
            f("local/other")


def test_columns_of_ones_own(small: str, tmp_path: Path) -> None:
    """Rows of the episodes table keep unknown columns of any type.

    Covers a column in only one of several files, rows out of order, and a path template that does
    not fit.
    """
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    root = tmp_path / "set"
    shutil.copytree(small, root)
    (file,) = root.glob("meta/episodes/*/*.parquet")
    table = pq.read_table(file).take([2, 0, 1])
    own = {
        "success": pa.array([True, None, False]),
        "score": pa.array([0.5, float("nan"), 2.0], pa.float32()),
        "note": pa.array(["c", "a é", None]),
        "marks": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
        "phases": pa.array([[{"name": "p", "at": 1}], [], []]),
        "small": pa.array([1, 2, 3], pa.uint8()),
    }
    for k, v in own.items():
        table = table.append_column(k, v)
    pq.write_table(table.slice(0, 2), file)
    pq.write_table(table.slice(2).drop_columns(["score"]), file.with_name("file-001.parquet"))
    m = robocache.LeRobotDatasetMetadata(str(root))
    assert list(m.episodes["episode_index"]) == [0, 1, 2]
    assert list(m.episodes["success"]) == [None, False, True] and list(m.episodes["note"]) == [
        "a é",
        None,
        "c",
    ]
    assert list(m.episodes["marks"]) == [[], None, [1, 2]] and m.episodes[2]["phases"] == [
        {"name": "p", "at": 1}
    ]
    score = list(m.episodes["score"])
    assert np.isnan(score[0]) and score[1] is None and score[2] == 0.5
    types = (
        m.episodes.to_pandas().dtypes
        if not hasattr(m.episodes.features["small"], "dtype")
        else {k: f.dtype for k, f in m.episodes.features.items() if hasattr(f, "dtype")}
    )
    assert str(types["small"]) == "uint8"
    info = json.loads((root / "meta/info.json").read_text())
    info["data_path"] = "elsewhere/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    (root / "meta/info.json").write_text(json.dumps(info))
    m = robocache.LeRobotDatasetMetadata(str(root))
    assert m.data_path.startswith("elsewhere") and (root / m.get_data_file_path(0)).is_file()
