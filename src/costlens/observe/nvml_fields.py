"""Reads one device: every field by itself, so that one that is refused leaves the others alone.

Pipeline thread. What a device does not support is asked for once; what costs the driver more than a
look at a register is asked for every fifth sample and kept in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from costlens.account.device_meter import Sample
from costlens.observe.nvml_activity import Activity
from costlens.observe.nvml_devices import Device
from costlens.observe.nvml_session import CLOSED, LOST, PERMANENT, Refusal, Session, word_of

__all__ = ["DeviceReader"]

_SLOW_EVERY = 5

_ALL_LINKS = 0xFFFFFFFF
_KIBIBYTE = 1024

# Field ids of nvml.h: (id, scope), the name of the value, its size.
_FIELDS = (
    (82, 0, "memory_temperature_celsius", 1),
    (197, 0, "pcie_transmit", 1),
    (198, 0, "pcie_receive", 1),
    (138, _ALL_LINKS, "nvlink_transmit", _KIBIBYTE),
    (139, _ALL_LINKS, "nvlink_receive", _KIBIBYTE),
    (38, 0, "nvlink_crc", 1),
)
_INT_TYPES = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}

# Bits of nvmlClocksEventReasons; idle clocks and those that an administrator set hold nothing down.
_REASONS = {
    0x04: "power_cap",
    0x20: "thermal_sw",
    0x40: "thermal_hw",
    0x80: "hw_brake",
    0x10: "sync_boost",
    0x200: "other",
    0x400: "other",
}
_HW_SLOWDOWN, _HW_CAUSES = 0x08, 0x40 | 0x80


@dataclass(slots=True)
class _Draft:
    """What a sample is made of while it is read."""

    values: dict[str, float] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    throttled: frozenset[str] | None = None


_Read = Callable[["DeviceReader", _Draft], None]


class DeviceReader:
    """Reads one device again and again.

    Args:
        session: The open session.
        device: The device; its handles belong to this opening of the session.
        has_own_pids: Whether the driver's process ids are those of this process's namespace.
    """

    def __init__(self, session: Session, device: Device, *, has_own_pids: bool) -> None:
        self.device = device
        self.has_own_pids = has_own_pids
        self._session = session
        self._activity = Activity(session, device)
        self._refused: dict[str, str] = {}
        self._refused_fields: dict[int, str] = {}
        self._slow = _Draft()
        self._num_samples = 0

    def read(self, now_ns: int) -> Sample:
        """Return a sample of the device.

        Args:
            now_ns: Monotonic time of the sample.

        Raises:
            Refusal: If the device is lost, or the session is not open any more.
        """
        draft = _Draft()
        self._read_all(_FAST, draft)
        if self._num_samples % _SLOW_EVERY == 0:
            self._slow = _Draft()
            self._read_all(_SLOW, self._slow)
        self._num_samples += 1
        activity, why_not = self._activity.take()
        absent = {**draft.absent, **self._slow.absent}
        if why_not is not None:
            absent["activity"] = why_not
        return Sample(
            now_ns=now_ns,
            values={**self._slow.values, **draft.values},
            activity=activity,
            throttled=draft.throttled,
            counters={**draft.counters, **self._slow.counters},
            absent=absent,
        )

    def close(self) -> None:
        """Give back what the readings hold."""
        self._activity.close()

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - as the library has it
        """Return what the library tells of this device."""
        return self._session.call(function, self.device.handle, *arguments)

    def _read_all(self, table: dict[tuple[str, ...], _Read], draft: _Draft) -> None:
        for names, read in table.items():
            word = self._refused.get(names[0])
            if word is None:
                try:
                    read(self, draft)
                except Refusal as refusal:
                    word = refusal.word
                    if word in LOST or word == CLOSED:
                        raise
                    if word in PERMANENT:
                        self._refused[names[0]] = word
            if word is not None:
                draft.absent.update(dict.fromkeys(names, word))

    def read_fields(self, draft: _Draft) -> None:
        """Read what the library keeps under field ids, each with a result of its own."""
        asked = [entry for entry in _FIELDS if entry[0] not in self._refused_fields]
        results = (
            self.call("nvmlDeviceGetFieldValues", [entry[:2] for entry in asked]) if asked else ()
        )
        for (number, _, name, size), result in zip(asked, results, strict=True):
            attribute = _INT_TYPES.get(result.valueType)
            if result.nvmlReturn != 0 or attribute is None:
                word = word_of(result.nvmlReturn) if result.nvmlReturn else "unknown_error"
                if word in LOST:
                    raise Refusal(word)
                draft.absent[name] = word
                if word in PERMANENT:
                    self._refused_fields[number] = word
                continue
            value = int(getattr(result.value, attribute)) * size
            (draft.values if name.endswith("celsius") else draft.counters)[name] = value
        for number, _, name, _ in _FIELDS:
            if number in self._refused_fields:
                draft.absent[name] = self._refused_fields[number]

    def read_processes(self, draft: _Draft) -> None:
        """Read who computes on the device; process ids of another namespace are not ours."""
        processes = self.call("nvmlDeviceGetComputeRunningProcesses")
        own = [each for each in processes if each.pid == os.getpid()] if self.has_own_pids else []
        if self.has_own_pids:
            draft.values["is_shared"] = len(processes) > len(own)
        elif len(processes) > 1:
            draft.values["is_shared"] = True
        if own and own[0].usedGpuMemory is not None:
            draft.values["own_memory_bytes"] = int(own[0].usedGpuMemory)
        else:
            draft.absent["own_memory_bytes"] = (
                "not_listed" if self.has_own_pids else "foreign_process_ids"
            )


def _read_utilization(reader: DeviceReader, draft: _Draft) -> None:
    rates = reader.call("nvmlDeviceGetUtilizationRates")
    draft.values["utilization"] = min(rates.gpu, 100) / 100
    draft.values["memory_utilization"] = min(rates.memory, 100) / 100


def _read_memory(reader: DeviceReader, draft: _Draft) -> None:
    memory = reader.call("nvmlDeviceGetMemoryInfo")
    if memory.total == 0:  # boards that share the host's memory
        raise Refusal("not_supported")
    draft.values["memory_total_bytes"] = int(memory.total)
    draft.values["memory_used_bytes"] = int(memory.used)


def _read_number(function: str, name: str, divisor: float = 1.0, *arguments: object) -> _Read:
    def read(reader: DeviceReader, draft: _Draft) -> None:
        draft.values[name] = reader.call(function, *arguments) / divisor

    return read


def _read_counter(function: str, name: str, *arguments: object) -> _Read:
    def read(reader: DeviceReader, draft: _Draft) -> None:
        draft.counters[name] = int(reader.call(function, *arguments))

    return read


def _read_temperature(reader: DeviceReader, draft: _Draft) -> None:
    try:
        celsius = reader.call("nvmlDeviceGetTemperature", _CHIP)
    except Refusal as refusal:
        if refusal.word != "not_in_library":
            raise
        celsius = reader.call("nvmlDeviceGetTemperatureV", _CHIP)  # its newer name
    draft.values["temperature_celsius"] = celsius


def _read_throttle(reader: DeviceReader, draft: _Draft) -> None:
    try:
        bits = int(reader.call("nvmlDeviceGetCurrentClocksEventReasons"))
    except Refusal as refusal:
        if refusal.word != "not_in_library":
            raise
        bits = int(reader.call("nvmlDeviceGetCurrentClocksThrottleReasons"))  # its older name
    reasons = {name for bit, name in _REASONS.items() if bits & bit}
    if bits & _HW_SLOWDOWN and not bits & _HW_CAUSES:
        reasons.add("other")
    draft.throttled = frozenset(reasons)


def _read_rows(reader: DeviceReader, draft: _Draft) -> None:
    corrected, uncorrected, is_pending, has_failed = reader.call("nvmlDeviceGetRemappedRows")
    draft.counters["row_remap_corrected"] = int(corrected)
    draft.counters["row_remap_uncorrected"] = int(uncorrected)
    draft.counters["row_remap_failure"] = int(bool(has_failed))
    draft.values["is_remap_pending"] = bool(is_pending)


_MILLI, _MEGA = 1000.0, 1e-6
_CLOCK_SM, _CLOCK_MEMORY, _CHIP = 1, 2, 0
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0

_FAST: dict[tuple[str, ...], _Read] = {
    ("utilization", "memory_utilization"): _read_utilization,
    ("memory_used_bytes", "memory_total_bytes"): _read_memory,
    ("power_watts",): _read_number("nvmlDeviceGetPowerUsage", "power_watts", _MILLI),
    ("energy_joules",): _read_number(
        "nvmlDeviceGetTotalEnergyConsumption", "energy_joules", _MILLI
    ),
    ("temperature_celsius",): _read_number("nvmlDeviceGetTemperature", "temperature_celsius", 1, 0),
    ("sm_clock_hertz",): _read_number("nvmlDeviceGetClockInfo", "sm_clock_hertz", _MEGA, _CLOCK_SM),
    ("memory_clock_hertz",): _read_number(
        "nvmlDeviceGetClockInfo", "memory_clock_hertz", _MEGA, _CLOCK_MEMORY
    ),
    ("throttle_s",): _read_throttle,
    tuple(name for _, _, name, _ in _FIELDS): DeviceReader.read_fields,
}

_SLOW: dict[tuple[str, ...], _Read] = {
    ("power_limit_watts",): _read_number(
        "nvmlDeviceGetEnforcedPowerLimit", "power_limit_watts", _MILLI
    ),
    ("sm_clock_max_hertz",): _read_number(
        "nvmlDeviceGetMaxClockInfo", "sm_clock_max_hertz", _MEGA, _CLOCK_SM
    ),
    ("corrected",): _read_counter(
        "nvmlDeviceGetTotalEccErrors", "corrected", _CORRECTED, _VOLATILE
    ),
    ("uncorrected",): _read_counter(
        "nvmlDeviceGetTotalEccErrors", "uncorrected", _UNCORRECTED, _VOLATILE
    ),
    (
        *("row_remap_corrected", "row_remap_uncorrected", "row_remap_failure"),
        "is_remap_pending",
    ): _read_rows,
    ("pcie_replay",): _read_counter("nvmlDeviceGetPcieReplayCounter", "pcie_replay"),
    ("own_memory_bytes", "is_shared"): DeviceReader.read_processes,
}
