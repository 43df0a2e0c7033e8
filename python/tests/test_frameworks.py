"""Accelerate and Lightning: they do not shard a Loader again, and checkpoints resume exactly."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import synth
from test_ddp import server

import robocache

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.multiprocessing as mp  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

BATCH, N = 8, 93


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        synth(
            tmp_path_factory.mktemp("frameworks") / "arm",
            "--cameras",
            "0",
            "--episodes",
            "3",
            "--seconds",
            str(31 / 30),
        )
    )


def loader(path: str, **kwargs: Any) -> robocache.Loader:
    return robocache.Loader(
        path,
        **{"batch_size": BATCH, "seed": 3, "threads": 1, "keys": ["action", "index"], **kwargs},
    )


def ids(batches: Any) -> list[int]:
    return [i for b in batches for i in b["index"].tolist()]


# Accelerate.


def under_accelerate(rank: int, world: int, folder: str, path: str) -> None:
    """Runs one rank: prepare() on a Loader and on a DataLoader, and a checkpoint in mid-epoch."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1"
    )
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == world
    ld = accelerator.prepare(loader(path, device=accelerator.device))
    assert isinstance(ld, robocache.Loader) and (ld.rank, ld.world_size) == (rank, world)
    accelerator.register_for_checkpointing(ld)
    it = iter(ld)
    out: dict[str, Any] = {"head": ids([next(it), next(it)])}
    accelerator.save_state(f"{folder}/saved")
    accelerator.wait_for_everyone()  # rank 0 writes
    out["rest"] = ids(it)
    out["next"] = ids(ld)
    accelerator.load_state(f"{folder}/saved")
    out["again"] = ids(ld)
    # for code that requires a DataLoader: not passed to prepare()
    out["plain"] = ids(DataLoader(loader(path), batch_size=None))
    try:
        out["prepared"] = ids(accelerator.prepare(DataLoader(loader(path), batch_size=None)))
    except Exception as e:
        out["prepared"] = repr(e)
    Path(folder, f"{rank}.json").write_text(json.dumps(out))
    accelerator.end_training()


def test_accelerate(path: str, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: scripts/venv.sh peers")
    mp.start_processes(under_accelerate, (2, str(tmp_path), path), nprocs=2, start_method=server())
    ranks = [json.loads((tmp_path / f"{r}.json").read_text()) for r in range(2)]
    order = [loader(path).order(e).tolist() for e in range(2)]
    size = 2 * BATCH
    for r, got in enumerate(ranks):
        mine = [
            [i for t in range(0, N, size) for i in (o + o)[t + r * BATCH : t + (r + 1) * BATCH]]
            for o in order
        ]
        assert got["head"] + got["rest"] == mine[0] and got["next"] == mine[1]
        assert got["again"] == got["rest"], "load_state resumes at the same sample"
        assert got["plain"] == mine[0]
    assert not set(range(N)) <= {i for got in ranks for i in got["prepared"]}, (
        "a prepared DataLoader shards again, as the guide warns"
    )


# Lightning.


@pytest.fixture(scope="module")
def lightning():  # type: ignore[no-untyped-def]
    return pytest.importorskip(
        "pytorch_lightning", reason="pytorch_lightning is not installed: scripts/venv.sh peers"
    )


class Run:
    """A short training run that records its batches and writes checkpoints after given steps."""

    def __init__(
        self,
        L: Any,
        source: Any,
        folder: Path,
        save: tuple[int, ...] = (),
        plain: bool = False,
        batch: int = BATCH,
        **kwargs: Any,
    ) -> None:
        run = self
        self.seen: list[tuple[int, list[int]]] = []  # epoch, samples

        class Plain(L.LightningDataModule):
            """A module whose loader state is saved and restored by Lightning in mid-epoch."""

            def train_dataloader(self) -> robocache.Loader:
                return loader(source, batch_size=batch)

        class Data(L.LightningDataModule):
            """A module that keeps the state itself, as examples/lightning_train.py does.

            Its state is also right at the end of an epoch.
            """

            loader: robocache.Loader | None = None
            saved: dict[str, Any] | None = None

            def train_dataloader(self) -> robocache.Loader:
                self.loader = loader(source, batch_size=batch)
                if self.saved:
                    self.loader.load_state_dict(self.saved)
                return self.loader

            def state_dict(self) -> dict[str, Any]:
                return self.loader.state_dict() if self.loader else {}

            def load_state_dict(self, state: dict[str, Any]) -> None:
                self.saved = state

        class Policy(L.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(2, 1)

            def training_step(self, batch: dict[str, Any], _: int) -> Any:
                run.seen.append((self.current_epoch, batch["index"].tolist()))
                return self.net(batch["action"][:, :2].float()).square().mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.01)

        class Save(L.Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
                if trainer.global_step in save:
                    trainer.save_checkpoint(folder / f"{trainer.global_step}.ckpt")

            def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
                if save:
                    trainer.save_checkpoint(folder / f"epoch{trainer.current_epoch}.ckpt")

        self.trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            use_distributed_sampler=False,
            enable_checkpointing=False,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Save()],
            **{"max_epochs": 3, **kwargs},
        )
        self.model, self.data = Policy(), Plain() if plain else Data()

    def fit(self, checkpoint: Path | None = None) -> list[tuple[int, list[int]]]:
        self.trainer.fit(self.model, datamodule=self.data, ckpt_path=checkpoint)
        return self.seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("plain", (False, True))
