"""Quality of a run: what the newest attempt saw, the best of all attempts, what reaching it cost.

Quality is rank 0's; its best values are placed in paid time, so money follows from the prices in
the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from costlens.account.cost import Charge, format_money
from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord
from costlens.core.training_records import QualityPart

__all__ = ["merge_quality"]


Priced = Sequence[tuple[RankRecord, Charge | None]]


def merge_quality(
    attempts: Mapping[int, Sequence[RankRecord]], priced: Priced
) -> dict[str, QualityPart]:
    """Return the quality metrics of a run.

    Values are those of the newest attempt that saw the metric, ``best*`` those of the attempt
    with the best value.

    Args:
        attempts: Records by attempt, attempts and ranks in order.
        priced: All records with what they cost, None where no price is known.
    """
    seen = {number: records[0].quality for number, records in attempts.items()}
    names = sorted({name for quality in seen.values() for name in quality})
    return {name: _merge_one(name, attempts, priced) for name in names}


def _merge_one(
    name: str, attempts: Mapping[int, Sequence[RankRecord]], priced: Priced
) -> QualityPart:
    parts = {
        number: records[0].quality[name]
        for number, records in attempts.items()
        if name in records[0].quality
    }
    newest = parts[max(parts)]
    scored = {number: part.best for number, part in parts.items() if part.best is not None}
    if not scored:
        return newest
    sign = -1.0 if newest.higher_is_better else 1.0
    number = min(scored, key=lambda number: (sign * scored[number], number))
    best = parts[number]
    before_s = (
        sum(records[0].total_ns for earlier, records in attempts.items() if earlier < number)
        / NS_PER_S
    )
    return newest.model_copy(
        update={
            "best": best.best,
            "best_iteration": best.best_iteration,
            "best_after_s": None if best.best_after_s is None else before_s + best.best_after_s,
            "cost_to_best": None
            if best.best_after_s is None
            else _cost_until(priced, number, best.best_after_s),
        }
    )


def _cost_until(priced: Priced, number: int, after_s: float) -> str | None:
    total, currencies = Decimal(0), set()
    for record, charge in priced:
        attempt = record.attempt.number
        if attempt > number:
            continue
        if charge is None:
            return None
        currencies.add(charge.currency)
        until_ns = min(record.total_ns, round(after_s * NS_PER_S))
        total += charge.total if attempt < number else charge.until(until_ns)
    return format_money(total) if len(currencies) == 1 else None
