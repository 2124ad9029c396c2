"""Ranks on unequal hardware compute in one precision: the one that rank 0 can."""

from __future__ import annotations

import pytest

from costlens.account.ledger import merge
from tests.distributed.launching import Launcher

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("majors", "flag", "effective", "skipped"),
    [(("7", "8"), "16-mixed", "fp16", 1), (("8", "7"), "bf16-mixed", "bf16", 0)],
    ids=["fp16", "bf16"],
)
def test_rank_0_decides_for_all(launch: Launcher, majors, flag, effective, skipped) -> None:
    """C072: one format for both, one overflow that both skip (C071), the same weights."""
    done = launch("job_precision.py", *majors)
    one, other = done.counted
    assert one["precision"] == other["precision"] == flag
    assert one["weights"] == other["weights"]
    assert one["scale"] == other["scale"] == (32_768.0 if skipped else None)
    (run,) = launch.runs
    records = [*launch.records(run).values()]
    assert [record.precision.effective for record in records] == [effective] * 2
    assert [record.precision.skipped_steps for record in records] == [skipped] * 2
    merged = merge(records, now=records[0].attempt.heartbeat_time)
    assert (merged.precision.effective, merged.precision.skipped_steps) == (effective, skipped)
    assert merged.problems == []
