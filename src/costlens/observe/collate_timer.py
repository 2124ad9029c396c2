"""Times what loader workers spend in ``collate_fn``, where nobody can look at them.

While an iterator is made, its loader's function is replaced by one that times it; the workers take
that over, and the loader has its own back. Times are kept in memory that all processes of the rank
share, as counted reads are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from costlens.core.guard import faults
from costlens.storage.read_counts import ReadCounts

__all__ = ["CollateTimer", "TimedCollate"]

_PLACE = "observe.collate"
_NAME = "collate_fn"


class TimedCollate:
    """A ``collate_fn``, timed: in a worker, about 2 µs a batch.

    Args:
        function: The loader's own.
        counts: Takes the times; None where the rank's memory cannot be reached.
    """

    __slots__ = ("counts", "function")

    def __init__(self, function: Callable[[Any], Any], counts: ReadCounts | None) -> None:
        self.function = function
        self.counts = counts

    def __call__(self, samples: Any) -> Any:  # noqa: ANN401 - whatever a data set makes
        """Return what the function does of the samples; raises what it raises."""
        if self.counts is None:
            return self.function(samples)
        begin_ns = perf_counter_ns()
        try:
            return self.function(samples)
        finally:
            self.counts.tally().add_read(0, perf_counter_ns() - begin_ns)

    def __reduce__(self) -> tuple[Any, ...]:
        return (TimedCollate, (self.function, self.counts))


class CollateTimer:
    """Times the workers of one data set's loaders."""

    def __init__(self) -> None:
        self._counts: ReadCounts | None = None

    @contextmanager
    def around(self, loader: object) -> Iterator[None]:
        """Let the iterator that is made inside time its workers; training thread, once a pass.

        A loader without workers, or without such a function, is left as it is. About 20 µs.

        Args:
            loader: What makes the iterator.
        """
        own = faults.call(_PLACE, self._replace, loader)
        try:
            yield
        finally:
            if own is not None:
                setattr(loader, _NAME, own)

    def _replace(self, loader: object) -> Callable[[Any], Any] | None:
        """Put the timer into a loader, and return what stood there; None where it stays."""
        own: Callable[[Any], Any] | None = getattr(loader, _NAME, None)
        if not getattr(loader, "num_workers", 0) or own is None or isinstance(own, TimedCollate):
            return None
        if self._counts is None:
            self._counts = ReadCounts()
        setattr(loader, _NAME, TimedCollate(own, self._counts))
        return own

    def read_s(self) -> float | None:
        """Return the seconds of all workers in it so far; None where nobody times it."""
        return None if self._counts is None else self._counts.read().read_s
