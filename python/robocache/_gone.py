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


# What to use in place of robocache.<name>: a hint, and the names that it is for.
_HINTS = {
    "use robocache.Loader([robocache.Mix(...)])": "RobotDataLoader",
    "use robocache.resample for arrays, Episode.align or align= of Loader for datasets": "TrajectoryResampler Trajectory",
    "use the keywords of robocache.resample": "ResampleConfig",
    "use torch.nn.functional.conv3d": "conv3d",
    "use torch.nn.functional.scaled_dot_product_attention; robocache.resample brings keys onto the queries' times": "attention temporal_cross_attention",
    "use torch.nn.TransformerEncoder on the rows of robocache.fuse": "temporal_fusion PositionalEncoding CausalSelfAttention CrossModalAttention TemporalFusionBlock TemporalMultimodalFusion create_temporal_fusion",
    "use memory_budget= of Loader and voxelize": "will_oom memory",
    "use torch.cuda.device; operations follow the tensor's device, whichever is current": "utils",
    "use backend= of each call, and robocache.check_installation()": "backends",
    "use backend= of each call": "select_backend BackendType",
    "use robocache.check_installation()": "get_backend_info get_backend_status BackendStatus",
    'use robocache.check_installation()["pytorch_available"]': "is_pytorch_available",
    "use keywords of each call: there is no global configuration": "config get_config set_config Config reset_config",
    "use Loader.stats(); metrics of operations come with the service": "metrics MetricsCollector get_metrics_collector get_metrics enable_metrics disable_metrics print_metrics export_prometheus start_http_server",
    "use Loader.stats(); there is no telemetry": "observability",
    "use torch.cuda.graph: every operation can be captured": "cuda_graph_cache CUDAGraphCache get_cache clear_cache",
    "use augment= of robocache.resample and Loader": "sim_to_real DomainRandomizer LatencySimulator",
    "use robocache.resample, fuse and voxelize on CPU tensors": "ops_fallback resample_single_stream_cpu fuse_multimodal_cpu resample_trajectories_cpu voxelize_pointcloud_cpu benchmark_fallback",
    "use robocache.is_cuda_available()": "_cuda_available _multimodal_available _voxelize_available",
    'use backend="pytorch" of each call': "_resample_pytorch PyTorchBackend",
    "use robocache.self_test() and robocache.check_installation()": "health_check print_health_check",
    "use torch.profiler, or Loader.stats()": "profile_operation log_operation",
    "there is none; use Loader.stats()": "Telemetry",
    "use Python's logging: RoboCache has no logger of its own": "logging RoboCacheLogger get_logger set_log_level",
    "use the command `robocache-bench`; Loader.stats() tells the share of waiting": "bench GPUUtilizationMonitor",
    "use robocache.resample, fuse and voxelize: the module robocache_cuda is no more": "robocache_cuda",
    "it was private; use robocache.resample": "_cuda_ops _cutlass_ops",
    "it was private; use robocache.fuse": "_multimodal_ops",
    "it was private; use robocache.voxelize": "_voxelize_ops",
}
_DATASETS = "RTXDataset RTXDataLoader create_rtx_dataloader CALVINDataset RoboMimicDataset RLDSStep RLDSEpisode RTXEpisode"

ELSEWHERE: dict[str, str] = {
    **{name: hint for hint, names in _HINTS.items() for name in names.split()},
    **{name: f"use robocache.datasets.{name}" for name in _DATASETS.split()},
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
