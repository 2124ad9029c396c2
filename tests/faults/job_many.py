"""Many short runs in one process: `job_many.py plain|fit NUM_RUNS NUM_WARM_UP`.

It prints what the process holds after the warm-up and at the end.
"""

from __future__ import annotations

import atexit
import gc
import json
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import psutil

import costlens
from costlens.core import lifetime
from costlens.core.log import taps

atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))


def train() -> None:
    """Make a short run."""
    run = costlens.start("many")
    for _ in range(3):
        with run.iteration(samples=1, tokens=5):
            pass
    run.log(loss=1.0)
    run.finish()


def make_fits() -> Callable[[], None]:
    """Return what fits with a new callback, and then again with a Trainer that stays."""
    import pytorch_lightning as pl
    import torch

    from costlens.lightning import CostLensCallback

    warnings.simplefilter("ignore")

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def make_trainer() -> pl.Trainer:
        return pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            callbacks=[CostLensCallback("many")],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    loader = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4)
    kept, module = make_trainer(), Net()

    def fit() -> None:
        make_trainer().fit(Net(), loader)
        kept.fit(module, loader)
        kept.fit_loop.max_epochs += 1

    return fit


def take_stock() -> dict[str, int]:
    """Return what the process holds."""
    gc.collect()
    return {
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": threading.active_count(),
        "runs": len(lifetime.live()),
        "taps": len(taps),
        "rss_bytes": psutil.Process().memory_info().rss,
    }


def main(kind: str, num_runs: int, num_warm_up: int) -> None:
    """Run."""
    make = train if kind == "plain" else make_fits()
    stock = []
    for number in range(num_runs):
        make()
        if number + 1 in {num_warm_up, num_runs}:
            stock.append(take_stock())
    print(json.dumps(stock))
    print("ENDING", time.monotonic(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
