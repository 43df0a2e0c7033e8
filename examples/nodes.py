r"""Train on several nodes from a bucket, with one script under three launchers.

On each node:

    torchrun --nnodes 2 --nproc_per_node 1 --rdzv_backend c10d \
        --rdzv_endpoint HOST:29500 examples/nodes.py s3://lab/set

With Slurm:

    MASTER_ADDR=HOST MASTER_PORT=29500 srun --nodes 2 --ntasks-per-node 1 --export=ALL sh -c \
        'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python examples/nodes.py s3://lab/set'

On a Ray cluster, one worker per node; the nodes need their own credentials:

    python examples/nodes.py s3://lab/set --ray 2

Loader takes its rank from torch.distributed. With shuffle="pool", each episode belongs to one rank
of an epoch, so only one node fetches its video. With "global", every node fetches it.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import robocache


def train(path, shuffle, cache=None):
    """Trains one epoch on this rank, and returns a summary of all ranks as text.

    torch.distributed must be initialized.
    """
    info = robocache.open(path)
    camera = next(k for k, f in info.features.items() if f.kind in ("video", "image"))
    loader = robocache.Loader(
        path,
        batch_size=8,
        shuffle=shuffle,
        seed=3,
        cache=cache,
        keys=[camera, "observation.state", "action", "index"],
    )
    model = DistributedDataParallel(
        torch.nn.Linear(
            info.features["observation.state"].shape[0] + 3, info.features["action"].shape[0]
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    seen = []
    for batch in loader:
        colour = batch[camera].float().mean((2, 3)) / 255
        loss = (
            (model(torch.cat([batch["observation.state"], colour], 1)) - batch["action"])
            .square()
            .mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += batch["index"].tolist()
    mine = {
        "seen": seen,
        "wrapped": loader.stats()["wrapped"],
        "bytes": loader.stats()["bytes_read"],
    }
    ranks = [mine] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    samples = [i for r in ranks for i in r["seen"]]
    twice = len(samples) - len(set(samples))
    bytes_read = ", ".join(f"{r['bytes'] / 1e6:.2f} MB" for r in ranks)
    return (
        f"{shuffle}: {len(ranks)} ranks gave {len(set(samples))} of {loader.num_samples} samples; "
        f"{twice} twice, {sum(r['wrapped'] for r in ranks)} of them to fill the last step; "
        f"video read by each: {bytes_read}; loss {loss.item():.4f}"
    )


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--shuffle", choices=["pool", "global"], default="pool")
    p.add_argument("--cache", help="a folder of the node: a second epoch fetches what it lacks")
    p.add_argument("--ray", type=int, help="workers, on a Ray cluster")
    a = p.parse_args()
    if a.ray:
        import ray
        from ray.train import ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        ray.init()
        scaling = ScalingConfig(num_workers=a.ray, placement_strategy="SPREAD")
        done = TorchTrainer(
            lambda: train(a.path, a.shuffle, a.cache),
            torch_config=TorchConfig("gloo"),
            scaling_config=scaling,
        ).fit()
        print(done.return_value)
        ray.shutdown()
        return
    dist.init_process_group("gloo")  # On GPUs: "nccl", and device= for Loader.
    text = train(a.path, a.shuffle, a.cache)
    if dist.get_rank() == 0:
        print(text)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
