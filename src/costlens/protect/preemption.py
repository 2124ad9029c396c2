"""Leaving before the machine is taken: what a notice starts, and by when it has to be over.

Signal handlers and other threads only note that a notice came; the training thread saves at its
next boundary, if that fits into the grace, and leaves. A thread that sleeps until then ends a
training that comes to no boundary in time for its record; the writer has flushed by then whatever
snapshot was staged.
"""

from __future__ import annotations

import queue
import sys
import threading

from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Boundaries
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.phases import Phase
from costlens.core.preemption_records import PreemptionPart, Uncovered
from costlens.core.timeline import Timeline
from costlens.protect import signals
from costlens.protect.agreement import HORIZON_S
from costlens.protect.grace import Agreed, Grace, Saver
from costlens.protect.loader_deaths import LoaderDeaths
from costlens.protect.manifest import CheckpointName
from costlens.protect.notices import NoticePoller, NoticeSource

__all__ = ["LEAVE", "Preemption"]

# Slurm sends a signal to every process of a job, and torchrun hands its own on: that is one notice.
_ECHO_S = 0.25
# The record needs a part of the grace, but not most of a short one; and so does the interpreter.
_RESERVE_SHARE = 0.25
_INTERPRETER_S = 1.0
_MIN_END_S = 0.25
_GIVEN_UP_END_S = 1.0
_JOIN_S = 1.0
_PROPOSE_EVERY_S = 1.0

LEAVE = "leave"
"""The name of what the ranks agree on."""

_NOW = "now"  # whoever proposes it, and for whatever reason: it is one thing


