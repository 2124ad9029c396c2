"""How long the device had nothing to do while the host waited for a batch.

``plain_loop`` (or another doorway) brackets every wait on the training thread; ``DeviceValues``
hands the gaps to ``Totals.resolve`` on the pipeline thread once the device has passed the events.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from costlens.core.recorder import Recorder
from costlens.observe.device import Device, Event

__all__ = ["MAX_OUTSTANDING", "DeviceGaps"]

MAX_OUTSTANDING = 1024
"""Pairs of events that may wait for the device; further waits are dropped and counted."""


class _Pair(NamedTuple):
    number: int
    before: Event
    after: Event


class DeviceGaps:
    """Measures device gaps: an event when the wait for a batch begins, one when the batch is there.

    The first event lies behind all the work of the iteration before, the second in front of the
    transfer. While the device is behind the host, it passes both at once; the time between them is
    the part of the host's wait during which the device was idle. Nothing waits for the device.

    Args:
        device: The stream that the work is enqueued on.
        recorder: Says which iterations are complete.
    """

    def __init__(self, device: Device, recorder: Recorder) -> None:
        self._device = device
        self._counters = recorder.counters
        self._before: Event | None = None
        self._pairs: deque[_Pair] = deque()
        self._gap_ns: dict[int, int] = {}
        self._next = recorder.counters.iterations
        self._num_drained = recorder.counters.iterations
        self.num_dropped = 0

    # Training thread.

    def begin_wait(self) -> None:
        """Mark the end of the work enqueued so far; about 3 µs."""
        if len(self._pairs) >= MAX_OUTSTANDING:
            self.num_dropped += 1
            return
        self._before = self._device.record_event()

    def end_wait(self, number: int) -> None:
        """Mark that iteration ``number`` has its batch; about 3 µs; without a begin, nothing."""
        before, self._before = self._before, None
        if before is not None:
            self._pairs.append(_Pair(number, before, self._device.record_event()))

    # Pipeline thread.

    def take_gaps(self) -> list[tuple[int, int]]:
        """Return (iteration number, gap in ns) of every iteration that has become known, in order.

        Each iteration comes once, an iteration without a measured wait with 0. It comes no sooner
        than the call after the one that saw it complete: its row has been drained by then, and a
        gap without a row would be lost.
        """
        while self._pairs and self._pairs[0].after.query():
            number, before, after = self._pairs.popleft()
            gap_ns = max(0, self._device.elapsed_ns(before, after))
            self._gap_ns[number] = self._gap_ns.get(number, 0) + gap_ns
            self._device.recycle(before)
            self._device.recycle(after)
        stop = self._num_drained
        if self._pairs:
            stop = min(stop, self._pairs[0].number)
        self._num_drained = self._counters.iterations
        first, self._next = self._next, max(self._next, stop)
        return [(number, self._gap_ns.pop(number, 0)) for number in range(first, self._next)]

    def has_pending(self) -> bool:
        """Return whether the device has not passed every event yet."""
        return bool(self._pairs) and not self._pairs[-1].after.query()
