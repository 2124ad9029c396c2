"""Which work of a run survived: steps that were done again are lost, the others make goodput.

Works on the steps where attempts began and ended, which doorways observe; what a doorway does not
know stays unknown.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction

from costlens.account.attempts import group_attempts
from costlens.account.cost import Charge, format_money, idle_device_ns
from costlens.core.clock import NS_PER_S
from costlens.core.goodput_record import GoodputPart, SpentPart
from costlens.core.job_records import QueuePart
from costlens.core.phases import NAMES, Phase
from costlens.core.records import Outcome, RankRecord
from costlens.core.run_record import AttemptSummary

__all__ = ["LOST_WORK", "PRODUCTIVE_PHASES", "count_lost_steps", "divide_time", "tell_queue"]

PRODUCTIVE_PHASES: tuple[Phase, ...] = (
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.OPTIMIZER,
    Phase.COMPUTE,
)
"""The phases that train the model; all others are the price of doing so."""

LOST_WORK = "lost_work"
"""The cause of badput that is no phase: training that did not survive."""

_IDLE_DEVICE = Phase.IDLE_DEVICE.name.lower()
_TRAINING = frozenset(phase.name.lower() for phase in PRODUCTIVE_PHASES)
_CAUSES = (*(name for name in NAMES if name not in _TRAINING), LOST_WORK)
_MAY_GO_ON = frozenset({Outcome.RUNNING, Outcome.COMPLETED, Outcome.STOPPED_EARLY})
_EXACT = Context(prec=60)


def count_lost_steps(
    attempts: Sequence[AttemptSummary], steps_made: Mapping[int, int]
) -> dict[int, int] | None:
    """Return how many optimizer steps of each attempt did not survive; None when unknown.

    Where an attempt resumes at a step, everything reached beyond that step is lost, whichever
    attempt had made it. Of a run that ended badly, what lies beyond the last save is lost as well,
    until an attempt goes on from somewhere else.

    Args:
        attempts: The attempts in order.
        steps_made: Optimizer steps each attempt made, by its number.
    """
    lost = dict.fromkeys(steps_made, 0)
    surviving: list[tuple[int, int, int]] = []  # attempt, first step, last step
    for attempt in attempts:
        made = steps_made[attempt.number]
        start = attempt.start_step
        if start is None and attempt.end_step is not None:
            start = attempt.end_step - made
        if start is None:
            if made == 0 and attempt.outcome is not Outcome.RUNNING:
                continue  # it never got to a step, so nothing tells where it would have resumed
            if len(attempts) == 1:
                break
            return None
        surviving = _cut_back(surviving, start, lost)
        # A process that was killed may have counted a step and not yet said where it stands.
        end = max(start + made, attempt.end_step or 0)
        surviving.append((attempt.number, start, end))
    saved = _saved_step(attempts)
    if saved is not None:
        _cut_back(surviving, saved, lost)
    return {number: min(count, steps_made[number]) for number, count in lost.items()}


def _saved_step(attempts: Sequence[AttemptSummary]) -> int | None:
    """Return the step that a run which ended badly could resume at; None if it need not, or so."""
    if not attempts or attempts[-1].outcome in _MAY_GO_ON:
        return None
    return next((a.saved_step for a in reversed(attempts) if a.saved_step is not None), None)


def _cut_back(
    surviving: list[tuple[int, int, int]], resumed_at: int, lost: dict[int, int]
) -> list[tuple[int, int, int]]:
    kept = []
    for number, start, end in surviving:
        lost[number] += max(0, end - max(start, resumed_at))
        if start < resumed_at:
            kept.append((number, start, min(end, resumed_at)))
    return kept


class _Pile:
    """Nanoseconds and, where every part of it has a price, money."""

    def __init__(self) -> None:
        self.time_ns = 0
        self.money = Decimal(0)

    def add(self, time_ns: int, money: Decimal) -> None:
        self.time_ns += time_ns
        self.money = _EXACT.add(self.money, money)

    def show(self, *, is_priced: bool) -> SpentPart:
        return SpentPart(
            time_s=self.time_ns / NS_PER_S,
            money=format_money(self.money) if is_priced else None,
        )


def divide_time(
    records: Sequence[RankRecord],
    charges: Sequence[Charge],
    attempts: Sequence[AttemptSummary],
    lost_steps: Mapping[int, int] | None,
) -> GoodputPart:
    """Return paid time and money by what came of them.

    Of an attempt that lost some of its steps, the same share of its training is lost work: lost
    steps are taken to have cost what its average step did.

    Args:
        records: One record per attempt and rank.
        charges: What those of them cost whose price is known.
        attempts: The attempts in order.
        lost_steps: Optimizer steps that did not survive, by attempt; None when unknown.
    """
    money = {(c.record.attempt.number, c.record.rank.rank): c.by_phase for c in charges}
    is_priced = len({charge.currency for charge in charges}) == 1
    shares = _lost_shares(records, attempts, lost_steps)
    training, lost = _Pile(), _Pile()
    badput: defaultdict[str, _Pile] = defaultdict(_Pile)
    for record in records:
        number = record.attempt.number
        by_phase = money.get((number, record.rank.rank), {})
        badput[_IDLE_DEVICE].add(idle_device_ns(record), Decimal(0))
        for name in {**record.time_ns, **by_phase}:
            spent = record.time_ns.get(name, 0), by_phase.get(name, Decimal(0))
            if name not in _TRAINING:
                badput[name].add(*spent)
                continue
            training.add(*spent)
            if shares is not None:
                lost.add(*_take(spent, shares[number]))
    total_ns = training.time_ns + sum(pile.time_ns for pile in badput.values())
    productive = None
    if shares is not None:
        productive = _Pile()
        productive.add(training.time_ns - lost.time_ns, _EXACT.subtract(training.money, lost.money))
        badput[LOST_WORK] = lost
    ordered = sorted((n for n in badput if badput[n].time_ns or badput[n].money), key=_order)
    return GoodputPart(
        share=productive.time_ns / total_ns if productive is not None and total_ns else None,
        training=training.show(is_priced=is_priced),
        productive=None if productive is None else productive.show(is_priced=is_priced),
        badput={name: badput[name].show(is_priced=is_priced) for name in ordered},
        unpaid_s=_count_unpaid(attempts),
    )


def _order(cause: str) -> tuple[int, str]:
    return (_CAUSES.index(cause) if cause in _CAUSES else len(_CAUSES), cause)


def _lost_shares(
    records: Sequence[RankRecord],
    attempts: Sequence[AttemptSummary],
    lost_steps: Mapping[int, int] | None,
) -> dict[int, Fraction] | None:
    """Return the share of each attempt's training that did not survive; None when unknown."""
    made_by: dict[int, int] = {}
    for number, group in group_attempts(records).items():
        seen = [record.progress.optimizer_steps for record in group]
        known = [steps for steps in seen if steps is not None]
        if known:
            made_by[number] = max(known)
        elif any(record.progress.iterations for record in group):
            return None
    if lost_steps is None or not made_by:
        return None
    shares = {}
    for number in lost_steps:
        made = made_by.get(number, 0)
        is_over = number != attempts[-1].number or attempts[-1].outcome not in _MAY_GO_ON
        # Training that came to no step at all is lost as soon as nobody goes on with it.
        shares[number] = Fraction(lost_steps[number], made) if made else Fraction(int(is_over))
    return shares


