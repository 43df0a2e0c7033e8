"""Delta Lake tables compared with delta-rs (package deltalake).

Covers reading, appending, checkpoints, and features that the reader rejects.
"""

import glob
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import robocache

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
DeltaTable, write_deltalake = deltalake.DeltaTable, deltalake.write_deltalake


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("delta") / "src")
    _cli(
        "synth",
        uri,
        "--episodes",
        "4",
        "--seconds",
        "0.5",
        "--cameras",
        "1",
        "--seed",
        "3",
        "--spread",
        "0.5",
    )
    return uri


def _cli(*args, check=True):
    r = subprocess.run(
        [sys.executable, "-m", "robocache", *args], capture_output=True, text=True, env=os.environ
    )
    assert not check or r.returncode == 0, r.stderr
    return r


def _rows(uri):
    return (
        DeltaTable(uri)
        .to_pyarrow_table()
        .sort_by([("episode_index", "ascending"), ("frame_index", "ascending")])
    )


def _plain(n, first=0, partition=(), **more):
    """Returns rows as in a table of another writer: n episodes of 5 rows."""
    index = np.arange(5 * n)
    state = (index[:, None] + np.arange(3)).astype(np.float32)
    return pa.table(
        {
            "episode_index": pa.array(first + index // 5, pa.int64()),
            "frame_index": pa.array(index % 5, pa.int64()),
            "timestamp": (index % 5) / 10,
            "observation.state": pa.array(list(state), pa.list_(pa.float32())),
            "task": pa.array([f"task {i // 5 % 2}" for i in index]),
            **more,
        }
    )


def _same(uri, source):
    """Asserts that each row of the table equals the source, to the bit.

    The table is read by robocache and by deltalake.
    """
    src, ds, rows = robocache.open(source), robocache.open(uri), _rows(uri)
    at = 0
    for e in range(src.num_episodes):
        a, b = src.episode(e), ds.episode(e)
        assert a.length == b.length
        for key, stream in a.streams.items():
            if stream.kind != "numeric" or key in ("index", "task_index"):
                continue
            want = np.asarray(stream.values)
            got = np.asarray(b.streams[key].values)
            if key == "timestamp":  # timestamps are float64 seconds here
                assert np.array_equal(np.asarray(stream.times), np.asarray(b.streams[key].times))
                continue
            assert want.dtype == got.dtype and np.array_equal(want, got), key
            if key in rows.column_names:
                theirs = np.array(rows[key][at : at + a.length].to_pylist())
                assert np.array_equal(theirs.astype(want.dtype).reshape(want.shape), want), key
        assert b.tasks == a.tasks
        at += a.length
    assert rows.num_rows == at


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["", "task", "source"])
def test_theirs_reads_ours(source, tmp_path, partition):
    uri = str(tmp_path / "t")
    robocache.convert(source, uri, to="delta", write_option=[f"partition={partition}"])
    _same(uri, source)
    t = DeltaTable(uri)
    assert (
        t.version() == 0
        and t.protocol().min_reader_version == 1
        and t.protocol().min_writer_version == 2
    )
    assert t.metadata().partition_columns == ([partition] if partition else [])
    # The statistics of each file must agree with its rows, because readers skip files by them.
    import pyarrow.dataset as pds

    one = t.to_pyarrow_dataset().to_table(filter=pds.field("episode_index") == 2)
    assert set(one["episode_index"].to_pylist()) == {2}
    added = pa.table(t.get_add_actions(flatten=True)).to_pydict()
    assert (
        sum(added["num_records"]) == _rows(uri).num_rows
        and max(added["max.episode_index"]) == 3
        and min(added["null_count.episode_index"]) == 0
    )
    # Videos are stored next to the table. The path, the packet's position and the checksum must be
    # right.
    cam = next(c for c in _rows(uri).column_names if c.startswith("observation.images"))
    import hashlib

    for ref in _rows(uri)[cam].to_pylist()[::7]:
        data = open(os.path.join(uri, ref["path"]), "rb").read()
        assert ref["checksum"] == "sha256:" + hashlib.sha256(data).hexdigest() and 0 < ref[
            "offset"
        ] < ref["offset"] + ref["length"] <= len(data)
    assert _cli("doctor", uri, check=False).returncode == 0


