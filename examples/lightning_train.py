"""Train with Lightning: a LightningDataModule returns a Loader, and checkpoints store its position.

    python examples/lightning_train.py PATH --steps 20 --devices 2 --checkpoint run.ckpt

The DataModule stores the Loader's state, so that training resumes exactly in the middle of an
epoch. Lightning also finds the Loader's state_dict itself, but restores it only in the middle of an
epoch. After the end of an epoch it would begin again with the order of the first epoch. Resume in
the middle of an epoch with the same number of ranks, because Lightning counts batches.
"""

import argparse
import os

import pytorch_lightning as L  # Or: import lightning as L.
import torch

import robocache


class Data(L.LightningDataModule):
    def __init__(self, path):
        super().__init__()
        self.path, self.loader, self.saved = path, None, None

    def train_dataloader(self):  # Called in each process, when torch.distributed knows its rank.
        self.loader = robocache.Loader(
            self.path,
            batch_size=8,
            seed=3,
            threads=1,
            keys=["observation.state", "action", "index"],
        )
        if self.saved:
            self.loader.load_state_dict(self.saved)
        return self.loader

    def state_dict(self):
        return self.loader.state_dict() if self.loader else {}

    def load_state_dict(self, state):  # Called before train_dataloader.
        self.saved = state


class Policy(L.LightningModule):
    def __init__(self, features):
        super().__init__()
        self.net = torch.nn.Linear(
            features["observation.state"].shape[0], features["action"].shape[0]
        )

    def training_step(self, batch, batch_idx):
        print(
            f"epoch {self.current_epoch} step {self.global_step} rank {self.global_rank}: "
            f"{batch['index'].tolist()}"
        )
        return (self.net(batch["observation.state"]) - batch["action"]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)


if __name__ == "__main__":
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("path")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--devices", type=int, default=1)
    p.add_argument("--checkpoint", default="run.ckpt")
    a = p.parse_args()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=a.devices,
        max_steps=a.steps,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        logger=False,
    )
    resume = a.checkpoint if os.path.exists(a.checkpoint) else None
    trainer.fit(Policy(robocache.open(a.path).features), datamodule=Data(a.path), ckpt_path=resume)
    trainer.save_checkpoint(a.checkpoint)  # Or use a ModelCheckpoint(every_n_train_steps=...).