def test_lightning_resumes(lightning: Any, path: str, tmp_path: Path, plain: bool) -> None:
    steps = -(-N // BATCH)
    saves = (1, 5, steps - 1, steps, steps + 1, 2 * steps - 3)
    whole = Run(lightning, path, tmp_path, saves, plain).fit()
    orders = [loader(path).order(e).tolist() for e in range(3)]
    assert [i for _, b in whole for i in b] == sum(orders, [])
    assert [e for e, _ in whole] == [e for e in range(3) for _ in range(steps)]
    for n in saves:
        rest = Run(lightning, path, tmp_path, (), plain).fit(tmp_path / f"{n}.ckpt")
        assert [b for _, b in rest] == [b for _, b in whole[n:]], n
        assert [e for e, _ in rest] == [e for e, _ in whole[n:]], n
    if not plain:
        for e in range(2):
            assert (
                Run(lightning, path, tmp_path).fit(tmp_path / f"epoch{e}.ckpt")
                == whole[(e + 1) * steps :]
            ), e
        other = Run(lightning, path, tmp_path, batch=20).fit(tmp_path / "epoch0.ckpt")
        assert [i for _, b in other for i in b] == orders[1] + orders[2], (
            "at an epoch's end anything may change"
        )


@pytest.mark.filterwarnings("ignore")
def test_lightning_stops_and_goes_on(lightning: Any, path: str, tmp_path: Path) -> None:
    """A checkpoint after fit() resumes exactly, as in examples/lightning_train.py.

    fit() ends in mid-epoch after a number of steps. The test resumes twice.
    """
    got: list[list[int]] = []
    last = None
    for steps in (5, 14, 20):
        run = Run(lightning, path, tmp_path, max_steps=steps, max_epochs=-1)
        got += [b for _, b in run.fit(last)]
        last = tmp_path / f"{steps}.ckpt"
        run.trainer.save_checkpoint(last)
    orders = sum((loader(path).order(e).tolist() for e in range(2)), [])
    assert len(got) == 20 and sum(got, []) == orders[: len(sum(got, []))]


@pytest.mark.filterwarnings("ignore")
def test_lightning_takes_mixtures(lightning: Any, path: str, tmp_path: Path) -> None:
    source = [robocache.Mix(path, weight=1), robocache.Mix(path, weight=2)]
    whole = Run(lightning, source, tmp_path, (3,), max_epochs=1).fit()
    assert [
        b for _, b in Run(lightning, source, tmp_path, max_epochs=1).fit(tmp_path / "3.ckpt")
    ] == [b for _, b in whole[3:]]
    assert len(whole) == -(-2 * N // BATCH)
