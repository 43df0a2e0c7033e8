"""Uses of a Loader in training code besides `for`.

Covers its dataset, its attributes, its normalizer, and misuse.
"""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import synth

import robocache
from robocache import _compare_scales

N = 93


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        synth(
            tmp_path_factory.mktemp("use") / "arm",
            "--cameras",
            "0",
            "--episodes",
            "3",
            "--seconds",
            str(31 / 30),
        )
    )


def make_loader(path: Any, **kwargs: Any) -> robocache.Loader:
    return robocache.Loader(
        path, **{"batch_size": 8, "seed": 3, "threads": 1, "keys": ["action", "index"], **kwargs}
    )


def numbers(v: Any) -> np.ndarray:
    return np.asarray(v)


# Tests of the dataset.


def test_the_dataset_of_a_loader_counts_samples(path: str) -> None:
    with make_loader(path) as ld:
        assert len(ld.dataset) == ld.num_samples == N and ld.dataset.num_episodes == 3
        assert isinstance(ld.dataset, robocache.Dataset) and ld.dataset.uri == ld.datasets[0].uri
        batch = next(iter(ld))
        first = int(batch["index"][0])
        assert np.array_equal(numbers(ld.dataset[first]["action"]), numbers(batch["action"][0]))
        assert [int(s["index"]) for s in ld.dataset] == list(range(N))
        again = pickle.loads(pickle.dumps(ld.dataset))
        assert len(again) == N and int(again[-1]["index"]) == N - 1
    with make_loader(path, order=robocache.Order(drop_n_last_frames=1), episodes=[0, 2]) as ld:
        assert len(ld.dataset) == 60 and int(ld.dataset[30]["index"]) == 62
    with robocache.Loader([path, path]) as mixture:
        assert not hasattr(mixture, "dataset") and len(mixture.datasets) == 2


# Tests of the attributes.


def test_batch_size_changes_between_epochs(path: str) -> None:
    with make_loader(path) as ld:
        orders = [ld.order(e).tolist() for e in range(3)]
        assert [i for b in ld for i in b["index"].tolist()] == orders[0]
        ld.batch_size = 20
        assert (ld.batch_size, len(ld)) == (20, 5)
        got = [b["index"].tolist() for b in ld]
        assert [len(b) for b in got] == [20, 20, 20, 20, 13] and sum(got, []) == orders[1]
        it = iter(ld)
        next(it)
        with pytest.raises(robocache.Misuse, match="in the middle of an epoch"):
            ld.batch_size = 4
        ld.set_epoch(2)
        ld.batch_size = 4
        assert [i for b in ld for i in b["index"].tolist()] == orders[2]
        for bad in (0, -1, 2.5, None, True):
            with pytest.raises(robocache.Misuse, match="batch_size"):
                ld.batch_size = bad
    ld = make_loader(path)
    ld.batch_size = 93
    assert len(ld) == 1


@pytest.mark.parametrize(
    "name",
    (
        "seed",
        "shuffle",
        "rank",
        "world_size",
        "device",
        "pin_memory",
        "normalize",
        "drop_last",
        "episodes",
    ),
)
def test_other_options_cannot_be_assigned(name: str, path: str) -> None:
    with (
        make_loader(path) as ld,
        pytest.raises(
            robocache.Misuse,
            match=f"{name} of a Loader that was made already.*make a new Loader with .*{name}=",
        ),
    ):
        setattr(ld, name, 1)


def test_frameworks_may_keep_attributes_of_their_own(path: str) -> None:
    with make_loader(path) as ld:
        ld.hook = 3  # type: ignore[attr-defined]
        assert ld.hook == 3


# Tests of misuse.


