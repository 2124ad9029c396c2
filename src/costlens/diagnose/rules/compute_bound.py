"""compute_bound: the time goes into training, as it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Finding, Rule, Severity, Verdict
from costlens.diagnose.measures import is_on_device, percent

if TYPE_CHECKING:
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "compute_bound"

# A tenth for everything else is what well-fed jobs have.
_LEAST_SHARE = 0.85

_TRAINING = ("forward", "backward", "optimizer", "compute")


def _judge(evidence: Evidence) -> Verdict:
    """Say so where nearly all time goes into the model; it saves nothing and is no fault."""
    trained = evidence.trained_s
    if trained <= 0:
        return None
    useful_s = sum(evidence.time_s[name] for name in _TRAINING)
    idle = evidence.idle_s if is_on_device(evidence) else None
    share = max(0.0, useful_s - (idle or 0.0)) / trained
    if share < _LEAST_SHARE:
        return None
    text = f"{percent(share)} of the training's time go into forward, backward and optimizer"
    return Finding(_NAME, Severity.INFO, None, (text,), ())


RULE = Rule(_NAME, _judge)
