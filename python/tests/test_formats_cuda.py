"""Batches of every format on a CUDA device equal the host's, to the bit.

Without a device these tests skip; docs/gpu holds the output of a run on one.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import robocache
from conftest import dataset_path

torch = pytest.importorskip("torch")

# ROBOCACHE_FORMATS_DEVICE=cpu runs the tests on a machine without a device.
DEVICE = os.environ.get("ROBOCACHE_FORMATS_DEVICE", "cuda")
pytestmark = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(), reason="torch finds no CUDA device"
)

RECORDING = "mcap_robot/recording_zstd.mcap"
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("bridge_rlds", {"options": {"split": "train"}}, {}),
    (
        "robomimic_like/earliest_gzip_shuffle.hdf5",
        {"rows_hz": 20},
        {"delta_timestamps": {"actions": [0.0, 0.05, 0.1]}, "normalize": {"actions": "mean_std"}},
    ),
    ("aloha_like", {}, {"images": robocache.Images(dtype="float32")}),
    ("calvin_like/training", {}, {}),
    ("diffusion_policy_zarr/replay_buffer.zarr", {"rows_hz": 10}, {}),
    ("pointclouds/kitti", {}, {}),
    (RECORDING, {}, {"hz": 50, "align": robocache.Align(edge="mask")}),
    (RECORDING, {}, {"windows": "spans"}),
]


def batches(uri: str, how: dict[str, Any], kw: dict[str, Any], device: str) -> list[dict[str, Any]]:
    ds = robocache.open(dataset_path(uri), **how)
    kw = dict(kw)
    spans: dict[str, Any] = {}
    if kw.get("windows") == "spans":
        # The inertial sensor is ragged at its own rate; the joints have five even points.
        spans = {
            k: (-0.5, 0.0) if k.startswith("imu") else (-0.2, 0.0, 5)
            for k in ds.features
            if k.startswith(("imu", "joint_states"))
        }
        kw["windows"] = robocache.Windows(seconds=spans)
    # Streams with rows of varying length are always ragged. They cannot be resampled or be combined
    # with windows of other streams.
    kw["keys"] = [
        k for k, f in ds.features.items() if k in spans or -1 not in tuple(f.shape) or not kw
    ]
    if "normalize" in kw or "delta_timestamps" in kw:
        name = next(k for k in ds.features if k in ("action", "actions"))
        kw = {
            k: {name: v for v in x.values()} if k in ("normalize", "delta_timestamps") else x
            for k, x in kw.items()
        }
    if "normalize" in kw:
        kw["statistics"] = robocache.Statistics(values=ds.compute_stats([name]))
    with robocache.Loader(ds, batch_size=8, seed=7, device=device, **kw) as loader:
        return [dict(b) for b, _ in zip(loader, range(6))]


@pytest.mark.parametrize("uri,how,kw", CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_device_equals_host(uri: str, how: dict[str, Any], kw: dict[str, Any]) -> None:
    want = batches(uri, how, kw, "cpu")
    got = batches(uri, how, kw, DEVICE)
    assert want and len(want) == len(got)
    moved = 0
    for a, b in zip(want, got):
        assert list(a) == list(b)
        for k, v in a.items():
            if not torch.is_tensor(v):
                assert v == b[k], k
                continue
            assert b[k].device.type == DEVICE and b[k].dtype == v.dtype and b[k].shape == v.shape, k
            assert torch.equal(
                b[k].cpu().contiguous().reshape(-1).view(torch.uint8),
                v.contiguous().reshape(-1).view(torch.uint8),
            ), k
            moved += v.numel()
    assert moved
