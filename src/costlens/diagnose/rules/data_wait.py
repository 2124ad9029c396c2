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
    return loss(_NAME, saved, text, _list_remedies(supply.num_workers, saved))


def _list_remedies(num_workers: int | None, saved: float | None) -> list[Remedy]:
    """Return what to try; who has workers is not told to have some."""
    if num_workers:
        return [
            Remedy(
                f"Try another num_workers than {num_workers}: too few fall behind, and too many"
                " take the CPUs from one another",
                saved,
            ),
            Remedy("Open files through run.filesystem(…): then reading is told from computing"),
        ]
    return [
        Remedy("Make batches beside the training: a DataLoader with num_workers > 0", saved),
        Remedy(
            "Watch the DataLoader itself (run.batches(loader)) and open files through"
            " run.filesystem(…): then the cause is named"
        ),
    ]


RULE = Rule(_NAME, _judge)
