"""One callback on a Lightning Trainer: run it, then look at the report it prints.

python examples/lightning_callback.py
"""

from pydoc_data.topics import topics

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from costlens.lightning import CostLensCallback

BLOCK = 32


class NextByte(pl.LightningModule):
    """Predicts the next byte of a text from the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Embedding(256, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256)
        )

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        logits = self.net(batch["input_ids"])
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    """Train for a hundred steps on the documentation of Python."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    data = torch.frombuffer(bytearray(text[:300_000]), dtype=torch.uint8).long()
    blocks = [
        {"input_ids": data[at : at + BLOCK], "labels": data[at + 1 : at + BLOCK + 1]}
        for at in range(0, len(data) - BLOCK - 1, BLOCK)
    ]
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=100,
        callbacks=[CostLensCallback("next-byte")],  # the one line
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(NextByte(), DataLoader(blocks, batch_size=16, shuffle=True))


if __name__ == "__main__":
    main()
