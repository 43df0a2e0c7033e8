"""Names that people will look for, because an earlier RoboCache or its documents had them, and what to use instead.

An attribute raises GoneName; `import robocache.backends`, `from robocache.backends import …` and `from robocache import …` raise GoneModule, by a
finder of modules: of an attribute's error, `from … import` would leave only "cannot import name".
"""

from __future__ import annotations

import sys
from typing import Any

from ._errors import Unsupported

__all__ = ["ELSEWHERE", "GoneName", "GoneModule"]


class GoneName(Unsupported, AttributeError):
    """A name that this version does not have; .hint says what to use. hasattr() is False."""


class GoneModule(Unsupported, ImportError):
    """An import that this version does not have; .hint says what to use."""


# What to use in place of robocache.<name>.
ELSEWHERE: dict[str, str] = {
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

# What to use in place of robocache.datasets.<name>, modules of the earlier package whose classes are names of robocache.datasets.
DATASETS = {
    "rtx_loader": "use robocache.datasets.RTXDataset, RTXDataLoader and create_rtx_dataloader",
    "rlds_spec": "use robocache.datasets.RLDSStep and RLDSEpisode",
}


class _Finder:
    """Asked last, for modules that no file is there for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        package, _, last = name.rpartition(".")
        hints = {"robocache": ELSEWHERE, "robocache.datasets": DATASETS}.get(package, {})
        if last in hints:
            e = GoneModule(f"{name} is not here", {"name": name}, hints[last])
            e.name = name
            raise e


if not any(type(f).__qualname__ == _Finder.__qualname__ and type(f).__module__ == __name__ for f in sys.meta_path):
    sys.meta_path.append(_Finder())  # type: ignore[arg-type]
