"""Reads a LeRobot v3.0 folder without a robot library: positions of frames, and rows as arrays."""

import glob, json, os

import numpy as np


class Video:
    """An mp4 file that PyAV keeps open, decoded on one thread."""

    def __init__(self, name):
        import av

        self.container = av.open(name)
        self.stream = self.container.streams.video[0]
        self.stream.thread_count, self.stream.thread_type = 1, "NONE"
        self.period, self.start = (
            round(1 / (self.stream.time_base * self.stream.average_rate)),
            self.stream.start_time or 0,
        )

    def frames(self, first=0):
        """Yields (number, RGB), starting at frame first."""
        self.container.seek(self.start + first * self.period, stream=self.stream)
        for f in self.container.decode(self.stream):
            n = round((f.pts - self.start) / self.period)
            if n >= first:
                yield n, f.to_ndarray(format="rgb24")


class Set:
    def __init__(self, root, camera=None):
        import pyarrow.parquet as pq

        self.root = root
        with open(os.path.join(root, "meta", "info.json")) as f:
            self.info = json.load(f)
        self.fps = float(self.info["fps"])
        features = self.info["features"]
        self.cameras = [k for k, v in features.items() if v["dtype"] == "video"]
        self.camera = camera or (self.cameras[0] if self.cameras else None)
        self.numeric = [k for k in ("observation.state", "action") if k in features]
        rows = []
        for name in sorted(glob.glob(os.path.join(root, "meta", "episodes", "*", "*.parquet"))):
            t = pq.read_table(name)
            rows += t.select([c for c in t.column_names if not c.startswith("stats/")]).to_pylist()
        rows.sort(key=lambda r: r["episode_index"])
        self.lengths = [int(r["length"]) for r in rows]
        self.ends = np.cumsum(self.lengths)
        self.files = []  # mp4 files of the camera
        if self.camera:
            self._place(rows)

    def _place(self, rows):
        """Sets file[i] and number[i], the file of frame i and its number in that file.

        The frames of an episode follow those of the earlier episodes in the same file.
        """
        v, known, parts = f"videos/{self.camera}/", {}, []
        for e, r in enumerate(rows):
            name = self.info["video_path"].format(
                video_key=self.camera,
                chunk_index=r[v + "chunk_index"],
                file_index=r[v + "file_index"],
            )
            parts.append((known.setdefault(name, len(known)), r[v + "from_timestamp"], e))
        self.files = [os.path.join(self.root, n) for n in known]
        total = int(self.ends[-1])
        self.file, self.number = np.zeros(total, np.int32), np.zeros(total, np.int64)
        at = [0] * len(known)
        for f, _, e in sorted(parts):
            lo, n = int(self.ends[e]) - self.lengths[e], self.lengths[e]
            self.file[lo : lo + n] = f
            self.number[lo : lo + n] = np.arange(at[f], at[f] + n)
            at[f] += n

    def columns(self, names):
        """Returns columns over all rows, float32 [N, D], ordered by episode."""
        import pyarrow.parquet as pq

        tables = [
            pq.read_table(f, columns=[*names, "index"])
            for f in sorted(glob.glob(os.path.join(self.root, "data", "*", "*.parquet")))
        ]
        order = np.argsort(np.concatenate([t["index"].to_numpy() for t in tables]), kind="stable")
        return {
            k: np.concatenate([np.stack(t[k].to_numpy()) for t in tables])[order].astype(np.float32)
            for k in names
        }

    def episode(self, i):
        return int(np.searchsorted(self.ends, i, "right"))

    def window(self, i, n):
        """Returns rows i … i+n−1. Beyond the end of the episode, the last row is repeated."""
        return np.minimum(np.arange(i, i + max(n, 1)), self.ends[self.episode(i)] - 1)

    def numbered(self, batches):
        """Adds episodes: (sample numbers, batch) → (sample numbers, their episodes, batch)."""
        for index, batch in batches:
            yield index, np.searchsorted(self.ends, index, "right"), batch

    def row(self, index, i):
        """Returns the row of sample i of a batch in its episode."""
        e = self.episode(int(index[i]))
        return int(index[i]) - int(self.ends[e]) + self.lengths[e]
