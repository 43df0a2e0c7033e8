"""Lightning: a Loader as the Trainer's train_dataloaders, and its place in Lightning's own checkpoint.

    python examples/lightning_fit.py PATH"""

import argparse
import tempfile
import warnings

import torch

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

import robocache


class Policy(pl.LightningModule):
    def __init__(self, state, action):
        super().__init__()
        self.net = torch.nn.Linear(state, action)
        self.seen = []

    def training_step(self, batch, _):
        self.seen.append(batch["index"].tolist())
        return torch.nn.functional.mse_loss(self.net(batch["observation.state"].float()), batch["action"].float())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


def loader(path):
    # On a GPU: device="cuda"; the Trainer then finds the batch there and moves nothing.
    return robocache.Loader(path, batch_size=16, seed=3, keys=["observation.state", "action", "index"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("path")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    pl.seed_everything(0)
    data = loader(a.path)
    sizes = {k: data.dataset.features[k].shape[0] for k in ("observation.state", "action")}
    steps = len(data)
    stop = steps + steps // 2  # in the middle of the second epoch

    def trainer(**kwargs):
        quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
        return pl.Trainer(accelerator="cpu", devices=1, **{"enable_checkpointing": False, **quiet, **kwargs})

    whole = Policy(sizes["observation.state"], sizes["action"])
    trainer(max_epochs=3).fit(whole, data)
    assert len({tuple(sum(whole.seen[e * steps : (e + 1) * steps], [])) for e in range(3)}) == 3
    print(f"3 epochs of {steps} steps, each in an order of its own")

    with tempfile.TemporaryDirectory() as folder:
        saving = pl.callbacks.ModelCheckpoint(folder, "middle", every_n_train_steps=stop, save_top_k=-1)
        first = Policy(sizes["observation.state"], sizes["action"])
        trainer(max_steps=stop + 1, enable_checkpointing=True, callbacks=[saving]).fit(first, loader(a.path))
        second = Policy(sizes["observation.state"], sizes["action"])
        trainer(max_epochs=3).fit(second, loader(a.path), ckpt_path=folder + "/middle.ckpt")
    del first.seen[stop:]  # the checkpoint is of the step before
    assert first.seen + second.seen == whole.seen, [len(x.seen) for x in (first, second, whole)]
    print(f"stopped after {len(first.seen)} steps, resumed for {len(second.seen)}: the same batches")


if __name__ == "__main__":
    main()
