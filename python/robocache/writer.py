"""Writer records a LeRobot dataset while a robot runs."""

from __future__ import annotations

import ctypes
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _engine, _keywords, _checks
from ._errors import ForkError, Misuse, Unsupported, from_engine
from ._feature import Feature, Features

__all__ = ["Writer"]

_BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_CAMERAS = ("video", "image")
_KINDS = {"string": "text"}
# The defaults of lerobot's depth video. depth_min, depth_max and shift are in metres. With use_log,
# the codes are even steps of the logarithm of depth + shift.
_DEPTH_CODE = {"depth_min": 0.01, "depth_max": 10.0, "shift": 3.5, "use_log": True}


class Writer:
    """Records a LeRobot v3.0 dataset row by row, with the calls of lerobot's LeRobotDataset.create.

    When save_episode returns, the episode is on disk and part of the dataset, and any reader can
    open it. A process that is killed loses only the current episode. The next Writer of the folder
    continues after the last saved episode. close() computes the quantiles in meta/stats.json; all
    other statistics are exact after each episode.

    A Writer is used by one thread at a time, in the process that created it. len() is the number of
    rows of the current episode.

    Args:
        path: A local folder. If it has a LeRobot v3.0 dataset, episodes are added to it, and fps
            and features may be left out.
        fps: Rows per second. Row k of an episode is at k / fps seconds.
        features: {key: {"dtype", "shape", "names"?}} as in LeRobot's info.json, or
            Dataset.features. dtype is "video" (encoded), "image" (PNG, lossless), "string", "bool"
            or a NumPy name. Cameras have the shape (H, W, C). Depth has the shape (H, W, 1) and
            "info": {"is_depth_map": True, "depth_unit": "mm"} (uint16) or "m" (float32). "image"
            stores depth without loss, "video" in lerobot's 12-bit codes from "depth_min" to
            "depth_max". The Writer adds the bookkeeping columns (timestamp, frame_index and so on).
            "hz" declares a native rate for a stream of numbers: add() records its samples, and a
            row has the last sample at or before its time. All samples are stored in
            recordings/episode_N.mcap with their exact times; hz is the nominal rate.
        robot_type: The name of the robot in info.json. Default None.
        use_videos: False stores "video" cameras as images. Default True.
        video_codec: "av1" (default, as in lerobot), "h264" or "hevc".
        gop: The distance of key frames, in frames. Default None: as in lerobot.
        crf: The quality of the encoder. Default None: as in lerobot.
        preset: The speed of the encoder. Default None: as in lerobot.
        queue_bytes: The most bytes of images that wait for the encoders, or text such as "256MiB"
            (default). Each camera has its own encoder process.
        on_full: What add_frame does when the queue is full. "block" (default): waits. "raise":
            raises Temporary at once and does not add the row. "drop": does not add the row and
            returns False. stats() counts all three.
        allow_nan: True accepts NaN and infinity in all features, a list of keys in these. Default
            False: add_frame rejects them. Depth images are exempt.
        mode: "a" (default) adds to an existing dataset. "x" rejects a folder with a dataset.

    Raises:
        Misuse: The schema is invalid, the folder has a dataset with another schema, or another
            Writer records in the folder.
        Unsupported: This machine has no encoder for a camera.
        ResourceLimit: The disk is full.

    Example:
        features = {
            "observation.state": {"dtype": "float32", "shape": (6,)},
            "action": {"dtype": "float32", "shape": (6,)},
            "observation.images.front": {"dtype": "video", "shape": (480, 640, 3)},
        }
        with robocache.Writer("my_set", fps=30, features=features) as w:
            for frame in loop():  # {"observation.state": ..., "action": ..., ...}
                w.add_frame(frame, task="pick the cube")
            w.save_episode()
    """

    @_keywords.check_keywords
    def __init__(
        self,
        path: Any,
        fps: Any = None,
        features: Mapping[str, Any] | None = None,
        *,
        robot_type: str | None = None,
        use_videos: bool = True,
        video_codec: str | None = None,
        gop: int | None = None,
        crf: int | None = None,
        preset: str | int | None = None,
        queue_bytes: int | str = "256MiB",
        on_full: str = "block",
        allow_nan: bool | Sequence[str] = False,
        mode: str = "a",
    ) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        declared = [
            _declare_feature(key, f, use_videos)
            for key, f in (features or {}).items()
            if key not in _BOOKKEEPING
        ]
        streams = {
            k: _checks.check_positive(f"{k}: hz", f["hz"])
            for k, f in (features or {}).items()
            if isinstance(f, Mapping) and f.get("hz") is not None
        }
        args: dict[str, Any] = {
            "streams": streams,
            "path": self.path,
            "features": declared,
            "robot_type": robot_type or "",
            "queue_bytes": _checks.parse_bytes("queue_bytes", queue_bytes),
            "on_full": _checks.check_choice("on_full", on_full, ("block", "raise", "drop")),
            "allow_nan": _allowed_nan(allow_nan),
            "only_new": _checks.check_choice("mode", mode, ("a", "x")) == "x",
            "video_codec": ""
            if video_codec is None
            else _checks.check_choice("video_codec", video_codec, ("av1", "h264", "hevc")),
            "preset": "" if preset is None else str(preset),
            **{
                name: _checks.check_whole(name, v)
                for name, v in (("gop", gop), ("crf", crf))
                if v is not None
            },
        }
        if fps is not None:
            args["fps"] = _checks.check_rate("fps", fps)
        exists = os.path.exists(os.path.join(self.path, "meta", "info.json"))
        is_complete = fps is not None and bool(declared)
        if not exists and not is_complete:
            raise Misuse(
                f"there is no dataset in {self.path} yet",
                {"dataset": self.path},
                "give fps= and features= of the new one",
            )
        self._pid = os.getpid()
        self._handle = _engine.Handle(lambda: self._open(args)).open()
        info = self._handle.info
        self._engine, number = self._handle._resolve()
        self._add_row = self._engine.lib.robocache_writer_add
        self._number = number
        self._counters: dict[str, Any] = info["counted"]
        self.fps: Any = _checks.parse_rate(info["fps"])
        self.robot_type: str | None = info.get("robot_type") or None
        self.features: Features = Features((d["key"], Feature.of(d)) for d in info["features"])
        self.streams: dict[str, float] = dict(info.get("streams") or {})
        self._rows = [_FeatureConverter(f) for f in self.features.values()]
        self._native = {
            row.f.key: (row, row.f.key.encode()) for row in self._rows if row.f.key in self.streams
        }
        self._add_sample = self._engine.lib.robocache_writer_sample
        self._addresses = (ctypes.c_int64 * len(self._rows))()
        self._pending = 0
        self._warned = False

    def _open(self, args: dict[str, Any]) -> tuple[int, Any]:
        """Creates the engine's writer. Raises ForkError in another process."""
        if os.getpid() != self._pid:
            raise ForkError(
                "a Writer records in the process that made it",
                {"dataset": self.path},
                "make it in the process that calls add_frame",
            )
        answer = _engine.call_engine("robocache_writer_new", args)
        return answer["writer"], answer

    @property
    def num_episodes(self) -> int:
        """The number of saved episodes of the dataset, including those of earlier sessions."""
        return int(self._counters["episodes"])

    @property
    def num_frames(self) -> int:
        """The number of rows of the dataset."""
        return int(self._counters["frames"])

    def __len__(self) -> int:
        """Returns the number of rows of the current episode."""
        return self._pending

    def add(
        self, key: str, value: Any, time: float | None = None, *, time_ns: int | None = None
    ) -> None:
        """Adds a sample of a stream with a native rate to the current episode.

        Args:
            key: A feature that was declared with "hz".
            value: An array, tensor, list or scalar of the declared shape; it is copied.
            time: The time of the sample in seconds, at least 0, on the clock that add_frame uses
                too, such as time.monotonic(). The times of a stream must increase.
            time_ns: The same time in nanoseconds.

        Raises:
            Misuse: The stream has no native rate, the value does not fit or is NaN, or the time
                does not increase. The sample is not added.

        Example:
            w.add("joints", robot.joints(), time.monotonic())
        """
        if os.getpid() != self._pid:
            self._open({})
        if key not in self._native:
            known = list(self._native)
            raise Misuse(
                f"the stream {key!r} has no rate of its own",
                {"stream": key},
                _checks.nearest_names(key, known)
                if known
                else f'features={{{key!r}: {{..., "hz": 100}}}}',
            )
        row, name = self._native[key]
        a = row.convert(value)
        out = ctypes.c_void_p()
        if (
            self._add_sample(
                self._number, name, a.ctypes.data, _to_ns(time, time_ns), ctypes.byref(out)
            )
            != _engine.DONE
        ):
            raise from_engine(self._engine.answer(out) or {})

    def add_frame(
        self,
        frame: Mapping[str, Any],
        task: str | None = None,
        time: float | None = None,
        *,
        time_ns: int | None = None,
    ) -> bool:
        """Adds a row to the current episode.

        Args:
            frame: A value for each feature without a native rate; all values are copied. Numbers
                are arrays, tensors, lists or scalars of the declared shape. Floats may be rounded
                to the declared dtype; any other change of a value is rejected. Images are (H, W, C)
                or (C, H, W), uint8 or floats in [0, 1], as arrays, tensors or PIL images.
            task: The task of this row as text. Default None: frame["task"]. Rows of one episode may
                have different tasks.
            time: The time of the row in seconds, at least 0, on the clock of add(). Required if a
                stream has a native rate. In the dataset, row k is still at k / fps.
            time_ns: The same time in nanoseconds.

        Returns:
            True if the row was added, False if on_full="drop" dropped it.

        Raises:
            Misuse: A value does not fit its feature, or is NaN or infinite. The row is not added.
            Temporary: The queue is full, with on_full="raise". The row is not added.

        Example:
            w.add_frame({"observation.state": state, "action": action}, task="pick the cube")
        """
        if os.getpid() != self._pid:
            self._open({})
        values = dict(frame)
        frame_task = values.pop("task", None)
        task = frame_task if task is None else task
        if not isinstance(task, str):
            raise Misuse(
                "a frame without a task"
                if task is None
                else f"a task is text, not {type(task).__name__}",
                hint='add_frame(frame, task="pick the cube"), or frame["task"]',
            )
        if values.keys() != self.features.keys() - self.streams.keys():
            _raise_mismatch(values, self.features, self.streams)
        if (time is not None or time_ns is not None) and not self.streams:
            raise Misuse(
                "add_frame: time= is for a Writer with streams at rates of their own",
                hint="row k is at k / fps; declare a float64 feature to keep a measured time",
            )
        row_ns = _to_ns(time, time_ns) if self.streams else 0
        arrays, texts = self._convert_values(values)
        for i, a in enumerate(arrays):
            self._addresses[i] = 0 if a is None else a.ctypes.data
        request = json.dumps({"task": task, "time_ns": row_ns, "texts": texts}).encode()
        return self._send_row(request)

    def _convert_values(
        self, values: Mapping[str, Any]
    ) -> tuple[list[np.ndarray | None], dict[str, str]]:
        """Returns the array of each feature, and the texts by key.

        The array of a text, and of a stream with a native rate, is None.
        """
        arrays: list[np.ndarray | None] = []
        texts = {}
        for row in self._rows:
            key = row.f.key
            if key in self.streams:
                arrays.append(None)
            elif row.text:
                v = values[key]
                if not isinstance(v, str):
                    raise Misuse(f"{key}: expected text, got {type(v).__name__}", {"stream": key})
                texts[key] = v
                arrays.append(None)
            else:
                arrays.append(row.convert(values[key]))
        return arrays, texts

    def _send_row(self, request: bytes) -> bool:
        """Adds the row at self._addresses, waiting for the queue. Returns whether it was added."""
        out = ctypes.c_void_p()
        while True:
            status = self._add_row(
                self._number,
                request,
                self._addresses,
                len(self._rows),
                _engine.STEP_MS,
                ctypes.byref(out),
            )
            if status == _engine.DONE:
                break
            if status == _engine.END:
                self._warn_once(
                    "the encoders are slower than the loop: "
                    'rows are dropped (stats()["dropped"]), and later rows move up'
                )
                return False
            if status != _engine.PENDING:
                raise from_engine(self._engine.answer(out) or {})
            self._warn_once(
                "the encoders are slower than the loop: add_frame waits for them "
                '(queue_bytes is full; video_codec="h264" costs less)'
            )
        self._pending += 1
        return True

    def _warn_once(self, text: str) -> None:
        """Logs the first warning of this Writer."""
        if not self._warned:
            self._warned = True
            _engine._log.warning(text)

    def save_episode(self) -> None:
        """Ends the current episode and adds it to the dataset.

        Waits for the encoders, which are a few frames behind. On return, the episode is on disk and
        survives the end of this process. After an error, the dataset is unchanged and the episode
        is kept: call save_episode again, or discard_episode.

        Raises:
            Misuse: The episode has no rows.
            ResourceLimit: The disk is full.
        """
        self._call_writer("robocache_writer_save")
        self._pending = 0

    def discard_episode(self) -> None:
        """Drops the rows of the current episode, for example of a failed demonstration."""
        self._call_writer("robocache_writer_discard")
        self._pending = 0

    clear_episode_buffer = discard_episode

    def delete_last_episode(self) -> None:
        """Deletes the episode that was saved last, for example a failed demonstration.

        On return, the episode is removed from the dataset, even if the process is killed. Rows of
        the current episode are kept. Repeated calls delete further episodes, as long as they are in
        the files that this Writer is writing.

        Raises:
            Misuse: The dataset has no episodes, or the last episode is in a finished file or was
                saved by an earlier Writer. The hint names the command that deletes it.
        """
        self._call_writer("robocache_writer_delete")

    def stats(self) -> dict[str, Any]:
        """Returns the counters of the Writer.

        Returns:
            A dict: episodes, frames and tasks of the dataset; pending, the rows of the current
            episode; queue_bytes, the limit of the queue of images; queue_peak, the most bytes that
            waited; waits, wait_seconds and longest_wait_seconds, the rows that waited for space in
            the queue, with the total and the longest time; refused and dropped, the rows that
            on_full="raise" and "drop" did not add; codec_replaced, why cameras are H.264, if the
            default codec does not support their size.
        """
        return dict(self._call_writer("robocache_writer_stats"))

    def _call_writer(self, name: str) -> Any:
        """Calls a function of the engine's writer and stores the counters."""
        if os.getpid() != self._pid:
            self._open({})
        self._counters = self._handle.call(name)
        return self._counters

    def close(self) -> None:
        """Ends the recording and computes the final statistics. No unfinished files are left.

        Rows that were not saved are dropped, with a warning.
        """
        if self._handle.closed or os.getpid() != self._pid:
            return
        if self._pending:
            warnings.warn(
                f"{self._pending} rows of an episode that was not saved are dropped: "
                "save_episode() comes before close()",
                RuntimeWarning,
                stacklevel=2,
            )
        try:
            self._call_writer("robocache_writer_finish")
        finally:
            self._pending = 0
            self._handle.close()

    finalize = close

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._pending = 0  # The exception is enough information; no warning is needed.
        self.close()

    def __reduce__(self) -> Any:
        raise Misuse(
            "a Writer cannot be pickled", hint="make it in the process that calls add_frame"
        )

    def __repr__(self) -> str:
        state = "closed" if self._handle.closed else f"{self._pending} rows under way"
        return (
            f"<robocache.Writer {self.path!r}: {self.num_episodes} episodes, "
            f"{self.num_frames} frames, {state}>"
        )


