"""Live observations equal training samples, and wrong use is an error."""

from __future__ import annotations

import json
import os
import pickle
import signal
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import live_events
import numpy as np
import pytest
from conftest import HERE, cli, dataset_path

import robocache
from robocache import _memory

STATE = "observation.state"
CAMERA = "observation.images.cam_high"


@pytest.fixture(scope="module")
def mcap() -> str:
    return f"{dataset_path('mcap_robot')}/recording_zstd.mcap"


@pytest.fixture(scope="module")
def state_contract() -> robocache.Contract:
    return _contract(dataset_path("g1_v30_exact"), keys=[STATE])


@pytest.fixture(scope="module")
def camera_contract(mcap: str) -> robocache.Contract:
    return _contract(mcap, keys=["camera.color.image_raw.compressed", "points"])


def _contract(uri: str, **options: Any) -> robocache.Contract:
    with robocache.Loader(uri, hz=30, align="causal", **options) as loader:
        return loader.contract()


# The comparison runs in a process without torch, which knows the contract only from its file.
EQUAL = f"""
    import sys
    sys.modules["torch"] = None
    sys.path.insert(0, {str(HERE)!r})
    import json, robocache
    from live_events import different_keys, events_of, ticks_of

    path, uri, how = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    contract = robocache.Contract.load(path)
    events = events_of(uri, contract, how["open"], how.get("rows"))
    items = robocache.MapDataset(uri, hz=30, align="causal", episodes=[0], **how["options"])
    count = min(len(items), how.get("ticks", len(items)))
    with robocache.Live(contract) as live:
        live.set_task(items[0]["task"])
        for n, seen in enumerate(ticks_of(live, events, count)):
            item = items[n]
            names = [f"{{k}}_is_pad" for k in contract.streams]
            want = {{k: v for k, v in item.items() if k in contract.keys or k in names}}
            assert list(seen) == list(want), (list(seen), list(want))
            assert not different_keys(seen, want), (n, different_keys(seen, want))
            for k, mask in seen.masks.items():
                assert (mask == item[k + "_is_pad"]).all() if hasattr(mask, "all") else (
                    mask == bool(item[k + "_is_pad"])
                )
    print("equal", count)
"""


@pytest.mark.parametrize(
    "data, how",
    [
        ("mcap", {"open": {"clock": "log"}, "options": {}}),
        (
            "mcap",
            {
                "open": {"clock": "log"},
                "ticks": 60,
                "options": {"delta_timestamps": {"joint_states.position": [-0.2, -0.1, 0]}},
            },
        ),
        ("g1", {"open": {}, "rows": 30, "ticks": 30, "options": {"normalize": "mean_std"}}),
    ],
)
def test_equals_training(
    data: str,
    how: dict[str, Any],
    mcap: str,
    exact: str,
    script: Any,
    tmp_path: Path,
) -> None:
    uri = mcap if data == "mcap" else exact
    path = tmp_path / "policy.contract.json"
    keep = robocache.Windows(dtype="keep")
    _contract(uri, windows=keep, **how["options"]).save(path)
    done = script(EQUAL, str(path), uri, json.dumps(how))
    assert done.returncode == 0, done.stderr
    assert "equal" in done.stdout


def test_equals_batches_of_a_loader(mcap: str, torch: Any) -> None:
    """With torch, and float32 as a Loader delivers by default."""
    loader = robocache.Loader(mcap, hz=30, align="causal", shuffle=False, batch_size=1)
    contract = loader.contract()
    events = live_events.events_of(mcap, contract, {"clock": "log"})
    with robocache.Live(contract) as live:
        live.set_task("Pick up the yellow bottle on the table.")
        for batch, seen in zip(loader, live_events.ticks_of(live, events, 50)):
            want = {k: v if k == "points" else v[0] for k, v in batch.items()}
            assert not live_events.different_keys(seen, want)
            assert all(isinstance(v, (str, torch.Tensor)) for v in seen.values())
        kept = live.observe(as_numpy=True)["points"]
    assert kept.shape[1] == 4 and kept.copy().shape == kept.shape  # valid after close()