def test_frames(source, tmp_path):
    robocache.convert(source, tmp_path / "t", to="delta")
    cam = next(k for k, f in robocache.open(source).features.items() if f.kind == "video")
    for a, b in zip(
        robocache.Loader(source, batch_size=4, shuffle=False, keys=[cam]),
        robocache.Loader(str(tmp_path / "t"), batch_size=4, shuffle=False, keys=[cam]),
        strict=True,
    ):
        assert (a[cam] == b[cam]).all()


def test_add_in_turn(source, tmp_path):
    """robocache and deltalake write to one table in turn, and each reads the other's commits.

    The steps are write, append, append, delete and compact.
    """
    uri = str(tmp_path / "t")
    robocache.convert(source, uri, to="delta", write_option=["partition=task"])
    rows = _rows(uri)
    n = rows.num_rows
    more = rows.set_column(
        rows.column_names.index("episode_index"),
        "episode_index",
        pa.array(np.asarray(rows["episode_index"]) + 4),
    )
    write_deltalake(uri, more, mode="append")
    ds = robocache.open(uri)
    assert (ds.num_episodes, ds.num_frames) == (8, 2 * n)
    robocache.convert(source, uri, to="delta", write_option=["append=true"])
    assert _rows(uri).num_rows == 3 * n and sorted(
        set(_rows(uri)["episode_index"].to_pylist())
    ) == list(range(12))
    DeltaTable(uri).delete("episode_index < 4")
    DeltaTable(uri).optimize.compact()
    ds = robocache.open(uri)
    assert (ds.num_episodes, ds.num_frames) == (8, 2 * n)
    for e in (0, 4):
        a, b = robocache.open(source).episode(0), ds[e]
        assert np.array_equal(a.streams["action"].values, b.streams["action"].values)
    old = robocache.open(uri, options={"version": "0"})
    assert old.num_episodes == 4


def test_ours_adds_to_theirs(source, tmp_path):
    uri = str(tmp_path / "t")
    src = robocache.open(source)
    dims = {k: src.features[k].shape[0] for k in ("observation.state", "action")}
    t = pa.table(
        {
            "episode_index": pa.array([7, 7], pa.int64()),
            "frame_index": pa.array([0, 1], pa.int32()),
            "timestamp": pa.array([0, 0.1], pa.float32()),
            **{k: pa.array([[0.5] * n] * 2, pa.list_(pa.float64())) for k, n in dims.items()},
        }
    )
    write_deltalake(uri, t)
    r = robocache.convert(source, uri, to="delta", write_option=["append=true"])
    assert any("observation.images" in k for k in r["dropped_features"])
    assert sorted(set(_rows(uri)["episode_index"].to_pylist())) == [7, 8, 9, 10, 11]
    ds = robocache.open(uri)
    assert ds.num_episodes == 5
    assert np.array_equal(
        ds.episode(8).streams["action"].values,
        np.asarray(src.episode(0).streams["action"].values, np.float64),
    )
    again = tmp_path / "set"  # and convert the table to LeRobot
    robocache.convert(uri, again, fps=10)
    assert robocache.open(again).num_episodes == 5


@pytest.mark.slow
def test_writers_at_once(source, tmp_path):
    """robocache and deltalake append at the same time.

    Each append is committed once, and all episodes have distinct numbers.
    """
    uri = str(tmp_path / "t")
    robocache.convert(source, uri, to="delta")
    n = _rows(uri).num_rows
    ours = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "robocache",
                "convert",
                source,
                uri,
                "--to",
                "delta",
                "--write-option",
                "append=true",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    theirs = 0
    while any(p.poll() is None for p in ours):
        rows = (
            _rows(uri)
            .slice(0, 1)
            .drop_columns(["frame_index"])
            .append_column("frame_index", pa.array([10_000 + theirs], pa.int64()))
        )
        write_deltalake(uri, rows, mode="append", schema_mode="merge")
        theirs += 1
    assert [p.wait() for p in ours] == [0] * 4, [p.stderr.read() for p in ours]
    assert _rows(uri).num_rows == 5 * n + theirs and set(
        _rows(uri)["episode_index"].to_pylist()
    ) == set(range(20))
    assert robocache.open(uri).num_episodes == 20