def _take(spent: tuple[int, Decimal], share: Fraction) -> tuple[int, Decimal]:
    time_ns, money = spent
    top, bottom = share.numerator, share.denominator
    part = _EXACT.divide(_EXACT.multiply(money, Decimal(top)), Decimal(bottom))
    return time_ns * top // bottom, part.quantize(money, context=_EXACT)


def _count_unpaid(attempts: Sequence[AttemptSummary]) -> dict[str, float]:
    if len(attempts) < 2:
        return {}
    # Two hosts' clocks: what looks negative is told among the problems, and counts as nothing.
    gaps_s = [max(0.0, b.start_time - _ended(a)) for a, b in itertools.pairwise(attempts)]
    return {"down": sum(gaps_s)}


def tell_queue(goodput: GoodputPart, queue: QueuePart) -> GoodputPart:
    """Return the goodput with the waits for allocations, which are unpaid as well.

    A wait of a later attempt is a part of the time in which the job was down: it counts once.

    Args:
        goodput: Without them.
        queue: What the job waited, over its allocations.
    """
    if not queue.waits:
        return goodput
    waits_s = {wait.attempt: wait.wait_s + (wait.deferral_s or 0.0) for wait in queue.waits}
    unpaid_s = {**goodput.unpaid_s, "queue": sum(waits_s.values())}
    if "down" in unpaid_s:
        while_down_s = sum(s for attempt, s in waits_s.items() if attempt > min(waits_s))
        unpaid_s["down"] = max(0.0, unpaid_s["down"] - while_down_s)
    return goodput.model_copy(update={"unpaid_s": unpaid_s})


def _ended(attempt: AttemptSummary) -> float:
    return attempt.heartbeat_time if attempt.end_time is None else attempt.end_time
