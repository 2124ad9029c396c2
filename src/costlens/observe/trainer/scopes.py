"""Scopes of Lightning's brackets that do more than book a phase.

``names.py`` hands them to bracket names; on the training thread they tell :class:`LoopTimes` what
begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import cast

from costlens.core.phases import Phase
from costlens.core.timeline import Bracket
from costlens.observe.trainer.brackets import Scope
from costlens.observe.trainer.given import Trainer
from costlens.observe.trainer.loop import LoopTimes

__all__ = [
    "UNTOUCHED",
    "AfterScope",
    "BeforeScope",
    "EdgeScope",
    "EpochScope",
    "EvaluationScope",
    "FetchScope",
    "FrameScope",
    "StepScope",
    "UpdateScope",
]

_VALIDATION = int(Phase.VALIDATION)
_enter = Bracket.__enter__
_leave = Bracket.__exit__

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


class BeforeScope:
    """A scope with something to do at its start.

    Args:
        call: What it does.
    """

    __slots__ = ("_call",)
    __exit__ = _nothing

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._call()


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


class StepScope(Bracket):
    """Around a training step: a forward pass, and a micro-batch if it returns."""

    __slots__ = ("_times",)

    def __init__(self, times: LoopTimes) -> None:
        super().__init__(times.timeline, Phase.FORWARD)
        self._times = times

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        _leave(self)
        if kind is None:
            self._times.num_micro += 1


class UpdateScope(Bracket):
    """Around an attempt to update parameters."""

    __slots__ = ("_times",)

    def __init__(self, times: LoopTimes) -> None:
        super().__init__(times.timeline, Phase.OPTIMIZER)
        self._times = times

    def __enter__(self) -> None:
        self._times.num_begun += 1
        _enter(self)


class FetchScope:
    """Around the fetch of a training batch."""

    __slots__ = ("_begin", "_end")

    def __init__(self, times: LoopTimes) -> None:
        self._begin = times.begin_fetch
        self._end = times.end_fetch

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()


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
