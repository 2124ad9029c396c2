"""Scopes of Lightning's brackets that do more than book a phase.

``names.py`` hands them to bracket names; on the training thread they tell :class:`LoopTimes` what
begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from costlens.core.phases import Phase
from costlens.core.timeline import Timeline
from costlens.observe.trainer.brackets import Scope
from costlens.observe.trainer.given import Trainer
from costlens.observe.trainer.loop import LoopTimes

__all__ = [
    "BookScope",
    "EdgeScope",
    "EpochScope",
    "EvaluationScope",
    "FetchScope",
    "FrameScope",
]

_VALIDATION = int(Phase.VALIDATION)


class BookScope:
    """A phase for the length of a bracket; may be entered again and inside itself.

    Leaner than the scope of ``Run.phase``: Lightning opens brackets on one thread only, and
    :class:`FrameScope` mends what an exception leaves open.

    Args:
        timeline: Takes the time.
        phase: The phase.
    """

    __slots__ = ("_enter", "_leave", "_phase")

    def __init__(self, timeline: Timeline, phase: Phase) -> None:
        self._enter = timeline.enter
        self._leave = timeline.leave
        self._phase = int(phase)

    def __enter__(self) -> None:
        self._enter(self._phase)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()


class EdgeScope:
    """A scope with something to do at its start, or at its end when no exception passes.

    Args:
        inner: The scope itself, if there is one.
        before: Called before it is entered.
        after: Called after it was left without an exception.
    """

    __slots__ = ("_after", "_before", "_inner")

    def __init__(
        self,
        inner: Scope | None = None,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._inner = inner
        self._before = before
        self._after = after

    def __enter__(self) -> None:
        if self._before is not None:
            self._before()
        if self._inner is not None:
            self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(kind, error, trace)
        if kind is None and self._after is not None:
            self._after()


class FetchScope:
    """Around the fetch of a training batch."""

    __slots__ = ("_times",)

    def __init__(self, times: LoopTimes) -> None:
        self._times = times

    def __enter__(self) -> None:
        self._times.begin_fetch()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._times.end_fetch()


class FrameScope:
    """Around what happens to one batch: whatever an exception left open ends with it."""

    __slots__ = ("_depth", "_times")

    def __init__(self, times: LoopTimes) -> None:
        self._times = times
        self._depth = 0

    def __enter__(self) -> None:
        # With `dataloader_iter` the training step fetches for itself: the batch before ends here.
        self._times.end_iteration()
        self._times.num_begun += 1
        # What an abandoned batch did belongs to no iteration.
        self._times.num_micro = 0
        self._depth = self._times.timeline.depth

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._times.repair(self._depth)


class EpochScope:
    """Around the batches of an epoch; begins with the creation of the loader's iterator."""

    __slots__ = ("_depth", "_times")

    def __init__(self, times: LoopTimes) -> None:
        self._times = times
        self._depth = 0

    def __enter__(self) -> None:
        self._depth = self._times.timeline.depth
        self._times.open_wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._times.settle(self._depth)


class EvaluationScope:
    """Around a loop of validation, test or prediction, its workers' start included.

    Args:
        times: The loop's state.
        trainer: Tells whether this is the sanity check; that and what a tuner tries are start-up.
        stage: The stage that runs.
        is_all: Whether nothing but this loop runs, so that its end is the end.
    """

    __slots__ = ("_depth", "_is_all", "_stage", "_stage_before", "_times", "_trainer")

    def __init__(self, times: LoopTimes, trainer: Trainer, stage: str, *, is_all: bool) -> None:
        self._times = times
        self._trainer = trainer
        self._stage = stage
        self._is_all = is_all
        self._stage_before: str | None = None
        self._depth = 0

    def __enter__(self) -> None:
        times = self._times
        times.is_new_evaluation = True
        times.is_evaluating = not (self._trainer.sanity_checking or times.is_tuning())
        if times.is_evaluating:
            self._depth = times.timeline.depth
            self._stage_before, times.state.stage = times.state.stage, self._stage
            times.timeline.enter(_VALIDATION)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        times = self._times
        if times.is_evaluating:
            times.is_evaluating = False
            times.state.stage = self._stage_before
            times.timeline.unwind(self._depth)
            if self._is_all and kind is None:
                times.shut_down()