def test_contract(mcap: str, exact: str, tmp_path: Path) -> None:
    contract = _contract(mcap)
    contract.save(tmp_path / "c.json")
    assert (tmp_path / "c.json").read_text() == contract.to_json()
    assert robocache.Contract.load(tmp_path / "c.json") == contract
    assert pickle.loads(pickle.dumps(contract)) == contract
    assert contract.rate_hz == 30 and contract.keys[0] == "camera.color.image_raw.compressed"
    assert contract.streams["joint_states.position"].shape == (26,)
    assert contract.outputs["points"].shape == (-1, 4)
    assert contract.check(mcap) == []
    with robocache.open(exact) as ds:
        assert contract.check(ds)[0].code == "contract-mismatch"
        assert len(ds) > 0  # still open
    lines = repr(contract).splitlines()
    assert lines[0].startswith("Contract at 30 Hz") and lines[1].split()[0] == "key"
    position = next(line for line in lines if line.startswith("joint_states.position"))
    assert "previous" in position and "1 s" in position and "[26]" in position


def test_contract_errors(mcap: str, state_contract: robocache.Contract, tmp_path: Path) -> None:
    with robocache.Loader(mcap, hz=30) as loader, pytest.raises(robocache.Misuse) as e:
        loader.contract()
    assert "causal" in e.value.hint
    with pytest.raises(robocache.NotFound):
        robocache.Contract.load(tmp_path / "missing.json")
    for text in ("", "{}", "[1]", state_contract.to_json()[:-20]):
        with pytest.raises(robocache.Malformed):
            robocache.Contract(text)


def test_values(state_contract: robocache.Contract, torch: Any) -> None:
    value = np.arange(26, dtype=np.float32)
    now = time.time_ns()
    with robocache.Live(state_contract) as live:
        for n, v in enumerate(
            [
                value,
                value.tolist(),
                tuple(range(26)),
                value.astype(np.float64),
                value.astype(np.int8),
                value.astype(">f4"),
                np.repeat(value, 2)[::2],
                torch.arange(26, dtype=torch.bfloat16, requires_grad=True),
            ]
        ):
            live.reset()
            live.push(STATE, v, now + n, now + n)
            seen = live.observe(now + n, as_numpy=True)
            assert np.array_equal(seen[STATE], value), v
            assert seen.tick_ns == now + n and seen.ages == {STATE: 0.0}
            assert seen.masks == {STATE: False}
        live.push(STATE, (value + 0.1).tolist(), now + 9, now + 9)  # floats of Python are rounded
        lossy = value.astype(np.float64) + 0.1
        for wrong in (lossy, value[:25], value[None], 1.0, "text", b"x" * 104, value * 1j, [[]]):
            with pytest.raises(robocache.Misuse):
                live.push(STATE, wrong, now + 10, now + 10)
        with pytest.raises(robocache.Malformed):
            live.push(STATE, np.full(26, np.nan, np.float32), now + 10, now + 10)
        with pytest.raises(robocache.Malformed):
            live.push(STATE, value, now - 3600 * 10**9, now + 10)
        with pytest.raises(robocache.Misuse):
            live.push(STATE, value, time.time())  # type: ignore[arg-type]
        with pytest.raises(robocache.NotFound, match=STATE):
            live.push("observation.stat", value, now)
        assert live.stats()[STATE]["rejected"] == 2
        assert live.latency()[STATE]["median_ns"] == 0
        assert live.observe(now + 10, as_numpy=True)[STATE][0] == np.float32(0.1)


