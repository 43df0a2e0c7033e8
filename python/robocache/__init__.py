"""RoboCache: from any robot dataset to aligned training batches, at the speed of the hardware.

It reads datasets in place, as they were recorded: LeRobot v2.0 to v3.0, RLDS, robomimic, ALOHA and other HDF5, CALVIN, MCAP and ROS 2 bags, Zarr, point
clouds; from a path or over http. It decodes exactly the frames that a sample asks for, brings streams recorded at different rates onto one timeline, and
gives shuffled batches to PyTorch. The work is done by an engine in Go, in threads of this process: no worker processes, no Python for each sample, and
one contiguous tensor for each key. Without torch everything gives NumPy arrays.

Durations are seconds, int or float, or text with a unit ("50ms"); arrays of timestamps are float seconds or int64 nanoseconds.
Masks are named <key>_is_pad: True where a window leaves the episode, or where no value was recorded. Failures
raise robocache.Error with .where (file, episode, stream, row) and .hint: NotFound, Malformed, Unsupported, ResourceLimit, Temporary, Misuse
or Internal (a fault of RoboCache: please report it).

The ten names that matter:

    open            ds = robocache.open("path")       # print(ds.features); ds[0].streams["action"].values; ds[0].align(hz=50)
    inspect         robocache.inspect("path")         # what is in a dataset; the verbs of the command line are functions with typed answers
    doctor          robocache.doctor("path").findings # what is wrong with it, and what to do about it
    convert         robocache.convert("recording.mcap", "set", hz=50)   # to LeRobot v3.0, or to="mcap", "rlds", "robomimic", "zarr"
    Loader          for batch in robocache.Loader("path", batch_size=64, delta_timestamps={"action": [0, 0.1]}): ...
    Mix             robocache.Loader([robocache.Mix(a, weight=3), robocache.Mix(b, weight=1)], hz=20)   # several datasets in a batch
    Normalizer      loader.normalizer                 # what training did to the values, and its inverse, for the robot
    MapDataset      robocache.MapDataset("path")[7]   # samples by number, for torch.utils.data.DataLoader
    LeRobotDataset  robocache.LeRobotDataset("owner/name", root="path") # lerobot's class of this name, item by item
    resample        robocache.resample(data, times, hz=50)              # rows onto new times, NumPy or torch, CPU or GPU

A Loader resumes exactly, at another number of GPUs too: loader.state_dict(), load_state_dict(); order(epoch) and stats() tell what it does. Its most used
keywords: shuffle="pool" (each video frame is decoded once an epoch), cache="ram" or a directory, device="cuda", normalize="mean_std", image_size=, hz=.
The rest is in groups: Windows, Align, Images, Augment, Order, Mixture, Cache, Device, Statistics, Runtime and Open, as images=robocache.Images(dtype="float32").

Beside them: Writer (records a dataset beside a robot's loop), edit and merge (ds.edit().delete([3]).write("clean")), pull and push (datasets of the Hugging Face Hub), stats (exact statistics), LeRobotDatasetMetadata, fuse, voxelize, depth_to_points and tsdf_integrate (with torch: torch.ops.robocache),
self_test() and check_installation() (what is here, and why the rest is not), and datasets: the earlier RoboCache's RTXDataset, CALVINDataset and
RoboMimicDataset over the same readers. Importing robocache loads neither torch nor the engine. docs/guide.md is the first hour, step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _torch
from ._errors import (
    Error,
    ForkError,
    Internal,
    Malformed,
    Misuse,
    NotFound,
    ResourceLimit,
    Temporary,
    Unsupported,
)
from ._version import __version__
from .dataset import Dataset, Episode, Feature, Stream, open

if TYPE_CHECKING:
    from . import datasets as datasets
    from ._verbs import convert, doctor, inspect, pull, push, stats
    from .compat import (
        check_installation as check_installation,
        enable_jit_cache as enable_jit_cache,
        fuse_multimodal as fuse_multimodal,
        fuse_multimodal_alignment as fuse_multimodal_alignment,
        fused_multimodal_alignment as fused_multimodal_alignment,
        is_cuda_available as is_cuda_available,
        print_installation_info as print_installation_info,
        resample_trajectories as resample_trajectories,
        set_device as set_device,
        voxelize_occupancy as voxelize_occupancy,
        voxelize_point_cloud as voxelize_point_cloud,
        voxelize_pointcloud as voxelize_pointcloud,
    )
    from .edit import merge
    from .lerobot import LeRobotDataset, LeRobotDatasetMetadata
    from .loader import Loader
    from .mapdataset import MapDataset
    from .mix import Mix
    from .normalizer import Normalizer
    from .ops import fuse, resample
    from .options import (
        Align,
        Augment,
        Cache,
        Device,
        Images,
        Mixture,
        Open,
        Order,
        Runtime,
        Statistics,
        Windows,
    )
    from .voxels import SparseVoxels, depth_to_points, tsdf_integrate, voxelize
    from .writer import Writer

__all__ = [
    "open",
    "Dataset",
    "Episode",
    "Stream",
    "Feature",
    "MapDataset",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "Loader",
    "Mix",
    "Normalizer",
    "Writer",
    "Windows",
    "Align",
    "Images",
    "Augment",
    "Order",
    "Mixture",
    "Cache",
    "Device",
    "Statistics",
    "Runtime",
    "Open",
    "resample",
    "fuse",
    "voxelize",
    "depth_to_points",
    "tsdf_integrate",
    "SparseVoxels",
    "inspect",
    "doctor",
    "convert",
    "stats",
    "edit",
    "merge",
    "pull",
    "push",
    "versions",
    "self_test",
    "is_cuda_available",
    "check_installation",
    "print_installation_info",
    "Error",
    "NotFound",
    "Malformed",
    "Unsupported",
    "ResourceLimit",
    "Temporary",
    "Misuse",
    "Internal",
    "ForkError",
    "__version__",
]

# Names of the earlier RoboCache that still work; docs/migration.md has the ways on.
_OLD = (
    "resample_trajectories fuse_multimodal fuse_multimodal_alignment fused_multimodal_alignment voxelize_pointcloud voxelize_point_cloud voxelize_occupancy"
    " set_device enable_jit_cache"
).split()

_OLD_DATASETS = (
    "RTXDataset RTXDataLoader create_rtx_dataloader CALVINDataset RoboMimicDataset RLDSStep RLDSEpisode RTXEpisode"
).split()

# Where each name is, and is looked for when it is used first.
_PLACES = {
    "mapdataset": "MapDataset",
    "lerobot": "LeRobotDataset LeRobotDatasetMetadata",
    "loader": "Loader",
    "mix": "Mix",
    "normalizer": "Normalizer",
    "ops": "resample fuse",
    "options": "Windows Align Images Augment Order Mixture Cache Device Statistics Runtime Open",
    "voxels": "voxelize depth_to_points tsdf_integrate SparseVoxels",
    "compat": " ".join(["is_cuda_available check_installation print_installation_info", *_OLD]),
    "_verbs": "inspect doctor convert stats pull push",
    "writer": "Writer",
    "edit": "edit merge",
    "datasets": " ".join(["datasets", *_OLD_DATASETS]),
    "ray": "ray",
}
_LAZY = {name: module for module, names in _PLACES.items() for name in names.split()}


def versions() -> dict[str, Any]:
    """Versions of the package, the engine, its formats and its decoder, and of torch and NumPy where they are."""
    import importlib.metadata
    import platform

    from . import _engine

    out = {
        "package": __version__,
        **_engine.call("robocache_versions"),
        "library": str(_engine.library_path()),
        "python": platform.python_version(),
    }
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
    print(
        f"robocache {v['package']}, engine {v['robocache']} (ABI {v['abi']}, {v['go']}), formats: {', '.join(v['formats']) or 'none'}"
    )
    failed = []
    for r in _engine.call("robocache_self_test"):
        state = "ok" if r["ok"] else "WRONG" if r["present"] else "not here"
        print(f"{r['part']}: {state}{': ' + r['detail'] if r.get('detail') else ''}")
        failed += [r["part"]] if r["present"] and not r["ok"] else []
    if failed:
        raise Error(
            f"{', '.join(failed)} gave wrong results",
            hint="please report what robocache.self_test() printed",
        )
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
    from ._options import nearest

    raise AttributeError(
        f"module 'robocache' has no attribute {name!r}: {nearest(name, [*__all__, *_OLD])}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)


_torch.watch()
