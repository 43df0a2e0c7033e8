"""HDF5 streams with clocks of their own, read by Loader(hz=).

The reference is h5py and NumPy on the files of synth. The same streams in MCAP give equal values,
to the bit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
h5py = pytest.importorskip("h5py", reason="h5py is not installed")
HZ = 50


def synth(dst: Path, *args: str) -> str:
    subprocess.run(
        [sys.executable, "-m", "robocache", "synth", str(dst), *args],
        check=True,
        capture_output=True,
    )
    return str(dst)


@pytest.mark.parametrize(("preset", "episodes"), [("rtx", 4), ("heterogeneous", 10)])
@pytest.mark.slow
def test_aligned(tmp_path: Path, preset: str, episodes: int) -> None:
    made = {
        f: synth(
            tmp_path / f"a.{e}", "--format", f, "--preset", preset, "--episodes", str(episodes)
        )
        for f, e in (("robomimic", "hdf5"), ("mcap", "mcap"))
    }
    loaders = {
        f: robocache.Loader(
            uri, hz=HZ, batch_size=16, seed=3, split="all", align=robocache.Align(extent="union")
        )
        for f, uri in made.items()
    }
    samples = loaders["robomimic"].num_samples
    assert samples == loaders["mcap"].num_samples and np.array_equal(
        loaders["robomimic"].order(0), loaders["mcap"].order(0)
    )
    where = loaders["robomimic"].locate(loaders["robomimic"].order(0))
    seen = 0
    with h5py.File(made["robomimic"]) as f:
        for a, b in zip(loaders["robomimic"], loaders["mcap"], strict=True):
            assert set(a) == set(b)
            for k in a:
                assert (
                    torch.equal(a[k], b[k]) if isinstance(a[k], torch.Tensor) else a[k] == b[k]
                ), k
            for i in range(len(a["action"])):
                e, at = int(where.episode[seen]), int(where.row[seen]) / HZ
                demo, seen = f[f"data/demo_{e}"], seen + 1
                for key in (
                    k for k in a if k in ("action", "observation.proprio", "observation.vision")
                ):
                    path = (
                        "actions" if key == "action" else "obs/" + key.removeprefix("observation.")
                    )
                    times, values = demo[path + "_timestamps"][()], demo[path][()]
                    t = min(at, times[-1])
                    want = np.array(
                        [
                            np.interp(t, times, values[:, c].astype(np.float64))
                            for c in range(values.shape[1])
                        ]
                    )
                    assert np.allclose(a[key][i].numpy(), want, rtol=0, atol=2e-6), (key, e, at)
                    if key + "_is_pad" in a:
                        assert bool(a[key + "_is_pad"][i]) == (at > times[-1] + 1e-9)
    assert seen == samples and (preset != "rtx" or samples == 250 * episodes)


def test_bad_timestamps(tmp_path: Path) -> None:
    uri = synth(tmp_path / "a.hdf5", "--format", "robomimic", "--preset", "rtx", "--episodes", "2")
    with h5py.File(uri, "r+") as f:
        f["data/demo_1/obs/vision_timestamps"][7] = np.nan
    with pytest.raises(robocache.Malformed, match="vision_timestamps.*index 7"):
        list(robocache.Loader(uri, hz=HZ, batch_size=16))


def test_index_and_dropped_frames(tmp_path: Path) -> None:
    uri = synth(
        tmp_path / "a.hdf5",
        "--format",
        "robomimic",
        "--preset",
        "heterogeneous",
        "--episodes",
        "6",
        "--cap",
        "20",
    )
    lengths = robocache.open(uri).episodes["lengths"]
    loader = robocache.Loader(
        uri,
        keys=["action", "index", "episode_index", "frame_index"],
        batch_size=8,
        order=robocache.Order(drop_n_first_frames=1, drop_n_last_frames=3),
    )
    batches = list(loader)
    index, episode, frame = (
        torch.cat([b[k] for b in batches]).tolist()
        for k in ("index", "episode_index", "frame_index")
    )
    starts = np.concatenate([[0], np.cumsum(lengths)])
    assert sorted(index) == [
        int(starts[e]) + k for e, n in enumerate(lengths) for k in range(1, n - 3)
    ]
    assert index == [int(starts[e]) + k for e, k in zip(episode, frame, strict=True)]
    assert "index" not in next(iter(robocache.Loader(uri, batch_size=2)))
    with pytest.raises(robocache.Misuse):
        robocache.Loader(uri, order=robocache.Order(drop_n_last_frames=-1))
