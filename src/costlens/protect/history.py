"""What earlier attempts of a run teach the policy: how often it fails, and what its saves cost.

Pure, over the records of the run; they are read once, when checkpoints begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from costlens.account.attempts import group_attempts
from costlens.core.records import Outcome, RankRecord
from costlens.protect.cadence import Carried
from costlens.protect.failures import Exposure

__all__ = ["carried_costs", "exposure_of"]

# An interrupt is a person's wish, a stop the loop's own; neither says how often the job fails.
_FAILURES = frozenset({Outcome.FAILED, Outcome.LOST, Outcome.PREEMPTED})


def exposure_of(records: Sequence[RankRecord]) -> Exposure:
    """Return the time the attempts were up, and how many of them ended by losing work.

    A preemption that ended with a good save of its last step is time without a failure.

    Args:
        records: The records of earlier attempts, silent deaths closed as ``lost``.
    """
    seen = Exposure()
    for group in group_attempts(records).values():
        first = group[0]
        up_s = max(record.total_ns for record in group) / 1e9
        nodes = max(1, first.rank.world_size // max(1, first.rank.local_world_size))
        has_failed = any(record.attempt.outcome in _FAILURES for record in group)
        seen = seen.add(up_s, nodes, failed=has_failed and not _is_covered(first))
    return seen


def carried_costs(records: Sequence[RankRecord]) -> Carried | None:
    """Return what the newest attempt that measured its saves has measured, or None."""
    for record in sorted(records, key=lambda record: record.attempt.number, reverse=True):
        part = record.checkpoints
        if part is not None and part.interval is not None and part.num_saved > 0:
            measured = part.interval
            return Carried(measured.stall_s, measured.write_s, measured.slowdown)
    return None


def _is_covered(record: RankRecord) -> bool:
    if record.preemption is not None:
        return record.preemption.is_covered
    part = record.checkpoints
    if part is None or part.last_step is None or record.attempt.outcome is not Outcome.PREEMPTED:
        return False
    return part.last_step == record.attempt.end_step
