"""data_wait: the training waits for its batches, and nothing tells why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.measures import percent
from costlens.diagnose.wording import loss, milliseconds

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "data_wait"


def _judge(evidence: Evidence) -> Verdict:
    """Find exposed waits whose cause is not known.

    Saved: all of them, for a loader that keeps up is never waited for.
    """
    supply = evidence.supply
    if supply is None or supply.cause != _NAME:
        return None
    saved = evidence.share(supply.wait_s * evidence.num_iterations)
    text = [
        (
            f"each iteration of {milliseconds(supply.batch_s)} waits {milliseconds(supply.wait_s)} "
            f"({percent(supply.wait_s / supply.batch_s)}) for its batch"
        ),
    ]
    remedies = [
        Remedy("Make batches beside the training: a DataLoader with num_workers > 0", saved),
        Remedy(
            "Watch the DataLoader itself (run.batches(loader)) and open files through"
            " run.filesystem(…): then the cause is named"
        ),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
