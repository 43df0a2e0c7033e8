"""Shards and Ray Data on a real Ray cluster of two nodes.

`make engines` installs Ray. Run with .build/ray/bin/python -m pytest python/tests/test_ray.py.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import cli, dataset_path, synth

import robocache

try:
    import ray
    import ray.cluster_utils
    import ray.data
except ImportError:
    ray = None

needs_ray = pytest.mark.skipif(
    ray is None,
    reason="no Ray in this Python: 'make engines' puts it into .build/ray, "
    "and 'make test-ray' runs these tests there",
)

# $DIR/codes/I holds the exit codes of the attempts at shard I; later attempts exit with 0. "worker"
# kills Ray's worker.
WORKER = """#!/bin/sh
dir='{dir}'; verb=$1; shift
while [ $# -gt 0 ]; do case $1 in --shard) shard=$2;; --partial) partial=1;; esac; shift; done
case $verb in
status) echo '{{"total": {total}, "missing": "0-{last}"}}' ;;
run)
  echo $PPID >> "$dir/workers"
  echo "run $shard" >> "$dir/log"
  while [ -e "$dir/hold" ]; do sleep 0.1; done
  code=$(head -1 "$dir/codes/$shard" 2>/dev/null || echo 0)
  sed -i 1d "$dir/codes/$shard" 2>/dev/null
  case ${{code:=0}} in worker) kill -9 $PPID;; signal) kill -9 $$;; 0|3) ;; *) echo "robocache: shard says $code" >&2;; esac
  exit "$code" ;;
