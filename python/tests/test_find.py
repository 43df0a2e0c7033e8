"""find, embed and edit with expressions."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import robocache


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("find") / "arm")
    run("synth", out, "--episodes", "4", "--seconds", "2", "--size", "80x64")
    return out


def run(*args: str, rc: int = 0) -> str:
    """Runs the command line of the package."""
    done = subprocess.run(
        [sys.executable, "-m", "robocache", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == rc, done.stderr
    return done.stdout if rc == 0 else done.stderr


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Returns the maximal ranges of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def test_ranges_are_numpy_s(arm: str, tmp_path: Path) -> None:
    ds = robocache.open(arm)
    want: dict[int, list[tuple[int, int]]] = {}
    for episode in ds:
        state = episode.streams["observation.state"]
        values, times = state.values.astype(float), state.times
        speed = np.linalg.norm(np.diff(values, axis=0), axis=1) / (np.diff(times) / 1e9)
        mask = np.concatenate([speed[:1], speed]) > 0.3
        kept = [(a, b) for a, b in runs(mask) if times[b - 1] - times[a] >= 0.2e9 - 1000]
        if kept:
            want[episode.index] = kept
    assert want
    text = "speed(observation.state) > 0.3 for 0.2s"
    found = ds.find(text, csv=tmp_path / "r.csv", flags=tmp_path / "flags.json", label="fast")
    assert found.segments == want and found.episodes == list(want)
    assert not found.whole_episodes and found.index is None
    assert robocache.find(arm, text, index=True).segments == want
    again = ds.find(text)
    assert again.segments == want and again.index and not again.index["built"]
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [(int(r["from"]), int(r["to"])) for r in rows] == [(r["from"], r.to) for r in found]
    flags = json.loads((tmp_path / "flags.json").read_text())["flags"]
    assert [f["rows"] for f in flags] == [[r["from"], r.to] for r in found]
    assert {f["label"] for f in flags} == {"fast"}
    loader = robocache.Loader(
        arm, keys=["action"], shuffle=False, episodes=found.episodes,
        order=robocache.Order(segments=found.segments),
    )  # fmt: skip
    assert len(loader.order(0)) == found.num_rows


def test_whole_episodes(arm: str, tmp_path: Path) -> None:
    ds = robocache.open(arm)
    largest = {e.index: e.streams["action"].values.max() for e in ds}
    middle = float(np.median(list(largest.values())))
    text = f"max(action) > {middle!r}"
    want = [e for e, v in largest.items() if v > middle]
    found = ds.find(text, flags=tmp_path / "f.json")
    assert found.episodes == want and found.whole_episodes
    report = json.loads(run("find", arm, text, "--json"))
    assert report["episodes"] == want and report["num_rows"] == found.num_rows
    run("edit", "keep", arm, str(tmp_path / "out"), "--flags", str(tmp_path / "f.json"))
    assert robocache.open(tmp_path / "out").num_episodes == len(want)
    with pytest.raises(robocache.Misuse, match="character 8"):
        ds.find("length ? 3")
    with pytest.raises(robocache.NotFound, match="robocache quality"):
        ds.find("q.idle > 3")
    assert "character 8" in run("find", arm, "length ? 3", rc=2)


MODEL = """
import numpy as np
def images(batch):
    batch = np.asarray(batch).astype(np.float64)
    return np.concatenate([batch.mean((2, 3)), batch[:, :, ::16, ::16].reshape(len(batch), -1)], 1)
def texts(list_of_texts):
    return np.array([[1.0] + [0.0] * 62 for _ in list_of_texts])
def bad(batch):
    return np.zeros((len(batch), 4))
"""


@pytest.mark.slow
def test_embed(arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    ds = robocache.open(arm)
    camera = next(k for k, f in ds.features.items() if f.kind in ("image", "video"))
    with pytest.raises(robocache.NotFound, match=r"robocache\.embed\("):
        ds.find(like=(0, 1))
    out = run("embed", arm, "--model", "tiny_model:images", "--key", camera, "--every", "3")
    assert "63 numbers" in out
    sys.path.insert(0, str(tmp_path))
    import tiny_model  # type: ignore[import-not-found]

    places, vectors = [], []
    for episode in ds:
        rows = list(range(0, episode.length, 3))
        places += [(episode.index, r) for r in rows]
        vectors.append(tiny_model.images(episode.streams[camera].frames(rows)))
    v = np.concatenate(vectors)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    at = places.index((1, 6))
    scores = v @ v[at]
    want = [places[i] for i in np.argsort(-scores, kind="stable")[:5]]
    found = ds.find(like=(1, 6), limit=5)
    assert [(r.episode, r["from"]) for r in found] == want
    np.testing.assert_allclose([r.score for r in found], np.sort(scores)[::-1][:5], atol=1e-5)
    near = ds.find(vector=v[at], limit=5)
    assert list(near) == list(found)
    by_text = json.loads(
        run("find", arm, "--text", "red", "--text-model", "tiny_model:texts", "--json")
    )
    top = by_text["ranges"][0]
    assert (top["episode"], top["from"]) == places[int(np.argmax(v[:, 0]))]
    with pytest.raises(robocache.Misuse, match="text_model"):
        ds.find(text="red")
    with pytest.raises(robocache.Misuse, match="zero or not finite"):
        robocache.embed(arm, "tiny_model:bad", key=camera)
    with pytest.raises(robocache.Misuse, match="no_such"):
        robocache.embed(arm, "tiny_model:no_such", key=camera)
    table = robocache.embed(arm, tiny_model.images, key=camera, batch_size=7)
    assert table.count == ds.num_frames and table.width == 63
    pq = pytest.importorskip("pyarrow.parquet")
    read = pq.read_table(table.file)
    assert read.column_names == ["episode_index", "row", "vector"] and len(read) == table.count
