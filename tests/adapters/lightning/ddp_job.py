"""Trains on two CPU processes; Lightning's launcher starts this script again for the second."""

from __future__ import annotations

import pytorch_lightning as pl

from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import make_trainer, rows
from tests.adapters.lightning.test_copies import Job

if __name__ == "__main__":
    trainer = make_trainer(
        pl, CostLensCallback("two ranks"), devices=2, strategy="ddp", max_epochs=1
    )
    trainer.fit(Job(), rows(20, 2))
