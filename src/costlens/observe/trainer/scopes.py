"""Scopes of Lightning's brackets that do more than book a phase.

``names.py`` hands them to bracket names; on the training thread they tell :class:`LoopTimes` what
begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import cast

from costlens.core.phases import Phase
from costlens.observe.trainer.brackets import Scope
from costlens.observe.trainer.given import Trainer
from costlens.observe.trainer.loop import LoopTimes

__all__ = [
    "UNTOUCHED",
    "AfterScope",
    "BackwardBegin",
    "BackwardEnd",
    "EdgeScope",
    "EpochScope",
    "EvaluationScope",
    "FetchScope",
    "FrameScope",
    "GapBegin",
    "StepScope",
    "UpdateScope",
]

_DATA_WAIT = int(Phase.DATA_WAIT)
_VALIDATION = int(Phase.VALIDATION)

# Formatting an empty text takes any arguments, gives what is false (so exceptions pass) and runs no
# line of Python: a method that does nothing costs twice as much.
_nothing = cast("Callable[..., None]", "".format)


class Untouched:
    """A bracket that books nothing, as half of all do."""

    __slots__ = ()
    __enter__ = _nothing
    __exit__ = _nothing


UNTOUCHED = Untouched()
"""The one scope of its kind."""


class AfterScope:
    """A scope with something to do at its end, when no exception passes.

    Args:
        call: What it does.
    """

    __slots__ = ("_call",)
    __enter__ = _nothing

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._call()


class EdgeScope:
    """A scope inside another.

    Args:
        outer: Entered first and left last.
        inner: The scope itself.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: Scope, inner: Scope) -> None:
        self._outer = outer
        self._inner = inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)
        self._outer.__exit__(kind, error, trace)


class StepScope:
    """Around a training step: a forward pass, and a micro-batch if it returns."""

    __slots__ = ("_enter", "_leave", "_times")

    def __init__(self, times: LoopTimes) -> None:
        bracket = times.timeline.bracket(Phase.FORWARD)
        self._enter, self._leave = bracket.__enter__, bracket.__exit__
        self._times = times

    def __enter__(self) -> None:
        self._enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        if kind is None:
            self._times.num_micro += 1


class UpdateScope:
    """Around an attempt to update parameters."""

    __slots__ = ("_enter", "_leave", "_times")

    def __init__(self, times: LoopTimes) -> None:
        bracket = times.timeline.bracket(Phase.OPTIMIZER)
        self._enter, self._leave = bracket.__enter__, bracket.__exit__
        self._times = times

    def __enter__(self) -> None:
        self._times.num_begun += 1
        self._enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()


class BackwardBegin:
    """Before the backward pass: with its end, if no exception passes, that pass begins."""

    __slots__ = ("_enter", "_times")
    __enter__ = _nothing

    def __init__(self, times: LoopTimes) -> None:
        bracket = times.timeline.bracket(Phase.BACKWARD)
        self._enter = bracket.__enter__
        self._times = times

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._times.num_backward += 1
            self._enter()


class BackwardEnd:
    """After the backward pass: with its beginning, that pass has ended."""

    __slots__ = ("_leave", "_times")
    __exit__ = _nothing

    def __init__(self, times: LoopTimes) -> None:
        bracket = times.timeline.bracket(Phase.BACKWARD)
        self._leave = bracket.__exit__
        self._times = times

    def __enter__(self) -> None:
        times = self._times
        if times.num_backward:
            times.num_backward -= 1
            self._leave()


class GapBegin:
    """The last bracket of a batch: behind it lies what comes before the next fetch."""

    __slots__ = ("_enter", "_times")
    __enter__ = _nothing

    def __init__(self, times: LoopTimes) -> None:
        bracket = times.timeline.bracket(Phase.LOGGING)
        self._enter = bracket.__enter__
        self._times = times

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        times = self._times
        if kind is None and not times.has_gap:
            times.has_gap = True
            self._enter()


class FetchScope:
    """Around the fetch of a training batch: the iteration before ends, the wait begins."""

    __slots__ = ("_enter", "_leave", "_times")

    def __init__(self, times: LoopTimes) -> None:
        bracket = times.timeline.bracket(Phase.DATA_WAIT)
        self._enter, self._leave = bracket.__enter__, bracket.__exit__
        self._times = times

    def __enter__(self) -> None:
        times = self._times
        if times.has_gap and times.is_complete and not times.is_starting:
            times.has_gap = times.is_complete = False  # as ever: the gap ends here
            times.recorder.cut_into(_DATA_WAIT)
        else:
            times.end_iteration()
            if times.is_starting:
                times.end_setup()
            self._enter()
        if times.gaps is not None:
            times.gaps.begin_wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        times = self._times
        if times.gaps is not None:
            times.gaps.end_wait(times.counters.iterations)
        self._leave()


class FrameScope:
    """Around what happens to one batch: whatever an exception left open ends with it."""

    __slots__ = ("_levels", "_num_levels", "_times")

    def __init__(self, times: LoopTimes) -> None:
        self._times = times
        self._levels = times.timeline.levels
        self._num_levels = 1

    def __enter__(self) -> None:
        times = self._times
        # With `dataloader_iter` the training step fetches for itself: the batch before ends here.
        if times.is_complete or times.has_gap:
            times.end_iteration()
        times.num_begun += 1
        # What an abandoned batch did belongs to no iteration.
        times.num_micro = 0
        self._num_levels = len(self._levels)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if len(self._levels) > self._num_levels:
            self._times.repair(self._num_levels - 1)


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
