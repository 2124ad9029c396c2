"""What a job waited in its scheduler's queue, from the times that ranks have recorded.

Pure. Submission to eligibility is deferral: holds, dependencies, a begin time that somebody asked
for. Eligibility to start is the wait, for resources and priority. All three times are the
scheduler's own; nothing of it is paid for. Each allocation waits once, however many launches it
holds, and a job that is queued again waits again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from costlens.core.job_records import MAX_WAITS, JobPart, QueuePart, WaitPart
from costlens.core.records import RankRecord

__all__ = ["Wait", "measure_wait", "merge_queue"]

_SHOWN_SKEW_S = 2.0
# Slurm tells whole seconds, cut: a submission may be this much later than it says.
_TIMES_CUT_S = 1.0


class Wait(NamedTuple):
    """Seconds that a job waited.

    Args:
        wait_s: For resources and priority, >= 0; with whatever deferred the job where nobody tells
            since when it was eligible.
        deferral_s: Until it was eligible, >= 0; None where that is not told.
        is_contradictory: Whether the times go backwards, so that something was clamped at 0.
    """

    wait_s: float
    deferral_s: float | None
    is_contradictory: bool


def measure_wait(
    submit_time: float | None, eligible_time: float | None, start_time: float | None
) -> Wait | None:
    """Return how long a job waited, or None where nobody tells since when or until when.

    Args:
        submit_time: Unix time of the submission.
        eligible_time: Unix time from which only resources and priority held the job back.
        start_time: Unix time at which its allocation began.
    """
    since = submit_time if eligible_time is None else eligible_time
    if start_time is None or since is None:
        return None
    deferral_s = None
    is_backwards = start_time < since
    if submit_time is not None and eligible_time is not None:
        deferral_s = max(0.0, min(eligible_time, start_time) - submit_time)
        is_backwards = is_backwards or eligible_time < submit_time
    return Wait(max(0.0, start_time - since), deferral_s, is_backwards)


def merge_queue(groups: Mapping[int, Sequence[RankRecord]]) -> tuple[QueuePart, list[str]]:
    """Return the waits of a run over its allocations, and a line for each contradiction.

    Args:
        groups: Records by attempt, attempts and ranks in order.
    """
    waits: list[WaitPart] = []
    reasons: list[str] = []
    seen: set[tuple[object, ...]] = set()
    newest_start = -math.inf
    for number, records in groups.items():
        job = _find_job(records)
        if job is not None and (key := _allocation(job)) not in seen:
            seen.add(key)
            found = _measure(number, job, newest_start)
            if isinstance(found, str):
                reasons.append(f"attempt {number}: {found}")
            else:
                waits.append(found)
        newest_start = max(newest_start, *(record.attempt.start_time for record in records))
    deferrals = [wait.deferral_s for wait in waits if wait.deferral_s is not None]
    part = QueuePart(
        wait_s=sum(wait.wait_s for wait in waits) if waits else None,
        deferral_s=sum(deferrals) if deferrals else None,
        num_waits=len(waits),
        unknown=reasons[-1] if reasons else None,
        waits=waits[-MAX_WAITS:],
    )
    return part, _flag(waits) + _flag_skews(groups)


def _find_job(records: Sequence[RankRecord]) -> JobPart | None:
    """Return the job as the lowest rank that knows its times tells it; None where it never waited.

    A launch that was not the first in its allocation has no wait of its own.
    """
    jobs = [r.job for r in records if r.job is not None and r.job.is_allocation_owner is not False]
    timed = [job for job in jobs if job.start_time is not None]
    return next(iter(timed or jobs), None)


def _allocation(job: JobPart) -> tuple[object, ...]:
    return (job.scheduler, job.job_id or job.pod_uid, job.restart_count, job.start_time)


def _measure(number: int, job: JobPart, newest_start: float) -> WaitPart | str:
    """Return the wait before an attempt, or why it is not known.

    Args:
        number: The attempt.
        job: Its job.
        newest_start: Unix time of the newest start of an earlier attempt.
    """
    measured = measure_wait(job.submit_time, job.eligible_time, job.start_time)
    if measured is None or job.start_time is None:
        return job.times_unknown or f"{job.scheduler} does not tell when the job was submitted"
    if job.submit_time is not None and newest_start >= job.submit_time + _TIMES_CUT_S:
        return "its submission is that of an earlier attempt; when it was queued again is not told"
    return WaitPart(
        attempt=number,
        job_id=job.job_id,
        queue=job.queue,
        submit_time=job.submit_time,
        eligible_time=job.eligible_time,
        start_time=job.start_time,
        wait_s=measured.wait_s,
        deferral_s=measured.deferral_s,
        counted_from="submit" if job.eligible_time is None else "eligible",
        is_contradictory=measured.is_contradictory,
    )


def _flag(waits: Iterable[WaitPart]) -> list[str]:
    return [
        f"the scheduler's times of attempt {wait.attempt} go backwards: submitted "
        f"{wait.submit_time}, eligible {wait.eligible_time}, started {wait.start_time}; what is "
        "negative counts as 0"
        for wait in waits
        if wait.is_contradictory
    ]


def _flag_skews(groups: Mapping[int, Sequence[RankRecord]]) -> list[str]:
    skews = {
        (number, record.rank.host_name): record.job.clock_skew_s
        for number, records in groups.items()
        for record in records
        if record.job is not None and (record.job.clock_skew_s or 0.0) > _SHOWN_SKEW_S
    }
    return [
        f"attempt {number}: the clocks of {host} and of the scheduler are {skew_s:.0f} s apart"
        for (number, host), skew_s in sorted(skews.items())
    ]
