"""Hugging Face Accelerate: prepare() is for the model and the optimizer; a Loader is each rank's part already, on its device.

    torchrun --standalone --nproc_per_node 2 examples/accelerate_train.py PATH --steps 20 --checkpoint run    (on GPUs: accelerate launch)

Do not prepare a DataLoader of a Loader: Accelerate would deal out rank 0's batches to all ranks, and the others' would be lost."""

import argparse
import os

import torch
from accelerate import Accelerator

import robocache


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--checkpoint")
    a = p.parse_args()
    torch.manual_seed(0)
    # first: it starts torch.distributed, where the Loader finds its rank
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    loader = robocache.Loader(
        a.path,
        batch_size=8,
        seed=3,
        threads=1,
        keys=["observation.state", "action", "index"],
        device=accelerator.device,
    )
    features = loader.dataset.features
    model = torch.nn.Linear(features["observation.state"].shape[0], features["action"].shape[0])
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-2))
    # save_state() and load_state() keep its position
    accelerator.register_for_checkpointing(loader)
    if a.checkpoint and os.path.isdir(a.checkpoint):
        accelerator.load_state(a.checkpoint)
    step = 0
    while step < a.steps:
        epoch, seen = loader.epoch, []
        for batch in loader:  # one epoch, or what is left of it
            with accelerator.accumulate(model):
                loss = (model(batch["observation.state"]) - batch["action"]).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            seen.append(batch["index"])
            step += 1
            if step == a.steps:
                break
        distinct = len(accelerator.gather(torch.cat(seen)).unique())
        ranks = accelerator.num_processes
        accelerator.print(
            f"{step} steps, epoch {epoch}: {ranks} ranks saw {distinct} of "
            f"{loader.num_samples} samples; loss {loss.item():.4f}"
        )
    if a.checkpoint:
        accelerator.save_state(a.checkpoint)
    accelerator.end_training()


if __name__ == "__main__":
    main()
