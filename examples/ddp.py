"""Two ranks of torch.distributed on gloo: together they see exactly the epoch.

    python examples/ddp.py PATH
    torchrun --nproc-per-node 2 examples/ddp.py PATH

Loader takes rank and world size from torch.distributed, else from RANK and WORLD_SIZE. All ranks get equally many batches; where the
samples do not divide evenly, the first ones of the order come again (stats()["wrapped"] counts them)."""

import argparse
import os
import socket
from collections import Counter

import torch.distributed as dist
import torch.multiprocessing as mp

import robocache


def train(rank, path, world, port):
    if port is not None:  # torchrun sets these itself
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    with robocache.Loader(path, batch_size=8, seed=3, keys=["index"]) as loader:
        mine = [batch["index"].tolist() for batch in loader]
        stats = loader.stats()
        samples = loader.num_samples
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (mine, stats["wrapped"]))
    if dist.get_rank() == 0:
        batches = [len(b) for b, _ in everyone]
        seen = Counter(i for b, _ in everyone for batch in b for i in batch)
        extra = sum(seen.values()) - len(seen)
        assert len(set(batches)) == 1, batches
        assert len(seen) == samples, "every sample came"
        assert extra < 8 * len(everyone), "only the last step was filled up"
        print(f"{len(everyone)} ranks of {batches[0]} batches: {len(seen)} of {samples} samples, {extra} of them twice to fill the last step")
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("path")
    a = p.parse_args()
    if "LOCAL_RANK" in os.environ:  # started by torchrun
        return train(int(os.environ["RANK"]), a.path, int(os.environ["WORLD_SIZE"]), None)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(train, (a.path, 2, port), nprocs=2)


if __name__ == "__main__":
    main()
