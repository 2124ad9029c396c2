"""Lost work and goodput."""

from __future__ import annotations

from costlens.account.attempts import summarize_attempt
from costlens.account.goodput import count_lost_steps, tell_queue
from costlens.account.ledger import merge
from costlens.core.goodput_record import GoodputPart, SpentPart
from costlens.core.job_records import QueuePart, WaitPart
from costlens.core.run_record import AttemptSummary
from tests.unit.account.build import START, make_price, make_record


def _attempts(
    *spans: tuple[int | None, int | None], outcome: str = "lost", saved: int | None = None
) -> list[AttemptSummary]:
    records = [
        make_record(
            number, outcome=outcome, attempt_start_step=start, attempt_end_step=end,
            attempt_saved_step=saved,
        )
        for number, (start, end) in enumerate(spans, start=1)
    ]  # fmt: skip
    return [summarize_attempt([record]) for record in records]


def test_steps_beyond_the_resume_position_are_lost() -> None:
    """Attempt 1 reached step 50, attempt 2 resumed at 40: ten steps were done again."""
    assert count_lost_steps(_attempts((0, 50), (40, 60)), {1: 50, 2: 20}) == {1: 10, 2: 0}


def test_a_later_resume_can_undo_an_earlier_attempt() -> None:
    """Resuming at 20 undoes steps of attempts 1 and 2, and no step is counted as lost twice."""
    lost = count_lost_steps(_attempts((0, 50), (40, 45), (20, 60)), {1: 50, 2: 5, 3: 40})
    assert lost == {1: 30, 2: 5, 3: 0}
    assert 50 + 5 + 40 - sum(lost.values()) == 60, "what survives is the position reached"


def test_starting_over_loses_everything() -> None:
    """A restart at step 0 has kept nothing."""
    assert count_lost_steps(_attempts((0, 50), (0, 50)), {1: 50, 2: 50}) == {1: 50, 2: 0}


def test_a_clean_resume_loses_nothing() -> None:
    """Also where the save was newer than the last heartbeat, nothing is negative."""
    assert count_lost_steps(_attempts((0, 50), (52, 60)), {1: 50, 2: 8}) == {1: 0, 2: 0}


def test_unknown_positions_stay_unknown() -> None:
    """A doorway that does not know where it resumed gives no number."""
    assert count_lost_steps(_attempts((None, None), (None, None)), {1: 5, 2: 5}) is None
    assert count_lost_steps(_attempts((None, None)), {1: 5}) == {1: 0}


def test_an_attempt_that_crashed_in_startup_changes_nothing() -> None:
    """It made no step; while a new attempt is still starting, nobody knows yet what is lost."""
    spans = ((0, 50), (None, None), (40, 60))
    assert count_lost_steps(_attempts(*spans), {1: 50, 2: 0, 3: 20}) == {1: 10, 2: 0, 3: 0}
    live = [*_attempts((0, 50)), *_attempts((0, 50), (None, None), outcome="running")[1:]]
    assert count_lost_steps(live, {1: 50, 2: 0}) is None


def test_the_start_follows_from_the_end_and_the_steps_made() -> None:
    """A doorway that knows only where an attempt ended still places it."""
    assert count_lost_steps(_attempts((None, 50), (40, None)), {1: 50, 2: 20}) == {1: 10, 2: 0}


def test_a_bad_end_loses_what_no_save_holds_until_somebody_resumes() -> None:
    """Killed at 50 with a save at 40: ten steps are gone; an attempt that resumes at 45 knows."""
    killed = _attempts((0, 50), saved=40)
    assert count_lost_steps(killed, {1: 50}) == {1: 10}
    resumed = _attempts((0, 50), (45, 60), saved=40, outcome="completed")
    assert count_lost_steps(resumed, {1: 50, 2: 15}) == {1: 5, 2: 0}
    for outcome in ("running", "completed", "stopped_early"):
        assert count_lost_steps(_attempts((0, 50), saved=40, outcome=outcome), {1: 50}) == {1: 0}
    assert count_lost_steps(_attempts((0, 50)), {1: 50}) == {1: 0}, "unknown saves lose nothing"


TIME_S = {"forward": 20.0, "backward": 50.0, "optimizer": 10.0, "data_wait": 20.0}
STEPS = {"iterations": 40, "optimizer_steps": 40}


