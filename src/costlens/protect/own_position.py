"""The place of a loader that knows its own state, as torchdata's StatefulDataLoader does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from costlens.protect.position import Position, Report, State
from costlens.protect.rng import capture_host_rng, restore_rng

__all__ = ["OwnPosition"]


class OwnPosition(Position):
    """Asks a loader for its state, and sets the random numbers right around its restore.

    Args:
        loader: Has ``state_dict`` and ``load_state_dict``.
        report: Takes what turns out inexact after :meth:`restore` has returned.
        can_look_back: Whether the loop fetches one batch ahead of the one it trains on, so that
            the state before each fetch has to be kept; costs a ``state_dict()`` a batch.
    """

    kind = "own"

    def __init__(self, loader: Any, report: Report, *, can_look_back: bool = False) -> None:  # noqa: ANN401
        self._restored: State | None = None
        self._before_making: State | None = None
        self._can_look_back = can_look_back
        self._previous: State | None = None
        super().__init__(loader, report)

    def state(self, num_ahead: int = 0) -> State:
        """Return the position after the batches used so far; costs what the loader's takes.

        Args:
            num_ahead: 1 if the loop has fetched one batch that it has not trained on yet.
        """
        if self._restored is not None:
            return self._restored
        state = self._facts()
        if num_ahead and self._can_look_back and self._previous is not None:
            return state | {"is_in_pass": True, "own": self._previous}
        loader = self._loader()
        # Asked before its first pass, it would make an iterator and draw random numbers for it.
        is_fresh = self._is_followed and getattr(loader, "_iterator", None) is None
        return state | {"own": {} if is_fresh else loader.state_dict()}

    def restore(self, state: State, on_started: Callable[[], object]) -> list[str]:
        """Put the loader where it was and return what cannot be exact, a sentence each.

        See :meth:`Position.restore`.
        """
        self.num_passes = state["num_passes"]
        if state["kind"] != self.kind:
            return [f"{self._name()}: the checkpoint is of another kind of loader"]
        inexact = self._compare(state)
        if state["num_workers"] != self._facts()["num_workers"]:
            # It refuses such a state.
            inexact.append(f"{self._name()}: for the same reason its pass begins again")
            return inexact
        if not state["own"]:
            return inexact
        loader = self._loader()
        loader.load_state_dict(state["own"])
        if self._is_followed:
            self._restored = state
            self._on_started = on_started if state["is_in_pass"] else None
        return inexact

    def inexact(self) -> list[str]:
        """Return what a resume from a save made now cannot restore, a sentence each."""
        return self._name_draws()

    def _before(self) -> None:
        if self._restored is not None:
            self._before_making = capture_host_rng()

    def _after(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own
        del iterator
        state, self._restored = self._restored, None
        self._previous = None
        if state is None:
            return
        if state["is_in_pass"]:
            self._started()
        elif self._before_making is not None:
            # The state was of a pass that had ended. What its iterator drew nobody else drew; the
            # loader makes another one now, or resets it, for the pass that follows.
            self._is_in_pass = False
            restore_rng(self._before_making)
        self._before_making = None

    def _before_batch(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own
        del iterator
        if self._can_look_back:
            self._previous = self._loader().state_dict()