@pytest.mark.parametrize(
    "name, value, stored",
    [
        ("uint8", np.int8([-1]), False),
        ("uint8", np.int64([255]), True),
        ("int64", np.float64([2.0]), True),
        ("int64", np.float64([2.5]), False),
        ("float64", np.int64([2**53 + 1]), False),
        ("float32", np.float64([np.nan]), True),
        ("bool", np.int64([2]), False),
    ],
)
def test_cast_is_lossless(name: str, value: np.ndarray, stored: bool) -> None:
    converter = robocache.live._Converter(robocache.Feature("x", "numeric", name, (1,)))
    if stored:
        assert converter.convert(value)[0] == name.encode()
    else:
        with pytest.raises(robocache.Misuse, match="does not hold"):
            converter.convert(value)


def test_images(mcap: str, camera_contract: robocache.Contract) -> None:
    """Pixels and the encoded image give the same observation."""
    key = "camera.color.image_raw.compressed"
    with robocache.open(mcap) as ds:
        frame = ds[0].streams[key].frames([3])[0]
        args = {"position": 0, "key": key, "encoded": True}
        got = _memory.batch_values(ds._handle.call("robocache_stream", args))
        begin = int(got["lengths"][:3].sum())
        jpeg = got["values"][begin : begin + int(got["lengths"][3])].tobytes()
    now = time.time_ns()
    with robocache.Live(camera_contract) as live:
        live.push("points", np.zeros((5, 4), np.float32), now, now)
        for n, image in enumerate(
            [jpeg, bytearray(jpeg), memoryview(jpeg), frame.transpose(1, 2, 0)]
        ):
            live.push(key, image, now + n, now + n)
            seen = live.observe(now + n, as_numpy=True)
            assert np.array_equal(seen[key], frame)
            assert seen["points"].shape == (5, 4) and int(seen["points_lengths"]) == 5
        for wrong, kind in [
            (frame, robocache.Misuse),
            (frame.transpose(1, 2, 0).astype(np.float32), robocache.Misuse),
            (np.zeros((10, 20, 3), np.uint8), robocache.Malformed),
            (b"no image", robocache.Error),
            (jpeg[:20], robocache.Error),
        ]:
            with pytest.raises(kind):
                live.push(key, wrong, now + 9, now + 9)
        assert np.array_equal(live.observe(now + 9, as_numpy=True)[key], frame)


def test_streams_without_samples(camera_contract: robocache.Contract) -> None:
    """Each kind of stream is masked until its first sample arrives."""
    with robocache.Live(camera_contract) as live:
        seen = live.observe(timeout_s=0, as_numpy=True)
        assert all(seen.masks.values()) and set(seen.ages.values()) == {None}
        assert not seen["camera.color.image_raw.compressed"].any()
        assert seen["points"].shape == (0, 4) and int(seen["points_lengths"]) == 0


def test_threads(state_contract: robocache.Contract) -> None:
    """Several threads push while another observes."""
    live = robocache.Live(state_contract)
    errors: list[BaseException] = []
    per_thread, threads = 400, 4

    def push(first: int) -> None:
        try:
            for _ in range(per_thread):
                now = time.time_ns()
                live.push(STATE, np.full(26, first, np.float32), now, now)
        except BaseException as e:
            errors.append(e)

    workers = [threading.Thread(target=push, args=(n,)) for n in range(threads)]
    for w in workers:
        w.start()
    seen = []
    while any(w.is_alive() for w in workers):
        seen.append(live.observe(as_numpy=True))
    for w in workers:
        w.join()
    assert not errors
    assert live.stats()[STATE]["received"] == per_thread * threads
    for s in seen:
        row = s[STATE]
        assert s.masks[STATE] or (row == row[0]).all() and row[0] in range(threads)
    live.close()


def test_waits_for_the_first_sample(state_contract: robocache.Contract) -> None:
    with robocache.Live(state_contract) as live:
        assert live.observe(timeout_s=0.01).masks == {STATE: True}
        assert live.observe(timeout_s=0.01).ages == {STATE: None}

        def push() -> None:
            live.push(STATE, np.ones(26, np.float32), time.time_ns())

        timer = threading.Timer(0.2, push)
        timer.start()
        assert live.observe(timeout_s=20).masks == {STATE: False}
        timer.join()


