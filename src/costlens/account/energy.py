"""Energy of one device over time: from its counter where that can be believed, else from power.

``device_meter.py`` hands over each sample. The counter is exact where it works; the power added up
over time takes its place in intervals in which the counter was reset, is missing or cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass

from costlens.core.device_records import EnergySource

__all__ = ["EnergyMeter"]

# Between two samples 2 s apart: the counter of an idle device moves, and no device draws twice its
# limit. Only what cannot be true is refused here.
_LEAST_SHARE = 0.1
_MOST_SHARE = 2.0

# Over a minute, 30 samples of the power are a fair mean: a counter further away is wrong.
_JUDGE_AFTER_S = 60.0
_MOST_RATIO = 1.5

# A line between two samples says nothing of the power in a longer gap.
_MAX_GAP_S = 10.0


@dataclass(slots=True)
class _Pair:
    """The newest intervals in which counter and power were both there; about a minute."""

    counter_j: float = 0.0
    power_j: float = 0.0
    seconds: float = 0.0

    def is_disputed(self) -> bool:
        """Return whether the two are too far apart to measure the same thing."""
        low, high = sorted((self.counter_j, self.power_j))
        return high > _MOST_RATIO * low


class EnergyMeter:
    """Adds up the energy of a device, sample by sample; never goes back.

    Attributes:
        joules: Energy so far; None until an interval was accounted for.
        seconds: Seconds that it accounts for.
        is_disputed: Whether the counter was caught contradicting the power, and is not used any
            more.
    """

    def __init__(self) -> None:
        self.joules: float | None = None
        self.seconds = 0.0
        self.is_disputed = False
        self._sources: set[EnergySource] = set()
        self._before: tuple[int, float | None, float | None] | None = None
        self._pair = _Pair()

    @property
    def source(self) -> EnergySource | None:
        """Return where the energy came from: the counter, the power, or both in turn."""
        if len(self._sources) > 1:
            return "both"
        return next(iter(self._sources), None)

    def add(
        self,
        now_ns: int,
        counter_joules: float | None,
        power_watts: float | None,
        limit_watts: float | None = None,
    ) -> None:
        """Take a sample.

        Args:
            now_ns: Monotonic time, later than the last one.
            counter_joules: The device's energy counter, from any origin; None where it has none.
            power_watts: Its power now, >= 0; None where it does not tell.
            limit_watts: The most power that it may draw; None where it does not tell.
        """
        before, self._before = self._before, (now_ns, counter_joules, power_watts)
        if before is None or now_ns <= before[0]:
            return
        seconds = (now_ns - before[0]) / 1e9
        by_power = _integrate(before[2], power_watts, seconds)
        by_counter = _difference(before[1], counter_joules)
        peak_watts = max(limit_watts or 0.0, before[2] or 0.0, power_watts or 0.0)
        if by_counter is not None and by_power is not None:
            least = _LEAST_SHARE * min(before[2] or 0.0, power_watts or 0.0) * seconds
            if not least <= by_counter <= _MOST_SHARE * peak_watts * seconds:
                by_counter = None
        if self.is_disputed:
            by_counter = None
        self._book(by_counter, by_power, seconds)

    def pause(self) -> None:
        """Forget the last sample: the device was lost, and may come back with another counter."""
        self._before = None
        self._pair = _Pair()

    def _book(self, by_counter: float | None, by_power: float | None, seconds: float) -> None:
        energy = by_power if by_counter is None else by_counter
        if energy is None:
            return
        self._sources.add("power" if by_counter is None else "counter")
        self.joules = (self.joules or 0.0) + energy
        self.seconds += seconds
        if by_counter is not None and by_power is not None:
            self._judge(by_counter, by_power, seconds)

    def _judge(self, by_counter: float, by_power: float, seconds: float) -> None:
        pair = self._pair
        pair.counter_j += by_counter
        pair.power_j += by_power
        pair.seconds += seconds
        if pair.seconds < _JUDGE_AFTER_S:
            return
        if pair.is_disputed():
            self.is_disputed = True
            self._sources.add("power")
            # A sum that was exported already must not go back.
            self.joules = (self.joules or 0.0) + max(0.0, pair.power_j - pair.counter_j)
        self._pair = _Pair()


def _integrate(before: float | None, now: float | None, seconds: float) -> float | None:
    if before is None or now is None or seconds > _MAX_GAP_S:
        return None
    return (before + now) / 2 * seconds


def _difference(before: float | None, now: float | None) -> float | None:
    # A counter that went back was reset in between.
    return None if before is None or now is None or now < before else now - before
