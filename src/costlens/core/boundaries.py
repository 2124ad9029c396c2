"""Where the steps of a training end: the only places at which all ranks can act together.

Doorways and plain loops tell of each boundary on the training thread; what the ranks have agreed on
(``protect/agreement.py``) comes back there. Without an agreement nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from costlens.core.attempt_state import AttemptState
from costlens.core.guard import faults
from costlens.core.recorder import Counters

__all__ = ["STOP", "Agreeing", "Boundaries"]

STOP = "stop:"
"""What an action begins with that ends the training; the rest is the reason."""


class Agreeing(Protocol):
    """What the ranks agree by; see ``protect/agreement.py``."""

    def is_pending(self, action: str) -> bool:
        """Return whether this is proposed and has neither happened nor been called off."""

    def propose(self, action: str) -> None:
        """Ask all ranks to act."""

    def reach_boundary(self) -> str | None:
        """Count a boundary and return what all ranks do there, if anything."""

    def poll(self) -> None:
        """Propose, answer, decide and learn; pipeline thread."""

    def close(self) -> None:
        """Call off what is undecided; pipeline thread."""


class Boundaries:
    """The boundaries of one run; training thread.

    Args:
        state: Gets the reason why the training is to end.
        counters: Tell whether steps are seen.

    Attributes:
        agreement: How the ranks agree, None where nothing asks for it.
        actions: What can be agreed on besides an end, by the word before the first colon: called
            with what follows it, on every rank at the same boundary.
        count_steps: Returns the calls of optimizers so far, where a plain loop sees them.
        is_told: Whether the loop tells its steps itself, as one with checkpoints does, so that
            iterations are no boundaries.
        pause: What looks, before each fetch, whether the run is asked to leave an evaluation.
        reason: Why the training is to end where it stands, or None.
    """

    __slots__ = (
        "_counters",
        "_num_steps",
        "_state",
        "actions",
        "agreement",
        "count_steps",
        "is_told",
        "pause",
        "reason",
    )

    def __init__(self, state: AttemptState, counters: Counters) -> None:
        self._state = state
        self._counters = counters
        self._num_steps = 0
        self.reason: str | None = None
        self.agreement: Agreeing | None = None
        self.actions: dict[str, Callable[[str], None]] = {}
        self.is_told = False
        self.count_steps: Callable[[], int] | None = None
        self.pause: Callable[[], None] | None = None

    @property
    def should_stop(self) -> bool:
        """Return whether all ranks have agreed to end the training, and have come there."""
        return self.reason is not None

    def stop(self, reason: str) -> None:
        """End the training here, where that is settled otherwise."""
        self.reason = reason

    def reach(self) -> bool:
        """Count a boundary, act, and return whether the training is to end there; 0.2 µs.

        Called on every rank at the end of the same steps.
        """
        if self.agreement is not None:
            action = faults.call("protect.boundary", self.agreement.reach_boundary)
            if action is not None:
                self._act(action)
        if self.reason is not None:
            self._state.end_reason = self.reason  # again where the run goes on with another fit
        return self.reason is not None

    def _act(self, action: str) -> None:
        if action.startswith(STOP):
            self.reason = action.removeprefix(STOP)
        else:
            name, _, rest = action.partition(":")
            faults.call("protect.boundary", self.actions[name], rest)

    def tell_step(self) -> None:
        """Learn from the loop that a step is done: a boundary, and from now on the only ones."""
        self.is_told = True
        self.reach()

    def note_iteration(self) -> None:
        """Learn that a plain loop has ended an iteration: a boundary, unless it made no step."""
        if self.agreement is None or self.is_told:
            return
        if self.count_steps is not None and self._counters.optimizer_steps >= 0:
            num_steps = self.count_steps()
            if num_steps == self._num_steps:
                return
            self._num_steps = num_steps
        self.reach()
