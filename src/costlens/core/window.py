"""Windows: what the pipeline thread makes of the rows of some seconds, and the running totals beside them.

Rows come from the recorder, device gaps from ``observe/device_events``; everything after this file
(account, export) reads :class:`Window` and :class:`Totals` and never a row.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from costlens.core.clock import NS_PER_S
from costlens.core.phases import NUM_PHASES, STEP_PHASES, Phase
from costlens.core.recorder import Row

__all__ = [
    "STEP_BOUNDS_S",
    "Histogram",
    "Iteration",
    "KeepPolicy",
    "Sketch",
    "Totals",
    "Window",
    "step_ns",
]

STEP_BOUNDS_S: tuple[float, ...] = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0,
)  # fmt: skip
"""Upper bounds of the iteration-duration histogram, in seconds: default OTel bounds put 0.02, 0.3 and 2 s together."""

_SESSION_COUNTS = (
    "micro_batches",
    "optimizer_steps",
    "skipped_steps",
    "samples",
    "slots",
    "tokens",
    "loss_tokens",
)

_STEP_INDEXES = tuple(int(phase) for phase in STEP_PHASES)


def step_ns(phase_ns: tuple[int, ...]) -> int:
    """Return the nanoseconds of the phases that make up training speed (no saves, no evaluation, no start-up)."""
    return sum(phase_ns[index] for index in _STEP_INDEXES)


@dataclass(slots=True)
class Histogram:
    """Cumulative counts per bucket of ``STEP_BOUNDS_S`` plus one for everything above, with their sum."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(STEP_BOUNDS_S) + 1))
    count: int = 0
    sum_ns: int = 0

    def add(self, value_ns: int) -> None:
        """Count one duration in nanoseconds; a value on a bound belongs to the bucket below it."""
        self.buckets[bisect_left(STEP_BOUNDS_S, value_ns / NS_PER_S)] += 1
        self.count += 1
        self.sum_ns += value_ns

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(self.buckets.copy(), self.count, self.sum_ns)


