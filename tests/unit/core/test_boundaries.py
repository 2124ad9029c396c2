"""What happens at the boundaries of a training."""

from __future__ import annotations

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Boundaries
from costlens.core.recorder import Counters
from tests.unit.export.rehearsal import Rehearsal


class Script:
    """Agrees on what it is told, boundary by boundary."""

    def __init__(self, *actions: str | None) -> None:
        self.actions = [*actions]

    def reach_boundary(self) -> str | None:
        """Return the next action."""
        return self.actions.pop(0) if self.actions else None


@pytest.fixture
def state() -> AttemptState:
    """Return the state of an attempt."""
    return Rehearsal().state


def test_actions_happen_where_they_were_agreed_on(state: AttemptState) -> None:
    """A save at the second boundary, an end at the fourth, with what they were agreed on with."""
    boundaries = Boundaries(state, Counters())
    boundaries.agreement = Script(None, "save:interval:noon", None, "stop:budget")
    seen: list[object] = []
    boundaries.actions["save"] = seen.append
    for _ in range(6):
        seen += [boundaries.reach()]
    assert seen == [False, "interval:noon", False, False, True, True, True]
    assert (state.end_reason, boundaries.should_stop) == ("budget", True)


def test_a_run_that_goes_on_stays_stopped(state: AttemptState) -> None:
    """A second fit under a spent budget ends at its first boundary, for the same reason."""
    boundaries = Boundaries(state, Counters())
    boundaries.agreement = Script("stop:budget")
    boundaries.reach()
    state.reopen()
    assert state.end_reason is None
    assert boundaries.reach()
    assert state.end_reason == "budget"


def test_without_steps_every_iteration_is_a_boundary(state: AttemptState) -> None:
    """With them only iterations in which an optimizer was called."""
    counters, num_calls = Counters(), 0
    boundaries = Boundaries(state, counters)
    boundaries.note_iteration()
    script = boundaries.agreement = Script(*[None] * 10)
    boundaries.note_iteration()
    assert len(script.actions) == 9
    boundaries.count_steps = lambda: num_calls
    boundaries.note_iteration()
    assert len(script.actions) == 8, "no optimizer is watched"
    counters.watch_steps()
    boundaries.note_iteration()
    assert len(script.actions) == 8
    num_calls = 1
    boundaries.note_iteration()
    boundaries.note_iteration()
    assert len(script.actions) == 7
