"""overflow_skips: optimizer steps are left out, for their gradients overflowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Remedy, Rule, Verdict
from costlens.diagnose.measures import MIN_SHARE, percent, rise
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "overflow_skips"

# A scaler finds its scale by overflowing a few times at the start; fewer steps say nothing.
_LEAST_STEPS = 100
_LEAST_SKIPPED = 10

# A scale that has settled is tried out once in thousands of steps, which may happen in any stretch.
_LEAST_LATELY = 2


def _judge(evidence: Evidence) -> Verdict:
    """Find a training that loses steps to overflow all the time.

    There must be enough of them in the whole attempt: a stretch of a minute may hold no more than
    twenty steps. Saved: the time of the iterations that led to them.
    """
    if not evidence.now.progress.skipped_steps:
        return None
    lately, whole = _count(evidence), _count(evidence.whole)
    if lately is None or whole is None or lately[0] < _LEAST_LATELY or whole[0] < _LEAST_SKIPPED:
        return None
    skipped, steps = lately
    share = skipped / steps
    if whole[1] < _LEAST_STEPS or whole[0] < MIN_SHARE * whole[1]:
        return None
    lost_s = rise(evidence, "precision", "skipped_s")
    if lost_s is None:
        lost_s = share * evidence.iteration_s
    if share < MIN_SHARE or lost_s < MIN_SHARE * evidence.iteration_s:
        return None
    saved = evidence.share(lost_s)
    text = [f"{skipped:.0f} of {steps:.0f} optimizer steps were skipped ({percent(share)})"]
    remedies = [
        Remedy("COSTLENS_PRECISION=bf16 where the hardware has it: it needs no loss scale", saved),
        Remedy("Lower the learning rate, clip gradients, and look for a loss that is not finite"),
        Remedy("GradScaler(growth_interval=2000): the scale grows less often into the overflow"),
    ]
    return loss(_NAME, saved, text, remedies)


def _count(evidence: Evidence) -> tuple[float, float] | None:
    """Return how many steps were skipped, and how many there were; None where nobody counts."""
    skipped, made = (
        rise(evidence, "progress", name) for name in ("skipped_steps", "optimizer_steps")
    )
    return None if skipped is None or made is None else (skipped, skipped + made)


RULE = Rule(_NAME, _judge)
