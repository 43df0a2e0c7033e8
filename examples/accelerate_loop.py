"""Hugging Face Accelerate: the Loader beside it, its place in the checkpoint, two processes or one.

    python examples/accelerate_loop.py PATH
    torchrun --nproc-per-node 2 examples/accelerate_loop.py PATH

Do not give the Loader to accelerator.prepare(), which would cut each rank's batches again: it knows its rank, and puts batches on
accelerator.device by itself. accelerator.register_for_checkpointing(loader) saves and loads its place."""

import argparse
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

import robocache


def make(path, accelerator):
    return robocache.Loader(
        path,
        batch_size=8,
        seed=3,
        keys=["observation.state", "action", "index"],
        device=accelerator.device if accelerator.device.type == "cuda" else "cpu",
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("path")
    a = p.parse_args()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)

    loader = make(a.path, accelerator)
    sizes = {k: loader.dataset.features[k].shape[0] for k in ("observation.state", "action")}
    model = torch.nn.Linear(sizes["observation.state"], sizes["action"])
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3))
    accelerator.register_for_checkpointing(loader)
    folder = [tempfile.mkdtemp() if accelerator.is_main_process else None]
    broadcast_object_list(folder)

    seen = []
    for step, batch in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(batch["observation.state"].float()), batch["action"].float())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        seen.append(batch["index"].tolist())
        if step == 1:
            accelerator.save_state(folder[0])
    total = int(accelerator.gather(torch.tensor([sum(map(len, seen))], device=accelerator.device)).sum())
    accelerator.print(f"{accelerator.num_processes} processes, {total} samples in {len(seen)} steps")

    accelerator.load_state(folder[0])  # back to after the second step, in the middle of the epoch
    rest = [batch["index"].tolist() for batch in loader]
    assert rest == seen[2:], "the epoch goes on where it was saved"
    accelerator.print(f"resumed from the checkpoint: {len(rest)} steps, the same")
    accelerator.end_training()


if __name__ == "__main__":
    main()
