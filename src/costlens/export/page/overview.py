"""The head of the page: which run this is, how it stands, and its key figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord
from costlens.export.console_endings import show_outcome
from costlens.export.figures import (
    show_count,
    show_duration,
    show_money,
    show_rate,
    show_share,
    show_time,
)
from costlens.export.page.members import outcome_tone
from costlens.export.page.parts import Figure, Tone, known, unknown

__all__ = ["Head", "describe_head"]

_MAX_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Head:
    """What stands above all sections.

    Args:
        name: The run's name.
        run_id: The run's id.
        outcome: How the newest attempt ended, or that it runs.
        tone: How that is coloured.
        facts: What and where it ran, a phrase each.
        labels: What it was for, by label.
        alerts: What to know before reading on, a sentence each.
        figures: The key figures by what they are.
        stack: Where the training thread stood, or the error was raised.
    """

    name: str
    run_id: str
    outcome: str
    tone: Tone
    facts: Sequence[str]
    labels: Sequence[tuple[str, str]]
    alerts: Sequence[str]
    figures: Sequence[tuple[str, Figure]]
    stack: Sequence[str]


def describe_head(record: RunRecord, now: float) -> Head:
    """Return the head of the page.

    Args:
        record: The merged record.
        now: Unix time of the reader.
    """
    run, newest = record.run, record.attempts[-1]
    cause = (newest.preemption and newest.preemption.reason) or newest.error_type or newest.signal
    outcome = show_outcome(newest).replace("_", " ")
    words = newest.last_words
    stalled = [rank.stall for rank in record.ranks if rank.stall is not None]
    stack = words.stack if words is not None else stalled[0].stack if stalled else []
    return Head(
        name=run.name,
        run_id=run.id,
        outcome=f"{outcome} ({cause})" if cause else outcome,
        tone=outcome_tone(newest.outcome),
        facts=_facts(record),
        labels=[(name.replace("_", " "), value) for name, value in run.labels().items()],
        alerts=_alerts(record, now),
        figures=_figures(record),
        stack=stack[:_MAX_FRAMES],
    )


def _facts(record: RunRecord) -> list[str]:
    hosts = sorted({rank.host_name for rank in record.ranks})
    place = hosts[0] if len(hosts) == 1 else _plural(len(hosts), "host")
    devices = " and ".join(sorted({rank.device for rank in record.ranks}))
    wall_s = sum(attempt.wall_s for attempt in record.attempts)
    facts = [
        record.run.framework,
        devices,
        f"{_plural(len(record.ranks), 'rank')} on {place}",
        _plural(len(record.attempts), "attempt"),
        f"started {show_time(record.attempts[0].start_time)} UTC",
        f"{show_duration(wall_s)} of wall time",
    ]
    return [fact for fact in facts if fact]


def _plural(count: int, noun: str) -> str:
    return f"{show_count(count)} {noun}" + ("" if count == 1 else "s")


def _alerts(record: RunRecord, now: float) -> list[str]:
    newest = record.attempts[-1]
    alerts = []
    if record.run.debug:
        alerts.append(f"This is a debug run: {record.run.debug}.")
    age_s = max(0.0, now - newest.heartbeat_time)
    if newest.outcome is Outcome.RUNNING:
        seen = f"The run is alive: its last heartbeat was {show_duration(age_s)} before this page."
        alerts.append(f"{seen} Figures are so far.")
    if newest.outcome is Outcome.LOST:
        alerts.append(
            f"The run ended without saying so, last seen at {show_time(newest.heartbeat_time)} UTC."
        )
    alerts += [
        f"Rank {rank.rank} has not moved in {rank.stall.phase} for "
        f"{show_duration(rank.stall.age_s)} (limit {show_duration(rank.stall.limit_s)})."
        for rank in record.ranks[:64]
        if rank.stall is not None
    ][:4]
    if newest.last_words is not None and newest.last_words.oom_kills:
        alerts.append("The kernel killed processes of it for lack of memory.")
    if newest.num_ranks < newest.world_size:
        alerts.append(
            f"{newest.num_ranks:,} of {newest.world_size:,} ranks left a record: totals leave the "
            "others out."
        )
    return alerts


def _figures(record: RunRecord) -> list[tuple[str, Figure]]:
    return [
        ("paid", _total(record)),
        ("goodput", _goodput(record)),
        ("spent on waste", _waste(record)),
        _unit_cost(record),
        ("median iteration", _median(record)),
        _rate(record),
        ("optimizer steps", _steps(record)),
        ("GPUs busy", _busy(record)),
    ]


def _total(record: RunRecord) -> Figure:
    cost = record.cost
    if cost.total is None:
        if cost.by_currency:
            told = " + ".join(show_money(m, c) for c, m in sorted(cost.by_currency.items()))
            return Figure(told, why="several currencies, which are never added")
        return unknown(cost.unknown or "no price", "cost.total")
    rate = cost.rate_per_hour and f"{show_money(cost.rate_per_hour, cost.currency)} an hour"
    partial = "a part of the run has no price" if cost.is_partial else None
    why = "; ".join(fact for fact in (rate, partial) if fact)
    return Figure(show_money(cost.total, cost.currency), cost.total, "cost.total", why or None)


def _goodput(record: RunRecord) -> Figure:
    share = record.goodput.share
    if share is None:
        return unknown("nobody tells at which steps attempts began", "goodput.share")
    why = "of paid time in steps that survived"
    return Figure(show_share(share), str(share), "goodput.share", why)


def _waste(record: RunRecord) -> Figure:
    part, cost = record.goodput, record.cost
    total_s = record.time_s.get("total", 0.0)
    largest = max(part.badput.items(), key=lambda item: item[1].time_s, default=None)
    why = None
    if largest is not None and total_s > 0:
        why = f"most: {largest[0].replace('_', ' ')}, {show_share(largest[1].time_s / total_s)}"
    if cost.total is None or part.productive is None or part.productive.money is None:
        return unknown(cost.unknown or why or "how much work survived is unknown")
    money = f"{Decimal(cost.total) - Decimal(part.productive.money):f}"
    return Figure(show_money(money, cost.currency), money, None, why)


def _unit_cost(record: RunRecord) -> tuple[str, Figure]:
    cost = record.cost
    units = {
        "per_million_productive_tokens": "per million productive tokens",
        "per_million_tokens": "per million tokens",
        "per_productive_step": "per productive step",
        "per_step": "per optimizer step",
    }
    for name, words in units.items():
        money = getattr(cost, name)
        if money is not None:
            return words, known(show_money(money, cost.currency), money, f"cost.{name}")
    why = cost.unknown or "neither tokens nor steps are counted"
    return "per million tokens", unknown(why, "cost.per_million_tokens")


def _median(record: RunRecord) -> Figure:
    part = record.iteration_time
    if part.median_s is None:
        return unknown("no iteration has been timed", "iteration_time.median_s")
    why = None if part.p99_s is None else f"99 in 100 within {show_duration(part.p99_s)}"
    path = "iteration_time.median_s"
    return Figure(show_duration(part.median_s), str(part.median_s), path, why)


def _rate(record: RunRecord) -> tuple[str, Figure]:
    rates = record.rates
    units = {
        "tokens_per_s": "tokens a second",
        "samples_per_s": "samples a second",
        "iterations_per_s": "iterations a second",
    }
    for name, words in units.items():
        rate = getattr(rates, name)
        if rate is not None:
            return words, known(show_rate(rate), rate, f"rates.{name}")
    return "iterations a second", unknown("no iteration has been timed", "rates.iterations_per_s")


def _steps(record: RunRecord) -> Figure:
    progress = record.progress
    if progress.optimizer_steps is None:
        return unknown("no optimizer is watched", "progress.optimizer_steps")
    lost = progress.lost_steps and f"{show_count(progress.lost_steps)} done again or lost"
    skipped = progress.skipped_steps and f"{show_count(progress.skipped_steps)} skipped"
    goal = progress.total_steps and f"of {show_count(progress.total_steps)} planned"
    why = "; ".join(fact for fact in (goal, lost, skipped) if fact) or None
    steps = progress.optimizer_steps
    return Figure(show_count(steps), str(steps), "progress.optimizer_steps", why)


def _busy(record: RunRecord) -> Figure:
    share = record.gpu.utilization
    if share is None:
        return unknown(record.gpu.unknown or "the driver does not tell", "gpu.utilization")
    why = "simulated" if record.gpu.is_simulated else "mean over devices and attempts"
    return Figure(show_share(share), str(share), "gpu.utilization", why)
