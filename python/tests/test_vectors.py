"""robocache.Vector, against model inputs that the clients' own code made (data/clients/*.npz)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import dataset_path

import robocache
from robocache import Loader, MapDataset, Mix, Part, Vector

GROUPS = ("left_arm", "left_hand", "right_arm", "right_hand", "waist")
ARMS, HANDS = ("left_arm", "right_arm"), ("left_hand", "right_hand")


def client(name: str) -> dict[str, Any]:
    with np.load(dataset_path(f"clients/{name}.npz"), allow_pickle=False) as z:
        return dict(z)


def stack(items: list[dict[str, Any]], key: str) -> np.ndarray:
    return np.stack([np.asarray(item[key]) for item in items])


def check_bits(got: np.ndarray, want: np.ndarray, name: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, name
    assert got.tobytes() == want.tobytes(), f"{name}: {np.sum(got != want)} numbers differ"


def gr00t_vectors(theirs: dict[str, Any], variant: str, modality: Any) -> dict[str, Vector]:
    key = "norm_params_minmax_json" if variant == "minmax" else "norm_params_json"
    numbers, statistics = json.loads(str(theirs[key])), json.loads(str(theirs["statistics_json"]))

    def part(kind: str, group: str, **more: Any) -> Part:
        n, place = numbers[kind][group], modality[kind][group]
        if variant == "absolute" and kind == "action" and group in ARMS:
            n = {"min": statistics[kind][group]["q01"], "max": statistics[kind][group]["q99"]}
        norm: Any = {
            **{"mode": "min_max", "low": n["min"], "high": n["max"], "clip": True},
            **{"isclose": True, "precision": "float64" if "relative" in more else "mixed"},
        }
        if variant == "sincos" and kind == "state" and group in ARMS:
            norm = "sin_cos"
        elif variant == "sincos" and kind == "state" and group in HANDS:
            norm = {"mode": "mean_std", "mean": n["mean"], "std": n["std"], "constant": "keep"}
        stream = place.get("original_key") or {"state": "observation.state"}.get(kind, kind)
        where = (stream, place["start"], place["end"])
        return Part(*where, name=group, precision="mixed", norm=norm, **more)

    def action(group: str) -> Part:
        if variant == "absolute" or group not in ARMS:
            return part("action", group)
        reference = ("observation.state", modality["state"][group]["start"])
        return part("action", group, relative="difference", reference=reference)

    state = [part("state", g) for g in GROUPS]
    return {
        "state": Vector(parts=state, rows=[0], width=132),
        "action": Vector(
            parts=[action(g) for g in GROUPS], rows=range(16), length=40, width=132, mask="mask"
        ),
    }


@pytest.mark.parametrize("variant", ["processed", "minmax", "absolute", "sincos"])
def test_model_inputs_are_those_of_gr00t(variant: str) -> None:
    theirs, path = client("gr00t"), dataset_path("gr00t_picknplace_v20")
    modality = json.loads((Path(path) / "meta" / "modality.json").read_text())
    vectors = gr00t_vectors(theirs, variant, modality)
    data = MapDataset(path, keys=["frame_index"], vectors=vectors, split="all")
    lengths = [len(data.dataset.episode(e)) for e in data.dataset.episode_indices]
    first = np.concatenate([[0], np.cumsum(lengths)])
    items = data.__getitems__((first[theirs["episode"]] + theirs["step"]).tolist())
    check_bits(stack(items, "action"), theirs[f"{variant}/action"], "action")
    got, want = stack(items, "state"), theirs[f"{variant}/state"]
    if variant == "sincos":  # NumPy's float32 sine is not rounded correctly.
        arms = np.r_[0:14, 20:34]
        assert np.abs(got[..., arms] - want[..., arms]).max() <= 2**-24
        got[..., arms] = want[..., arms] = 0
    check_bits(got, want, "state")
    assert np.array_equal(stack(items, "mask"), theirs["processed/action_mask"] != 0)
    assert stack(items, "action_is_pad")[0].tolist() == [False] * 16 + [True] * 24


@pytest.mark.parametrize("variant", ["quantile", "zscore"])
def test_samples_are_those_of_openpi(variant: str) -> None:
    theirs, mode = client("openpi"), "quantiles" if variant == "quantile" else "mean_std"
    names = ("low", "high") if variant == "quantile" else ("mean", "std")

    def norm(key: str, columns: slice) -> dict[str, Any]:
        stats = {"low": "q01", "high": "q99"}
        numbers = {n: theirs[f"norm_stats/{key}/{stats.get(n, n)}"][columns] for n in names}
        precision = "float64" if variant == "quantile" else "float32"
        epsilon = 1e-6 if variant == "quantile" else float(np.float32(1e-6))
        return {"mode": mode, **numbers, "epsilon": epsilon, "precision": precision}

    def vectors(normalized: bool, width: int | None) -> dict[str, Vector]:
        def part(key: str, *where: int, stats: str, **more: Any) -> Part:
            n = norm(stats, slice(*where)) if normalized else None
            return Part(key, *where, precision="float32", norm=n, **more)

        dtype: Any = "float64" if normalized and variant == "quantile" else "float32"
        same: dict[str, Any] = {"width": width, "dtype": dtype}
        reference = ("observation.state", 0)
        return {
            "state": Vector(parts=[part("observation.state", 0, 26, stats="state")], **same),
            "actions": Vector(
                parts=[
                    part(
                        *("action", 0, 14),
                        stats="actions",
                        relative="difference",
                        reference=reference,
                    ),
                    part("action", 14, 26, stats="actions"),
                ],
                rows=range(50),
                **same,
            ),
        }

    for prefix, normalized, width in (
        ("delta", False, None),
        (f"normalized_{variant}", True, None),
        (f"padded_{variant}", True, 32),
    ):
        chosen = vectors(normalized, width)
        data = MapDataset(dataset_path("g1_v21"), keys=["index"], vectors=chosen)
        items = data.__getitems__(theirs["row"].tolist())
        for key in ("state", "actions"):
            check_bits(stack(items, key), theirs[f"{prefix}/{key}"], f"{prefix}/{key}")
        assert np.array_equal(stack(items, "actions_is_pad"), theirs["item/action_is_pad"])


@pytest.mark.parametrize("mode", ["limits", "gaussian"])
def test_samples_are_those_of_diffusion_policy(mode: str) -> None:
    theirs, path = client("diffusion_policy"), dataset_path("diffusion_policy_zarr")

    def vector(stream: str, key: str, width: int) -> Vector:
        stats = {n: theirs[f"normalizer/{mode}/{key}/{n}"] for n in ("scale", "offset")}
        norm: dict[str, Any] = {"mode": "affine", **stats, "precision": "float32"}
        if mode == "limits":
            ends = {n: theirs[f"normalizer/limits/{key}/input_{n}"] for n in ("min", "max")}
            norm = {"mode": "limits", "low": ends["min"], "high": ends["max"]}
            norm |= {"constant": "shift", "constant_below": 1e-4, "precision": "float32"}
        part = Part(stream, 0, width, precision="float32", norm=norm)
        return Vector(parts=[part], rows=range(-1, 15))  # A sample starts one row before its row.

    vectors = {
        "agent_pos": vector("observation.state", "agent_pos", 2),
        "act": vector("action", "action", 26),
    }
    data = MapDataset(f"{path}/replay_buffer.zarr", keys=["frame_index"], vectors=vectors)
    starts = np.concatenate([[0], theirs["episode_ends"]])
    _, start, _, pad, _ = theirs["16_1_7/index"][theirs["16_1_7/samples"]].T
    items = data.__getitems__((start - pad + 1).tolist())
    assert starts[-1] == len(data)
    for key, name in (("agent_pos", "agent_pos"), ("act", "action")):
        check_bits(stack(items, key), theirs[f"16_1_7/{name}_normalized_{mode}"], name)


def write_rows(path: Path, streams: dict[str, np.ndarray]) -> str:
    """Writes {key: (episode, row, D)} as a LeRobot dataset and returns its path."""
    features = {
        k: {"dtype": "float32", "shape": [v.shape[-1]], "names": None} for k, v in streams.items()
    }
    with robocache.Writer(path, fps=10, features=features) as w:
        for e in range(len(next(iter(streams.values())))):
            for t in range(streams["action"].shape[1]):
                w.add_frame({k: v[e, t] for k, v in streams.items()}, task="t")
            w.save_episode()
    return str(path)


def test_chunks_are_those_of_openvla(tmp_path: Path) -> None:
    theirs = client("openvla")
    streams = {"action": theirs["standardized/action"], "proprio": theirs["standardized/proprio"]}

    def norm(key: str, columns: slice) -> dict[str, Any]:
        low, high, least, most = (
            theirs[f"statistics/{key}/{n}"][columns] for n in ("q01", "q99", "min", "max")
        )
        return {
            **{"mode": "quantiles", "low": low, "high": high, "epsilon": 1e-8, "clip": True},
            **{"precision": "float32", "constant": "zero"},
            "constant_columns": np.flatnonzero(least == most).tolist(),
        }

    same: dict[str, Any] = {"precision": "float32"}
    padded: dict[str, Any] = {"beyond": "neutral", "pad_normalized": True}
    moves = Part("action", 0, 6, norm=norm("action", slice(6)), is_relative=True, **padded, **same)
    gripper = Part("action", 6, 7, **padded, **same)
    data = MapDataset(
        write_rows(tmp_path / "data", streams),
        keys=["frame_index"],
        vectors={
            "action": Vector(parts=[moves, gripper], rows=range(8)),
            "proprio": Vector(parts=[Part("proprio", norm=norm("proprio", slice(8)), **same)]),
        },
    )
    items = data.__getitems__(list(range(len(data))))
    action, proprio = theirs["normalized/action_chunk"], theirs["normalized/proprio"]
    check_bits(stack(items, "action"), action.reshape(-1, 8, 7), "action")
    check_bits(stack(items, "proprio"), proprio.reshape(-1, 8), "proprio")
    assert np.array_equal(stack(items, "action_is_pad"), theirs["past_end"].reshape(-1, 8))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    values = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    streams = {"action": values, "observation.state": -values}
    return write_rows(tmp_path_factory.mktemp("small") / "data", streams)


def test_parts_have_keys_of_their_own(small: str) -> None:
    parts = [Part("action", 0, 2, name="arm"), Part("action", 2, name="grip", norm="binary")]
    vectors = {"v": Vector(parts=parts, rows=[0, 1], separate=True)}
    item = MapDataset(small, keys=["action"], vectors=vectors)[4]
    assert set(item) >= {"action", "v.arm", "v.grip", "v.arm_is_pad"}
    assert np.asarray(item["v.arm"]).tolist() == [[12, 13], [12, 13]]
    assert np.asarray(item["v.grip"]).tolist() == [[1], [1]]
    assert np.asarray(item["v.arm_is_pad"]).tolist() == [False, True]


def test_normalizer_restores_what_openpi_delivers() -> None:
    reference: Any = {"relative": "difference", "reference": ("observation.state", 0)}
    low, high = np.linspace(-1, -0.5, 14), np.linspace(0.5, 2, 14)
    norm = {"mode": "quantiles", "low": low, "high": high, "epsilon": 1e-6}
    arms = Part("action", 0, 14, name="arms", norm=norm, precision="float32", **reference)
    rest = Part("action", columns=[20, 19], name="rest", norm="sin_cos")
    vectors = {"chunk": Vector(parts=[arms, rest], rows=range(4), length=6, width=32)}
    data = MapDataset(
        dataset_path("g1_v21"), keys=["observation.state"], vectors=vectors, episodes=[0]
    )
    raw = MapDataset(
        dataset_path("g1_v21"), windows=robocache.Windows(rows={"action": range(4)}), episodes=[0]
    )
    rows = [0, 7, 220]
    state, chunk = (stack(data.__getitems__(rows), k) for k in ("observation.state", "chunk"))
    action = stack(raw.__getitems__(rows), "action")
    stored = np.concatenate([action[..., :14], action[..., [20, 19]]], -1)
    inverse = data.normalizer.inverse({"chunk": chunk, "observation.state": state})
    assert np.abs(inverse["chunk"] - stored).max() < 1e-6
    assert data.normalizer.slices("chunk") == {"arms": slice(0, 14), "rest": slice(14, 16)}
    loaded = robocache.Normalizer.from_state_dict(
        json.loads(json.dumps(data.normalizer.state_dict()))
    )
    again = loaded({"chunk": stored, "observation.state": state})["chunk"]
    check_bits(again[..., :14], chunk[..., :14], "apply")
    assert np.abs(again - chunk).max() <= 2**-23
    with pytest.raises(robocache.Misuse, match="relative to 'observation.state'"):
        loaded.inverse({"chunk": chunk})
    with pytest.raises(robocache.Misuse, match="expected"):
        loaded.inverse({"chunk": chunk[..., :9], "observation.state": state})


@pytest.mark.parametrize(
    "form", ["quat", "quat_wxyz", "rotvec", "matrix", "rot6d", "rot6d_columns", "xyz", "ZYX", "zxz"]
)
def test_poses_come_back_in_every_form(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(0)
    streams = {"action": rng.normal(size=(1, 9, 7)).astype(np.float32)}
    path = write_rows(tmp_path / "data", streams)
    pose = Part("action", relative="pose", rotation=("rotvec", form))
    vectors = {"v": Vector(parts=[pose], rows=[0, 1, 2], dtype="float64")}
    data = MapDataset(path, vectors=vectors)
    items = data.__getitems__([0, 1, 5])
    chunk = stack(items, "v")
    rows = np.stack([np.float64(streams["action"][0][i : i + 3]) for i in (0, 1, 5)])
    norm = data.normalizer
    batch = {"v": rows, "action": rows[:, 0]}
    defined = slice(form == "zxz", None)  # Only the sum of two angles is, for no rotation.
    assert np.abs(norm(batch)["v"] - chunk)[:, defined].max() < 1e-9
    back = norm.inverse({"v": chunk, "action": rows[:, 0]})["v"]
    assert np.abs(back[..., [0, 1, 2, 6]] - rows[..., [0, 1, 2, 6]]).max() < 1e-9
    again = norm({"v": back, "action": rows[:, 0]})["v"]  # A rotation vector above π differs.
    assert np.abs(again - chunk)[:, defined].max() < 1e-9


def test_vectors_take_the_place_of_streams(small: str) -> None:
    vectors = {"action": Vector(parts=[Part("action", columns=[2]), Part("observation.state", 0)])}
    batch = next(iter(Loader(small, vectors=vectors, batch_size=10, shuffle=False)))
    assert np.asarray(batch["action"])[3].tolist() == [11, -9, -10, -11]
    assert np.asarray(batch["observation.state"]).shape == (10, 3)
    assert "action" not in Loader(small, vectors=vectors).contract().keys  # a label
    with pytest.raises(robocache.Misuse, match="rows of the vector"):
        Loader(small, vectors=vectors, delta_timestamps={"action": [0]})


def test_statistics_of_the_dataset_normalize_absolute_parts(small: str) -> None:
    vectors = {"v": Vector(parts=[Part("action", 1, 3, norm={"mode": "min_max"})])}
    batch = next(iter(Loader(small, vectors=vectors, batch_size=10, shuffle=False)))
    want = np.linspace(-1, 1, 10, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    assert np.allclose(np.asarray(batch["v"]), want, atol=1e-6)


@pytest.mark.parametrize("per_step", [False, True])
def test_relative_parts_are_normalized_over_windows(tmp_path: Path, per_step: bool) -> None:
    rng = np.random.default_rng(3)
    keys = ("action", "observation.state")
    streams = {k: rng.normal(size=(3, 11, 4)).astype(np.float32) for k in keys}
    path = write_rows(tmp_path / "data", streams)
    norm = {"mode": "min_max", "per_step": per_step}
    part = Part(
        *("action", 0, 3),
        **{"relative": "difference", "reference": ("observation.state", 1), "norm": norm},
        precision="mixed",
    )
    data = MapDataset(path, vectors={"v": Vector(parts=[part], rows=range(4))}, episodes=[0, 2])
    action, state = (np.float64(streams[k][[0, 2]]) for k in keys)
    rows = np.minimum(np.arange(11)[:, None] + np.arange(4), 10)
    windows = action[:, rows, :3] - state[:, :, None, 1:]
    axes = (0, 1) if per_step else (0, 1, 2)
    low, high = windows.min(axes), windows.max(axes)
    want = 2 * ((windows - low) / (high - low)) - 1
    got = stack(data.__getitems__(list(range(22))), "v")
    check_bits(got, want.reshape(22, 4, 3).astype(np.float32), "v")


def test_dropout_is_a_function_of_seed_epoch_and_sample(small: str) -> None:
    vectors = {"v": Vector(parts=[Part("action")], dropout=0.5)}

    def dropped(batch_size: int, seed: int = 0) -> list[list[bool]]:
        loader = Loader(small, vectors=vectors, batch_size=batch_size, shuffle=False, seed=seed)
        epochs = range(12)
        return [[bool(not v.any()) for b in loader for v in np.asarray(b["v"])] for _ in epochs]

    draws = dropped(10)
    assert draws == dropped(3) and draws[0] != draws[1] and draws != dropped(10, seed=1)
    assert 0.3 < np.mean(draws) < 0.7
    with pytest.raises(robocache.Unsupported, match="dropout"):
        MapDataset(small, vectors=vectors)
    loader = Loader(small, vectors=vectors, batch_size=10)
    assert all(np.asarray(loader.dataset[i]["v"]).any() for i in range(1, 10))


def test_sources_of_a_mixture_have_their_own_vectors(small: str) -> None:
    def vector(*where: int) -> dict[str, Vector]:
        return {"v": Vector(parts=[Part("action", *where)], width=4, mask="m", rows=[0])}

    sources = [Mix(small, vectors=vector(0, 2)), Mix(small, vectors=vector(0, 3))]
    for batch in Loader(sources, batch_size=5, shuffle=False):
        for value, mask, row, source in zip(
            *(np.asarray(batch[k]) for k in ("v", "m", "action", "dataset_index"))
        ):
            n = 2 + source
            assert value[0].tolist() == [*row[:n], *[0] * (4 - n)]
            assert mask[0].tolist() == [True] * n + [False] * (4 - n)


def test_rows_by_time_follow_the_timeline(small: str) -> None:
    part = Part("action", relative="difference")
    vectors = {"v": Vector(parts=[part], rows=[0, 1, 2])}
    batch = next(iter(Loader(small, vectors=vectors, hz=20, batch_size=9, shuffle=False)))
    assert np.allclose(np.asarray(batch["v"])[0, :, 0], [0, 1.5, 3])
    assert np.asarray(batch["v_is_pad"])[8].tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("vector", "error"),
    [
        (lambda: Vector(parts=[]), "at least one part"),
        (lambda: Vector(parts=[Part("actoin")]), "did you mean|action"),
        (lambda: Vector(parts=[Part("action", 0, 9)]), "columns"),
        (lambda: Vector(parts=[Part("action")], width=2), "width"),
        (lambda: Vector(parts=[Part("action")], length=2), "length"),
        (lambda: Vector(parts=[Part("action")], rows=[]), "rows"),
        (lambda: Vector(parts=[Part("action")], dropout=2), "dropout"),
        (lambda: Vector(parts=[Part("action")], separate=True, width=9), "separate"),
        (lambda: Vector(parts=[Part("action")], dtype="float16"), "dtype"),  # type: ignore[arg-type]
        (lambda: Vector(parts=[Part("action", norm={"mod": "min_max"})]), "expected a mode"),
        (lambda: Vector(parts=[Part("action", norm="z")]), "mode"),
        (lambda: Vector(parts=[Part("action", reference="x")]), "reference"),  # type: ignore[arg-type]
        (lambda: Vector(parts=[Part("action", columns="ab")]), "integers"),
        (lambda: Part("action", stopp=3), "unknown field"),  # type: ignore[call-arg]
        (lambda: Vector(parts=["action"]), "robocache.Part"),  # type: ignore[list-item]
    ],
)
def test_bad_vectors_are_rejected(small: str, vector: Any, error: str) -> None:
    with pytest.raises(robocache.Misuse, match=error):
        Loader(small, vectors={"v": vector()})
