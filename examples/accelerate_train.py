r"""Train with Hugging Face Accelerate and a robocache.Loader.

    torchrun --standalone --nproc_per_node 2 examples/accelerate_train.py PATH --steps 20 \
        --checkpoint run

On GPUs, use `accelerate launch` in place of torchrun. Accelerate's prepare() takes only the model
and the optimizer: a Loader already delivers the part of its rank, on its device. Do not prepare a
DataLoader over a Loader. Accelerate would distribute rank 0's batches to all ranks and lose the
batches of the others.
"""

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
    # This comes first because it starts torch.distributed, which gives the Loader its rank.
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
    # save_state() and load_state() store the loader's position.
    accelerator.register_for_checkpointing(loader)
    if a.checkpoint and os.path.isdir(a.checkpoint):
        accelerator.load_state(a.checkpoint)
    step = 0
    while step < a.steps:
        epoch, seen = loader.epoch, []
        for batch in loader:  # One epoch, or the rest of it.
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
