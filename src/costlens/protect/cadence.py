"""When to save, learnt from the saves so far: the clockwork between the policy and the loop.

Belongs to the training thread of the rank that decides (rank 0). Measures the stall, the time until
a snapshot is durable, and how much slower steps are beside a write; asks ``save_plan.py`` for the
next save after each.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from costlens.core.clock import NS_PER_S
from costlens.protect.interval import CheckpointCosts, Rails
from costlens.protect.save_plan import FIRST_SAVE_S, SavePlan, plan_save

__all__ = ["Cadence", "Carried"]

_NUM_REMEMBERED = 7
_NS = float(NS_PER_S)


@dataclass(frozen=True, slots=True)
class Carried:
    """What earlier attempts of the run have measured; a new one need not find out again.

    Args:
        stall_s: Seconds of one stall.
        write_s: Seconds until a snapshot was durable.
        slowdown: Share by which steps took longer beside a write.
    """

    stall_s: float
    write_s: float
    slowdown: float = 0.0


@dataclass(slots=True)
class _StepTimes:
    """Mean seconds of a step, with all that lies between two of them but saves."""

    num: int = 0
    sum_ns: int = 0

    def add(self, passed_ns: int) -> None:
        self.num += 1
        self.sum_ns += passed_ns

    @property
    def mean_s(self) -> float | None:
        return self.sum_ns / self.num / _NS if self.num and self.sum_ns else None


@dataclass(slots=True)
class Cadence:
    """Says whether a save is due.

    Args:
        rails: The limits of the interval.
        failure_rate_per_s: Returns the rate that is believed now; asked once a save.
        money_per_s: Returns the money that the whole job costs a second, if it is known by now.
        money_per_save: Money of one save beyond its time.
        restart_s: Seconds from a failure until training goes on.
        carried: What earlier attempts have measured, if they did.
        lead_s: Seconds before a save is due at which to say so: what several ranks take to agree.

    Attributes:
        plan: The plan in force; None before the second step.
        due_ns: Monotonic time from which a save is due.
    """

    rails: Rails
    failure_rate_per_s: Callable[[], float]
    money_per_s: Callable[[], float | None] = lambda: None
    money_per_save: float = 0.0
    restart_s: float = 0.0
    carried: Carried | None = None
    lead_s: float = 0.0
    plan: SavePlan | None = field(default=None, init=False)
    due_ns: int | None = field(default=None, init=False)
    _before_ns: int | None = field(default=None, init=False)
    _calm: _StepTimes = field(default_factory=_StepTimes, init=False)
    _beside: _StepTimes = field(default_factory=_StepTimes, init=False)
    _stalls_s: deque[float] = field(
        default_factory=lambda: deque(maxlen=_NUM_REMEMBERED), init=False
    )
    _writes_s: deque[float] = field(
        default_factory=lambda: deque(maxlen=_NUM_REMEMBERED), init=False
    )

    def note_step(self, step: int, now_ns: int, *, is_writing: bool) -> bool:
        """Return whether a save is due after this step; training thread, about 0.5 µs.

        Args:
            step: Optimizer steps done.
            now_ns: Monotonic time.
            is_writing: Whether a save was in flight during the step.
        """
        before_ns, self._before_ns = self._before_ns, now_ns
        if before_ns is None:  # the first step of an attempt warms up
            first_s = min(FIRST_SAVE_S, self.rails.max_loss_s or FIRST_SAVE_S)
            self.due_ns = now_ns + int(first_s * _NS)
            return False
        (self._beside if is_writing else self._calm).add(now_ns - before_ns)
        if self.plan is None:
            self._plan(step, now_ns)
        return self.is_due(now_ns)

    def is_due(self, now_ns: int) -> bool:
        """Return whether a save is due at a monotonic time."""
        return self.due_ns is not None and now_ns + self.lead_s * _NS >= self.due_ns

    def note_stall(self, step: int, stall_s: float, end_ns: int) -> None:
        """Take what a snapshot cost, and plan the next save from its end."""
        self._stalls_s.append(stall_s)
        self._before_ns = end_ns  # the stall is no part of the next step
        self._plan(step, end_ns)

    def note_durable(self, write_s: float) -> None:
        """Take how long a snapshot took until it was durable."""
        self._writes_s.append(write_s)

    @property
    def costs(self) -> CheckpointCosts | None:
        """Return what a save costs, as measured so far by this attempt or an earlier one."""
        if self._stalls_s:
            stall_s = statistics.median(self._stalls_s)
            known = self.carried.write_s if self.carried else 0.0
            write_s = statistics.median(self._writes_s) if self._writes_s else known
            slowdown = self._slowdown()
        elif self.carried is not None:
            stall_s, write_s = self.carried.stall_s, self.carried.write_s
            slowdown = self.carried.slowdown
        else:
            return None
        return CheckpointCosts(
            stall_s,
            write_s,
            slowdown,
            self.restart_s,
            self.money_per_s(),
            self.money_per_save,
        )

    @property
    def step_s(self) -> float | None:
        """Return the mean seconds of a step beside no write; None before the second step."""
        return self._calm.mean_s or self._beside.mean_s

    def _plan(self, step: int, now_ns: int) -> None:
        step_s = self.step_s
        if step_s is None:
            return
        costs = self.costs
        # A store that has never answered is not proven: no interval follows from half the costs.
        if not self._writes_s and self.carried is None:
            costs = None
        self.plan = plan_save(
            costs,
            self.failure_rate_per_s(),
            self.rails,
            step=step,
            step_s=step_s,
            before=self.plan,
        )
        decision = self.plan.decision
        interval_s = FIRST_SAVE_S if decision is None else decision.interval_s
        if decision is None and self.due_ns is not None and not self._stalls_s:
            return  # the first save is due a minute after the first step
        if decision is None and self.rails.max_loss_s is not None:
            interval_s = min(interval_s, self.rails.max_loss_s)
        self.due_ns = now_ns + int(interval_s * _NS)

    def _slowdown(self) -> float:
        calm_s, beside_s = self._calm.mean_s, self._beside.mean_s
        if calm_s is None or beside_s is None or min(self._calm.num, self._beside.num) < 3:
            return self.carried.slowdown if self.carried else 0.0
        return max(0.0, beside_s / calm_s - 1)
