"""Loader: batches made by the engine, ready as tensors."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _engine, _memory, _options
from ._batches import Batches
from ._errors import ForkError, Misuse, Unsupported
from .dataset import Dataset, arrays
from .mapdataset import MapDataset, sample_config

__all__ = ["Loader"]

_NORMS = ("mean_std", "min_max", "quantiles", "quantile10")


def _normalize(v: Any, features: Iterable[str]) -> Any:
    if v is None or v is False:
        return None
    if isinstance(v, str):
        return _options.choice("normalize", v, _NORMS)
    if not isinstance(v, Mapping):
        raise Misuse(f"normalize={v!r}: expected one of {', '.join(map(repr, _NORMS))}, or a dict by key")
    out: dict[str, Any] = {}
    for k, one in v.items():
        _options.key(k, features, "key of normalize")
        if isinstance(one, str):
            out[k] = _options.choice(f"normalize[{k!r}]", one, _NORMS)
            continue
        known = ("mode", "clip", "mean", "std", "low", "high")
        for name in one:
            if name not in known:
                raise Misuse(f"unknown entry {name!r} in normalize[{k!r}]", hint=_options.nearest(name, known))
        out[k] = {n: (np.asarray(x, np.float64).ravel().tolist() if n not in ("mode", "clip") else x) for n, x in one.items()}
    return out


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """rank and world: arguments, else torch.distributed, else RANK and WORLD_SIZE, else one process."""
    found: tuple[int, int] | None = None
    env = [os.environ.get(n) for n in ("RANK", "WORLD_SIZE")]
    if all(env):
        try:
            found = int(env[0] or 0), int(env[1] or 1)
        except ValueError:
            raise Misuse(f"RANK={env[0]!r} and WORLD_SIZE={env[1]!r}: expected integers") from None
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        group = dist.get_rank(), dist.get_world_size()
        if found is not None and found != group and rank is None and world_size is None:
            raise Misuse(f"torch.distributed says rank {group[0]} of {group[1]}, the environment {found[0]} of {found[1]}", hint="give rank= and world_size=")
        found = group
    if rank is None and world_size is None:
        r, w = found or (0, 1)
    elif rank is None:
        w = operator.index(world_size)  # type: ignore[arg-type]
        if found is not None and found[1] == w:
            r = found[0]
        elif w == 1:
            r = 0
        else:
            raise Misuse(f"world_size={w} without rank=", hint="give both")
    elif world_size is None:
        r = operator.index(rank)
        if found is not None:
            w = found[1]
        elif r == 0:
            w = 1
        else:
            raise Misuse(f"rank={r} without world_size=", hint="give both")
    else:
        r, w = operator.index(rank), operator.index(world_size)
    if not 0 <= r < w:
        raise Misuse(f"rank {r} of a world of {w}: expected 0 to world_size - 1")
    return r, w


class Loader:
    """Batches of a dataset, made in parallel by the engine: no worker processes, no Python per sample.

    source: a path or URI, a Dataset, or a MapDataset (its selection and windows are taken; keywords here override them).
    shuffle: "global" (a seeded permutation of all samples) or False (file order).
    rank, world_size: default from torch.distributed or the environment. All ranks give equally many batches.
    threads: default the cores. prefetch: batches planned and decoded together. memory_budget: bytes, or "4GiB".
    device: "cpu", "cuda", "cuda:1" …; pin_memory: page-locked batches, for copies to the GPU that overlap.
    normalize: None, "mean_std", "min_max", "quantiles", "quantile10", or {key: mode or {mode, clip, mean, std, low, high}}.
    image_dtype: "uint8" (default) or "float32"; image_size: (height, width); pictures are NCHW.
    on_bad_episode: "error", or "skip" (counted and listed in stats()).
    delta_timestamps, keys, episodes, hz, align, tolerance_s: as MapDataset.
    deadline_s: a batch of which nothing comes for so long is an error that says what is missing (default 300; 0: never).

    A batch is a dict: one contiguous tensor a key (NumPy array without torch), text as a list of str. It is yours: nothing writes to it
    again. Each `for` gives one epoch and goes on to the next; a `for` that was left early is followed by the next epoch.
    """

    @_options.checked
    def __init__(
        self,
        source: Any,
        batch_size: int = 64,
        shuffle: str | bool = "global",
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        threads: int | None = None,
        prefetch: int = 4,
        memory_budget: int | str = "4GiB",
        cache: Any = None,
        device: Any = "cpu",
        pin_memory: bool = False,
        normalize: Any = None,
        image_dtype: str | None = None,
        image_size: Sequence[int] | None = None,
        on_bad_episode: str = "error",
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        keys: Iterable[str] | None = None,
        episodes: Iterable[int] | None = None,
        hz: Any = None,
        align: Mapping[str, Any] | None = None,
        tolerance_s: float | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self._handle: _engine.Handle | None = None
        if shuffle == "pool":
            raise Unsupported('shuffle="pool" comes with the next release', hint='shuffle="global" is an exact shuffle and needs no pool')
        if shuffle is True:
            shuffle = "global"
        _options.choice("shuffle", shuffle, ("global", False))
        _options.choice("on_bad_episode", on_bad_episode, ("error", "skip"))
        if cache is not None:
            raise Unsupported("cache= comes with the next release", hint="leave cache out: decoded batches are not kept between epochs")
        if isinstance(source, (list, tuple)):
            raise Unsupported("mixtures of datasets come with the next release", hint="give one dataset; several Loaders can be interleaved by hand")
        inherited: dict[str, Any] = {}
        if isinstance(source, MapDataset):
            if getattr(source, "image_transforms", None) is not None:
                raise Unsupported("image_transforms are Python code, and a Loader runs none per sample", hint="apply them to the batch, on its device")
            inherited, self.dataset = dict(source._config), source.dataset
        elif isinstance(source, Dataset):
            self.dataset = source
        else:
            self.dataset = Dataset(source)
        own = sample_config(
            self.dataset.features, episodes=episodes, delta_timestamps=delta_timestamps, hz=hz, align=align, keys=keys,
            image_dtype=image_dtype, image_size=image_size, tolerance_s=tolerance_s,
        )  # fmt: skip
        self.rank, self.world_size = _place(rank, world_size)
        for name, v in (("batch_size", batch_size), ("prefetch", prefetch), ("threads", threads)):
            if v is not None and (not _options.is_integer(v) or int(v) < 1):
                raise Misuse(f"{name}={v!r}: expected an integer of at least 1")
        self.batch_size = int(batch_size)
        self._config: dict[str, Any] = {
            **inherited, **own, "batch_size": self.batch_size, "shuffle": shuffle, "seed": operator.index(seed), "drop_last": bool(drop_last),
            "rank": self.rank, "world_size": self.world_size, "prefetch": int(prefetch),
            "memory_budget": _options.bytes_of("memory_budget", memory_budget), "on_bad_episode": on_bad_episode,
        }  # fmt: skip
        if threads is not None:
            self._config["threads"] = int(threads)
        if deadline_s is not None:
            self._config["deadline_s"] = float(deadline_s) or -1.0
        if (n := _normalize(normalize, self.dataset.features)) is not None:
            self._config["normalize"] = n
        self._place_batches(device, bool(pin_memory))
        self._fresh()
        self._open().open()

    def _place_batches(self, device: Any, pin: bool) -> None:
        self.device, self.pin_memory = str(device), pin
        self._target: Any = None
        if self.device == "cpu" and not pin:
            return
        torch = _memory.torch_module()
        if torch is None:
            raise Unsupported(f"device={self.device!r}, pin_memory={pin}: torch is not installed", hint="pip install torch")
        if not torch.cuda.is_available():
            raise Unsupported(f"device={self.device!r}, pin_memory={pin}: torch finds no CUDA device", hint='use device="cpu" and pin_memory=False')
        try:
            d = torch.device(device)
        except RuntimeError as e:
            raise Misuse(f"device={device!r}: {e}") from None
        if d.type not in ("cpu", "cuda"):
            raise Unsupported(f"device={self.device!r}: batches go to CPU or CUDA", hint="move the batch yourself")
        if d.index is not None and d.index >= torch.cuda.device_count():
            raise Unsupported(f"device={self.device!r}: torch finds {torch.cuda.device_count()} CUDA devices")
        self._target = d

    def _fresh(self) -> None:
        self._handle = None
        self._batches: Batches | None = None  # made at the first batch
        self._midway = False  # some of the epoch was given, and not its end
        self._given = 0  # epoch of the batch that was given last
        self._iterated = False
        self._turn = 0  # which `for` may take batches

    def _make(self) -> tuple[int, Any]:
        answer = self.dataset._handle.call("robocache_loader_new", self._config)
        return answer["loader"], answer

    def _open(self) -> _engine.Handle:
        h = self._handle
        if h is None:
            h = self._handle = _engine.Handle(self._make)
        elif h.foreign and not h.closed:
            if self._iterated:
                raise ForkError(
                    "this Loader was in use before the fork, and cannot go on in the child",
                    {"dataset": self.dataset.uri, "pid": os.getpid()},
                    "make a Loader in the child, or give a MapDataset to DataLoader workers",
                )
            self._fresh()
            h = self._handle = _engine.Handle(self._make)
        return h

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_handle", "_batches", "_midway", "_given", "_iterated", "_turn"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()

    @property
    def keys(self) -> list[str]:
        """The keys of a batch, in its order."""
        return [f["key"] for f in self._open().open().info["fields"]]

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return self._open().open().info["samples"]

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        return self._open().open().info["len"]

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._open().call("robocache_loader_stats")["epoch"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._open()
        if self._midway:  # the last `for` was left early
            self.set_epoch(self.epoch + 1)
        self._turn += 1
        self._iterated = True
        return _Epoch(self, self._turn)

    def _next(self, epoch: int) -> dict[str, Any] | None:
        taker = self._batches
        if taker is None or taker.pid != os.getpid():
            taker = self._batches = Batches(self._open().open())
        batch = taker.next(epoch)
        self._midway, self._given = batch is not None, taker.epoch
        if batch is not None and self._target is not None:
            for k, v in batch.items():
                if not isinstance(v, list):
                    t = v.pin_memory() if self.pin_memory else v
                    batch[k] = t.to(self._target, non_blocking=self.pin_memory)
        return batch

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch. Right after load_state_dict for that same epoch it keeps the place."""
        self._open().call("robocache_loader_set_epoch", {"epoch": operator.index(epoch)})
        self._midway = False
        self._turn += 1

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: a small JSON-able dict. It counts the samples that were handed out, not those prefetched."""
        return self._open().call("robocache_loader_state")

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Goes on from a state: exactly, at any world size, batch size and number of threads. A state of other data is Misuse, unless forced."""
        self._open().call("robocache_loader_restore", {"state": dict(state), "force": bool(force)})
        self._midway = False
        self._turn += 1

    def order(self, epoch: int = 0) -> np.ndarray:
        """Sample numbers (as MapDataset counts) in the order of an epoch, over all ranks: int64. Nothing is decoded for it."""
        return arrays(self._open().call("robocache_loader_order", {"epoch": operator.index(epoch)}))["order"]

    def stats(self) -> dict[str, Any]:
        """What was done so far: samples/s, stage times, waits, frames, bytes, skipped episodes, buffer peaks."""
        return self._open().call("robocache_loader_stats")

    def close(self) -> None:
        """Ends all work. Batches that were taken stay valid."""
        self._batches = None
        if self._handle is not None:
            self._handle.close()
        else:
            self._handle = _engine.Handle(self._make)
            self._handle.closed = True

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<robocache.Loader of {self.dataset.uri!r}: batch {self.batch_size}, rank {self.rank} of {self.world_size}>"


class _Epoch:
    """One pass of a `for`."""

    def __init__(self, loader: Loader, turn: int) -> None:
        self._loader = loader
        self._turn = turn
        self._done = False
        self._epoch = -1  # known with the first batch

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._done:
            raise StopIteration
        if self._loader._turn != self._turn:
            raise Misuse("another `for`, set_epoch or load_state_dict has moved this Loader", hint="begin a new `for`")
        batch = self._loader._next(self._epoch)
        if batch is None:
            self._done = True
            raise StopIteration
        self._epoch = self._loader._given
        return batch

    def __len__(self) -> int:
        return len(self._loader)