class _FeatureConverter:
    """Converts the values of one feature to the bytes of a row."""

    def __init__(self, f: Feature) -> None:
        self.f = f
        self.text = f.kind == "text"
        self.camera = f.kind in _CAMERAS
        # Depth video in metres is stored as integer codes, but the caller's values are float32.
        in_metres = f.kind == "video" and (f.depth or {}).get("depth_unit") == "m"
        self.dtype = np.dtype(object if self.text else "float32" if in_metres else f.dtype)
        self.shape = (f.height, f.width, f.channels) if self.camera else f.shape or (1,)

    def convert(self, v: Any) -> np.ndarray:
        """Returns a value as a contiguous array in the declared dtype and shape."""
        if type(v) is not np.ndarray:
            v = v.detach().cpu().numpy() if hasattr(v, "detach") else np.asarray(v)
        if v.dtype == self.dtype and v.shape == self.shape:
            return np.ascontiguousarray(v)
        return self._convert_other(v)

    def _convert_other(self, value: np.ndarray) -> np.ndarray:
        """Converts an array to the declared dtype and shape.

        Raises Misuse if a value would change.
        """

        def mismatch(want: str, got: Any) -> Misuse:
            """Returns the error for a value that does not fit."""
            return Misuse(f"{self.f.key}: expected {want}, got {got}", {"stream": self.f.key})

        if self.camera:
            height, width, channels = self.shape
            if value.shape == (channels, height, width) != self.shape:  # Channels first.
                value = value.transpose(1, 2, 0)
            elif channels == 1 and value.shape == (height, width):
                value = value[:, :, None]
            if value.shape != self.shape:
                raise mismatch(f"an image of shape {self.shape}", value.shape)
            if value.dtype != self.dtype:
                if self.dtype != np.uint8 or value.dtype.kind != "f":
                    raise mismatch(f"an image of {self.dtype}", value.dtype)
                if not (value.min() >= 0 and value.max() <= 1):
                    raise mismatch(
                        "floats in [0, 1], or uint8",
                        f"values from {value.min():g} to {value.max():g}",
                    )
                value = np.rint(value * 255).astype(np.uint8)
            return np.ascontiguousarray(value)
        if value.shape != self.shape and not (value.shape == () and self.shape == (1,)):
            raise mismatch(f"shape {self.shape}", value.shape)
        # NumPy does not cast int64 to uint8, for example. It is accepted here if no value changes.
        from_integers = (
            value.dtype.kind in "iu"
            and self.dtype.kind in "iu"
            or value.dtype.kind == "i"
            and self.dtype.kind == "f"
        )
        if (
            value.dtype != self.dtype
            and not np.can_cast(value.dtype, self.dtype, "same_kind")
            and not from_integers
        ):
            raise mismatch(str(self.dtype), value.dtype)
        out = np.ascontiguousarray(value, self.dtype).reshape(self.shape)
        if value.dtype.kind in "iu" and not np.array_equal(out, value.reshape(self.shape)):
            raise mismatch(f"values that {self.dtype} holds", value)
        return out


