"""Statistics of trainers in one pass, and their partial statistics in a folder."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import robocache
from conftest import cli, dataset_path, synth

ALL = ["--for", "all", "--relative", "0-2", "--horizon", "9", "--frames", "none"]


def run_stats(data, out, *options):
    """Runs stats, and returns the files that it wrote and what it printed."""
    run = cli("stats", str(data), "--out", str(out), *options)
    assert run.returncode == 0, run.stderr
    files = sorted(Path(out).rglob("*.json")) if Path(out).is_dir() else [Path(out)]
    return {str(f.relative_to(out)): json.loads(f.read_text()) for f in files}, run.stderr


@pytest.mark.parametrize("name", ["g1_v30_exact", "g1_v21", "bridge_rlds"])
def test_lerobot_has_the_numbers_of_its_own_code(name, tmp_path):
    stats = pytest.importorskip("lerobot.datasets.compute_stats")
    ds = robocache.open(dataset_path(name))
    # lerobot takes every key with "image" for a camera.
    numeric = [k for k, f in ds.features.items() if f.kind == "numeric" and "image" not in k]
    features = {k: {"dtype": ds.features[k].dtype} for k in numeric}
    episodes = [{k: ep.streams[k].values for k in numeric} for ep in ds]
    want = stats.aggregate_stats([stats.compute_episode_stats(e, features) for e in episodes])
    out = tmp_path / "stats.json"
    keys = f"--keys={','.join(numeric)}"
    run = cli("stats", dataset_path(name), "--for=lerobot", keys, f"--out={out}")
    assert run.returncode == 0, run.stderr
    got = json.loads(out.read_text())
    assert sorted(got) == sorted(want)
    for key, one in want.items():
        assert sorted(got[key]) == sorted(one)
        scale = np.abs(one["max"]) + np.abs(one["min"])
        for n, values in one.items():
            # lerobot's sums are float32, and its variance is E[x²] − E[x]².
            limit = {"mean": 1e-5, "std": 2e-3}.get(n, 1e-6)
            error = np.abs(np.asarray(got[key][n]) - values)
            assert (error <= limit * scale + 1e-9).all(), (key, n, got[key][n], values)
    exact = robocache.stats(dataset_path(name), frames="none")
    key = "observation.state"
    assert not np.array_equal(exact[key]["q01"], np.asarray(got[key]["q01"]))


def test_images_have_the_quantiles_of_lerobots_histogram(tmp_path):
    stats = pytest.importorskip("lerobot.datasets.compute_stats")
    path = synth(tmp_path / "s", "--episodes=2", "--seconds=1", "--cameras=1", "--size=64x64")
    ds = robocache.open(path)
    key = next(k for k, f in ds.features.items() if f.kind in ("image", "video"))
    parts = []
    for ep in ds:
        images = ep.streams[key].frames()  # (N, 3, H, W)
        one = stats.get_feature_stats(images, (0, 2, 3), True)
        parts.append({n: v if n == "count" else v[0] / 255 for n, v in one.items()})
    want = stats.aggregate_feature_stats(parts)
    got = robocache.stats(path, keys=[key], **{"for": "lerobot"})[key]
    for n, values in want.items():
        # lerobot's sums of all pixels are float32.
        np.testing.assert_allclose(got[n], values, atol=2e-4 if n == "std" else 2e-5, err_msg=n)


def test_all_is_the_sum_of_its_trainers(tmp_path):
    data = dataset_path("gr00t_picknplace_v20")
    relative = "--relative=0-3,left_arm,right_arm"
    got, _ = run_stats(data, tmp_path / "all", "--for=all", relative, "--frames=none")
    lerobot, _ = run_stats(data, tmp_path / "one.json", "--for=lerobot", "--frames=none")
    openpi, _ = run_stats(data, tmp_path / "openpi", "--for=openpi", "--relative=0-3")
    groups = "--relative=left_arm,right_arm"
    gr00t, _ = run_stats(data, tmp_path / "gr00t", "--for=gr00t", groups)
    want = {f"openpi/{k}": v for k, v in openpi.items()}
    want |= {f"gr00t/{k}": v for k, v in gr00t.items()} | {"lerobot/stats.json": lerobot["."]}
    assert got == want
    assert sorted(got) == [
        "gr00t/relative_stats.json",
        "gr00t/stats.json",
        "lerobot/stats.json",
        "openpi/norm_stats.json",
    ]
    told = robocache.stats(data, frames="none", relative=["0-3"], **{"for": "all"})
    state = told["openpi/norm_stats.json"]["norm_stats"]["state"]
    np.testing.assert_array_equal(
        state["q99"], openpi["norm_stats.json"]["norm_stats"]["state"]["q99"]
    )


def grow(path, episodes):
    """Writes the first episodes of a set of v2.1, one file each; files that exist stay."""
    rng = np.random.default_rng(7)
    (path / "meta").mkdir(parents=True, exist_ok=True)
    (path / "data/chunk-000").mkdir(parents=True, exist_ok=True)
    lines, first = [], 0
    for e in range(episodes):
        n = int(rng.integers(1, 90))
        state = np.cumsum(rng.normal(0, 0.1, (n, 3)), 0).astype(np.float32)
        action = (state + rng.normal(0, 0.05 * (1 + e), (n, 3))).astype(np.float32)
        lines.append({"episode_index": e, "tasks": ["t"], "length": n})
        file = path / f"data/chunk-000/episode_{e:06d}.parquet"
        columns = {
            "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(state.ravel()), 3),
            "action": pa.FixedSizeListArray.from_arrays(pa.array(action.ravel()), 3),
            "timestamp": pa.array(np.arange(n, dtype=np.float32) / 30),
            "frame_index": pa.array(np.arange(n)),
            "episode_index": pa.array(np.full(n, e)),
            "index": pa.array(np.arange(first, first + n)),
            "task_index": pa.array(np.zeros(n, np.int64)),
        }
        if not file.exists():
            pq.write_table(pa.table(columns), file)
        first += n
    features = {k: {"dtype": "float32", "shape": [3]} for k in ("observation.state", "action")}
    features["timestamp"] = {"dtype": "float32", "shape": [1]}
    for key in ("frame_index", "episode_index", "index", "task_index"):
        features[key] = {"dtype": "int64", "shape": [1]}
    info = {
        "codebase_version": "v2.1",
        "fps": 30,
        "total_episodes": episodes,
        "total_frames": first,
        "total_tasks": 1,
        "total_chunks": 1,
        "chunks_size": 1000,
        "splits": {"train": f"0:{episodes}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "features": features,
    }
    (path / "meta/info.json").write_text(json.dumps(info))
    (path / "meta/episodes.jsonl").write_text("\n".join(json.dumps(x) for x in lines))
    (path / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "t"}))


def test_a_set_that_grows_is_counted_from_its_new_episodes(tmp_path):
    data, kept = tmp_path / "set", tmp_path / "partials"
    done = 0
    for episodes in (1, 2, 9, 9, 40):  # Few and many batches of 32 windows.
        grow(data, episodes)
        got, said = run_stats(data, tmp_path / "out", *ALL, f"--partials={kept}")
        assert f"read {episodes - done} of {episodes} episodes" in said
        done = episodes
        want, _ = run_stats(data, tmp_path / "want", *ALL)
        assert got == want


def test_partials_of_changed_data_are_not_used(tmp_path):
    data, kept = tmp_path / "set", tmp_path / "partials"
    grow(data, 12)
    options = [*ALL, f"--partials={kept}"]
    run_stats(data, tmp_path / "out", *options)

    def check(read, why):
        got, said = run_stats(data, tmp_path / "out", *options)
        assert f"read {read} of 12 episodes" in said, why
        assert got == run_stats(data, tmp_path / "want", *ALL)[0], why

    check(0, "nothing changed")
    file = data / "data/chunk-000/episode_000003.parquet"
    table = pq.read_table(file)
    action = np.stack(table["action"].to_pylist()).astype(np.float32) + 1
    column = pa.FixedSizeListArray.from_arrays(pa.array(action.ravel()), 3)
    pq.write_table(table.set_column(1, "action", column), file)
    check(1, "values of one file changed")
    os.utime(file)
    check(1, "one file was written again")
    segment = max(kept.glob("numbers-*.bin"), key=lambda f: f.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    check(1, "a partial is damaged")
    segment.write_bytes(content[: len(content) // 2])
    got, _ = run_stats(data, tmp_path / "out", *options)
    assert got == run_stats(data, tmp_path / "want", *ALL)[0], "a partial is cut"
    for f in kept.glob("numbers-*.bin"):
        f.unlink()
    check(12, "the numbers are gone")
    for f in kept.glob("partials-*.json"):
        f.write_text("{")
    check(12, "the index is damaged")
    # The same files with the order of two episodes changed in the table.
    lines = (data / "meta/episodes.jsonl").read_text().splitlines()
    (data / "meta/episodes.jsonl").write_text("\n".join(lines[:11]))
    info = json.loads((data / "meta/info.json").read_text())
    info |= {"total_episodes": 11, "total_frames": info["total_frames"] - 1}
    (data / "meta/info.json").write_text(json.dumps(info))
    got, said = run_stats(data, tmp_path / "out", *options, "--episodes=2-10")
    assert "read 0 of 11" in said
    assert got == run_stats(data, tmp_path / "want", *ALL, "--episodes=2-10")[0]


def test_two_datasets_share_a_folder(tmp_path):
    kept = tmp_path / "partials"
    for name, episodes in (("a", 5), ("b", 7), ("a", 5), ("b", 7)):
        grow(tmp_path / name, episodes)
        got, _ = run_stats(tmp_path / name, tmp_path / "out", *ALL, f"--partials={kept}")
        assert got == run_stats(tmp_path / name, tmp_path / "want", *ALL)[0]
        shutil.rmtree(tmp_path / "out")
    assert len(list(kept.glob("partials-*.json"))) == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--for=all", "--write"],
        ["--for=all", "--keys=action"],
        ["--for=lerobot", "--horizon=3"],
        ["--for=lerobot", "--skip-bad"],
        ["--for=robot"],
        ["--partials=x"],
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    run = cli("stats", dataset_path("bridge_rlds"), *options)
    assert run.returncode == 2 and "misuse" in run.stderr
