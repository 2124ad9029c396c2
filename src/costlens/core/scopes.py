"""What stands between ``with`` and the loop's own code: phases and iterations as reusable context managers.

A scope does a clock read or two and a few additions; it raises nothing and lets every exception of
its block pass.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

from costlens.core.phases import Phase
from costlens.core.recorder import Recorder

__all__ = ["INERT_SCOPE", "CountTaker", "InertScope", "IterationScope", "PhaseScope"]


class CountTaker(Protocol):
    """Takes counts and values that may still be on a device."""

    def add_count(self, name: str, value: Any, number: int) -> None:
        """Add ``value`` to the counter ``name`` of iteration ``number`` without waiting for a device."""

    def add_metric(self, name: str, value: Any, number: int) -> None:
        """Take one value of a quality metric of iteration ``number`` without waiting for a device."""


class PhaseScope:
    """A phase for the length of a block; may be entered again and inside itself."""

    __slots__ = ("_phase", "_timeline")

    def __init__(self, timeline: Any, phase: Phase) -> None:
        self._timeline = timeline
        self._phase = int(phase)

    def __enter__(self) -> PhaseScope:
        self._timeline.enter(self._phase)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timeline.leave()


class IterationScope:
    """One pass of the loop; counted only when its block ends without an exception.

    Args:
        recorder: Takes the row.
        values: Takes counts and metrics that may be on a device.
    """

    __slots__ = ("_counts", "_depth", "_micro_batches", "_recorder", "_timeline", "_values")

    def __init__(self, recorder: Recorder, values: CountTaker) -> None:
        self._recorder = recorder
        self._timeline = recorder.timeline
        self._values = values
        self._counts: tuple[Any, Any, Any, Any] = (None, None, None, None)
        self._micro_batches = 1
        self._depth = 0

    def prepare(
        self, samples: Any, slots: Any, tokens: Any, loss_tokens: Any, micro_batches: int
    ) -> IterationScope:
        """Return the scope, set up for the next iteration."""
        self._counts = (samples, slots, tokens, loss_tokens)
        self._micro_batches = micro_batches
        return self

    def log(self, **metrics: Any) -> None:
        """Take quality metrics of this iteration: host numbers, or tensors that are read after a device event."""
        number = self._recorder.counters.iterations
        for name, value in metrics.items():
            self._values.add_metric(name, value, number)

    def __enter__(self) -> IterationScope:
        self._depth = self._timeline.depth
        self._timeline.enter(Phase.COMPUTE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._timeline.unwind(self._depth)
            return
        counters = self._recorder.counters
        number = counters.iterations
        counters.micro_batches += self._micro_batches
        samples, slots, tokens, loss_tokens = self._counts
        if samples is not None:
            counters.add_samples(int(samples))
        if slots is not None:
            self._add("slots", slots, number)
        if tokens is not None:
            self._add("tokens", tokens, number)
        if loss_tokens is not None:
            self._add("loss_tokens", loss_tokens, number)
        self._timeline.unwind(self._depth)
        self._recorder.cut()

    def _add(self, name: str, value: Any, number: int) -> None:
        if type(value) is int:
            getattr(self._recorder.counters, "add_" + name)(value)
        else:
            self._values.add_count(name, value, number)


class InertScope:
    """Does nothing, for a run that is off."""

    __slots__ = ()

    def prepare(self, *_counts: Any) -> InertScope:
        """Return the scope."""
        return self

    def log(self, **metrics: Any) -> None:
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
