"""Evidence: what happened to one rank between two of its records.

Everything in a record is a running total, so evidence is a difference; with no earlier record it
is the whole attempt. What a record does not know, evidence does not know either: None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuPart
from costlens.core.phases import ITERATION_PHASES, NAMES
from costlens.core.records import RankRecord
from costlens.core.remembered import remembered
from costlens.diagnose.data_supply import DataSupply, find_supply
from costlens.diagnose.lumps import measure_steady_idle_s
from costlens.diagnose.measures import measure_idle_s

__all__ = ["Evidence"]

_ITERATION_NAMES = tuple(phase.name.lower() for phase in ITERATION_PHASES)


@dataclass(frozen=True)
class Evidence:
    """What happened to one rank of an attempt from ``before`` to ``now``.

    Args:
        now: The later record.
        before: An earlier record of the same rank and attempt; None for the whole attempt.
    """

    now: RankRecord
    before: RankRecord | None = None

    @remembered
    def total_s(self) -> float:
        """Return the paid seconds of this rank in it."""
        earlier_ns = 0 if self.before is None else self.before.total_ns
        return max(0, self.now.total_ns - earlier_ns) / NS_PER_S

    @remembered
    def time_s(self) -> dict[str, float]:
        """Return the seconds per phase as they are priced; all phases are there."""
        return _difference(self.now.time_ns, None if self.before is None else self.before.time_ns)

    @remembered
    def host_s(self) -> dict[str, float]:
        """Return the seconds per phase as the host sees them (the priced ones without a device)."""
        if self.now.host_ns is None:
            return self.time_s
        return _difference(self.now.host_ns, None if self.before is None else self.before.host_ns)

    @remembered
    def iteration_s(self) -> float:
        """Return the seconds in iterations, so without start-up, saves and evaluation."""
        return sum(self.time_s[name] for name in _ITERATION_NAMES)

    @remembered
    def num_iterations(self) -> int:
        """Return how many iterations it covers, without the first of the attempt."""
        earlier = 0 if self.before is None else self.before.iteration_time.count
        return self.now.iteration_time.count - earlier

    @remembered
    def whole(self) -> Evidence:
        """Return the evidence about all of the attempt so far; itself where it is that.

        What comes in lumps that lie minutes apart (saves, evaluations) is judged by it: a stretch
        of a minute may hold none of them, or two by chance.
        """
        return self if self.before is None else Evidence(self.now)

    @remembered
    def trained_s(self) -> float:
        """Return the seconds of training: in iterations, saves and evaluation."""
        return self.iteration_s + self.time_s["checkpoint"] + self.time_s["validation"]

    @remembered
    def gpus(self) -> list[tuple[GpuPart, GpuPart | None]]:
        """Return the devices of the rank, each with what the earlier record says of it."""
        if self.before is None:
            return [(part, None) for part in self.now.gpus]
        earlier = {part.uuid: part for part in self.before.gpus}
        return [(part, earlier.get(part.uuid)) for part in self.now.gpus]

    @remembered
    def idle_s(self) -> float | None:
        """Return how long devices did nothing in iterations; see ``measures.measure_idle_s``."""
        return measure_idle_s(self)

    @remembered
    def steady_idle_s(self) -> float | None:
        """Return what of it is in every iteration; see ``lumps.measure_steady_idle_s``."""
        return measure_steady_idle_s(self)

    @remembered
    def supply(self) -> DataSupply | None:
        """Return why this rank waits for its data; None where it hardly does."""
        return find_supply(self)

    @remembered
    def stopped_s(self) -> float:
        """Return how long the whole process stood still, as far as that was seen."""
        earlier_s = 0.0 if self.before is None else self.before.stopped_s or 0.0
        return max(0.0, (self.now.stopped_s or 0.0) - earlier_s)

    def share(self, seconds: float) -> float:
        """Return ``seconds`` as a share (0 to 1) of the paid time; 0 where no time was paid."""
        return min(1.0, max(0.0, seconds / self.total_s)) if self.total_s > 0 else 0.0


def _difference(now_ns: dict[str, int], before_ns: dict[str, int] | None) -> dict[str, float]:
    if before_ns is None:
        return {name: now_ns.get(name, 0) / NS_PER_S for name in NAMES}
    return {name: (now_ns.get(name, 0) - before_ns.get(name, 0)) / NS_PER_S for name in NAMES}
