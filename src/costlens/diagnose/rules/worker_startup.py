"""worker_startup: each pass over the data starts its loader's workers anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Abstention, Remedy, Rule, Verdict
from costlens.diagnose.passes import find_pass_loss
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "worker_startup"


def _judge(evidence: Evidence) -> Verdict:
    """Find waits at the beginning of passes where workers end with each.

    Saved: those waits, less what any batch waits.
    """
    passes = find_pass_loss(evidence)
    if passes is None or not passes.has_workers:
        return None
    if passes.is_persistent is None:
        return Abstention(_NAME, "whether the loader's workers are persistent")
    if passes.is_persistent:
        return None
    saved = passes.saved_share
    text = [
        f"{passes.num} passes over the data began with a wait of {passes.wait_s:.2f} s each",
        "their workers start anew every time: persistent_workers=False",
    ]
    remedies = [
        Remedy("DataLoader(persistent_workers=True): workers live on from pass to pass", saved),
        Remedy("Make passes longer: a sampler that goes over the data several times"),
    ]
    return loss(_NAME, saved, text, remedies)


RULE = Rule(_NAME, _judge)
