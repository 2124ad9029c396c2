"""The host: which devices count, and what the probe puts together from all readers."""

from __future__ import annotations

import os
import types
from pathlib import Path

import psutil
import pytest

from costlens.config import Config
from costlens.core.clock import NS_PER_S
from costlens.core.host_records import HostPart, ReadsPart
from costlens.observe import host, host_probe
from costlens.observe.host_probe import HostProbe, HostSources
from costlens.observe.placement.place import Placement
from costlens.run import Run
from costlens.testing import FakeClock
from tests.log_events import capture_events
from tests.unit.observe.test_cgroup import V2_MOUNT, group_v2, plant, proc


def _plant_device(root: Path, folder: str, name: str, *, is_real: bool) -> None:
    (root / folder / name).mkdir(parents=True)
    if is_real:
        (root / folder / name / "device").mkdir()


def test_traffic_is_counted_once_however_devices_are_stacked(tmp_path: Path) -> None:
    """Bridges, bonds, mirrors and volumes hand on what a device with hardware counts."""
    for name, is_real in {"eth0": True, "bond0": False, "docker0": False, "lo": False}.items():
        _plant_device(tmp_path, "sys/class/net", name, is_real=is_real)
    for name, is_real in {"nvme0n1": True, "dm-0": False, "md0": False, "loop1": True}.items():
        _plant_device(tmp_path, "sys/block", name, is_real=is_real)
    assert host.list_networks(tmp_path) == {"eth0"}
    assert host.list_disks(tmp_path) == {"nvme0n1"}


def test_a_container_without_hardware_counts_what_is_not_loopback(tmp_path: Path) -> None:
    """Its one interface is half of a pair; a system without /sys leaves the choice to psutil."""
    for name in ("eth0", "lo"):
        _plant_device(tmp_path, "sys/class/net", name, is_real=False)
    assert host.list_networks(tmp_path) == {"eth0"}
    assert host.list_networks(tmp_path / "nowhere") is None
    assert host.list_disks(tmp_path / "nowhere") is None
    counters = {name: types.SimpleNamespace(bytes_recv=5) for name in ("eth0", "lo")}
    assert host.sum_io(counters, {"eth0"}, "bytes_recv") == {"eth0": 5}
    assert host.sum_io(counters, None, "bytes_recv") == {"eth0": 5, "lo": 5}
    assert host.sum_io({}, None, "bytes_recv") is None
    assert host.sum_io(None, None, "bytes_recv") is None


def test_fields_that_the_system_refuses_are_absent_one_by_one() -> None:
    """No permission for one file leaves the others; 0 is never made up."""

    class Guarded(psutil.Process):
        def io_counters(self) -> object:
            raise psutil.AccessDenied

        def num_ctx_switches(self) -> object:
            raise NotImplementedError

    seen = host.read_process(Guarded())
    assert seen["disk_read_bytes"] is None
    assert seen["voluntary_switches"] is None
    assert seen["memory_bytes"]


def _probe(root: Path, local_rank: int = 0, sources: HostSources | None = None) -> HostProbe:
    rank = types.SimpleNamespace(local_rank=local_rank)
    state = types.SimpleNamespace(rank=rank)
    probe = HostProbe(state, sources or HostSources(), root=root)
    probe.start()
    return probe


def _part(probe: HostProbe) -> HostPart:
    part = probe.contribute()["host"]
    assert isinstance(part, HostPart)
    return part


def _planted(root: Path) -> Path:
    files = group_v2("sys/fs/cgroup/pod", cpu_max="200000 100000", memory_max=4 * 2**30)
    return plant(root, files | proc("0::/pod", V2_MOUNT.format(mounted="/", under="")))


def test_only_one_rank_of_a_node_speaks_for_it(tmp_path: Path) -> None:
    """What all ranks share is counted once; each speaks for its own process."""
    root = _planted(tmp_path)
    parts = []
    for local_rank in (0, 1):
        probe = _probe(root, local_rank)
        probe.sample(0)
        parts.append(_part(probe))
    first, second = parts
    assert first.node is not None
    assert first.container is not None
    assert second.node is None
    assert second.container is None
    for part in parts:
        assert part.process is not None
        assert part.process.memory_bytes
        assert part.process.usable_cpus == min(2.0, len(os.sched_getaffinity(0)))


