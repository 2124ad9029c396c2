"""A Lightning fit of two ranks under torchrun whose rank 1 is killed once: `job_restart.py FOLDER`.

It saves every second step and goes on from the newest save. Every rank notes each batch it has
trained on in a file of its own, before costlens hears of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from costlens.lightning import CostLensCallback

warnings.simplefilter("ignore")

KILLED_AT = 7
MAX_STEPS = 12
BATCH_SIZE = 4
STEP_S = 0.05


def wait_for_record(num_samples: int) -> None:
    """Return once a heartbeat has told of all samples, so that the kill loses no count."""
    path = Path(os.environ["COSTLENS_DIR"]) / "job" / "record-1-1.json"
    for _ in range(600):
        if json.loads(path.read_text(encoding="utf-8"))["progress"].get("samples") == num_samples:
            return
        time.sleep(0.05)


class Net(pl.LightningModule):
    """A module that keeps its own account, and dies on rank 1 in the first launch."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.folder = folder

    def training_step(self, batch, batch_idx):
        launch = os.environ["TORCHELASTIC_RESTART_COUNT"]
        if launch == "0" and self.global_rank == 1 and self.global_step == KILLED_AT:
            wait_for_record(KILLED_AT * BATCH_SIZE)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(STEP_S)
        return self.layer(batch).square().mean()

    def on_train_batch_end(self, outputs, batch, batch_idx) -> None:
        """Note the batch."""
        launch = os.environ["TORCHELASTIC_RESTART_COUNT"]
        with (self.folder / f"batches-{launch}-{self.global_rank}").open(
            "a", encoding="utf-8"
        ) as file:
            file.write(f"{self.global_step} {len(batch)}\n")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder: Path) -> None:
    """Fit, from the newest save where there is one."""
    saver = ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=1, monitor=None)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=MAX_STEPS,
        callbacks=[CostLensCallback("job"), saver], logger=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    saves = sorted(folder.glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    loader = torch.utils.data.DataLoader(torch.randn(160, 8), batch_size=BATCH_SIZE)
    trainer.fit(Net(folder), loader, ckpt_path=saves[-1] if saves else None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