def test_checkpoints(source, tmp_path):
    """A checkpoint of deltalake, also in several parts, replaces the commits that were removed."""
    uri = str(tmp_path / "t")
    robocache.convert(source, uri, to="delta", write_option=["partition=task"])
    robocache.convert(source, uri, to="delta", write_option=["append=true"])
    DeltaTable(uri).create_checkpoint()
    write_deltalake(
        uri,
        _rows(uri)
        .slice(0, 3)
        .drop_columns(["episode_index"])
        .append_column("episode_index", pa.array([50] * 3, pa.int64())),
        mode="append",
        schema_mode="merge",
    )
    want = robocache.open(uri).num_frames
    log = os.path.join(uri, "_delta_log")
    for name in ("0" * 20 + ".json", "0" * 19 + "1.json", "_last_checkpoint"):
        os.remove(os.path.join(log, name))
    assert (robocache.open(uri).num_frames, robocache.open(uri).num_episodes) == (want, 9)
    whole = os.path.join(log, "0" * 19 + "1.checkpoint.parquet")
    t = pq.read_table(whole)
    for i, part in enumerate((t.slice(0, 3), t.slice(3))):
        pq.write_table(
            part, os.path.join(log, f"{'0' * 19}1.checkpoint.{i + 1:010d}.0000000002.parquet")
        )
    os.remove(whole)
    assert (robocache.open(uri).num_frames, robocache.open(uri).num_episodes) == (want, 9)
    os.remove(glob.glob(os.path.join(log, "*.0000000002.0000000002.parquet"))[0])
    with pytest.raises(robocache.NotFound, match="a commit is missing"):
        robocache.open(uri)


def test_nulls_and_new_columns(tmp_path):
    uri = str(tmp_path / "t")
    write_deltalake(uri, _plain(2, more=pa.array([1.5, None] * 5)))
    write_deltalake(
        uri,
        _plain(1, first=2, later=pa.array([7] * 5, pa.int64())),
        mode="append",
        schema_mode="merge",
    )
    ds = robocache.open(uri)
    assert ds.num_episodes == 3 and ds.features["observation.state"].shape == (3,)
    batch = next(
        iter(
            robocache.Loader(
                uri, batch_size=15, shuffle=False, keys=["more", "later", "observation.state"]
            )
        )
    )
    assert (
        batch["later"].reshape(-1).tolist() == [0] * 10 + [7] * 5
        and batch["more"].reshape(-1).tolist() == [1.5, 0.0] * 5 + [0.0] * 5
    )
    assert np.array_equal(
        np.asarray(batch["observation.state"])[:5],
        np.arange(5, dtype=np.float32)[:, None] + np.arange(3),
    )


@pytest.mark.parametrize("by", [["episode_index"], ["task"], ["task", "episode_index"]])
def test_partitions_of_theirs(tmp_path, by):
    uri = str(tmp_path / "t")
    write_deltalake(uri, _plain(4), partition_by=by)
    ds = robocache.open(uri)
    assert (
        ds.num_episodes == 4
        and [ds.episode(e).tasks[0] for e in range(4)] == ["task 0", "task 1"] * 2
    )
    assert np.array_equal(
        ds.episode(3).streams["observation.state"].values[:, 0], np.arange(15, 20)
    )


