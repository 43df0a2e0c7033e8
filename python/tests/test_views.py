"""loader.as_numpy() and loader.as_jax(): the loader's batches without torch, safe and in place."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, synth

import robocache

BATCH = 8


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    options = ["--cameras", "1", "--size", "64x64", "--episodes", "3", "--seconds", "1"]
    return str(synth(tmp_path_factory.mktemp("views") / "arm", *options))


@pytest.fixture(scope="module")
def jax() -> Any:
    return pytest.importorskip("jax", reason="jax is not installed: scripts/venv.sh peers")


def loader(path: str, **kwargs: Any) -> robocache.Loader:
    return robocache.Loader(
        path, **{"batch_size": BATCH, "seed": 3, "threads": 1, "rank": 0, "world_size": 1, **kwargs}
    )


def equal(got: dict[str, Any], want: dict[str, Any]) -> bool:
    return list(got) == list(want) and all(
        got[k] == want[k]
        if isinstance(want[k], list)
        else np.array_equal(np.asarray(got[k]), np.asarray(want[k]))
        for k in want
    )


def test_numpy_batches_are_those_of_the_loader(path: str) -> None:
    windows = {"observation.state": [-0.1, 0], "action": [0, 0.1]}
    kwargs = {"delta_timestamps": windows, "normalize": "mean_std"}
    want = list(loader(path, **kwargs))
    source = loader(path, **kwargs)
    view = source.as_numpy()
    got = list(view)
    assert len(view) == len(source) == len(got) and all(map(equal, got, want))
    assert {type(v) for b in got for v in b.values()} == {np.ndarray, list}
    assert all(v.flags.writeable and v.ctypes.data % 64 == 0 for v in got[0].values()
               if isinstance(v, np.ndarray))  # fmt: skip


def test_a_view_shares_the_position_of_the_loader(path: str) -> None:
    want = loader_epoch(path, 0)
    source = loader(path)
    it = iter(source.as_numpy())
    head = [next(it)["index"].tolist() for _ in range(2)]
    state = source.state_dict()
    other = loader(path)
    other.load_state_dict(state)
    assert head + [b["index"].tolist() for b in other.as_numpy()] == want
    source.set_epoch(0)
    with pytest.raises(robocache.Misuse, match="moved this Loader"):
        next(it)
    assert [b["index"].tolist() for b in source.as_numpy()] == want
    assert [b["index"].tolist() for b in source] == loader_epoch(path, 1)


def loader_epoch(path: str, epoch: int) -> list[list[int]]:
    source = loader(path)
    source.set_epoch(epoch)
    return [b["index"].tolist() for b in source]


@pytest.mark.parametrize("ahead", (False, True))
def test_jax_batches_are_those_of_the_loader(jax: Any, path: str, ahead: bool) -> None:
    """`ahead`: a device that is not the default one, for which copies are started early."""
    device = jax.local_devices()[0] if ahead else None
    want = list(loader(path))
    source = loader(path)
    got, states = [], []
    for batch in source.as_jax(device):
        got.append(batch)
        states.append(source.state_dict())
    assert len(got) == len(want) and all(map(equal, got, want))
    for n in (0, len(got) - 2):  # A batch that was read ahead is not delivered yet.
        rest = loader(path)
        rest.load_state_dict(states[n])
        assert all(map(equal, rest.as_jax(device), want[n + 1 :]))
    dtypes = {k: str(v.dtype) for k, v in got[0].items() if not isinstance(v, list)}
    assert dtypes["index"] == "int32" and dtypes["action"] == "float32"


def test_a_pass_that_ends_early_loses_nothing(jax: Any, path: str) -> None:
    source = loader(path)
    view = source.as_jax(jax.local_devices()[0])
    next(iter(view))
    assert [np.asarray(b["index"]).tolist() for b in view] == loader_epoch(path, 1)
    next(iter(view))
    assert [b["index"].tolist() for b in source] == loader_epoch(path, 3)


def test_jax_uses_the_memory_of_the_engine(jax: Any, path: str) -> None:
    keys = ["observation.images.top", "action", "index"]
    source = loader(path, keys=[k for k in loader(path).keys if k in keys or "images" in k])
    view = source.as_jax()
    view._open_source(source._open().open())
    host = next(iter(source.as_numpy()))
    for key, array in view.convert(host).items():
        same = array.unsafe_buffer_pointer() == host[key].ctypes.data
        assert same == (key != "index"), key


@pytest.mark.parametrize("own", (None, "device"))
def test_memory_lives_as_long_as_jax_needs_it(jax: Any, path: str, own: str | None) -> None:
    """Arrays that JAX holds do not change: the engine reuses no memory, and they are read-only."""
    source = loader(path, memory_budget="64MiB")
    view = source.as_jax(own and jax.local_devices()[0])
    kept = list(view)
    copies = [{k: np.array(v) for k, v in b.items()} for b in kept]
    views = [np.asarray(v) for b in kept for v in b.values() if not isinstance(v, list)]
    assert not any(v.flags.writeable for v in views)
    for _ in range(3):
        for batch in source.as_numpy():
            for v in batch.values():
                if not isinstance(v, list):
                    v.fill(1)  # The engine must not have given this memory to JAX before.
    source.close()
    del source, view, batch
    gc.collect()
    list(loader(path).as_jax())
    assert all(np.array_equal(b[k], c[k]) for b, c in zip(kept, copies) for k in b)


def test_x64_and_values_that_do_not_fit(jax: Any, path: str) -> None:
    with jax.enable_x64(True):
        assert str(next(iter(loader(path).as_jax()))["index"].dtype) == "int64"
    source = loader(path)
    view = source.as_jax()
    view._open_source(source._open().open())
    assert view.convert({"t": np.array([-(2**31), 2**31 - 1])})["t"].tolist() == [
        -(2**31),
        2**31 - 1,
    ]
    for wrong in (2**31, -(2**31) - 1):
        with pytest.raises(robocache.Misuse, match="t: a value of -?214748364. does not fit") as e:
            view.convert({"t": np.array([0, wrong])})
        assert "jax_enable_x64" in e.value.hint
    half = np.array([1.5, -2], np.float32).view(np.uint32) >> 16
    view._bfloat16 = {"h"}
    got = view.convert({"h": half.astype(np.uint16)})["h"]
    assert str(got.dtype) == "bfloat16" and got.tolist() == [1.5, -2]


def test_wrong_use(jax: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(robocache.Misuse, match="sharding='data'"):
        loader(path).as_jax("data")
    mesh = jax.make_mesh((1,), ("data",))
    wide = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    with pytest.raises(robocache.Misuse, match="has 1 axes, and the sharding"):
        loader(path).as_jax(wide)
    pinned = loader(path)
    pinned._config["pin_memory"] = True
    with pytest.raises(robocache.Misuse, match="pin_memory=True"):
        pinned.as_numpy()
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(robocache.Unsupported, match="not installed") as e:
        loader(path).as_jax()
    assert e.value.hint == "pip install jax"


DEVICES = """
import json, os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
sys.modules["torch"] = None  # torch is not needed
import jax, numpy as np, robocache
from jax.sharding import NamedSharding, PartitionSpec
process, processes, port, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
loader = lambda **kwargs: robocache.Loader(path, batch_size=8, seed=3, threads=1, **kwargs)
numpy = [b["index"].tolist() for b in loader().as_numpy()]
assert [b["index"].tolist() for b in loader()] == numpy
out = {"local": [np.asarray(b["index"]).tolist() for b in loader().as_jax()]}
mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
source = loader(drop_last=True)
view = source.as_jax(sharding)
total = jax.jit(lambda b: b["action"].astype("float32").sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
out["rank"], out["batches"], out["sums"] = [source.rank, source.world_size, len(view)], [], []
for b in view:
    shards = sorted(b["index"].addressable_shards, key=lambda s: s.index[0].start)
    out["batches"].append([list(b["index"].shape), [np.asarray(s.data).tolist() for s in shards]])
    out["sums"].append(float(total({k: v for k, v in b.items() if not isinstance(v, list)})))
    out["texts"] = len(b["task"])
model = NamedSharding(jax.make_mesh((1, jax.device_count()), ("data", "model")), PartitionSpec("data"))
source = loader(drop_last=True)
out["model"] = [source.as_jax(model) and source.rank, source.world_size]
def refused(loader, sharding=sharding):
    try:
        loader.as_jax(sharding)
    except robocache.Misuse as e:
        return str(e)
odd = dict(order=robocache.Order(uneven="short")) if processes > 1 else {}
out["refused"] = [refused(loader(**odd)), refused(loader(rank=0, world_size=3, drop_last=True))]
odd = robocache.Loader(path, batch_size=3)
out["odd"] = refused(odd)
if processes > 1:
    crossed = jax.sharding.Mesh(np.array(jax.devices())[[0, 1, 2]], ("data",))
    out["crossed"] = refused(loader(), NamedSharding(crossed, PartitionSpec("data")))
print(json.dumps(out))
"""


def run_devices(path: str, processes: int) -> list[dict[str, Any]]:
    """Runs DEVICES in processes of two CPU devices each, and returns what they print."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", DEVICES, str(i), str(processes), str(port), path],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    ended = [p.communicate(timeout=240) for p in started]
    assert not any(p.returncode for p in started), ended
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