def test_hints_in_place_of_bare_errors(path: str) -> None:
    ds = robocache.open(path)
    with make_loader(path) as ld, make_loader([path, path]) as mixture:
        for what, wrong, hint in (
            (ld, 0, r"loader\.dataset\[i\]"),
            (mixture, 0, r"next\(iter\(loader\)\)"),
            (ld, "action", r"loader\.keys"),
            (ds.episode(0), "action", r"episode\.streams\['action'\]\.values"),
            (ds.episode(0).streams["action"], 0, r"stream\.values\[i\]"),
        ):
            with pytest.raises(robocache.Misuse, match=hint) as e:
                what[wrong]
            assert isinstance(e.value, TypeError)
        for features in (
            ds.features,
            ld.features,
            mixture.features,
            robocache.MapDataset(path).features,
            ds.episode(0).streams,
        ):
            with pytest.raises(robocache.Misuse, match="did you mean 'action'") as e:
                features["actions"]
            assert (
                isinstance(e.value, KeyError)
                and features.get("actions") is None
                and "actions" not in features
            )
        with pytest.raises(robocache.Misuse, match="did you mean 'dtype'"):
            ds.features["action"]["dtyp"]


# Validation data normalised with the statistics of training.


@pytest.fixture
def parts(path: str) -> Any:
    _compare_scales._seen.clear()
    _compare_scales._warned.clear()
    return robocache.open(path).random_split((2, 1), seed=1)


MODES: dict[str, Any] = {
    "mean_std": "mean_std",
    "min_max": "min_max",
    "clipped": {"action": {"mode": "quantiles", "clip": True}},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ("normalizer", "loader", "state"))
def test_validation_takes_the_numbers_of_training(mode: str, way: str, parts: Any) -> None:
    train = make_loader(
        parts[0], normalize=MODES[mode], statistics=robocache.Statistics(compute=True)
    )
    given: Any = {
        "normalizer": train.normalizer,
        "loader": train,
        "state": robocache.Normalizer.from_state_dict(train.normalizer.state_dict()),
    }[way]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        valid = make_loader(parts[1], normalize=given, shuffle=False)
        items = robocache.MapDataset(parts[1], normalize=given, keys=["action"])
    assert valid.normalizer.state_dict() == train.normalizer.state_dict(), "to the bit"
    raw = next(iter(make_loader(parts[1], shuffle=False)))
    want = train.normalizer(raw)["action"]
    assert np.array_equal(numbers(next(iter(valid))["action"]), numbers(want))
    assert np.array_equal(numbers(items[0]["action"]), numbers(want[0]))


def test_numbers_are_taken_over_exactly() -> None:
    """float32 numbers of any scale reach the engine unchanged."""
    rng = np.random.default_rng(0)
    std = np.concatenate([10.0 ** rng.uniform(-12, 6, 2000), [0, 1e-12, 1e-8, 1]]).astype(
        np.float32
    )
    shift = rng.normal(0, 10.0 ** rng.uniform(-6, 6, len(std))).astype(np.float32)
    scale = np.where(std == 0, np.float32(0), std + np.float32(1e-8))
    high = (shift + std).astype(np.float32)
    for mode, b in (("mean_std", scale), ("min_max", high - shift)):
        state = {"mode": mode, "shift": shift.tolist(), "scale": b.tolist(), "shape": [len(std)]}
        one = robocache.normalizer.repeat_normalizer(
            robocache.Normalizer({"version": 1, "keys": {"x": state}})
        )["x"]
        if mode == "mean_std":
            back = np.asarray(one["std"]).astype(np.float32)
            made = np.where(back != 0, back + np.float32(1e-8), np.float32(0))
            assert np.array_equal(np.asarray(one["mean"], np.float32), shift)
        else:
            made = np.asarray(one["high"]).astype(np.float32) - np.asarray(one["low"]).astype(
                np.float32
            )
        assert np.array_equal(made, b), mode


