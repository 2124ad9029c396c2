"""Lost work and goodput."""

from __future__ import annotations

import pytest

from costlens.account.attempts import summarize_attempt
from costlens.account.goodput import count_lost_steps, goodput_share
from costlens.core.run_record import AttemptSummary, RunProgress
from tests.unit.account.build import make_record


def _attempts(*spans: tuple[int | None, int | None], outcome: str = "lost") -> list[AttemptSummary]:
    return [
        summarize_attempt(
            [make_record(number, outcome=outcome, attempt_start_step=start, attempt_end_step=end)]
        )
        for number, (start, end) in enumerate(spans, start=1)
    ]


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


def test_goodput_is_the_paid_share_of_steps_that_survived() -> None:
    """80 of 100 s trained the model, a quarter of the steps was done again: goodput is 60 %."""
    time_s = {
        "forward": 20.0,
        "backward": 50.0,
        "optimizer": 10.0,
        "data_wait": 20.0,
        "total": 100.0,
    }
    progress = RunProgress(optimizer_steps=40, productive_steps=30, lost_steps=10)
    assert goodput_share(time_s, progress) == pytest.approx(0.6)


def test_goodput_of_nothing_is_unknown() -> None:
    """C108: without time or steps there is no share."""
    assert goodput_share({}, RunProgress(optimizer_steps=1, productive_steps=1)) is None
    assert goodput_share({"total": 5.0}, RunProgress(productive_steps=0)) is None
    assert goodput_share({"total": 5.0}, RunProgress(optimizer_steps=5)) is None
