"""What outlives a call: runs still open when the interpreter ends or the process forks.

Nothing is registered before the first run opens, so importing costlens has no side effect.
"""

from __future__ import annotations

import atexit
import os
from typing import Protocol

from costlens.core.guard import faults

__all__ = ["Living", "claim_ordinal", "claim_turn", "live", "register", "unregister"]


class Living(Protocol):
    """Something that must be closed at exit and must fall silent in a forked child."""

    def close_at_exit(self) -> None:
        """End cleanly; the interpreter is about to exit."""

    def silence(self) -> None:
        """Become inert: this is a copy in a forked child."""


# Strong references: a run that nobody else holds any more must still be closed at exit.
_live: list[Living] = []
_copies: list[Living] = []
_state = {"registered": False, "num_opened": 0}
_num_named: dict[str, int] = {}


def claim_ordinal() -> int:
    """Return how many runs this process has opened before this one."""
    ordinal = _state["num_opened"]
    _state["num_opened"] = ordinal + 1
    return ordinal


def claim_turn(name: str) -> int:
    """Return how many runs of this name the process has opened before this one.

    Ranks agree on it even where one of them opens further runs of its own, such as an evaluation.
    """
    turn = _num_named.get(name, 0)
    _num_named[name] = turn + 1
    return turn


def live() -> list[Living]:
    """Return what is open now, oldest first."""
    return _live.copy()


def register(living: Living) -> None:
    """Close ``living`` at exit and silence it in forked children; twice is once."""
    if not _state["registered"]:
        _state["registered"] = True
        atexit.register(_close_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_silence_all)
    if not any(known is living for known in _live):
        _live.append(living)


def unregister(living: Living) -> None:
    """Forget ``living``, if it is known."""
    _live[:] = [known for known in _live if known is not living]


def _close_all() -> None:
    for living in live():
        faults.call("lifetime.exit", living.close_at_exit)


def _silence_all() -> None:
    faults.renew_lock()
    for living in live():
        faults.call("lifetime.fork", living.silence)
    # Kept for good: destroying the copy of a connection could speak into the parent's.
    _copies.extend(_live)
    _live.clear()
    _state["num_opened"] = 0
    _num_named.clear()
