"""Feature describes one stream of a dataset, Features all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._errors import Misuse, Unsupported
from ._checks import nearest_names, parse_rate

__all__ = ["Feature", "Features"]


class UnknownKey(Misuse, KeyError):
    """A mapping has no such key. The message names the nearest key."""


@dataclass(frozen=True)
class Feature:
    """One stream of a dataset's schema.

    f["dtype"] is f.dtype, as in the dicts of the formats.

    Attributes:
        key: The name of the stream.
        kind: "numeric", "image", "video", "pointcloud", "text" or "event".
        dtype: The type of one stored row, by NumPy's name.
        shape: The shape of one stored row. A first entry of -1 means a varying number of entries.
        names: The names of the channels, as the format stores them. Default None.
        height: The height of images in pixels; 0 for other streams.
        width: The width of images in pixels; 0 for other streams.
        channels: The number of channels of images; 0 for other streams.
        fps: The rate in Hz; None if it is not known.
        codec: The codec of video, such as "h264"; "" for other streams.
        depth: How depth is coded in video; None if the stream is not coded depth.
        default: Whether this is a bookkeeping column of the format, such as timestamp or index.
        clock: The clock of the stream. Streams of one clock have the same timestamps and rows. ""
            is the clock of the episode.
        interpolation: The align mode that fits the values; "" if the mode follows from kind and
            dtype.
        unit: The unit of the values, such as "mm"; "" if it is not known.
        masked: Whether some rows have no value.
        rotations: The groups of channels that form one rotation, such as {"at": 3, "form":
            "rotvec"}. The align mode "slerp" interpolates them as rotations.
        relative: The channels that hold changes (delta actions), which are summed at another rate.
            None if the dataset does not state them.
        raw: The description of the stream by the engine.
    """

    key: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    names: Any = None
    height: int = 0
    width: int = 0
    channels: int = 0
    fps: float | None = None
    codec: str = ""
    depth: Mapping[str, Any] | None = None
    default: bool = False
    clock: str = ""
    interpolation: str = ""
    unit: str = ""
    masked: bool = False
    rotations: tuple[Mapping[str, Any], ...] = ()
    relative: tuple[int, ...] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Any:
        """Returns the attribute with this name: f["dtype"] is f.dtype.

        Raises:
            Misuse: There is no such attribute. The error is also a KeyError.
        """
        if name not in self.__dataclass_fields__:
            raise UnknownKey(
                f"unknown attribute {name!r} of the feature {self.key!r}",
                {"stream": self.key},
                nearest_names(str(name), self.__dataclass_fields__),
            )
        return getattr(self, name)

    @property
    def ragged(self) -> bool:
        """Whether a row has a varying number of entries, so that shape begins with -1."""
        return len(self.shape) > 0 and self.shape[0] < 0

    @staticmethod
    def of(d: Mapping[str, Any]) -> Feature:
        """Returns the Feature for a description by the engine."""
        return Feature(
            d["key"],
            d["kind"],
            d["dtype"],
            tuple(d.get("shape") or ()),
            d.get("names"),
            d.get("height", 0),
            d.get("width", 0),
            d.get("channels", 0),
            parse_rate(d.get("fps")),
            d.get("codec", ""),
            d.get("depth"),
            d.get("default", False),
            d.get("clock", ""),
            d.get("interpolation", ""),
            d.get("unit", ""),
            d.get("masked", False),
            tuple(d.get("rotations") or ()),
            tuple(d["relative"]) if "relative" in d else None,
            dict(d),
        )


class Features(dict[str, Feature]):
    """The streams of a dataset by key: a dict that prints as a table.

    Attributes:
        withheld: {key: reason} for streams that the dataset declares and RoboCache cannot deliver.
    """

    withheld: Mapping[str, str] = {}  # noqa: RUF012  # set once, by the dataset

    def __missing__(self, key: str) -> Feature:
        if key in self.withheld:
            raise Unsupported(
                f"the stream {key!r} is declared and cannot be delivered: {self.withheld[key]}",
                {"stream": key},
            )
        raise UnknownKey(f"unknown stream {key!r}", {"stream": key}, nearest_names(str(key), self))

    def _repr_html_(self) -> str:
        from . import _notebook

        return _notebook.html_page(
            f"{len(self)} features", lambda: [_notebook.features_table(self)]
        )

    def __repr__(self) -> str:
        def cells(f: Feature) -> list[str]:
            """Returns the row of a stream in the table."""
            size = f"{f.height}×{f.width}" if f.height else ""
            inner = f.names
            while isinstance(inner, (list, tuple, dict)) and len(inner) == 1:
                # Names in a dict or list of one entry: {"motors": [...]} or [[...]].
                inner = next(iter(inner.values() if isinstance(inner, dict) else inner))
            names = ", ".join(map(str, inner)) if isinstance(inner, (list, tuple)) else ""
            shape = ", ".join(map(str, f.shape))
            return [
                f.key,
                f.kind,
                f.dtype,
                f"[{shape}]",
                size,
                f.codec,
                "" if f.fps is None else f"{f.fps:g} Hz",
                f.clock,
                f.unit,
                "bookkeeping" if f.default else names if len(names) <= 40 else names[:39] + "…",
            ]

        if not self:
            return "no features"
        rows = [
            ["key", "kind", "dtype", "shape", "size", "codec", "rate", "clock", "unit", "names"],
            *map(cells, self.values()),
        ]
        return text_table(rows)


def text_table(rows: list[list[str]]) -> str:
    """Returns rows as aligned columns. The first row is the header. Empty columns are left out."""
    columns = [c for c in zip(*rows, strict=True) if any(c[1:])]
    wide = [max(map(len, c)) for c in columns]
    return "\n".join(
        "  ".join(t.ljust(w) for t, w in zip(row, wide, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    )
