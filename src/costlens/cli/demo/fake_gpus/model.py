"""A small physical model of a GPU that trains: load, clocks, power, heat, energy.

The load comes in waves, power follows load and clock, heat follows power, and a hot or capped chip
lowers its clock. The stand-in driver tells what comes out; ``energy_joules`` and ``busy_s`` are the
model's own integrals, against which tests hold what costlens measures. Shares no code with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Board", "History", "make_scenario", "simulate"]

PERIOD_S = 120.0
_STEP_S = 0.5

_POWER_CAP, _THERMAL = 0x4, 0x20
_GIBIBYTE = 2**30

_HEALTHY = (
    *("ecc_corrected", "ecc_uncorrected", "rows_corrected", "pcie_replays"),
    "nvlink_crc_errors",
)


@dataclass(frozen=True)
class Board:
    """What a GPU can do.

    Args:
        idle_watts: Power without load.
        peak_watts: Power at full load and clock, were there no limit.
        limit_watts: The power that lowers its clock.
        memory_bytes: Memory.
        clock_megahertz: Full clock.
        kelvin_per_watt: Heat above the air in the end, per watt.
        warming_s: Time constant of its heat.
    """

    idle_watts: float = 70.0
    peak_watts: float = 720.0
    limit_watts: float = 700.0
    memory_bytes: int = 80 * _GIBIBYTE
    clock_megahertz: float = 1980.0
    kelvin_per_watt: float = 0.065
    warming_s: float = 25.0


@dataclass
class History:
    """What a GPU did, as points of lines; counters are integrals of those lines."""

    board: Board
    times_s: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    celsius: list[float] = field(default_factory=list)
    megahertz: list[float] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def energy_joules(self, begin_s: float, end_s: float) -> float:
        """Return the energy between two moments."""
        return self._at(self.joules, end_s) - self._at(self.joules, begin_s)

    def busy_s(self, begin_s: float, end_s: float) -> float:
        """Return the busy time between two moments."""
        return self._at(self.busy, end_s) - self._at(self.busy, begin_s)

    def _at(self, sums: list[float], time_s: float) -> float:
        # Within a step the lines are straight, so their integrals are parabolas.
        last = len(self.times_s) - 2
        at = min(int(time_s / _STEP_S), last)
        lines = self.watts if sums is self.joules else self.load
        share = (time_s - self.times_s[at]) / _STEP_S
        slope = lines[at + 1] - lines[at]
        return sums[at] + (lines[at] * share + slope * share**2 / 2) * _STEP_S


def simulate(board: Board, number: int = 0, duration_s: float = PERIOD_S) -> History:
    """Return the history of a GPU.

    Args:
        board: What it can do.
        number: Which one it is; each trains in waves of its own.
        duration_s: How long, > 0.
    """
    history = History(board)
    celsius, joules, busy = 30.0, 0.0, 0.0
    for step in range(round(duration_s / _STEP_S) + 1):
        time_s = step * _STEP_S
        load = _load(time_s, number)
        asked = board.idle_watts + (board.peak_watts - board.idle_watts) * load
        watts = min(asked, board.limit_watts)
        reasons = (_POWER_CAP if asked > watts else 0) | (_THERMAL if celsius > 83 else 0)
        clock = board.clock_megahertz * (0.85 if reasons else 1.0)
        if history.times_s:
            joules += (history.watts[-1] + watts) / 2 * _STEP_S
            busy += (history.load[-1] + load) / 2 * _STEP_S
        rest = 30.0 + board.kelvin_per_watt * watts
        celsius += (rest - celsius) * (1 - math.exp(-_STEP_S / board.warming_s))
        history.times_s.append(time_s)
        history.load.append(load)
        history.watts.append(watts)
        history.celsius.append(celsius)
        history.megahertz.append(clock)
        history.reasons.append(reasons)
        history.joules.append(joules)
        history.busy.append(busy)
    return history


def _load(time_s: float, number: int) -> float:
    """Return the share of the time that is computed in: waves that repeat with the period."""
    turn = 2 * math.pi * time_s / PERIOD_S
    wave = 0.82 + 0.1 * math.sin(8 * turn + number) + 0.08 * math.sin(3 * turn + 2 * number)
    return min(1.0, max(0.0, wave))


def make_scenario(num_devices: int, board: Board | None = None) -> dict[str, Any]:
    """Return a scenario of GPUs that train and train; it begins again every two minutes.

    Args:
        num_devices: 1 to 16.
        board: What each of them can do.
    """
    histories = [simulate(board or Board(), number) for number in range(num_devices)]
    return {
        "driver_version": "simulated 1.0",
        "nvml_version": "simulated 1.0",
        "cuda_version": 12080,
        "period_s": PERIOD_S,
        "devices": [describe(history, number) for number, history in enumerate(histories)],
    }


def describe(history: History, number: int) -> dict[str, Any]:
    """Return a device of a scenario that did what a history says."""
    board, times = history.board, history.times_s

    def points(values: list[float], factor: float = 1.0, digits: int = 3) -> list[list[float]]:
        return [[t, round(v * factor, digits)] for t, v in zip(times, values, strict=True)]

    return {
        "uuid": f"GPU-{number:08x}-51a0-4f1a-8000-000000000000",
        "name": "Simulated GPU 80GB",
        "serial": f"SIM{number:07d}",
        "pci_id": f"00000000:{0x10 + 8 * number:02X}:00.0",
        "memory_total_bytes": board.memory_bytes,
        "memory_used_bytes": points(
            [0.55 + 0.2 * load for load in history.load], board.memory_bytes, 0
        ),
        "utilization_percent": points(history.load, 100),
        "memory_utilization_percent": points(history.load, 55),
        "power_milliwatts": points(history.watts, 1000),
        "power_limit_milliwatts": board.limit_watts * 1000,
        "energy_millijoules": points(history.joules, 1000),
        "temperature_celsius": points(history.celsius),
        "memory_temperature_celsius": points([c + 8 for c in history.celsius]),
        "sm_clock_megahertz": points(history.megahertz),
        "memory_clock_megahertz": 2619,
        "sm_clock_max_megahertz": round(board.clock_megahertz),
        "clock_reasons": points([float(bits) for bits in history.reasons]),
        "activity_sm": points(history.load, 0.9),
        "activity_tensor": points(history.load, 0.45),
        "activity_dram": points(history.load, 0.5),
        "pcie_receive_bytes": points(history.busy, 2e9, 0),
        "pcie_transmit_bytes": points(history.busy, 3e8, 0),
        "nvlink_receive_kibibytes": points(history.busy, 4e7, 0),
        "nvlink_transmit_kibibytes": points(history.busy, 4e7, 0),
        **dict.fromkeys(_HEALTHY, 0),
        "xids": [],
        "processes": [],
    }
