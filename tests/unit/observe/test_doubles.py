"""The doubles of costlens.testing behave like what they stand for."""

from __future__ import annotations

import pytest

from costlens.config import Config
from costlens.core.snapshot import Exporter
from costlens.observe.device import Device
from costlens.run import Run
from costlens.testing import FakeClock, FakeDevice, MemoryExporter


def test_a_fake_clock_goes_only_forwards():
    """It stands still, advances by exact nanoseconds and refuses to go back."""
    clock = FakeClock(5)
    assert clock() == clock() == 5
    assert clock.advance(0.1) == 100_000_005
    assert clock.advance_ns(3) == clock() == 100_000_008
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_a_fake_device_works_while_the_host_goes_on():
    """Work is done one after another; events pass when the clock has come that far."""
    clock = FakeClock()
    device: Device = FakeDevice(clock)
    first = device.record_event()
    device.enqueue(2.0)
    device.enqueue(1.0)
    second = device.record_event()
    assert first.query()
    assert not second.query()
    with pytest.raises(RuntimeError, match="must be completed"):
        device.elapsed_ns(first, second)
    device.block_host()
    assert clock() == 3_000_000_000
    assert device.elapsed_ns(first, second) == 3_000_000_000
    device.block_host()
    assert clock() == 3_000_000_000


def test_a_memory_exporter_keeps_what_a_run_hands_over():
    """It sees the announcement, every window and the end."""
    exporter = MemoryExporter()
    _: Exporter = exporter
    with pytest.raises(LookupError, match="no window has closed"):
        _ = exporter.record
    run = Run(Config(summary=False), clock=FakeClock(), exporters=[exporter])
    with run, run.iteration(samples=3):
        pass
    assert exporter.announced is not None
    assert exporter.snapshots[-1].is_last
    assert exporter.record.progress.samples == 3
    assert exporter.is_finished
