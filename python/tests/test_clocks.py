"""windows= and anchor=: streams at their own rate, ragged batches, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import robocache
from robocache import _memory

torch = pytest.importorskip("torch")


def test_spans_and_offsets(h264: str) -> None:
    """A span is all samples stamped in it, a count makes it even, offsets take samples; all beside windows of rows."""
    ds = robocache.open(h264)
    key = "action"
    m = robocache.MapDataset(ds, keys=[key, "observation.state", "timestamp"], windows={key: (-0.1, 0.0), "observation.state": (-0.2, 0.0, 5), "timestamp": [-0.05, 0.0]})
    ep = ds.episode(0)
    times, values = ep.streams[key].times, ep.streams[key].values
    b = m.batch(range(12))
    at = 0
    for i in range(12):
        rows = np.flatnonzero((times >= times[i] - 100_000_000) & (times <= times[i]))
        assert b[key + "_lengths"][i] == len(rows)
        assert np.array_equal(b[key][at : at + len(rows)].numpy(), values[rows])
        at += len(rows)
        item = m[i]
        assert np.array_equal(item[key].numpy(), values[rows]) and item[key + "_lengths"] == len(rows)
    assert len(b[key]) == at and key + "_is_pad" not in b
    state = ep.streams["observation.state"]
    targets = times[11] + np.linspace(-200_000_000, 0, 5).astype(np.int64)
    want = np.stack([np.interp(targets / 1e9, state.times / 1e9, c) for c in state.values.T.astype(np.float64)], 1)
    assert np.allclose(b["observation.state"][11].numpy(), want, atol=1e-5)
    assert b["observation.state_is_pad"][0].tolist() == [True] * 4 + [False]
    assert b["timestamp"].shape == (12, 2) and b["timestamp"][11, 1] == b["timestamp"][11].max()


@pytest.mark.parametrize("arrays", [False, True])
def test_ragged_batches(h264: str, arrays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Loader gives the entries of all samples and their lengths, as tensors and as arrays; state and workers hold."""
    if arrays:
        monkeypatch.setattr(_memory, "torch_module", lambda: None)
    how = dict(keys=["action", "index"], windows={"action": (-0.1, 0.05)})
    m = robocache.MapDataset(h264, **how)
    one = {int(i["index"]): np.asarray(i["action"]) for i in m[0:200]}
    with robocache.Loader(m, batch_size=16, episodes=[0], seed=5) as loader:
        first = next(iter(loader))
        assert type(first["action"]).__module__ == ("numpy" if arrays else "torch")
        n = np.asarray(first["action_lengths"])
        parts = np.split(np.asarray(first["action"]), np.cumsum(n)[:-1])
        assert len(parts) == 16 and sum(n) == len(first["action"]) and n.max() == 5
        for i, p in zip(np.asarray(first["index"]), parts):
            if int(i) in one:
                assert np.array_equal(p, one[int(i)])
        state = loader.state_dict()
        second = [b for b in zip(range(1), loader)]
    with robocache.Loader(m, batch_size=16, episodes=[0], seed=5) as again:
        again.load_state_dict(state)
        b = next(iter(again))
        assert len(b["action"]) > 0 and second


def test_ragged_in_workers(h264: str) -> None:
    m = robocache.MapDataset(h264, keys=["action"], windows={"action": (-0.1, 0.0)})
    loader = torch.utils.data.DataLoader(m, batch_size=8, num_workers=2, collate_fn=lambda items: torch.cat([i["action"] for i in items]))
    got = next(iter(loader))
    assert torch.equal(got, m.batch(range(8))["action"])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        (dict(windows={"acton": (0, 1)}), "did you mean 'action'"),
        (dict(windows={"action": (1.0, 0.0)}), "from ≤ to"),
        (dict(windows={"action": (0.0, 1.0, 0)}), "expected"),
        (dict(windows={"action": (0.0,)}), "expected"),
        (dict(windows={"action": "now"}), "expected"),
        (dict(windows=[("action", 1)]), "expected a dict"),
        (dict(windows={"action": [0.0]}, delta_timestamps={"action": [0.0]}), "both"),
        (dict(anchor="acton"), "did you mean"),
        (dict(anchor="action", hz=10), "anchor or hz"),
        (dict(align={"modes": {"action": "linear"}}), "hz"),
        (dict(windows={"action": [0.0]}, align={"clock": {"action": "log"}}), "one clock"),
    ],
)
def test_misuse(h264: str, kwargs: dict, words: str) -> None:
    with pytest.raises((robocache.Misuse, robocache.Unsupported), match=words):
        m = robocache.MapDataset(h264, **kwargs)
        m[0]
