"""A file of robomimic's layout as h5py reads it: what a window of a sample must hold; and files to measure on, where there are none."""
import json, os

import h5py
import numpy as np


class Truth:
    """Compares the first window of some batches of the first epoch, which is not measured."""

    def __init__(self, path, window):
        self.file = h5py.File(path, "r", swmr=True, libver="latest")  # as robomimic opens it: one process cannot have both ways
        self.demos = sorted(self.file["data"], key=lambda n: int(n[5:]))
        self.ends = np.cumsum([len(self.file[f"data/{n}/actions"]) for n in self.demos])
        obs = self.file[f"data/{self.demos[0]}/obs"]
        self.low, self.cameras = [k for k in obs if obs[k].ndim == 2], [k for k in obs if obs[k].ndim == 4]
        self.window, self.count, self.wrong, self.first = window, 0, 0, True
        first = np.concatenate([self.file[f"data/{n}/actions"][:, 0] for n in self.demos])
        self.order = np.argsort(first)
        self.sorted = first[self.order]

    def numbers(self, batches):
        """(sample numbers, their episodes, batch) of windows that do not say which sample they are: its first action does."""
        for b in batches:
            index = self.order[np.minimum(np.searchsorted(self.sorted, b["action"][:, 0, 0].numpy()), len(self.order) - 1)]
            yield index, self.episodes(index), b

    def episodes(self, index):
        return np.searchsorted(self.ends, index, "right")

    def check(self, index, batch):
        i = int(index[0])
        d = int(self.episodes(i))
        begin = int(self.ends[d - 1]) if d else 0
        rows = np.minimum(np.arange(i - begin, i - begin + self.window), int(self.ends[d]) - begin - 1)
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
        """epoch, of whose first pass up to 40 batches are looked at."""

        def first():
            for n, (index, episode, batch) in enumerate(epoch()):
                if n < 40:
                    self.check(index, batch)
                yield index, episode, batch

        passes = iter([first])
        return lambda: next(passes, epoch)()

    def found(self):
        return dict(frames_checked=self.count, wrong_frames=int(self.wrong))


def images(rng, n):
    """n frames of 84 x 84: a gradient, a few moving boxes, a little noise: they deflate to about two thirds."""
    y, x = np.mgrid[0:84, 0:84]
    base = np.stack([x * 2, y * 2, x + y], -1).astype(np.int16)
    out = np.empty((n, 84, 84, 3), np.uint8)
    for k in range(n):
        f = base + rng.integers(-2, 3, base.shape)
        for b in range(4):
            at = (10 + 15 * b + k) % 70, (7 * b + 2 * k) % 70
            f[at[0] : at[0] + 12, at[1] : at[1] + 12] = 40 * b
        out[k] = np.clip(f, 0, 255)
    return out


def write(path, demos, env_args=None, libver=None, **images):
    """Writes a file of robomimic's layout: of each demo its streams by name. images: how frames are stored."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with h5py.File(path, "w", libver=libver) as f:
        total = 0
        for i, streams in enumerate(demos):
            g = f.create_group(f"data/demo_{i}")
            for key, x in streams.items():
                g.create_dataset(key, data=x, **(images if x.ndim == 4 else {}))
            g.attrs["num_samples"] = len(x)
            total += len(x)
        f["data"].attrs.update(total=total, env_args=json.dumps(env_args or {}))


def make(folder, demos=20, rows=100):
    """raw.hdf5, gzip.hdf5 (two cameras, a chunk a frame) and low.hdf5."""

    def demo(rng, cameras):
        out = {"actions": rng.standard_normal((rows, 7)).astype(np.float32)}
        out.update({f"obs/{k}": rng.standard_normal((rows, n)) for k, n in (("robot0_eef_pos", 3), ("robot0_eef_quat", 4), ("robot0_gripper_qpos", 2), ("object", 10))})
        return out | {f"obs/{c}": images(rng, rows) for c in cameras}

    env, cameras = {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}}, ("agentview_image", "robot0_eye_in_hand_image")
    for name, cameras, kw in (("raw", cameras, {}), ("gzip", cameras, dict(chunks=(1, 84, 84, 3), compression="gzip", compression_opts=4)), ("low", (), {})):
        rng = np.random.default_rng(0)
        write(f"{folder}/{name}.hdf5", (demo(rng, cameras) for _ in range(demos)), env, **kw)
