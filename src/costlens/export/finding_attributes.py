"""What a rank finds of itself, as attributes of a period's span."""

from __future__ import annotations

from decimal import Decimal

from costlens.core.records import RankRecord

__all__ = ["finding_attributes"]


def finding_attributes(record: RankRecord) -> dict[str, str | float | None]:
    """Return the causes that last at the end of a period, the greatest first; None without any.

    ``costlens.finding`` is the greatest and ``costlens.findings`` all of them, so that a search may
    ask for either.
    """
    lasting = [part for part in record.findings if part.is_open]
    if not lasting:
        return {}
    rates = [part.money_per_hour for part in lasting]
    return {
        "costlens.finding": lasting[0].name,
        "costlens.finding.severity": lasting[0].severity,
        "costlens.finding.cost.rate": None if rates[0] is None else float(Decimal(rates[0])),
        "costlens.findings": ",".join(part.name for part in lasting),
    }
