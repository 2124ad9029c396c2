"""The section that the page opens with: what to fix first, and what that would save. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from costlens.core.finding_records import FindingPart
from costlens.core.records import Outcome
from costlens.core.run_record import NOT_LOOKED_AT, RunRecord
from costlens.diagnose.causes import COMPUTE_BOUND, find_cause
from costlens.export.figures import show_count, show_money, show_share, show_time
from costlens.export.finding_words import find_stretch
from costlens.export.page.parts import Cell, Figure, Table, Tone, known, unknown

__all__ = ["Finding", "Findings", "describe_findings"]

_TONES: dict[str, Tone] = {"critical": "bad", "warning": "warn", "info": "muted"}
_MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding as it is read.

    Args:
        name: Its name in the record.
        title: What is wrong, a sentence.
        severity: How soon somebody should look.
        tone: How the severity is coloured.
        figures: What it costs and what mending it saves, by what that is.
        facts: Where and since when it is found.
        evidence: The measurements it follows from.
        remedies: What would help, and the share of paid time it would save, the best first.
        traceql: A search for spans that show it.
    """

    name: str
    title: str
    severity: str
    tone: Tone
    figures: Sequence[tuple[str, Figure]]
    facts: Sequence[str]
    evidence: Sequence[str]
    remedies: Sequence[tuple[str, str | None]]
    traceql: str | None


@dataclass(frozen=True, slots=True)
class Findings:
    """All of them, or why there are none.

    Args:
        lead: What they come to, a sentence.
        findings: The findings, the greatest first.
        undecided: Causes that nobody can tell of, and what is missing; None without any.
    """

    lead: str
    findings: Sequence[Finding] = field(default_factory=tuple)
    undecided: Table | None = None


def describe_findings(record: RunRecord) -> Findings:
    """Return the findings in the order of the record, or why nothing is found."""
    causes = [
        (index, part) for index, part in enumerate(record.findings) if part.name != COMPUTE_BOUND
    ]
    return Findings(
        lead=_lead(record, num_causes=len(causes)),
        findings=[_describe(record, index, part) for index, part in causes],
        undecided=_tabulate_undecided(record),
    )


def _lead(record: RunRecord, num_causes: int) -> str:
    if num_causes:
        what = "One cause" if num_causes == 1 else f"{num_causes} causes"
        return f"{what} of lost time or danger in the newest attempt, the greatest first."
    if record.unjudged == NOT_LOOKED_AT:
        return "Nobody has looked for causes in this run."
    if record.unjudged is not None:
        return f"Not judged: {record.unjudged}."
    if record.findings:
        return f"Nothing to fix: {find_cause(COMPUTE_BOUND).title}."
    return "Nothing to fix was found."


def _describe(record: RunRecord, index: int, part: FindingPart) -> Finding:
    title = find_cause(part.name).title
    path = f"findings.{index}"
    when = find_stretch(part, record)
    of_time = f"of paid time {when}" if when else "of paid time"
    shares = [*part.remedy_shares, *[None] * len(part.remedies)]
    least = ", at least" if part.is_least else ""
    return Finding(
        name=part.name,
        title=title[:1].upper() + title[1:],
        severity=part.severity,
        tone=_TONES.get(part.severity, "muted"),
        figures=[
            (
                f"an hour{least}",
                _money(record, part, part.money_per_hour, f"{path}.money_per_hour"),
            ),
            (f"so far{least}", _money(record, part, part.money_so_far, f"{path}.money_so_far")),
            (f"{of_time}{least}", _share(part, f"{path}.share")),
        ],
        facts=_facts(record, part),
        evidence=part.evidence,
        remedies=[
            (text, None if share is None else f"saves {show_share(share)} {of_time}")
            for text, share in zip(part.remedies, shares, strict=False)
        ],
        traceql=part.traceql,
    )


def _money(record: RunRecord, part: FindingPart, amount: str | None, path: str) -> Figure:
    if amount is None:
        why = "a danger and no loss" if part.share is None else record.cost.unknown
        return unknown(why or "no price is known", path)
    return known(show_money(amount, part.currency or record.cost.currency), amount, path)


def _share(part: FindingPart, path: str) -> Figure:
    if part.share is None:
        return unknown("it cannot be told, or is a danger and no loss", path)
    return known(show_share(part.share), part.share, path)


def _facts(record: RunRecord, part: FindingPart) -> list[str]:
    newest = record.attempts[-1]
    facts = [part.name]
    if newest.world_size > 1 and part.ranks:
        named = ", ".join(str(rank) for rank in part.ranks[:_MAX_NAMED])
        more = part.num_ranks - _MAX_NAMED
        rest = f" and {show_count(more)} more" if more > 0 else ""
        is_all = part.num_ranks == newest.num_ranks
        facts.append("all ranks" if is_all else f"ranks {named}{rest}")
    if part.since is not None:
        facts.append(f"since {show_time(part.since)} UTC")
    if part.is_open is False and newest.outcome is Outcome.RUNNING:
        facts.append("over by now")
    facts += [
        " ".join(fact for fact in (place.host_name, place.gpu_uuid, place.pci_id) if fact)
        for place in part.places[:_MAX_NAMED]
    ]
    return facts


def _tabulate_undecided(record: RunRecord) -> Table | None:
    if not record.undecided:
        return None
    rows: list[list[Cell]] = [
        [part.name.replace("_", " "), Figure(part.missing)] for part in record.undecided
    ]
    return Table("Causes that nobody can tell of", ("cause", "what is missing"), rows)
