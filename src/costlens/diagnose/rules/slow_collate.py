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

    Saved: that share of the wait, for samples that are tensors of one size are put together by one
    copy. In workers nobody looks.
    """
    supply = evidence.supply
    if supply is None:
        return None
    if supply.cause != _NAME:
        if supply.num_workers:
            return Abstention(_NAME, "time in collate_fn: try num_workers=0 for a minute")
        return None
    share = supply.collate_share or 0.0
    saved = evidence.share(share * supply.wait_s * evidence.num_iterations)
    text = [
        (
            f"each iteration of {milliseconds(supply.batch_s)} waits {milliseconds(supply.wait_s)} "
            f"({percent(supply.wait_s / supply.batch_s)}) for its batch"
        ),
        f"{percent(share)} of that is spent in collate_fn",
    ]
    workers = supply.enough_workers
    moved = evidence.share(supply.saved_s(workers) * evidence.num_iterations)
    remedies = [
        Remedy(
            "Let the data set return tensors of one size, so that collate_fn only stacks them;"
            " pad and convert whole batches at once, not sample by sample",
            saved,
        ),
        Remedy(f"DataLoader(num_workers={workers}): collating moves beside the training", moved),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
