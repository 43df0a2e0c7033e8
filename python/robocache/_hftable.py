"""Tables in the form that users of lerobot know.

With the package datasets (Hugging Face), a table is a datasets.Dataset over Arrow. Without it, a
table is a view with the same methods for reading.
"""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _engine, _memory, _checks
from ._errors import Misuse, ResourceLimit

if TYPE_CHECKING:
    from .dataset import Dataset

LANGUAGE_KEYS = ("language_persistent", "language_events")
_CHUNK_ROWS = 1 << 16  # Rows in one chunk of a table.
_CHUNK_VALUES = 1 << 27  # Values in one chunk: the offsets of an Arrow list are int32.
IMAGE_BUDGET = 4 << 30  # Default bytes of stored images that a table may hold.


def import_datasets() -> Any:
    """Returns the package datasets, or None if it is not installed."""
    try:
        import datasets
    except ImportError:
        return None
    return datasets


class TableView(Sequence[Any]):
    """A table in memory, used if the package datasets is not installed.

    view[i] is a dict, view[a:b] a dict of lists, and view["length"] a column.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], types: Mapping[str, Any]) -> None:
        self._columns = dict(columns)
        self.features = dict(types)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, str):
            return list(self._columns[_checks.check_key(i, self._columns, "column")])
        if isinstance(i, slice):
            return {k: list(v[i]) for k, v in self._columns.items()}
        if isinstance(i, Iterable) and getattr(i, "ndim", None) != 0:
            return self.select(i)[:]
        return {k: v[operator.index(i)] for k, v in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def select(self, indices: Iterable[int]) -> TableView:
        """Returns the rows at the positions in indices."""
        positions = list(indices)
        columns = {k: [v[i] for i in positions] for k, v in self._columns.items()}
        return TableView(columns, self.features)

    def select_columns(self, column_names: str | Sequence[str]) -> TableView:
        """Returns a view with these columns only."""
        names = [
            _checks.check_key(k, self._columns, "column")
            for k in ([column_names] if isinstance(column_names, str) else column_names)
        ]
        return TableView({k: self._columns[k] for k in names}, {k: self.features[k] for k in names})

    def filter(
        self,
        function: Callable[..., bool],
        *,
        input_columns: str | Sequence[str] | None = None,
        **_: Any,
    ) -> TableView:
        """Returns the rows for which function returns True.

        Args:
            function: Called with the row as a dict, or with the input columns as positional
                arguments.
            input_columns: The columns to pass in place of the row. Default None.

        Other keywords of datasets.Dataset.filter have no effect.
        """
        if input_columns is None:
            return self.select(i for i, row in enumerate(self) if function(row))
        names = [input_columns] if isinstance(input_columns, str) else list(input_columns)
        return self.select(
            i
            for i, row in enumerate(self)
            if function(*(row[_checks.check_key(n, row, "column")] for n in names))
        )

    def unique(self, column: str) -> list[Any]:
        """Returns the different values of a column, in the order of their first row."""
        return list(dict.fromkeys(v.item() if hasattr(v, "item") else v for v in self[column]))

    def to_dict(self) -> dict[str, list[Any]]:
        """Returns the table as a dict of lists."""
        return self[:]

    def to_pandas(self) -> Any:
        """Returns the table as a pandas.DataFrame."""
        import pandas as pd

        return pd.DataFrame(self._columns)

    def __repr__(self) -> str:
        return f"<{len(self)} rows: {', '.join(self._columns)}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"a table's {name} needs the package datasets, which is not installed; "
            "there are [i], ['column'], slices, select, select_columns, filter, unique"
        )


def _arrow_type(pa: Any, name: str) -> Any:
    """Returns the Arrow type that the engine names, or None if it follows from the values."""
    if name.startswith("list<"):
        return pa.list_(_arrow_type(pa, name[5:-1]))
    return getattr(pa, "bool_" if name == "bool" else name)() if name else None


def episode_table(columns: Iterable[Mapping[str, Any]]) -> Any:
    """Returns the table of episodes, from the engine's columns {name, type, values}."""
    import json

    typed = {c["name"]: c["type"] for c in columns}
    data = {c["name"]: json.loads(c["values"]) for c in columns}
    for k, v in data.items():
        if typed[k].startswith("float"):
            # The JSON may contain whole numbers without a decimal point, which Python reads as int.
            data[k] = [None if x is None else float(x) for x in v]
    datasets = import_datasets()
    if datasets is None:
        return TableView(data, typed)
    import pyarrow as pa

    return _wrap_table(
        datasets,
        pa.table({k: pa.array(v, _arrow_type(pa, typed[k])) for k, v in data.items()}),
        None,
    )


