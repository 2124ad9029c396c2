"""What the samples of one device add up to: sums over time, and the newest values.

``observe/nvml.py`` reads a :class:`Sample` every 2 s; the meter makes the device's part of the
record from them. Pure; an interval counts only where both of its ends were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costlens.account.energy import EnergyMeter
from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuPart

__all__ = ["COUNTERS", "NEWEST", "THROTTLE_REASONS", "DeviceIdentity", "DeviceMeter", "Sample"]

THROTTLE_REASONS = (
    *("power_cap", "thermal_sw", "thermal_hw", "hw_brake", "sync_boost"),
    "other",
)
"""Why clocks are held down, whatever the driver calls it."""

NEWEST = (
    *("utilization", "memory_utilization", "memory_used_bytes", "memory_total_bytes"),
    *("own_memory_bytes", "is_shared", "power_watts", "power_limit_watts"),
    *("temperature_celsius", "memory_temperature_celsius"),
    *("sm_clock_hertz", "memory_clock_hertz", "sm_clock_max_hertz", "is_remap_pending"),
)
"""Values of a sample that the record repeats."""

COUNTERS = {
    "io": ("pcie_receive", "pcie_transmit", "nvlink_receive", "nvlink_transmit"),
    "errors": (
        *("corrected", "uncorrected", "nvlink_crc", "pcie_replay"),
        *("row_remap_corrected", "row_remap_uncorrected", "row_remap_failure"),
    ),
}
"""Counters of a device, which begin anywhere; those of ``io`` count bytes."""

# Of those, what is no fault of the board: large ones run at their power cap whenever they are used.
_ORDINARY = frozenset({"power_cap", "sync_boost", "other"})

# Samples are 2 s apart; what happened in a longer gap nobody saw.
_MAX_GAP_NS = 10 * NS_PER_S


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """What a device is.

    Args:
        uuid: Its UUID; that of the slice for a MIG device.
        name: Its model.
        serial: Serial number of the board.
        pci_id: Domain, bus and device.
        parent_uuid: The GPU of a MIG device.
        mig_slices: Compute slices of a MIG device.
        is_simulated: Whether a stand-in driver made it up.
    """

    uuid: str
    name: str | None = None
    serial: str | None = None
    pci_id: str | None = None
    parent_uuid: str | None = None
    mig_slices: int | None = None
    is_simulated: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a device.

    Args:
        now_ns: Monotonic time.
        values: What it told, by name: those of ``NEWEST``, and ``energy_joules`` as it counts.
        activity: Share of what each unit could do since the sample before, 0 to 1.
        throttled: Reasons for which its clocks are held down; None where it does not tell.
        counters: What its counters of ``COUNTERS`` stand at.
        absent: Why something is missing, by its name.
    """

    now_ns: int
    values: Mapping[str, float] = field(default_factory=dict)
    activity: Mapping[str, float] = field(default_factory=dict)
    throttled: frozenset[str] | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


