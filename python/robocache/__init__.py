"""RoboCache: from any robot dataset to aligned training batches, at the speed of the hardware.

    import robocache

    ds = robocache.open("path/to/dataset")            # what is in it
    ds.num_episodes, ds.fps, ds.features
    ds.episode(0).streams["observation.state"].values

    loader = robocache.Loader("path/to/dataset", batch_size=64)
    for batch in loader:                              # dict of torch tensors, made without workers
        ...
    loader.state_dict()                               # exact resume; loader.order(epoch), loader.stats()

    robocache.Loader(path, shuffle="pool", cache="ram", device="cuda")
    robocache.Loader([robocache.Mix(a, weight=3), robocache.Mix(b, weight=1)], hz=20)   # several datasets in a batch

    robocache.MapDataset, robocache.LeRobotDataset    # samples by number, for torch.utils.data.DataLoader

    robocache.resample(data, times, hz=50)            # arrays in memory, NumPy or torch, CPU or GPU: rows onto new times
    robocache.fuse([(a, a_times), (b, b_times)], targets)
    robocache.voxelize(points, grid_min=(-1, -1, 0), voxel_size=0.05, grid_size=(40, 40, 40), mode="count")
    robocache.depth_to_points, robocache.tsdf_integrate

    robocache.datasets.RTXDataset, .CALVINDataset, .RoboMimicDataset # the earlier RoboCache's datasets, over the same readers

    robocache.self_test(), robocache.check_installation()             # what is here, and why the rest is not

Importing it loads neither torch nor the engine. help() of each name says the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _torch
from ._errors import Error, ForkError, Malformed, Misuse, NotFound, ResourceLimit, Temporary, Unsupported
from ._version import __version__
from .dataset import Dataset, Episode, Feature, Stream, open

if TYPE_CHECKING:
    from . import datasets as datasets
    from ._verbs import convert, doctor, inspect, stats
    from .compat import (
        check_installation as check_installation, enable_jit_cache as enable_jit_cache, fuse_multimodal as fuse_multimodal,
        fuse_multimodal_alignment as fuse_multimodal_alignment, fused_multimodal_alignment as fused_multimodal_alignment, is_cuda_available as is_cuda_available,
        print_installation_info as print_installation_info, resample_trajectories as resample_trajectories, set_device as set_device,
        voxelize_occupancy as voxelize_occupancy, voxelize_point_cloud as voxelize_point_cloud, voxelize_pointcloud as voxelize_pointcloud,
    )  # fmt: skip
    from .lerobot import LeRobotDataset
    from .loader import Loader
    from .mapdataset import MapDataset
    from .mix import Mix
    from .ops import fuse, resample
    from .voxels import SparseVoxels, depth_to_points, tsdf_integrate, voxelize

__all__ = [
    "open", "Dataset", "Episode", "Stream", "Feature", "MapDataset", "LeRobotDataset", "Loader", "Mix", "resample", "fuse", "voxelize",
    "depth_to_points", "tsdf_integrate", "SparseVoxels", "inspect", "doctor", "convert", "stats", "versions", "self_test", "is_cuda_available", "check_installation",
    "print_installation_info",
    "Error", "NotFound", "Malformed", "Unsupported", "ResourceLimit", "Temporary", "Misuse", "ForkError", "__version__",
]  # fmt: skip

_LAZY = {
    "MapDataset": "mapdataset", "LeRobotDataset": "lerobot", "Loader": "loader", "Mix": "mix", "resample": "ops", "fuse": "ops", "voxelize": "voxels",
    "depth_to_points": "voxels", "tsdf_integrate": "voxels", "SparseVoxels": "voxels", "is_cuda_available": "compat", "check_installation": "compat",
    "print_installation_info": "compat", "inspect": "_verbs", "doctor": "_verbs", "convert": "_verbs", "stats": "_verbs",
}  # fmt: skip

# Names of the earlier RoboCache that still work; robocache.compat has them, docs/migration.md the ways on.
_OLD = (
    "resample_trajectories", "fuse_multimodal", "fuse_multimodal_alignment", "fused_multimodal_alignment", "voxelize_pointcloud", "voxelize_point_cloud",
    "voxelize_occupancy", "set_device", "enable_jit_cache",
)  # fmt: skip
_LAZY.update(dict.fromkeys(_OLD, "compat"))
_LAZY["datasets"] = "datasets"

# Names that people will look for, and what to use instead.
_ELSEWHERE = {
    "RobotDataLoader": "use robocache.Loader([robocache.Mix(...)])",
    "TrajectoryResampler": "use robocache.resample for arrays, Episode.align or align= of Loader for datasets",
    "Trajectory": "use robocache.resample for arrays, Episode.align or align= of Loader for datasets",
    "ResampleConfig": "use the keywords of robocache.resample",
    "conv3d": "use torch.nn.functional.conv3d",
    "attention": "use torch.nn.functional.scaled_dot_product_attention; robocache.resample brings keys onto the queries' times",
    "temporal_fusion": "use torch.nn.TransformerEncoder on the rows of robocache.fuse",
    "will_oom": "use memory_budget= of Loader and voxelize",
    "memory": "use memory_budget= of Loader and voxelize",
    "utils": "use torch.cuda.device; operations follow the tensor's device, whichever is current",
    **{
        name: f"use robocache.datasets.{name}"
        for name in (
            "RTXDataset", "RTXDataLoader", "create_rtx_dataloader", "CALVINDataset", "RoboMimicDataset", "RLDSStep", "RLDSEpisode", "RTXEpisode",
        )
    },
    "backends": "use backend= of each call, and robocache.check_installation()",
    "select_backend": "use backend= of each call",
    "get_backend_info": "use robocache.check_installation()",
    "get_backend_status": "use robocache.check_installation()",
    "is_pytorch_available": 'use robocache.check_installation()["pytorch_available"]',
    "config": "use keywords of each call: there is no global configuration",
    "get_config": "use keywords of each call: there is no global configuration",
    "set_config": "use keywords of each call: there is no global configuration",
    "metrics": "use Loader.stats(); metrics of operations come with the service",
    "observability": "use Loader.stats(); there is no telemetry",
    "cuda_graph_cache": "use torch.cuda.graph: every operation can be captured",
    "sim_to_real": "use augment= of robocache.resample and Loader",
    "ops_fallback": "use robocache.resample, fuse and voxelize on CPU tensors",
    "_cuda_available": "use robocache.is_cuda_available()",
    "_multimodal_available": "use robocache.is_cuda_available()",
    "_voxelize_available": "use robocache.is_cuda_available()",
    "_resample_pytorch": 'use backend="pytorch" of each call',
    "PyTorchBackend": 'use backend="pytorch" of each call',
    "BackendType": "use backend= of each call",
    "BackendStatus": "use robocache.check_installation()",
    "Config": "use keywords of each call: there is no global configuration",
    "reset_config": "use keywords of each call: there is no global configuration",
    **dict.fromkeys(
        ("MetricsCollector", "get_metrics_collector", "get_metrics", "enable_metrics", "disable_metrics", "print_metrics", "export_prometheus", "start_http_server"),
        "use Loader.stats(); metrics of operations come with the service",
    ),
    **dict.fromkeys(("health_check", "print_health_check"), "use robocache.self_test() and robocache.check_installation()"),
    **dict.fromkeys(("profile_operation", "log_operation"), "use torch.profiler, or Loader.stats()"),
    "Telemetry": "there is none; use Loader.stats()",
    **dict.fromkeys(("logging", "RoboCacheLogger", "get_logger", "set_log_level"), "use Python's logging: RoboCache has no logger of its own"),
    **dict.fromkeys(("bench", "GPUUtilizationMonitor"), "use the command `robocache bench`; Loader.stats() tells the share of waiting"),
    **dict.fromkeys(("CUDAGraphCache", "get_cache", "clear_cache"), "use torch.cuda.graph: every operation can be captured"),
    **dict.fromkeys(("DomainRandomizer", "LatencySimulator"), "use augment= of robocache.resample and Loader"),
    **dict.fromkeys(
        ("PositionalEncoding", "CausalSelfAttention", "CrossModalAttention", "TemporalFusionBlock", "TemporalMultimodalFusion", "create_temporal_fusion"),
        "use torch.nn.TransformerEncoder on the rows of robocache.fuse",
    ),
    "temporal_cross_attention": "use torch.nn.functional.scaled_dot_product_attention; robocache.resample brings keys onto the queries' times",
    "robocache_cuda": "use robocache.resample, fuse and voxelize: the module robocache_cuda is no more",
    **dict.fromkeys(
        ("resample_single_stream_cpu", "fuse_multimodal_cpu", "resample_trajectories_cpu", "voxelize_pointcloud_cpu", "benchmark_fallback"),
        "use robocache.resample, fuse and voxelize on CPU tensors",
    ),
    "_cuda_ops": "it was private; use robocache.resample",
    "_multimodal_ops": "it was private; use robocache.fuse",
    "_voxelize_ops": "it was private; use robocache.voxelize",
    "_cutlass_ops": "it was private; use robocache.resample",
}


def versions() -> dict[str, Any]:
    """Versions of the package, the engine, its formats and its decoder, and of torch and NumPy where they are."""
    import importlib.metadata
    import platform

    from . import _engine

    out = {"package": __version__, **_engine.call("robocache_versions"), "library": str(_engine.library_path()), "python": platform.python_version()}
    for name in ("numpy", "torch"):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = None
    return out


def self_test() -> bool:
    """Runs the conformance vectors on every back end of the kernels and the decoders, and prints what is here and why the rest is not. True, or raises."""
    from . import _engine

    v = versions()
    print(f"robocache {v['package']}, engine {v['robocache']} (ABI {v['abi']}, {v['go']}), formats: {', '.join(v['formats']) or 'none'}")
    failed = []
    for r in _engine.call("robocache_self_test"):
        state = "ok" if r["ok"] else "WRONG" if r["present"] else "not here"
        print(f"{r['part']}: {state}{': ' + r['detail'] if r.get('detail') else ''}")
        failed += [r["part"]] if r["present"] and not r["ok"] else []
    if failed:
        raise Error(f"{', '.join(failed)} gave wrong results", hint="please report what robocache.self_test() printed")
    if not v["formats"]:
        raise Unsupported("the engine knows no format", hint="build it from ./cmd/librobocache")
    if v.get("decoder"):
        print(f"decoder {v['decoder']}: {', '.join(v['codecs'])}")
    else:
        print(f"no video decoder: {v.get('decoder_missing')}")
    try:
        open("/nonexistent/robocache-self-test")
    except NotFound:
        pass
    else:
        raise Error("a missing dataset was opened")
    print(f"numpy {v['numpy']}, torch {v['torch'] or 'not installed: arrays are NumPy arrays'}")
    return True


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        module = importlib.import_module("." + _LAZY[name], __name__)
        value = module if _LAZY[name] == name else getattr(module, name)
        globals()[name] = value
        return value
    if name in _ELSEWHERE:
        raise AttributeError(f"robocache.{name}: {_ELSEWHERE[name]}")
    from ._options import nearest

    raise AttributeError(f"module 'robocache' has no attribute {name!r}: {nearest(name, [*__all__, *_OLD])}")


def __dir__() -> list[str]:
    return sorted(__all__)


_torch.watch()
