"""slow_collate: the time that batches come late by is spent putting samples together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.measures import percent
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "slow_collate"


def _judge(evidence: Evidence) -> Verdict:
    """Find a loop that stands in ``collate_fn`` at half or more of all looks while it waits.

    Or workers that spend so much of their time in it. Saved: that share of the wait, or the wait
    that is left once workers collate in no time; tensors of one size are stacked by one copy.
    """
    supply = evidence.supply
    if supply is None:
        return None
    if supply.cause != _NAME:
        if supply.num_workers and supply.collate_share is None:
            return Abstention(_NAME, "time in collate_fn: run.batches(loader) measures it")
        return None
    share, load_s = supply.collate_share or 0.0, supply.load_s or 0.0
    saved_s = share * supply.wait_s
    if supply.num_workers:
        saved_s = supply.saved_s(supply.num_workers, (1 - share) * load_s)
    saved = evidence.share(saved_s * evidence.num_iterations)
    text = [
        (
            f"each iteration of {milliseconds(supply.batch_s)} waits {milliseconds(supply.wait_s)} "
            f"({percent(supply.wait_s / supply.batch_s)}) for its batch"
        ),
        f"{percent(share)} of what a batch takes is spent in collate_fn",
    ]
    workers = supply.enough_workers
    moved = evidence.share(supply.saved_s(workers) * evidence.num_iterations)
    moving = f"DataLoader(num_workers={workers})"
    moving += "" if supply.num_workers else ": collating moves beside the training"
    remedies = [
        Remedy(
            "Let the data set return tensors of one size, so that collate_fn only stacks them;"
            " pad and convert whole batches at once, not sample by sample",
            saved,
        ),
        Remedy(moving, moved),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
