"""Why a run is slow: what its ranks have found of themselves, and what the whole shows, as one.

The rules look at the newest attempt from its begin, which is all there is of a short one; what a
long one has found of itself lately stands in the ranks' records, and counts as it is now. Each
cause is told once, with its ranks and the exact sum of its money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from costlens.account.cost import Charge, charge_rank
from costlens.account.money import add
from costlens.core.finding_records import MAX_FINDINGS, MAX_RANKS_NAMED, FindingPart
from costlens.core.records import RankRecord
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Finding, JobRule, Place, Remedy, Rule, Severity
from costlens.diagnose.job import JOB_RULES
from costlens.diagnose.job_evidence import JobEvidence
from costlens.diagnose.job_judge import (
    JobFinding,
    combine,
    explain_all_unjudged,
    judge_ranks,
    judge_together,
    list_undecided,
)
from costlens.diagnose.judge import Judgement, importance
from costlens.diagnose.rules import RULES
from costlens.export.finding_parts import (
    describe_finding,
    describe_undecided,
    show_amount,
    take_share,
)

__all__ = ["find_causes"]

Lasting = Mapping[int, Mapping[str, FindingPart]]


def find_causes(
    records: Sequence[RankRecord],
    rules: Sequence[Rule] = RULES,
    job_rules: Sequence[JobRule] = JOB_RULES,
) -> dict[str, Any]:
    """Return the fields of the merged record that say why a run is slow; pure.

    Args:
        records: The records of a run as the ledger takes them, at least one.
        rules: Those to ask about each rank.
        job_rules: Those to ask about all of them.
    """
    number = max(record.attempt.number for record in records)
    newest = sorted(
        (record for record in records if record.attempt.number == number),
        key=lambda record: record.rank.rank,
    )
    earlier = tuple(record for record in records if record.attempt.number < number)
    evidence = JobEvidence(tuple(Evidence(record) for record in newest), earlier)
    by_rank, job = judge_ranks(evidence, rules), judge_together(evidence, job_rules)
    told = {r.rank.rank: {part.name: part for part in r.findings} for r in newest}
    lasting: Lasting = {
        rank: {name: part for name, part in parts.items() if part.is_open}
        for rank, parts in told.items()
    }
    found = combine(
        evidence,
        {rank: _as_they_are(by_rank[rank].findings, lasting[rank]) for rank in by_rank},
        job.findings,
    )
    bill = _Bill(evidence, by_rank, told)
    parts = [_describe(each, bill) for each in found[:MAX_FINDINGS]]
    has_any = any(lasting.values())
    return {
        "findings": _put_in_order(parts),
        "undecided": describe_undecided(
            list_undecided([job, *by_rank.values()], {part.name for part in parts})
        ),
        "unjudged": None if has_any else explain_all_unjudged(by_rank.values()),
    }


def _as_they_are(findings: Sequence[Finding], lasting: Mapping[str, FindingPart]) -> list[Finding]:
    """Return what the whole attempt shows with its present shares, and what lasts besides."""
    seen = {finding.name for finding in findings}
    return [
        *(_as_it_is(finding, lasting.get(finding.name)) for finding in findings),
        *(_restore(part) for name, part in lasting.items() if name not in seen),
    ]


def _as_it_is(finding: Finding, part: FindingPart | None) -> Finding:
    """Return it with present shares; its remedies' have to be parts of the same time."""
    if part is None:
        return finding
    now = _restore(part)
    return replace(
        finding, saved_share=now.saved_share, remedies=now.remedies, is_least=now.is_least
    )


def _restore(part: FindingPart) -> Finding:
    shares = [*part.remedy_shares, *[None] * len(part.remedies)]
    return Finding(
        part.name,
        Severity(part.severity),
        part.share,
        tuple(part.evidence),
        tuple(Remedy(text, share) for text, share in zip(part.remedies, shares, strict=False)),
        part.traceql,
        places=tuple(Place(p.host_name, p.gpu_uuid, p.pci_id) for p in part.places),
        is_least=part.is_least,
    )


@dataclass(frozen=True)
class _Bill:
    """What is needed to say what a finding costs, and since when."""

    evidence: JobEvidence
    by_rank: Mapping[int, Judgement]
    told: Lasting

    @cached_property
    def charges(self) -> dict[int, Charge | None]:
        """Return what each rank costs."""
        return {rank: charge_rank(own.now) for rank, own in self.evidence.by_rank.items()}

    @cached_property
    def whole_shares(self) -> dict[tuple[int, str], float | None]:
        """Return the shares that the whole attempt shows, by rank and finding."""
        return {
            (rank, finding.name): finding.saved_share
            for rank, judgement in self.by_rank.items()
            for finding in judgement.findings
        }

    def price(self, each: JobFinding) -> dict[str, str | None]:
        """Return money per hour, money so far and their currency; nothing where one is unknown."""
        per_hour: list[Decimal] = []
        so_far: list[Decimal | None] = []
        currencies: set[str] = set()
        for rank, share in each.shares.items():
            charge = self.charges[rank]
            if charge is None or share is None:
                return {}
            currencies.add(charge.currency)
            per_hour.append(take_share(charge.rate_per_hour, share))
            so_far.append(self._spent(each, rank, charge))
        if len(currencies) != 1:
            return {}
        known = [amount for amount in so_far if amount is not None]
        return {
            "money_per_hour": show_amount(add(per_hour)),
            "money_so_far": show_amount(add(known)) if len(known) == len(so_far) else None,
            "currency": currencies.pop(),
        }

    def _spent(self, each: JobFinding, rank: int, charge: Charge) -> Decimal | None:
        name = each.finding.name
        share = each.share if each.scope == "job" else self.whole_shares.get((rank, name))
        if share is not None:
            return take_share(charge.owed, share)
        part = self.told[rank].get(name)
        return Decimal(part.money_so_far) if part and part.money_so_far else None

    def date(self, each: JobFinding) -> dict[str, float | bool | None]:
        """Return since when it lasts, and whether it does, where a rank says so itself."""
        if each.scope == "job":
            return {}
        parts = [self.told[rank].get(each.finding.name) for rank in each.shares]
        known = [part for part in parts if part is not None]
        if not known:
            return {}
        lasting = [part for part in known if part.is_open] or known
        return {
            "since": min((p.since for p in lasting if p.since is not None), default=None),
            "is_open": any(part.is_open for part in known),
        }


def _describe(each: JobFinding, bill: _Bill) -> FindingPart:
    ranks = each.finding.ranks if each.scope == "job" and each.finding.ranks else each.shares
    return describe_finding(
        each.finding,
        scope=each.scope,
        severity=each.severity.value,
        share=each.share,
        ranks=sorted(ranks)[:MAX_RANKS_NAMED],
        num_ranks=len(ranks),
        **bill.price(each),
        **bill.date(each),
    )


def _put_in_order(parts: Sequence[FindingPart]) -> list[FindingPart]:
    """Return findings by their money, where all that are a loss have a price in one currency."""
    losses = [part for part in parts if part.share is not None]
    if len({part.currency for part in losses}) != 1 or None in {p.currency for p in losses}:
        return [*parts]
    return sorted(
        parts,
        key=lambda part: importance(
            part.name,
            Severity(part.severity),
            None if part.money_per_hour is None else float(part.money_per_hour),
        ),
    )
