"""Asks all rules about a job: each cause is named once, with the ranks that it is found on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costlens.core.guard import faults
from costlens.diagnose.finding import Abstention, Finding, JobRule, Rule, Severity
from costlens.diagnose.job import JOB_RULES
from costlens.diagnose.job_evidence import JobEvidence
from costlens.diagnose.judge import Judgement, explain_unjudged, hide_effects, importance, judge
from costlens.diagnose.rules import RULES

__all__ = [
    "JobFinding",
    "JobJudgement",
    "combine",
    "explain_all_unjudged",
    "judge_job",
    "judge_ranks",
    "judge_together",
    "list_undecided",
]

_FROM_MILD = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


@dataclass(frozen=True, slots=True)
class JobFinding:
    """A cause found in a job.

    Args:
        finding: What is said of it: by the rank that loses the most, where several found it.
        scope: Whether ranks found it of themselves, or it shows in all of them together.
        shares: What mending it saves of each rank's own paid time (0 to 1), by rank.
        share: What mending it saves of the paid time of all; None where it is no loss.
        severity: The worst of all ranks.
    """

    finding: Finding
    scope: Literal["rank", "job"]
    shares: Mapping[int, float | None]
    share: float | None
    severity: Severity


@dataclass(frozen=True, slots=True)
class JobJudgement:
    """What the rules say of a job.

    Args:
        findings: What they found, the most important first.
        abstentions: What they could not tell, and nobody else found.
        unjudged: Why the steps of no rank were judged; None where those of any were.
    """

    findings: tuple[JobFinding, ...]
    abstentions: tuple[Abstention, ...]
    unjudged: str | None


def judge_job(
    evidence: JobEvidence,
    rules: Sequence[Rule] = RULES,
    job_rules: Sequence[JobRule] = JOB_RULES,
) -> JobJudgement:
    """Return what the rules say of a job and of its ranks.

    Args:
        evidence: What happened to it; at least one rank.
        rules: Those to ask about each rank.
        job_rules: Those to ask about all of them.
    """
    by_rank = judge_ranks(evidence, rules)
    job = judge_together(evidence, job_rules)
    found = combine(evidence, {r: j.findings for r, j in by_rank.items()}, job.findings)
    undecided = list_undecided([job, *by_rank.values()], {each.finding.name for each in found})
    return JobJudgement(found, undecided, explain_all_unjudged(by_rank.values()))


def explain_all_unjudged(judgements: Iterable[Judgement]) -> str | None:
    """Return why the steps of no rank were judged; None where those of any were."""
    reasons = [judgement.unjudged for judgement in judgements]
    return reasons[0] if reasons and None not in reasons else None


def list_undecided(
    judgements: Iterable[Judgement], found: Collection[str]
) -> tuple[Abstention, ...]:
    """Return what some could not tell and nobody found, each once.

    Args:
        judgements: What was said of the job and of each rank.
        found: Names of the findings.
    """
    undecided: dict[str, Abstention] = {}
    for judgement in judgements:
        for abstention in judgement.abstentions:
            if abstention.name not in found:
                undecided.setdefault(abstention.name, abstention)
    return tuple(undecided.values())


def judge_ranks(evidence: JobEvidence, rules: Sequence[Rule] = RULES) -> dict[int, Judgement]:
    """Return what the rules say of each rank by itself."""
    return {rank: judge(own, rules) for rank, own in evidence.by_rank.items()}


def judge_together(evidence: JobEvidence, rules: Sequence[JobRule] = JOB_RULES) -> Judgement:
    """Return what the rules about a job say of it."""
    reasons = (explain_unjudged(own) for own in evidence.ranks)
    unjudged = next((reason for reason in reasons if reason is not None), None)
    if any(own.now.run.debug is not None for own in evidence.ranks):
        return Judgement(unjudged=unjudged)
    asked = [rule for rule in rules if unjudged is None or not rule.needs_steps]
    verdicts = [faults.call(f"diagnose.{rule.name}", rule.judge, evidence) for rule in asked]
    return Judgement(
        tuple(verdict for verdict in verdicts if isinstance(verdict, Finding)),
        tuple(verdict for verdict in verdicts if isinstance(verdict, Abstention)),
        unjudged,
    )


def combine(
    evidence: JobEvidence,
    by_rank: Mapping[int, Iterable[Finding]],
    job: Iterable[Finding],
) -> tuple[JobFinding, ...]:
    """Return each cause once, without those that others explain, the most important first.

    Args:
        evidence: What happened to the job.
        by_rank: What was found of each rank.
        job: What was found of all together; goes before what ranks say of the same cause.
    """
    claims: dict[str, dict[int, Finding]] = {}
    for rank, findings in by_rank.items():
        for finding in findings:
            claims.setdefault(finding.name, {})[rank] = finding
    found = {name: _add_up(evidence, claim) for name, claim in claims.items()}
    found |= {finding.name: _spread(evidence, finding) for finding in job}
    kept = hide_effects({name: each.share for name, each in found.items()})
    return tuple(
        sorted(
            (found[name] for name in kept),
            key=lambda each: importance(each.finding.name, each.severity, each.share),
        )
    )


def _add_up(evidence: JobEvidence, claim: Mapping[int, Finding]) -> JobFinding:
    shares = {rank: finding.saved_share for rank, finding in sorted(claim.items())}
    saved_s = {
        rank: share * evidence.by_rank[rank].total_s
        for rank, share in shares.items()
        if share is not None
    }
    worst = max(shares, key=lambda rank: (saved_s.get(rank, -1.0), -rank))
    return JobFinding(
        claim[worst],
        "rank",
        shares,
        evidence.share(sum(saved_s.values())) if saved_s else None,
        max((finding.severity for finding in claim.values()), key=_FROM_MILD.index),
    )


def _spread(evidence: JobEvidence, finding: Finding) -> JobFinding:
    shares = dict.fromkeys(evidence.by_rank, finding.saved_share)
    return JobFinding(finding, "job", shares, finding.saved_share, finding.severity)
