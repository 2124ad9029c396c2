"""What a random training leaves behind: everything that must not differ, and what must be gone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from costlens.core.records import RankRecord
from tests.fuzz.plan import Plan
from tests.fuzz.tally import Tally
from tests.fuzz.witness import Witness, digest_rng, digest_tensor

__all__ = ["SIGNALS", "Ended", "Evidence", "find_leftovers", "gather"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_OURS = "CostLens"


@dataclass
class Ended:
    """How one call of a Trainer ended, and what a record of it must say."""

    call: str
    raised: str
    code: object
    returned: Any
    global_step: int
    should_stop: bool
    tally: Tally
    planted_ns: dict[str, int] | None
    records: list[RankRecord] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


@dataclass
class Evidence:
    """What a training left behind."""

    plan: Plan
    events: list[tuple[Any, ...]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def find_leftovers(trainer: Any, profiler: Any) -> Iterator[str]:
    """Yield what costlens has left on a Trainer whose profiler was ``profiler``."""
    if trainer.profiler is not profiler:
        yield f"the profiler is {type(trainer.profiler).__name__}, not the one before"
    owners = [trainer.strategy, trainer.fit_loop.epoch_loop.val_loop]
    owners += [getattr(trainer, f"{each}_loop") for each in ("validate", "test", "predict")]
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    for owner in (*owners, *([scaler] if scaler is not None else [])):
        for name, value in vars(owner).items():
            if "costlens" in type(value).__module__:
                yield f"{type(owner).__name__}.{name} is still ours"
    for optimizer in trainer.optimizers:
        if optimizer._optimizer_step_post_hooks or optimizer._optimizer_step_pre_hooks:
            yield f"{type(optimizer).__name__} still has hooks"
    for thread in threading.enumerate():
        if "costlens" in thread.name:
            yield f"thread {thread.name} is alive"


def gather(trainer: Any, witness: Witness, folder: Path, saved: Path | None) -> dict[str, Any]:
    """Return the values that a training ended with.

    Args:
        trainer: The Trainer.
        witness: What was noted.
        folder: Where loggers and profilers wrote.
        saved: A checkpoint, if one was written.
    """
    module = trainer.lightning_module
    values = {
        "losses": witness.tally.losses,
        "random": digest_rng(),
        "tally": vars(witness.tally),
        "signals": [_name_handler(each) for each in SIGNALS],
        "attributes": (sorted(vars(trainer)), sorted(vars(trainer.strategy))),
        "modes": (torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.get_default_dtype()),
        "profiled": _profiled(trainer.profiler),
        "files": _read_files(folder),
        "optimizers": [witness.show(each.state_dict()) for each in trainer.optimizers],
    }
    if module is not None:
        values["training"] = module.training
        values["weights"] = {k: digest_tensor(v) for k, v in module.state_dict().items()}
    for name in ("callback_metrics", "logged_metrics", "progress_bar_metrics"):
        values[name] = {k: str(v) for k, v in getattr(trainer, name).items()}
    if saved is not None and saved.exists():
        values["checkpoint"] = witness.show(torch.load(saved, weights_only=False))
    return values


def _name_handler(number: signal.Signals) -> str:
    handler = signal.getsignal(number)
    return getattr(handler, "__qualname__", None) or str(handler)


def _profiled(profiler: Any) -> dict[str, int]:
    """Return how often a profiler of Lightning's saw each action but ours."""
    recorded = getattr(profiler, "recorded_durations", {})
    found = {str(action): len(each) for action, each in recorded.items()}
    found.update((str(action), 1) for action in getattr(profiler, "profiled_actions", {}))
    return {action: num for action, num in found.items() if _OURS not in action}


def _read_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".csv", ".yaml", ".txt")
    }
