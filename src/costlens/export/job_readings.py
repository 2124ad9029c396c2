"""What metrics and traces say of the wait of a job before an attempt.

Pure. The wait is the job's: rank 0 alone tells it, and only for the launch that the allocation was
made for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord
from costlens.core.snapshot import Snapshot
from costlens.export import otel_ids
from costlens.export.job_attributes import find_wait, job_attributes, queue_attributes
from costlens.export.otel_drafts import Draft
from costlens.export.otel_ids import run_key

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = ["deferral", "queue_draft", "queue_wait"]


def queue_wait(snapshot: Snapshot) -> float | None:
    """Return the seconds that this attempt's job waited for resources; rank 0 of its allocation."""
    wait = find_wait(snapshot.record)
    return None if wait is None else wait.wait_s


def deferral(snapshot: Snapshot) -> float | None:
    """Return the seconds from submission to eligibility; rank 0 of the allocation."""
    wait = find_wait(snapshot.record)
    return None if wait is None else wait.deferral_s


def queue_draft(record: RankRecord, marker: SpanContext | None) -> Draft | None:
    """Return the span of the wait, in the trace of the attempt's marker; None where none is known.

    Its times are the scheduler's, whose clock may differ from this host's; it says so, and by how
    much where that is known.
    """
    wait, job = find_wait(record), record.job
    if wait is None or job is None or job.start_time is None:
        return None
    known = [at for at in (job.submit_time, job.eligible_time) if at is not None]
    start_ns = int(min([*known, job.start_time]) * NS_PER_S)
    run_id, attempt = run_key(record)
    attributes = {
        "costlens.run.id": run_id,
        "costlens.attempt": attempt,
        "costlens.rank": record.rank.rank,
        **job_attributes(job),
        **queue_attributes(record),
        "costlens.clock": "scheduler",
        "costlens.clock.skew": job.clock_skew_s,
        "error.type": "clock" if wait.is_contradictory else None,
    }
    return Draft(
        "costlens.queue",
        otel_ids.queue_ids(run_id, attempt),
        start_ns,
        int(job.start_time * NS_PER_S),
        attributes,
        parent=marker,
    )
