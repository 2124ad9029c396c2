"""epoch_boundary: each pass over the data begins with a wait that no worker's start explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.passes import find_pass_loss
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "epoch_boundary"


def _judge(evidence: Evidence) -> Verdict:
    """Find waits at the beginning of passes where no workers start.

    Saved: those waits, less what any batch waits: shuffling, reopening files and filling queues
    again need not be done while the training stands still.
    """
    passes = find_pass_loss(evidence)
    if passes is None or (passes.has_workers and not passes.is_persistent):
        return None
    saved = passes.saved_share
    text = [f"{passes.num} passes over the data began with a wait of {passes.wait_s:.2f} s each"]
    remedies = [
        Remedy(
            "Make one long pass instead of many short ones: an endless sampler, with"
            " Trainer(limit_train_batches=…) for the length of an epoch",
            saved,
        ),
        Remedy(
            "Keep files and indexes open in the data set instead of opening them with each pass"
        ),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
