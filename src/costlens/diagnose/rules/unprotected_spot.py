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

# Whoever saves at all does so before long, were it to see that the place can be written: a training
# that has none after so many seconds has nobody who saves.
_MAX_FIRST_S = 240.0

# So much work without another save: spot capacity is taken away about once in some hours, at two
# minutes' notice or less.
_MAX_UNSAVED_S = 1800.0


def _judge(evidence: Evidence) -> Verdict:
    """Find spot capacity that nobody saves on; the first rank speaks for all.

    It has cost nothing yet: what is at stake is all work since the start, or since the last save.
    """
    record = evidence.now
    if record.rank.rank != 0 or _capacity(record) != "spot":
        return None
    since, limit_s = _last_save(record)
    if since is None or record.attempt.heartbeat_time - since < limit_s:
        return None
    unsaved_s = record.attempt.heartbeat_time - since
    severity = Severity.CRITICAL if unsaved_s >= _MAX_UNSAVED_S else Severity.WARNING
    return danger(
        _NAME,
        severity,
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


def _last_save(record: RankRecord) -> tuple[float | None, float]:
    """Return since when nothing was saved, in Unix seconds, and for how long that may last.

    None where there may have been a save that nobody saw.
    """
    attempt, part = record.attempt, record.checkpoints
    if part is not None and part.last_time is not None:
        return part.last_time, _MAX_UNSAVED_S
    if part is not None:
        return attempt.start_time, _MAX_UNSAVED_S  # the first one is on its way
    if record.time_ns.get("checkpoint", 0) > 0 or attempt.num_saves:
        return None, 0.0
    return attempt.start_time, _MAX_FIRST_S


RULE = Rule(_NAME, _judge, needs_steps=False)
