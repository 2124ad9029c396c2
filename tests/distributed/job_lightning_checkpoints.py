"""A fit of two ranks with checkpoints: ``job_lightning_checkpoints.py KIND STEPS FOLDER``.

KIND is how Lightning is launched; torchrun launches the ranks. Prints a line a step, so that
whoever kills a rank knows where it is, and leaves the digest of each rank's final state in FOLDER.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from costlens.lightning import CostLensCallback
from tests.resume.digest import digest_of

warnings.simplefilter("ignore")
STEP_S = float(os.environ.get("STEP_S", "0.02"))


def tell(*words: object) -> None:
    """Print one line in one write, so that lines of two ranks do not mix."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


class Module(pl.LightningModule):
    """A small model with dropout, whose ranks draw for themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 64), torch.nn.Dropout(0.3), torch.nn.Linear(64, 1)
        )

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """Return the loss."""
        return (self.layers(batch[0]) - batch[1]).square().mean()

    def on_train_start(self) -> None:
        """Tell where the training begins."""
        tell("RESUMED", self.global_rank, self.global_step)
        if self.global_step == 0:
            torch.manual_seed(11 + self.global_rank)

    def on_train_batch_end(self, *_: Any) -> None:
        """Tell the step."""
        time.sleep(STEP_S)
        tell("STEP", self.global_rank, self.global_step)

    def configure_optimizers(self) -> Any:
        """Return an optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main(strategy: str, num_steps: int, folder: Path) -> None:
    """Train, and write the digest of the final state."""
    tell("PID", os.environ["RANK"], os.getpid())
    torch.set_num_threads(1)
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(88, 8), torch.randn(88, 1))
    module = Module()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        max_epochs=-1,
        max_steps=num_steps,
        callbacks=[CostLensCallback("job")],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(data, 4, shuffle=True))
    digest = digest_of(module, trainer.optimizers[0])
    (folder / f"digest-{trainer.global_rank}").write_text(f"{trainer.global_step} {digest}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
