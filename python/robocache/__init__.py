"""RoboCache: from any robot dataset to aligned training batches, at the speed of the hardware.

It reads datasets in place, as they were recorded: LeRobot v2.0 to v3.0, RLDS, robomimic, ALOHA and other HDF5, CALVIN, MCAP and ROS 2 bags, Zarr, point
clouds; from a path or over http. It decodes exactly the frames that a sample asks for, brings streams recorded at different rates onto one timeline, and
hands shuffled batches to PyTorch. The work is done by an engine in Go, in threads of this process: no worker processes, no Python for each sample, and
one contiguous tensor a key. Without torch everything gives NumPy arrays.

Look at a dataset:

    import robocache

    ds = robocache.open("path/to/dataset")            # Dataset
    print(ds.features)                                # its streams, as a table; ds.num_episodes, ds.fps, ds.tasks, ds.stats
    ds.episode(0).streams["observation.state"].values # as recorded; .times are int64 nanoseconds
    ds.episode(0).align(hz=50)                        # every stream on one timeline, with masks

    robocache.inspect("path/to/dataset")              # the verbs of the command line `robocache`, with typed answers
    robocache.doctor("path/to/dataset").findings      # what is wrong with it
    robocache.convert("recording.mcap", "set", hz=50) # to LeRobot v3.0, or to="mcap", "rlds", "robomimic", "zarr"
    robocache.stats("path/to/dataset")                # exact statistics

Train on it:

    loader = robocache.Loader("path/to/dataset", batch_size=64, delta_timestamps={"action": [i / 30 for i in range(16)]})
    for batch in loader:                              # dict of torch tensors; True in batch["action_is_pad"]: beyond the episode
        ...
    loader.state_dict()                               # exact resume, at another world size too; loader.order(epoch), loader.stats()
    loader.normalizer                                 # what training did to the values, and its inverse, for the robot

    robocache.Loader(path, shuffle="pool", cache="ram", device="cuda")
    robocache.Loader([robocache.Mix(a, weight=3), robocache.Mix(b, weight=1)], hz=20)   # several datasets in a batch

    robocache.MapDataset                              # samples by number, for torch.utils.data.DataLoader
    robocache.LeRobotDataset, LeRobotDatasetMetadata  # lerobot's classes of these names, item by item

Arrays in memory, NumPy or torch, on the CPU or a GPU (operators of torch too: torch.ops.robocache):

    robocache.resample(data, times, hz=50)            # rows onto new times
    robocache.fuse([(a, a_times), (b, b_times)], targets)
    robocache.voxelize(points, grid_min=(-1, -1, 0), voxel_size=0.05, grid_size=(40, 40, 40), mode="count")
    robocache.depth_to_points, robocache.tsdf_integrate

What goes wrong is a robocache.Error, with .where (file, episode, stream, row) and .hint: NotFound, Malformed, Unsupported, ResourceLimit, Temporary,
Misuse. A time is float seconds, or int nanoseconds. Masks are named <key>_is_pad, and True where a row was not recorded.

    robocache.self_test(), robocache.check_installation()             # what is here, and why the rest is not
    robocache.datasets.RTXDataset, .CALVINDataset, .RoboMimicDataset  # the earlier RoboCache's datasets, over the same readers

Importing it loads neither torch nor the engine. help() of each name says the rest; docs/guide.md is the first hour, step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _gone, _torch
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
    from .lerobot import LeRobotDataset, LeRobotDatasetMetadata
    from .loader import Loader
    from .mapdataset import MapDataset
    from .mix import Mix
    from .normalizer import Normalizer
    from .ops import fuse, resample
    from .voxels import SparseVoxels, depth_to_points, tsdf_integrate, voxelize

__all__ = [
    "open", "Dataset", "Episode", "Stream", "Feature", "MapDataset", "LeRobotDataset", "LeRobotDatasetMetadata", "Loader", "Mix", "Normalizer", "resample", "fuse", "voxelize",
    "depth_to_points", "tsdf_integrate", "SparseVoxels", "inspect", "doctor", "convert", "stats", "versions", "self_test", "is_cuda_available", "check_installation",
    "print_installation_info",
    "Error", "NotFound", "Malformed", "Unsupported", "ResourceLimit", "Temporary", "Misuse", "ForkError", "__version__",
]  # fmt: skip

_LAZY = {
    "MapDataset": "mapdataset", "LeRobotDataset": "lerobot", "LeRobotDatasetMetadata": "lerobot", "Loader": "loader", "Mix": "mix", "Normalizer": "normalizer", "resample": "ops", "fuse": "ops", "voxelize": "voxels",
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
        _torch.watch()  # torch may have been in the middle of its own import when this package was
        globals()[name] = value
        return value
    if name in _gone.ELSEWHERE:
        raise _gone.GoneName(f"robocache.{name} is not here", {"name": name}, _gone.ELSEWHERE[name])
    from ._options import nearest

    raise AttributeError(f"module 'robocache' has no attribute {name!r}: {nearest(name, [*__all__, *_OLD])}")


def __dir__() -> list[str]:
    return sorted(__all__)


_torch.watch()
