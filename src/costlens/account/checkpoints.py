"""The saves of a run over its attempts, and what a crash would cost now; pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from costlens.account.cost import format_money
from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.records import RankRecord
from costlens.core.run_record import CheckpointPart, CostPart

__all__ = ["merge_checkpoints"]

_SUMMED = ("num_saved", "num_failed", "num_skipped", "num_retries", "stall_s", "write_s")


def merge_checkpoints(
    records: Sequence[RankRecord], time_s: float, cost: CostPart
) -> CheckpointPart:
    """Return the saves of all attempts, and the policy of the newest one that keeps checkpoints.

    Rank 0 counts for the job: all ranks save the same steps.

    Args:
        records: One record per attempt and rank, attempts in order.
        time_s: Seconds of all ranks in the phase ``checkpoint``, whoever saved.
        cost: The money of the run; its rate turns the worst loss into money.
    """
    parts = [r.checkpoints for r in records if r.rank.rank == 0 and r.checkpoints is not None]
    if not parts:
        return CheckpointPart(time_s=time_s)
    newest = parts[-1]
    saved = [part for part in parts if part.last_step is not None]
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    return CheckpointPart(
        time_s=time_s,
        **sums,
        url=newest.url,
        last_step=saved[-1].last_step if saved else None,
        last_time=saved[-1].last_time if saved else None,
        num_bytes=_stored_bytes(records),
        next_step=newest.next_step,
        interval=newest.interval,
        worst_loss_money=_price_loss(newest, cost),
        resumed_from=newest.resumed_from,
        resumed_step=newest.resumed_step,
        rejected=newest.rejected,
        inexact=newest.inexact,
    )


def _stored_bytes(records: Sequence[RankRecord]) -> int | None:
    """Return the bytes of the newest checkpoint over all ranks that are known to have a part."""
    told = [(r, r.checkpoints.last_name) for r in records if r.checkpoints is not None]
    newest = [(r.attempt.number, name) for r, name in told if r.rank.rank == 0 and name]
    if not newest:
        return None
    sizes = [r.checkpoints for r, name in told if (r.attempt.number, name) == newest[-1]]
    return sum(part.num_bytes for part in sizes if part is not None)


def _price_loss(part: CheckpointsPart, cost: CostPart) -> str | None:
    if part.interval is None or cost.rate_per_hour is None:
        return None
    hours = Decimal(str(part.interval.worst_loss_s)) / 3600
    return format_money(Decimal(cost.rate_per_hour) * hours)