@pytest.mark.slow
def test_two_devices(jax: Any, path: str) -> None:
    (got,) = run_devices(path, 1)
    order = loader(path).order(0).tolist()
    steps = len(order) // BATCH
    assert got["rank"] == [0, 1, steps] and sum(got["local"], []) == order
    for t, (shape, shards) in enumerate(got["batches"]):
        rows = order[t * BATCH : (t + 1) * BATCH]
        assert shape == [BATCH] and shards == [rows[:4], rows[4:]]
    assert len(got["batches"]) == steps and got["texts"] == BATCH
    # The last step of two rows can be cut in two, the last one of a batch size of 3 cannot.
    assert got["refused"] == [None, None] and "3 rows cannot be sharded" in got["odd"]


@pytest.mark.slow
def test_two_processes(jax: Any, path: str) -> None:
    got = run_devices(path, 2)
    order = loader(path).order(0).tolist()
    steps = len(order) // (2 * BATCH)
    actions = {int(i): a for b in loader(path) for i, a in zip(b["index"], np.asarray(b["action"]))}
    for r, out in enumerate(got):
        assert out["rank"] == [r, 2, steps] and len(out["batches"]) == steps
        for t, (shape, shards) in enumerate(out["batches"]):
            at = t * 2 * BATCH + r * BATCH
            assert shape == [2 * BATCH]
            assert shards == [order[at : at + 4], order[at + 4 : at + BATCH]]
            whole = order[t * 2 * BATCH : (t + 1) * 2 * BATCH]
            assert abs(out["sums"][t] - sum(actions[i].sum() for i in whole)) < 1e-3
        assert out["model"] == [0, 1], "processes that hold the same rows deliver the same batches"
        assert "uneven" in out["refused"][0] and "rank 0 of 3" in out["refused"][1]
        assert "equal part" in out["crossed"]
    assert {i for out in got for b in out["local"] for i in b} == set(order)
    assert len(got[0]["local"]) == -(-len(order) // (2 * BATCH))
