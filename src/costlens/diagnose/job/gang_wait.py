"""gang_wait: ranks that are there, and paid for, wait for others to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import JobRule, Remedy, Verdict
from costlens.diagnose.measures import MIN_SHARE, rise
from costlens.diagnose.wording import loss

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "gang_wait"

# Connecting takes some seconds with many ranks; nobody changes anything for less.
_LEAST_S = 10.0


def _judge(evidence: JobEvidence) -> Verdict:
    """Find ranks that stood in ``init_process_group`` until the last one came.

    Saved: what each waited longer than the one that waited least, which came last.
    """
    waits = {rank: rise(own, "startup", "gang_wait_s") for rank, own in evidence.by_rank.items()}
    known = {rank: wait_s for rank, wait_s in waits.items() if wait_s is not None}
    if len(known) < 2:
        return None
    last = min(known, key=lambda rank: known[rank])
    lost_s = sum(known.values()) - len(known) * known[last]
    if max(known.values()) < _LEAST_S or lost_s < MIN_SHARE * evidence.total_s:
        return None
    saved = evidence.share(lost_s)
    host = evidence.by_rank[last].now.rank.host_name
    text = [
        f"ranks waited up to {max(known.values()):.0f} s for the others to start",
        f"rank {last} on {host} came last",
    ]
    remedies = [
        Remedy(
            "Start all ranks at once: gang scheduling (Kueue, Volcano, all-or-nothing JobSets), and"
            " images that are on the nodes already",
            saved,
        ),
        Remedy("Do what only one rank does (downloads, indexes) before the job, not at its start"),
    ]
    return loss(_NAME, saved, text, remedies, ranks=[last])


RULE = JobRule(_NAME, _judge, needs_steps=False)
