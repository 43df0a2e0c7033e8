"""The display of objects in notebooks: tables, drawings, plots with matplotlib, and thumbnails.

Only thumbnails decode video.
"""

from __future__ import annotations

import html
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks
from ._errors import Misuse, Unsupported

LIMIT = 50_000  # The most bytes of HTML that an object shows.
_COLORS = ("#3b6ea5", "#d98b3a", "#5b9a5b", "#a8506b", "#7a6ab0", "#777777", "#2a9d9d", "#b5a642")
_CHANNELS, _POINTS, _ROWS = 8, 120, 100


def html_page(head: str, parts: Callable[[], Iterable[str]]) -> str:
    """Returns the HTML of an object.

    Parts that do not fit are left out. An error replaces the remaining parts, so that a notebook
    shows something for every object.
    """
    out = f"<div><strong>{_escape_text(head, 300)}</strong>"
    try:
        for p in parts():
            if len((out + p).encode()) > LIMIT - 200:
                out += "<div>… more than is shown here</div>"
                break
            out += p
    except Exception as e:
        out += f"<div>{_escape_text(f'{type(e).__name__}: {e}', 500)}</div>"
    return out + "</div>"


def _escape_text(v: Any, most: int = 80) -> str:
    """Returns v as escaped HTML text, cut after `most` characters."""
    s = str(v).encode("utf-8", "replace").decode()
    return html.escape(s if len(s) <= most else s[: most - 1] + "…")


def html_table(head: list[str], rows: Iterable[Iterable[Any]], most: int = _ROWS) -> str:
    """Returns an HTML table without empty columns, with at most `most` rows."""
    rows = [list(r) for r in rows]
    # Columns with a value.
    used = [i for i in range(len(head)) if any(str(r[i]) for r in rows)]

    def table_row(tag: str, cells: list[Any]) -> str:
        """Returns a row of the table without the empty columns."""
        return (
            "<tr>"
            + "".join(
                f'<{tag} style="text-align:left">{_escape_text(cells[i])}</{tag}>' for i in used
            )
            + "</tr>"
        )

    more = f"<div>… and {len(rows) - most} more</div>" if len(rows) > most else ""
    return (
        "<table>"
        + table_row("th", head)
        + "".join(table_row("td", r) for r in rows[:most])
        + "</table>"
        + more
    )


def features_table(fs: Mapping[str, Any]) -> str:
    """Returns an HTML table of streams, without the bookkeeping columns (Feature.default)."""
    shown = (
        [
            f.key,
            f.kind,
            f.dtype,
            list(f.shape),
            f"{f.height}×{f.width}" if f.height else "",
            f.codec,
            "" if f.fps is None else f"{f.fps:g} Hz",
            f.unit,
        ]
        for f in fs.values()
        if not f.default
    )
    return html_table(["key", "kind", "dtype", "shape", "size", "codec", "rate", "unit"], shown)


def _svg_drawing(width: int, height: int, inside: str, label: str) -> str:
    """Returns an SVG drawing."""
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{_escape_text(label)}" xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def length_histogram(lengths: np.ndarray) -> str:
    """Returns a histogram of the lengths of episodes."""
    if not len(lengths):
        return ""
    counts, edges = np.histogram(lengths, bins=min(40, max(1, len(np.unique(lengths)))))
    top = max(1, counts.max())
    bars = "".join(
        f'<rect x="{i * 8}" y="{60 - 60 * c / top:.1f}" width="7" '
        f'height="{60 * c / top:.1f}" fill="{_COLORS[0]}"/>'
        for i, c in enumerate(counts)
    )
    label = f"lengths of episodes: {int(edges[0])} to {int(edges[-1])} rows"
    return f"<div>{label}<br>{_svg_drawing(8 * len(counts), 60, bars, label)}</div>"


def stream_plot(values: np.ndarray, label: str) -> str:
    """Draws the first channels of a stream over its rows.

    Each part of the rows is drawn as its lowest and highest value.
    """
    v = np.asarray(values, np.float64).reshape(len(values), -1)[:, :_CHANNELS]
    finite = v[np.isfinite(v)]
    if not len(v) or not len(finite):
        return ""
    low = float(finite.min())
    high = float(finite.max())
    scale = 60 / (high - low) if high > low and math.isfinite(high - low) else 0.0
    # The rows are divided into parts of equal length, each 4 pixels wide.
    cuts = np.linspace(0, len(v), min(len(v), _POINTS) + 1).astype(int)
    drawn = ""
    for c in range(v.shape[1]):
        points = []
        for i, (a, b) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
            part = v[a:b, c]
            part = part[np.isfinite(part)]
            if len(part):
                points += [
                    f"{4 * i},{62 - scale * (x - low):.0f}"
                    for x in ([part[0]] if part.min() == part.max() else [part.min(), part.max()])
                ]
        drawn += (
            f'<polyline points="{" ".join(points)}" fill="none" '
            f'stroke="{_COLORS[c % len(_COLORS)]}"/>'
        )
    return f"<div>{_escape_text(label)}<br>{_svg_drawing(4 * _POINTS, 64, drawn, label)}</div>"