def _allowed_nan(v: Any) -> list[str]:
    """Returns the keys that may have NaN; "*" means all."""
    if isinstance(v, (bool, np.bool_)):
        return ["*"] if v else []
    if isinstance(v, str) or not isinstance(v, Sequence) or not all(isinstance(k, str) for k in v):
        raise Misuse(
            f"allow_nan={v!r}: expected True, False or a list of keys",
            hint='allow_nan=["observation.force"]',
        )
    return list(v)


_MAX_SECONDS = 9.2e9  # Nanoseconds must fit int64, which ends at 9.22e18.
_SECONDS_PER_YEAR = 365.25 * 86400


def _to_ns(seconds: Any, ns: Any) -> int:
    """Returns a time on the caller's clock in nanoseconds."""
    if (seconds is None) == (ns is None):
        raise Misuse(
            "expected time= in seconds, or time_ns= in nanoseconds",
            hint="time.monotonic(), or time.monotonic_ns()",
        )
    if ns is not None:
        return _checks.check_integer("time_ns", ns)
    if abs(_checks.check_real("time", seconds)) > _MAX_SECONDS:
        raise Misuse(
            f"time={seconds!r} is {seconds / _SECONDS_PER_YEAR:.3g} years as seconds",
            hint=f"if it is in nanoseconds ({seconds / 1e9:.6g} s), pass time_ns=",
        )
    return round(seconds * 1e9)


