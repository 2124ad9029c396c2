"""Windows: what the pipeline thread makes of the rows of some seconds, and the running totals.

Rows come from the recorder, device gaps from ``observe/device_events``; everything after this file
(account, export) reads :class:`Window` and :class:`Totals` and never a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from costlens.core.device_ledger import DeviceLedger
from costlens.core.durations import ITERATION_BOUNDS_S, Histogram, Sketch
from costlens.core.first_step import FirstStep
from costlens.core.kept import Iteration, Keeper, KeepPolicy
from costlens.core.pass_waits import PassWaits
from costlens.core.phases import ITERATION_PHASES, NUM_PHASES, Phase
from costlens.core.recorder import Row
from costlens.core.telemetry_records import Detail
from costlens.core.training_records import RatesPart

__all__ = [
    "ITERATION_BOUNDS_S",
    "Histogram",
    "Iteration",
    "KeepPolicy",
    "Sketch",
    "Totals",
    "Window",
    "iteration_ns",
]

_RATED_COUNTS = (
    "micro_batches",
    "optimizer_steps",
    "skipped_steps",
    "samples",
    "slots",
    "tokens",
    "loss_tokens",
)

_DATA_WAIT = int(Phase.DATA_WAIT)
_ITERATION_INDEXES = tuple(int(phase) for phase in ITERATION_PHASES)


def iteration_ns(phase_ns: tuple[int, ...]) -> int:
    """Return the nanoseconds that make up training speed: no saves, evaluation or start-up."""
    return sum([phase_ns[index] for index in _ITERATION_INDEXES])


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
        iteration_sum_ns: Sum of their durations.
        iteration_max_ns: The longest of them; 0 when there is none.
        kept: Iterations kept in full.
        rates: How fast those iterations were; a device's tokens count where they become known.
        detail: How much of it was to be kept.
    """

    index: int
    start_ns: int
    end_ns: int
    phase_ns: tuple[int, ...]
    counts: dict[str, int]
    num_iterations: int
    iteration_sum_ns: int
    iteration_max_ns: int
    kept: tuple[Iteration, ...]
    rates: RatesPart = field(default_factory=RatesPart)
    detail: Detail = Detail.NORMAL


