"""Decides at which optimizer step the next checkpoint is due, and says why.

Pure; rank 0 decides, in steps, and the save itself carries the decision to the others: ranks never
decide by their own clocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costlens.protect.interval import CheckpointCosts, IntervalDecision, Rails, decide_interval

__all__ = ["FIRST_SAVE_S", "SavePlan", "plan_save"]

FIRST_SAVE_S = 60.0
"""The first save of a run comes so soon: it proves the store and measures the stall."""

# Being off by this factor costs under 0.2 % of the total; following every flicker would move the
# saves about for nothing.
_HYSTERESIS = 1.25


@dataclass(frozen=True, slots=True)
class SavePlan:
    """When the next save is due.

    Args:
        step: The optimizer step after which it is due.
        decision: The interval it follows from; None for the first save of a run.
        failure_rate_per_s: The rate that was believed.
    """

    step: int
    decision: IntervalDecision | None
    failure_rate_per_s: float


def plan_save(
    costs: CheckpointCosts | None,
    failure_rate_per_s: float,
    rails: Rails,
    *,
    step: int,
    step_s: float,
    before: SavePlan | None = None,
) -> SavePlan:
    """Return when the next save is due, counted from a save, or from the start, at ``step``.

    Args:
        costs: What saves cost, as measured in this run, by whichever attempt; None before the first
            save.
        failure_rate_per_s: Failures a second that lose work, > 0.
        rails: The limits; no interval is shorter than a step, whatever they say.
        step: The optimizer step just done.
        step_s: Seconds of a step, > 0: the median, with its share of waiting.
        before: The plan so far; its interval is kept while the best one is within a quarter of it
            and no rail speaks.

    Raises:
        ValueError: If the rate or ``step_s`` is not positive and finite.
    """
    if not (math.isfinite(step_s) and step_s > 0):
        raise ValueError(f"step_s must be finite and > 0, got {step_s}")
    if costs is None:
        first_s = min(FIRST_SAVE_S, rails.max_s, rails.max_loss_s or math.inf)
        return SavePlan(step + _steps(first_s, step_s), None, failure_rate_per_s)
    decision = decide_interval(costs, failure_rate_per_s, rails)
    if before is not None and before.decision is not None and _is_near(before.decision, decision):
        decision = before.decision
    return SavePlan(step + _steps(decision.interval_s, step_s), decision, failure_rate_per_s)


def _steps(interval_s: float, step_s: float) -> int:
    # Rounded down: a limit on the loss must hold. A quotient that is whole but for its last digit
    # is whole.
    return max(1, math.floor(interval_s / step_s + 1e-9))


def _is_near(before: IntervalDecision, after: IntervalDecision) -> bool:
    if before.rail != "optimum" or after.rail != "optimum":
        return False
    ratio = after.interval_s / before.interval_s
    return 1 / _HYSTERESIS <= ratio <= _HYSTERESIS
