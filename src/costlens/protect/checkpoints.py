"""Checkpoints in a plain torch loop: ``run.checkpoints(...)``, ``resume()``, ``step()``.

A thin door over ``manager.py``; everything it does on the training thread between two saves is a
comparison of two numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from costlens.core.boundaries import Boundaries

if TYPE_CHECKING:  # it needs torch, and a run may do without
    from costlens.protect.manager import CheckpointManager
    from costlens.protect.preemption import Preemption

__all__ = ["Checkpoints"]


class Checkpoints:
    """The checkpoints of one run; ``run.checkpoints`` makes it.

    Args:
        manager: Saves and resumes; None where the run is off, and every call does nothing.
        resumes: ``auto``, ``never`` or ``must``.
        count_passes: Returns how many passes over the loader are complete.
        boundaries: Told of each step, for all ranks act at one.

    Attributes:
        preemption: Knows whether the run is asked to leave; None where nobody listens.
    """

    def __init__(
        self,
        manager: CheckpointManager | None,
        resumes: str,
        count_passes: Callable[[], int] = lambda: 0,
        *,
        boundaries: Boundaries | None = None,
    ) -> None:
        self._manager = manager
        self._boundaries = boundaries
        self._resumes = resumes
        self._count_passes = count_passes
        self.preemption: Preemption | None = None
        self._step = 0

    @property
    def manager(self) -> CheckpointManager | None:
        """Return what saves, None where the run is off or has ended."""
        return self._manager

    @property
    def step_number(self) -> int:
        """Return the optimizer steps done, over all attempts."""
        return self._step

    @property
    def epoch(self) -> int:
        """Return how many passes over the loader are complete, over all attempts.

        ``for epoch in range(checkpoints.epoch, num_epochs)`` goes on with the one under way, whose
        first batch is then the first that was not used.
        """
        return self._count_passes()

    def resume(self) -> int:
        """Go on from the newest checkpoint that verifies; return the steps done so far, 0 if fresh.

        Call it once, before the loop, with everything built. Reads the whole state.

        Raises:
            CheckpointError: If the checkpoint does not fit the model, or there is none and
                ``COSTLENS_RESUME=must``.
            StorageError: If the store cannot be read.
        """
        if self._manager is None:
            return 0
        step = self._manager.resume_as(self._resumes)
        self._step = step or 0
        return self._step

    def step(self) -> None:
        """Note that an optimizer step is done; saves when it is time to.

        Call it after ``optimizer.step()`` and whatever else belongs to the step (scheduler, EMA).
        About 1 µs where no save is due; a save costs a copy of the state.

        Where a signal has asked for the end it saves and, unless the user handles that signal,
        raises ``SystemExit`` with ``COSTLENS_PREEMPTION_EXIT_CODE``.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        self._step += 1
        if self._boundaries is not None:
            self._boundaries.tell_step()
        if self._manager is not None:
            if self.preemption is not None and self.preemption.is_due:
                self.preemption.leave(self._step)
            self._manager.step(self._step)

    def pause(self) -> None:
        """Look whether the run is asked to leave, at a fetch of an evaluation; training thread."""
        if self._manager is not None and self.preemption is not None and self.preemption.is_asked:
            self.preemption.leave_evaluation(self._step)

    def save(self) -> bool:
        """Save now; return whether a snapshot was taken, False while one is being written.

        Several ranks save some steps later, at one that all of them agree on; it does not matter
        how many of them ask.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        return self._manager is not None and self._manager.save(self._step, "manual")

    def finish(self, timeout_s: float, *, is_clean: bool) -> None:
        """Save what is not saved yet and wait for it; ``Run.finish`` calls this.

        Args:
            timeout_s: Most seconds to wait.
            is_clean: Whether the loop ended between two steps.
        """
        if self.preemption is not None and self.preemption.is_saving:
            timeout_s = min(timeout_s, max(0.0, self.preemption.left_s))
        if self._manager is not None:
            manager, self._manager = self._manager, None
            if self._boundaries is not None:
                self._boundaries.is_told = False
            manager.close(self._step, timeout_s, is_clean=is_clean)
