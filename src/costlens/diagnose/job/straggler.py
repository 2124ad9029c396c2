"""straggler: one rank, or a few, keep all the others waiting in every collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Abstention, JobRule, Remedy, Verdict
from costlens.diagnose.slowness import blame, describe
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "straggler"


def _judge(evidence: JobEvidence) -> Verdict:
    """Find ranks that are slower than the middle one, and neither held down nor a whole node.

    Saved: what the slowest needs beyond the middle rank, on all ranks, for they all wait for it.
    """
    if len(evidence.ranks) < 2:
        return None
    slowness = evidence.slowness
    if slowness is None:
        return Abstention(
            _NAME, "what each rank needs before a collective: NVML's activity or clocks"
        )
    if not slowness.ranks or blame(evidence, slowness) != _NAME:
        return None
    rank = slowness.ranks[0]
    saved = evidence.share(slowness.lost_s * len(evidence.ranks))
    host = evidence.by_rank[rank].now.rank.host_name
    remedies = [
        Remedy(f"Look at rank {rank} on {host}: other processes, its clocks, its data", saved),
        Remedy(f"Leave {host} out of the next allocation, and see whether the slowness goes too"),
        Remedy("Give all ranks batches of like size: sort or pack texts by length"),
    ]
    return loss(_NAME, saved, describe(evidence, slowness), remedies, ranks=slowness.ranks)


RULE = JobRule(_NAME, _judge)
