"""Finds restart loops: attempts that end badly again and again without getting any further.

Pure; works on the merged attempts in order. ``account/ledger.py`` puts what is found into the
merged record, ``gang.py`` asks whether a running attempt has left the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from costlens.account.cost import format_money
from costlens.core.gang_records import RestartLoopPart
from costlens.core.records import Outcome, RankRecord
from costlens.core.run_record import AttemptSummary, CostPart

__all__ = ["MIN_LOOP", "count_work", "find_restart_loop", "is_past"]

MIN_LOOP = 3
"""From how many attempts on it is a loop: two bad ends at one step may be chance."""

_BAD = frozenset({Outcome.FAILED, Outcome.LOST, Outcome.PREEMPTED})
# A killed rank's last steps are missing in its record, so that two ends at one step may look apart
# by a window's worth; an attempt must add a twentieth of what it made to have got further.
_NEARLY = 20


@dataclass
class _Streak:
    """Attempts in a row that got no further, after the one that first came to where they end."""

    leader: AttemptSummary | None = None
    repeats: list[AttemptSummary] = field(default_factory=list)

    @property
    def attempts(self) -> list[AttemptSummary]:
        return [*([] if self.leader is None else [self.leader]), *self.repeats]


def count_work(records: Sequence[RankRecord]) -> dict[int, int]:
    """Return what each attempt made, by its number: steps, or iterations where none are watched."""
    work: dict[int, int] = {}
    for record in records:
        progress, number = record.progress, record.attempt.number
        made = progress.optimizer_steps
        work[number] = max(work.get(number, 0), progress.iterations if made is None else made)
    return work


def find_restart_loop(
    attempts: Sequence[AttemptSummary], work: Mapping[int, int], cost: CostPart
) -> RestartLoopPart | None:
    """Return the loop that the run is in, or None.

    The attempts in it ended badly, one after the other up to the newest, at nearly the same step or
    without a step. One that is running leaves the loop when it gets further.

    Args:
        attempts: All attempts in order.
        work: What each made, from :func:`count_work`.
        cost: What they cost.
    """
    streak, furthest = _Streak(), None
    before: AttemptSummary | None = None
    for attempt in attempts:
        repeats = _repeats(attempt, before, furthest, work)
        if attempt.outcome is Outcome.RUNNING:
            if work[attempt.number] and not repeats:
                return None
            continue
        if attempt.outcome not in _BAD or not repeats:
            streak = _Streak()
        elif streak.repeats or before is None:
            streak.repeats.append(attempt)
        else:
            leads = _ends_at(before, attempt, furthest, work)
            streak = _Streak(before if leads else None, [attempt])
        reached = _reached(attempt, work)
        furthest = reached if furthest is None else max(furthest, reached or 0)
        before = attempt
    return _describe(streak, work, cost) if len(streak.attempts) >= MIN_LOOP else None


def is_past(loop: RestartLoopPart, reached: int | None, made: int) -> bool:
    """Return whether a running attempt has got further than a loop.

    Args:
        loop: The loop of the attempts before it.
        reached: The optimizer step reached, on the scale of ``loop.step``; None when unknown.
        made: Steps it made.
    """
    if reached is not None and loop.step is not None:
        return reached - loop.step > _tolerance(made)
    return made > (loop.num_steps or 0)


def _reached(attempt: AttemptSummary, work: Mapping[int, int]) -> int | None:
    if attempt.end_step is not None:
        return attempt.end_step
    return None if attempt.start_step is None else attempt.start_step + work[attempt.number]


def _repeats(
    attempt: AttemptSummary,
    before: AttemptSummary | None,
    furthest: int | None,
    work: Mapping[int, int],
) -> bool:
    """Return whether an attempt got no further than those before it."""
    made, reached = work[attempt.number], _reached(attempt, work)
    if made == 0:
        return True
    if reached is not None:
        return furthest is not None and reached - furthest <= _tolerance(made)
    # Where it resumed is unknown: only the very same end speaks for the same place.
    return before is not None and _signature(before, work) == _signature(attempt, work)


def _ends_at(
    leader: AttemptSummary, attempt: AttemptSummary, furthest: int | None, work: Mapping[int, int]
) -> bool:
    """Return whether the attempt before a streak ended badly where the streak's first one did."""
    if leader.outcome not in _BAD or work[leader.number] == 0:
        return False
    reached = _reached(attempt, work)
    if reached is None or furthest is None:
        return _signature(leader, work) == _signature(attempt, work)
    return abs(reached - furthest) <= _tolerance(work[attempt.number])


def _signature(attempt: AttemptSummary, work: Mapping[int, int]) -> tuple[object, ...]:
    return (work[attempt.number], attempt.outcome, attempt.error_type)


def _tolerance(made: int) -> int:
    return max(1, made // _NEARLY)


def _describe(streak: _Streak, work: Mapping[int, int], cost: CostPart) -> RestartLoopPart:
    attempts = streak.attempts
    steps = [step for each in attempts if (step := _reached(each, work)) is not None]
    errors = {attempt.error_type for attempt in attempts}
    money = [cost.by_attempt.get(str(attempt.number)) for attempt in streak.repeats]
    known = [Decimal(amount) for amount in money if amount is not None]
    is_priced = len(known) == len(money)
    return RestartLoopPart(
        num_attempts=len(attempts),
        first_attempt=attempts[0].number,
        last_attempt=attempts[-1].number,
        step=max(steps, default=None),
        num_steps=work[attempts[-1].number],
        since=attempts[0].start_time,
        error_type=errors.pop() if len(errors) == 1 else None,
        currency=cost.currency if is_priced else None,
        money=format_money(sum(known, Decimal(0))) if is_priced else None,
    )