def test_partitions_without_a_value(tmp_path):
    uri = str(tmp_path / "t")
    odd = ["a/b=c d%20?é#\n", None]
    t = (
        _plain(4, robot=pa.array([3, 3, None, None] * 5, pa.int64()))
        .drop_columns(["task"])
        .append_column("task", pa.array([odd[i // 5 % 2] for i in range(20)], pa.string()))
    )
    write_deltalake(uri, t, partition_by=["robot", "task"])
    ds = robocache.open(uri)
    assert ds.num_episodes == 4 and [list(ds.episode(e).tasks) for e in range(2)] == [[odd[0]], []]
    batch = next(iter(robocache.Loader(uri, batch_size=20, shuffle=False, keys=["robot"])))
    assert batch["robot"].reshape(-1).tolist() == [3, 3, 0, 0] * 5
    write_deltalake(
        str(tmp_path / "days"),
        _plain(2, day=pa.array([86_400_000_000] * 10, pa.timestamp("us", "UTC"))),
        partition_by=["day"],
    )
    ds = robocache.open(str(tmp_path / "days"))
    assert (
        ds.num_episodes == 2
        and "day" not in ds.features
        and [f["code"] for f in ds.findings] == ["column-left-out"]
    )


def test_rows_a_thousand_times(tmp_path):
    """A column that would make each row an episode is rejected quickly."""
    uri = str(tmp_path / "t")
    write_deltalake(uri, _plain(1000, zero=pa.array([0] * 5000), one=pa.array([1] * 5000)))
    with pytest.raises(robocache.Malformed, match="more than 4096 times"):
        robocache.open(uri, options={"episode": "zero", "frame": "one"})
    assert (
        robocache.open(
            uri, options={"episode": "frame_index", "frame": "episode_index"}
        ).num_episodes
        == 5
    )


def test_refused_by_name(tmp_path):
    t = _plain(2)

    def made(name, **conf):
        write_deltalake(str(tmp_path / name), t, configuration=conf)
        return str(tmp_path / name)

    vectors = made("vectors", **{"delta.enableDeletionVectors": "true"})
    # deletion vectors are enabled, but no file has one
    assert robocache.open(vectors).num_frames == 10
    log = os.path.join(vectors, "_delta_log", "0" * 20 + ".json")
    text = open(log).read()
    lines = [json.loads(x) for x in text.splitlines()]

    def edited(edit):
        own = json.loads(json.dumps(lines))
        for x in own:
            edit(x)
        with open(log, "w") as f:
            f.write("\n".join(json.dumps(x) for x in own))
        return vectors

    dv = {"storageType": "i", "pathOrInlineDv": "abc", "sizeInBytes": 3, "cardinality": 1}
    mapped = made(
        "mapped",
        **{
            "delta.columnMapping.mode": "name",
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
        },
    )
    for what, match in [
        (lambda x: x.get("add", {}).update(deletionVector=dv), "deletionVectors"),
        (lambda x: x.get("protocol", {}).update(readerFeatures=["v2Checkpoint"]), "v2Checkpoint"),
        (lambda x: x.get("protocol", {}).update(readerFeatures=["typeWidening"]), "typeWidening"),
        (lambda x: x.get("protocol", {}).update(minReaderVersion=4), "protocol 4"),
        (lambda x: x.get("add", {}).update(path="s3://other/part.parquet"), "absolute"),
        (lambda x: x.get("add", {}).update(path="/etc/passwd"), "absolute"),
        (None, "columnMapping"),
    ]:
        with pytest.raises(robocache.Unsupported, match=match):
            robocache.open(edited(what) if what else mapped)
    with pytest.raises(robocache.Malformed, match=r'"\.\."'):
        robocache.open(edited(lambda x: x.get("add", {}).update(path="a/%2e%2e/../b.parquet")))
    write_deltalake(str(tmp_path / "rows"), t.drop_columns(["episode_index"]))
    with pytest.raises(robocache.Unsupported, match="episode_index.*option"):
        robocache.open(str(tmp_path / "rows"))
    assert (
        robocache.open(str(tmp_path / "rows"), options={"episode": "frame_index"}).num_episodes == 5
    )
