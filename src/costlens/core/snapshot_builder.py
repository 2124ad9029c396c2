"""Builds a rank's record from the living parts of a run: here counters become what everyone reads.

Runs on the pipeline thread at every heartbeat; reads the timeline and the counters without stopping
the training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from costlens.core.attempt_state import AttemptState
from costlens.core.checkpoint_records import SaveNote
from costlens.core.clock import NS_PER_S
from costlens.core.phases import NAMES, NUM_PHASES, Phase
from costlens.core.quality import Observation, Quality, QualityBook, Summary
from costlens.core.recorder import UNKNOWN, Recorder
from costlens.core.records import AttemptPart, RankRecord, StartupPart
from costlens.core.snapshot import Snapshot
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.timeline import Timeline, TimelineReading
from costlens.core.training_records import IterationTimePart, ProgressPart, QualityPart, RatesPart
from costlens.core.window import ITERATION_BOUNDS_S, Totals, Window

__all__ = ["SnapshotBuilder"]

_KNOWN_COUNTS = ("samples", "slots", "tokens", "loss_tokens")
_COUNTS = (
    "iterations",
    "micro_batches",
    "optimizer_steps",
    "skipped_steps",
    *_KNOWN_COUNTS,
    "validation_batches",
    "test_batches",
)


class SnapshotBuilder:
    """Turns the state of a rank into a :class:`Snapshot`.

    Args:
        state: The attempt.
        timeline: Its timeline.
        recorder: Its recorder.
        totals: What the pipeline thread has added up.
        quality: Quality metrics.
        rates: Turns counts and iteration time (ns) into rates; injected from ``account/``.
        telemetry: Tells how watching itself fares.
        probed: Tells the fields of the record that probes fill; none by default.
    """

    def __init__(  # noqa: PLR0913 - it joins the living parts; a bag of them would say less
        self,
        state: AttemptState,
        timeline: Timeline,
        recorder: Recorder,
        totals: Totals,
        quality: QualityBook,
        *,
        rates: Callable[[dict[str, int], int], RatesPart],
        telemetry: Callable[[], TelemetryPart],
        probed: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.state = state
        self.timeline = timeline
        self.recorder = recorder
        self.totals = totals
        self.quality = quality
        self._rates = rates
        self._telemetry = telemetry
        self._probed = probed
        self._window_index = 0
        self._window_start_ns = timeline.start_ns
        self._window_phase_ns: tuple[int, ...] = (0,) * NUM_PHASES
        self._window_counts: dict[str, int] = {}
        self._window_trained: tuple[dict[str, int], int] = ({}, 0)

    @property
    def num_windows(self) -> int:
        """Return how many windows have closed."""
        return self._window_index

    def counts(self) -> dict[str, int]:
        """Return the counters that have been reported, as they stand now."""
        counters = self.recorder.counters
        counts = {name: value for name in _COUNTS if (value := getattr(counters, name)) != UNKNOWN}
        for name, late in self.totals.late_counts.items():
            counts[name] = counts.get(name, 0) + late
        return counts

    def build(
        self,
        now_ns: int,
        *,
        is_last: bool = False,
        opens: bool = False,
        alarms: tuple[Observation, ...] = (),
    ) -> Snapshot:
        """Return the snapshot at ``now_ns`` and begin a new window.

        Args:
            now_ns: Monotonic end of the window.
            is_last: Whether the attempt has ended (the timeline is closed at ``state.end_ns``).
            opens: Whether this is the look before the first window, which must not consume
                anything.
            alarms: Quality metrics that turned non-finite since the last window.
        """
        state = self.state
        reading = self.timeline.read()
        # The training thread may have moved on since `now_ns` was taken: a window never ends before
        # what is booked.
        if is_last and state.end_ns is not None:
            now_ns = state.end_ns
        end_ns = max(now_ns, reading.since_ns)
        host_ns = reading.until(end_ns)
        if is_last:
            self.totals.close(host_ns)
        counts = self.counts()
        quality = self.quality.look() if opens else self.quality.take()
        return Snapshot(
            window=self._window(end_ns, self.totals.book(host_ns), counts, opens=opens),
            record=self._record(None if is_last else reading, end_ns, host_ns, counts, quality),
            histogram=self.totals.histogram.copy(),
            quality=quality,
            alarms=alarms,
            saves=() if opens else self._take_saves(),
            anchor=state.anchor,
            settled_ns=self._lead(self.totals.settle(host_ns)),
            is_last=is_last,
        )

    def _lead(self, phase_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return the phases with the paid time before the timeline, which is start-up."""
        lead_ns = self.state.lead_ns or 0
        return tuple(
            ns + (lead_ns if phase == Phase.STARTUP else 0) for phase, ns in enumerate(phase_ns)
        )

    def _take_saves(self) -> tuple[SaveNote, ...]:
        saves = self.state.saves
        return tuple(saves.popleft() for _ in range(len(saves)))

    def _record(
        self,
        open_at: TimelineReading | None,
        end_ns: int,
        host_ns: tuple[int, ...],
        counts: dict[str, int],
        quality: Quality,
    ) -> RankRecord:
        state, totals = self.state, self.totals
        open_s = None if open_at is None else max(0, end_ns - open_at.since_ns) / NS_PER_S
        return RankRecord(
            run=state.describe_run(),
            attempt=self._attempt(end_ns),
            rank=state.describe_rank(),
            progress=ProgressPart(**counts, total_steps=self._total_steps()),
            time_ns=dict(zip(NAMES, self._lead(totals.book(host_ns)), strict=True)),
            host_ns=dict(zip(NAMES, self._lead(host_ns), strict=True))
            if totals.has_device
            else None,
            total_ns=end_ns - self.timeline.start_ns + (state.lead_ns or 0),
            startup=self._startup(),
            iteration_time=self._iteration_time(),
            rates=self._rates(*totals.count_trained()),
            quality={name: self._quality_part(seen) for name, seen in quality.attempt.items()},
            telemetry=self._telemetry(),
            open_phase=None if open_at is None else NAMES[open_at.phase],
            open_phase_s=open_s,
            stall=None if open_at is None else state.stall,
            oom=state.oom,
            last_words=state.last_words,
            checkpoints=state.checkpoints,
            preemption=state.preemption,
            precision=state.precision,
            job=state.job,
            gang=state.gang,
            **self._probed(),
        )

    def _total_steps(self) -> int | None:
        # Lightning goes on past its own limits where a fit that has ended is called again.
        total, reached = self.state.total_steps, self.state.end_step
        return None if total is not None and reached is not None and reached > total else total

    def _window(
        self, end_ns: int, booked_ns: tuple[int, ...], counts: dict[str, int], *, opens: bool
    ) -> Window:
        num, sum_ns, max_ns = (0, 0, 0) if opens else self.totals.take_durations()
        window = Window(
            index=self._window_index,
            start_ns=self._window_start_ns,
            end_ns=end_ns,
            phase_ns=tuple(
                now - before for now, before in zip(booked_ns, self._window_phase_ns, strict=True)
            ),
            counts={name: now - self._window_counts.get(name, 0) for name, now in counts.items()},
            num_iterations=num,
            iteration_sum_ns=sum_ns,
            iteration_max_ns=max_ns,
            detail=self.totals.detail,
            kept=() if opens else self.totals.take_kept(),
            rates=RatesPart() if opens else self._take_window_rates(),
        )
        if not opens:
            self._window_index += 1
            self._window_start_ns = end_ns
            self._window_phase_ns = booked_ns
            self._window_counts = counts
        return window

    def _take_window_rates(self) -> RatesPart:
        before, before_ns = self._window_trained
        self._window_trained = counts, sum_ns = self.totals.count_trained()
        added = {name: now - before.get(name, 0) for name, now in counts.items()}
        return self._rates(added, sum_ns - before_ns)

    def _attempt(self, end_ns: int) -> AttemptPart:
        state, wall = self.state, self.state.anchor
        return AttemptPart(
            number=state.number,
            launch_key=state.launch_key,
            outcome=state.outcome,
            process_start_time=None
            if state.process_start_ns is None
            else wall.to_wall_ns(state.process_start_ns) / NS_PER_S,
            start_time=wall.to_wall_ns(state.start_ns) / NS_PER_S,
            heartbeat_time=wall.to_wall_ns(end_ns) / NS_PER_S,
            end_time=None if state.end_ns is None else wall.to_wall_ns(state.end_ns) / NS_PER_S,
            error_type=state.error_type,
            exit_code=state.exit_code,
            signal=state.signal,
            start_step=state.start_step,
            end_step=state.end_step,
            saved_step=state.saved_step,
            num_saves=state.num_saves,
            num_evaluations=state.num_evaluations,
            end_reason=state.end_reason,
            stage=state.stage,
            paid_from=self._paid_from(),
        )

    def _paid_from(self) -> Literal["allocation", "process_start", "start"]:
        if self.state.lead_ns is not None:
            return "allocation"
        return "start" if self.state.process_start_ns is None else "process_start"

    def _startup(self) -> StartupPart:
        state = self.state
        marks = [
            state.process_start_ns,
            state.watch_start_ns,
            state.first_fetch_ns,
            self.recorder.first_cut_ns,
        ]

        def between(first: int, second: int) -> float | None:
            return _seconds(marks[first], marks[second])

        return StartupPart(
            import_s=_seconds(state.process_start_ns, state.import_ns),
            process_s=between(0, 1),
            setup_s=between(1, 2),
            first_iteration_s=between(2, 3),
            first_step_s=_seconds(state.start_ns, self.totals.first_step.end_ns),
            gang_wait_s=_seconds(0, state.gang_wait_ns),
            gang_wait_unknown=state.gang_wait_unknown,
            allocation_s=_seconds(0, state.lead_ns),
        )

    def _iteration_time(self) -> IterationTimePart:
        histogram, sketch = self.totals.histogram, self.totals.sketch

        def quantile_s(q: float) -> float | None:
            value = sketch.quantile_ns(q)
            return None if value is None else value / NS_PER_S

        return IterationTimePart(
            count=histogram.count,
            sum_ns=histogram.sum_ns,
            bounds_s=list(ITERATION_BOUNDS_S),
            buckets=histogram.buckets.copy(),
            sketch=dict(sorted(sketch.bins.items())),
            median_s=quantile_s(0.5),
            p90_s=quantile_s(0.9),
            p99_s=quantile_s(0.99),
        )

    def _quality_part(self, seen: Summary) -> QualityPart:
        return QualityPart(
            last=seen.last,
            last_iteration=seen.last_iteration,
            best=seen.best,
            best_iteration=seen.best_iteration,
            best_after_s=None
            if seen.best_ns is None
            else max(0, seen.best_ns - self.state.start_ns + (self.state.lead_ns or 0)) / NS_PER_S,
            higher_is_better=seen.higher_is_better,
            mean=seen.total / seen.num_values if seen.num_values else None,
            num_values=seen.num_values,
            num_nonfinite=seen.num_nonfinite,
            first_nonfinite_iteration=seen.first_nonfinite_iteration,
        )


def _seconds(begin_ns: int | None, end_ns: int | None) -> float | None:
    return None if begin_ns is None or end_ns is None else (end_ns - begin_ns) / NS_PER_S
