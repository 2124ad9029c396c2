"""Tells when the training thread stops moving, and when it moves again.

A stage of the pipeline's poll: ``core/stall.py`` judges, this looks, takes the stack of the thread
that trains, and puts both into the log and the record.
"""

from __future__ import annotations

from costlens.core import stall
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.code_locations import locate_thread
from costlens.core.phases import NAMES
from costlens.core.recorder import Recorder
from costlens.core.records import Outcome
from costlens.core.stall import Stall, StallWatch
from costlens.core.trouble_records import StallPart
from costlens.core.window import Totals

__all__ = ["Liveness"]

_NUM_RECORDED = 12


class Liveness:
    """Looks at the timeline once a poll, on the pipeline thread; under 20 µs while all is well.

    Args:
        recorder: Knows the timeline and the counters.
        totals: Knows how long an iteration usually takes.
        state: Gets the stall, for the record.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, recorder: Recorder, totals: Totals, state: AttemptState, clock: Clock
    ) -> None:
        self._recorder = recorder
        self._totals = totals
        self._state = state
        self._clock = clock
        self._watch = StallWatch(clock(), stall.LIMITS)

    def begin(self) -> None:
        """Watch from now on; what was before the run was opened (again) does not count."""
        self._watch = StallWatch(self._clock(), stall.LIMITS)
        self._state.stall = None

    def look(self) -> None:
        """Judge, and tell what there is to tell."""
        if self._state.outcome is not Outcome.RUNNING:
            return
        reading = self._recorder.timeline.read()
        verdict = self._watch.judge(reading, self._clock(), self._median_iteration_ns)
        if verdict is not None:
            (self._tell_over if verdict.is_over else self._tell)(verdict.stall)
        seen = self._state.stall
        if self._watch.stall is None:
            self._state.stall = None
        elif seen is not None:
            age_s = self._watch.stall.age_ns / NS_PER_S
            self._state.stall = seen.model_copy(update={"age_s": age_s})

    def _tell(self, found: Stall) -> None:
        stack = locate_thread(self._recorder.timeline.owner)
        phase, age_s = NAMES[found.phase], found.age_ns / NS_PER_S
        self._state.stall = StallPart(
            phase=phase,
            since=self._state.anchor.to_wall_ns(found.since_ns) / NS_PER_S,
            age_s=age_s,
            limit_s=found.limit_ns / NS_PER_S,
            stack=stack[:_NUM_RECORDED],
        )
        self._state.log.warning(
            "costlens.stalled",
            phase=phase,
            age_s=round(age_s, 3),
            stack=stack,
            message=f"nothing has moved in {phase} for {age_s:.0f} s",
        )

    def _tell_over(self, over: Stall) -> None:
        phase, age_s = NAMES[over.phase], over.age_ns / NS_PER_S
        self._state.log.info(
            "costlens.recovered",
            phase=phase,
            age_s=round(age_s, 3),
            message=f"the training moves again after {age_s:.0f} s in {phase}",
        )

    def _median_iteration_ns(self) -> float | None:
        return self._totals.sketch.quantile_ns(0.5)