commit) echo "commit $partial" >> "$dir/log"; echo '{{"findings": []}}'; exit 3 ;;
esac
"""


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    c = ray.cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": 200_000_000,
            "include_dashboard": False,
        },
    )
    c.add_node(num_cpus=1, object_store_memory=200_000_000)
    ray.init(address=c.address, log_to_driver=False)
    assert len(ray.nodes()) == 2
    yield c
    ray.shutdown()
    c.shutdown()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(robocache.ray, "_PAUSE_SECONDS", 0.05)


def worker(folder: Path, total: int, codes: dict[int, str]) -> list[str]:
    (folder / "codes").mkdir()
    for i, c in codes.items():
        (folder / "codes" / str(i)).write_text(c.replace(" ", "\n") + "\n")
    program = folder / "worker"
    program.write_text(WORKER.format(dir=folder, total=total, last=total - 1))
    program.chmod(0o755)
    return [str(program)]


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def alive(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


@needs_ray
def test_run_tries_again(cluster, tmp_path, quick):
    program = worker(tmp_path, 6, {1: "75 75", 2: "worker", 3: "3", 4: "signal"})
    r = robocache.ray.run("mem://plan.json", program=program, retries=2)
    assert r == {
        "total": 6,
        "done": 6,
        "failed": 0,
        "findings": 1,
        "retries": 4,
        "codes": {"75": 2, "lost": 1, "signal": 1},
        "committed": True,
        "commit": {"findings": []},
        "exit_code": 3,
    }
    calls = log(tmp_path)
    assert calls.count("run 1") == 3 and calls.count("run 2") == 2 and calls[-1] == "commit "


@needs_ray
def test_run_stops(cluster, tmp_path, quick):
    program = worker(tmp_path, 30, {0: "42"})
    with pytest.raises(robocache.Error, match="exit code 42: shard says 42") as e:
        robocache.ray.run("mem://plan.json", program=program, in_flight=2)
    assert e.value.where["shard"] == 0 and len(log(tmp_path)) < 10
    (tmp_path / "2").mkdir()
    program = worker(tmp_path / "2", 4, {0: "12", 1: "75 75"})
    r = robocache.ray.run("mem://plan.json", program=program, retries=1, partial=True)
    assert (r.done, r.failed, r.committed) == (2, 2, True) and log(tmp_path / "2")[-1] == "commit 1"
    with pytest.raises(robocache.NotFound):
        robocache.ray.run(tmp_path / "nothing.json")


@needs_ray
def test_what_ray_says_is_typed(cluster, caplog):
    from ray import exceptions

    for program in (["/none/robocache"], ["/etc/passwd"], ["echo", "no JSON"]):
        with pytest.raises(robocache.Misuse, match="program"):
            robocache.ray.run("mem://plan.json", program=program)
    typed = {
        exceptions.WorkerCrashedError(): robocache.Temporary,
        exceptions.NodeDiedError("gone"): robocache.Temporary,
        exceptions.OutOfMemoryError("too much"): robocache.ResourceLimit,
        exceptions.TaskUnschedulableError("no such node"): robocache.Misuse,
        exceptions.RuntimeEnvSetupError("no"): robocache.Misuse,
    }
    for e, want in typed.items():
        got = robocache.ray._convert_exception(e, "run", {"shard": 1})
        assert type(got) is want and got.where == {"shard": 1}, e
    for cause, want in (
        (ModuleNotFoundError("robocache"), robocache.Unsupported),
        (KeyError("x"), robocache.Error),
        (robocache.Malformed("m"), robocache.Malformed),
    ):
        assert (
            type(
                robocache.ray._convert_exception(
                    exceptions.RayTaskError("f", "trace", cause), "run", {}
                )
            )
            is want
        )
    nothing = ["sh", "-c", "echo '{\"total\": 1}'"]  # a plan with no shard left to run
    assert robocache.ray.run("mem://plan.json", program=nothing, resources={"arm": 1}).committed
    assert "no node of the cluster has" in caplog.text and "arm" in caplog.text


@needs_ray
def test_read_damaged(cluster, tmp_path):
    """A read task raises the class that opening the dataset here raises, with the place."""
    copy = shutil.copytree(dataset_path("g1_h264_v30"), tmp_path / "set")
    ds = robocache.ray.read(copy, keys=["action"])
    next(copy.rglob("data/**/*.parquet")).unlink()
    with pytest.raises(robocache.NotFound) as e:
        ds.take_all()
    assert e.value.where["file"].startswith("data/")


@needs_ray
def test_run_without_a_node(cluster, tmp_path, quick):
    """If a node dies, the other node runs its shards."""
    program = worker(tmp_path, 8, {})
    (tmp_path / "hold").touch()
    node = cluster.add_node(num_cpus=2, resources={"doomed": 1}, object_store_memory=100_000_000)

    def later() -> None:
        # the node that dies runs two of the shards, as many as it has CPUs
        while not (tmp_path / "log").exists() or len(log(tmp_path)) < 4:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        workers = (tmp_path / "workers").read_text().split()
        # these processes live for a moment and could still complete their shards
        while all(alive(w) for w in workers):
            time.sleep(0.05)
        (tmp_path / "hold").unlink()

    t = threading.Thread(target=later)
    t.start()
    r = robocache.ray.run("mem://plan.json", program=program)
    t.join()
    assert r.done == 8 and r.codes.get("lost", 0) >= 1 and r.committed


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.relative_to(folder).parts[0].startswith("_")
    }


@needs_ray
def test_real_shards(cluster, tmp_path):
    """With a real plan, Ray and local processes write the same dataset."""
    source = synth(tmp_path / "src", "--codec", "png", "--episodes", "5", "--seconds", "1")
    for name in ("ray", "local"):
        done = cli(
            "plan",
            "convert",
            str(source),
            str(tmp_path / name),
            "--images",
            "images",
            "--shards",
            "3",
            "--manifest",
            str(tmp_path / f"{name}.json"),
        )
        assert done.returncode == 0, done.stderr
    r = robocache.ray.run(tmp_path / "ray.json")
    assert r.done == r.total == 3 and r.committed
    done = cli("submit", "local", "--manifest", str(tmp_path / "local.json"), "-j", "2")
    assert done.returncode == 0, done.stderr
    a, b = tree(tmp_path / "ray"), tree(tmp_path / "local")
    differing = {k for k in a | b if a.get(k) != b.get(k)} - {"meta/conversion.json"}
    assert len(a) > 5 and not differing
    assert robocache.ray.run(tmp_path / "ray.json").retries == 0  # a repeated run has nothing to do


@needs_ray
def test_submit_ray(cluster, tmp_path):
    source = synth(tmp_path / "src", "--codec", "png", "--episodes", "3", "--seconds", "0.5")
    done = cli(
        "plan",
        "convert",
        str(source),
        str(tmp_path / "dst"),
        "--images",
        "images",
        "--shards",
        "2",
        "--manifest",
        str(tmp_path / "plan.json"),
    )
    assert done.returncode == 0, done.stderr
    options = ["--python", sys.executable, "--address", cluster.address]
    done = cli("submit", "ray", "--manifest", str(tmp_path / "plan.json"), *options)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])["committed"], (
        done.stderr
    )
    assert (
        cli("submit", "ray", "--manifest", str(tmp_path / "none.json"), *options).returncode == 10
    )


@needs_ray
def test_read_is_the_loader(cluster):
    options = {
        "delta_timestamps": {"action": [-1 / 30, 0, 1 / 30]},
        "keys": ["action", "observation.images.cam_high", "index", "episode_index", "task"],
        "image_size": (48, 64),
    }
    uri = dataset_path("g1_h264_v30")
    ds = robocache.ray.read(uri, batch_size=32, override_num_blocks=3, **options)
    rows = {}
    for b in ds.iter_batches(batch_size=100):
        for i, n in enumerate(b["index"].tolist()):
            rows[n] = {k: v[i] for k, v in b.items()}
    seen = 0
    with robocache.Loader(uri, batch_size=64, shuffle=False, **options) as loader:
        for b in loader:
            for i, n in enumerate(np.asarray(b["index"]).tolist()):
                for k in b:
                    assert np.array_equal(
                        rows[n][k], b[k][i] if k == "task" else np.asarray(b[k][i])
                    ), (n, k)
                seen += 1
        assert seen == len(rows) == loader.num_samples == ds.count()
    part = robocache.ray.read(uri, episodes=[3, 1], keys=["index", "episode_index"])
    assert set(part.unique("episode_index")) == {1, 3}


@needs_ray
def test_read_ragged(cluster, tmp_path):
    source = synth(
        tmp_path / "set.mcap",
        "--format",
        "mcap",
        "--codec",
        "png",
        "--episodes",
        "2",
        "--seconds",
        "2",
        "--rates",
        "joints=100,force=333",
    )
    with robocache.Loader(source, batch_size=8, shuffle=False, hz=20) as loader:
        key = next(k for k in loader.keys if "force" in k)
    window = {"hz": 20, "windows": robocache.Windows(seconds={key: (-0.1, 0.0)}), "keys": [key]}
    got = robocache.ray.read(source, batch_size=16, override_num_blocks=1, **window).take_all()
    want = []
    with robocache.Loader(source, batch_size=16, shuffle=False, **window) as loader:
        for b in loader:
            want += np.split(np.asarray(b[key]), np.cumsum(np.asarray(b[key + "_lengths"]))[:-1])
    assert len(got) == len(want) > 10
    assert all(np.array_equal(g[key], w) for g, w in zip(got, want, strict=True))


@needs_ray
def test_read_beside_rays_own(cluster, tmp_path):
    """Rows and frames equal those of ray.data.read_lerobot."""
    source = synth(tmp_path / "set", "--codec", "png", "--episodes", "4", "--seconds", "2")
    try:
        theirs = ray.data.read_lerobot(str(source)).take_all()
    except Exception as e:
        pytest.skip(f"ray.data.read_lerobot does not read it: {e}")
    mine = robocache.ray.read(
        source, keys=[*robocache.open(source).features.keys(), "index"]
    ).take_all()
    theirs, mine = ({int(r["index"]): r for r in rows} for rows in (theirs, mine))
    assert theirs.keys() == mine.keys() and len(mine) > 100
    compared = set()
    for n, r in theirs.items():
        for k in r.keys() & mine[n].keys():
            a, b = np.asarray(r[k]), np.asarray(mine[n][k])
            if k.startswith("observation.images"):
                a = a.transpose(2, 0, 1) if a.shape[-1] == 3 else a
            assert np.array_equal(a.reshape(b.shape), b), (n, k)
            compared.add(k)
    assert {"observation.state", "action", "observation.images.cam_0"} <= compared


@needs_ray
def test_read_refuses(cluster):
    uri = dataset_path("g1_h264_v30")
    for bad in ({"shuffle": "global"}, {"rank": 1}, {"nonsense": 1}, {"keys": ["nothing"]}):
        with pytest.raises(robocache.Misuse):
            robocache.ray.read(uri, **bad)
    with pytest.raises(robocache.Misuse):
        robocache.ray.read([uri, uri])


def test_what_a_node_lacks_is_typed():
    class Told(Exception):
        def __init__(self, cause):
            self.cause = cause

    for number, typed in [
        (errno.ENOENT, robocache.Misuse),
        (errno.EACCES, robocache.Misuse),
        (errno.ENOMEM, robocache.ResourceLimit),
        (errno.EAGAIN, robocache.ResourceLimit),
    ]:
        assert type(robocache.ray._convert_exception(Told(OSError(number, "")), "run", {})) is typed


@pytest.mark.skipif(ray is not None, reason="Ray is installed")
def test_without_ray():
    assert "robocache.ray" not in sys.modules or robocache.ray
    for f in (robocache.ray.run, robocache.ray.read):
        with pytest.raises(robocache.Unsupported, match="pip install"):
            f("x")


@needs_ray
def test_no_cluster_there():
    """If no cluster answers, the call fails quickly.

    Ray alone waits for minutes and may end the process.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (1, silent.getsockname()[1]):
            code = (
                "import robocache.ray, sys; robocache.ray._JOIN = 5; sys.argv = ['ray', "
                f"'plan.json', '--address', '127.0.0.1:{port}']; robocache.ray.main()"
            )
            p = subprocess.run(
                [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
            )
            assert p.returncode == 75 and "no Ray cluster at 127.0.0.1" in p.stderr, (
                port,
                p.stderr,
            )
