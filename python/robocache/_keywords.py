"""Checks the keywords of functions.

An unknown keyword raises Misuse, and the hint names the nearest keyword or the equivalent option.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from . import options
from ._errors import Misuse, Unsupported

F = TypeVar("F", bound=Callable[..., Any])

_ROWS_HZ = (
    "rows_hz= says the rate of rows that keep no clock; "
    "hz= of Loader, MapDataset and Episode.align resamples"
)

_OTHER_CLASSES = {
    "augment": (
        "augment= is a keyword of robocache.Loader and Mix: "
        "its draws go by the epoch, and items have none"
    ),
    "rename": "rename= is a keyword of robocache.Mix: Loader([Mix(source, rename={...})])",
}


_WINDOW = (
    "windows are offsets in seconds: "
    'delta_timestamps={"action": [i / fps for i in range(16)]}, '
    '{"observation.state": [-1 / fps, 0]}'
)
_NO_WORKERS = (
    "there are no worker processes: leave it out; "
    "threads= of Loader and robocache.Runtime(prefetch=…) say how much is done at once"
)
_SOURCE = "the first argument is the dataset: a path, a URI or an open Dataset"
_PLAIN = (
    "no Python runs per sample: image_size=, robocache.Images, normalize= and "
    "robocache.Augment are built in, "
    "anything else is for the batch in your loop; LeRobotDataset takes image_transforms="
)
_ORDER = (
    "shuffle= and seed= decide the order (order(epoch) tells it), "
    "Mix(weight=) the shares of datasets, episodes= what is read; "
    "or a DataLoader with your sampler over a MapDataset"
)
_POOL = (
    'shuffle="global" permutes all samples exactly; '
    'shuffle="pool" with robocache.Order(pool_size=…) keeps whole episodes resident'
)
_EPOCHS = "each `for` over the Loader gives one epoch, and the next one goes on with the next"
_HZ = "hz= brings the streams onto one timeline; rows_hz= says the rate of rows that keep no clock"

# The names of options in other loaders, with the equivalent here. RoboCache's own names are not
# included.
_HABITS = {
    name: hint
    for hint, names in {
        "threads= of Loader: its batches are made by threads, without worker processes": (
            "num_workers workers n_workers num_threads num_parallel_calls"
        ),
        _PLAIN: "transform transforms image_transforms target_transform augmentation augmentations",
        "batches come collated, one tensor a key: change the dict in your loop": "collate_fn collate",
        _WINDOW: (
            "chunk_size action_chunk_size n_action_steps horizon action_horizon "
            "pred_horizon n_obs_steps obs_horizon "
            "history sequence_length seq_len seq_length frame_stack deltas"
        ),
        _ORDER: "sampler batch_sampler",
        _NO_WORKERS: "persistent_workers worker_init_fn multiprocessing_context",
        "runtime=robocache.Runtime(prefetch=…) of Loader: batches that are planned together": (
            "prefetch_factor prefetch_size num_prefetch"
        ),
        "runtime=robocache.Runtime(deadline_s=…) of Loader": "timeout timeout_s",
        "seed= of Loader": "generator random_state random_seed rng",
        'device=robocache.Device("cuda", pin_memory=True) of Loader': "pin_memory_device",
        _SOURCE: "path root uri data_dir data_path dataset dataset_path repo_id dataset_name",
        "keys= names the streams that are read": (
            "columns fields select features modalities cameras camera_keys image_keys"
        ),
        "Mix(source, weight=…): Loader([Mix(a, weight=3), Mix(b, weight=1)])": (
            "weights sample_weights probabilities"
        ),
        "image_size=(height, width)": "resize img_size image_shape resolution",
        _POOL: "shuffle_buffer shuffle_buffer_size buffer_size",
        _EPOCHS: "num_epochs epochs repeat",
        'cache="ram" or cache=<directory> of Loader': "cache_dir in_memory cache_in_memory",
        'device="cuda:0" of Loader': "gpu device_id",
        "world_size= and rank= of Loader": "num_replicas num_shards",
        _HZ: "fps frequency sample_rate",
        "leave it out: datasets are read in place, and frames are decoded by the engine": (
            "streaming video_backend download_videos"
        ),
    }.items()
    for name in names.split()
}


def _keyword_hint(name: str, owner: str, known: list[str], groups: list[str]) -> str:
    """Returns the hint for an unknown keyword: at most three names, or its equivalent."""
    if name == "hz" and "rows_hz" in known:
        return _ROWS_HZ
    if name in _HABITS:
        return _HABITS[name]
    names: dict[str, list[str]] = {k: [repr(k)] for k in known}
    for group in groups:
        for field in dataclasses.fields(options.GROUPS[group]):
            for spelling in (
                field.name,
                options.engine_name(group, field.name),
                f"{group}_{field.name}",
            ):
                if spelling not in known:
                    names[spelling] = options.spellings(spelling, groups)
    if name in names:
        return " or ".join(names[name])
    # Maybe another class has a keyword of this name. Imported here because they import this module.
    from . import LeRobotDataset, Loader, MapDataset, Mix

    for other in (Loader, MapDataset, Mix, LeRobotDataset):
        if other.__name__ != owner and name in inspect.signature(other).parameters:
            return f"{name}= is a keyword of robocache.{other.__name__}"
    near = difflib.get_close_matches(name, names, n=6, cutoff=0.6)
    near = near or [k for k in known if len(name) > 2 and (name in k or k in name)]
    texts = list(dict.fromkeys(text for k in near for text in names[k]))[:3]
    return f"did you mean {' or '.join(texts)}?" if texts else f"help({owner}) lists the keywords"


def _refuse_other_group(keyword: str, value: Any) -> None:
    """Raises Misuse if the value of a keyword is the group of another keyword."""
    other = next((k for k, v in options.GROUPS.items() if isinstance(value, v)), keyword)
    if other != keyword:
        name = f"robocache.{type(value).__name__}"
        raise Misuse(
            f"{keyword}={name}(…): expected another type", hint=f"a {name} is for {other}="
        )


def _check_group(keyword: str, group: Any) -> None:
    """Raises Misuse if the value of a group's keyword is not of the group's class."""
    cls = options.GROUPS[keyword]
    if group is None or isinstance(group, cls):
        return
    fields = [f.name for f in dataclasses.fields(cls)]
    if isinstance(group, Mapping):
        fields = [k for k in group if k in fields] or fields
    example = f"{keyword}=robocache.{cls.__name__}({', '.join(f'{f}=…' for f in fields)})"
    found = repr(group) if isinstance(group, (str, int, float)) else type(group).__name__
    raise Misuse(f"{keyword}={found}: expected a robocache.{cls.__name__}", hint=example)


def _expand_groups(signature: inspect.Signature, groups: tuple[str, ...]) -> inspect.Signature:
    """Returns a signature with one parameter per group in place of **groups."""
    own = [p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD]
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(g, kind, default=None, annotation=options.GROUPS[g]) for g in groups]
    return signature.replace(parameters=[*own, *more])


def check_keywords(fn: F, groups: tuple[str, ...] = ()) -> F:
    """Returns fn, wrapped to raise Misuse for an unknown keyword.

    The hint names the nearest keyword or its equivalent. The wrapper also checks the types of the
    option groups, and replaces align="causal" by options.Align(causal=True) and follow=True by
    options.Follow().

    Args:
        fn: The function.
        groups: The option groups that fn accepts as **groups.
    """
    signature = _expand_groups(inspect.signature(fn), groups)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [n for n, p in signature.parameters.items() if p.kind in named and n != "self"]
    owner = fn.__qualname__.removesuffix(".__init__")
    searched = [g for g in options.GROUPS if g in known]

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for k in kwargs:
            if k in _OTHER_CLASSES and k not in known:
                raise Unsupported(_OTHER_CLASSES[k])
            if k not in known:
                raise Misuse(
                    f"unknown keyword {k!r} of {owner}",
                    hint=_keyword_hint(k, owner, known, searched),
                )
            _refuse_other_group(k, kwargs[k])
        if "align" in groups and kwargs.get("align") == "causal":
            kwargs["align"] = options.Align(causal=True)
        if "follow" in groups and isinstance(kwargs.get("follow"), bool):
            kwargs["follow"] = options.Follow() if kwargs["follow"] else None
        for k in groups:
            _check_group(k, kwargs.get(k))
        return fn(*args, **kwargs)

    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


def accept_groups(*groups: str) -> Callable[[F], F]:
    """Returns a decorator: check_keywords for a function that accepts groups as **groups.

    Args:
        groups: The keywords of the accepted option groups, such as "images".
    """
    return lambda fn: check_keywords(fn, groups)
