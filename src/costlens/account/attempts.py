"""The attempts of a run: how each ended over all its ranks, and which ones ended without saying so.

Works on wall times of records only to tell a live rank from a lost one; durations are those each
rank measured itself.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

from costlens.account.throughput import merge_startup
from costlens.core.clock import NS_PER_S
from costlens.core.gang_records import MAX_NAMED
from costlens.core.records import Outcome, RankRecord
from costlens.core.run_record import AttemptSummary
from costlens.core.trouble_records import LastWordsPart

__all__ = [
    "Ends",
    "close_lost",
    "flag_clocks",
    "group_attempts",
    "paid_since",
    "stale_after_s",
    "summarize_attempt",
]

Ends = Mapping[tuple[int, int], LastWordsPart]
"""What a witness says of processes that are gone, by attempt and rank."""

_MIN_STALE_S = 60.0
_STALE_WINDOWS = 6
_SKEW_S = 5.0

# The first of these that any rank reports is the attempt's: one failed rank fails the job, one
# live rank keeps it running.
_SEVERITY = (
    Outcome.FAILED,
    Outcome.PREEMPTED,
    Outcome.INTERRUPTED,
    Outcome.RUNNING,
    Outcome.LOST,
    Outcome.STOPPED_EARLY,
    Outcome.COMPLETED,
)


def group_attempts(records: Sequence[RankRecord]) -> dict[int, list[RankRecord]]:
    """Return the records by attempt, both attempts and ranks in order."""
    groups: dict[int, list[RankRecord]] = {}
    for record in sorted(records, key=lambda record: (record.attempt.number, record.rank.rank)):
        groups.setdefault(record.attempt.number, []).append(record)
    return groups


def stale_after_s(record: RankRecord) -> float:
    """Return the heartbeat age in seconds from which a rank counts as lost: 60 s or 6 windows."""
    lengths_s = [seen.end_time - seen.start_time for seen in record.windows]
    return max(_MIN_STALE_S, _STALE_WINDOWS * statistics.median(lengths_s or [0.0]))


def close_lost(
    records: Sequence[RankRecord], now: float, ends: Ends | None = None
) -> list[RankRecord]:
    """Return the records with silent deaths closed at their last heartbeat.

    A rank is ``lost`` when its heartbeat is too old, when a later attempt began after it, or when a
    witness says that its process is gone; ``preempted`` if a signal had announced that.

    Args:
        records: One record per attempt and rank.
        now: Unix time of the reader.
        ends: What a witness says.
    """
    seen = ends or {}
    starts = {
        number: min(record.attempt.start_time for record in group)
        for number, group in group_attempts(records).items()
    }

    def is_lost(record: RankRecord) -> bool:
        attempt = record.attempt
        if attempt.outcome is not Outcome.RUNNING:
            return False
        later = [start for number, start in starts.items() if number > attempt.number]
        is_superseded = bool(later) and attempt.heartbeat_time <= min(later)
        is_stale = now - attempt.heartbeat_time > stale_after_s(record)
        return is_superseded or is_stale or _key(record) in seen

    return [
        _close(record, seen.get(_key(record))) if is_lost(record) else record for record in records
    ]


def _key(record: RankRecord) -> tuple[int, int]:
    return record.attempt.number, record.rank.rank


def _close(record: RankRecord, words: LastWordsPart | None) -> RankRecord:
    attempt = record.attempt
    closed = {
        "outcome": Outcome.LOST if attempt.signal is None else Outcome.PREEMPTED,
        "end_time": attempt.heartbeat_time,
    }
    return record.model_copy(
        update={"attempt": attempt.model_copy(update=closed), "last_words": words}
    )


def summarize_attempt(records: Sequence[RankRecord]) -> AttemptSummary:
    """Return one attempt over its ranks.

    Its wall time is that of the rank that lived longest, by that rank's own clock.

    Args:
        records: The ranks' records of one attempt, in order, not empty, silent deaths closed.
    """
    parts = [record.attempt for record in records]
    outcome = min((part.outcome for part in parts), key=_SEVERITY.index)
    if outcome is Outcome.PREEMPTED and any(_is_killed(record) for record in records):
        # A launcher sends the other ranks the same signal that a preemption does.
        outcome = Outcome.LOST
    world_size = max(record.rank.world_size for record in records)
    heard = {
        record.rank.rank
        for record in records
        if record.attempt.outcome is not Outcome.LOST and record.rank.rank < world_size
    }
    # Not all of them: a record may claim any number of ranks.
    missing = itertools.islice((r for r in range(world_size) if r not in heard), MAX_NAMED)
    ends = [part.end_time for part in parts if part.end_time is not None]
    culprits = [part for part in parts if part.outcome is outcome]
    words = [record.last_words for record in records if record.attempt.outcome is outcome]
    startup = merge_startup([record.startup for record in records])
    start_steps = [part.start_step for part in parts if part.start_step is not None]
    end_steps = [part.end_step for part in parts if part.end_step is not None]
    saved_steps = [part.saved_step for part in parts if part.saved_step is not None]
    return AttemptSummary(
        number=parts[0].number,
        outcome=outcome,
        start_time=min(paid_since(record) for record in records),
        end_time=max(ends) if len(ends) == len(parts) else None,
        heartbeat_time=max(part.heartbeat_time for part in parts),
        wall_s=max(record.total_ns for record in records) / NS_PER_S,
        num_ranks=len(records),
        world_size=world_size,
        num_reporting=len(heard),
        missing_ranks=[*missing],
        error_type=next((part.error_type for part in culprits if part.error_type), None),
        exit_code=next((part.exit_code for part in culprits if part.exit_code is not None), None),
        signal=next((part.signal for part in culprits if part.signal), None),
        last_words=next((said for said in words if said is not None), None),
        first_step_s=startup.first_step_s,
        gang_wait_s=startup.gang_wait_s,
        start_step=max(start_steps, default=None),
        end_step=max(end_steps, default=None),
        saved_step=max(saved_steps, default=None),
        end_reason=next((part.end_reason for part in culprits if part.end_reason), None),
        preemption=next((r.preemption for r in records if r.preemption is not None), None),
    )


def paid_since(record: RankRecord) -> float:
    """Return the Unix time from which on a rank's attempt is paid for.

    Before its own timeline where the attempt pays for the start of its allocation.
    """
    return record.attempt.start_time - (record.startup.allocation_s or 0.0)


def _is_killed(record: RankRecord) -> bool:
    words = record.last_words
    return record.attempt.outcome is Outcome.LOST and words is not None and bool(words.oom_kills)


def flag_clocks(
    attempts: Sequence[AttemptSummary], records: Sequence[RankRecord], now: float
) -> list[str]:
    """Return a line for every pair of wall times that cannot both be right."""
    problems = []
    for before, after in itertools.pairwise(attempts):
        overlap_s = before.heartbeat_time - after.start_time
        if overlap_s > _SKEW_S:
            problems.append(
                f"attempt {before.number} was alive {overlap_s:.0f} s after attempt "
                f"{after.number} began: two launches share this run, or their clocks differ"
            )
    ahead = {
        record.rank.host_name: record.attempt.heartbeat_time - now
        for record in sorted(records, key=lambda record: record.attempt.heartbeat_time)
        if record.attempt.heartbeat_time - now > _SKEW_S
    }
    problems += [
        f"the clock of {host} is {skew_s:.0f} s ahead of this machine's"
        for host, skew_s in sorted(ahead.items())
    ]
    return problems