def test_goodput_is_the_paid_share_of_steps_that_survived() -> None:
    """80 of 100 s trained the model, a quarter of the steps was done again: goodput is 60 %."""
    first = make_record(
        1, time_s=TIME_S, outcome="failed", progress=STEPS, price=make_price("36"),
        attempt_start_step=0, attempt_end_step=40,
    )  # fmt: skip
    second = make_record(
        2, outcome="running", progress={"optimizer_steps": 0}, price=make_price("36"),
        attempt_start_step=30, attempt_end_step=30,
    )  # fmt: skip
    part = merge([first, second], now=START).goodput
    assert part.share == 0.6
    assert part.training == SpentPart(time_s=80.0, money="0.80")
    assert part.productive == SpentPart(time_s=60.0, money="0.60")
    assert part.badput == {
        "data_wait": SpentPart(time_s=20.0, money="0.20"),
        "lost_work": SpentPart(time_s=20.0, money="0.20"),
    }
    assert part.unpaid_s == {"down": 900.0}, "attempts begin 1000 s apart, and nobody paid for it"


def test_attempts_lose_their_own_share() -> None:
    """A fast attempt that is lost whole and a slow one that survives: not an average of both."""
    records = [
        make_record(
            number, time_s={"compute": compute_s}, outcome=outcome,
            progress={"iterations": 10, "optimizer_steps": 10},
            attempt_start_step=0, attempt_end_step=10,
        )
        for number, compute_s, outcome in ((1, 10.0, "failed"), (2, 90.0, "completed"))
    ]  # fmt: skip
    part = merge(records, now=START).goodput
    assert (part.share, part.badput["lost_work"].time_s) == (0.9, 10.0)
    assert part.badput["lost_work"].money is None, "without a price there is no money"


def test_training_that_came_to_no_step_is_lost_when_nobody_goes_on_with_it() -> None:
    """An attempt that died in its first step trained for nothing; a live one may still make it."""
    for outcome, lost_s in (("failed", 5.0), ("running", None)):
        record = make_record(
            time_s={"compute": 5.0}, outcome=outcome, progress={"optimizer_steps": 0}
        )
        lost = merge([record], now=START).goodput.badput.get("lost_work")
        assert (None if lost is None else lost.time_s) == lost_s


def test_goodput_of_nothing_is_unknown() -> None:
    """C108: without time or steps there is no share, and no cause claims to have been nothing."""
    for progress in ({}, {"iterations": 5}):
        part = merge([make_record(time_s={"compute": 5.0}, progress=progress)], now=START).goodput
        assert (part.share, part.productive, part.badput) == (None, None, {})
        assert part.training.time_s == 5.0
    assert merge([make_record(progress={"optimizer_steps": 3})], now=START).goodput.share is None


def test_a_wait_in_the_queue_is_no_down_time_as_well() -> None:
    """Ten minutes between two attempts, four of them queued; the first one waited two."""
    part = GoodputPart(unpaid_s={"down": 600.0})
    waits = [
        WaitPart(attempt=n, start_time=START, wait_s=s, deferral_s=d, counted_from="eligible")
        for n, s, d in ((1, 120.0, None), (2, 180.0, 60.0))
    ]
    told = tell_queue(part, QueuePart(wait_s=300.0, num_waits=2, waits=waits)).unpaid_s
    assert told == {"down": 360.0, "queue": 360.0}
    assert tell_queue(part, QueuePart()) == part
    alone = tell_queue(GoodputPart(), QueuePart(wait_s=120.0, num_waits=1, waits=waits[:1]))
    assert alone.unpaid_s == {"queue": 120.0}


def test_clocks_that_disagree_make_no_negative_down_time() -> None:
    """C010: the second host's clock is an hour behind; the gap counts as nothing and is flagged."""
    records = [
        make_record(1, time_s={"compute": 10.0}, start_time=START + 3600.0, outcome="failed"),
        make_record(2, time_s={"compute": 10.0}, start_time=START),
    ]
    run = merge(records, now=START + 7200.0)
    assert run.goodput.unpaid_s == {"down": 0.0}
    assert any("clocks differ" in problem for problem in run.problems)
