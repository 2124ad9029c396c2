"""Meetings of all ranks: each says something, rank 0 decides, and every one learns it.

For the start and the end of a training only, where ranks may wait for one another; steps have
``agreement.py``. Goes through the board that the ranks share, without a collective, so that a rank
that does not come is named instead of being waited for without end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from costlens.core.clock import NS_PER_S, Clock
from costlens.errors import CheckpointError, StorageError
from costlens.protect.agreement import UNREACHABLE, Board

__all__ = ["MEETING_S", "Meeting"]

MEETING_S = 600.0
"""How long a start waits for a rank: others may read much more before they come."""

_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
_NUM_NAMED = 8
_FINE, _REFUSED = "=", "!"

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Meeting:
    """Where the ranks of a launch meet, again and again; every rank comes to the same meetings.

    Args:
        board: Shared by all ranks of the launch, under a prefix of its own.
        rank: This rank; rank 0 decides.
        world_size: Ranks that are waited for.
        clock: Monotonic nanoseconds.
        sleep: Waits between two looks.
        patience_s: Most seconds to wait where a meeting says nothing else.
    """

    def __init__(
        self,
        board: Board,
        rank: int,
        world_size: int,
        *,
        clock: Clock = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
        patience_s: float = MEETING_S,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self._board = board
        self._clock = clock
        self._sleep = sleep
        self._patience_s = patience_s
        self._count = 0

    def hold(
        self,
        topic: str,
        answer: str,
        decide: Callable[[Sequence[str]], str],
        timeout_s: float | None = None,
    ) -> str:
        """Return what rank 0 has decided, once every rank has answered; blocks until then.

        Args:
            topic: What it is about; ranks that meet about different things are told so.
            answer: What this rank has to say.
            decide: Makes the decision out of all answers, in the order of ranks; called on rank 0.
                What it refuses with a :class:`CheckpointError` or a :class:`StorageError` is a
                :class:`CheckpointError` on every rank.
            timeout_s: Most seconds to wait; the meeting's patience by default.

        Raises:
            CheckpointError: If a rank refused or did not come, or the board is out of reach.
        """
        count = self._begin(topic, _FINE + answer)
        return self._learn(count, topic, decide, timeout_s)

    def refuse(self, topic: str, reason: str) -> None:
        """Come to a meeting only to say why it fails, and wait for nobody.

        Args:
            topic: As for :meth:`hold`.
            reason: What every other rank is told.
        """
        try:
            count = self._begin(topic, _REFUSED + reason)
            if self.rank == 0:
                self._decide(count, f"{_REFUSED}rank 0: {reason}")
        except CheckpointError:
            return  # the others find out by waiting; this rank has a reason of its own to tell

    def _begin(self, topic: str, answer: str) -> int:
        count = self._count = self._count + 1
        self._request(self._board.replace, f"{count}/{self.rank}", "", f"{topic}\n{answer}")
        return count

    def _learn(
        self,
        count: int,
        topic: str,
        decide: Callable[[Sequence[str]], str],
        timeout_s: float | None,
    ) -> str:
        patience_s = self._patience_s if timeout_s is None else timeout_s
        deadline_ns = self._clock() + int(patience_s * NS_PER_S)
        pause_s = _FIRST_PAUSE_S
        while (decision := self._look(count, topic, decide)) is None:
            if self._clock() >= deadline_ns:
                # Whoever gives up first does so for all; what was decided meanwhile holds.
                decision = self._decide(count, _REFUSED + self._describe_absence(count, patience_s))
                break
            self._sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)
        if decision.startswith(_REFUSED):
            raise CheckpointError(f"the ranks did not agree ({topic}): {decision[1:]}")
        return decision[1:]

    def _look(self, count: int, topic: str, decide: Callable[[Sequence[str]], str]) -> str | None:
        decision = self._request(self._board.read, f"{count}/decision")
        if decision is not None or self.rank != 0:
            return decision
        keys = [f"{count}/{rank}" for rank in range(self.world_size)]
        if not self._request(self._board.has_all, keys):
            return None
        said = [self._request(self._board.read, key) or "" for key in keys]
        return self._decide(count, _judge(topic, said, decide))

    def _decide(self, count: int, decision: str) -> str:
        return self._request(self._board.replace, f"{count}/decision", "", decision)

    def _describe_absence(self, count: int, patience_s: float) -> str:
        missing = [
            rank
            for rank in range(self.world_size)
            if not self._request(self._board.has_all, [f"{count}/{rank}"])
        ]
        if not missing:
            return f"rank 0 did not decide within {patience_s:g} s"
        named = ", ".join(str(rank) for rank in missing[:_NUM_NAMED])
        more = "" if len(missing) <= _NUM_NAMED else f" and {len(missing) - _NUM_NAMED} more"
        return (
            f"rank {named}{more} of {self.world_size} did not come within {patience_s:g} s; every"
            " rank has to make the same calls on its checkpoints"
        )

    def _request(self, ask: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        try:
            return ask(*arguments, **named)
        except UNREACHABLE as error:
            raise CheckpointError(
                f"the process group's store does not answer ({type(error).__name__}), so the ranks"
                " cannot agree on a checkpoint; is rank 0 alive?"
            ) from error


def _judge(topic: str, said: Sequence[str], decide: Callable[[Sequence[str]], str]) -> str:
    answers = []
    for rank, text in enumerate(said):
        other, _, answer = text.partition("\n")
        if other != topic:
            return f"{_REFUSED}rank {rank} is at {other!r}; every rank has to make the same calls"
        if answer.startswith(_REFUSED):
            return f"{_REFUSED}rank {rank}: {answer[1:]}"
        answers.append(answer[1:])
    try:
        return _FINE + decide(answers)
    except (CheckpointError, StorageError) as error:
        return f"{_REFUSED}{error}"
