"""Reads a file in robomimic's layout with h5py, to check windows of samples."""

import h5py
import numpy as np


class Truth:
    """Compares the first window of some batches of the first epoch, which is not measured."""

    def __init__(self, path, window):
        # The same flags as robomimic: one process cannot open the file with two sets of flags.
        self.file = h5py.File(path, "r", swmr=True, libver="latest")
        self.demos = sorted(self.file["data"], key=lambda n: int(n[5:]))
        self.ends = np.cumsum([len(self.file[f"data/{n}/actions"]) for n in self.demos])
        obs = self.file[f"data/{self.demos[0]}/obs"]
        self.low, self.cameras = (
            [k for k in obs if obs[k].ndim == 2],
            [k for k in obs if obs[k].ndim == 4],
        )
        self.window, self.count, self.wrong = window, 0, 0

    def episodes(self, index):
        return np.searchsorted(self.ends, index, "right")

    def check(self, index, batch):
        i = int(index[0])
        d = int(self.episodes(i))
        begin = int(self.ends[d - 1]) if d else 0
        rows = np.minimum(
            np.arange(i - begin, i - begin + self.window), int(self.ends[d]) - begin - 1
        )
        for k, v in batch.items():
            k = {"action": "actions"}.get(k, k.removeprefix("observation."))
            at = f"data/{self.demos[d]}/" + (k if k == "actions" else f"obs/{k}")
            if at not in self.file:
                continue
            want, got = self.file[at][()][rows], np.asarray(v[0])
            if k in self.cameras and got.shape != want.shape:
                got = got.transpose(0, 2, 3, 1)
            self.count += 1
            self.wrong += not np.array_equal(got, want.astype(got.dtype))

    def checked(self, epoch):
        """Returns epoch with checks in its first pass, for up to 40 batches."""

        def first():
            for n, (index, episode, batch) in enumerate(epoch()):
                if n < 40:
                    self.check(index, batch)
                yield index, episode, batch

        passes = iter([first])
        return lambda: next(passes, epoch)()

    def found(self):
        return dict(frames_checked=self.count, wrong_frames=int(self.wrong))
