"""What a witness says of processes that are gone closes their attempts at once."""

from __future__ import annotations

from costlens.account.attempts import close_lost, summarize_attempt
from costlens.account.ledger import merge
from costlens.core.records import Outcome
from costlens.core.trouble_records import LastWordsPart
from tests.unit.account.build import START, make_record

BEAT = START + 30
WORDS = LastWordsPart(oom_kills=1)


def _running(rank: int = 0, **more: object):
    return make_record(
        1, rank, outcome="running", start_time=START, heartbeat_time=BEAT, world_size=2, **more
    )


def _warned(record, name: str = "SIGTERM"):
    return record.model_copy(update={"attempt": record.attempt.model_copy(update={"signal": name})})


def test_a_rank_whose_process_is_gone_is_lost_at_its_last_heartbeat() -> None:
    """A second after the heartbeat, and not after a minute; its neighbour lives on."""
    closed = close_lost([_running(0), _running(1)], BEAT + 1, {(1, 1): WORDS})
    assert [record.attempt.outcome for record in closed] == [Outcome.RUNNING, Outcome.LOST]
    assert (closed[1].attempt.end_time, closed[1].last_words) == (BEAT, WORDS)
    assert closed[0].last_words is None


def test_a_rank_that_was_told_to_go_was_preempted() -> None:
    """It noted the signal and then ended without a word: taken away with notice."""
    (gone,) = close_lost([_warned(_running())], BEAT + 1, {(1, 0): WORDS})
    assert gone.attempt.outcome is Outcome.PREEMPTED
    (old,) = close_lost([_warned(_running())], BEAT + 100)
    assert old.attempt.outcome is Outcome.PREEMPTED
    (alive,) = close_lost([_warned(_running())], BEAT + 1)
    assert alive.attempt.outcome is Outcome.RUNNING


def test_a_witness_cannot_reopen_or_change_what_ended() -> None:
    """Who told how the attempt ended is believed; the process may well be gone by now."""
    record = make_record(outcome="completed")
    assert close_lost([record], START + 1e9, {(1, 0): WORDS}) == [record]


def test_the_attempt_says_what_the_rank_that_failed_said() -> None:
    """Not what the ranks said that were taken down with it."""
    words = LastWordsPart(error_type="ValueError", exit_code=1, stack=["train.py:3 step"])
    ranks = [
        _warned(make_record(1, 0, outcome="preempted", last_words=LastWordsPart(signal="SIGTERM"))),
        make_record(1, 1, outcome="failed", last_words=words),
    ]
    summary = summarize_attempt(ranks)
    assert (summary.outcome, summary.last_words) == (Outcome.FAILED, words)
    assert summary.signal is None


def test_the_merged_record_shows_a_stall_only_of_a_rank_that_may_be_in_it() -> None:
    """A stall is the present: an attempt that has ended has none."""
    stall = {"phase": "data_wait", "since": START, "age_s": 90.0, "limit_s": 60.0, "stack": []}
    live = merge([_running(stall=stall)], now=BEAT + 1)
    assert live.ranks[0].stall is not None
    ended = merge([make_record(outcome="failed", stall=stall)], now=BEAT + 1)
    assert ended.ranks[0].stall is None


def test_ranks_that_a_launcher_takes_down_do_not_hide_the_kill() -> None:
    """One rank is killed for lack of memory, and its launcher ends the other as a scheduler would.

    Without that count nobody can tell, and the notice that the other rank had is believed.
    """
    other = _warned(make_record(1, 0, outcome="preempted", world_size=2))
    for kills, outcome in ((1, Outcome.LOST), (0, Outcome.PREEMPTED)):
        gone = make_record(1, 1, outcome="lost", last_words=LastWordsPart(oom_kills=kills))
        assert summarize_attempt([other, gone]).outcome is outcome
