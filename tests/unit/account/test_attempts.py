"""Attempts over their ranks, and deaths nobody reported."""

from __future__ import annotations

import pytest

from costlens.account.attempts import close_lost, flag_clocks, stale_after_s, summarize_attempt
from costlens.core.records import Outcome
from costlens.core.training_records import WindowPart
from tests.unit.account.build import START, make_record


def _running(attempt: int = 1, rank: int = 0, *, beat: float, **more: object):
    return make_record(
        attempt, rank, outcome="running", start_time=START, heartbeat_time=beat, **more
    )


def _windows(length_s: float, count: int = 3) -> list[WindowPart]:
    return [
        WindowPart(
            index=n,
            start_time=START + n * length_s,
            end_time=START + (n + 1) * length_s,
            phase_ns={},
            counts={},
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(("age_s", "outcome"), [(59.0, "running"), (61.0, "lost")])
def test_a_silent_rank_is_lost_after_a_minute(age_s: float, outcome: str) -> None:
    """With ten-second windows a heartbeat may be 60 s old; then the attempt ended at it."""
    (closed,) = close_lost([_running(beat=START + 30)], now=START + 30 + age_s)
    assert closed.attempt.outcome is Outcome(outcome)
    assert closed.attempt.end_time == (START + 30 if outcome == "lost" else None)


def test_long_windows_allow_older_heartbeats() -> None:
    """Writing every 60 s, a rank may be silent for 360 s; one stretched window changes nothing."""
    record = _running(beat=START + 180, windows=_windows(60.0))
    assert stale_after_s(record) == 360.0
    stretched = [*_windows(10.0), *_windows(3600.0, 1)]
    assert stale_after_s(_running(beat=START, windows=stretched)) == 60.0


def test_a_later_attempt_closes_the_one_before() -> None:
    """Killed at 30 s and restarted at 40 s: attempt 1 is lost at once, not after a minute."""
    first = _running(1, beat=START + 30)
    second = make_record(2, outcome="running", start_time=START + 40, heartbeat_time=START + 45)
    closed = close_lost([first, second], now=START + 46)
    assert [record.attempt.outcome.value for record in closed] == ["lost", "running"]


def test_an_ended_attempt_is_left_alone() -> None:
    """Age says nothing about a rank that told how it ended."""
    record = make_record(outcome="completed")
    assert close_lost([record], now=START + 1e9) == [record]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["completed", "completed"], "completed"),
        (["completed", "running"], "running"),
        (["running", "lost"], "running"),
        (["completed", "lost"], "lost"),
        (["interrupted", "failed"], "failed"),
        (["running", "failed"], "failed"),
        (["stopped_early", "completed"], "stopped_early"),
        (["preempted", "interrupted"], "preempted"),
    ],
)
def test_the_gravest_outcome_of_the_ranks_is_the_attempts(outcomes: list, expected: str) -> None:
    """One failed rank fails the job; one live rank keeps it running."""
    records = [make_record(rank=rank, outcome=outcome) for rank, outcome in enumerate(outcomes)]
    assert summarize_attempt(records).outcome is Outcome(expected)


def test_an_attempt_tells_the_error_of_the_rank_that_failed() -> None:
    """The type and exit code are those of a rank with the attempt's outcome, not of a bystander."""
    bystander = make_record(rank=0, outcome="interrupted", attempt_exit_code=143)
    culprit = make_record(
        rank=1, outcome="failed", attempt_error_type="OutOfMemoryError", attempt_exit_code=1
    )
    summary = summarize_attempt([bystander, culprit])
    assert (summary.error_type, summary.exit_code) == ("OutOfMemoryError", 1)


def test_an_attempt_lasts_as_long_as_its_longest_rank() -> None:
    """Wall time is a rank's own measurement, whatever the hosts' clocks say."""
    records = [
        make_record(rank=0, time_s={"compute": 50.0}, start_time=START),
        make_record(rank=1, time_s={"compute": 60.0}, start_time=START - 86_400.0),
    ]
    assert summarize_attempt(records).wall_s == 60.0


def test_overlapping_attempts_and_clocks_ahead_are_flagged() -> None:
    """Wall times that cannot both be right are told, not corrected."""
    first = make_record(1, time_s={"compute": 100.0}, start_time=START)
    second = make_record(2, time_s={"compute": 10.0}, start_time=START + 80.0)
    attempts = [summarize_attempt([first]), summarize_attempt([second])]
    (overlap,) = flag_clocks(attempts, [first, second], now=START + 200.0)
    assert overlap.startswith("attempt 1 was alive 20 s after attempt 2 began")
    (ahead,) = flag_clocks([], [first, second], now=START + 40.0)
    assert ahead == "the clock of node-0 is 60 s ahead of this machine's"


def test_ranks_that_fell_silent_or_never_came_are_named() -> None:
    """One that is alive or ended by its own word reports, whatever it said."""
    records = [
        _running(rank=0, beat=START + 100, world_size=5),
        _running(rank=1, beat=START, world_size=5),
        make_record(rank=2, outcome="failed", world_size=5),
    ]
    attempt = summarize_attempt(close_lost(records, now=START + 110))
    assert (attempt.num_reporting, attempt.missing_ranks) == (2, [1, 3, 4])
    whole = summarize_attempt([make_record(rank=rank, world_size=2) for rank in range(2)])
    assert (whole.num_reporting, whole.missing_ranks) == (2, [])


def test_a_record_that_claims_any_number_of_ranks_costs_nothing() -> None:
    """What a file says is not believed to be small: the first 64 missing ranks are named."""
    attempt = summarize_attempt([make_record(rank=1, world_size=2**62)])
    assert attempt.num_reporting == 1
    assert attempt.missing_ranks == [0, *range(2, 65)]
