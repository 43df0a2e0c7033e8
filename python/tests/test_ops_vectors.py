"""The conformance vectors through Python.

They run on NumPy arrays, on torch tensors on the CPU, and on a CUDA device if there is one.
"""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import robocache

HERE = ROOT / "kernel" / "testdata" / "vectors"
# On another machine the vectors are in a folder next to the tests.
VECTORS = HERE if HERE.is_dir() else Path(__file__).parent / "vectors"
FLAT = ("linear", "moves", "policies", "slerp", "angle", "mean", "strides", "fuse", "errors")
CALLS = ("batches", "layouts", "clocks", "epilogues", "augments", "streams", "errors")
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Beyond(Exception):
    """Raised for a case that an array family cannot represent."""


@cache
def load(name: str) -> list[dict[str, Any]]:
    path = VECTORS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"no vectors at {path}")
    return json.loads(path.read_text())["cases"]


def memory(dtype: str, words: list[str]) -> np.ndarray:
    """Returns the bits of a vector. bfloat16, which NumPy lacks, is uint16."""
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    return np.array([int(w, 16) for w in words], BITS[size])


class Family:
    """The arrays of one library on one device."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name != "numpy":
            self.torch = pytest.importorskip("torch")
            if name == "cuda" and not self.torch.cuda.is_available():
                pytest.skip("torch finds no CUDA device")

    def array(self, d: dict[str, Any]) -> Any:
        dtype, shape = d["dtype"], d["shape"]
        if dtype in ("string", "json"):
            raise Beyond("no arrays of text")
        bits = memory(
            dtype,
            d.get("memory")
            or ["0"]
            * (
                1
                + d.get("base", 0)
                + sum((n - 1) * s for n, s in zip(shape, d["stride"]) if n > 0 and s > 0)
            ),
        )
        base = d.get("base", 0)
        if self.name == "numpy":
            if dtype == "bfloat16":
                raise Beyond("NumPy has no bfloat16")
            # an unaligned base address
            raw = np.concatenate(
                [np.zeros(d.get("skip", 0), np.uint8), bits.view(np.uint8), np.zeros(8, np.uint8)]
            )
            a = raw[d.get("skip", 0) : d.get("skip", 0) + bits.nbytes].view(dtype)
            return (
                np.lib.stride_tricks.as_strided(
                    a[base:], shape, [s * a.itemsize for s in d["stride"]]
                )
                if a.size
                else np.zeros(shape, dtype)
            )
        if any(s < 0 for s in d["stride"]):
            raise Beyond("torch has no negative strides")
        if dtype in ("uint16", "uint32", "uint64") and self.name == "cuda":
            raise Beyond("torch on CUDA moves no unsigned types")
        t = self.torch.from_numpy(bits.copy()).view(getattr(self.torch, dtype))
        t = t.cuda() if self.name == "cuda" else t
        try:
            return t.as_strided(shape, d["stride"], base) if t.numel() else t.new_zeros(shape)
        except RuntimeError as e:
            raise Beyond("torch knows its memory") from e

    def bits(self, a: Any) -> tuple[np.ndarray, str]:
        """Returns the bits of a result as a flat array, and the name of its dtype."""
        if self.name == "numpy":
            a = np.ascontiguousarray(a)
            return a.reshape(-1).view(BITS[a.itemsize]), a.dtype.name
        name = str(a.dtype).removeprefix("torch.")
        a = a.cpu().contiguous().reshape(-1)
        return a.view(
            {1: self.torch.uint8, 2: self.torch.int16, 4: self.torch.int32, 8: self.torch.int64}[
                a.element_size()
            ]
        ).numpy().view(BITS[a.element_size()]), name


@pytest.fixture(params=["numpy", "torch", "cuda"])
def family(request: pytest.FixtureRequest) -> Family:
    return Family(request.param)


def is_nan(bits: np.ndarray, dtype: str) -> np.ndarray:
    top = {
        "float64": 0x7FF << 52,
        "float32": 0x7F800000,
        "float16": 0x7C00,
        "bfloat16": 0x7F80,
    }.get(dtype)
    if top is None:
        return np.zeros(bits.shape, bool)
    return (bits & ~(bits.dtype.type(1) << bits.dtype.type(bits.itemsize * 8 - 1))) > top


def same(
    got: Any, want: list[str], family: Family, steps: int = 0, slack: list[str] | None = None
) -> str:
    """Returns "" if all bits are as expected, otherwise a description of the difference.

    All NaNs are equal. steps is the permitted distance in steps of float32, used by slerp.
    """
    bits, dtype = family.bits(got)
    if len(bits) != len(want):
        return f"{len(bits)} elements, want {len(want)}"
    nan = np.array([w == "nan" for w in want], bool)
    wanted = np.array([0 if w == "nan" else int(w, 16) for w in want], bits.dtype)
    wrong = np.where(nan, ~is_nan(bits, dtype), bits != wanted)
    if wrong.any() and (steps or slack) and dtype in ("float32", "float64", "float16"):
        x, y = bits.view(dtype).astype(np.float64), wanted.view(dtype).astype(np.float64)
        near = np.abs(x - y) <= max(
            np.float64(steps or 4) * 2.0**-22, 2.0**-10 if dtype == "float16" else 0
        ) * np.maximum(np.abs(y), 2.0**-18)
        if slack:
            # slack is per column
            near |= (
                np.abs(x - y).reshape(-1, len(slack)) <= np.array([double(v) for v in slack])
            ).ravel()
        wrong &= ~near
    elif wrong.any() and (steps or slack):
        wrong &= np.abs(bits.astype(np.int64) - wanted.astype(np.int64)) > 1
    if not wrong.any():
        return ""
    i = int(np.argmax(wrong))
    return (
        f"{int(wrong.sum())} of {len(want)} differ, the first at {i}: {bits[i]:x}, want {want[i]}"
    )


def fails(error: dict[str, Any], call: Any) -> str:
    kind = {
        "misuse": robocache.Misuse,
        "malformed": robocache.Malformed,
        "unsupported": robocache.Unsupported,
        "resource_limit": robocache.ResourceLimit,
    }[error["class"].replace(" ", "_")]
    try:
        call()
    except robocache.Error as e:
        if isinstance(e, kind) and error["phrase"].lower() in str(e).lower():
            return ""
        return f"{type(e).__name__}: {e}, want {error}"
    return f"no error, want {error}"


def each(cases: list[dict[str, Any]], run: Any, least: float) -> None:
    """Runs all cases that the family can represent.

    At least the fraction least of the cases must run.
    """
    wrong, ran = [], 0
    for c in cases:
        try:
            found = run(c)
        except Beyond:
            continue
        ran += 1
        if found:
            wrong.append(f"{c['name']}: {found}")
    assert not wrong, f"{len(wrong)} of {ran}; " + "; ".join(wrong[:9])
    assert ran >= least * len(cases), f"{ran} of {len(cases)} ran"


def double(bits: str) -> float:
    return float(np.uint64(int(bits, 16)).view(np.float64))


def single(bits: str) -> float:
    return float(np.uint32(int(bits, 16)).view(np.float32))


def rule(c: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "mode": c["mode"],
        "edge": c["edge"],
        "max_gap": f"{int(c.get('max_gap', 0))}ns",
    }
    if c["mode"] == "mean":
        out["window"] = (f"{int(c.get('before', 0))}ns", f"{int(c.get('after', 0))}ns")
    if c["mode"] == "angle":
        out.update({k: double(c[k]) for k in ("period", "lo") if c.get(k)})
    if c.get("quats"):
        out["quats"] = c["quats"]
    if c.get("continuous"):
        out["sign"] = "continuous"
    return out


def words(v: list[str]) -> dict[str, Any]:
    """Returns a vector of int64 times."""
    return {
        "dtype": "int64",
        "shape": [len(v)],
        "stride": [1],
        "memory": [f"{int(x) & (1 << 64) - 1:x}" for x in v],
    }


@pytest.mark.parametrize("file", FLAT)
def test_one_stream(file: str, family: Family) -> None:
    def run(c: dict[str, Any]) -> str:
        d = c["data"]
        if c["name"] == "memory too short" or c["out"] == "bfloat16" and family.name == "numpy":
            raise Beyond("arrays of Python know their memory; NumPy has no bfloat16")
        data = family.array(
            {**d, "shape": [d["rows"], d["cols"]], "stride": [d["row_stride"], d["col_stride"]]}
        )
        times, targets = family.array(words(c["times"])), family.array(words(c["targets"]))
        if family.name == "cuda" and c["edge"] == "error" and "error" not in c:
            raise Beyond("waits")

        def call() -> Any:
            return robocache.resample(
                data, times, targets, dtype=c["out"], return_valid=True, validate=True, **rule(c)
            )

        if "error" in c:
            return fails(c["error"], call)
        got, valid = call()
        if [int(x) for x in np.asarray(valid.cpu() if family.name != "numpy" else valid)] != c[
            "valid"
        ]:
            return "the validity differs"
        return same(got, c["want"], family, int(c.get("ulp", 0)))

    # Not every family has unaligned bases, negative strides and bfloat16.
    each(load(file), run, 0.3 if family.name != "numpy" else 0.5)


def statistics(norm: dict[str, Any]) -> dict[str, Any]:
    """Returns statistics that give these scales and offsets, or raises Beyond."""
    a, b = ([single(x) for x in norm[k]] for k in ("a", "b"))
    if norm["kind"] == "mean_std":
        made = [np.float32(x) + np.float32(1e-8) if x else np.float32(0) for x in b]
        out = {"mean": a, "std": b}
    else:
        high = [
            float(np.float32(np.float64(np.float32(x)) + np.float64(np.float32(y))))
            for x, y in zip(a, b)
        ]
        made = [np.float32(h) - np.float32(x) for h, x in zip(high, a)]
        out = {"min": a, "max": high}
    if any(float(m) != x for m, x in zip(made, b)):
        raise Beyond("no statistics give these denominators")
    return out


def stream(s: dict[str, Any], family: Family) -> tuple[Any, Any, dict[str, Any]]:
    out = rule(s)
    for k in ("lengths", "offsets"):
        if s.get(k):
            out[k] = family.array(words(s[k]))
    e = s.get("epilogue") or {}
    if e.get("norm"):
        out["normalize"] = {
            **statistics(e["norm"]),
            "plane": e.get("plane") or 1,
            "unit": e.get("unit", False),
        }
    elif e.get("unit"):
        out["normalize"] = "unit"
    if e.get("clip"):
        out["clip"] = tuple(single(x) for x in e["clip"])
    a = e.get("augment")
    if a:
        out["augment"] = {
            "seed": int(a.get("seed", 0)),
            "epoch": int(a.get("epoch", 0)),
            "op": int(a.get("op", 0)),
            "noise": single(a["noise"]) if a.get("noise") else 0,
            "dropout": single(a["dropout"]) if a.get("dropout") else 0,
            "scale": tuple(single(x) for x in a["scale"]) if a.get("scale") else None,
        }
        if a.get("samples"):
            out["augment"]["samples"] = family.array(words(a["samples"]))
    return family.array(s["values"]), family.array(s["times"]), out


@pytest.mark.parametrize("file", CALLS)
def test_whole_calls(file: str, family: Family) -> None:
    from robocache import ops

    def run(c: dict[str, Any]) -> str:
        if c["op"] != "fuse":
            raise Beyond("not a forward")
        if family.name == "cuda" and any(s.get("continuous") for s in c["series"]):
            raise Beyond("a GPU has no continuous signs: Unsupported")
        if (
            family.name == "cuda"
            and any(s["edge"] == "error" for s in c["series"])
            and "error" not in c
        ):
            raise Beyond("waits")
        given = [stream(s, family) for s in c["series"]]
        targets, out = family.array(c["targets"]), family.array(c["out"])
        clock = {"clock": "given", "epsilon": double(c["epsilon"])} if c.get("clock") else {}

        def call() -> Any:
            options = {
                "hz": None,
                "out": out,
                "dtype": None,
                "want_valid": True,
                "return_times": False,
                "validate": True,
                "backend": None,
                **clock,
            }
            return ops.general_call(
                [(f"stream {i}", *g) for i, g in enumerate(given)], targets, None, False, **options
            )

        if "error" in c:
            return fails(c["error"], call)
        got, valid = call()
        if (
            "valid" in c
            and np.asarray(valid.cpu() if family.name != "numpy" else valid)
            .astype(int)
            .ravel()
            .tolist()
            != c["valid"]
        ):
            return "the validity differs"
        computed = any(s["mode"] == "slerp" for s in c["series"]) or file == "augments"
        return (
            same(got, c["want"], family, 4 if computed else 0, c.get("slack"))
            if got is out
            else "out was not returned"
        )

    cases = load(f"ops/{file}")
    if file == "errors":
        # Python computes these arguments itself or does not offer them, so a caller cannot get them
        # wrong.
        cases = [
            c
            for c in cases
            if not any(
                w in c["name"]
                for w in ("counts", "valid", "clock", "memory too short", "without a batch")
            )
        ]
    each(cases, run, 0.3)


def test_gradients(family: Family) -> None:
    if family.name == "numpy":
        pytest.skip("NumPy has no gradients")
    torch = family.torch

    def run(c: dict[str, Any]) -> str:
        s = c["series"][0]
        if "error" in c or not c["gradient"]["dtype"] == s["values"]["dtype"] == c["out"]["dtype"]:
            raise Beyond("autograd makes both of one type")
        data, times, options = stream({**s, "values": {**s["values"], "memory": None}}, family)
        targets, g = family.array(c["targets"]), family.array(c["gradient"])
        data = data.detach().contiguous().requires_grad_()
        if c.get("clock"):
            from robocache import ops

            kw = {
                "hz": None,
                "out": None,
                "dtype": None,
                "want_valid": False,
                "return_times": False,
                "validate": None,
                "backend": None,
            }
            got = ops.general_call(
                [("data", data, times, options)],
                targets,
                None,
                True,
                clock="given",
                epsilon=double(c["epsilon"]),
                **kw,
            )
        else:
            got = robocache.resample(data, times, targets, **options)
        (back,) = torch.autograd.grad(got, data, g)
        return same(back, c["want"], family)

    each(load("ops/gradients"), run, 0.3)


def three(v: list[str]) -> list[float]:
    return [single(x) for x in v]


@pytest.mark.parametrize("file", ["voxel", "errors"])
def test_voxels(file: str, family: Family) -> None:
    def run(c: dict[str, Any]) -> str:
        points = family.array(c["points"])
        kw: dict[str, Any] = {k: family.array(c[k]) for k in ("features",) if c.get(k)}
        kw.update({k: family.array(words(c[k])) for k in ("lengths", "offsets") if c.get(k)})
        kw.update(
            grid_min=three(c["min"]),
            voxel_size=three(c["size"]),
            grid_size=c["grid"],
            mode=c["mode"],
            outside=c["outside"],
            bits=c.get("bits", False),
            validate=True,
        )
        if c.get("fill"):
            kw["fill"] = single(c["fill"])
        if "capacity" in c:
            kw.pop("bits")
            kw.update(layout="sparse", capacity=int(c["capacity"]))
        elif c["mode"] == "occupancy" and not kw["bits"]:
            kw["dtype"] = c["dtype"]
        if "error" in c:
            return fails(c["error"], lambda: robocache.voxelize(points, **kw))
        got, stats = robocache.voxelize(points, return_stats=True, **kw)
        if [int(x) for x in stats] != c["stats"]:
            return f"stats {[int(x) for x in stats]}, want {c['stats']}"
        if "capacity" not in c:
            return same(got, c["want"], family)
        n = min(int(got.found[0]), int(c["capacity"]))
        if int(got.found[0]) != int(c["found"]):
            return f"found {int(got.found[0])}, want {c['found']}"
        coords = (
            np.asarray(got.coords.cpu() if family.name != "numpy" else got.coords)[:n]
            .ravel()
            .tolist()
        )
        if (
            coords
            != list(
                itertools.chain.from_iterable(c["coords"])
                if c["coords"] and isinstance(c["coords"][0], list)
                else c["coords"]
            )[: 4 * n]
        ):
            return "coords differ"
        return (
            same(got.features[:n], c["rows"][: n * got.features.shape[1]], family)
            if c.get("rows")
            else ""
        )

    each(load(f"voxels/{file}"), run, 0.5)


def test_depth(family: Family) -> None:
    def run(c: dict[str, Any]) -> str:
        pose = None if not c.get("pose") else np.array(three(c["pose"])).reshape(3, 4)
        got, valid = robocache.depth_to_points(
            family.array(c["depth"]),
            three(c["camera"]),
            scale=single(c["scale"]) or None,
            pose=pose,
            return_valid=True,
        )
        if (
            np.asarray(valid.cpu() if family.name != "numpy" else valid)
            .astype(int)
            .ravel()
            .tolist()
            != c["valid"]
        ):
            return "the validity differs"
        return same(got, c["want"], family)

    each(load("voxels/depth"), run, 0.5)


def test_tsdf(family: Family) -> None:
    def run(c: dict[str, Any]) -> str:
        value, weight = family.array(c["value"]), family.array(c["weight"])
        robocache.tsdf_integrate(
            value,
            weight,
            family.array(c["depth"]),
            three(c["camera"]),
            view=np.array(three(c["view"])).reshape(3, 4),
            grid_min=three(c["min"]),
            voxel_size=three(c["size"]),
            truncate=single(c["truncate"]),
            max_weight=single(c["max_weight"]),
            scale=single(c["scale"]) or None,
        )
        return same(value, c["want"], family) or same(weight, c["want_weight"], family)

    each(load("voxels/tsdf"), run, 0.5)
