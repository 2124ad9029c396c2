"""The precision of a run: what the newest attempt computes in, and what skipped steps cost.

Ranks and attempts that compute in different formats are named among the problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext

from costlens.account.cost import Charge, format_money
from costlens.account.money import EXACT, last_digit
from costlens.core.precision_records import PrecisionPart, PrecisionSummary
from costlens.core.records import RankRecord

__all__ = ["flag_precision", "merge_precision"]

_S_PER_HOUR = 3600


def merge_precision(
    attempts: Mapping[int, Sequence[RankRecord]],
    priced: Sequence[tuple[RankRecord, Charge | None]],
    skipped_steps: int | None,
) -> PrecisionSummary | None:
    """Return the precision of a run, or None where no record tells of one.

    Time and money are sums over ranks and attempts; choice and scale are those of the newest
    attempt's first rank that tells.

    Args:
        attempts: Records by attempt, attempts and ranks in order.
        priced: All records with what they cost, None where no price is known.
        skipped_steps: Those of the job over all attempts.
    """
    parts = [part for number in sorted(attempts) if (part := _first_part(attempts[number]))]
    if not parts:
        return None
    seconds = [part.skipped_s for record, _ in priced if (part := record.precision)]
    known = [skipped_s for skipped_s in seconds if skipped_s is not None]
    return PrecisionSummary(
        **parts[-1].model_dump(exclude={"skipped_steps", "skipped_s"}),
        skipped_steps=skipped_steps,
        skipped_s=sum(known) if known else None,
        skipped_cost=_price_skipped(priced),
    )


def flag_precision(attempts: Mapping[int, Sequence[RankRecord]]) -> list[str]:
    """Return a line for each attempt whose ranks differ, or that differs from the one before."""
    flags, before = [], ""
    for number in sorted(attempts):
        parts = [record.precision for record in attempts[number] if record.precision]
        names = sorted({part.effective for part in parts if part.effective})
        if len(names) > 1:
            flags.append(
                f"attempt {number}: ranks compute in {' and '.join(names)}; those that scale their "
                "gradients and those that do not spoil one another's"
            )
        elif names:
            if before and names[0] != before:
                flags.append(f"attempt {number} computes in {names[0]}, the one before in {before}")
            before = names[0]
    return flags


def _first_part(records: Sequence[RankRecord]) -> PrecisionPart | None:
    return next((record.precision for record in records if record.precision), None)


def _price_skipped(priced: Sequence[tuple[RankRecord, Charge | None]]) -> str | None:
    money, currencies = Decimal(0), set()
    with localcontext(EXACT):
        for record, charge in priced:
            part = record.precision
            if part is None or part.skipped_s is None:
                continue
            if charge is None:
                return None
            currencies.add(charge.currency)
            money += charge.own_rate_per_hour * Decimal(part.skipped_s) / _S_PER_HOUR
        if len(currencies) != 1:
            return None
        return format_money(money.quantize(last_digit(money)))
