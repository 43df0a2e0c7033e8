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

Importing it loads neither torch nor the engine. help() of each name says the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import Error, ForkError, Malformed, Misuse, NotFound, ResourceLimit, Temporary, Unsupported
from ._version import __version__
from .dataset import Dataset, Episode, Feature, Stream, open

if TYPE_CHECKING:
    from .lerobot import LeRobotDataset
    from .loader import Loader
    from .mapdataset import MapDataset
    from .mix import Mix
    from .ops import fuse, resample
    from .voxels import SparseVoxels, depth_to_points, tsdf_integrate, voxelize

__all__ = [
    "open", "Dataset", "Episode", "Stream", "Feature", "MapDataset", "LeRobotDataset", "Loader", "Mix", "resample", "fuse", "voxelize",
    "depth_to_points", "tsdf_integrate", "SparseVoxels", "versions", "self_test",
    "Error", "NotFound", "Malformed", "Unsupported", "ResourceLimit", "Temporary", "Misuse", "ForkError", "__version__",
]  # fmt: skip

_LAZY = {
    "MapDataset": "mapdataset", "LeRobotDataset": "lerobot", "Loader": "loader", "Mix": "mix", "resample": "ops", "fuse": "ops", "voxelize": "voxels",
    "depth_to_points": "voxels", "tsdf_integrate": "voxels", "SparseVoxels": "voxels",
}  # fmt: skip

# Names that people will look for, and what to use instead.
_ELSEWHERE = {
    "RobotDataLoader": "use robocache.Loader([robocache.Mix(...)])",
    "TrajectoryResampler": "use Episode.align, or align= of Loader",
    "Trajectory": "use Episode.align, or align= of Loader",
    "ResampleConfig": "use Episode.align, or align= of Loader",
    "conv3d": "use torch.nn.functional.conv3d",
    "attention": "use torch.nn.functional.scaled_dot_product_attention",
    "will_oom": "use memory_budget= of Loader",
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
    """Checks that the engine loads, answers, reports errors by class, and has its decoder. Prints what is there; True, or raises.

    The conformance vectors of every back end are run by 'robocache self-test'.
    """
    v = versions()
    print(f"robocache {v['package']}, engine {v['robocache']} (ABI {v['abi']}, {v['go']}), formats: {', '.join(v['formats']) or 'none'}")
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

        value = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
        globals()[name] = value
        return value
    if name in _ELSEWHERE:
        raise AttributeError(f"robocache.{name}: {_ELSEWHERE[name]}")
    from ._options import nearest

    raise AttributeError(f"module 'robocache' has no attribute {name!r}: {nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
