"""Embeds frames with a model, and runs the jobs of `robocache embed` and `find --text`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _checks
from ._errors import Error, Misuse
from ._results import Result
from .dataset import as_dataset

__all__ = ["embed", "Embedded"]


class Embedded(Result):
    """The vectors that embed stored.

    Attributes:
        file: The table in Parquet, with the columns episode_index, row and vector.
        model: The name of the model.
        key: The camera.
        width: The numbers in a vector.
        count: The number of vectors.
        fingerprint: The fingerprint of the dataset.
    """

    file: str
    model: str
    key: str
    width: int
    count: int
    fingerprint: str


def _load_function(name: str) -> Callable[..., Any]:
    """Imports a function that is named module:function."""
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise Misuse(f"model {name!r}: expected module:function")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as e:
        raise Misuse(f"model {name}: {e}") from None
    finally:
        sys.path.remove(os.getcwd())


def _vectors_of(answer: Any, count: int, name: str) -> np.ndarray:
    """Returns the answer of a model as float32 (count, D)."""
    if hasattr(answer, "detach"):
        answer = answer.detach().float().cpu().numpy()
    out = np.ascontiguousarray(answer, dtype=np.float32)
    if out.ndim != 2 or len(out) != count or out.shape[1] == 0:
        raise Misuse(f"model {name}: expected vectors ({count}, D), found {out.shape}")
    return out


def embed(
    source: Any,
    model: str | Callable[..., Any],
    *,
    key: str | None = None,
    every: int = 1,
    batch_size: int = 64,
    device: Any = "cpu",
    **how: Any,
) -> Embedded:
    """Computes vectors of the frames of a camera, and stores them with the dataset.

    robocache.find(..., like=(episode, row)) compares them. They replace earlier vectors.

    Args:
        source: A path, a URI or a Dataset.
        model: A function, or "module:function". It takes images uint8 (N, 3, H, W), as a torch
            tensor on the device if torch is installed and else as a NumPy array. It returns N
            vectors (N, D).
        key: The camera. Default None: the only one.
        every: The number of rows from one frame to the next. Default 1: all frames.
        batch_size: The images in a call. Default 64.
        device: "cpu" or "cuda", as of Loader.
        how: Arguments of robocache.open, if source is a path or a URI.

    Returns:
        An Embedded.

    Raises:
        Misuse: The dataset has several cameras and key= is missing, or the model returns something
            other than finite vectors.

    Example:
        robocache.embed("data/pusht", lambda images: images.float().mean((2, 3)))
        robocache.find("data/pusht", like=(0, 10))
    """
    from .loader import Loader
    from .options import Order

    ds = as_dataset(source, how)
    cameras = [k for k, f in ds.features.items() if f.kind in ("image", "video")]
    if not cameras:
        raise Misuse("embed: the dataset has no camera")
    if key is None and len(cameras) != 1:
        raise Misuse(f"embed: key= names one of the cameras: {', '.join(cameras)}")
    key = cameras[0] if key is None else _checks.check_key(key, ds.features, "key")
    name = model if isinstance(model, str) else getattr(model, "__qualname__", repr(model))
    call = _load_function(model) if isinstance(model, str) else model
    every = _checks.check_whole("every", every, least=1)
    options: dict[str, Any] = {}
    if every > 1:
        lengths = zip(ds.episode_indices.tolist(), ds.episodes["lengths"].tolist(), strict=True)
        options["order"] = Order(
            segments={e: [(r, r + 1) for r in range(0, n, every)] for e, n in lengths}
        )
    with (
        Loader(
            ds,
            keys=[key],
            shuffle=False,
            batch_size=batch_size,
            device=device,
            rank=0,
            world_size=1,
            **options,
        ) as loader,
        tempfile.TemporaryDirectory() as folder,
    ):
        places = loader.locate(loader.order(0))
        np.stack([places.episode, places.row], -1).astype("<i8").tofile(Path(folder, "rows"))
        width = 0
        has_torch = importlib.util.find_spec("torch") is not None
        with open(Path(folder, "vectors"), "wb") as file:
            for batch in loader if has_torch else loader.as_numpy():
                images = batch[key]
                vectors = _vectors_of(call(images), len(images), name)
                if width not in (0, vectors.shape[1]):
                    raise Misuse(f"model {name}: vectors of {width} and {vectors.shape[1]} numbers")
                width = vectors.shape[1]
                file.write(vectors.astype("<f4").tobytes())
        info = {"model": name, "key": key, "width": width}
        return Embedded(ds._handle.call("robocache_embedded", {"folder": folder, "info": info}))


def _run_job(job: dict[str, Any]) -> Any:
    """Runs one job of the engine and returns its result.

    The job {"call": "text", "model", "text"} embeds a text for a search. Any other job has the
    arguments of embed, and those of robocache.open under "open". The engine sends every argument;
    an empty one means that it was not given.
    """
    if job.pop("call") == "text":
        vectors = _load_function(job["model"])([job["text"]])
        return _vectors_of(vectors, 1, job["model"])[0].tolist()
    open_options = {name: value for name, value in job.pop("open").items() if value}
    options = {name: value for name, value in job.items() if value != ""}
    return embed(**options, **open_options)


def main() -> int:
    """Runs the job on stdin and prints one line of JSON: {"result"} or {"error", "class", "hint"}."""
    answer_file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Models may print.
    try:
        answer = {"result": _run_job(json.load(sys.stdin))}
    except Error as e:
        answer = {"error": str(e), "class": type(e).__name__, "hint": e.hint}
    except Exception as e:
        answer = {"error": f"the model failed: {type(e).__name__}: {e}"}
    print(json.dumps(answer), file=answer_file, flush=True)
    return "error" in answer


if __name__ == "__main__":
    sys.exit(main())
