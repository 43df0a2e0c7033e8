"""LeRobotDataset in torch's DataLoader, under fork and spawn, after the parent has used it.

    python examples/lerobot_dropin.py PATH

Arguments, keys, dtypes and shapes are those of lerobot's class of that name; v2.0 and v2.1 are read in place."""

import argparse

import torch
from torch.utils.data import DataLoader

import robocache
from robocache import LeRobotDataset


def epoch(ds, method):
    """The index column of every batch, as two workers started by the method bring it."""
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
    item = ds[0]  # the engine now runs in this process; workers may still be forked
    for key, value in item.items():
        print(
            f"  {key:40} {tuple(value.shape) if torch.is_tensor(value) else value!r} "
            f"{getattr(value, 'dtype', '')}"
        )
    for method in ("fork", "spawn"):
        index = epoch(ds, method)
        assert index.tolist() == [int(i) for i in ds.hf_dataset["index"]], method
        print(f"{method}: {len(index)} samples, each at its index")


if __name__ == "__main__":  # spawn imports this file again
    main()
