"""unprotected_spot: capacity that may be taken away at any time, and nothing is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costlens.diagnose.finding import Rule, Severity, Verdict
from costlens.diagnose.wording import danger

if TYPE_CHECKING:
    from costlens.core.records import RankRecord
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_NAME = "unprotected_spot"

# So much work without a save: spot capacity is taken away about once in some hours, at two minutes'
# notice or less.
_MAX_UNSAVED_S = 1800.0


def _judge(evidence: Evidence) -> Verdict:
    """Find spot capacity without a save in the last half hour; the first rank speaks for all.

    It has cost nothing yet: what is at stake is all work since the start, or since the last save.
    """
    record = evidence.now
    if record.rank.rank != 0 or _capacity(record) != "spot":
        return None
    unsaved_s = _unsaved_s(record)
    if unsaved_s is None or unsaved_s < _MAX_UNSAVED_S:
        return None
    return danger(
        _NAME,
        Severity.CRITICAL,
        [
            "the capacity is spot, and may be taken away at two minutes' notice",
            f"no save has been seen for {unsaved_s / 60:.0f} min of paid time",
        ],
        [
            (
                "COSTLENS_CHECKPOINT_URL=s3://…: costlens saves at the interval that costs the"
                " least, and when it is told to leave"
            ),
            (
                "Trainer(callbacks=[ModelCheckpoint(every_n_train_steps=…)]), to a place that"
                " outlives the machine"
            ),
        ],
    )


def _capacity(record: RankRecord) -> str | None:
    if record.price is not None and record.price.capacity_type is not None:
        return record.price.capacity_type
    return None if record.job is None else record.job.capacity_type


def _unsaved_s(record: RankRecord) -> float | None:
    """Return the seconds since the last save; None where there may have been one nobody saw."""
    heartbeat = record.attempt.heartbeat_time
    if record.checkpoints is not None:
        last = record.checkpoints.last_time
        return heartbeat - (record.attempt.start_time if last is None else last)
    if record.time_ns.get("checkpoint", 0) > 0 or record.attempt.num_saves:
        return None
    return heartbeat - record.attempt.start_time


RULE = Rule(_NAME, _judge, needs_steps=False)
