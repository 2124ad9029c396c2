"""Cells of a notebook, run in a process that treats them as a kernel does: `job_notebook.py KIND`.

An error ends its cell and not the process, and stays in `sys.last_value`. After the cells of the
kind the kernel is shut down.
"""

from __future__ import annotations

import atexit
import code
import sys
import time

TRAIN = """
run = costlens.start("notebook")
print("RUN", run.id, run.attempt, flush=True)
for step in range(10):
    with run.iteration(samples=4):
        if step == interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        time.sleep(0.001)
"""
WATCH = """
run = costlens.start("notebook")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.watch(model, optimizer)
for step, (batch,) in enumerate(run.batches([torch.ones(2, 4).split(2)] * 10)):
    loss = model(batch).sum()
    if step == interrupt_at:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LIGHTNING = """
warnings.simplefilter("ignore")
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        if batch_idx == interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
callback = CostLensCallback("notebook")
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=1, callbacks=[callback], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4))
"""
KILLED = """
with run.iteration(samples=4):
    os.kill(os.getpid(), signal.SIGKILL)
"""
IMPORTS = "import costlens, os, signal, time"
TORCH = "import torch"
PL = """
import warnings, pytorch_lightning as pl, torch
from costlens.lightning import CostLensCallback
"""
UNDISTURBED, INTERRUPTED = "interrupt_at = None", "interrupt_at = 5"
KINDS = {
    "again": [IMPORTS, UNDISTURBED, TRAIN, TRAIN],
    "interrupted": [IMPORTS, INTERRUPTED, TRAIN, UNDISTURBED, TRAIN],
    "typo": [IMPORTS, UNDISTURBED, TRAIN, "prnt(run)"],
    "killed": [IMPORTS, UNDISTURBED, TRAIN, TRAIN, KILLED],
    "hooks": [IMPORTS, TORCH, INTERRUPTED, WATCH, UNDISTURBED, WATCH],
    "lightning": [IMPORTS, PL, INTERRUPTED, LIGHTNING, UNDISTURBED, LIGHTNING],
}


def main(kind: str) -> None:
    """Run the cells; what a cell raises is shown, and the next one runs."""
    sys.ps1 = "In: "  # as in every interactive interpreter
    kernel = code.InteractiveInterpreter({"__name__": "__main__"})
    for cell in KINDS[kind]:
        try:
            kernel.runcode(compile(cell, "<cell>", "exec"))
        except SystemExit as error:
            print("EXIT", error.code, flush=True)
    print("ENDING", time.monotonic(), flush=True)


if __name__ == "__main__":
    atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
    main(sys.argv[1])
