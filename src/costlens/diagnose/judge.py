"""Asks all rules about one rank: who can be judged, which cause hides which, what matters most.

Pure; what a rule itself gets wrong is contained and counted, and the other rules are heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costlens.core.guard import faults
from costlens.core.phases import Phase
from costlens.core.records import Outcome
from costlens.diagnose.causes import COMPUTE_BOUND, find_cause
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, Finding, Rule, Severity, Verdict
from costlens.diagnose.rules import RULES

__all__ = [
    "MAX_STOPPED_SHARE",
    "MIN_ITERATIONS",
    "Judgement",
    "explain_unjudged",
    "hide_effects",
    "importance",
    "judge",
]

MIN_ITERATIONS = 20
"""Iterations after an attempt's first that there must be, before anything is said of its steps."""

MAX_STOPPED_SHARE = 0.02
"""Above this share of the paid time, what a stopped process waited for looks like a cause."""

MIN_SAVED_SHARE = 0.02
"""Least share of the paid time that mending a cause must save to be told: one and the same job
differs by as much from hour to hour."""

# Causes of one family share the lost time; the lesser ones are told once the greatest is mended.
_LEAST_OF_FAMILY = 0.5
_SEVERITIES = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_EVALUATION = Phase.VALIDATION.name.lower()
_SAVES = Phase.CHECKPOINT.name.lower()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say.

    Args:
        findings: What they found, the most important first.
        abstentions: What they could not tell.
        unjudged: Why the rules about steps were not asked; None where they were.
    """

    findings: tuple[Finding, ...] = ()
    abstentions: tuple[Abstention, ...] = ()
    unjudged: str | None = None


def judge(evidence: Evidence, rules: Sequence[Rule] = RULES) -> Judgement:
    """Return what the rules say of one rank; well under 1 ms.

    Args:
        evidence: What happened to the rank.
        rules: The rules to ask.
    """
    if evidence.now.run.debug is not None:
        return Judgement(unjudged=f"a debug run ({evidence.now.run.debug})")
    unjudged = explain_unjudged(evidence)
    asked = [rule for rule in rules if unjudged is None or not rule.needs_steps]
    verdicts = faults.call("diagnose.rules", _ask, evidence, asked)
    if verdicts is None:
        verdicts = [faults.call(f"diagnose.{rule.name}", rule.judge, evidence) for rule in asked]
    findings = [verdict for verdict in verdicts if isinstance(verdict, Finding)]
    findings = [each for each in findings if _is_worth_it(each)]
    abstentions = [verdict for verdict in verdicts if isinstance(verdict, Abstention)]
    return Judgement(tuple(_put_in_order(findings)), tuple(abstentions), unjudged)


def _ask(evidence: Evidence, rules: Iterable[Rule]) -> list[Verdict]:
    return [rule.judge(evidence) for rule in rules]


def explain_unjudged(evidence: Evidence) -> str | None:
    """Return why nothing can be said of a rank's steps, a phrase; None where it can."""
    stopped_s, total_s = evidence.stopped_s, evidence.total_s
    if stopped_s > MAX_STOPPED_SHARE * total_s:
        return f"the process stood still for {stopped_s:.0f} s of {total_s:.0f} s"
    num = evidence.num_iterations
    if num >= MIN_ITERATIONS:
        return None if evidence.iteration_s > 0 else "no time was booked to iterations"
    if evidence.now.iteration_time.count == 0:
        is_live = evidence.now.attempt.outcome is Outcome.RUNNING
        return "still starting" if is_live else "it ended before its second iteration"
    if num == 0 and evidence.time_s[_EVALUATION] + evidence.time_s[_SAVES] > 0:
        return "nothing but evaluation and saves to look at"
    return f"{num} iterations after the first, and {MIN_ITERATIONS} are needed"


def _is_worth_it(finding: Finding) -> bool:
    return finding.saved_share is None or finding.saved_share >= MIN_SAVED_SHARE


def _put_in_order(findings: Iterable[Finding]) -> list[Finding]:
    found = list(findings)
    kept = hide_effects({finding.name: finding.saved_share for finding in found})
    chosen = [finding for finding in found if finding.name in kept]
    return sorted(chosen, key=lambda f: importance(f.name, f.severity, f.saved_share))


def hide_effects(shares: dict[str, float | None]) -> set[str]:
    """Return which findings stay, of findings and the shares that mending them would save."""
    greatest: dict[str, float] = {}
    for name, share in shares.items():
        family = find_cause(name).family
        if family is not None and find_cause(name).hidden_by.isdisjoint(shares):
            greatest[family] = max(greatest.get(family, 0.0), share or 0.0)
    kept = set()
    for name, share in shares.items():
        cause = find_cause(name)
        is_least = (
            cause.family is not None
            and share is not None
            and (share < _LEAST_OF_FAMILY * greatest.get(cause.family, 0.0))
        )
        if cause.hidden_by.isdisjoint(shares) and not is_least:
            kept.add(name)
    return kept if kept == {COMPUTE_BOUND} else kept - {COMPUTE_BOUND}


def importance(name: str, severity: Severity, saved: float | None) -> tuple[bool, float, int, str]:
    """Return what findings are sorted by, the most important first.

    What may end the run or spoil it has no price and goes first; then whatever saves the most.

    Args:
        name: The finding; decides between equals.
        severity: How soon somebody should look.
        saved: What mending it saves, in whatever all are measured in; None where it is no loss.
    """
    is_danger = severity is Severity.CRITICAL and saved is None
    return not is_danger, -(saved or 0.0), _SEVERITIES[severity], name