def _raise_mismatch(
    given: Mapping[str, Any], features: Mapping[str, Any], streams: Mapping[str, float]
) -> None:
    """Raises Misuse for a frame with missing or undeclared keys."""
    missing = [k for k in features if k not in given and k not in streams]
    extra = [k for k in given if k not in features or k in streams]
    parts = [
        f"{what}: {', '.join(map(repr, keys))}"
        for what, keys in (("missing", missing), ("not declared", extra))
        if keys
    ]
    hint = ""
    if extra and extra[0] in streams:
        hint = f"it has a rate of its own: add({extra[0]!r}, value, time)"
    elif extra:
        hint = (
            "rows are at k / fps; declare a float64 feature of another name to keep a measured time"
            if extra[0] in _BOOKKEEPING
            else _checks.nearest_names(extra[0], features)
        )
    raise Misuse(
        f"the frame does not fit the features: {'; '.join(parts)}",
        {"missing": missing, "extra": extra},
        hint,
    )


# The types of numbers that are recorded.
_NUMBERS = (
    "bool",
    *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)


def _declare_feature(key: str, f: Any, use_videos: bool) -> dict[str, Any]:
    """Returns a feature in the engine's form, from LeRobot's dict or a Feature."""
    if isinstance(f, Feature):
        d = dict(f.raw)
        if f.kind == "video" and not use_videos:
            d["kind"] = "image"
        return d
    if not isinstance(f, Mapping) or "dtype" not in f:
        raise Misuse(
            f"feature {key!r}: expected a dict with dtype and shape, got {f!r}",
            {"stream": key},
            '{"dtype": "float32", "shape": (6,), "names": [...]}',
        )
    dtype = str(f["dtype"])
    info = f.get("info") or {}
    shape = [
        _checks.check_whole(f"{key}: shape", n)
        for n in np.atleast_1d(f.get("shape") or (1,)).tolist()
    ]
    if f.get("hz") is not None and dtype in (*_CAMERAS, "string"):
        raise Unsupported(
            f"feature {key!r}: only streams of numbers are recorded at a rate of their own",
            {"stream": key},
            "leave hz out: cameras and texts have a value in each row",
        )
    out: dict[str, Any] = {
        "key": key,
        "kind": _KINDS.get(dtype, "numeric"),
        "dtype": dtype,
        "shape": shape,
    }
    if f.get("names") is not None:
        out["names"] = f["names"]
    if dtype not in _CAMERAS:
        if dtype != "string" and dtype not in _NUMBERS:
            raise Unsupported(
                f"feature {key!r}: dtype {dtype!r} is not recorded",
                {"stream": key},
                'video, image, string, bool, or a NumPy name such as "float32"',
            )
        return out
    out["kind"] = "image" if dtype == "image" or not use_videos else "video"
    out.update(_image_layout(key, shape, f.get("names")))
    if info.get("is_depth_map") or info.get("video.is_depth_map"):
        out.update(_depth_fields(key, info, out["kind"]))
    return out