class DeviceMeter:
    """Adds up one device.

    Args:
        identity: What the device is.
    """

    def __init__(self, identity: DeviceIdentity) -> None:
        self.identity = identity
        self.energy = EnergyMeter()
        self._last: Sample | None = None
        self._is_lost = False
        self._num_losses = 0
        self._sums = {"sampled_s": 0.0, "busy_s": 0.0, "utilization_s": 0.0, "activity_s": 0.0}
        self._activity_busy_s: dict[str, float] = {}
        self._throttle_s: dict[str, float] | None = None
        self._throttle_loss_s: float | None = None
        self._counted: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        self._num_xids: int | None = None
        self._last_xid: int | None = None
        self._deafness: dict[str, str] = {}
        self._peak_bytes: float | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether the driver has lost the device, and not found it again."""
        return self._is_lost

    def lose(self) -> None:
        """Note that the driver has lost the device: nothing of it is known until it is back."""
        if not self._is_lost:
            self._num_losses += 1
        self._is_lost = True
        self.interrupt()
        self._counters.clear()

    def interrupt(self) -> None:
        """Let no interval reach from before to after: nobody looked in between."""
        self._last = None
        self.energy.pause()

    def hear(self, xids: Sequence[int], why_not: str | None = None) -> None:
        """Take the error codes that the driver has sent, or why nobody can listen for them."""
        self._deafness = {} if why_not is None else {"xid": why_not}
        if why_not is None:
            self._num_xids = (self._num_xids or 0) + len(xids)
            self._last_xid = (self._last_xid, *xids)[-1]

    def add(self, sample: Sample) -> None:
        """Take a sample; one that is not later than the last is ignored."""
        last = self._last
        if last is not None and sample.now_ns <= last.now_ns:
            return
        self._is_lost = False
        self._last = sample
        self.energy.add(
            sample.now_ns,
            sample.values.get("energy_joules"),
            sample.values.get("power_watts"),
            sample.values.get("power_limit_watts"),
        )
        self._count(sample)
        used = sample.values.get("memory_used_bytes")
        if used is not None:
            self._peak_bytes = max(used, self._peak_bytes or 0)
        if sample.throttled is not None and self._throttle_s is None:
            self._throttle_s = dict.fromkeys(THROTTLE_REASONS, 0.0)
        if last is not None and sample.now_ns - last.now_ns <= _MAX_GAP_NS:
            self._extend(last, sample, (sample.now_ns - last.now_ns) / NS_PER_S)

    def _extend(self, last: Sample, now: Sample, seconds: float) -> None:
        self._sums["sampled_s"] += seconds
        begin, end = last.values.get("utilization"), now.values.get("utilization")
        if begin is not None and end is not None:
            self._sums["utilization_s"] += seconds
            self._sums["busy_s"] += (begin + end) / 2 * seconds
        if now.activity:
            self._sums["activity_s"] += seconds
            for unit, share in now.activity.items():
                self._activity_busy_s[unit] = self._activity_busy_s.get(unit, 0.0) + share * seconds
        if last.throttled is not None and now.throttled is not None and self._throttle_s:
            # A reason that stands at one end only has stood for about half of the interval.
            for reason in self._throttle_s:
                ends = (reason in last.throttled) + (reason in now.throttled)
                self._throttle_s[reason] += ends / 2 * seconds
            lost = (_lost_clock(last) + _lost_clock(now)) / 2
            if {"sm_clock_hertz", "sm_clock_max_hertz"} <= now.values.keys():
                self._throttle_loss_s = (self._throttle_loss_s or 0.0) + lost * seconds

    def _count(self, sample: Sample) -> None:
        for name, value in sample.counters.items():
            before = self._counters.get(name, value)
            # One that went back began anew at 0.
            added = value - before if value >= before else value
            self._counted[name] = self._counted.get(name, 0) + added
            self._counters[name] = value

    def part(self) -> GpuPart:
        """Return the device's part of the record."""
        last = self._last or Sample(0)
        counted = {
            kind: {name: self._counted[name] for name in names if name in self._counted}
            for kind, names in COUNTERS.items()
        }
        newest = {name: last.values[name] for name in NEWEST if name in last.values}
        return GpuPart.model_validate(
            {
                **{name: getattr(self.identity, name) for name in DeviceIdentity.__slots__},
                **newest,
                **self._sums,
                "is_lost": self._is_lost,
                "num_losses": self._num_losses,
                "memory_peak_bytes": self._peak_bytes,
                "activity": dict(last.activity),
                "activity_busy_s": self._activity_busy_s.copy(),
                "energy_joules": self.energy.joules,
                "energy_source": self.energy.source,
                "energy_s": self.energy.seconds,
                "throttle_s": None if self._throttle_s is None else self._throttle_s.copy(),
                "throttle_loss_s": self._throttle_loss_s,
                "io_bytes": counted["io"],
                "errors": counted["errors"]
                | ({} if self._num_xids is None else {"xid": self._num_xids}),
                "last_xid": self._last_xid,
                "absent": dict(sorted({**last.absent, **self._deafness}.items())),
            }
        )


def _lost_clock(sample: Sample) -> float:
    """Return the share of its highest clock that a device lacks, for it is held down; else 0."""
    clock, highest = (sample.values.get(name) for name in ("sm_clock_hertz", "sm_clock_max_hertz"))
    if not sample.throttled or not sample.throttled - _ORDINARY or not clock or not highest:
        return 0.0
    return max(0.0, 1 - clock / highest)