def test_use_is_measured_against_what_may_be_used(tmp_path: Path) -> None:
    """Of two CPUs allowed one and a half are busy, and a quarter of the periods is throttled."""
    root = _planted(tmp_path)
    probe = _probe(root)
    probe.sample(0)
    after = "usage_usec 5500000\nnr_periods 20\nnr_throttled 5\nthrottled_usec 300000"
    plant(root, {"sys/fs/cgroup/pod/cpu.stat": after})
    probe.sample(2 * NS_PER_S)
    container = _part(probe).container
    assert container is not None
    assert container.cpu_limit == 2.0
    assert container.cpu_s == pytest.approx(3.0)
    assert container.cpu_ratio == pytest.approx(0.75)
    assert (container.num_periods, container.num_throttled) == (20, 5)
    assert container.throttled_ratio == pytest.approx(0.25)
    assert container.throttled_s == pytest.approx(0.3)
    assert container.memory_available_bytes == 4 * 2**30 - (2**30 - 2**28)
    assert _part(probe).sampled_s == 2.0


def test_node_sums_begin_with_the_attempt(tmp_path: Path, monkeypatch) -> None:
    """What the machine did before is not the run's; the busy share is that of its own time."""
    readings = [{"user": 100.0, "idle": 900.0}, {"user": 101.5, "idle": 902.5, "iowait": 0.0}]
    monkeypatch.setattr(host_probe.host, "read_cpu_modes", lambda: readings.pop(0))
    probe = _probe(_planted(tmp_path))
    probe.sample(0)
    probe.sample(2 * NS_PER_S)
    node = _part(probe).node
    assert node is not None
    assert node.cpu_s == {"user": 1.5, "idle": 2.5, "iowait": 0.0}
    assert node.cpu_ratio == pytest.approx(1.5 / 4.0)
    assert node.memory_bytes
    assert node.infiniband_receive_bytes is None


def test_the_throughput_of_reads_is_that_of_the_last_seconds(tmp_path: Path) -> None:
    """Where nobody counts reads there is no part for them."""
    totals = iter([ReadsPart(), ReadsPart(num_bytes=4000, num_reads=2)])
    probe = _probe(tmp_path, sources=HostSources(read_counts=lambda: next(totals)))
    probe.sample(0)
    probe.sample(2 * NS_PER_S)
    reads = _part(probe).reads
    assert reads is not None
    assert reads.bytes_per_s == 2000.0
    silent = _probe(tmp_path)
    silent.sample(0)
    assert _part(silent).reads is None
    assert _part(silent).container is None


def test_a_worker_that_died_is_told_in_the_log(tmp_path: Path, monkeypatch) -> None:
    """The line says how many; after a few it is silent, and the record goes on counting."""
    run = Run(Config(summary=False), clock=FakeClock(), exporters=[]).open()
    probe = HostProbe(run.parts.state, HostSources(), root=tmp_path)
    probe.start()
    died = iter(range(1, 12))

    def look(_now_ns: int) -> None:
        probe._workers._num_died = next(died)

    monkeypatch.setattr(probe._workers, "look", look)
    with capture_events() as lines:
        for _ in range(6):
            probe.sample(0)
    run.finish()
    told = [line for line in lines if line["event"] == "costlens.loader.worker_died"]
    assert len(told) == 3
    assert told[0]["num_workers"] == 1


def test_a_run_records_its_host() -> None:
    """The record of a run on this machine has the process, and the node from local rank 0."""
    run = Run(Config(summary=False)).open()
    record = run.finish()
    assert record is not None
    assert record.host is not None
    assert record.host.process is not None
    assert record.host.process.cpu_user_s
    assert record.host.node is not None
    assert record.host.node.num_cpus == psutil.cpu_count()
    other = Run(
        Config(summary=False), placement=Placement(rank=1, local_rank=1, world_size=2)
    ).open()
    assert other.parts.state.rank.local_rank == 1
    seen = other.finish()
    assert seen is not None
    assert seen.host is not None
    assert seen.host.node is None
