"""What the pipeline thread looks at beside the timeline: each thing in its turn, each contained.

Devices, host and loaders through the probes; the values that devices hand over late; signs of life,
memory, precision, the scheduler's allocation, and what is asked of the running run.
``assembly.py`` says when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costlens.attempt import Parts
from costlens.claiming import Claim
from costlens.config import Config
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.probe import ProbeSet
from costlens.core.quality import Observation
from costlens.core.trouble_records import LastWordsPart
from costlens.observe.allocation import AllocationWatch
from costlens.observe.last_words import gather_last_words
from costlens.observe.liveness import Liveness
from costlens.observe.looks import Looks
from costlens.observe.oom import find_oom, recount_oom
from costlens.observe.precision_watch import LOSS_SCALE, PrecisionWatch
from costlens.observe.tuning import Tuning
from costlens.probes import make_probes

__all__ = ["Lookout"]


class Lookout:
    """Looks around for a run; pipeline thread, but for ``load`` and ``open``.

    Args:
        config: The settings.
        parts: What the training thread writes, and what is seen goes into.
        clock: Monotonic nanoseconds.
        claim: Tells the store and the run's folder.
        counts: Returns the counters as they stand.

    Attributes:
        looks: See where the training thread stands, when they are told to.
        alarms: Quality metrics that turned non-finite, until somebody takes them away.
    """

    def __init__(
        self,
        config: Config,
        parts: Parts,
        clock: Clock,
        claim: Claim,
        counts: Callable[[], Mapping[str, int]],
    ) -> None:
        self.alarms: list[Observation] = []
        self._parts = parts
        self._clock = clock
        self._claim = claim
        state = parts.state
        self.looks = Looks(parts.timeline, lambda: parts.host.loader.collate)
        self._probes = ProbeSet(
            make_probes(config, state, parts.host, self.looks, claim.settled_folder)
        )
        self._allocation = AllocationWatch(state, claim.store, config.job_times)
        self._liveness = Liveness(parts.recorder, parts.totals, state, clock)
        self._tuning = Tuning(state, parts.totals)
        self._precision = PrecisionWatch(
            config.precision, state, counts, lambda: parts.totals.histogram.sum_ns
        )

    @property
    def num_control_failures(self) -> int:
        """Return how often what is asked of the running run could not be read."""
        return self._tuning.num_failures

    def contribute(self) -> Mapping[str, object]:
        """Return the fields of the record that the probes fill."""
        return self._probes.contribute()

    def load(self) -> None:
        """Import what sampling needs; calling thread, before the first step."""
        self._probes.load()

    def open(self) -> None:
        """Take this moment for a sign of life; calling thread."""
        self._liveness.begin()

    def begin(self) -> None:
        """Open what is read, and read it for the first time."""
        state = self._parts.state
        if state.oom is None:
            state.oom = faults.call("observe.oom", find_oom)
        self._probes.start(self._clock())

    def look_at_allocation(self, *, is_last: bool = False) -> None:
        """Ask the scheduler for what it alone knows, where it is time to; may take seconds."""
        faults.call("observe.allocation", self._allocation.look, is_last=is_last)

    def poll(self) -> None:
        """Take in what devices have handed over, and look at what changes by the second."""
        parts = self._parts
        for count in parts.values.take_counts():
            parts.totals.add_late(count.name, count.number, count.value)
        for seen in parts.values.take_metrics():
            if seen.name == LOSS_SCALE:
                self._precision.see_scale(seen.value)
            else:
                parts.quality.add(seen.name, seen.value, seen.number, seen.mono_ns)
        parts.totals.resolve(parts.values.take_gaps())
        self.alarms.extend(parts.quality.fold())
        faults.call("observe.liveness", self._liveness.look)
        faults.call("observe.precision", self._precision.look)
        self._probes.look(self._clock())

    def look(self) -> None:
        """Look at what changes by the window."""
        state, folder = self._parts.state, self._claim.settled_folder()
        state.oom = faults.call("observe.oom", recount_oom, state.oom)
        if folder is not None:
            faults.call("observe.tuning", self._tuning.look, folder)

    def settle(self) -> None:
        """Wait up to a second for what devices still have to hand over."""
        self._parts.values.settle(self._clock() + NS_PER_S)

    def look_back(self, now_ns: int) -> None:
        """Sample for the last time, at the end of the attempt, and gather how it came to it.

        Args:
            now_ns: Monotonic end of the attempt.
        """
        self._probes.sample(now_ns)
        self._parts.state.last_words = faults.call("observe.last_words", self._gather_last_words)

    def _gather_last_words(self) -> LastWordsPart | None:
        seen = self._parts.quality.look().attempt
        return gather_last_words(
            self._parts.state,
            {name: part.first_nonfinite_iteration for name, part in seen.items()},
        )

    def stop(self) -> None:
        """Close what is read."""
        self._probes.stop()
