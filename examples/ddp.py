"""Train with DistributedDataParallel, and resume with any number of ranks.

    torchrun --standalone --nproc_per_node 2 examples/ddp.py PATH --steps 20 --checkpoint run.pt

Loader takes its rank from torch.distributed, and each rank gets its part of one order. All ranks
get equally many batches: the first samples of the epoch fill the last step.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import robocache


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--checkpoint")
    a = p.parse_args()
    dist.init_process_group("gloo")  # On GPUs: "nccl", and device=f"cuda:{local_rank}" for Loader.
    loader = robocache.Loader(
        a.path, batch_size=8, seed=3, threads=1, keys=["observation.state", "action", "index"]
    )
    features = loader.dataset.features
    model = DistributedDataParallel(
        torch.nn.Linear(features["observation.state"].shape[0], features["action"].shape[0])
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    step = 0
    if a.checkpoint and os.path.exists(a.checkpoint):
        saved = torch.load(a.checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # The state of any rank is valid for all ranks.
        step = saved["step"]
    while step < a.steps:
        epoch, seen = loader.epoch, []
        for batch in loader:  # One epoch, or the rest of it.
            loss = (model(batch["observation.state"]) - batch["action"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["index"].tolist()
            step += 1
            if a.checkpoint and dist.get_rank() == 0:
                state = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                }
                torch.save(state, a.checkpoint + ".new")
                # An atomic replacement: the checkpoint is never half-written.
                os.replace(a.checkpoint + ".new", a.checkpoint)
            if step == a.steps:
                break
        everyone = [[]] * dist.get_world_size()
        dist.all_gather_object(everyone, seen)
        if dist.get_rank() == 0:
            distinct = len({i for ids in everyone for i in ids})
            print(
                f"step {step}, epoch {epoch}: {len(everyone)} ranks saw {distinct} of "
                f"{loader.num_samples} samples; loss {loss.item():.4f}"
            )
    dist.destroy_process_group()
    # Threads of gloo can outlive the process group and abort Python's exit (torch 2.11, 3 of 14
    # runs without RoboCache).
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