@dataclass(slots=True)
class Sketch:
    """Durations in logarithmic bins, so that quantiles of any run take bounded memory.

    The bins are those of DDSketch (Masson, Rim, Lee 2019): a quantile is off by at most 1 %,
    whatever the length of the run.
    """

    bins: dict[int, int] = field(default_factory=dict)
    count: int = 0

    _GAMMA = (1 + 0.01) / (1 - 0.01)
    _LOG_GAMMA = math.log(_GAMMA)

    def add(self, value_ns: int) -> None:
        """Count one duration in nanoseconds; below 1 ns counts as 1 ns."""
        index = math.ceil(math.log(max(1, value_ns)) / self._LOG_GAMMA)
        self.bins[index] = self.bins.get(index, 0) + 1
        self.count += 1

    def quantile_ns(self, q: float) -> float | None:
        """Return the ``q`` quantile (0 to 1) in nanoseconds, within 1 %, or None when nothing was counted."""
        if self.count == 0:
            return None
        rank = q * (self.count - 1)
        seen = 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen > rank:
                return float(2 * self._GAMMA**index / (self._GAMMA + 1))
        return None

    def merge(self, other: Sketch) -> None:
        """Add the counts of another sketch."""
        for index, count in other.bins.items():
            self.bins[index] = self.bins.get(index, 0) + count
        self.count += other.count


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration that was kept in full, for a span.

    Args:
        index: Its number in the attempt, from 0.
        start_ns: Monotonic start.
        end_ns: Monotonic end.
        phase_ns: Its own nanoseconds per phase, as the host saw them.
        step_ns: The part that counts as its duration (see ``STEP_PHASES``).
        reason: ``sampled``, ``slow`` or ``first``.
    """

    index: int
    start_ns: int
    end_ns: int
    phase_ns: tuple[int, ...]
    step_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class KeepPolicy:
    """Which iterations are kept in full.

    Args:
        every: Keep every n-th iteration, the same on all ranks, > 0.
        max_sampled: Most of those per window.
        slow_ratio: Keep an iteration longer than this many running medians.
        max_slow: Most of those per window.
    """

    every: int = 100
    max_sampled: int = 1
    slow_ratio: float = 1.5
    max_slow: int = 3


@dataclass(frozen=True, slots=True)
class Window:
    """What happened between two closings of the pipeline, 10 s apart unless configured otherwise.

    Args:
        index: Number of the window in the attempt, from 0.
        start_ns: Monotonic start.
        end_ns: Monotonic end.
        phase_ns: Nanoseconds per phase in the window; they sum to ``end_ns - start_ns``.
        counts: Change of each counter in the window; a counter nobody reports is absent.
        num_iterations: Iterations whose duration was counted (the first of an attempt is not).
        step_sum_ns: Sum of their durations.
        step_max_ns: The longest of them; 0 when there is none.
        kept: Iterations kept in full.
    """

    index: int
    start_ns: int
    end_ns: int
    phase_ns: tuple[int, ...]
    counts: dict[str, int]
    num_iterations: int
    step_sum_ns: int
    step_max_ns: int
    kept: tuple[Iteration, ...]


class Totals:
    """Everything the pipeline thread has added up since the start of the attempt.

    Args:
        policy: Which iterations to keep in full.
        has_device: Whether device gaps will arrive, so that host phases inside an iteration are
            shown but not booked.
    """

    def __init__(self, policy: KeepPolicy | None = None, *, has_device: bool = False) -> None:
        self.policy = policy or KeepPolicy()
        self.has_device = has_device
        self.histogram = Histogram()
        self.sketch = Sketch()
        self.device_adjust_ns = [0] * NUM_PHASES
        self.num_unresolved = 0
        self._pending: dict[int, tuple[int, ...]] = {}
        self._pending_ns = [0] * NUM_PHASES
        self._previous: tuple[int, ...] = (0,) * NUM_PHASES
        self._previous_step_ns = 0
        self._num_window = 0
        self._sum_ns = 0
        self._max_ns = 0
        self._kept: list[Iteration] = []
        self._num_sampled = 0
        self._slow: list[Iteration] = []
        self._median_ns = math.inf
        self._first_row: Row | None = None
        self._last_row: Row | None = None
        self.late_counts: dict[str, int] = {}
        self._late_in_session: dict[str, int] = {}

    def add(self, row: Row) -> None:
        """Take one row; about 4 µs on the pipeline thread."""
        cumulative_ns = step_ns(row.phase_ns)
        duration_ns = cumulative_ns - self._previous_step_ns
        is_first = row.number == 0
        if is_first:
            self._first_row = row
        else:
            self.histogram.add(duration_ns)
            self.sketch.add(duration_ns)
            self._num_window += 1
            self._sum_ns += duration_ns
            self._max_ns = max(self._max_ns, duration_ns)
        self._keep(row, duration_ns)
        if self.has_device and not is_first:
            self._hold(row)
        self._previous = row.phase_ns
        self._previous_step_ns = cumulative_ns
        self._last_row = row

    def add_late(self, name: str, number: int, count: int) -> None:
        """Add a count of an iteration that became known only now, such as tokens summed on the device."""
        self.late_counts[name] = self.late_counts.get(name, 0) + count
        if number > 0:
            self._late_in_session[name] = self._late_in_session.get(name, 0) + count

    def session(self) -> tuple[dict[str, int], int]:
        """Return what rates are made of: counts after the first iteration, and the iteration time (ns) they took.

        The first iteration is start-up; neither its counts nor its time belong to a rate.
        """
        first, last = self._first_row, self._last_row
        counts = dict(self._late_in_session)
        if last is None or first is None:
            return {}, 0
        for name in _SESSION_COUNTS:
            now = getattr(last, name)
            if now >= 0:
                counts[name] = counts.get(name, 0) + now - max(0, getattr(first, name))
        counts["iterations"] = last.number - first.number
        return counts, self.histogram.sum_ns

    def _keep(self, row: Row, duration_ns: int) -> None:
        policy = self.policy
        if row.number == 0:
            self._kept.append(self._iteration(row, duration_ns, "first"))
        elif row.number % policy.every == 0 and self._num_sampled < policy.max_sampled:
            self._num_sampled += 1
            self._kept.append(self._iteration(row, duration_ns, "sampled"))
        elif self.sketch.count > 20:
            median_ns = (
                self.sketch.quantile_ns(0.5) if self._num_window % 16 == 1 else self._median_ns
            )
            self._median_ns = median_ns or 0.0
            if duration_ns > policy.slow_ratio * self._median_ns:
                self._slow.append(self._iteration(row, duration_ns, "slow"))
                self._slow.sort(key=lambda kept: kept.step_ns, reverse=True)
                del self._slow[policy.max_slow :]

    def _iteration(self, row: Row, duration_ns: int, reason: str) -> Iteration:
        phase_ns = tuple(
            now - before for now, before in zip(row.phase_ns, self._previous, strict=True)
        )
        return Iteration(row.number, row.start_ns, row.end_ns, phase_ns, duration_ns, reason)

    # Device level (DESIGN section 7).

    def _hold(self, row: Row) -> None:
        own = tuple(row.phase_ns[index] - self._previous[index] for index in _STEP_INDEXES)
        self._pending[row.number] = own
        for index, value in zip(_STEP_INDEXES, own, strict=True):
            self._pending_ns[index] += value
        self.num_unresolved = len(self._pending)

    def resolve(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Book iterations whose device gap is known.

        *Exposed wait* is ``min(gap, host wait in the fetch)``; it is booked as ``data_wait``, the
        rest of the iteration as ``compute``, because device work surfaces wherever the host happens
        to block.

        Args:
            gaps: Pairs of iteration index and device gap before it, in nanoseconds.
        """
        data_wait, compute = int(Phase.DATA_WAIT), int(Phase.COMPUTE)
        for index, gap_ns in gaps:
            own = self._pending.pop(index, None)
            if own is None:
                continue
            host_wait_ns = own[0]
            exposed_ns = min(max(0, gap_ns), host_wait_ns)
            for phase, value in zip(_STEP_INDEXES, own, strict=True):
                self._pending_ns[phase] -= value
                self.device_adjust_ns[phase] -= value
            self.device_adjust_ns[data_wait] += exposed_ns
            self.device_adjust_ns[compute] += sum(own) - exposed_ns
        self.num_unresolved = len(self._pending)

    def book(self, host_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return nanoseconds per phase as they are priced, from the host's; the sum is unchanged.

        Without a device these are the host's own. With one, iterations whose gap is still unknown
        count as ``compute``.
        """
        if not self.has_device:
            return host_ns
        booked = [
            host + adjust for host, adjust in zip(host_ns, self.device_adjust_ns, strict=True)
        ]
        for index in _STEP_INDEXES:
            booked[index] -= self._pending_ns[index]
            booked[Phase.COMPUTE] += self._pending_ns[index]
        return tuple(booked)

    def settle(self, host_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return the booked nanoseconds per phase that no later device event can move, so they never go back."""
        if not self.has_device:
            return host_ns
        settled = list(host_ns)
        for index in _STEP_INDEXES:
            settled[index] = (
                self._previous[index] + self.device_adjust_ns[index] - self._pending_ns[index]
            )
        return tuple(settled)

    # Closing a window.

    def take_kept(self) -> tuple[Iteration, ...]:
        """Return the iterations kept since the last call, in order, and forget them."""
        kept = sorted([*self._kept, *self._slow], key=lambda iteration: iteration.index)
        self._kept.clear()
        self._slow.clear()
        self._num_sampled = 0
        return tuple(kept)

    def take_steps(self) -> tuple[int, int, int]:
        """Return the number, sum and maximum (ns) of iteration durations since the last call, and forget them."""
        taken = (self._num_window, self._sum_ns, self._max_ns)
        self._num_window = self._sum_ns = self._max_ns = 0
        return taken