def _wrap_table(datasets: Any, table: Any, features: Any) -> Any:
    """Returns an Arrow table as a datasets.Dataset."""
    # Without a fingerprint, the package datasets hashes the whole table.
    fingerprint = datasets.fingerprint.generate_random_fingerprint()
    info = None if features is None else datasets.DatasetInfo(features=features)
    return datasets.Dataset(datasets.table.InMemoryTable(table), info=info, fingerprint=fingerprint)


def _column_type(datasets: Any, key: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """Returns the datasets type that lerobot uses for a column."""
    if key in LANGUAGE_KEYS:
        text = datasets.Value("string")
        time = {"timestamp": datasets.Value("float32")} if key == LANGUAGE_KEYS[0] else {}
        calls = datasets.List(datasets.Json() if hasattr(datasets, "Json") else text)
        return datasets.List(
            {
                "role": text,
                "content": text,
                "style": text,
                **time,
                "camera": text,
                "tool_calls": calls,
            }
        )
    if shape in ((), (1,)):
        return datasets.Value(dtype)
    if len(shape) == 1:
        return datasets.Sequence(datasets.Value(dtype), length=shape[0])
    array = getattr(datasets, f"Array{len(shape)}D", None)
    if array is None:
        raise Misuse(
            f"a column {key!r} of {len(shape)} dimensions has no type in datasets",
            {"column": key},
            "read it by the items",
        )
    return array(shape=shape, dtype=dtype)


def _arrow_column(datasets: Any, key: str, feature: Any, v: Any) -> Any:
    """Returns some rows of a column as an Arrow array over the engine's memory.

    Only text and booleans are copied, because Arrow packs booleans into bits.
    """
    import pyarrow as pa

    if not isinstance(v, np.ndarray):
        return (
            datasets.Dataset.from_dict({key: v}, features=datasets.Features({key: feature}))
            .data.column(key)
            .combine_chunks()
        )
    kind = datasets.features.features.get_nested_type(feature)
    flat = v.reshape(-1)
    out = (
        pa.array(flat)
        if flat.dtype == bool
        else pa.Array.from_buffers(
            pa.from_numpy_dtype(flat.dtype), flat.size, [None, pa.py_buffer(flat)]
        )
    )
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(out, kind.list_size)
    if isinstance(kind, pa.ExtensionType):
        for n in reversed(feature.shape):
            out = pa.ListArray.from_arrays(
                pa.array(np.arange(0, len(out) + 1, n, dtype=np.int32)), out
            )
        return pa.ExtensionArray.from_storage(kind, out)
    return out


def _read_chunks(
    dataset: Dataset, config: dict[str, Any], step: int, torch: Any
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a dataset in chunks of `step` rows."""
    handle = _engine.Handle(
        lambda: dataset._create_object("robocache_map_new", "map", config)
    ).open()
    try:
        n = handle.info["len"]
        for start in range(0, n, step):
            indices = list(range(start, min(start + step, n)))
            answer = handle.call("robocache_map_items", {"indices": indices})
            yield _memory.batch_values(answer, torch, True)
    finally:
        handle.close()


def _rows_as_view(
    dataset: Dataset, features: Mapping[str, Any], config: dict[str, Any], step: int
) -> TableView:
    """Returns the rows as a TableView of tensors, in the form of datasets' torch transform."""
    torch = _memory.torch_module()
    pieces = list(_read_chunks(dataset, {**config, "compat": "lerobot"}, step, torch))
    joined: dict[str, Any] = {}
    for k in config["keys"]:
        parts = [p[k] for p in pieces] or [[]]
        if isinstance(parts[0], list):
            joined[k] = list(itertools.chain(*parts))
        else:
            joined[k] = np.concatenate(parts) if torch is None else torch.cat(parts)
    return TableView(joined, {k: features[k] for k in config["keys"]})


def row_table(
    dataset: Dataset,
    features: Mapping[str, Mapping[str, Any]],
    episodes: list[int] | None,
    budget: int,
) -> Any:
    """Returns the rows of the columns in features.

    The result is a datasets.Dataset with lerobot's types and torch transform. Without that package,
    it is a TableView. If the stored images take more than budget bytes, they are left out, with a
    warning.

    Args:
        dataset: The dataset.
        features: The columns to read, by key.
        episodes: The indices of the episodes, or None for all.
        budget: The most bytes of stored images.
    """
    images = {k for k in features if dataset.features[k].kind == "image"}
    columns = [k for k in features if k not in images]
    config: dict[str, Any] = {
        "keys": columns,
        **({} if episodes is None else {"episodes": episodes}),
    }
    widest = max([int(np.prod(features[k]["shape"])) for k in columns], default=1)
    step = max(1, min(_CHUNK_ROWS, _CHUNK_VALUES // max(widest, 1)))
    datasets = import_datasets()
    if datasets is None:
        return _rows_as_view(dataset, features, config, step)
    import pyarrow as pa

    types = {
        k: datasets.Image()
        if k in images
        else _column_type(datasets, k, dataset.features[k].dtype, tuple(f["shape"]))
        for k, f in features.items()
    }
    pieces: dict[str, list[Any]] = {k: [] for k in features}
    for v in _read_chunks(dataset, config, step, None):
        for k in columns:
            pieces[k].append(_arrow_column(datasets, k, types[k], v[k]))
    used = 0  # The bytes of the stored images that were read.
    chosen = dataset.episode_indices if episodes is None else episodes
    positions = np.flatnonzero(np.isin(dataset.episode_indices, chosen)).tolist()
    for p in positions if images else ():
        for k in images:
            v = _memory.batch_values(
                dataset._handle.call(
                    "robocache_stream", {"position": p, "key": k, "encoded": True}
                ),
                None,
            )
            pieces[k].append(_arrow_images(types[k], v["values"], v["lengths"]))
            used += v["values"].nbytes
        if used > budget:
            warnings.warn(
                f"hf_dataset is without {', '.join(sorted(images))}: as stored they take more than "
                f"{budget} bytes; the dataset's items have them, "
                "and a larger memory_budget= brings them here",
                stacklevel=3,
            )
            types = {k: types[k] for k in columns}
            break
    schema = datasets.Features(types).arrow_schema
    table = pa.table(
        {k: pa.chunked_array(pieces[k], type=schema.field(k).type) for k in types}, schema=schema
    )
    out = _wrap_table(datasets, table, datasets.Features(types))
    out.set_transform(to_torch)
    return out


def _arrow_images(feature: Any, data: np.ndarray, lengths: np.ndarray) -> Any:
    """Returns encoded images in the form of datasets.Image, over the engine's memory."""
    import pyarrow as pa

    if data.size > np.iinfo(np.int32).max:
        raise ResourceLimit(
            f"the images of an episode take {data.size} bytes", hint="read them by the items"
        )
    missing = lengths < 0  # The length of a row without an image is negative.
    ends = np.concatenate([[0], np.cumsum(np.where(missing, 0, lengths))]).astype(np.int32)
    raw = pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
    return pa.StructArray.from_arrays(
        [raw, pa.nulls(len(lengths), pa.string())],
        fields=list(feature.pa_type),
        mask=pa.array(missing),
    )


def to_torch(items: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Converts columns of Python values to lists of tensors, as lerobot's transform does.

    Text and language columns stay unchanged.
    """
    torch = _memory.torch_module()
    for k, v in items.items():
        # The first value decides whether the column becomes tensors.
        if (
            torch is not None
            and k not in LANGUAGE_KEYS
            and v
            and v[0] is not None
            and not isinstance(v[0], dict)
        ):
            items[k] = [_value_tensor(torch, x) for x in v]
    return items


def _value_tensor(torch: Any, x: Any) -> Any:
    """Returns a number, list or PIL image as a tensor. Text stays unchanged."""
    if isinstance(x, str):
        return x
    return _image_tensor(torch, x) if hasattr(x, "getbands") else torch.tensor(x)


def _image_tensor(torch: Any, image: Any) -> Any:
    """Returns a PIL image as a float32 tensor (C, H, W).

    8-bit images are scaled to [0, 1]; depth keeps its unit.
    """
    a = np.array(image)
    if a.dtype == np.uint16:
        a = a.astype(np.float32)
    t = torch.from_numpy(a if a.ndim == 3 else a[..., None]).permute(2, 0, 1).contiguous()
    return t.float().div(255) if a.dtype == np.uint8 else t