def _image_layout(key: str, shape: list[int], names: Any) -> dict[str, Any]:
    """Returns the fields of a camera's images. The channels are the first axis or the last one."""
    if len(shape) != 3:
        raise Misuse(
            f"camera {key!r}: expected a shape (H, W, C), got {tuple(shape)}", {"stream": key}
        )
    is_named_first = isinstance(names, (list, tuple)) and str(names[0]).startswith("channel")
    looks_first = shape[0] in (1, 3) and shape[2] not in (1, 3)
    if is_named_first or looks_first:
        axes = ["channels", "height", "width"]
    else:
        axes = ["height", "width", "channels"]
    layout: dict[str, Any] = {"dtype": "uint8", **dict(zip(axes, shape, strict=True))}
    if names is None:
        layout["names"] = axes
    return layout


def _depth_fields(key: str, info: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the fields of a depth camera. In a video, depth is coded as uint16."""
    unit = _checks.check_choice(f"{key}: depth_unit", info.get("depth_unit", "mm"), ("mm", "m"))
    if kind != "video":
        return {"dtype": "uint16" if unit == "mm" else "float32", "unit": unit}
    code = {
        name: info.get(f"video.{name}", info.get(name, default))
        for name, default in _DEPTH_CODE.items()
    }
    lowest = code["depth_min"] + code["shift"]
    highest = code["depth_max"] + code["shift"]
    if not 0 < lowest < highest:
        raise Misuse(
            f"camera {key!r}: depth_min {code['depth_min']}, "
            f"depth_max {code['depth_max']}, shift {code['shift']}",
            {"stream": key},
            "metres, the least first; depth_min + shift above 0",
        )
    return {"dtype": "uint16", "unit": unit, "depth": {**code, "depth_unit": unit}}
