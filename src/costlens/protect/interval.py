"""The time between two checkpoints that costs the least money, and the rails it must keep to.

Pure functions; ``save_plan.py`` feeds them what was measured. Symbols of the formulas: c money per
second, d stall of one save, lambda rate of failures that lose work, w seconds until a snapshot is
durable, k money per save, R restart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["CheckpointCosts", "IntervalDecision", "Rail", "Rails", "decide_interval", "optimum_s"]

Rail = Literal["optimum", "durability", "tolerable_loss", "overhead", "minimum", "maximum"]
"""What an interval was set by; ``optimum`` where no rail was in the way."""

_NEWTON_STEPS = 12
# Below it the closed form loses its digits to cancellation, and the first order has them all.
_SMALL = 1e-8
_DURABILITY_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class CheckpointCosts:
    """What a checkpoint and a failure cost.

    Args:
        stall_s: Seconds that training stands still for one save, >= 0.
        write_s: Seconds from the snapshot until it is durable, >= 0; 0 for a synchronous save,
            whose whole write is the stall.
        slowdown: Share by which steps take longer while a write runs, >= 0.
        restart_s: Seconds from a failure until training goes on, >= 0: detection, scheduling, load.
        money_per_s: Money the whole job costs a second, > 0; None where no price is known, which
            leaves seconds to be minimised.
        money_per_save: Requests, transfer and minimum storage of one save, in money, >= 0.
        money_per_failure: Money a failure costs beyond its time, >= 0.
    """

    stall_s: float
    write_s: float = 0.0
    slowdown: float = 0.0
    restart_s: float = 0.0
    money_per_s: float | None = None
    money_per_save: float = 0.0
    money_per_failure: float = 0.0

    def __post_init__(self) -> None:
        for name in ("stall_s", "write_s", "slowdown", "restart_s", "money_per_save"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")

    def cost_of_save_s(self, interval_s: float) -> float:
        """Return the seconds one save costs: its stall and the slower steps beside its write."""
        return self.stall_s + self.slowdown * min(self.write_s, interval_s)

    @property
    def extra_s(self) -> float:
        """Return the seconds of the job that the money of one save would have bought."""
        return self.money_per_save / self.money_per_s if self.money_per_s else 0.0

    @property
    def failure_extra_s(self) -> float:
        """Return the seconds of the job that the money of one failure would have bought."""
        return self.money_per_failure / self.money_per_s if self.money_per_s else 0.0


@dataclass(frozen=True, slots=True)
class Rails:
    """Limits of the interval, in the order in which they yield.

    Args:
        max_loss_s: Most seconds of work that a failure may lose; None for no limit.
        overhead_budget: Most share of the time that saving may cost, in (0, 1].
        min_s: Shortest interval: one optimizer step, > 0.
        max_s: Longest interval, > 0.
    """

    max_loss_s: float | None = None
    overhead_budget: float = 0.1
    min_s: float = 1e-3
    max_s: float = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class IntervalDecision:
    """An interval and why it is that long.

    Args:
        interval_s: Useful seconds between two snapshots.
        optimum_s: What would cost the least, before the rails.
        rail: What set it.
        worst_loss_s: Most seconds of work a failure can lose with it.
        is_loss_kept: Whether ``worst_loss_s`` is within the limit; True without one.
    """

    interval_s: float
    optimum_s: float
    rail: Rail
    worst_loss_s: float
    is_loss_kept: bool


def optimum_s(costs: CheckpointCosts, failure_rate_per_s: float) -> float:
    """Return the useful seconds between two snapshots that cost the least money.

    With exponential failures, one write in flight and a rollback to the last durable snapshot, the
    money per useful second is ``exp(lambda w) / tau * [A (exp(lambda (tau + d)) - 1) + k]`` with
    ``A = c (1/lambda + R) + kf``. Its minimum is at
    ``[1 + W0(-(1 - k/A) exp(-(1 + lambda d)))] / lambda``, W0 being Lambert's principal branch.
    With k = 0 this is the optimum of Daly (2006), and its first order is Young's (1974)
    ``sqrt(2 (d + k/c) / lambda)``.

    Args:
        costs: What a save and a failure cost.
        failure_rate_per_s: Failures a second that lose work, > 0.

    Raises:
        ValueError: If the rate is not positive and finite.
    """
    rate = failure_rate_per_s
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"failure_rate_per_s must be finite and > 0, got {rate}")
    first_s = math.sqrt(2 * (costs.cost_of_save_s(math.inf) + costs.extra_s) / rate)
    save_s = costs.cost_of_save_s(first_s)
    if rate * (save_s + costs.extra_s) < _SMALL:
        return math.sqrt(2 * (save_s + costs.extra_s) / rate)
    per_failure_s = 1 / rate + costs.restart_s + costs.failure_extra_s
    share = 1 - costs.extra_s / per_failure_s
    return (1 + _lambert(-share * math.exp(-(1 + rate * save_s)))) / rate


def decide_interval(
    costs: CheckpointCosts, failure_rate_per_s: float, rails: Rails
) -> IntervalDecision:
    """Return the cheapest interval that the rails allow.

    In order of authority: a snapshot is durable before the next one begins; no more work is at
    stake than the user tolerates; saving takes no more than its budget; the absolute bounds.

    Args:
        costs: What a save and a failure cost.
        failure_rate_per_s: Failures a second that lose work, > 0.
        rails: The limits.

    Raises:
        ValueError: If the rate is not positive and finite.
    """
    best_s = optimum_s(costs, failure_rate_per_s)
    interval_s, rail = _within(best_s, rails.min_s, rails.max_s)
    budget_s = (costs.cost_of_save_s(interval_s) + costs.extra_s) / rails.overhead_budget
    if interval_s < budget_s:
        interval_s, rail = budget_s, "overhead"
    delay_s = costs.write_s + costs.stall_s
    if rails.max_loss_s is not None and interval_s > rails.max_loss_s - delay_s:
        interval_s, rail = max(rails.min_s, rails.max_loss_s - delay_s), "tolerable_loss"
    durable_s = costs.write_s * _DURABILITY_MARGIN
    if interval_s < durable_s:
        interval_s, rail = durable_s, "durability"
    worst_s = interval_s + delay_s
    return IntervalDecision(
        interval_s=interval_s,
        optimum_s=best_s,
        rail=rail,
        worst_loss_s=worst_s,
        # Adding up again must not break a limit that was kept to the last digit.
        is_loss_kept=rails.max_loss_s is None or worst_s <= rails.max_loss_s * (1 + 1e-9),
    )


def _within(value_s: float, low_s: float, high_s: float) -> tuple[float, Rail]:
    if value_s < low_s:
        return low_s, "minimum"
    return (high_s, "maximum") if value_s > high_s else (value_s, "optimum")


def _lambert(x: float) -> float:
    """Return W0(x) for x in [-1/e, 0): the w >= -1 with ``w exp(w) = x``."""
    # A series around the branch point -1/e starts Newton's method on the right side of it.
    p = math.sqrt(max(0.0, 2 * (math.e * x + 1)))
    w = -1 + p - p * p / 3 + 11 / 72 * p**3
    for _ in range(_NEWTON_STEPS):
        slope = math.exp(w) * (1 + w)
        if slope <= 0:
            break
        step = (w * math.exp(w) - x) / slope
        w -= step
        if abs(step) < 1e-15:
            break
    return max(w, -1.0)
