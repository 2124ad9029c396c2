"""The waits for the first batches of passes: where workers start anew and queues fill again.

The training thread marks the iteration that a pass begins with; the pipeline thread adds up what
that iteration waited for its batch, as it is priced.
"""

from __future__ import annotations

__all__ = ["PassWaits"]

_MAX_MARKS = 1024


class PassWaits:
    """Adds up the waits of marked iterations.

    Attributes:
        num_passes: Passes that were begun.
        wait_ns: Waits for the first batches of all but the first, whose wait is start-up.
    """

    __slots__ = ("_last", "_marks", "num_passes", "wait_ns")

    def __init__(self) -> None:
        # Written by both threads, each with one operation that the interpreter does not divide.
        self._marks: set[int] = set()
        self._last = -1
        self.num_passes = 0
        self.wait_ns = 0

    def begin(self, number: int) -> None:
        """Note that a pass begins, once however often it is told; training thread, under 1 µs.

        Args:
            number: Number of the iteration its first batch is for.
        """
        if number == self._last:
            return
        self._last = number
        self.num_passes += 1
        if self.num_passes > 1 and len(self._marks) < _MAX_MARKS:
            self._marks.add(number)

    def take(self, number: int, wait_ns: int) -> None:
        """Take what an iteration waited for its batch; pipeline thread, once for each.

        Args:
            number: Its number in the attempt.
            wait_ns: The wait, as it is priced.
        """
        if number in self._marks:
            self._marks.discard(number)
            self.wait_ns += wait_ns
