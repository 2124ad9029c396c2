"""Causes that a device shows: real CPU loops beside a stand-in of NVIDIA's driver.

The driver tells of a device that is throttled, faulty or hardly used; the real nvidia-ml-py and the
probe of a run read it. What the loop itself takes is planted into it as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from costlens.core.clock import Clock
from costlens.observe.device import Event
from costlens.run import Run
from tests.gpus.scenarios import make_device, make_node
from tests.planted.causes import PLANT_S, PRICE_PER_HOUR, Plant

# Devices are sampled every two seconds, of the run's clock.
_LOOP = Plant(
    compute_s=PLANT_S,
    num_steps=45,
    speed=8,
    settings={"gpu_hour_price": str(PRICE_PER_HOUR)},
)
_BUSY = {"utilization_percent": 98, "activity_sm": 0.9, "activity_tensor": 0.5}
_IDLE = {"utilization_percent": 35, "activity_sm": 0.2, "activity_tensor": 0.1}
_HOT = 0x40


@dataclass(frozen=True)
class _Passed:
    at_ns: int

    def query(self) -> bool:
        """Say that the device has come this far, as it does at once."""
        return True


class HostDevice:
    """A device that works on the host's own thread: nothing that is enqueued is ever behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record_event(self) -> Event:
        """Return an event at this moment."""
        return _Passed(self._clock())

    def elapsed_ns(self, first: Any, second: Any) -> int:
        """Return the nanoseconds between two events."""
        return int(second.at_ns - first.at_ns)

    def recycle(self, event: Event) -> None:
        """Keep nothing."""

    def copy_out(self, host: Any, ring: Any) -> None:
        """Copy at once."""
        host.copy_(ring)


def adopt(run: Run) -> None:
    """Let a run find a device as it does where a model turns out to be on one."""
    loop = run._plain_loop()
    assert loop is not None
    loop.adopt_device(HostDevice(run.clock), 1, (0,))


@dataclass(frozen=True)
class DevicePlant:
    """A cause that a device shows.

    Args:
        devices: What the driver tells.
        loop: The training.
        environ: Variables of its scheduler.
    """

    devices: tuple[dict[str, Any], ...] = (make_device(**_BUSY),)
    loop: Plant = _LOOP
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def scenario(self) -> dict[str, Any]:
        """Return what the driver is told."""
        return make_node(*self.devices)


_SECOND = make_device(1, utilization_percent=0)

LOSSES: dict[str, DevicePlant] = {
    "throttling": DevicePlant(
        (make_device(**_BUSY, clock_reasons=_HOT, sm_clock_megahertz=990, temperature_celsius=90),)
    ),
    "idle_devices": DevicePlant(
        (make_device(**_BUSY), _SECOND),
        environ={"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "2"},
    ),
    "small_batch": DevicePlant((make_device(**_IDLE, memory_used_bytes=4 * 2**30),)),
    "full_precision": DevicePlant(
        loop=replace(_LOOP, settings={**_LOOP.settings, "precision": "fp32"})
    ),
    "transfer": DevicePlant(
        (make_device(**_IDLE),), replace(_LOOP, transfer_s=PLANT_S, compute_s=PLANT_S / 10)
    ),
    "sync_points": DevicePlant(
        (make_device(**_IDLE),),
        replace(_LOOP, result_s=PLANT_S, compute_s=PLANT_S / 10, num_steps=110),
    ),
}
"""What costs money at once, by the finding that it is."""

DANGERS: dict[str, DevicePlant] = {
    "hardware_fault": DevicePlant((make_device(**_BUSY, xids=[[0.5, 79]]),)),
    # These are read with every fifth sample.
    "hardware_fault (memory)": DevicePlant(
        (make_device(**_BUSY, ecc_uncorrected=[[0, 0], [100, 200]]),), replace(_LOOP, num_steps=110)
    ),
}
"""What costs nothing yet; the words in brackets say which of several there are."""

HEALTHY: dict[str, DevicePlant] = {
    "busy": DevicePlant(),
    # Large boards run at their power cap whenever they are used.
    "capped": DevicePlant((make_device(**_BUSY, clock_reasons=0x04, sm_clock_megahertz=1700),)),
}
"""What looks like a cause and is none."""
