"""Steps that only a checkpoint proves: the process that made them died before it could say so."""

from __future__ import annotations

import io
from decimal import Decimal

from rich.console import Console

from costlens.account.ledger import merge
from costlens.account.proven import credit_proven_steps
from costlens.core.checkpoint_records import CheckpointsPart, IntervalPart
from costlens.core.records import RankRecord
from costlens.export.console import render
from tests.unit.account.build import make_price, make_record


def attempt(
    number: int, start: int, made: int, outcome: str, *, resumed_attempt: int | None = None
) -> RankRecord:
    """Return the record of an attempt that saves."""
    resumed_step = None if resumed_attempt is None else start
    return make_record(
        attempt=number,
        outcome=outcome,
        progress={"optimizer_steps": made, "iterations": made},
        attempt_start_step=start,
        attempt_end_step=start + made,
        checkpoints=CheckpointsPart(
            url="x", resumed_attempt=resumed_attempt, resumed_step=resumed_step
        ),
    )


def test_a_resume_proves_the_steps_before_it() -> None:
    """Heard of at step 5 and saved at 8: eight steps were made, and none of them was lost."""
    records = [
        attempt(1, 0, 5, "lost"),
        attempt(2, 8, 12, "completed", resumed_attempt=1),
    ]
    credited = credit_proven_steps(records)
    assert credited[0].progress.optimizer_steps == 8
    assert credited[0].attempt.end_step == 8
    assert credited[1] == records[1]
    progress = merge(records, now=1e10).progress
    assert (progress.optimizer_steps, progress.productive_steps, progress.lost_steps) == (20, 20, 0)


def test_what_was_recorded_beyond_the_save_is_lost() -> None:
    """Heard of at step 9 and resumed at 8: one step is done again."""
    records = [
        attempt(1, 0, 9, "lost"),
        attempt(2, 8, 12, "completed", resumed_attempt=1),
    ]
    assert credit_proven_steps(records) == records
    progress = merge(records, now=1e10).progress
    assert (progress.optimizer_steps, progress.productive_steps, progress.lost_steps) == (21, 20, 1)


def test_a_step_that_was_counted_and_not_yet_said() -> None:
    """Killed between an optimizer step and its report: the count is right, and the step is lost."""
    killed = attempt(1, 0, 9, "lost")
    killed = killed.model_copy(
        update={"attempt": killed.attempt.model_copy(update={"end_step": 8})}
    )
    progress = merge([killed, attempt(2, 8, 12, "completed", resumed_attempt=1)], now=1e10).progress
    assert (progress.productive_steps, progress.lost_steps) == (20, 1)


def test_what_a_crash_costs_now_is_money() -> None:
    """The most work that can be lost, at the price of an hour; counts add up over attempts."""
    interval = IntervalPart(
        interval_s=300.0,
        optimum_s=300.0,
        rail="optimum",
        worst_loss_s=360.0,
        is_loss_kept=True,
        failure_rate_per_s=1e-4,
        stall_s=1.0,
        write_s=59.0,
        slowdown=0.0,
    )
    first = attempt(1, 0, 8, "lost")
    second = attempt(2, 8, 12, "completed", resumed_attempt=1)
    records = [
        record.model_copy(
            update={
                "price": make_price("10"),
                "checkpoints": record.checkpoints.model_copy(
                    update={"num_saved": 3, "last_step": 8, "interval": interval}
                ),
            }
        )
        for record in (first, second)
        if record.checkpoints is not None
    ]
    merged = merge(records, now=1e10)
    assert merged.checkpoints.num_saved == 6
    assert merged.checkpoints.worst_loss_money is not None
    assert Decimal(merged.checkpoints.worst_loss_money) == 1
    shown = Console(width=100, record=True, file=io.StringIO())
    render(merged, shown)
    text = shown.export_text()
    assert "costs at most 6m 00s of work" in text
    assert "6 checkpoints · newest at step 8" in text