class Preemption:
    """The notice that one run gets, and how the run leaves.

    Args:
        state: The attempt; gets the part of the record.
        timeline: Books the wait for the save as ``checkpoint``.
        boundaries: Told to end the loop where the process does not end by itself.
        clock: Monotonic nanoseconds.
        grace: How the process is to leave.
        saver: Saves.
    """

    def __init__(
        self,
        state: AttemptState,
        timeline: Timeline,
        boundaries: Boundaries,
        clock: Clock,
        grace: Grace,
        saver: Saver,
    ) -> None:
        self._state = state
        self._timeline = timeline
        self._boundaries = boundaries
        self._clock = clock
        self._grace = grace
        self._saver = saver
        self._reason: str | None = None
        self._asked_ns = 0
        self._deadline_ns = 0
        # A handler that comes late tells of a signal that the tap has told of before.
        self._heard: list[int] = []
        self._handled: list[int] = []
        self._has_arrived = False
        self._has_left = False
        self._agreed: Agreed | None = None
        self._is_closed = False
        boundaries.actions[LEAVE] = self._agree
        self._loader_deaths = LoaderDeaths()
        self._poller: NoticePoller | None = None
        # A handler may interrupt its own `put`.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="costlens-grace", daemon=True)

    def start(self) -> None:
        """Begin to watch over the grace; calling thread, before the first step."""
        self._thread.start()

    def listen_to(self, source: NoticeSource) -> None:
        """Ask a cloud for its notices, too, until the run ends."""
        self._poller = NoticePoller(
            source, lambda notice: self.warn(notice.reason, notice.lead_s), self._state.log
        )
        self._poller.start()

    def close(self) -> None:
        """Watch and listen no more."""
        self._is_closed = True
        self._loader_deaths.restore()
        if self._poller is not None:
            self._poller.close()
        self._wake.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    # Any thread, and signal handlers: no lock, no stream.

    @property
    def is_asked(self) -> bool:
        """Return whether a notice came that the training has not followed yet."""
        return self._reason is not None and not self._has_arrived

    @property
    def is_due(self) -> bool:
        """Return whether the training is to leave at this boundary; 0.1 µs.

        Alone it is the first after a notice, among several ranks the one that all agreed on.
        """
        if self._saver.agrees:
            return self._agreed is not None and not self._has_arrived
        return self.is_asked

    @property
    def is_saving(self) -> bool:
        """Return whether the process is to live on, for the training saves and ends it itself."""
        return self._reason is not None and not self.has_given_up and not self._is_closed

    @property
    def has_given_up(self) -> bool:
        """Return whether a second signal came before the training had left."""
        return max(len(self._heard), len(self._handled)) > 1

    @property
    def left_s(self) -> float:
        """Return the seconds that are left for a save; the record has its own after them."""
        return self._until_s() - self._reserve_s

    @property
    def end_timeout_s(self) -> float:
        """Return the most seconds that ending may take now."""
        if self._reason is None:
            return self._grace.end_s
        if self.has_given_up:
            return min(self._grace.end_s, _GIVEN_UP_END_S)
        margin_s = min(_INTERPRETER_S, self._reserve_s / 2)
        return min(self._grace.end_s, max(_MIN_END_S, self._until_s() - margin_s))

    def hear(self, name: str) -> None:
        """Take a signal, on the thread that hears of it while the main thread may be stuck."""
        self._take(self._heard, name)

    def handle(self, name: str) -> None:
        """Take a signal, in its handler."""
        self._loader_deaths.hush()
        self._take(self._handled, name)

    def warn(self, reason: str, lead_s: float | None = None) -> None:
        """Take a notice that is no signal.

        Args:
            reason: Who says what, such as ``aws:terminate``.
            lead_s: Seconds until it happens, where it says so.
        """
        self._begin(reason, self._grace.notice_s if lead_s is None else lead_s)

    def describe(self, because: Uncovered) -> None:
        """Write into the record how the attempt left, unless that is known already.

        Args:
            because: Why steps are left behind, if some are.
        """
        state, reason = self._state, self._reason
        if reason is None or state.preemption is not None:
            return
        # Nothing to lose is not a loss.
        is_covered = (state.saved_step or 0) >= (state.end_step or 0)
        state.preemption = PreemptionPart(
            reason=reason,
            time=state.anchor.to_wall_ns(self._asked_ns) / NS_PER_S,
            grace_s=(self._deadline_ns - self._asked_ns) / NS_PER_S,
            step=state.end_step,
            is_covered=is_covered,
            uncovered_because=None if is_covered else because,
        )

    def _take(self, seen: list[int], name: str) -> None:
        now_ns = self._clock()
        if self._has_left:
            return  # a launcher ends the ranks that are about to end
        if not seen or now_ns - seen[-1] >= _ECHO_S * NS_PER_S:
            seen.append(now_ns)
            self._begin(name, self._grace.notice_s)

    def _begin(self, reason: str, lead_s: float) -> None:
        now_ns = self._clock()
        deadline_ns = now_ns + int(lead_s * NS_PER_S)
        if self._reason is None:
            self._asked_ns, self._deadline_ns = now_ns, deadline_ns
            self._reason = reason
        self._deadline_ns = min(self._deadline_ns, deadline_ns)
        self._wake.put(None)

    @property
    def _reserve_s(self) -> float:
        grace_s = (self._deadline_ns - self._asked_ns) / NS_PER_S
        return min(self._grace.end_s + _INTERPRETER_S, grace_s * _RESERVE_SHARE)

    def _until_s(self) -> float:
        return (self._deadline_ns - self._clock()) / NS_PER_S

    # Training thread.

    def _agree(self, rest: str) -> None:
        self._agreed = Agreed.from_text(rest.removeprefix(f"{_NOW}:"))

    def leave(self, step: int) -> None:
        """Save if that fits into the grace, wait until it is durable, and leave.

        Raises ``SystemExit`` where the signal would have killed the process; where the user handles
        it, the loop is told to stop.

        Args:
            step: Optimizer steps done, over all attempts.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        self._has_arrived = True
        self._state.end_step = step
        if self._agreed is not None and self._reason is None:
            self._begin(self._agreed.reason, self._agreed.lead_s)
        because: Uncovered = "save_incomplete"
        try:
            because = self._save(step)
        finally:
            self.describe(because)
            self._has_left = True
            self._tell()
        self._depart()

    def leave_evaluation(self, step: int) -> None:
        """Do the same in the middle of an evaluation, which changes nothing that is saved."""
        if self._timeline.phase == Phase.VALIDATION:
            self.leave(step)

    def _save(self, step: int) -> Uncovered:
        saver, agreed = self._saver, self._agreed
        self._timeline.enter(Phase.CHECKPOINT)
        try:
            # At most one is in flight, and it is worth more than one that may not be whole.
            if agreed is not None:
                # All ranks do the same, so none of them looks at its own clock.
                is_fit = agreed.saves and saver.wait(max(0.0, self.left_s))
                if is_fit:
                    saver.save_together(step, "preemption", agreed.stamp)
            else:
                is_new = (saver.last_step or 0) != step
                is_fit = not is_new or self._fits()
                if is_new and is_fit:
                    saver.save(step, "preemption")
            saver.wait(max(0.0, self.left_s))
        finally:
            self._timeline.leave()
        return "save_incomplete" if is_fit else "no_time"

    def _fits(self) -> bool:
        estimate_s = self._saver.estimate_s or 0.0
        is_free = self._saver.wait(max(0.0, self.left_s - estimate_s))
        return is_free and estimate_s <= self.left_s

    def _tell(self) -> None:
        part, log = self._state.preemption, self._state.log
        if part is None:
            return
        end = "nothing is lost" if part.is_covered else f"steps are lost: {part.uncovered_because}"
        (log.info if part.is_covered else log.warning)(
            "costlens.preempted",
            reason=part.reason,
            step=part.step,
            saved_step=self._state.saved_step,
            message=f"{part.reason} asked for the end: left at step {part.step}, {end}",
        )

    def _depart(self) -> None:
        reason = self._reason or ""
        if reason.startswith("SIG") and not signals.is_deadly(reason):
            self._boundaries.stop("preempted")
        elif threading.current_thread() is threading.main_thread():
            sys.exit(self._grace.exit_code)
        elif reason.startswith("SIG"):
            signals.end_process(reason)  # an exit here would end this thread only
        else:
            self._boundaries.stop("preempted")

    # The thread that watches over the grace.

    def _watch(self) -> None:
        self._wake.get()
        while not self._is_closed:
            limit_s = self._until_s() if self._has_arrived else self.left_s
            if limit_s <= 0:
                break
            if self._saver.agrees and not self._has_arrived:
                faults.call("protect.propose", self._propose)
                limit_s = min(limit_s, _PROPOSE_EVERY_S)
            try:
                self._wake.get(timeout=limit_s)
            except queue.Empty:
                continue
        if not self._is_closed:
            faults.call("protect.expire", self._expire)

    # Again and again, for a round may be called off; what is under way is not proposed twice.
    def _propose(self) -> None:
        agreement = self._boundaries.agreement
        if agreement is None or self._agreed is not None:
            return
        left_s, estimate_s = self.left_s - HORIZON_S, self._saver.estimate_s or 0.0
        agreed = Agreed(
            stamp=CheckpointName.stamp_of(self._state.anchor.to_wall_ns(self._clock()) / NS_PER_S),
            saves=estimate_s <= left_s,
            lead_s=max(_MIN_END_S, self._until_s() - HORIZON_S),
            reason=self._reason or "",
        )
        agreement.propose(f"{LEAVE}:{_NOW}:{agreed.to_text()}")

    def _expire(self) -> None:
        # A notice of the cloud kills nothing: the signal or the end of the machine comes by itself.
        name = self._state.signal
        if name is not None and signals.is_deadly(name):
            if not self._has_arrived:
                self._saver.wait(0.0)
            self.describe("save_incomplete" if self._has_arrived else "no_boundary")
            signals.end_process(name)

    def is_owed(self, error: BaseException | None) -> bool:
        """Return whether a signal came that nobody has followed: the run ended by itself.

        Args:
            error: What ended the run, if anything.
        """
        return self.is_asked and error is None and bool(self._handled)
