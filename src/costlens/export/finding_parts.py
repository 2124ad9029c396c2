"""Findings as the records tell them, with their money: price × what mending them would save.

``diagnosing.py`` tells a rank's own while it runs, ``run_findings.py`` those of the merged run.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from typing import Any

from costlens.account.cost import Charge, charge_rank
from costlens.account.money import EXACT, format_money, last_digit
from costlens.core.finding_records import (
    MAX_FINDINGS,
    MAX_RANKS_NAMED,
    MAX_SENTENCES,
    MAX_TEXT,
    MAX_UNDECIDED,
    FindingPart,
    PlacePart,
    UndecidedPart,
)
from costlens.core.records import RankRecord
from costlens.diagnose.finding import Abstention, Finding
from costlens.diagnose.judge import importance
from costlens.diagnose.watch import Standing

__all__ = [
    "cut_text",
    "describe_finding",
    "describe_undecided",
    "own_parts",
    "show_amount",
    "take_share",
]

_S_PER_HOUR = 3600
_MAX_WORD = 100


def own_parts(standing: Iterable[Standing], record: RankRecord) -> list[FindingPart]:
    """Return what a rank tells of its own findings: what lasts first, then the most important.

    Args:
        standing: Those that have opened in the attempt.
        record: The rank's record, for the price.
    """
    in_order = sorted(
        standing,
        key=lambda each: (
            not each.is_open,
            *importance(each.finding.name, each.finding.severity, each.finding.saved_share),
        ),
    )
    charge = charge_rank(record)
    return [_own_part(each, record, charge) for each in in_order[:MAX_FINDINGS]]


def _own_part(each: Standing, record: RankRecord, charge: Charge | None) -> FindingPart:
    finding = each.finding
    money: dict[str, str] = {}
    if charge is not None and finding.saved_share is not None:
        rate, lost_s = charge.rate_per_hour, Decimal(f"{each.lost_s:.9f}")
        money = {
            "money_per_hour": show_amount(take_share(rate, finding.saved_share)),
            "money_so_far": show_amount(EXACT.divide(EXACT.multiply(rate, lost_s), _S_PER_HOUR)),
            "currency": charge.currency,
        }
    return describe_finding(
        finding,
        ranks=[record.rank.rank],
        num_ranks=1,
        share=finding.saved_share,
        since=max(0.0, each.since_time),
        is_open=each.is_open,
        **money,
    )


def describe_finding(finding: Finding, **facts: Any) -> FindingPart:
    """Return a finding as a record tells it; what is too long for a record is cut.

    Args:
        finding: What was found.
        **facts: The fields that it does not know itself; they go before those that it does.
    """
    remedies = finding.remedies[:MAX_SENTENCES]
    share = facts.pop("share", finding.saved_share)
    return FindingPart(
        **{
            "name": finding.name[:_MAX_WORD],
            "severity": finding.severity.value,
            "share": _clip(share),
            "is_least": finding.is_least,
            "evidence": [cut_text(text) for text in finding.evidence[:MAX_SENTENCES]],
            "remedies": [cut_text(remedy.text) for remedy in remedies],
            "remedy_shares": [_clip(remedy.saved_share) for remedy in remedies],
            "traceql": None if finding.traceql is None else cut_text(finding.traceql),
            "runbook": finding.name[:_MAX_WORD],
            "places": [
                PlacePart(
                    host_name=cut_text(place.host_name),
                    gpu_uuid=None if place.gpu_uuid is None else place.gpu_uuid[:_MAX_WORD],
                    pci_id=None if place.pci_id is None else place.pci_id[:_MAX_WORD],
                )
                for place in finding.places[:MAX_RANKS_NAMED]
            ],
            **facts,
        }
    )


def describe_undecided(abstentions: Iterable[Abstention]) -> list[UndecidedPart]:
    """Return what could not be told, as a record tells it."""
    return [
        UndecidedPart(name=each.name[:_MAX_WORD], missing=cut_text(each.missing))
        for each in abstentions
    ][:MAX_UNDECIDED]


def take_share(amount: Decimal, share: float) -> Decimal:
    """Return a share (0 to 1) of an amount of money; exact for the nine decimals of the share."""
    return EXACT.multiply(amount, Decimal(f"{share:.9f}"))


def show_amount(amount: Decimal) -> str:
    """Return an amount as a decimal string, cut to 1e-9 or to three digits where it is tiny."""
    with localcontext(EXACT):
        return format_money(amount.quantize(last_digit(amount)))


def _clip(share: float | None) -> float | None:
    return None if share is None else min(1.0, max(0.0, share))


def cut_text(text: str) -> str:
    """Return a text as long as a record takes it."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