class Totals:
    """Everything the pipeline thread has added up since the start of the attempt.

    Neither the duration nor the counts of an iteration that belongs to start-up (the first one)
    belong to the speed of training.

    Args:
        policy: Which iterations to keep in full.
        has_device: Whether device gaps will arrive, so that host phases inside an iteration are
            shown but not booked.

    Attributes:
        has_device: The same; may become true later, from the next iteration on.
        histogram: Durations of iterations.
        sketch: The same, for quantiles.
        late_counts: Counts that became known after their iteration.
        first_step: When the first optimizer step was made.
        pass_waits: Takes what each iteration waited for its batch.
    """

    def __init__(
        self,
        policy: KeepPolicy | None = None,
        *,
        has_device: bool = False,
        pass_waits: PassWaits | None = None,
    ) -> None:
        self.policy = policy or KeepPolicy()
        self.has_device = has_device
        self.histogram = Histogram()
        self.sketch = Sketch()
        self.late_counts: dict[str, int] = {}
        self.first_step = FirstStep()
        self._late_after_startup: dict[str, int] = {}
        self.pass_waits = PassWaits() if pass_waits is None else pass_waits
        self._device = DeviceLedger(self.pass_waits.take)
        self._is_booking = False
        self._keeper = Keeper(self.policy, self.sketch)
        self._last: Row | None = None
        # Where the iteration under way began: nanoseconds per phase, and the sum of those that
        # count in its duration.
        self._cut_ns: tuple[int, ...] = (0,) * NUM_PHASES
        self._cut_iteration_ns = 0
        self._startup_counts = dict.fromkeys(_RATED_COUNTS, 0)
        self._startup_numbers = {0}
        self._num_window = self._sum_ns = self._max_ns = 0

    @property
    def num_unresolved(self) -> int:
        """Return how many iterations wait for their device gap, or were given up."""
        return self._device.num_unresolved + self._device.num_given_up

    def add(self, row: Row) -> None:
        """Take one row; about 2 µs on the pipeline thread."""
        if self.has_device and not self._is_booking:
            self._is_booking = True
            self._device.keep(self._cut_ns)
        self.first_step.see_row(row)
        cumulative_ns = iteration_ns(row.phase_ns)
        duration_ns = cumulative_ns - self._cut_iteration_ns
        num_iterations = 1 if self._last is None else row.number - self._last.number
        if row.is_startup:
            self._add_startup(row)
        else:
            self._count(duration_ns, num_iterations)
            wait_ns = row.phase_ns[_DATA_WAIT] - self._cut_ns[_DATA_WAIT]
            if self._is_booking:
                self._device.hold(row.number, wait_ns, duration_ns)
            else:
                self.pass_waits.take(row.number, wait_ns)
        if num_iterations == 1:
            self._keeper.offer(row, self._cut_ns, duration_ns)
        self._cut_ns = row.phase_ns
        self._cut_iteration_ns = cumulative_ns
        self._last = row

    def _add_startup(self, row: Row) -> None:
        last, before = self._last, self._startup_counts
        for name in _RATED_COUNTS:
            earlier = 0 if last is None else max(0, getattr(last, name))
            before[name] += max(0, getattr(row, name)) - earlier
        self._startup_numbers.add(row.number)
        if self._is_booking:
            self._keep_as_host(row.phase_ns)

    def _count(self, duration_ns: int, num_iterations: int) -> None:
        mean_ns = duration_ns
        if num_iterations == 1:
            self.histogram.add(duration_ns)
            self.sketch.add(duration_ns)
        else:
            # Rows between were dropped: their detail is lost, their number and their time are not.
            mean_ns, rest_ns = divmod(duration_ns, num_iterations)
            self.histogram.add(mean_ns, num_iterations - rest_ns)
            self.histogram.add(mean_ns + 1, rest_ns)
            self.sketch.add(mean_ns, num_iterations)
        self._num_window += num_iterations
        self._sum_ns += duration_ns
        self._max_ns = max(self._max_ns, mean_ns)

    def add_late(self, name: str, number: int, count: int) -> None:
        """Add a count of an earlier iteration that became known now, such as a device's tokens."""
        self.late_counts[name] = self.late_counts.get(name, 0) + count
        if name == "optimizer_steps":
            self.first_step.see_late(number, count)
        if number not in self._startup_numbers:
            self._late_after_startup[name] = self._late_after_startup.get(name, 0) + count

    def count_trained(self) -> tuple[dict[str, int], int]:
        """Return what rates are made of: counts after start-up, and the nanoseconds they took.

        A counter nobody reports is absent.
        """
        if self._last is None:
            return {}, 0
        counts = dict(self._late_after_startup)
        for name in _RATED_COUNTS:
            now = getattr(self._last, name)
            if now >= 0:
                counts[name] = counts.get(name, 0) + now - self._startup_counts[name]
        counts["iterations"] = self.histogram.count
        return counts, self.histogram.sum_ns

    # Device level (core/device_ledger.py).

    def resolve(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Book iterations whose device gap is known; see :class:`DeviceLedger`.

        Args:
            gaps: Pairs of iteration number and device gap before it, in nanoseconds.
        """
        self._device.resolve(gaps)

    def book(self, host_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return nanoseconds per phase as they are priced, from the host's; the sum is unchanged.

        Without a device these are the host's own; with one, see :class:`DeviceLedger`.
        """
        return self._device.book(host_ns) if self._is_booking else host_ns

    def settle(self, host_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return the part of :meth:`book` that no later device event can move; never goes back."""
        return self._device.settle(host_ns) if self._is_booking else host_ns

    def close(self, host_ns: tuple[int, ...]) -> None:
        """Settle everything up to the end of the attempt.

        Device events that have not come are given up, and what followed the last iteration belongs
        to none, even if the run goes on later.

        Args:
            host_ns: The host's nanoseconds per phase at the end.
        """
        if self._is_booking:
            self._device.give_up()
            self._keep_as_host(host_ns)
        self._cut_ns = host_ns
        self._cut_iteration_ns = iteration_ns(host_ns)

    def _keep_as_host(self, host_ns: tuple[int, ...]) -> None:
        self._device.keep(now - before for now, before in zip(host_ns, self._cut_ns, strict=True))

    # Closing a window.

    @property
    def detail(self) -> Detail:
        """Return how much of the window under way is kept."""
        return self._keeper.detail

    def tune(self, detail: Detail) -> None:
        """Keep as much from the next window on."""
        self._keeper.next_detail = detail

    def take_kept(self) -> tuple[Iteration, ...]:
        """Return the iterations kept since the last call, in order, and forget them."""
        return self._keeper.take()

    def take_durations(self) -> tuple[int, int, int]:
        """Return number, sum and maximum (ns) of durations since the last call; forget them."""
        taken = (self._num_window, self._sum_ns, self._max_ns)
        self._num_window = self._sum_ns = self._max_ns = 0
        return taken
