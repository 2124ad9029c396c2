"""Steps that a checkpoint proves although nobody was left to record them.

A process that is killed has last been heard of at its heartbeat; a checkpoint that a later attempt
resumed from may have been saved after it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from costlens.core.records import RankRecord

__all__ = ["credit_proven_steps"]


def credit_proven_steps(records: Sequence[RankRecord]) -> list[RankRecord]:
    """Return the records with the steps in them that later attempts have resumed from.

    Only steps and where they ended are credited: what else lay between the last heartbeat and the
    death of a process is not known.

    Args:
        records: One record per attempt and rank.
    """
    proven: dict[int, int] = {}
    for record in records:
        part = record.checkpoints
        if part is not None and part.resumed_attempt is not None and part.resumed_step is not None:
            before = proven.get(part.resumed_attempt, 0)
            proven[part.resumed_attempt] = max(before, part.resumed_step)
    return [_credit(record, proven.get(record.attempt.number)) for record in records]


def _credit(record: RankRecord, step: int | None) -> RankRecord:
    attempt, made = record.attempt, record.progress.optimizer_steps
    if step is None or attempt.start_step is None or made is None:
        return record
    if made >= step - attempt.start_step:
        return record
    progress = {"optimizer_steps": step - attempt.start_step}
    return record.model_copy(
        update={
            "progress": record.progress.model_copy(update=progress),
            "attempt": attempt.model_copy(update={"end_step": step}),
        }
    )
