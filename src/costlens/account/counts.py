"""Totals of a run's counts over ranks and attempts; what one training rank hides, the run lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from costlens.core.records import RankRecord
from costlens.core.run_record import RunProgress
from costlens.core.training_records import ProgressPart

__all__ = ["merge_progress", "steps_made", "sum_count"]

_MADE_TOGETHER = ("iterations", "optimizer_steps", "skipped_steps")
_SUMMED = ("micro_batches", "validation_batches", "test_batches")
_OPTIONAL = ("samples", "slots", "tokens", "loss_tokens")


def sum_count(parts: Iterable[ProgressPart], name: str) -> int | None:
    """Return the sum of a count; None when nobody, or not every rank that iterated, reports it.

    Args:
        parts: One part per rank and attempt.
        name: A count that may be absent, such as ``tokens``.
    """
    values: list[int] = []
    for part in parts:
        value = getattr(part, name)
        if value is not None:
            values.append(value)
        elif part.iterations > 0:
            return None
    return sum(values) if values else None


def steps_made(records: Iterable[RankRecord]) -> dict[int, int]:
    """Return the optimizer steps of each attempt by its number, those of the rank furthest on."""
    made: dict[int, int] = {}
    for record in records:
        number = record.attempt.number
        made[number] = max(made.get(number, 0), record.progress.optimizer_steps or 0)
    return made


def merge_progress(
    records: Sequence[RankRecord], lost_steps: Mapping[int, int] | None
) -> RunProgress:
    """Return the totals of a run.

    Samples, tokens and micro-batches are sums over ranks; iterations and steps are made by all
    ranks together, so an attempt counts those of the rank that got furthest.

    Args:
        records: One record per attempt and rank.
        lost_steps: Optimizer steps done again later, by attempt; None when unknown.
    """
    attempts: dict[int, list[ProgressPart]] = {}
    for record in records:
        attempts.setdefault(record.attempt.number, []).append(record.progress)
    together = {name: _sum_furthest(attempts.values(), name) for name in _MADE_TOGETHER}
    steps = together["optimizer_steps"]
    everyone = [record.progress for record in records]
    lost = None if lost_steps is None or steps is None else sum(lost_steps.values())
    totals = [part.total_steps for part in attempts[max(attempts)] if part.total_steps is not None]
    return RunProgress(
        **{**together, "iterations": together["iterations"] or 0},
        **{name: sum(getattr(part, name) for part in everyone) for name in _SUMMED},
        **{name: sum_count(everyone, name) for name in _OPTIONAL},
        total_steps=max(totals, default=None),
        lost_steps=lost,
        productive_steps=None if lost is None or steps is None else max(0, steps - lost),
    )


def _sum_furthest(attempts: Iterable[Sequence[ProgressPart]], name: str) -> int | None:
    """Return the sum over attempts of the rank furthest on; None if a training one hides it."""
    total = None
    for parts in attempts:
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        if values:
            total = (total or 0) + max(values)
        elif any(part.iterations for part in parts):
            return None
    return total
