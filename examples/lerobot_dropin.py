"""Use LeRobotDataset in torch's DataLoader, with fork and spawn, after the parent has used it.

    python examples/lerobot_dropin.py PATH

Arguments, keys, dtypes and shapes are those of lerobot's class of the same name. v2.0 and v2.1 are
read in place.
"""

import argparse

import torch
from torch.utils.data import DataLoader

import robocache
from robocache import LeRobotDataset


def epoch(ds, method):
    """Returns the index column of one epoch, read by two workers that the method starts."""
    loader = DataLoader(ds, batch_size=32, num_workers=2, multiprocessing_context=method)
    return torch.cat([batch["index"] for batch in loader])


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    a = p.parse_args()

    fps = robocache.open(a.path).fps
    ds = LeRobotDataset(
        "my/dataset", root=a.path, delta_timestamps={"action": [0.0, 1 / fps, 2 / fps]}
    )
    item = ds[0]  # The engine now runs in this process. Workers can still be forked.
    for key, value in item.items():
        print(
            f"  {key:40} {tuple(value.shape) if torch.is_tensor(value) else value!r} "
            f"{getattr(value, 'dtype', '')}"
        )
    for method in ("fork", "spawn"):
        index = epoch(ds, method)
        assert index.tolist() == [int(i) for i in ds.hf_dataset["index"]], method
        print(f"{method}: {len(index)} samples, each at its index")


if __name__ == "__main__":  # A spawned worker imports this file again.
    main()
