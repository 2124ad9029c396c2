"""What stands between ``with`` and the loop's own code: phases and iterations as context managers.

A scope does a clock read or two and a few additions; it raises nothing and lets every exception of
its block pass.
"""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import Protocol

from costlens.core.boundaries import Boundaries
from costlens.core.log import Logger, log
from costlens.core.phases import Phase
from costlens.core.recorder import MAX_COUNT, Recorder
from costlens.core.timeline import Timeline

__all__ = ["INERT_SCOPE", "CountTaker", "InertScope", "IterationScope", "PhaseScope"]

_NOT_OPEN = -1


class CountTaker(Protocol):
    """Takes counts and values that may still be on a device; waits for nothing, raises nothing."""

    def add_count(self, name: str, value: object, number: int) -> None:
        """Add ``value`` to the counter ``name`` of iteration ``number``."""

    def add_metric(self, name: str, value: object, number: int) -> None:
        """Take a value of a quality metric of iteration ``number``."""

    def refuse(self) -> None:
        """Count a value that cannot be one."""


class PhaseScope:
    """A phase for the length of a block; may be entered again and inside itself.

    On any thread but the one that trains it does nothing: what a helper thread does costs the
    training no time.
    """

    __slots__ = ("_depths", "_phase", "_timeline")

    def __init__(self, timeline: Timeline, phase: Phase) -> None:
        self._timeline = timeline
        self._phase = int(phase)
        self._depths: list[int] = []

    def __enter__(self) -> PhaseScope:
        timeline = self._timeline
        if timeline.owner == get_ident():
            self._depths.append(len(timeline.levels) - 1)
            timeline.enter(self._phase)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._depths:
            self._timeline.unwind(self._depths.pop())  # the block may have left phases open


class IterationScope:
    """One pass of the loop; counted only when its block ends without an exception.

    The thread that enters it is the one that trains.

    Args:
        recorder: Takes the row.
        values: Takes counts and metrics that may be on a device.
        logger: The log of the run.
        boundaries: Told of every iteration that has ended.
    """

    __slots__ = (
        "_boundaries",
        "_counters",
        "_counts",
        "_depth",
        "_enter_compute",
        "_has_warned",
        "_levels",
        "_logger",
        "_micro_batches",
        "_recorder",
        "_timeline",
        "_values",
    )

    def __init__(
        self,
        recorder: Recorder,
        values: CountTaker,
        logger: Logger = log,
        boundaries: Boundaries | None = None,
    ) -> None:
        self._recorder = recorder
        self._boundaries = boundaries
        self._logger = logger
        self._counters = recorder.counters
        self._timeline = recorder.timeline
        self._levels = self._timeline.levels
        self._enter_compute = self._timeline.bracket(Phase.COMPUTE).__enter__
        self._values = values
        self._counts: tuple[object, object, object, object] = (None, None, None, None)
        self._micro_batches = 1
        self._depth = _NOT_OPEN
        self._has_warned = False

    def prepare(
        self,
        samples: object,
        slots: object,
        tokens: object,
        loss_tokens: object,
        micro_batches: int,
    ) -> IterationScope | InertScope:
        """Return the scope, set up for the next iteration.

        Inside its own block it returns a scope that does nothing: the passes of an inner loop are
        parts of the iteration around it.
        """
        if self._depth != _NOT_OPEN and len(self._levels) - 1 > self._depth:
            self._warn_nested()
            return INERT_SCOPE
        self._counts = (samples, slots, tokens, loss_tokens)
        self._micro_batches = micro_batches
        return self

    def log(self, /, **metrics: object) -> None:
        """Take quality metrics of this iteration: numbers, or tensors that are read later."""
        number = self._recorder.counters.iterations
        for name, value in metrics.items():
            self._values.add_metric(name, value, number)

    def __enter__(self) -> IterationScope:
        self._timeline.owner = get_ident()
        self._depth = len(self._levels) - 1
        self._enter_compute()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        depth, self._depth = self._depth, _NOT_OPEN
        if kind is None:
            self._count()
            self._recorder.cut_to(depth)
            boundaries = self._boundaries
            if boundaries is not None and boundaries.agreement is not None:
                boundaries.note_iteration()
        else:
            self._timeline.unwind(depth)

    def _count(self) -> None:
        counters = self._counters
        micro_batches = self._micro_batches
        if type(micro_batches) is int and 0 < micro_batches <= MAX_COUNT:
            counters.micro_batches += micro_batches
        else:
            counters.micro_batches += 1
            self._values.refuse()
        samples, slots, tokens, loss_tokens = self._counts
        # What the counters' own methods do, without their calls.
        if type(samples) is int and 0 <= samples <= MAX_COUNT:
            known = counters.samples
            counters.samples = samples if known < 0 else known + samples
        elif samples is not None:
            self._hand_over("samples", samples)
        if type(slots) is int and 0 <= slots <= MAX_COUNT:
            known = counters.slots
            counters.slots = slots if known < 0 else known + slots
        elif slots is not None:
            self._hand_over("slots", slots)
        if type(tokens) is int and 0 <= tokens <= MAX_COUNT:
            known = counters.tokens
            counters.tokens = tokens if known < 0 else known + tokens
        elif tokens is not None:
            self._hand_over("tokens", tokens)
        if type(loss_tokens) is int and 0 <= loss_tokens <= MAX_COUNT:
            known = counters.loss_tokens
            counters.loss_tokens = loss_tokens if known < 0 else known + loss_tokens
        elif loss_tokens is not None:
            self._hand_over("loss_tokens", loss_tokens)

    def _hand_over(self, name: str, value: object) -> None:
        self._values.add_count(name, value, self._counters.iterations)

    def _warn_nested(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._logger.warning(
                "costlens.iteration.nested",
                message="run.iteration() inside run.iteration() counts nothing: put one around a"
                " whole pass of the loop and say micro_batches=n",
            )


class InertScope:
    """Does nothing, for a run that is off."""

    __slots__ = ()

    def prepare(self, *_counts: object) -> InertScope:
        """Return the scope."""
        return self

    def log(self, /, **metrics: object) -> None:
        """Take nothing."""

    def __enter__(self) -> InertScope:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


INERT_SCOPE = InertScope()
