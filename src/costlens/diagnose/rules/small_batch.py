"""small_batch: kernels are so short that launching them takes longer, and memory is free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import is_paced_by_loader
from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.launching import MIN_SYNC_SHARE, Launching, find_launching
from costlens.diagnose.measures import MIN_SHARE, percent, reach
from costlens.diagnose.pace import BUSY_SM, find_activity
from costlens.diagnose.wording import gibibytes, loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "small_batch"

# Beyond it a batch changes how a model learns more than how fast.
_MAX_GROWTH = 8

# What is left for the allocator and for longer batches.
_FILL = 0.9

# A device that is busy for more than this has kernels enough.
_MIN_IDLE = 0.2


def _judge(evidence: Evidence) -> Verdict:
    """Find a device that idles because its kernels end before the next are launched.

    Saved: with batches ``k`` times as large the same launches do ``k`` times the work, so a sample
    takes the larger of ``1/k`` of the time now and of what its kernels need of a device that they
    fill. ``k`` is what the free memory allows, at most 8. Where nobody tells how many of its
    multiprocessors work, kernels are taken to fill the device: then it is the least that is saved.
    """
    found = find_launching(evidence)
    if found is None or found.unexplained_s < _MIN_IDLE * found.moving_s:
        return None
    is_waiting = found.sync_share is not None and found.sync_share >= MIN_SYNC_SHARE
    if is_waiting or is_paced_by_loader(evidence):
        return None
    part = evidence.now.gpus[0]
    peak, total = (reach(part, name) for name in ("memory_peak_bytes", "memory_total_bytes"))
    if not peak or not total:
        return Abstention(_NAME, "the device's memory, sampled through NVML")
    growth = min(_MAX_GROWTH, int(_FILL * total / peak))
    active = find_activity(evidence, "sm")
    filled_s = _filled_s(evidence, found, active)
    saved_s = found.moving_s - max(found.moving_s / max(1, growth), filled_s)
    if growth <= 1 or saved_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved = evidence.share(saved_s)
    size = None if evidence.now.loading is None else evidence.now.loading.batch_size
    knob = (
        f"batch_size={size * growth} instead of {size}" if size else f"a batch {growth}× as large"
    )
    idle = percent(found.unexplained_s / found.moving_s)
    text = [
        f"the device runs no kernel in {idle} of the iterations",
        f"{gibibytes(peak)} of {gibibytes(total)} of its memory are used at most",
    ]
    remedies = [
        Remedy(f"DataLoader({knob}), with the learning rate to go with it", saved),
        Remedy("torch.compile(model, mode='reduce-overhead'): kernels are launched as one graph"),
        Remedy("Run several such trainings on one device, or take a smaller one"),
    ]
    finding = loss(_NAME, saved, text, remedies)
    return finding if active is not None else replace(finding, is_least=True)


def _filled_s(evidence: Evidence, found: Launching, active: float | None) -> float:
    """Return what the kernels would take on a device that they fill, in seconds.

    Small ones leave multiprocessors without work; without their activity, what they take now.
    """
    if active is None:
        return found.busy_s
    moving = evidence.iteration_s + evidence.time_s["validation"]
    return min(found.busy_s, active * evidence.total_s / moving / BUSY_SM * found.moving_s)


RULE = Rule(_NAME, _judge)
