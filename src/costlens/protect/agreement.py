"""Agreement between ranks: "act X at boundary N", decided without a collective and without a pause.

A rank proposes on a board that all ranks share (the process group's store); every pipeline thread
answers with a boundary its training will not pass before it knows more, and the highest of these
is where all act. Training compares two whole numbers at a boundary; see docs/decisions/0015.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.log import Logger, log

__all__ = ["UNREACHABLE", "Agreement", "Board", "LocalBoard"]

HORIZON_S = 5.0
"""How far ahead a rank answers; longer than a proposal, its answers and the decision take."""

PATIENCE_S = 30.0
"""How long a rank waits at the boundary it answered before it calls the round off."""

_NEVER = sys.maxsize
_MIN_HORIZON = 2
_CANCELLED = "cancelled"
_MAX_FAILURES = 5
_MAX_WANTED = 8

UNREACHABLE = (RuntimeError, OSError)
"""What a board out of reach raises; torch's stores know no class of their own."""


class Board(Protocol):
    """Texts that all ranks of a launch see; every call is one request and waits for no rank."""

    def read(self, key: str) -> str | None:
        """Return the text under a key, None while there is none."""

    def has_all(self, keys: Sequence[str]) -> bool:
        """Return whether there is a text under each of the keys."""

    def replace(self, key: str, expected: str, text: str) -> str:
        """Put a text where the expected one stands ("" is nothing) and return what stands then."""


