"""Waits for data of a job: what a rank's own rule finds, at what it costs all ranks.

A rule for each cause of late batches. The rank that waits longest says what the cause is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from costlens.diagnose.data_supply import DataSupply, find_supply
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Finding, JobRule, Remedy, Rule, Verdict
from costlens.diagnose.measures import percent
from costlens.diagnose.rules import (
    data_preprocessing,
    data_wait,
    slow_collate,
    storage_read,
    too_few_workers,
)
from costlens.diagnose.starvation import LEAST_OWN_SHARE

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULES"]


class _Late(Evidence):
    """Evidence about a rank whose waits matter, however short, since all ranks wait with it."""

    @cached_property
    def supply(self) -> DataSupply | None:
        return find_supply(self, LEAST_OWN_SHARE)


def _judge(evidence: JobEvidence, own_rule: Rule) -> Verdict:
    """Find what the rank finds that waits longest, where ranks are late in turn.

    Saved: as much of what late batches cost all ranks as the rank's own fix saves of its own waits.
    """
    starvation = evidence.starvation
    if starvation is None:
        return None
    seen = evidence.by_rank[starvation.rank]
    own = _Late(seen.now, seen.before)
    finding = own_rule.judge(own)
    if not isinstance(finding, Finding) or finding.saved_share is None:
        return None
    iteration_s = sum(each.iteration_s for each in evidence.ranks)
    lost = evidence.share(starvation.share * iteration_s)
    scale = lost / own.share(starvation.own_share * own.iteration_s)
    line = (
        f"batches of one rank or another are late for {percent(starvation.share)} of the "
        f"iterations, and all {len(evidence.ranks)} ranks wait for them"
    )
    return replace(
        finding,
        saved_share=min(1.0, finding.saved_share * scale),
        evidence=(line, *finding.evidence),
        remedies=tuple(_scale(remedy, scale) for remedy in finding.remedies),
    )


def _scale(remedy: Remedy, scale: float) -> Remedy:
    share = remedy.saved_share
    return remedy if share is None else replace(remedy, saved_share=min(1.0, share * scale))


RULES = tuple(
    JobRule(module.RULE.name, partial(_judge, own_rule=module.RULE))
    for module in (data_preprocessing, storage_read, too_few_workers, slow_collate, data_wait)
)