def dataset_html(ds: Any) -> str:
    """Returns the HTML of a Dataset."""

    def parts() -> Iterable[str]:
        rate = "" if ds.fps is None else f", {ds.fps:g} Hz"
        robot = f", robot {ds.robot_type}" if ds.robot_type else ""
        size = f"{ds.num_episodes} episodes, {ds.num_frames} rows{rate}{robot}"
        yield f"<div>{_escape_text(f'{ds.format} {ds.version}, {size}', 200)}</div>"
        yield features_table(ds.features)
        if ds.tasks:
            yield html_table(["task", "text"], ([i, t] for i, t in ds.tasks.items()), 20)
        if ds.splits:
            yield html_table(["split", "episodes"], ds.splits.items(), 20)
        yield length_histogram(ds.episodes["lengths"])

    return html_page(ds.uri, parts)


def episode_html(ep: Any) -> str:
    """Returns the HTML of an Episode."""

    def parts() -> Iterable[str]:
        yield f"<div>{ep.length} rows; {_escape_text(' | '.join(ep.tasks), 300)}</div>"
        yield features_table(ep.dataset.features)
        drawn = [s for s in ep.streams.values() if _is_plottable(s)][:2]
        for s in drawn:
            yield stream_plot(s.values, s.key)

    return html_page(f"episode {ep.index} of {ep.dataset.uri}", parts)


def stream_html(s: Any) -> str:
    """Returns the HTML of a Stream."""

    def parts() -> Iterable[str]:
        yield features_table({s.key: s.feature})
        rate = s.rate_hz
        yield f"<div>{len(s)} rows{'' if math.isnan(rate) else f', {rate:.4g} Hz'}</div>"
        if _is_plottable(s):
            yield stream_plot(s.values, s.key)

    return html_page(f"stream {s.key} of episode {s.episode.index}", parts)


class CountersTable(dict[str, Any]):
    """A dict of counters that notebooks show as a table."""

    def _repr_html_(self) -> str:
        def flatten(d: Mapping[str, Any], name: str = "") -> Iterable[tuple[str, Any]]:
            """Yields (path with dots, value) of each value of nested dicts."""
            for k, v in d.items():
                if isinstance(v, Mapping):
                    yield from flatten(v, f"{name}{k}.")
                else:
                    yield f"{name}{k}", f"{v:.6g}" if isinstance(v, float) else v

        return html_page("Loader.stats()", lambda: [html_table(["", ""], flatten(self), 200)])


def _is_plottable(s: Any) -> bool:
    """Reports whether a stream can be plotted: numbers of fixed shape, not bookkeeping."""
    return s.kind == "numeric" and not s.feature.ragged and not s.feature.default