def test_two_scales_of_one_dataset_are_warned_of(parts: Any, path: str) -> None:
    train = make_loader(
        parts[0], normalize="mean_std", statistics=robocache.Statistics(compute=True)
    )
    with pytest.warns(
        UserWarning,
        match=r"this part has other numbers than another part for "
        r"'action'.*normalize=train\.normalizer",
    ):
        make_loader(parts[1], normalize="mean_std", statistics=robocache.Statistics(compute=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_loader(
            parts[0],
            normalize="mean_std",
            statistics=robocache.Statistics(compute=True),
            batch_size=4,
        )
        make_loader(path, normalize=train)
        make_loader(
            [
                robocache.Mix(parts[1], normalize=train.normalizer),
                robocache.Mix(parts[0], normalize=train),
            ]
        )


@pytest.mark.filterwarnings("ignore:normalize")
def test_a_mixture_takes_the_normalizer_of_a_mixture(parts: Any) -> None:
    train = make_loader(
        [parts[0], parts[1]], normalize="min_max", statistics=robocache.Statistics(compute=True)
    )
    valid = make_loader([parts[1], parts[0]], normalize=train)
    assert valid.normalizer.state_dict() == train.normalizer.state_dict()
    with pytest.raises(robocache.Misuse, match="name one source"):
        make_loader(parts[0], normalize=train)
    with pytest.raises(robocache.Misuse, match="2 sources for a mixture of 3"):
        make_loader([parts[0]] * 3, normalize=train.normalizer)
    with pytest.raises(robocache.Misuse, match="normalises nothing"):
        make_loader(parts[0], normalize=make_loader(parts[1]))


def test_keys_select_of_a_normalizer(parts: Any) -> None:
    train = make_loader(
        parts[0],
        normalize="mean_std",
        statistics=robocache.Statistics(compute=True),
        keys=["action", "observation.state"],
    )
    assert make_loader(parts[1], normalize=train, keys=["action"]).normalizer.keys == ["action"]
    source = robocache.MapDataset(parts[1], keys=["action"])
    assert robocache.Loader(source, normalize=train).normalizer.keys == ["action"]


# Tests of durations.


def test_a_number_is_seconds_everywhere(path: str) -> None:
    """An int is a number of seconds, as a float is.

    An int read as nanoseconds would pad half of the rows with max_gap=1, and latency=1 would do
    nothing.
    """
    both = [
        robocache.MapDataset(path, hz=20, keys=["action"], align=robocache.Align(max_gap=g)).batch(
            range(20)
        )
        for g in (1, 1.0, "1s", "1000ms")
    ]
    for b in both:
        assert not numbers(b["action_is_pad"]).any()
    late = [
        make_loader(
            path, hz=20, shuffle=False, align=robocache.Align(latency={"action": v}, edge="mask")
        )
        for v in (1, 1.0, "1000000000ns")
    ]
    first = [numbers(next(iter(ld))["action"]) for ld in late]
    assert np.array_equal(first[0], first[1]) and np.array_equal(first[0], first[2])
    assert not np.array_equal(
        first[0], numbers(next(iter(make_loader(path, hz=20, shuffle=False)))["action"])
    )
    with pytest.raises(robocache.Misuse, match="as nanoseconds 50 ms"):
        make_loader(path, hz=20, align=robocache.Align(max_gap={"action": 50_000_000}))
    times, values = np.arange(10) * 100_000_000, np.arange(10.0)[:, None]
    targets = times[:-1] + 50_000_000
    for gap, padded in ((1, False), (0.05, True), ("50ms", True)):
        assert (
            not robocache.resample(values, times, targets, max_gap=gap, return_valid=True)[1].all()
            == padded
        )


# Tests of float64 and of numbers that are not finite.


@pytest.fixture
def holed(path: str, tmp_path: Path) -> Path:
    """Returns the dataset with float64 actions.

    In episode 1, column 1, row 4 is NaN and row 6 is infinity.
    """
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet as pq

    out = tmp_path / "holed"
    shutil.copytree(path, out)
    info = json.loads((out / "meta" / "info.json").read_text())
    info["features"]["action"]["dtype"] = "float64"
    (out / "meta" / "info.json").write_text(json.dumps(info))
    (file,) = (out / "data").rglob("*.parquet")
    table = pq.read_table(file)
    rows = np.array(table["action"].to_pylist(), np.float64)
    rows[31 + 4, 1], rows[31 + 6, 0] = np.nan, -np.inf
    at = table.column_names.index("action")
    pq.write_table(
        table.set_column(
            at, "action", pa.array(rows.tolist(), pa.list_(pa.float64(), rows.shape[1]))
        ),
        file,
    )
    return out


def test_nan_is_an_error_with_its_place(holed: Path) -> None:
    with (
        make_loader(holed) as ld,
        pytest.raises(robocache.Malformed, match="column 1 is NaN.*on_nan=") as e,
    ):
        list(ld)
    assert {k: e.value.where[k] for k in ("episode", "row", "column", "stream")} == {
        "episode": 1,
        "row": 4,
        "column": 1,
        "stream": "action",
    }
    items = robocache.MapDataset(holed, keys=["action"])
    assert np.isfinite(numbers(items[30]["action"])).all()
    with pytest.raises(robocache.Malformed, match="NaN"):
        items[31]  # no row of this episode is delivered
    with make_loader(holed, keys=["observation.state"]) as ld:
        assert len(list(ld)) == 12  # streams that are not requested are not checked
    with (
        make_loader(holed, hz=20, shuffle=False) as ld,
        pytest.raises(robocache.Malformed, match="NaN"),
    ):
        list(ld)


@pytest.mark.parametrize("shuffle", ("global", "pool", False))
def test_nan_with_skip_leaves_the_episode_out_whole(shuffle: Any, holed: Path) -> None:
    with make_loader(holed, order=robocache.Order(on_bad_episode="skip"), shuffle=shuffle) as ld:
        got = [i for b in ld for i in b["index"].tolist()]
        assert sorted(got) == [*range(31), *range(62, 93)]
        (bad,) = ld.stats()["bad_episodes"]
        assert bad["episode"] == 1 and "NaN" in bad["error"]


def test_nan_masked_and_allowed(holed: Path) -> None:
    with make_loader(
        holed, order=robocache.Order(on_nan="mask"), shuffle=False, batch_size=93
    ) as ld:
        (batch,) = ld
    action, pad = numbers(batch["action"]), numbers(batch["action_is_pad"])
    assert (
        np.flatnonzero(pad).tolist() == [35, 37]
        and not action[pad].any()
        and np.isfinite(action).all()
    )
    with make_loader(
        holed, order=robocache.Order(on_nan="allow"), shuffle=False, batch_size=93
    ) as ld:
        (batch,) = ld
    assert np.isnan(numbers(batch["action"])[35, 1]) and "action_is_pad" not in batch
    with pytest.raises(robocache.Misuse, match="on_nan"):
        make_loader(holed, order=robocache.Order(on_nan="drop"))
    item = robocache.LeRobotDataset("x", root=holed)[35]
    assert np.isnan(numbers(item["action"])[1]), "the same as lerobot returns"


def test_float64_is_delivered_as_float32(holed: Path) -> None:
    for kwargs in (
        {},
        {"hz": 20},
        {"normalize": "mean_std", "statistics": robocache.Statistics(compute=True)},
        {"delta_timestamps": {"action": [0.0, 1 / 30]}},
    ):
        with make_loader(holed, episodes=[0], **kwargs) as ld:
            batch = next(iter(ld))
            assert str(batch["action"].dtype).removeprefix("torch.") == "float32", kwargs
            item = ld.dataset[int(ld.order(0)[0])]
            assert str(item["action"].dtype).removeprefix("torch.") == "float32" and np.array_equal(
                numbers(item["action"]), numbers(batch["action"][0])
            )
    with make_loader(holed, episodes=[0], windows=robocache.Windows(dtype="keep")) as ld:
        assert str(next(iter(ld))["action"].dtype).removeprefix("torch.") == "float64"
    with make_loader(
        holed, episodes=[0], align=robocache.Align(dtypes={"action": "float64"})
    ) as ld:
        assert str(next(iter(ld))["action"].dtype).removeprefix("torch.") == "float64"
    assert (
        str(robocache.MapDataset(holed, episodes=[0])[0]["action"].dtype).removeprefix("torch.")
        == "float64"
    )
    assert (
        str(robocache.LeRobotDataset("x", root=holed)[0]["action"].dtype).removeprefix("torch.")
        == "float32"
    )
    with pytest.raises(robocache.Misuse, match="dtype"):
        make_loader(holed, windows=robocache.Windows(dtype="float16"))
