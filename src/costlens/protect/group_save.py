"""When the ranks of a job save: rank 0 proposes, all agree on a step, and name it alike.

Training thread. What is agreed on comes up at a boundary (``core/boundaries.py``) and the manager
takes it right after; nothing waits for another rank but the end of the training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import get_args

from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Agreeing, Boundaries
from costlens.core.clock import NS_PER_S, Clock
from costlens.errors import CheckpointError
from costlens.protect.agreement import HORIZON_S
from costlens.protect.manifest import CheckpointName, Kind
from costlens.protect.meeting import Meeting

__all__ = ["LEAD_S", "SAVE", "GroupSave"]

LEAD_S = HORIZON_S + 1.0
"""How long before a save is due it is proposed: what agreeing on a step takes."""

SAVE = "save"
"""The name of the action; kind and time follow, such as ``save:interval:20260729T101500``."""

_MAX_PROPOSALS = 3
_PAUSE_S = 300.0


class GroupSave:
    """Agrees on saves with the other ranks.

    Args:
        boundaries: Where the agreed saves come up.
        agreement: What the ranks agree by.
        meeting: Where they meet at the end.
        state: The attempt: its number and launch key are the same on every rank.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self,
        boundaries: Boundaries,
        agreement: Agreeing,
        meeting: Meeting,
        state: AttemptState,
        clock: Clock,
    ) -> None:
        self.leads = meeting.rank == 0
        self._agreement = agreement
        self._meeting = meeting
        self._state = state
        self._clock = clock
        self._agreed: str | None = None
        self._num_proposals = 0
        self._next_ns = 0
        boundaries.actions[SAVE] = self._note

    def ask(self, kind: Kind) -> bool:
        """Propose a save; return whether it is on its way. About 1 µs, any rank.

        A rank that does not answer makes the others wait, so what is called off is proposed again
        minutes later, and after three times not any more.

        Args:
            kind: What asks for it.
        """
        action = f"{SAVE}:{kind}:{self._stamp()}"
        if self._agreed is not None or self._agreement.is_pending(action):
            return True
        now_ns = self._clock()
        if now_ns < self._next_ns or self._num_proposals > _MAX_PROPOSALS:
            return False
        self._num_proposals += 1
        if self._num_proposals > _MAX_PROPOSALS:
            self._state.log.error(
                "costlens.checkpoint.unagreed",
                message="the ranks could not agree on a step to save at, and nothing is saved any"
                " more: does every one of them call checkpoints.step()?",
            )
            return False
        self._next_ns = now_ns + int(_PAUSE_S * NS_PER_S)
        self._agreement.propose(action)
        return True

    @property
    def has_agreed(self) -> bool:
        """Return whether a save is agreed on that :meth:`take` has not given out."""
        return self._agreed is not None

    def take(self, step: int) -> tuple[Kind, CheckpointName] | None:
        """Return the save that all ranks make now, after this step; 0.1 µs where there is none.

        Args:
            step: Optimizer steps done, the same on every rank.
        """
        agreed, self._agreed = self._agreed, None
        if agreed is None:
            return None
        self._num_proposals = self._next_ns = 0
        text, _, stamp = agreed.partition(":")
        kind: Kind = next((known for known in get_args(Kind) if known == text), "manual")
        return kind, self.name(step, stamp)

    def agree_on_end(
        self, step: int, saved_step: int, refusal: str | None, timeout_s: float
    ) -> CheckpointName | None:
        """Return the name under which all ranks save their last state, None where it is saved.

        Waits for the other ranks, for they have ended or are about to.

        Args:
            step: Optimizer steps done.
            saved_step: The newest step of which this rank has taken a snapshot.
            refusal: Why this rank's state cannot be saved, None if it can.
            timeout_s: Most seconds to wait, >= 0.

        Raises:
            CheckpointError: If not all ranks ended well, in time, at one step.
        """
        if refusal is not None:
            self._meeting.refuse("end", refusal)
            return None
        answer = f"{step} {saved_step}"
        stamp = self._meeting.hold("end", answer, self._decide_end, timeout_s)
        return self.name(step, stamp) if stamp else None

    def _note(self, agreed: str) -> None:
        """Learn at a boundary what all ranks do there; :meth:`take` follows on every rank."""
        self._agreed = agreed

    def _decide_end(self, answers: Sequence[str]) -> str:
        steps = [int(answer.split()[0]) for answer in answers]
        for rank, step in enumerate(steps):
            if step != steps[0]:
                raise CheckpointError(
                    f"rank 0 ended after {steps[0]} steps and rank {rank} after {step}"
                )
        if all(int(answer.split()[1]) >= steps[0] for answer in answers):
            return ""
        return self._stamp()

    def name(self, step: int, stamp: str) -> CheckpointName:
        """Return the name that all ranks give to what they save together.

        Args:
            step: Optimizer steps done.
            stamp: A moment, as one of them saw it.
        """
        number = self._state.number
        text = f"{self._state.launch_key}/{number}/{step}"
        nonce = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        return CheckpointName(step, number, stamp, nonce)

    def _stamp(self) -> str:
        return CheckpointName.stamp_of(self._state.anchor.to_wall_ns(self._clock()) / NS_PER_S)