def _import_pyplot() -> Any:
    """Returns matplotlib.pyplot. Raises Unsupported if matplotlib is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise Unsupported(
            "plots need matplotlib, which is not installed",
            hint="pip install matplotlib; `robocache plot` draws without it",
        ) from e
    return plt


def _plotted_streams(ep: Any, keys: Iterable[str] | None) -> list[Any]:
    """Returns the streams of numbers with these keys; None: all that can be plotted."""
    if keys is None:
        return [s for s in ep.streams.values() if _is_plottable(s)]
    known = ep.dataset.features
    streams = [
        ep.streams[_checks.check_key(k, known, "key")]
        for k in ([keys] if isinstance(keys, str) else keys)
    ]
    for s in streams:
        if s.kind != "numeric" or s.feature.ragged:
            raise Misuse(
                f"stream {s.key!r} is {s.kind}: numbers are plotted",
                {"stream": s.key},
                "thumbnails() shows images",
            )
    return streams


def _column_names(feature: Any, width: int) -> Sequence[Any]:
    """Returns the name of each column of a stream, or its number if names are missing."""
    names = feature.names
    while isinstance(names, (list, tuple, dict)) and len(names) == 1:
        # Names in a dict or list of one entry: {"motors": [...]} or [[...]].
        names = next(iter(names.values() if isinstance(names, dict) else names))
    if isinstance(names, (list, tuple)) and len(names) == width:
        return names
    return range(width)


def _plain_label(text: str) -> str:
    """Returns text for matplotlib, which reads $ as the start of a formula."""
    return text.replace("$", r"\$")


def plot_episode(ep: Any, keys: Iterable[str] | None, ax: Any) -> Any:
    """Plots streams of numbers over their timestamps; see Episode.plot."""
    shown = _plotted_streams(ep, keys)
    if not shown:
        raise Unsupported("the episode has no stream of numbers to plot", {"episode": ep.index})
    plt = _import_pyplot()
    if ax is not None:
        figure = ax.figure
        axes = [ax] * len(shown)
    else:
        figure, grid = plt.subplots(
            len(shown),
            1,
            sharex=True,
            squeeze=False,
            figsize=(10, 1 + 2 * len(shown)),
            layout="constrained",
        )
        axes = list(grid[:, 0])
        figure.suptitle(_plain_label(f"episode {ep.index}: {' | '.join(ep.tasks)}"))
    start_ns = min(int(s.times[0]) for s in shown if len(s.times))
    for s, axis in zip(shown, axes, strict=True):
        seconds = (s.times - start_ns) / 1e9
        columns = np.asarray(s.values, np.float64).reshape(len(s.times), -1)
        width = columns.shape[1]
        for column, name in enumerate(_column_names(s.feature, width)):
            label = f"{s.key} {name}" if ax is not None else str(name)
            axis.plot(seconds, columns[:, column], label=_plain_label(label), linewidth=1)
        if ax is None:
            unit = f" ({s.feature.unit})" if s.feature.unit else ""
            axis.set_title(_plain_label(s.key) + unit, fontsize="medium")
        axis.legend(
            fontsize="xx-small", loc="center left", bbox_to_anchor=(1, 0.5), ncols=1 + width // 16
        )
    axes[-1].set_xlabel("s")
    return figure if ax is None else ax


def plot_dataset(ds: Any, ax: Any) -> Any:
    """Plots the lengths of the episodes; see Dataset.plot."""
    plt = _import_pyplot()
    figure = None
    if ax is None:
        figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
    lengths = ds.episodes["lengths"]
    ax.hist(lengths, bins=min(50, max(1, len(np.unique(lengths)))))
    ax.set_xlabel("rows of an episode")
    ax.set_ylabel("episodes")
    return ax if figure is None else figure


class NotebookImages(np.ndarray):
    """Images (H, W, 3) or (N, H, W, 3), uint8, that notebooks show next to each other."""

    def _repr_png_(self) -> bytes | None:
        """Returns an RGB image as PNG, several of them side by side; None for other arrays."""
        image = np.asarray(self)
        if (
            image.dtype != np.uint8
            or image.ndim not in (3, 4)
            or image.shape[-1] != 3
            or not image.size
        ):
            return None
        if image.ndim == 4:
            image = np.concatenate(list(image), axis=1)

        def chunk(kind: bytes, data: bytes) -> bytes:
            """Returns a chunk of a PNG file: length, kind, data and checksum."""
            return (
                struct.pack(">I", len(data))
                + kind
                + data
                + struct.pack(">I", zlib.crc32(kind + data))
            )

        # Each row begins with the number of its filter: 0, none.
        rows = np.concatenate(
            [np.zeros((image.shape[0], 1), np.uint8), image.reshape(image.shape[0], -1)], axis=1
        )
        # Width, height, 8 bits per channel, type 2 (RGB), defaults.
        head = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 2, 0, 0, 0)
        return (
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6))
            + chunk(b"IEND", b"")
        )


def episode_thumbnails(ep: Any, n: int, key: str | None, height: int) -> NotebookImages:
    """Returns images of an episode; see Episode.thumbnails."""
    cameras = [
        k for k, feature in ep.dataset.features.items() if feature.kind in ("video", "image")
    ]
    if not cameras:
        raise Unsupported("the dataset has no camera", {"dataset": ep.dataset.uri})
    stream = ep.streams[cameras[0] if key is None else _checks.check_key(key, cameras, "camera")]
    rows = len(stream)
    n = _checks.check_whole("n", n)
    height = _checks.check_whole("height", height)
    if not rows:
        raise Unsupported("the episode has no images", {"episode": ep.index, "stream": stream.key})
    shown_rows = (
        [rows // 2]
        if n == 1
        else np.linspace(0, rows - 1, min(n, rows)).round().astype(int).tolist()
    )
    feature = stream.feature
    size = (
        (height, max(1, round(height * feature.width / feature.height)))
        if feature.height and feature.width
        else None
    )
    images = stream.frames(shown_rows, image_size=size)
    is_depth = images.shape[1] == 1
    if is_depth:  # Near pixels are bright, and pixels without a measurement are black.
        depth = images.astype(np.float64)
        depth = np.where(np.isfinite(depth) & (depth > 0), depth, np.nan)
        near, far = (np.nanmin(depth), np.nanmax(depth)) if np.isfinite(depth).any() else (0.0, 1.0)
        grey = np.nan_to_num(255 - 215 * (depth - near) / max(far - near, 1e-9), nan=0.0)
        images = np.repeat(grey.astype(np.uint8), 3, axis=1)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)).view(NotebookImages)
