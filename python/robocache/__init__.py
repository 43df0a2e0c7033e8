"""RoboCache turns robot datasets into aligned training batches.

RoboCache reads datasets in place, in the format in which they were recorded: LeRobot v2.0 to v3.0,
RLDS, robomimic, ALOHA and other HDF5, CALVIN, MCAP and ROS 2 bags, Zarr, and point clouds. A
dataset can be a local path or a URL. RoboCache decodes only the frames that a sample needs. It puts
streams with different rates on one timeline and delivers shuffled batches to PyTorch.

The work is done by an engine written in Go, in threads of this process. There are no worker
processes, and no Python code runs per sample. Each key of a batch is one contiguous tensor. Without
torch, all arrays are NumPy arrays.

    import robocache

    ds = robocache.open("path/to/dataset")
    print(ds.features)
    loader = robocache.Loader("path/to/dataset", batch_size=64,
                              delta_timestamps={"action": [0, 0.1]})
    for batch in loader:
        train(batch["observation.state"], batch["action"])

Conventions:

- Durations are seconds (int or float) or text with a unit, such as "50ms".
- Arrays of timestamps are float seconds or int64 nanoseconds.
- Masks are named <key>_is_pad. They are True for rows outside the episode and for rows without a
  recorded value.
- Failures raise robocache.Error with the place in .where (file, episode, stream, row) and advice in
  .hint. The subclasses are NotFound, Malformed, Unsupported, ResourceLimit, Temporary, Misuse and
  Internal. Internal is a fault of RoboCache; please report it.

The ten names to begin with:

    open            Opens a dataset: ds = robocache.open("path"); ds[0].align(hz=50).
    inspect         Summarizes a dataset: robocache.inspect("path").
    doctor          Lists the problems of a dataset: robocache.doctor("path").findings.
    convert         Writes LeRobot, MCAP, RLDS, robomimic or Zarr.
    Loader          Delivers shuffled batches for training.
    Mix             Is one dataset of a mixture: Loader([Mix(a, weight=3), Mix(b, weight=1)]).
    Normalizer      Applies and inverts a loader's normalization, without the dataset.
    MapDataset      Returns samples by number, for torch.utils.data.DataLoader.
    LeRobotDataset  Replaces lerobot's class of the same name, item by item.
    resample        Interpolates rows at new times, with NumPy or torch, on CPU or GPU.

The most used keywords of Loader:

- shuffle="pool" decodes each video frame once per epoch.
- cache="ram", or a directory, keeps decoded images for the next epoch.
- device="cuda" delivers batches on the GPU.
- normalize="mean_std" normalizes the streams of numbers.
- image_size= and hz= set the size of images and the rate of the timeline.

The other options are in groups: Windows, Align, Images, Augment, Order, Mixture, Cache, Device,
Statistics, Runtime, Follow and Open. Example: images=robocache.Images(dtype="float32").

A Loader resumes exactly with state_dict() and load_state_dict(), also on another number of GPUs.
order(epoch) returns the order of the samples, locate() their episodes and rows, and stats() the
counters of the loader.

More names:

- Writer records a dataset while a robot runs.
- Live gives a running robot the observations of a Contract, which Loader.contract() makes.
- edit and merge change datasets: ds.edit().delete([3]).write("clean").
- pull and push copy datasets from and to the Hugging Face Hub.
- stats computes exact statistics, window_statistics those of windows of relative actions, and
  pool_statistics those of several datasets together.
- quality measures every episode and lists those that differ from the others.
- find searches episodes and rows by expressions over signals, and frames by the vectors of embed.
- causality reports which observations use samples that a robot does not have yet.
- index writes an index of recordings, so that a folder of many files opens at once.
- diff reports how a dataset differs from another one, also in another format.
- LeRobotDatasetMetadata reads the metadata of a LeRobot dataset.
- fuse, voxelize, depth_to_points and tsdf_integrate work on arrays. With torch, torch.ops.robocache
  has resample, fuse and voxelize.
- self_test() and check_installation() report which parts of RoboCache work on this machine.
- datasets has RTXDataset, CALVINDataset and RoboMimicDataset of the earlier RoboCache.

Importing robocache loads neither torch nor the engine. docs/guide.md is a tutorial for the first
hour.
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
    from . import datasets as datasets, live as live
    from ._embed import embed
    from ._find import find
    from ._quality import quality
    from ._verbs import causality, convert, diff, doctor, index, inspect, pull, push, stats
    from ._window_statistics import pool_statistics, window_statistics
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
    from .contract import Contract
    from .edit import merge
    from .lerobot import LeRobotDataset, LeRobotDatasetMetadata
    from .live import Live
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
        Follow,
        Statistics,
        Windows,
    )
    from .vectors import Part, Vector
    from .voxels import SparseVoxels, depth_to_points, tsdf_integrate, voxelize
    from .writer import Writer

__all__ = [
    "open",
    "Dataset",
    "Episode",
    "Stream",
    "Feature",
    "MapDataset",
    "Vector",
    "Part",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "Loader",
    "Mix",
    "Normalizer",
    "Contract",
    "Live",
    "live",
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
    "Follow",
    "Open",
    "resample",
    "fuse",
    "voxelize",
    "depth_to_points",
    "tsdf_integrate",
    "SparseVoxels",
    "inspect",
    "doctor",
    "causality",
    "index",
    "find",
    "quality",
    "diff",
    "embed",
    "convert",
    "stats",
    "window_statistics",
    "pool_statistics",
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

# Names of the earlier RoboCache that still work. docs/migration.md lists their replacements.
_OLD = (
    "resample_trajectories fuse_multimodal fuse_multimodal_alignment fused_multimodal_alignment "
    "voxelize_pointcloud voxelize_point_cloud voxelize_occupancy set_device enable_jit_cache"
).split()

_OLD_DATASETS = (
    "RTXDataset RTXDataLoader create_rtx_dataloader CALVINDataset RoboMimicDataset "
    "RLDSStep RLDSEpisode RTXEpisode"
).split()

# The module of each public name. A module is imported when one of its names is first used.
_MODULES_OF_NAMES = {
    "mapdataset": "MapDataset",
    "lerobot": "LeRobotDataset LeRobotDatasetMetadata",
    "loader": "Loader",
    "mix": "Mix",
    "normalizer": "Normalizer",
    "ops": "resample fuse",
    "vectors": "Vector Part",
    "options": "Windows Align Images Augment Order Mixture Cache Device Statistics Runtime Follow Open",
    "voxels": "voxelize depth_to_points tsdf_integrate SparseVoxels",
    "compat": " ".join(["is_cuda_available check_installation print_installation_info", *_OLD]),
    "_quality": "quality",
    "_verbs": "inspect doctor causality index diff convert stats pull push",
    "_find": "find",
    "_embed": "embed",
    "_window_statistics": "window_statistics pool_statistics",
    "contract": "Contract",
    "live": "live Live",
    "writer": "Writer",
    "edit": "edit merge",
    "datasets": " ".join(["datasets", *_OLD_DATASETS]),
    "ray": "ray",
    "openpi": "openpi",
    "gr00t": "gr00t",
    "diffusion_policy": "diffusion_policy",
    "rlds_training": "rlds_training",
}
_LAZY = {name: module for module, names in _MODULES_OF_NAMES.items() for name in names.split()}


def versions() -> dict[str, Any]:
    """Returns the versions of RoboCache's parts.

    Returns:
        A dict with the versions of the package, the engine, Python, NumPy and torch, the engine's
        formats and decoder, and the path of the engine's library. The version of a package that is
        not installed is None.

    Raises:
        NotFound: The engine's library does not exist.
        Unsupported: The engine's library cannot be loaded on this machine.
    """
    import importlib.metadata
    import platform

    from . import _engine

    out = {
        "package": __version__,
        **_engine.call_engine("robocache_versions"),
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
    """Tests the installed parts of RoboCache and prints a report.

    Runs the conformance vectors on every back end of the kernels and on the video decoders. For a
    part that is not installed, the report has the reason.

    Returns:
        True. A wrong result raises an exception.

    Raises:
        Error: A part gave wrong results; the message names the part.
        Unsupported: The engine was built without formats.
    """
    from . import _engine

    v = versions()
    print(
        f"robocache {v['package']}, engine {v['robocache']} (ABI {v['abi']}, {v['go']}), "
        f"formats: {', '.join(v['formats']) or 'none'}"
    )
    failed = []
    for r in _engine.call_engine("robocache_self_test"):
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
        _torch.register_when_imported()  # torch may have been importing itself when this package was imported.
        globals()[name] = value
        return value
    from ._checks import nearest_names

    raise AttributeError(
        f"module 'robocache' has no attribute {name!r}: {nearest_names(name, [*__all__, *_OLD])}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)


_torch.register_when_imported()
