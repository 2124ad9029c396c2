"""too_few_workers: loader workers cannot keep up, and there are CPUs for more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.measures import percent
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "too_few_workers"


def _judge(evidence: Evidence) -> Verdict:
    """Find workers that are always behind while CPUs are free, or that do not use theirs.

    Saved: the wait that is left with as many workers as are needed, or as there are CPUs to spare,
    subtracted from the wait as it is.
    """
    supply = evidence.supply
    if supply is None:
        return None
    if supply.num_workers is None:
        return Abstention(_NAME, "the loader's workers: watch the DataLoader with run.batches(…)")
    if supply.cause != _NAME:
        return None
    have = supply.num_workers
    workers = max(have + 1, supply.enough_workers)
    saved = evidence.share(supply.saved_s(workers) * evidence.num_iterations)
    text = [
        (
            f"each iteration of {milliseconds(supply.batch_s)} waits {milliseconds(supply.wait_s)} "
            f"({percent(supply.wait_s / supply.batch_s)}) for its batch"
        ),
        f"{have} workers take {milliseconds(supply.load_s or 0.0)} each for a batch",
    ]
    if supply.spare_cpus is not None:
        text.append(f"there are {supply.spare_cpus:.1f} CPUs for workers")
    remedies = [
        Remedy(f"DataLoader(num_workers={workers}) instead of {have}", saved),
        Remedy("Make a sample cheaper: do what never changes once, before the training"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