class LocalBoard:
    """The board of a single rank."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def read(self, key: str) -> str | None:
        """Return the text under a key, None while there is none."""
        return self._texts.get(key)

    def has_all(self, keys: Sequence[str]) -> bool:
        """Return whether there is a text under each of the keys."""
        return all(key in self._texts for key in keys)

    def replace(self, key: str, expected: str, text: str) -> str:
        """Put a text where the expected one stands and return what stands then."""
        if self._texts.get(key, "") == expected:
            self._texts[key] = text
        return self._texts.get(key, "")


class _Round:
    """One proposal from its answers to its end; the next one is another object.

    Attributes:
        number: Its number, from 0, the same on every rank.
        action: What is proposed, None while nothing is.
        limit: The boundary at which the training thread has to look.
        target: Where all act, once that is decided.
        has_answered: Whether this rank's answer stands on the board.
        is_settled: Set once the decision is known.
    """

    __slots__ = ("action", "has_answered", "is_settled", "limit", "number", "target")

    def __init__(self, number: int) -> None:
        self.number = number
        self.action: str | None = None
        self.limit = _NEVER
        self.target: int | None = None
        self.has_answered = False
        self.is_settled = threading.Event()

    def key(self, name: str) -> str:
        return f"{self.number}/{name}"


class Agreement:
    """Lets all ranks do the same thing at the same boundary; rounds follow one another.

    Every rank must reach the same boundaries, as the steps of a data-parallel training are. What is
    proposed while a round lasts waits for the next one.

    Args:
        board: Shared by all ranks of the launch.
        rank: This rank; rank 0 decides.
        world_size: Ranks that must answer.
        clock: Monotonic nanoseconds.
        logger: The log of the run.
        patience_s: Most seconds that the training waits at a boundary, when a rank has gone silent.
    """

    def __init__(
        self,
        board: Board,
        rank: int,
        world_size: int,
        *,
        clock: Clock = time.perf_counter_ns,
        logger: Logger = log,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._board = board
        self._rank = rank
        self._world_size = world_size
        self._clock = clock
        self._logger = logger
        self._patience_s = patience_s
        self._wanted: deque[str] = deque(maxlen=_MAX_WANTED)
        self._num_failures = 0
        self._count = 0
        # Boundaries and when they were counted: about a second ago, and before that.
        self._newer = self._older = (0, clock())
        # Either thread may end a round; the lock is held for that assignment only.
        self._current = _Round(0)
        self._lock = threading.Lock()

    def is_pending(self, action: str) -> bool:
        """Return whether this is proposed and has neither happened nor been called off.

        Args:
            action: As for :meth:`propose`; what follows a second colon does not count.
        """
        under_way = self._current.action
        known = (*self._wanted, *(() if under_way is None else (under_way,)))
        return any(_subject(each) == _subject(action) for each in known)

    @property
    def is_lost(self) -> bool:
        """Return whether the board is out of reach, so that nothing can be agreed any more."""
        return self._num_failures >= _MAX_FAILURES

    def propose(self, action: str) -> None:
        """Ask all ranks to act; the next :meth:`poll` says so. Any thread or handler, any rank.

        Args:
            action: What to do, such as ``save:manual:20260729T101500``; every rank gets this text.
                Where several ranks propose what differs after the second colon only, it happens
                once, as the first of them said.
        """
        if not self.is_pending(action):
            self._wanted.append(action)

    def reach_boundary(self) -> str | None:
        """Count a boundary and return what all ranks do there; training thread, 0.1 µs.

        Only where a round is undecided at the boundary that this rank has answered does it wait,
        and at most ``patience_s``.
        """
        count = self._count = self._count + 1
        current = self._current
        if count < current.limit:
            return None
        if current.target is None and not current.is_settled.wait(self._patience_s):
            self._call_off(current)
        if current.target is None or count < current.target:
            return None
        self._end(current)
        return current.action

    def poll(self) -> None:
        """Propose, answer, decide and learn; pipeline thread, one request while idle."""
        if self.is_lost:
            return
        try:
            self._advance(self._current)
            self._num_failures = 0
        except UNREACHABLE as error:
            self._num_failures += 1
            if self._num_failures == _MAX_FAILURES:
                self._logger.warning(
                    "costlens.agreement.lost",
                    error_type=type(error).__name__,
                    message="the process group's store does not answer: the ranks cannot agree on "
                    "anything any more",
                )

    def close(self) -> None:
        """Call off what is undecided: this rank reaches no boundary any more. Pipeline thread."""
        self.poll()
        current = self._current
        if current.action is not None and current.target is None:
            self._call_off(current)

    def _advance(self, current: _Round) -> None:
        rate = self._measure_rate()
        if current.action is None:
            proposal = self._board.read(current.key("proposal"))
            if proposal is None:
                if not self._wanted:
                    return
                proposal = self._board.replace(current.key("proposal"), "", self._wanted[0])
            self._set_limit(current, rate)
            current.action = proposal
            self._forget(proposal)
        if not current.has_answered:
            self._answer(current)
        if current.target is None:
            self._decide(current)

    def _forget(self, proposal: str) -> None:
        """Drop what this rank wanted and now happens."""
        for wanted in tuple(self._wanted):
            if _subject(wanted) == _subject(proposal):
                self._wanted.remove(wanted)

    def _measure_rate(self) -> float:
        """Return the boundaries a second, over the last one or two seconds.

        Two polls may follow one another at once, and a step between them says nothing of the rate.
        """
        now = (self._count, self._clock())
        if now[1] - self._newer[1] >= NS_PER_S:
            self._older, self._newer = self._newer, now
        elapsed_s = (now[1] - self._older[1]) / NS_PER_S
        return (now[0] - self._older[0]) / elapsed_s if elapsed_s > 0 else 0.0

    def _set_limit(self, current: _Round, rate: float) -> None:
        horizon = 1 if self._world_size == 1 else max(_MIN_HORIZON, math.ceil(rate * HORIZON_S))
        while True:
            current.limit = self._count + horizon
            # The training may have passed it before it could see it.
            if self._count < current.limit:
                return

    def _answer(self, current: _Round) -> None:
        """Raise the shared boundary to this rank's own, and say that it has been done."""
        key, own = current.key("boundary"), current.limit
        seen = self._board.read(key) or ""
        while seen == "" or int(seen) < own:
            now = self._board.replace(key, seen, str(own))
            if now == str(own):
                break
            seen = now
        self._board.replace(current.key(f"answer/{self._rank}"), "", "1")
        current.has_answered = True

    def _decide(self, current: _Round) -> None:
        key = current.key("decision")
        decision = self._board.read(key)
        if decision is None and self._rank == 0:
            answers = [current.key(f"answer/{rank}") for rank in range(self._world_size)]
            if self._board.has_all(answers):
                boundary = self._board.read(current.key("boundary"))
                decision = self._board.replace(key, "", boundary or _CANCELLED)
        if decision is not None:
            self._settle(current, decision)

    def _settle(self, current: _Round, decision: str) -> None:
        if decision == _CANCELLED:
            self._logger.warning(
                "costlens.agreement.cancelled",
                action=current.action,
                message="a rank did not answer in time, or has ended: nothing is done",
            )
            self._end(current)
        else:
            current.target = current.limit = int(decision)
        current.is_settled.set()

    def _call_off(self, current: _Round) -> None:
        # Whoever comes first decides for all: a boundary that was decided meanwhile holds.
        try:
            decision = self._board.replace(current.key("decision"), "", _CANCELLED)
        except UNREACHABLE:
            decision = _CANCELLED
        self._settle(current, decision)

    def _end(self, current: _Round) -> None:
        with self._lock:
            if self._current is current:
                self._current = _Round(current.number + 1)


def _subject(action: str) -> str:
    return ":".join(action.split(":", 2)[:2])
