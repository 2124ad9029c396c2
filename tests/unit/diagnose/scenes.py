"""Evidence for tests: what a rank would have written of a training with something wrong."""

from __future__ import annotations

from typing import Any

from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuPart
from costlens.core.host_records import HostPart, LoaderPart, ProcessPart, ReadsPart
from costlens.core.loading_records import LoadingPart, LooksPart
from costlens.core.phases import NAMES
from costlens.core.records import RankRecord
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, Finding, Rule, Verdict
from tests.unit.account.build import make_iteration_time, make_record

GIBIBYTE = 2**30
NUM = 1000
"""Iterations of every scene, after the first."""


def make_evidence(
    time_s: dict[str, float] | None = None,
    *,
    host_s: dict[str, float] | None = None,
    durations_s: tuple[float, ...] | None = None,
    rank: dict[str, Any] | None = None,
    **parts: Any,
) -> Evidence:
    """Return evidence about a whole attempt of ``NUM`` iterations after 20 s of start-up.

    Args:
        time_s: Seconds per phase as priced, in all; 100 s of compute by default.
        host_s: The host's phases, where a device is priced.
        durations_s: The iterations' durations; all alike by default.
        rank: Fields of the rank.
        **parts: Parts of the record.
    """
    times = dict.fromkeys(NAMES, 0.0) | {"startup": 20.0, "compute": 100.0} | (time_s or {})
    standing = ("startup", "checkpoint", "validation", "shutdown", "idle", "restore")
    own_s = sum(seconds for name, seconds in times.items() if name not in standing)
    record = make_record(
        time_s=times,
        iteration_time=make_iteration_time(*(durations_s or (own_s / NUM,) * NUM)),
        **parts,
    )
    if host_s is not None:
        ns = {name: round(seconds * NS_PER_S) for name, seconds in (times | host_s).items()}
        record = record.model_copy(update={"host_ns": ns})
    if rank:
        record = record.model_copy(update={"rank": record.rank.model_copy(update=rank)})
    return Evidence(record)


def make_gpu(busy: float = 0.98, seconds: float = 100.0, **values: Any) -> GpuPart:
    """Return a device that was sampled for some seconds, of which it was busy for a share."""
    whole = {
        "uuid": "GPU-0",
        "pci_id": "00000000:17:00.0",
        "sampled_s": seconds,
        "busy_s": busy * seconds,
        "utilization_s": seconds,
        "memory_peak_bytes": 70 * GIBIBYTE,
        "memory_total_bytes": 80 * GIBIBYTE,
    }
    return GpuPart.model_validate(whole | values)


def on_device(
    time_s: dict[str, float] | None = None,
    *,
    host_s: dict[str, float] | None = None,
    gpu: GpuPart | None = None,
    **parts: Any,
) -> Evidence:
    """Return evidence about a rank on a device: all is compute, but for what is said.

    The device idles in start-up as well, which is a sixth of the time.
    """
    gpus = [gpu] if gpu is not None else [make_gpu(100 / 120, 120.0)]
    return make_evidence(
        {"compute": 100.0} | (time_s or {}), host_s=host_s or {}, gpus=gpus, **parts
    )


def make_host(
    *,
    usable_cpus: float = 16.0,
    cpus_busy: float = 1.0,
    num_workers: int = 0,
    worker_cpu_s: float = 0.0,
    reads: ReadsPart | None = None,
) -> HostPart:
    """Return a host with so many CPUs, and workers that took so much of them."""
    loader = LoaderPart(num_alive=num_workers, cpu_s=worker_cpu_s) if num_workers else None
    process = ProcessPart(usable_cpus=usable_cpus, cpus_busy=cpus_busy)
    return HostPart(sampled_s=100.0, process=process, loader=loader, reads=reads)


def starving(
    *,
    wait_s: float = 40.0,
    compute_s: float = 60.0,
    num_workers: int | None = 2,
    worker_cpu_s: float = 0.0,
    reads: ReadsPart | None = None,
    usable_cpus: float = 16.0,
    cpus_busy: float = 1.0,
    looks: dict[str, int] | None = None,
    **parts: Any,
) -> Evidence:
    """Return evidence about a loop on the CPU that waits for its batches."""
    host = make_host(
        usable_cpus=usable_cpus,
        cpus_busy=cpus_busy,
        num_workers=num_workers or 0,
        worker_cpu_s=worker_cpu_s,
        reads=reads,
    )
    loading = None if num_workers is None else LoadingPart(num_workers=num_workers, batch_size=32)
    return make_evidence(
        {"data_wait": wait_s, "compute": compute_s},
        host=host,
        loading=loading,
        looks=LooksPart(**looks) if looks else None,
        **parts,
    )


def since(before: RankRecord, now: RankRecord) -> Evidence:
    """Return what happened from one record to a later one."""
    return Evidence(now, before)


def find(rule: Rule, evidence: Evidence) -> Finding:
    """Return what a rule finds, which must be something."""
    verdict = rule.judge(evidence)
    assert isinstance(verdict, Finding), verdict
    return check(rule.name, verdict)


def check(name: str, verdict: Verdict) -> Finding:
    """Return a finding after what holds of all: a name, evidence, remedies in order."""
    assert isinstance(verdict, Finding), verdict
    assert verdict.name == name
    assert verdict.evidence
    shares = [remedy.saved_share or 0.0 for remedy in verdict.remedies]
    assert shares == sorted(shares, reverse=True)
    if verdict.saved_share is not None and verdict.remedies:
        assert 0 < verdict.saved_share < 1
        assert shares[0] > 0
    return verdict


def miss(rule: Rule, evidence: Evidence) -> str:
    """Return the signal that a rule misses, which must miss one."""
    verdict = rule.judge(evidence)
    assert isinstance(verdict, Abstention), verdict
    assert verdict.name == rule.name
    return verdict.missing
