"""A training script with two ranks, used by test_ranks: LAUNCHER WHEN DATASET OUT.

Each rank writes the numbers of the samples that it received. torchrun and accelerate test both
loaders of WHEN in one process, because importing torch takes most of the time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import robocache


def make_loader(path: str) -> robocache.Loader:
    return robocache.Loader(path, batch_size=8, seed=3, threads=1, keys=["action", "index"])


def write_samples(out: str, loader: robocache.Loader, samples: list[int]) -> None:
    rank = dist.get_rank()
    Path(out, f"{rank}.json").write_text(
        json.dumps(
            {"place": [loader.rank, loader.world_size], "len": len(loader), "samples": samples}
        )
    )


def run_rank(
    rank: int, when: str, path: str, out: str, loader: robocache.Loader | None = None
) -> None:
    """Runs one rank of a plain multiprocessing spawn."""
    if when == "before":
        loader = make_loader(path)
    dist.init_process_group("gloo", init_method=f"file://{out}/meet", rank=rank, world_size=2)
    loader = loader or make_loader(path)
    write_samples(out, loader, [i for b in loader for i in b["index"].tolist()])
    dist.destroy_process_group()


def run_torchrun(when: str, path: str, out: str) -> None:
    before = make_loader(path)
    dist.init_process_group("gloo")
    for name, loader in zip(when.split(","), (before, make_loader(path)), strict=True):
        write_samples(f"{out}/{name}", loader, [i for b in loader for i in b["index"].tolist()])
    dist.destroy_process_group()


def run_accelerate(when: str, path: str, out: str) -> None:
    from accelerate import Accelerator

    before = make_loader(path)
    accelerator = Accelerator(cpu=True)
    for name, made in zip(when.split(","), (before, make_loader(path)), strict=True):
        loader = accelerator.prepare(made)
        write_samples(f"{out}/{name}", loader, [i for b in loader for i in b["index"].tolist()])
    accelerator.end_training()


def run_lightning(when: str, path: str, out: str) -> None:
    import pytorch_lightning as L

    class Policy(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(2, 1)
            self.samples: list[int] = []
            self.own: Any = None

        def train_dataloader(self) -> robocache.Loader:
            self.own = make_loader(path)
            return self.own

        def training_step(self, batch: dict[str, Any], _: int) -> Any:
            self.samples += batch["index"].tolist()
            return self.net(batch["action"][:, :2].float()).square().mean()

        def on_train_end(self) -> None:
            write_samples(out, self.own, self.samples)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    out = f"{out}/{when}"
    model = Policy()
    if when == "before":
        model.own = make_loader(path)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, model.own) if when == "before" else trainer.fit(model)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    launcher, when, path, out = sys.argv[1:]
    {"torchrun": run_torchrun, "accelerate": run_accelerate, "lightning": run_lightning}[launcher](
        when, path, out
    )
