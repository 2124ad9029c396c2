"""How long the whole process stood still: stopped by a signal, frozen, or starved of a processor.

The pipeline thread wakes a few times a second. Where it wakes far too late and the process has
used no processor meanwhile, no thread of it ran, and what training waited for then is no cause of
anything. A thread that merely holds the interpreter's lock uses the processor.
"""

from __future__ import annotations

import time

from costlens.core.clock import NS_PER_S, Clock

__all__ = ["Standstill"]

_LEAST_NS = NS_PER_S // 2
_MAX_BUSY_SHARE = 0.3


class Standstill:
    """Adds up the stops that a thread sees by waking late; that thread only, 2 µs a wait.

    Of a stop it misses the part in which it would have slept anyway, up to 0.3 s.

    Args:
        clock: Monotonic nanoseconds, of the real world: threads sleep in no other.
        cpu_clock: Nanoseconds of processor time of all threads.

    Attributes:
        total_ns: All stops so far.
    """

    def __init__(
        self, clock: Clock = time.monotonic_ns, cpu_clock: Clock = time.process_time_ns
    ) -> None:
        self.total_ns = 0
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._slept_ns = 0
        self._cpu_ns = 0
        self._usual_cpus = 0.0

    def sleep(self) -> None:
        """Note that the thread goes to sleep."""
        self._slept_ns, self._cpu_ns = self._clock(), self._cpu_clock()

    def wake(self, wait_s: float) -> None:
        """Note that it is awake again.

        Args:
            wait_s: How long it meant to sleep at most, >= 0.
        """
        elapsed_ns, used_ns = self._clock() - self._slept_ns, self._cpu_clock() - self._cpu_ns
        late_ns = elapsed_ns - int(wait_s * NS_PER_S)
        if late_ns < _LEAST_NS:
            self._usual_cpus = used_ns / max(1, elapsed_ns)
            return
        # Before the stop and after it the other threads work as they usually do.
        usual_ns = self._usual_cpus * wait_s * NS_PER_S
        if used_ns - usual_ns < _MAX_BUSY_SHARE * late_ns:
            self.total_ns += late_ns
