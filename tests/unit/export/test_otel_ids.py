"""Ids by hash: what all ranks arrive at without talking to one another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from costlens.export.otel_ids import (
    end_ids,
    iteration_ids,
    marker_ids,
    period_ids,
    rank_ids,
    should_trace,
)


def test_ids_are_the_same_in_every_process_and_release() -> None:
    """Ids depend on run, attempt and period only.

    These were written down, and a resumed run must arrive at the same ones in another process.
    """
    assert marker_ids("run-a", 1) == (0x7F198C52756BA3B6085DEEC1C55D203B, 0xA15FF75C31771B29)
    written_down = (0x3C6DC4664C634B834120671C81B44CAD, 0x262130967E6EE672)
    assert rank_ids("run-a", 2, 28_333_333, 3) == written_down


@given(st.text(), st.integers(1, 10**6), st.integers(0, 10**12), st.integers(0, 10**6))
def test_ids_are_valid(run_id: str, attempt: int, period: int, rank: int) -> None:
    """No id is 0, and each fits its field, whatever a run is called."""
    found = [
        marker_ids(run_id, attempt),
        period_ids(run_id, attempt, period),
        rank_ids(run_id, attempt, period, rank),
        end_ids(run_id, attempt, rank, period),
        iteration_ids(period_ids(run_id, attempt, period).trace_id, rank, period, "forward"),
    ]
    assert all(0 < ids.trace_id < 1 << 128 and 0 < ids.span_id < 1 << 64 for ids in found)


def test_what_differs_has_another_id() -> None:
    """Runs, attempts and periods have traces of their own; parts cannot run into one another."""
    traces = {
        marker_ids("a", 1).trace_id,
        marker_ids("a", 11).trace_id,
        marker_ids("a1", 1).trace_id,
        period_ids("a", 1, 1).trace_id,
        period_ids("a", 1, 11).trace_id,
        period_ids("a", 11, 1).trace_id,
    }
    assert len(traces) == 6
    trace_id = period_ids("a", 1, 1).trace_id
    spans = {
        iteration_ids(trace_id, rank, iteration, part).span_id
        for rank in (1, 11)
        for iteration in (1, 11)
        for part in ("", "x")
    }
    assert len(spans) == 8


def test_ranks_share_a_periods_trace_and_have_their_own_spans() -> None:
    """All ranks write into the trace whose root rank 0 writes, each under a span id of its own."""
    ids = [rank_ids("a", 1, 5, rank) for rank in range(64)]
    assert {found.trace_id for found in ids} == {period_ids("a", 1, 5).trace_id}
    assert len({found.span_id for found in ids} | {period_ids("a", 1, 5).span_id}) == 65
    assert end_ids("a", 1, 0, 9).trace_id == marker_ids("a", 1).trace_id


def test_up_to_256_ranks_all_trace() -> None:
    """A job of 256 ranks leaves nobody out."""
    assert all(should_trace(period_ids("a", 1, 5).trace_id, rank, 256) for rank in range(256))


def test_above_256_ranks_about_64_trace_each_period_and_they_take_turns() -> None:
    """A trace of 1024 ranks holds about 64 of them; over periods every rank is seen."""
    chosen = [
        {rank for rank in range(1024) if should_trace(period_ids("a", 1, p).trace_id, rank, 1024)}
        for p in range(200)
    ]
    assert all(32 <= len(ranks) <= 110 for ranks in chosen)
    assert 58 < sum(map(len, chosen)) / len(chosen) < 70
    assert set.union(*chosen) == set(range(1024))
