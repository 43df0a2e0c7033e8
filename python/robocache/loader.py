"""Loader delivers batches that the engine makes, as tensors."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import (
    _config,
    _engine,
    _option_values,
    _keywords,
    _memory,
    _checks,
    _compare_scales,
    _sources,
    _statistics,
    options,
)
from ._batches import HostBatches, DeliveredBatch, ReadAhead
from ._device import DeviceBatches, PinnedBatches
from ._epoch import Epoch
from ._errors import ForkError, Misuse, NotIndexed, Unsupported
from ._finisher import Finisher
from ._order import Located, OrderMixin
from ._rank_resolver import RankResolver
from ._samples import Samples
from ._target import find_target
from ._results import Causality
from ._views import JaxSource, NumpyBatches, ViewsMixin
from .contract import Contract
from ._feature import Features
from .mapdataset import with_delivered_units
from .normalizer import Normalizer, settled_config
from .options import Cache
from .vectors import Vector

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .dataset import Dataset
    from .options import LoaderGroups

    _Base = object
else:
    try:  # DataLoader and torchdata's StatefulDataLoader iterate over an IterableDataset.
        from torch.utils.data import IterableDataset as _Base
    except ImportError:
        _Base = object

__all__ = ["Loader", "Located"]


class _NoDataset(Misuse, AttributeError):
    """A mixture has no single dataset.

    Also an AttributeError, because Lightning and others call hasattr(loader, "dataset").
    """


class _FixedOption(Misuse, AttributeError):
    """An attribute of a Loader was assigned that is fixed."""


class Loader(OrderMixin, ViewsMixin, _Base):
    """Delivers batches of one dataset or a mixture, made in parallel by the engine.

    There are no worker processes, and no Python code runs per sample. A batch is a dict. Each key
    is one contiguous tensor (a NumPy array without torch), and text is a list of str. A batch is
    not overwritten later. docs/batches.md describes the content of a batch.

    Each `for` delivers one epoch. The next `for` delivers the next epoch, also if the last one was
    left early. len() is the number of batches per epoch on this rank.

    state_dict() and load_state_dict() continue exactly, also at another batch size, world size or
    number of threads. In torch's DataLoader and torchdata's StatefulDataLoader, the loader needs
    batch_size=None and num_workers=0, because it delivers whole batches.

    Args:
        source: A path or URI, a Dataset, or a MapDataset, whose selection and windows this loader
            takes unless a keyword overrides them. Or a list of robocache.Mix, paths, URIs and
            Datasets: a mixture.
        batch_size: Samples per batch on each rank. Default 64.
        shuffle: "global" (default): an exact permutation of all samples. "pool": whole episodes are
            decoded once, and samples are drawn from the episodes in memory. False: the order of the
            files. order(epoch) returns the order.
        seed: The seed of the order and of augment=. Default 0.
        keys: The streams of a batch; other streams are not read. Default None: all. "episode_id",
            "index", "episode_index" and "frame_index" are generated if the dataset lacks them.
        episodes: Indices of episodes, in place of a split. The samples are numbered in the order of
            the files. Default None.
        split: Use only the episodes of this split. Default None: "train" (or "training") if the
            dataset has this split, else all. "all": all episodes.
        where: An expression such as "length < 600 and q.idle < 0.3", as in robocache.find: of the
            selected episodes, only those for which it is true. Evaluated at opening. Default None.
        delta_timestamps: {key: [seconds, ...]}, windows with `<key>_is_pad`, by lerobot's rules.
            Default None.
        hz: The rate of a uniform timeline of samples, in Hz. Default None: the rows of the dataset.
        normalize: "mean_std", "min_max", "quantiles" (q01 to q99) or "quantile10" for every float
            stream of numbers. Or {key: mode or {"mode", "clip", "mean", "std", "low", "high"}}. Or
            another Loader or its normalizer, so that validation uses the numbers of training.
            Default None.
        image_size: (height, width) in pixels, scaled with a bilinear filter with antialiasing.
            Default None: as recorded.
        cache: "ram", a directory or a robocache.Cache: keeps decoded images for the next epoch. A
            number is the bytes of a cache in RAM. Default None.
        threads: Threads of the engine. Default None: one per core.
        memory_budget: Bytes, or text such as "4GiB" (default), for batches in flight, decoders,
            images in memory and the RAM cache together.
        device: "cpu" (default), "cuda", "cuda:1" or a robocache.Device. Batches are copied to the
            device one batch ahead.
        drop_last: Whether to leave out the last step if it is not full. Default False.
        rank: The rank that this loader serves. Default None: from torch.distributed, the
            environment or jax.distributed, when the loader is first used (len, iter, state_dict).
        world_size: The number of ranks. All ranks deliver equally many batches. Default None: as
            rank.
        vectors: {key: robocache.Vector}, keys that are made of columns of numeric streams.
            Default None.
        derive: {key: function}: streams that are computed once per episode at opening. The function
            takes a dict of the episode's numeric arrays, (N, ...) as stored, and returns numbers
            with one row per row of the episode. A key of the dataset is replaced. With cache= as a
            directory, values are kept there by their content. Default None.
        windows: A robocache.Windows: windows in rows, windows at a stream's own rate, absent keys,
            and the dtype of float64 streams.
        align: A robocache.Align: how streams are put on one timeline.
        images: A robocache.Images: the dtype and shape of images, and the unit of depth.
        augment: A robocache.Augment: random changes of images and numbers.
        order: A robocache.Order: pools, the last step, excluded frames, and episodes that cannot be
            read.
        mixture: A robocache.Mixture: the shares and the length of a mixture's epoch.
        statistics: A robocache.Statistics: the statistics for normalize=.
        runtime: A robocache.Runtime: prefetching, reads in flight, a deadline and metrics.
        follow: True or a robocache.Follow: new episodes enter while the dataset is recorded, at the
            start of an epoch or after a number of steps. Default None: the dataset is fixed.
        open: A robocache.Open: how a path is opened.

    Raises:
        Misuse: An option is unknown or out of range; .hint names the nearest valid one.
        NotFound: The source, a split or a device does not exist.
        Malformed: An episode violates the format; .where has the place.
        Unsupported: RoboCache cannot read the source or serve the device.

    Example:
        loader = robocache.Loader("path", batch_size=64, delta_timestamps={"action": [0, 0.1]})
        for batch in loader:
            train(batch["observation.state"], batch["action"])
    """

    @_keywords.accept_groups(
        "windows",
        "align",
        "images",
        "augment",
        "order",
        "mixture",
        "statistics",
        "runtime",
        "follow",
        "open",
    )
    def __init__(
        self,
        source: Any,
        *,
        batch_size: int = 64,
        shuffle: Literal["global", "pool"] | bool = "global",
        seed: int = 0,
        keys: Iterable[str] | None = None,
        episodes: Iterable[int] | None = None,
        split: str | None = None,
        where: str | None = None,
        delta_timestamps: Mapping[str, Sequence[float | str]] | None = None,
        hz: Any = None,
        normalize: Any = None,
        image_size: Sequence[int] | None = None,
        cache: str | os.PathLike[str] | int | Cache | None = None,
        threads: int | None = None,
        memory_budget: int | str = "4GiB",
        device: Any = "cpu",
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        vectors: Mapping[str, Vector] | None = None,
        derive: Mapping[str, Callable[..., Any]] | None = None,
        **groups: Unpack[LoaderGroups],
    ) -> None:
        self._handle: _engine.Handle | None = None
        placement = _option_values.as_device(device)
        plain = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "keys": keys,
            "episodes": episodes,
            "split": split,
            "where": where,
            "delta_timestamps": delta_timestamps,
            "hz": hz,
            "normalize": normalize,
            "image_size": image_size,
            "threads": threads,
            "memory_budget": memory_budget,
            "drop_last": drop_last,
            "vectors": vectors,
        }
        given = _option_values.OptionValues(
            plain, {**groups, "cache": _option_values.as_cache(cache), "device": placement}
        )
        sources = _sources.open_sources(source, given.pop_group("open"), derive, given)
        self._mix, self._features = sources.mix, sources.features
        self.datasets: list[Dataset] = sources.datasets
        # The configurations of the sources, in the engine's form.
        self._source_configs: list[dict[str, Any]] = []
        inherited = sources.inherited
        if self._mix is not None:
            given["normalize"] = _sources.share_normalizer(self._mix, normalize)
        own = _config.sample_config(self._features, given)  # The options that were given here.
        if self._mix is not None and "stats" in own:
            raise Misuse(
                "Statistics(values=…) of a mixture",
                hint="give it to each robocache.Mix; statistics=robocache.Statistics(compute=True) "
                "may stand here",
            )
        # Statistics that were given here replace those of a MapDataset that is the source.
        if own.get("compute_stats"):
            inherited.pop("stats", None)
        if "stats" in own:
            inherited.pop("compute_stats", None)
        self._config: dict[str, Any] = {
            **inherited,
            **own,
            **_config.loader_config(given, self._mix is not None),
        }
        _config.drop_unselected_normalizers(self._config)
        _statistics.refuse_unused(self._config, [m._config for m in self._mix or []])
        self._rank_resolver = RankResolver(rank, world_size)
        self._config["rank"], self._config["world_size"] = self._rank_resolver.current()
        self._target = find_target(placement, self._config.get("decode"))
        self._config.update(self._target.config)
        self._host_reason: str | None = None  # Why the host completes the batches for a device.
        self._reset_state()
        self._open().open()

    @property
    def dataset(self) -> Samples:
        """The dataset with its length and items in samples.

        len() is the number of samples of an epoch, and [i] is a sample without augmentation. The
        other attributes are those of the Dataset, which is datasets[0]. A mixture has only
        `datasets`, and raises Misuse here.
        """
        if self._mix is not None:
            raise _NoDataset("a mixture has several datasets", hint="see .datasets")
        if self._samples is None:
            self._samples = Samples(self.datasets[0], self._config, self._count_samples)
        return self._samples

    def _count_samples(self) -> int:
        """Returns the number of samples of an epoch."""
        return self.num_samples

    @property
    def rank(self) -> int:
        """The rank of this Loader. It is fixed at the first use (len, iter, state_dict)."""
        return self._rank_resolver.current()[0]

    @property
    def world_size(self) -> int:
        """The number of ranks that share an epoch. It is fixed at the first use, like rank."""
        return self._rank_resolver.current()[1]

    @property
    def batch_size(self) -> int:
        """Samples per batch on each rank. It can be set between epochs, and keeps the order."""
        return self._config["batch_size"]

    @batch_size.setter
    def batch_size(self, n: int) -> None:
        n = _checks.check_whole("batch_size", n)
        if self._epoch_is_open:
            raise Misuse(
                f"batch_size={n} in the middle of an epoch",
                hint="set it after the `for` has ended, or after set_epoch()",
            )
        if n != self.batch_size:
            self._recreate(batch_size=n)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise _FixedOption(
                f"{name} of a Loader that was made already",
                hint=f"make a new Loader with {_FIXED[name]}; batch_size alone can be set",
            )
        super().__setattr__(name, value)

    def __getitem__(self, i: Any) -> Any:
        raise NotIndexed(
            "a Loader gives batches one after the other, and has none by number",
            hint="next(iter(loader)) is a batch, loader.dataset[i] a sample, loader.keys the names",
        )

    @property
    def _uri(self) -> Any:
        """The URI of the dataset, or a list of the URIs of a mixture."""
        uris = [d.uri for d in self.datasets]
        return uris[0] if self._mix is None else uris

    @property
    def device(self) -> str:
        """The name of the device on which batches arrive."""
        return self._target.name

    @property
    def pin_memory(self) -> bool:
        """Whether batches on the host are in page-locked memory."""
        return bool(self._config.get("pin_memory"))

    def _reset_state(self) -> None:
        """Resets the state of a loader that has no object in the engine."""
        self._handle = None
        # Created at the first batch.
        self._batches: HostBatches | DeviceBatches | PinnedBatches | JaxSource | None = None
        # The view whose batches are delivered, such as as_jax(); None: the loader itself.
        self._view: NumpyBatches | None = None
        # Whether some batches of the epoch were delivered, but not its end.
        self._epoch_is_open = False
        self._last_epoch = 0  # The epoch of the last delivered batch.
        self._iterated = False  # Whether a `for` was begun.
        self._positioned = False  # Whether set_epoch or load_state_dict was called.
        self._pass_number = 0  # The number of the `for` that may receive batches.
        self._samples: Samples | None = None

    @property
    def _raw(self) -> bool:
        """Whether the engine leaves casts, normalization and interpolation to the device."""
        return bool(self._config.get("raw"))

    def _make_finisher(self, handle: _engine.Handle) -> Finisher:
        """Returns the object that completes raw batches on the device."""
        return Finisher(handle, _memory.torch_module(), self._target.device, self._target.kernels)

    def _create_loader(self) -> tuple[int, Any]:
        """Creates the engine's loader and returns its number and the engine's answer.

        If the device cannot complete the batches, the host does. If the driver has no page-locked
        memory, ordinary memory is used.
        """
        try:
            answer = self._create_once()
        except Unsupported as error:
            if self._raw and error.where.get("raw"):
                self._complete_on_host(error)  # A stream has rows of varying length.
                return self._create_loader()
            # Page-locked memory is the default. If the driver cannot provide it, ordinary memory is
            # used, unless the caller asked for it.
            if self._target.pin is not None or not self._config.pop("pin_memory", False):
                raise
            del self._config["pin_device"]
            answer = self._create_once()
        if self._raw and (error := self._find_kernel_error(answer["loader"])) is not None:
            _engine.current_engine().call("robocache_close", answer["loader"])
            self._complete_on_host(error)
            answer = self._create_once()
        return answer["loader"], answer

    def _complete_on_host(self, reason: Unsupported) -> None:
        """Makes the host complete the batches. stats() reports the reason."""
        del self._config["raw"]
        self._host_reason = str(reason)

    def _find_kernel_error(self, loader: int) -> Unsupported | None:
        """Returns the error if the kernels do not run on the device, else None.

        Args:
            loader: The number of the loader in the engine.
        """
        engine = _engine.current_engine()
        arguments = {"rows": self.batch_size, **self._target.kernels}
        try:
            # The operation is only prepared, never run.
            operation = engine.call("robocache_loader_finish", loader, arguments)[1]["op"]
        except Unsupported as error:
            return error
        if operation:
            engine.call("robocache_close", operation)
        return None

    def _create_once(self) -> Any:
        """Creates the engine's loader with the current configuration."""
        if self._mix is None:
            answer = self.dataset._handle.call("robocache_loader_new", self._config)
            _checks.log_notes(answer)
            _compare_scales.warn_if_scales_differ(
                self.datasets, [self._config], answer["normalizers"]
            )
            if not self._config.get("refresh"):
                self._config = settled_config(self._config, answer["settled"][0])
            return answer
        self._source_configs = self._source_configs or [m._engine_source() for m in self._mix]
        for m, s in zip(self._mix, self._source_configs):
            s["dataset"] = m.dataset._handle.number
        answer = _engine.call_engine(
            "robocache_loader_new", {**self._config, "sources": self._source_configs}
        )
        _checks.log_notes(answer)
        _compare_scales.warn_if_scales_differ(
            self.datasets, self._source_configs, answer["normalizers"]
        )
        self._source_configs = [
            settled_config(s, settled)
            for s, settled in zip(self._source_configs, answer["settled"])
        ]
        return answer

    def _open(self) -> _engine.Handle:
        """Returns the handle of the engine's loader, which may not exist yet."""
        handle = self._handle
        if handle is None:
            handle = self._handle = _engine.Handle(self._create_loader)
        elif handle.foreign and not handle.closed:  # This process is a forked child.
            if self._iterated:
                raise ForkError(
                    "this Loader was in use before the fork, and cannot continue in the child",
                    {"dataset": self._uri, "pid": os.getpid()},
                    "make a Loader in the child, or give a MapDataset to DataLoader workers",
                )
            self._reset_state()
            self._rank_resolver.fixed = None  # The child may be another rank.
            handle = self._handle = _engine.Handle(self._create_loader)
        return handle

    def _open_for_use(self) -> _engine.Handle:
        """Returns the handle, with the rank and the world size of this process.

        Both are fixed from now on.
        """
        handle = self._open()
        if not handle.closed:
            rank, world = self._rank_resolver.fix()
            if (rank, world) != (self._config["rank"], self._config["world_size"]):
                self._recreate(rank=rank, world_size=world)
        return self._open()

    def _recreate(self, **change: Any) -> None:
        """Creates the engine's loader again with other options, at the same position."""
        old = self._open()
        # The position is that of the first batch that was not delivered.
        before = self._batches.first_pending_seq if isinstance(self._batches, ReadAhead) else 0
        state = None  # A loader at its start has no position to restore.
        if self._iterated or self._positioned:
            state = old.call("robocache_loader_state", {"before": before} if before else None)
        iterated, positioned, pass_number = self._iterated, self._positioned, self._pass_number
        self.close()
        self._reset_state()
        self._iterated = iterated
        self._positioned = positioned
        self._pass_number = pass_number + 1
        self._config.update(change)
        new = self._open().open()
        if state is not None:
            new.call("robocache_loader_restore", {"state": state, "force": False})

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in (
            "_handle",
            "_batches",
            "_view",
            "_epoch_is_open",
            "_last_epoch",
            "_iterated",
            "_positioned",
            "_pass_number",
            "_samples",
        ):
            del state[name]
        # Without the address of the metrics, which this process serves.
        state["_config"] = {k: v for k, v in self._config.items() if k != "metrics"}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset_state()

    @property
    def features(self) -> Features:
        """The streams of a batch by key, as the dataset describes them.

        unit is the unit in the batch, before normalization.
        """
        keys = set(self.keys)
        all_features = with_delivered_units(self._features, self._open().open().info["fields"])
        out = Features((k, f) for k, f in all_features.items() if k in keys)
        out.withheld = all_features.withheld
        return out

    @property
    def keys(self) -> list[str]:
        """The keys of a batch, in their order."""
        return [f["key"] for f in self._open().open().info["fields"]]

    @property
    def metrics_address(self) -> str | None:
        """The address host:port of Runtime(metrics=...); None without metrics."""
        return self._open().open().info.get("metrics")

    @property
    def num_samples(self) -> int:
        """The number of samples of an epoch, over all ranks."""
        return self._present_counts()["samples"]

    def _present_counts(self, for_use: bool = False) -> dict[str, Any]:
        """Returns the samples and batches ("len") of an epoch.

        Those of a loader that follows its dataset change when episodes enter.
        """
        handle = self._open_for_use() if for_use else self._open()
        counts = handle.open().info
        if "follow" not in self._config:
            return counts
        stats = handle.call("robocache_loader_stats")
        return {"samples": stats["epoch_samples"], "len": stats["len"]}

    def __len__(self) -> int:
        """Returns the number of batches of an epoch on this rank."""
        return self._present_counts(for_use=True)["len"]

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        ahead = self._batches.pending_epoch if isinstance(self._batches, ReadAhead) else None
        return self._open().call("robocache_loader_stats")["epoch"] if ahead is None else ahead

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._begin_pass(None)

    def _begin_pass(self, view: NumpyBatches | None) -> Epoch:
        """Begins a `for` over the loader, or over a view of it."""
        data = sys.modules.get("torch.utils.data")
        if (
            data is not None
            and (worker := data.get_worker_info()) is not None
            and worker.num_workers > 1
        ):
            raise Misuse(
                f"a Loader in {worker.num_workers} workers of a DataLoader: "
                "each would give every batch",
                hint="a Loader needs no workers: "
                "DataLoader(loader, batch_size=None, num_workers=0), or the Loader alone; "
                "or workers over a MapDataset",
            )
        self._open_for_use()
        if self._epoch_is_open:  # The last `for` was left early.
            self.set_epoch(self._last_epoch + 1)
        if view is not self._view:
            self._view, self._batches = view, None
        self._pass_number += 1
        self._iterated = True
        return Epoch(self, self._pass_number)

    def _batch_source(self) -> HostBatches | DeviceBatches | PinnedBatches | JaxSource:
        """Returns the object that receives batches in this process, created at the first call."""
        source = self._batches
        if source is None or source.pid != os.getpid():
            handle = self._open().open()
            if self._view is not None:
                self._batches = source = self._view._open_source(handle)
                return source
            source = HostBatches(handle, raw=self._raw)
            if self._target.device is not None:
                source = DeviceBatches(
                    source,
                    _memory.torch_module(),
                    self._target.device,
                    self._make_finisher(handle) if self._raw else None,
                )
            elif self.pin_memory:
                source = PinnedBatches(source, _memory.torch_module(), self._config["pin_device"])
            self._batches = source
        return source

    def _next_batch(self, epoch: int) -> DeliveredBatch | None:
        """Returns the next batch of an epoch, or None at its end."""
        batch = self._batch_source().next(epoch)
        self._epoch_is_open = batch is not None
        if batch is not None:
            self._last_epoch = batch.epoch
        return batch  # type: ignore[return-value]

    @property
    def normalizer(self) -> Normalizer:
        """The normalization of this loader as a Normalizer, to apply and invert it elsewhere.

        It is small, has a state_dict() for JSON, and needs no dataset. The Normalizer of a mixture
        has one part per source, by name or position: normalizer["name"].
        """
        return Normalizer.of(self._open().open().info["normalizers"])

    def contract(self) -> Contract:
        """Returns the contract of this loader's observations, for robocache.Live.

        Actions, rewards and other labels, bookkeeping columns and augmentation are not part of it.

        Returns:
            The Contract. Save it with the checkpoint.

        Raises:
            Misuse: The alignment is not causal, or the rate of the ticks is not known. The hint
                names the change.
            Unsupported: This is a mixture, or a robot cannot make a value.

        Example:
            loader = robocache.Loader("recording.mcap", hz=30, align="causal")
            loader.contract().save("policy.contract.json")
        """
        return Contract(self._open().call("robocache_loader_contract")["contract"])

    def stats(self) -> dict[str, Any]:
        """Returns the counters of the loader since its creation.

        Returns:
            A dict with, among others: samples per second; seconds of each stage, summed over
            threads; wait_data_seconds, the time that the training loop waited for the loader;
            wait_consumer_seconds, the time that the loader waited for the training loop; images
            requested and decoded; bytes read; wrapped and skipped samples; bad_episodes;
            not_delivered, the declared streams that cannot be delivered, with key, reason and
            source; memory by use; for a mixture, the samples of each source; with follow=, the episodes that
            have arrived and those that wait; pinned, whether
            batches are page-locked; finished_on, "cuda" if casts, normalization and interpolation
            run on the device, else "host"; not_on_device, why they cannot run on the device.

        Example:
            print(loader.stats()["wait_data_seconds"])
        """
        from ._notebook import CountersTable

        where = {
            "finished_on": "cuda" if self._raw else "host",
            **({"not_on_device": self._host_reason} if self._host_reason else {}),
        }
        return CountersTable(
            {**self._open().call("robocache_loader_stats"), "pinned": self.pin_memory, **where}
        )

    def causality(self, time_budget: float | str = 30) -> Causality:
        """Reports which observations use samples that a robot does not have at the tick.

        Reads timestamps and arrival times of the loader's episodes, and no values. A window is
        judged by its newest row.

        Args:
            time_budget: Seconds, or text such as "2min", after which no further episode is read.
                Default 30; 0: no limit.

        Returns:
            A Causality. The streams of a mixture have a source.

        Raises:
            Misuse: time_budget is not a duration.

        Example:
            for s in loader.causality().streams:
                print(s.key, s.future_share, s.look_ahead_max_s)
        """
        budget = _checks.to_nanoseconds("time_budget", time_budget) / 1e9
        if budget < 0:
            raise Misuse(f"time_budget={time_budget!r}: expected 0 or more seconds")
        return Causality(self._open().call("robocache_loader_causality", {"time_budget_s": budget}))

    def close(self) -> None:
        """Stops all work. Batches that were delivered stay valid."""
        self._drop_batch_source()
        if self._handle is not None:
            self._handle.close()
        else:
            # A closed handle, so that later calls raise instead of creating the engine's loader.
            self._handle = _engine.Handle(self._create_loader)
            self._handle.closed = True

    def _drop_batch_source(self) -> None:
        """Closes the object that receives batches. The next batch creates another one."""
        source = self._batches
        self._batches = None
        if isinstance(source, (DeviceBatches, PinnedBatches)) and source.pid == os.getpid():
            source.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<robocache.Loader of {self._uri!r}: batch {self.batch_size}, "
            f"rank {self.rank} of {self.world_size}>"
        )


def _fixed_options() -> dict[str, str]:
    """Returns the options that cannot be assigned, with the text that sets each in a new Loader."""
    names = {name: f"{name}=…" for name in inspect.signature(Loader.__init__).parameters}
    for keyword, group in options.GROUPS.items():
        for field in dataclasses.fields(group):
            names.setdefault(
                options.engine_name(keyword, field.name), options.spelled(keyword, field.name)
            )
    return {k: v for k, v in names.items() if k not in ("self", "batch_size", "order")}


_FIXED = _fixed_options()
