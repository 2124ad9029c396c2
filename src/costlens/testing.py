"""Doubles for tests of code that costlens watches: a clock, a device and an exporter without waits.

``Run(clock=FakeClock(), exporters=[MemoryExporter()])`` makes a run whose every number is exact.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.records import RankRecord
from costlens.core.snapshot import Snapshot
from costlens.observe.device import Event

if TYPE_CHECKING:
    import torch

__all__ = ["FakeClock", "FakeDevice", "MemoryExporter"]


class FakeClock:
    """A monotonic clock in nanoseconds that stands still until it is advanced.

    Args:
        now_ns: Where it stands at first, in nanoseconds.
    """

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self.now_ns

    def advance(self, duration_s: float) -> int:
        """Let ``duration_s`` seconds (>= 0) pass and return the time in nanoseconds.

        Raises:
            ValueError: If the duration is negative.
        """
        return self.advance_ns(round(duration_s * NS_PER_S))

    def advance_ns(self, duration_ns: int) -> int:
        """Let ``duration_ns`` nanoseconds (>= 0) pass and return the time in nanoseconds.

        Raises:
            ValueError: If the duration is negative.
        """
        if duration_ns < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-duration_ns} ns")
        self.now_ns += duration_ns
        return self.now_ns


class _FakeEvent:
    """A point in the work of a :class:`FakeDevice`."""

    def __init__(self, clock: Clock, at_ns: int) -> None:
        self._clock = clock
        self.at_ns = at_ns

    def query(self) -> bool:
        """Return whether the device has come this far."""
        return self._clock() >= self.at_ns


class FakeDevice:
    """An asynchronous device with one stream: work is enqueued at once and done one after another.

    Args:
        clock: The host's clock; the device works while it advances.

    Attributes:
        num_recorded: Events recorded.
        num_recycled: Events given back.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._busy_until_ns = clock()
        self._copies: deque[tuple[int, torch.Tensor, torch.Tensor]] = deque()
        self.num_recorded = 0
        self.num_recycled = 0

    def enqueue(self, duration_s: float) -> None:
        """Give the device ``duration_s`` seconds of work; the host goes on at once."""
        start_ns = max(self._clock(), self._busy_until_ns)
        self._busy_until_ns = start_ns + round(duration_s * NS_PER_S)

    def block_host(self) -> None:
        """Let the host wait for all work, as a copy to the host or ``loss.item()`` does."""
        self._clock.advance_ns(max(0, self._busy_until_ns - self._clock()))

    def record_event(self) -> Event:
        """Return an event behind everything enqueued so far."""
        self.num_recorded += 1
        return _FakeEvent(self._clock, max(self._clock(), self._busy_until_ns))

    def elapsed_ns(self, first: Event, second: Event) -> int:
        """Return the nanoseconds between two events that the device has passed.

        Raises:
            RuntimeError: If the device has not passed one of them, as CUDA does.
        """
        if not isinstance(first, _FakeEvent) or not isinstance(second, _FakeEvent):
            raise TypeError("both events must come from a FakeDevice")
        if not (first.query() and second.query()):
            raise RuntimeError("both events must be completed before calculating elapsed time")
        return second.at_ns - first.at_ns

    def recycle(self, event: Event) -> None:
        """Take an event back."""
        self.num_recycled += 1

    def copy_out(self, host: torch.Tensor, ring: torch.Tensor) -> None:
        """Enqueue a copy; ``host`` changes only once the device has come that far."""
        self._copies.append((max(self._clock(), self._busy_until_ns), host, ring.clone()))

    def deliver(self) -> None:
        """Make the copies visible that the device has done by now."""
        while self._copies and self._copies[0][0] <= self._clock():
            _, host, ring = self._copies.popleft()
            host.copy_(ring)


class MemoryExporter:
    """Keeps every snapshot it is given.

    Attributes:
        snapshots: Closed windows, oldest first; the last one has ``is_last``.
        announced: The look before the first window, once the run has started.
        is_finished: Whether the run has closed the exporter.
    """

    name = "memory"

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.announced: Snapshot | None = None
        self.is_finished = False

    @property
    def record(self) -> RankRecord:
        """Return the newest record.

        Raises:
            LookupError: If no window has closed yet.
        """
        if not self.snapshots:
            raise LookupError("no window has closed yet; finish the run first")
        return self.snapshots[-1].record

    def start(self, snapshot: Snapshot) -> None:
        """Keep the look before the first window."""
        self.announced = snapshot

    def export(self, snapshot: Snapshot) -> None:
        """Keep a closed window."""
        self.snapshots.append(snapshot)

    def finish(self, deadline_ns: int) -> None:
        """Note that the run has closed the exporter."""
        self.is_finished = True
