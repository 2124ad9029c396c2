"""What a run says to the Trainer's own loggers when the user asks for it."""

from __future__ import annotations

from costlens.account.cost import charge_rank
from costlens.core.snapshot import Snapshot
from costlens.observe.trainer.given import Trainer

__all__ = ["log_snapshot"]


def log_snapshot(trainer: Trainer, snapshot: Snapshot) -> None:
    """Log a rank's rates and its cost so far; training thread, once a window.

    Costs what the user's loggers cost; the numbers are those of the newest closed window.

    Args:
        trainer: Its loggers take ``costlens/samples_per_s`` and the like, at its global step.
        snapshot: The newest snapshot of the run.
    """
    rates = snapshot.record.rates.model_dump(exclude_none=True)
    metrics = {f"costlens/{name}": value for name, value in rates.items()}
    charge = charge_rank(snapshot.record)
    if charge is not None:
        metrics["costlens/cost"] = float(charge.total)
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=trainer.global_step)
