"""When the next export may be tried: at once while the back-end answers, ever more rarely after.

Pure apart from the injected clock; each export worker owns one.
"""

from __future__ import annotations

from costlens.core.clock import NS_PER_S, Clock

__all__ = ["Breaker"]


class Breaker:
    """Counts consecutive failures; from ``threshold`` on it is open: one probe per interval.

    Args:
        clock: Monotonic nanoseconds.
        threshold: Consecutive failures after which retrying stops, >= 1.
        retry_s: Seconds between attempts before that, > 0.
        probe_s: Seconds from opening to the first probe; doubles with each probe that fails.
        max_probe_s: Longest interval between probes, seconds.
        spread: Factor on all intervals, so that a thousand ranks do not probe in step; about 1.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        threshold: int = 3,
        retry_s: float = 1.0,
        probe_s: float = 30.0,
        max_probe_s: float = 300.0,
        spread: float = 1.0,
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._retry_s = retry_s
        self._probe_s = probe_s
        self._max_probe_s = max_probe_s
        self._spread = spread
        self._next_ns = 0
        self.num_failures = 0

    @property
    def is_open(self) -> bool:
        """Return whether only probes pass."""
        return self.num_failures >= self._threshold

    def wait_ns(self) -> int:
        """Return nanoseconds until an attempt may be made; 0 is now."""
        return max(0, self._next_ns - self._clock()) if self.num_failures else 0

    def record(self, *, ok: bool) -> None:
        """Take the outcome of an attempt into account; one success closes the breaker."""
        if ok:
            self.num_failures = 0
            return
        self.num_failures += 1
        interval_s = self._retry_s
        if self.is_open:
            # min() on the exponent: an outage of a week must not overflow a float.
            doublings = min(self.num_failures - self._threshold, 32)
            interval_s = min(self._probe_s * 2.0**doublings, self._max_probe_s)
        self._next_ns = self._clock() + int(interval_s * self._spread * NS_PER_S)