def test_lifetime(state_contract: robocache.Contract) -> None:
    live = robocache.Live(state_contract, memory_budget="1MiB")
    seen = live.observe(timeout_s=0, as_numpy=True)
    live.close()
    live.close()
    assert (seen[STATE] == 0).all() and "closed" in repr(live)
    for call in (live.observe, live.stats, live.reset, lambda: live.push(STATE, 1, 1)):
        with pytest.raises(robocache.Misuse):
            call()
    with pytest.raises(robocache.Misuse):
        pickle.dumps(robocache.Live(state_contract))
    with pytest.raises(robocache.Misuse, match="scheme"):
        robocache.Live(state_contract, source="nosuch://robot")


def test_fork(state_contract: robocache.Contract) -> None:
    live = robocache.Live(state_contract)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            live.observe()
        except robocache.ForkError:
            live.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    live.observe(timeout_s=0)


@pytest.mark.slow
def test_interrupt(state_contract: robocache.Contract, script: Any, tmp_path: Path) -> None:
    state_contract.save(tmp_path / "c.json")
    done = script(
        f"""
        import os, robocache, signal, threading, time
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
        live = robocache.Live({str(tmp_path / "c.json")!r})
        threading.Timer(0.5, os.kill, (os.getpid(), {int(signal.SIGINT)})).start()
        begin = time.monotonic()
        try:
            live.observe(timeout_s=60)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begin)
        live.observe(timeout_s=0)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("interrupted") and float(done.stdout.split()[1]) < 10


def test_example(
    state_contract: robocache.Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the docstring runs."""
    monkeypatch.chdir(tmp_path)
    state_contract.save("policy.contract.json")
    text = textwrap.dedent((robocache.Live.__doc__ or "").split("Example:\n")[1])
    exec(text, {"robocache": robocache, "np": np, "time": time})


def test_replay(mcap: str, exact: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    contract = _contract(mcap)
    contract.save(path)
    result = robocache.live.replay(mcap, contract, episodes=[0], max_ticks=40)
    assert result.ticks == 40 and result.different_bits == 0 and result["values"] > 0
    with pytest.raises(robocache.Misuse, match="does not fit"):
        robocache.live.replay(exact, path)
    done = cli("live", "replay", mcap, "--contract", str(path), "--max-ticks", "25", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["different_bits"] == 0
    done = cli("live", "check", mcap, "--contract", str(path))
    assert done.returncode == 0 and "fits" in done.stdout
    done = cli("live", "check", exact, "--contract", str(path), "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["findings"][0]["code"] == "contract-mismatch"
    assert cli("live", "--contract", str(path)).returncode == 2
    assert cli("live", "replay", mcap, "--contract", str(tmp_path / "no.json")).returncode == 10


def test_record(state_contract: robocache.Contract, tmp_path: Path) -> None:
    path = tmp_path / "seen.mcap"
    with robocache.Live(state_contract, record=path) as live:
        with pytest.raises(robocache.Misuse):
            live.record(tmp_path / "other.mcap")
        for n in range(20):
            live.push(STATE, np.full(26, n, np.float32), n * 10**8, n * 10**8)
            live.observe(n * 10**8, 0)
        live.reset()
        live.observe(2 * 10**9, 0)
        assert live.error is None
    result = robocache.live.verify(path)
    assert result.ticks == 21 and result.different_ticks == 0
    done = cli("live", "verify", str(path))
    assert done.returncode == 0 and done.stdout.startswith("21 ticks, 0 differ"), done.stderr
    with pytest.raises(robocache.Misuse):
        robocache.Live(state_contract, record=path)  # it exists
    with pytest.raises(robocache.NotFound):
        robocache.live.verify(tmp_path / "no.mcap")
