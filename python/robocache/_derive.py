"""Derived streams: a function of the arrays of an episode, called once per episode at opening."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import tempfile
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import Error, Misuse
from .dataset import Dataset
from .episode import Episode

__all__ = ["EpisodeArrays", "derived_dataset"]

_RESERVED = ("task", "episode_id", "index", "episode_index", "frame_index", "dataset_index")


class EpisodeArrays(Mapping[str, np.ndarray]):
    """The numeric streams of an episode by key, as stored: arrays (N, ...). Read when used.

    Attributes:
        episode: The episode.
    """

    def __init__(self, dataset: Dataset, position: int) -> None:
        self.episode: Episode = dataset[position]
        self._keys = [
            k for k, f in dataset.features.items() if f.kind == "numeric" and not f.ragged
        ]
        self.used: dict[str, np.ndarray] = {}

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._keys:
            raise KeyError(key)
        if key not in self.used:
            values = np.array(self.episode.streams[key].values)
            values.flags.writeable = False  # The functions of an episode share the arrays.
            self.used[key] = values
        return self.used[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def derived_dataset(
    dataset: Dataset,
    derive: Any,
    *,
    episodes: Any = None,
    split: str | None = None,
    folder: Any = None,
    skip_bad: bool = False,
    budget: int = 0,
) -> Dataset:
    """Returns the dataset with derived streams.

    Args:
        dataset: The open dataset.
        derive: {key: function of EpisodeArrays}.
        episodes: Indices of the episodes to derive; None: those of the split.
        split: The split; None: the split for training if there is one.
        folder: A directory that keeps values by their content; None: temporary files.
        skip_bad: Whether to leave out episodes that cannot be read.
        budget: The bytes of values that the engine holds in memory; 0: its default.
    """
    if not isinstance(derive, Mapping):
        raise Misuse(f"derive={derive!r}: expected a dict of functions by key")
    for key, fn in derive.items():
        known = dataset.features.get(key)
        if not isinstance(key, str) or not key or key in _RESERVED or (known and known.default):
            raise Misuse(f"derive: {key!r} is no key for a derived stream", {"stream": str(key)})
        if not callable(fn):
            raise Misuse(f"derive[{key!r}]={fn!r}: expected a function of a dict of arrays")
    if not derive:
        return dataset
    if "derived" in dataset._args:
        raise Misuse(
            "derive= of a dataset with derived streams", hint="give all functions in one derive="
        )
    positions = _chosen_positions(dataset, episodes, split)
    streams = _Derivation(dataset, derive, positions, folder, skip_bad).streams()
    change: dict[str, Any] = {"derived": streams}
    if budget:
        change["derive_budget"] = int(budget)
    out = dataset._reopen(change)
    if folder is None:
        files = [Path(s["file"]) for s in streams]
        out._derived_files = weakref.finalize(out, _remove_files, files, os.getpid())
    return out


def _remove_files(files: list[Path], pid: int) -> None:
    """Removes temporary files, in the process that made them."""
    if os.getpid() == pid:
        for f in files:
            f.unlink(missing_ok=True)


def _chosen_positions(dataset: Dataset, episodes: Any, split: str | None) -> np.ndarray:
    """Returns the positions of the episodes that a loader reads, ascending."""
    everything = np.arange(len(dataset))
    if episodes is not None:
        chosen = np.array(list(episodes), np.int64)
    elif split == "all" or "split" in dataset._args or "episodes" in dataset._args:
        return everything
    else:
        names = [split] if split else [n for n in ("train", "training") if n in dataset.splits]
        if not names:
            return everything
        chosen = dataset.split(names[0]).episode_indices
    # An unknown episode is reported by the engine.
    return everything[np.isin(dataset.episode_indices, chosen)]


class _Derivation:
    """The computation of all derived streams of a dataset.

    With a folder, values are kept as <function hash>-<content hash>.bin. A .json file of the same
    name, the record, has the hash of the rows that the function read.

    Attributes:
        positions: The positions of the episodes to derive, without those that could not be read.
        lengths: The number of rows of every episode of the dataset.
    """

    def __init__(
        self,
        dataset: Dataset,
        derive: Mapping[str, Callable[[EpisodeArrays], Any]],
        positions: np.ndarray,
        folder: Any,
        skip_bad: bool,
    ) -> None:
        self.dataset = dataset
        self.derive = derive
        self.positions = positions
        self.folder = None if folder is None else Path(folder)
        self.skip_bad = skip_bad
        self.lengths = dataset.episodes["lengths"]

    def streams(self) -> list[dict[str, Any]]:
        """Returns the engine's description of all streams."""
        out = []
        for key, fn in self.derive.items():
            name = None if self.folder is None else _function_hash(fn)
            out.append(self._cached(key, name) or self._compute(key, fn, name))
        return out

    def _arrays(self, position: int) -> EpisodeArrays:
        """Returns the arrays of the episode at a position."""
        return EpisodeArrays(self.dataset, position)

    def _input_hash(self, name: str, keys: list[str]) -> str:
        """Returns the hash of a function and of all rows of the streams that it reads."""
        h = hashlib.sha256(name.encode())
        for position in self.positions.tolist():
            arrays = self._arrays(position)
            _hash_arrays(h, position, {k: arrays[k] for k in keys})
        return h.hexdigest()

    def _cached(self, key: str, name: str | None) -> dict[str, Any] | None:
        """Returns a stream that was derived before from the same rows, or None.

        Args:
            key: The key of the stream.
            name: The hash of the function; None: it has none, so nothing is reused.
        """
        if name is None or self.folder is None:
            return None
        for record in sorted((self.folder / "derived").glob(f"{name[:24]}-*.json")):
            try:
                stream = json.loads(record.read_text())
                if not set(stream["inputs"]) <= set(self._arrays(0)):
                    continue
                if self._input_hash(name, stream["inputs"]) != stream["input_hash"]:
                    continue
                file = record.with_suffix(".bin")
                if hashlib.sha256(file.read_bytes()).hexdigest() != stream["content"]:
                    continue
                os.utime(file)  # `cache prune` removes the least recently used streams first.
            except (OSError, ValueError, KeyError, Error):
                continue
            return self._stream(key, stream["dtype"], stream["shape"], file, stream["hash"])
        return None

    def _stream(self, key: str, dtype: str, shape: list[int], file: Path, sha: str) -> dict:
        """Returns the engine's description of a derived stream. No positions: all episodes."""
        stream = {"key": key, "dtype": dtype, "shape": shape, "file": str(file), "hash": sha}
        positions = self.positions.tolist()
        return stream if len(positions) == len(self.lengths) else stream | {"positions": positions}

    def _compute(self, key: str, fn: Any, name: str | None) -> dict[str, Any]:
        """Calls the function for each episode, and writes its values to a file.

        Args:
            key: The key of the stream.
            fn: The function of EpisodeArrays.
            name: The hash of the function; None: the values cannot be reused.

        Returns:
            The engine's description of the stream.
        """
        folder = None  # The directory that keeps the file; None: the file is temporary.
        if self.folder is not None and name is not None:
            folder = self.folder / "derived"
            folder.mkdir(parents=True, exist_ok=True)
        fd, path = tempfile.mkstemp(prefix="robocache-derive-", suffix=".bin", dir=folder)
        content, inputs = hashlib.sha256(), hashlib.sha256((name or "").encode())
        first: np.ndarray | None = None  # The values of the first episode.
        used: set[str] | None = None  # The keys that the function read from the last episode.
        good = []  # The positions of the episodes that were read.
        try:
            with os.fdopen(fd, "wb") as file:
                for position in self.positions.tolist():
                    arrays = self._arrays(position)
                    try:
                        values = self._values(key, fn, arrays, position, first)
                    except Error as e:
                        if not self.skip_bad or isinstance(e, Misuse):
                            raise
                        continue  # The engine reports the episode when it reads the stream.
                    first = values if first is None else first
                    good.append(position)
                    file.write(memoryview(values).cast("B") if values.size else b"")
                    content.update(values.tobytes())
                    if used is not None and used != set(arrays.used):
                        # The function reads other streams in this episode than in the last. A
                        # record hashes the same streams of every episode, so it cannot describe
                        # this function, and none is written.
                        name = None
                    used = set(arrays.used)
                    _hash_arrays(inputs, position, {k: arrays.used[k] for k in sorted(used)})
            if first is None:
                raise Misuse(f"derive[{key!r}]: no episode to derive", {"stream": key})
            self.positions = np.array(good)
            layout = f"{key} {first.dtype.str} {first.shape[1:]} {self._row_counts()}"
            sha = hashlib.sha256((layout + content.hexdigest()).encode()).hexdigest()[:24]
            shape = [int(n) for n in first.shape[1:]] or [1]
            stream = self._stream(key, first.dtype.name, shape, Path(path), sha)
            if folder is not None:
                kept = self._keep(folder, path, name, stream, sorted(used or ()), inputs, content)
                stream["file"] = str(kept)
            return stream
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise

    def _row_counts(self) -> str:
        """Returns the episodes and their lengths as text, for hashes."""
        return str([(p, int(self.lengths[p])) for p in self.positions.tolist()])

    def _keep(
        self,
        folder: Path,
        path: str,
        name: str | None,
        stream: Mapping[str, Any],
        used: list[str],
        inputs: Any,
        content: Any,
    ) -> Path:
        """Names the file by its content, and writes the record that _cached reads.

        Args:
            folder: The directory of both files.
            path: The temporary file with the values.
            name: The hash of the function; None: there is no record.
            stream: The engine's description of the stream.
            used: The keys that the function read.
            inputs: The hash of the function and the rows that it read.
            content: The hash of the values.

        Returns:
            The new path of the file.
        """
        stem = (name or "values")[:24] + "-" + stream["hash"]
        file = folder / f"{stem}.bin"
        os.replace(path, file)
        if name is not None:
            record = {k: stream[k] for k in ("dtype", "shape", "hash")}
            record |= {"inputs": used, "input_hash": inputs.hexdigest()}
            record["content"] = content.hexdigest()
            part = folder / f"{stem}.{os.getpid()}.part"
            part.write_text(json.dumps(record))
            os.replace(part, folder / f"{stem}.json")
        return file

    def _values(
        self, key: str, fn: Any, arrays: EpisodeArrays, position: int, first: np.ndarray | None
    ) -> np.ndarray:
        """Returns the checked values of one episode, contiguous and little-endian.

        Args:
            key: The key of the stream.
            fn: The function.
            arrays: The arrays of the episode.
            position: The position of the episode.
            first: The values of the first episode, whose dtype and shape all must have, or None.
        """
        episode = int(self.dataset.episode_indices[position])
        where = {"dataset": self.dataset.uri, "episode": episode, "stream": key}
        try:
            got = np.asarray(fn(arrays))
        except Error as e:
            raise e.within(where) from None
        except Exception as e:
            raise Misuse(
                f"derive[{key!r}] failed in episode {episode}: {type(e).__name__}: {e}", where
            ) from e
        rows = int(self.lengths[position])
        if got.ndim < 1 or len(got) != rows:
            raise Misuse(
                f"derive[{key!r}] in episode {episode}: expected {rows} rows, "
                f"found shape {got.shape}",
                where,
                "Return one row for each row of the episode: repeat the last one where a value "
                "needs the next row. Order(drop_n_last_frames=…) leaves rows out.",
            )
        if got.dtype.kind not in "biuf" or got.dtype.itemsize > 8 or 0 in got.shape[1:]:
            raise Misuse(
                f"derive[{key!r}] in episode {episode}: expected numbers, "
                f"found {got.dtype} of shape {got.shape}",
                where,
            )
        if got.dtype.kind == "f" and not np.isfinite(got).all():
            row = int(np.argwhere(~np.isfinite(got))[0][0])
            raise Misuse(
                f"derive[{key!r}] in episode {episode}: row {row} has NaN or infinity", where
            )
        if first is not None and (got.dtype, got.shape[1:]) != (first.dtype, first.shape[1:]):
            raise Misuse(
                f"derive[{key!r}] in episode {episode}: {got.dtype} rows of {got.shape[1:]}, and "
                f"{first.dtype} rows of {first.shape[1:]} in the first episode",
                where,
            )
        return np.ascontiguousarray(got, got.dtype.newbyteorder("<"))


