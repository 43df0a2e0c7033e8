"""robomimic's SequenceDataset and DataLoader over the low-dimensional streams of an HDF5 file.

Cameras are included if the file has them. The option hdf5 names the file if the set itself is a
LeRobot folder with the same rows.
"""

import contextlib, io

from . import common

from . import hdf5_set
import torch


class Recorded(torch.utils.data.Sampler):
    """A random permutation per epoch, which is recorded.

    The items of SequenceDataset do not contain their sample number.
    """

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.n

    def __iter__(self):
        self.order = torch.randperm(self.n, generator=self.g)
        return iter(self.order.tolist())


def main(a):
    import robomimic.utils.obs_utils as obs_utils
    from robomimic.utils.dataset import SequenceDataset

    common.imported()
    path, window = a.hdf5 or a.uri, max(a.window, 1)
    truth = hdf5_set.Truth(path, window)
    # hides progress bars
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        obs_utils.initialize_obs_utils_with_obs_specs(
            [{"obs": {"low_dim": truth.low, "rgb": truth.cameras, "depth": [], "scan": []}}]
        )
        ds = SequenceDataset(
            path,
            obs_keys=tuple(truth.low + truth.cameras),
            dataset_keys=("actions",),
            seq_length=window,
            pad_seq_length=True,
            load_next_obs=False,
            hdf5_cache_mode=a.cache_mode,
        )
    sampler = Recorded(len(ds), a.seed)
    loader = common.torch_loader(ds, a, sampler=sampler)

    def batches():
        at = 0
        for b in loader:
            index = sampler.order[at : at + len(b["actions"])].numpy()
            at += len(index)
            yield index, truth.episodes(index), {"actions": b["actions"], **b["obs"]}

    common.measure(truth.checked(batches), a, cameras=(), extra=truth.found)


common.run(main)
