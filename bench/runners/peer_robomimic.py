"""robomimic's own SequenceDataset and DataLoader: low_dim windows, every item cached, from an HDF5 file of the same tables.

--make OUT.hdf5: writes that file from a LeRobot v3.0 folder, in robomimic's layout, and ends."""
import contextlib, io, os, sys, time

import peer
from peer_set import Set

import h5py
import numpy as np
import torch

a = peer.args(
    lambda p: p.add_argument("--make", default=""),
    lambda p: p.add_argument("--hdf5", default=""),
    lambda p: p.add_argument("--cache-mode", default="all", choices=["all", "low_dim", "none"]),
)
torch.set_num_threads(1)
OBS = "state"


def make(out):
    s = Set(a.root)
    rows = s.columns(s.numeric)
    with h5py.File(out + ".part", "w", libver="latest") as f:
        data = f.create_group("data")
        data.attrs["total"] = int(s.ends[-1])
        for e, n in enumerate(s.lengths):
            lo = int(s.ends[e]) - n
            g = data.create_group(f"demo_{e}")
            g.attrs["num_samples"] = n
            g.create_dataset("actions", data=rows["action"][lo : lo + n])
            g.create_dataset(f"obs/{OBS}", data=rows["observation.state"][lo : lo + n])
    os.replace(out + ".part", out)


class Recorded(torch.utils.data.Sampler):
    """A random permutation an epoch, kept: SequenceDataset's items do not say which sample they are."""

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.n

    def __iter__(self):
        self.order = torch.randperm(self.n, generator=self.g)
        return iter(self.order.tolist())


def main():
    if a.make:
        return make(a.make)
    import robomimic.utils.obs_utils as obs_utils
    from robomimic.utils.dataset import SequenceDataset

    imported = peer.since_start()
    t = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # its progress bars
        obs_utils.initialize_obs_utils_with_obs_specs([{"obs": {"low_dim": [OBS], "rgb": [], "depth": [], "scan": []}}])
        ds = SequenceDataset(a.hdf5, obs_keys=(OBS,), dataset_keys=("actions",), seq_length=max(a.window, 1), pad_seq_length=True, load_next_obs=False,
                             hdf5_cache_mode=None if a.cache_mode == "none" else a.cache_mode)
    sampler = Recorded(len(ds), a.seed)
    kw = dict(persistent_workers=True, prefetch_factor=4, worker_init_fn=lambda _: torch.set_num_threads(1)) if a.workers else {}
    loader = torch.utils.data.DataLoader(ds, sampler=sampler, batch_size=a.batch_size, num_workers=a.workers, **kw)
    opened = time.perf_counter() - t
    s = Set(a.root)
    state = s.columns(["observation.state"])["observation.state"]
    wrong = []

    def batches():
        it, at = iter(loader), 0
        for b in it:
            n = len(b["actions"])
            yield sampler.order[at : at + n].numpy(), b
            at += n

    def warm():  # the values of the first epoch, against the table
        for index, b in batches():
            i = int(index[0])
            wrong.append(not np.array_equal(b["obs"][OBS][0].numpy(), state[s.window(i, a.window)]))
            yield index, b

    epochs = iter([warm])
    peer.measure(lambda: next(epochs, batches)(), a, s.lengths, (imported, opened), extra=lambda: dict(frames_checked=len(wrong), wrong_frames=sum(wrong)))


try:
    main()
except Exception as e:
    peer.failed(e)
    sys.exit(1)