def _hash_arrays(h: Any, position: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Adds arrays of an episode to a hash, in the order of their keys."""
    for key in sorted(arrays):
        a = arrays[key]
        h.update(f"{position} {key} {a.dtype.str} {a.shape} ".encode())
        h.update(np.ascontiguousarray(a).tobytes())


def _function_hash(fn: Any) -> str | None:
    """Returns a hash of a function and of everything that it refers to.

    Returns None if the hash cannot include everything, such as an object or a module of the user.
    Then the values are computed at each opening.
    """
    h = hashlib.sha256(f"derive 1 {sys.version_info[:2]} {np.__version__}".encode())
    try:
        _hash_object(h, fn, set())
    except (TypeError, pickle.PicklingError):
        return None
    return h.hexdigest()


def _hash_object(h: Any, v: Any, seen: set[int]) -> None:
    """Adds a function, a module or plain data to a hash. Raises TypeError for other objects."""
    if isinstance(v, types.FunctionType):
        if id(v) in seen:
            return
        seen.add(id(v))
        _hash_object(h, v.__code__, seen)
        cells = [c.cell_contents for c in v.__closure__ or ()]
        _hash_object(h, [v.__defaults__, v.__kwdefaults__, cells], seen)
        for name in sorted(_global_names(v.__code__) & v.__globals__.keys()):
            h.update(f"global {name} ".encode())
            _hash_object(h, v.__globals__[name], seen)
    elif isinstance(v, types.CodeType):
        h.update(f"code {v.co_names} {v.co_varnames} {v.co_freevars} ".encode() + v.co_code)
        _hash_object(h, v.co_consts, seen)
    elif isinstance(v, types.ModuleType):
        root = v.__name__.partition(".")[0]
        if root not in sys.stdlib_module_names and root not in ("numpy", "scipy"):
            raise TypeError(v.__name__)
        h.update(f"module {v.__name__} {getattr(v, '__version__', '')} ".encode())
    elif isinstance(v, (types.BuiltinFunctionType, np.ufunc)):
        h.update(f"builtin {v!r} ".encode() if v.__name__ else b"")
    elif isinstance(v, (list, tuple)):
        h.update(f"{type(v).__name__} {len(v)} ".encode())
        for x in v:
            _hash_object(h, x, seen)
    elif isinstance(v, Mapping) and type(v) is dict:
        _hash_object(h, list(v.items()), seen)
    elif v is None or isinstance(v, (bool, int, float, complex, str, bytes, np.generic)):
        h.update(f"{type(v).__name__} {v!r} ".encode())
    elif type(v) is np.ndarray and v.dtype.kind in "biufcSU":
        h.update(f"array {v.dtype.str} {v.shape} ".encode() + v.tobytes())
    elif type(v) is frozenset:
        h.update(f"frozenset {sorted(map(repr, v))} ".encode())
    else:
        raise TypeError(type(v).__name__)


def _global_names(code: types.CodeType) -> set[str]:
    """Returns the names that a code object and those inside it may look up."""
    names = set(code.co_names)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            names |= _global_names(c)
    return names
