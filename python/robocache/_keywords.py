"""Keywords of functions: an unknown one is a Misuse that names the nearest, or what does here what it does elsewhere."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ._errors import Misuse, Unsupported

F = TypeVar("F", bound=Callable[..., Any])

_ROWS_HZ = "rows_hz= says the rate of rows that keep no clock; hz= of Loader, MapDataset and Episode.align resamples"

_LATER = {
    "augment": "augment= is a keyword of robocache.Loader and Mix: its draws go by the epoch, and items have none",
    "rename": "rename= is a keyword of robocache.Mix: Loader([Mix(source, rename={...})])",
}


_WINDOW = 'windows are offsets in seconds: delta_timestamps={"action": [i / fps for i in range(16)]}, {"observation.state": [-1 / fps, 0]}'
_NO_WORKERS = "there are no worker processes: leave it out; threads= and prefetch= of Loader say how much is done at once"
_SOURCE = "the first argument is the dataset: a path, a URI or an open Dataset"
_PLAIN = "no Python runs per sample: image_size=, image_dtype=, normalize= and augment= are built in, anything else is for the batch in your loop; LeRobotDataset takes image_transforms="

# What other loaders call it → what does it here. Such names are here alone.
_HABITS = {
    **dict.fromkeys(("num_workers", "workers", "n_workers", "num_threads", "num_parallel_calls"), "threads= of Loader: its batches are made by threads, without worker processes"),
    **dict.fromkeys(("transform", "transforms", "image_transforms", "target_transform", "augmentation", "augmentations"), _PLAIN),
    **dict.fromkeys(("collate_fn", "collate"), "batches come collated, one tensor a key: change the dict in your loop"),
    **dict.fromkeys(("chunk_size", "action_chunk_size", "n_action_steps", "horizon", "action_horizon", "pred_horizon", "n_obs_steps", "obs_horizon", "history", "sequence_length", "seq_len", "seq_length", "frame_stack", "deltas"), _WINDOW),
    **dict.fromkeys(("sampler", "batch_sampler"), "shuffle= and seed= decide the order (order(epoch) tells it), Mix(weight=) the shares of datasets, episodes= what is read; or a DataLoader with your sampler over a MapDataset"),
    **dict.fromkeys(("persistent_workers", "worker_init_fn", "multiprocessing_context"), _NO_WORKERS),
    **dict.fromkeys(("prefetch_factor", "prefetch_size", "num_prefetch"), "prefetch= of Loader: batches that are planned together"),
    **dict.fromkeys(("timeout", "timeout_s"), "deadline_s= of Loader"),
    **dict.fromkeys(("generator", "random_state", "random_seed", "rng"), "seed= of Loader"),
    "pin_memory_device": "pin_memory=True with device= of Loader",
    **dict.fromkeys(("path", "root", "uri", "data_dir", "data_path", "dataset", "dataset_path", "repo_id", "dataset_name"), _SOURCE),
    **dict.fromkeys(("columns", "fields", "select", "features", "modalities", "cameras", "camera_keys", "image_keys"), "keys= names the streams that are read"),
    **dict.fromkeys(("weights", "sample_weights", "probabilities"), "Mix(source, weight=…): Loader([Mix(a, weight=3), Mix(b, weight=1)])"),
    **dict.fromkeys(("resize", "img_size", "image_shape", "resolution"), "image_size=(height, width)"),
    **dict.fromkeys(("shuffle_buffer", "shuffle_buffer_size", "buffer_size"), 'shuffle="global" permutes all samples exactly; shuffle="pool" with pool_size= keeps whole episodes resident'),
    **dict.fromkeys(("num_epochs", "epochs", "repeat"), "each `for` over the Loader gives one epoch, and the next one goes on with the next"),
    **dict.fromkeys(("cache_dir", "in_memory", "cache_in_memory"), 'cache="ram" or cache=<directory> of Loader'),
    **dict.fromkeys(("gpu", "device_id"), 'device="cuda:0" of Loader'),
    **dict.fromkeys(("num_replicas", "num_shards"), "world_size= and rank= of Loader"),
    **dict.fromkeys(("fps", "frequency", "sample_rate"), "hz= brings the streams onto one timeline; rows_hz= says the rate of rows that keep no clock"),
    **dict.fromkeys(("streaming", "video_backend", "download_videos"), "leave it out: datasets are read in place, and frames are decoded by the engine"),
}


def _keyword_hint(name: str, owner: str, known: list[str]) -> str:
    """What to write in place of a keyword that a function does not have: at most three names, or the translation of a habit."""
    if name == "hz" and "rows_hz" in known:
        return _ROWS_HZ
    if name in _HABITS:
        return _HABITS[name]
    from . import LeRobotDataset, Loader, MapDataset, Mix  # the keywords of the others, where one of them has it

    for other in (Loader, MapDataset, Mix, LeRobotDataset):
        if other.__name__ != owner and name in inspect.signature(other).parameters:
            return f"{name}= is a keyword of robocache.{other.__name__}"
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6) or [k for k in known if len(name) > 2 and (name in k or k in name)][:3]
    return "did you mean " + " or ".join(map(repr, near)) + "?" if near else f"help({owner}) says what there is"


def checked(fn: F) -> F:
    """Makes an unknown keyword a Misuse that names the nearest one, or what does here what it does elsewhere."""
    params = inspect.signature(fn).parameters
    known = [n for n, p in params.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and n != "self"]
    owner = fn.__qualname__.removesuffix(".__init__")

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for k in kwargs:
            if k in _LATER and k not in known:
                raise Unsupported(_LATER[k])
            if k not in known:
                raise Misuse(f"unknown keyword {k!r} of {owner}", hint=_keyword_hint(k, owner, known))
        return fn(*args, **kwargs)

    return wrapper  # type: ignore[return-value]
