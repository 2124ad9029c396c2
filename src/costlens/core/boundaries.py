"""Where the steps of a training end: the only places at which all ranks can act together.

Doorways and plain loops tell of each boundary on the training thread; what the ranks have agreed on
(``protect/agreement.py``) comes back there. Without an agreement nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from costlens.core.guard import faults
from costlens.core.recorder import Counters
from costlens.core.snapshot_builder import AttemptState

__all__ = ["Boundaries"]


class Agreeing(Protocol):
    """What the ranks agree by."""

    def reach_boundary(self) -> str | None:
        """Count a boundary and return why all ranks stop there, if they do."""


class Boundaries:
    """The boundaries of one run; training thread.

    Args:
        state: Gets the reason why the training is to end.
        counters: Tell whether steps are seen.

    Attributes:
        agreement: How the ranks agree, None where nothing asks for it.
        count_steps: Returns the calls of optimizers so far, where a plain loop sees them.
        should_stop: Whether all ranks have agreed to end the training, and have come there.
    """

    __slots__ = ("_counters", "_num_steps", "_state", "agreement", "count_steps", "should_stop")

    def __init__(self, state: AttemptState, counters: Counters) -> None:
        self._state = state
        self._counters = counters
        self._num_steps = 0
        self.agreement: Agreeing | None = None
        self.count_steps: Callable[[], int] | None = None
        self.should_stop = False

    def reach(self) -> bool:
        """Count a boundary and return whether the training is to end there; 0.2 µs.

        Called on every rank at the end of the same steps.
        """
        agreement = self.agreement
        if agreement is None or self.should_stop:
            return self.should_stop
        reason = faults.call("protect.boundary", agreement.reach_boundary)
        if reason is not None:
            self.should_stop = True
            self._state.end_reason = reason
        return self.should_stop

    def note_iteration(self) -> None:
        """Learn that a plain loop has ended an iteration: a boundary, unless it made no step."""
        if self.agreement is None:
            return
        if self.count_steps is not None and self._counters.optimizer_steps >= 0:
            num_steps = self.count_steps()
            if num_steps == self._num_steps:
                return
            self._num_steps = num_steps
        self.reach()
