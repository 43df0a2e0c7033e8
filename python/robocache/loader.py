"""Loader: batches made by the engine, ready as tensors."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _config, _engine, _keywords, _memory, _options, _scales
from ._batches import Batches, Taken
from ._device import Device, PageLocked
from ._errors import Error, ForkError, Misuse, NotIndexed, Unsupported
from ._finish import Finisher
from ._order import Located, Ordered
from ._place import Place
from ._samples import Samples
from ._feature import Features
from .dataset import Dataset, opened
from .mapdataset import MapDataset, delivered
from .mix import Mix
from .normalizer import Normalizer, again

if TYPE_CHECKING:
    _Base = object
else:
    try:  # to be what DataLoader and torchdata's StatefulDataLoader iterate over
        from torch.utils.data import IterableDataset as _Base
    except ImportError:
        _Base = object

__all__ = ["Loader", "Located"]


class _NoDataset(Misuse, AttributeError):
    """Also an AttributeError: Lightning and others ask hasattr(loader, "dataset")."""


class _FixedOption(Misuse, AttributeError):
    """What assigning to a read-only attribute raises."""


def _numbered(position: int, source: Any) -> Mix:
    """Returns a source of a mixture as a Mix that is open. An error names its position in the mixture."""
    try:
        mix = source if isinstance(source, Mix) else Mix(source)
        mix.dataset  # raises the error of a path that could not be opened
    except Error as e:
        raise e.within({"source": position} if not isinstance(source, Mix) or source.name is None else {"source": position, "name": source.name}) from None
    return mix


class Loader(Ordered, _Base):
    """Batches of one dataset or a mixture, made in parallel by the engine: no worker processes, no Python per sample.

    source: a path or URI, a Dataset, or a MapDataset (its selection and windows are taken; keywords here override them); or a list of
        robocache.Mix (paths, URIs and Datasets too): a mixture.
    batch_size: samples a batch, on each rank.
    format, map, options, rows_hz, follow_links: how a path is opened, as robocache.open takes them.

    What is in a batch
    delta_timestamps, delta_indices, windows, keys, episodes, split, hz, anchor, align, tolerance_s: as MapDataset. Point clouds, other rows of varying length and
        windows of a span are not padded: all entries one after the other, and `<key>_lengths`; of a span also `<key>_times`, int64 ns after the
        sample. Images and clouds of a span lie in as many positions as the fullest one needs, with `<key>_is_pad`. image_dtype: "uint8" (default) or "float32";
        image_size: (height, width), by a bilinear filter with antialiasing (docs/batches.md has its formula
        and its nearest equivalents); image_resize, depth_unit: as MapDataset; images are NCHW, grey ones three equal planes.
    normalize: None; a mode: "mean_std", "min_max", "quantiles" (q01 to q99) or "quantile10"; or {key: mode or {mode, clip, mean, std, low, high}}.
        Or the normalizer of another loader, or that loader: validation takes the numbers of training, valid = Loader(..., normalize=train).
        One mode is for every float stream of numbers; integers, booleans, bookkeeping columns (index, timestamp …), images, point clouds and text stay
        as they are: name their keys where they are to be normalised (images with image_dtype="float32"; integers never). What is meant is normalised,
        or the call is Misuse. `normalizer` does and undoes it elsewhere.
    stats: what normalize takes. By default the dataset's own statistics; those that it lacks are computed at opening, with a log line (logger
        "robocache"), where that reads at most 256 MiB of values out of at most 4 GiB of files at hand (videos not counted), else Misuse. "compute": all are
        computed at opening, however long it takes (progress in the log). Computed ones are of recorded values (also with hz= and align=), of the selected
        episodes alone, so that nothing leaks from those held out; they are kept for the process, and in cache= where it is a directory.
        Or Dataset.compute_stats(), a dict of that shape, or a stats.json ('robocache stats URI --out FILE'; a file named so: "./compute").
    dtype: "float32" (default): float64 streams come as float32, with torch and without, so that a model of float32 takes them; or "keep": as stored.
        Other types stay as they are (align={"dtypes": …} casts one stream), and so do float64 timestamps of formats other than LeRobot, whose steps
        would be 128 s in float32.
    augment: {"random_crop": {"size": (height, width), "pad": pixels, "keep": [depth keys]}, "color_jitter": {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue":
        0.05}, "hflip": {"p": 0.5, "negate": {key: [elements]}, "swap": {key: [(i, j)]}, "keep": [keys]}, "noise": {"std": 0.02, or {key: std}},
        "cameras": [keys]}, any of them. A function of (seed, epoch, the sample's number in its dataset, camera): not of batches, threads, ranks, caches or
        the device. After image_size, before image_dtype and normalize; the noise of numbers comes after it, in their delivered unit. A flip
        mirrors all cameras of a sample, and is refused until negate, swap or keep say of every other key what it does. Formulas: docs/kernels.md.
    on_bad_episode: "error", at once where opening could not read a file; or "skip": counted and listed in stats()["bad_episodes"] (episode: its index;
        -1: a file that could not be read, whose episodes have none).

    on_nan: a number of a stream that is NaN or infinite: "error" (default): its episode is bad, Malformed with episode, row and column, or skipped whole
        with on_bad_episode="skip"; "mask": its row is zeros, and `<key>_is_pad` True; "allow". Each stream of an episode is looked through once, at its
        first sample. Depth, point clouds and rows of varying length are exempt: there NaN means that nothing was measured.

    In what order
    shuffle: "global" (an exact permutation of all samples), "pool" (whole episodes are decoded once and drawn from while they are
        resident; for long GOPs and remote stores), or False (file order). The order is a function of the data, the options of the order,
        seed and epoch alone: not of threads, budgets, caches or ranks. order(epoch) gives it.
    pool_size: bytes of resident images that the order is made for (default half of memory_budget). pool_episodes: resident episodes,
        at most. pool_shards: pools that the epoch is cut into, so that each stays on one rank (default from the number of episodes).
    rank, world_size: default from torch.distributed or the environment, when the Loader is first used (len, iter, state_dict): it may be made before the
        process group. A change after that is Misuse. All ranks give equally many batches.
    drop_n_first_frames, drop_n_last_frames: rows of each episode that start no sample (lerobot's EpisodeAwareSampler); windows reach them all the same.
    drop_last: leave out the last step if it is not full.
    uneven: what the last step is if the samples do not divide by batch_size × world_size. With one rank the last batch is short. With several ranks:
        "wrap" (default): it is filled up with the first samples of the epoch, so that all ranks give equally many full batches. These samples come twice
            in the epoch: averages over all batches, as in evaluation, count them twice. stats()["wrapped"] counts those of this rank.
        "short": each sample comes once. The samples that are left are shared out evenly: the last batches are smaller, and a rank may have one batch less.
        21 samples in batches of 4 on 2 ranks: 3 batches of 4 on each rank, the last one of rank 1 with sample 20 and samples 0, 1 and 2 again; with
        "short" the last batches have 2 and 3 samples; with drop_last=True there are 2 batches, and 5 samples are left out.

    Of a mixture
    temperature: shares are weight^(1/temperature), normalised; without weights the sizes stand for them.
    epoch_size: samples of an epoch; stop: "first" or "all", an epoch ends when the first source, or every one, was given whole; default:
        the sum of the sizes. stratified: each global batch holds its exact shares.
    missing: keys that a source of a mixture or an episode lacks: "error" (default), or "pad": zeros, and `<key>_is_pad` true. "pad" also widens rows of numbers of different
        widths (actions of two robots) to the widest: each source's own numbers lead in their order, or stand where dims= of its Mix says; the rest is 0 after
        normalisation, and `<key>_dim_is_pad` (bool, (B, D)) is True there.

    How
    threads: default the cores. prefetch: batches planned and decoded together (small ones without images: 16 at least). io_threads: reads in flight, for remote stores.
    memory_budget: bytes, or "4GiB": for batches in flight, decoders, resident images and the RAM cache together.
    cache: "ram", "device" or a directory: decoded images stay for the next epoch; the directory also for other processes and runs. "device" is the GPU's
        memory, up to device_memory_budget, and wants device="cuda" and decode="gpu" or "auto". cache_budget: bytes
        (default: half of memory_budget in RAM, 64 GiB in a directory). cache_format: "yuv" (planes as decoded), "rgb" (as in the
        batch, at image_size), "encoded" (bytes of a remote store), or "auto".
    device: "cpu", "cuda", "cuda:1" …: batches arrive there, copied on a stream of their own, one batch ahead. pin_memory: page-locked
        batches on the host (default: where device is CUDA).
    decode: with device="cuda", on what video is decoded: "cpu", "gpu" (its engines take the streams whose frames come out there to the bit as on the CPU;
        the others stay there) or "auto" (both at once, where that is measured to be faster). Frames are the same; stats()["decoding"] says what went where, and why. What it
        decodes stays there, with cache="device" or none. device_memory_budget: bytes of its memory for resident images of shuffle="pool" (default:
        pool_size; what has no room there stays on the host) and cache="device" (no default; what has no room is decoded again).
    deadline_s: a batch of which nothing comes for so long is an error that says what is missing (default 300; 0: never).

    metrics: serve Prometheus metrics and /healthz while the loader is open: ":9400" (of this machine alone), "0.0.0.0:9400", ":0" (a free port; see
        metrics_address). A rank each takes a port of its own. They are what stats() tells, read when they are asked for.

    A batch is a dict: one contiguous tensor a key (NumPy array without torch), text as a list of str. It is yours: nothing writes to it
    again. Each `for` gives one epoch and goes on to the next; a `for` that was left early is followed by the next epoch. state_dict() and
    load_state_dict() go on exactly, also at another batch size, world size or number of threads, and also inside torchdata's
    StatefulDataLoader(loader, batch_size=None, num_workers=0).
    """

    @_keywords.checked
    def __init__(
        self, source: Any, batch_size: int = 64, shuffle: str | bool = "global", seed: int = 0, drop_last: bool = False, rank: int | None = None,
        world_size: int | None = None, threads: int | None = None, prefetch: int = 4, memory_budget: int | str = "4GiB", cache: Any = None, device: Any = "cpu",
        pin_memory: bool | None = None, normalize: Any = None, image_dtype: str | None = None, image_size: Sequence[int] | None = None,
        on_bad_episode: str = "error", *, delta_timestamps: Mapping[str, Sequence[float | str]] | None = None, keys: Iterable[str] | None = None,
        episodes: Iterable[int] | None = None, split: str | None = None, delta_indices: Mapping[str, Sequence[int]] | None = None, hz: Any = None,
        align: Mapping[str, Any] | None = None, tolerance_s: float | str | None = None, deadline_s: float | None = None, pool_size: int | str | None = None,
        pool_episodes: int | None = None, pool_shards: int | None = None, uneven: str | None = None, cache_budget: int | str | None = None,
        cache_format: str | None = None, io_threads: int | None = None, temperature: float | None = None, stop: str | None = None,
        epoch_size: int | None = None, stratified: bool | None = None, missing: str | None = None, format: str | None = None, rows_hz: Any = None,
        map: Any = None, options: Mapping[str, Any] | None = None, follow_links: bool | None = None, windows: Mapping[str, Any] | None = None,
        anchor: str | None = None, stats: Any = None, depth_unit: str | None = None, image_resize: str | None = None, augment: Mapping[str, Any] | None = None,
        drop_n_first_frames: int | None = None, drop_n_last_frames: int | None = None, metrics: str | None = None,
        decode: str | None = None, device_memory_budget: int | str | None = None,
        dtype: str | None = None, on_nan: str | None = None,
    ) -> None:  # fmt: skip
        given = locals()
        self._handle: _engine.Handle | None = None
        inherited = self._sources(source, {"format": format, "rows_hz": rows_hz, "map": map, "options": options, "follow_links": follow_links})
        if self._mix is not None:
            given["normalize"] = self._share_normalizer(normalize)
        own = _config.sample(self._features, given)
        if self._mix is not None and "stats" in own:
            raise Misuse("stats= of a mixture", hint='give it to each robocache.Mix; stats="compute" may stand here')
        if "compute_stats" in own:
            inherited.pop("stats", None)
        self._config: dict[str, Any] = {**inherited, **own, **_config.loader(given, self._mix is not None)}
        _config.normalize_selected(self._config)
        self._place = Place(rank, world_size)
        self._config["rank"], self._config["world_size"] = self._place.now()
        self._place_batches(device, None if pin_memory is None else _options.flag("pin_memory", pin_memory))
        self._fresh()
        self._open().open()

    def _sources(self, source: Any, how: dict[str, Any]) -> dict[str, Any]:
        """Takes the datasets; gives the configuration that comes with them. how: a path is opened."""
        self._mix: list[Mix] | None = None
        self._sourced: list[dict[str, Any]] = []  # as the engine takes them
        inherited: dict[str, Any] = {}
        if isinstance(source, (list, tuple)):
            if not source:
                raise Misuse("a mixture of no datasets")
            self._mix = [_numbered(i, s) for i, s in enumerate(source)]
        elif isinstance(source, Mix):
            self._mix = [_numbered(0, source)]
        if self._mix is not None:
            if given := [k for k, v in how.items() if v is not None]:
                raise Misuse(f"{given[0]}= of a mixture", hint="give it to each robocache.Mix")
            self.datasets = [m.dataset for m in self._mix]
            weighted = sum(m.weight is not None for m in self._mix)
            if weighted not in (0, len(self._mix)):
                raise Misuse(f"{weighted} of {len(self._mix)} sources have a weight", hint="give every Mix a weight=, or none: then shares go by size")
            self._features = Features()
            for m in self._mix:
                self._features.update((k, f) for k, f in m.features.items() if k not in self._features)
            self._features.withheld = {k: why for m in self._mix for k, why in m.features.withheld.items() if k not in self._features}
            return inherited
        if isinstance(source, MapDataset):
            if getattr(source, "image_transforms", None) is not None:
                raise Unsupported("image_transforms are Python code, and a Loader runs none per sample", hint="apply them to the batch, on its device")
            inherited, source = dict(source._config), source.dataset
        self.datasets: list[Dataset] = [opened(source, **how)]
        self._features = self.datasets[0].features
        return inherited

    def _share_normalizer(self, v: Any) -> Any:
        """Passes each source of a mixture its part of another mixture's normalizer. Returns the part for all sources."""
        n = v if isinstance(v, (str, Mapping)) else getattr(v, "normalizer", v)
        if not isinstance(n, Normalizer) or not n.sources:
            return v
        mix = self._mix or []
        if len(n.sources) != len(mix):
            raise Misuse(f"normalize: the normalizer of {len(n.sources)} sources for a mixture of {len(mix)}", hint="give each Mix its own: normalize=normalizer[name]")
        for i, m in enumerate(mix):
            m._config.setdefault("normalize", _config.SAMPLE["normalize"]("normalize", n[m.name if m.name in n.sources else i], m.features))
            _config.normalize_selected(m._config)
        return None

    @property
    def dataset(self) -> Samples:
        """The dataset as this Loader reads it: len() counts the samples of an epoch, [i] is a sample without augmentation.

        Its other attributes are those of the Dataset, which is datasets[0]. A mixture has only `datasets`.
        """
        if self._mix is not None:
            raise _NoDataset("a mixture has several datasets", hint="see .datasets")
        if self._samples is None:
            self._samples = Samples(self.datasets[0], self._config, self._count_samples)
        return self._samples

    def _count_samples(self) -> int:
        return self.num_samples

    @property
    def rank(self) -> int:
        """The rank that this Loader serves. Fixed at the first use of the Loader (len, iter, state_dict), not before."""
        return self._place.now()[0]

    @property
    def world_size(self) -> int:
        """How many ranks share an epoch. Fixed at the first use of the Loader, as rank."""
        return self._place.now()[1]

    @property
    def batch_size(self) -> int:
        """Number of samples per batch on each rank. May be set between epochs; the order of samples is kept."""
        return self._config["batch_size"]

    @batch_size.setter
    def batch_size(self, n: int) -> None:
        n = _options.whole("batch_size", n)
        if self._midway:
            raise Misuse(f"batch_size={n} in the middle of an epoch", hint="set it after the `for` has ended, or after set_epoch()")
        if n != self.batch_size:
            self._remake(batch_size=n)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise _FixedOption(f"{name}= of a Loader that was made already", hint=f"make a new Loader with {name}={value!r}; batch_size alone can be set")
        super().__setattr__(name, value)

    def __getitem__(self, i: Any) -> Any:
        raise NotIndexed("a Loader gives batches one after the other, and has none by number", hint="next(iter(loader)) is a batch, loader.dataset[i] a sample, loader.keys the names")

    @property
    def _uri(self) -> Any:
        uris = [d.uri for d in self.datasets]
        return uris[0] if self._mix is None else uris

    @property
    def device(self) -> str:
        """Where batches arrive."""
        return self._device

    def _place_batches(self, device: Any, pin: bool | None) -> None:
        self._device: str = str(device)
        self._target: Any = None
        self._pin = pin
        self._kernels: dict[str, Any] = {}  # which finish raw batches
        self._on_host: str | None = None  # why batches for a device are finished on the host
        if self._config.get("decode", "cpu") != "cpu" and not self.device.startswith("cuda"):
            raise Misuse(f"decode={self._config['decode']!r} with device={self.device!r}", hint='device="cuda" has the engines that decode')
        if self.device == "cpu" and not pin:
            return
        torch = _memory.torch_module()
        what = f"device={self.device!r}" if pin is None else f"device={self.device!r}, pin_memory={pin}"
        if torch is None:
            raise Unsupported(f"{what}: torch is not installed", hint="pip install torch")
        try:
            d = torch.device(device)
        except (RuntimeError, TypeError) as e:
            raise Misuse(f"device={device!r}: {e}") from None
        if d.type not in ("cpu", "cuda"):
            raise Unsupported(f"{what}: batches go to CPU or CUDA", hint="move the batch yourself")
        if d.type == "cpu" and not pin:
            return
        if not torch.cuda.is_available():
            raise Unsupported(f"{what}: torch finds no CUDA device", hint='use device="cpu" and pin_memory=False')
        if d.index is not None and d.index >= torch.cuda.device_count():
            raise Unsupported(f"{what}: torch finds {torch.cuda.device_count()} CUDA devices")
        index = torch.cuda.current_device() if d.index is None else d.index
        if d.type == "cuda":
            self._config["decode_device"] = index
            self._target = torch.device("cuda", index)
            self._config["raw"] = True
            self._kernels = {"backend": "cuda", "device": index}
        if pin is not False:
            self._config["pin_memory"], self._config["pin_device"] = True, index

    @property
    def pin_memory(self) -> bool:
        """Whether the batches' memory on the host is page-locked."""
        return bool(self._config.get("pin_memory"))

    def _fresh(self) -> None:
        self._handle = None
        self._batches: Batches | Device | PageLocked | None = None  # made at the first batch
        self._midway = False  # some of the epoch was given, and not its end
        self._given = 0  # epoch of the batch that was given last
        self._iterated = False
        self._positioned = False  # set_epoch or load_state_dict was called
        self._turn = 0  # which `for` may take batches
        self._samples: Samples | None = None

    @property
    def _raw(self) -> bool:
        """Whether the engine leaves casts, normalisation and interpolation to the device."""
        return bool(self._config.get("raw"))

    def _finisher(self, handle: _engine.Handle) -> Finisher:
        return Finisher(handle, _memory.torch_module(), self._target, self._kernels)

    def _make(self) -> tuple[int, Any]:
        try:
            answer = self._make_one()
        except Unsupported as why:
            if self._raw and why.where.get("raw"):
                # Rows of varying length: the host finishes batches, and stats() says so.
                del self._config["raw"]
                self._on_host = str(why)
                return self._make()
            # Page-locked memory is what the user gets by default: where the driver does not give it, ordinary memory does.
            if self._pin is not None or not self._config.pop("pin_memory", False):
                raise
            del self._config["pin_device"]
            answer = self._make_one()
        if self._raw:
            e = _engine.engine()
            where = {"rows": self.batch_size, **self._kernels}
            try:
                probe = e.call("robocache_loader_finish", answer["loader"], where)[1]["op"]
            except Unsupported as why:
                # Our kernels do not run there: the host finishes batches, and stats() says so.
                e.call("robocache_close", answer["loader"])
                del self._config["raw"]
                self._on_host = str(why)
                answer = self._make_one()
            else:
                if probe:
                    e.call("robocache_close", probe)
        return answer["loader"], answer

    def _make_one(self) -> Any:
        if self._mix is None:
            answer = self.dataset._handle.call("robocache_loader_new", self._config)
            _options.note(answer)
            _scales.compare(self.datasets, [self._config], answer["normalizers"])
            self._config = again(self._config, answer["settled"][0])
            return answer
        self._sourced = self._sourced or [m._source() for m in self._mix]
        for m, s in zip(self._mix, self._sourced):
            s["dataset"] = m.dataset._handle.number
        answer = _engine.call("robocache_loader_new", {**self._config, "sources": self._sourced})
        _options.note(answer)
        _scales.compare(self.datasets, self._sourced, answer["normalizers"])
        self._sourced = [again(s, settled) for s, settled in zip(self._sourced, answer["settled"])]
        return answer

    def _open(self) -> _engine.Handle:
        h = self._handle
        if h is None:
            h = self._handle = _engine.Handle(self._make)
        elif h.foreign and not h.closed:
            if self._iterated:
                raise ForkError(
                    "this Loader was in use before the fork, and cannot go on in the child",
                    {"dataset": self._uri, "pid": os.getpid()},
                    "make a Loader in the child, or give a MapDataset to DataLoader workers",
                )
            self._fresh()
            self._place.settled = None  # the child may be another rank
            h = self._handle = _engine.Handle(self._make)
        return h

    def _use(self) -> _engine.Handle:
        """Opens the engine's loader for the rank and the world size of this process, which are fixed from now on."""
        h = self._open()
        if not h.closed:
            rank, world = self._place.settle()
            if (rank, world) != (self._config["rank"], self._config["world_size"]):
                self._remake(rank=rank, world_size=world)
        return self._open()

    def _remake(self, **change: Any) -> None:
        """Makes the engine's loader again with other options. It continues at the same position."""
        old = self._open()
        before = self._batches.before if isinstance(self._batches, Device) else 0
        state = old.call("robocache_loader_state", {"before": before} if before else None) if self._iterated or self._positioned else None
        iterated, positioned, turn = self._iterated, self._positioned, self._turn
        self.close()
        self._fresh()
        self._iterated, self._positioned, self._turn = iterated, positioned, turn + 1
        self._config.update(change)
        new = self._open().open()
        if state is not None:
            new.call("robocache_loader_restore", {"state": state, "force": False})

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_handle", "_batches", "_midway", "_given", "_iterated", "_positioned", "_turn", "_samples"):
            del state[name]
        state["_config"] = {k: v for k, v in self._config.items() if k != "metrics"}  # the address is this process's
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()

    @property
    def features(self) -> Features:
        """The streams of a batch by key, as the dataset describes them; unit is the one in which they come (before normalisation)."""
        keys = set(self.keys)
        all_features = delivered(self._features, self._open().open().info["fields"])
        out = Features((k, f) for k, f in all_features.items() if k in keys)
        out.withheld = all_features.withheld
        return out

    @property
    def keys(self) -> list[str]:
        """The keys of a batch, in its order."""
        return [f["key"] for f in self._open().open().info["fields"]]

    @property
    def metrics_address(self) -> str | None:
        """Where metrics= are served: host:port."""
        return self._open().open().info.get("metrics")

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return self._open().open().info["samples"]

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        return self._use().open().info["len"]

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        ahead = self._batches.waiting if isinstance(self._batches, Device) else None
        return self._open().call("robocache_loader_stats")["epoch"] if ahead is None else ahead

    def __iter__(self) -> Iterator[dict[str, Any]]:
        data = sys.modules.get("torch.utils.data")
        if data is not None and (worker := data.get_worker_info()) is not None and worker.num_workers > 1:
            raise Misuse(
                f"a Loader in {worker.num_workers} workers of a DataLoader: each would give every batch",
                hint="a Loader needs no workers: DataLoader(loader, batch_size=None, num_workers=0), or the Loader alone; or workers over a MapDataset",
            )
        caller = sys._getframe(1).f_locals.get("self")
        if getattr(caller, "auto_collation", False) and hasattr(caller, "collate_fn"):  # torch's fetcher, which would stack whole batches
            raise Misuse(
                "a DataLoader with a batch_size over a Loader: it would make batches of batches",
                hint=f"a Loader gives batches of {self.batch_size}: DataLoader(loader, batch_size=None), or the Loader alone, with its own batch_size=",
            )
        self._use()
        if self._midway:  # the last `for` was left early
            self.set_epoch(self._given + 1)
        self._turn += 1
        self._iterated = True
        return Epoch(self, self._turn)

    def _taker(self) -> Batches | Device | PageLocked:
        taker = self._batches
        if taker is None or taker.pid != os.getpid():
            handle = self._open().open()
            taker = Batches(handle, raw=self._raw)
            if self._target is not None:
                taker = Device(taker, _memory.torch_module(), self._target, self._finisher(handle) if self._raw else None)
            elif self.pin_memory:
                taker = PageLocked(taker, _memory.torch_module(), self._config["pin_device"])
            self._batches = taker
        return taker

    def _next(self, epoch: int) -> Taken | None:
        taken = self._taker().next(epoch)
        self._midway = taken is not None
        if taken is not None:
            self._given = taken.epoch
        return taken  # type: ignore[return-value]

    @property
    def normalizer(self) -> Normalizer:
        """What normalize= does, to be done and undone elsewhere: small, JSON-able by state_dict(), and it needs no dataset. Of a mixture it has one of
        each source, by name or position: normalizer["name"]."""
        return Normalizer.of(self._open().open().info["normalizers"])

    def stats(self) -> dict[str, Any]:
        """What was done so far: samples/s, seconds of each stage (summed over threads) and of waits, images wanted and decoded, bytes read,
        wrapped and skipped samples, bad episodes, not_delivered (streams that are declared and cannot be given: key, reason, source), memory by use; of a mixture, what each source gave; whether batches are page-locked; and
        finished_on: "cuda" where casts, normalisation and interpolation are done there ("host" beside not_on_device: why, where they cannot be).

        wait_data_seconds is what the loop waited for the loader; wait_consumer_seconds what the loader waited for the loop.
        """
        from ._notebook import Counts

        where = {"finished_on": "cuda" if self._raw else "host", **({"not_on_device": self._on_host} if self._on_host else {})}
        return Counts({**self._open().call("robocache_loader_stats"), "pinned": self.pin_memory, **where})

    def close(self) -> None:
        """Ends all work. Batches that were taken stay valid."""
        taker, self._batches = self._batches, None
        if isinstance(taker, (Device, PageLocked)) and taker.pid == os.getpid():
            taker.close()
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
        return f"<robocache.Loader of {self._uri!r}: batch {self.batch_size}, rank {self.rank} of {self.world_size}>"


# Options that an assignment would not change.
_FIXED = frozenset(inspect.signature(Loader.__init__).parameters) - {"self", "batch_size"}


class Epoch:
    """One pass of a `for`."""

    def __init__(self, loader: Loader, turn: int) -> None:
        self._loader = loader
        self._turn = turn
        self._done = False
        self._epoch = -1  # known with the first batch
        self._taking = threading.Lock()  # a thread that asked before that, and was late, would be given the next epoch's first

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._done:
            raise StopIteration
        if self._loader._turn != self._turn:
            raise Misuse("another `for`, set_epoch or load_state_dict has moved this Loader", hint="begin a new `for`")
        with self._taking:
            taken = None if self._done else self._loader._next(self._epoch)
            if taken is None:
                self._done = True
                raise StopIteration
            self._epoch = taken.epoch
        return taken.batch

    def __len__(self) -> int:
        return len(self._loader)
