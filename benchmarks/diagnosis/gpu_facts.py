"""What a driver tells of a simulated device, every 2 s, added up by costlens' own meter."""

from __future__ import annotations

import numpy as np

from benchmarks.diagnosis.healthy import HOPPER
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.meters import Meters
from costlens.account.device_meter import DeviceIdentity, DeviceMeter, Sample
from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuDriverPart
from costlens.core.torch_records import AllocatorPart

__all__ = ["SAMPLE_S", "GpuFacts"]

SAMPLE_S = 2.0
_UTILIZATION_S = 0.6  # over which the driver averages
_IDLE_WATTS, _SPIN_WATTS, _BUSY_WATTS, _LIMIT_WATTS = 110.0, 260.0, 560.0, 700.0
_FULL_CLOCK_HERTZ, _CAPPED_CLOCK_HERTZ = 1.98e9, 1.85e9
_SAMPLED = ("busy_s", "sm_s", "tensor_s", "dram_s", "spin_s", "throttled_s", "copied_bytes")
_CONTEXT_BYTES = 500 * 2**20
_PERCENT = 100


class GpuFacts:
    """Samples the device of one rank.

    Args:
        job: The job.
        meters: What the device did.
        rng: For the noise.
    """

    def __init__(self, job: Job, meters: Meters, rng: np.random.Generator) -> None:
        self.job, self._rng = job, rng
        rank = meters.trace.rank
        self._meters = meters
        self._meter = DeviceMeter(
            DeviceIdentity(
                uuid=f"GPU-{job.seed:08x}-{rank:04d}",
                name=job.accelerator,
                pci_id=f"00000000:{0x17 + rank % 8:02x}:00.0",
            )
        )
        begin_s = meters.trace.begin_s
        self._times_s = np.arange(begin_s + 0.5, meters.trace.end_s, SAMPLE_S)
        self._next = 0
        self._now = {n: meters.read_many(n, self._times_s) for n in _SAMPLED}
        self._recent = {n: meters.read_many(n, self._times_s - _UTILIZATION_S) for n in _SAMPLED}
        self._last = {n: meters.read_many(n, self._times_s - SAMPLE_S) for n in _SAMPLED}
        self._clock = dict(job.clocks).get(rank, 1.0)
        self._is_faulty = rank == 0

    def take(self, now_s: float) -> dict[str, object]:
        """Return the fields of the record at ``now_s``."""
        while self._next < len(self._times_s) and self._times_s[self._next] <= now_s:
            self._sample(self._next)
            self._next += 1
        driver = GpuDriverPart(
            state="ok", driver_version="580.1", order="torch", num_samples=self._next
        )
        return {
            "gpu_driver": driver,
            "gpus": [self._meter.part()],
            "allocator": AllocatorPart(**self._allocator(now_s)),
        }

    def _sample(self, at: int) -> None:
        job, now_s = self.job, float(self._times_s[at])
        recent = {n: self._now[n][at] - self._recent[n][at] for n in _SAMPLED}
        since = {n: (self._now[n][at] - self._last[n][at]) / SAMPLE_S for n in _SAMPLED}
        busy = min(1.0, recent["busy_s"] / _UTILIZATION_S + self._rng.normal(0, 0.01))
        busy = max(0.0, round(busy * _PERCENT) / _PERCENT)  # the driver tells whole per cents
        own = min(1.0, max(0.0, since["busy_s"] - since["spin_s"]))
        watts = _IDLE_WATTS + (_BUSY_WATTS - _IDLE_WATTS) * since["sm_s"] / 0.9 * self._clock
        watts += (_SPIN_WATTS - _IDLE_WATTS) * min(1.0, since["spin_s"])
        is_slow = since["throttled_s"] > 0.5
        is_capped = job.has_power_cap and own > 0.5 and not is_slow
        full_hertz = _CAPPED_CLOCK_HERTZ if is_capped else _FULL_CLOCK_HERTZ
        reasons = {"power_cap"} if is_capped else set()
        if is_slow and job.throttle_reason is not None:
            reasons.add(job.throttle_reason)
        if self._is_faulty and job.num_xids and at == len(self._times_s) // 3:
            self._meter.hear([79] * job.num_xids)
        elif at == 0:
            self._meter.hear([])
        units = {"sm": since["sm_s"], "tensor": since["tensor_s"], "dram": since["dram_s"]}
        used = self._used_bytes(now_s)
        self._meter.add(
            Sample(
                now_ns=round(now_s * NS_PER_S),
                values={
                    "utilization": busy,
                    "memory_utilization": min(1.0, 0.5 * busy),
                    "memory_used_bytes": int(used),
                    "memory_total_bytes": int(job.memory_bytes),
                    "own_memory_bytes": int(used),
                    "is_shared": False,
                    "power_watts": min(_LIMIT_WATTS, max(60.0, watts + self._rng.normal(0, 8))),
                    "power_limit_watts": _LIMIT_WATTS,
                    "temperature_celsius": 88.0 if is_slow else 62.0 + 8 * own,
                    "sm_clock_hertz": round(full_hertz * self._clock / 15e6) * 15e6,
                    "memory_clock_hertz": 2.6e9,
                    "sm_clock_max_hertz": _FULL_CLOCK_HERTZ,
                    "is_remap_pending": bool(job.num_uncorrected) and self._is_faulty,
                },
                activity={n: float(min(1.0, max(0.0, v))) for n, v in units.items()}
                if job.accelerator in HOPPER
                else {},
                throttled=frozenset(reasons),
                counters=self._counters(at),
                absent={} if job.accelerator in HOPPER else {"activity": "not_supported"},
            )
        )

    def _counters(self, at: int) -> dict[str, int]:
        late = at > len(self._times_s) // 3
        uncorrected = self.job.num_uncorrected if late and self._is_faulty else 0
        return {
            "pcie_receive": int(1.05 * self._now["copied_bytes"][at]),
            "pcie_transmit": int(0.02 * self._now["copied_bytes"][at]),
            "corrected": int(self.job.seed % 3 == 0 and at > 4),
            "uncorrected": uncorrected,
            "nvlink_crc": 0,
            "pcie_replay": 0,
            "row_remap_corrected": 0,
            "row_remap_uncorrected": uncorrected,
            "row_remap_failure": 0,
        }

    def _used_bytes(self, now_s: float) -> float:
        job, trace = self.job, self._meters.trace
        if now_s < trace.ready_s:
            return float(_CONTEXT_BYTES)
        grown = job.memory_growth * (now_s - trace.ready_s) / 3600
        return min(0.998, job.memory_used + grown) * job.memory_bytes

    def _allocator(self, now_s: float) -> dict[str, int]:
        job = self.job
        reserved = max(0.0, self._used_bytes(now_s) - _CONTEXT_BYTES)
        allocated = job.memory_held * reserved
        return {
            "allocated_bytes": int(allocated),
            "reserved_bytes": int(reserved),
            "peak_allocated_bytes": int(min(reserved, 1.01 * allocated)),
            "inactive_split_bytes": int(0.9 * (reserved - allocated)),
            "num_alloc_retries": int(self._meters.read("num_retries", now_s)),
            "num_ooms": 0,
        }
