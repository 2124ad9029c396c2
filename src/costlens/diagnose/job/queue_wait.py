"""queue_wait: the job stood in its scheduler's queue for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import JobRule, Severity, Verdict
from costlens.diagnose.wording import danger

if TYPE_CHECKING:
    from costlens.diagnose.job_evidence import JobEvidence

__all__ = ["RULE"]

_NAME = "queue_wait"

# Whoever waits for an hour plans around it.
_MIN_WAIT_S = 3600.0


def _judge(evidence: JobEvidence) -> Verdict:
    """Find a wait for resources of an hour and more; it costs days, not money."""
    for own in evidence.ranks:
        job = own.now.job
        if own.now.rank.rank != 0 or job is None or job.is_allocation_owner is False:
            continue
        since = job.submit_time if job.eligible_time is None else job.eligible_time
        if since is None or job.start_time is None or job.start_time - since < _MIN_WAIT_S:
            continue
        hours = (job.start_time - since) / 3600
        where = "" if job.queue is None else f" of {job.queue}"
        return danger(
            _NAME,
            Severity.INFO,
            [f"the job waited {hours:.1f} h in the queue{where} before it began"],
            [
                (
                    "Ask for less time per job and let it resume: short jobs fit into gaps"
                    " (COSTLENS_CHECKPOINT_URL, sbatch --time, --requeue)"
                ),
                "Ask for fewer nodes, or look for a partition or a pool with a shorter queue",
            ],
        )
    return None


RULE = JobRule(_NAME, _judge, needs_steps=False)
