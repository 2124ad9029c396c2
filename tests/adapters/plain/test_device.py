"""A plain loop that drives an asynchronous device: the host's phases are shown, not priced."""

from __future__ import annotations

import pytest
import torch

from costlens.config import Config
from costlens.run import Run
from costlens.testing import FakeClock, FakeDevice, MemoryExporter


class Rig:
    """A loop whose device takes 100 ms an iteration, whatever the host does meanwhile."""

    def __init__(self):
        self.clock = FakeClock()
        self.exporter = MemoryExporter()
        self.run = Run(
            Config(summary=False, gpu_hour_price=2), clock=self.clock, exporters=[self.exporter]
        ).open()
        self.device = FakeDevice(self.clock)
        self.model = torch.nn.Linear(1, 1)
        self.run.watch(self.model)
        # What watching does when it finds a parameter on a GPU.
        self.run._plain_loop().adopt_device(self.device, 1)

    def batches(self, fetch_s, count=60):
        def generate():
            for _ in range(count):
                self.clock.advance(fetch_s)
                yield torch.ones(1, 1)

        return self.run.batches(generate())

    def finish(self):
        # What the device has not done yet when training ends, it does during a save.
        with self.run.phase("checkpoint"):
            self.device.block_host()
        record = self.run.finish()
        assert sum(record.time_ns.values()) == record.total_ns
        assert sum(record.host_ns.values()) == record.total_ns
        return record


@pytest.fixture
def rig():
    """An open run that has met a fake device."""
    rig = Rig()
    yield rig
    rig.run.finish()


def _share(record, name):
    names = ("data_wait", "transfer", "forward", "backward", "optimizer", "compute", "other")
    return record.time_ns[name] / sum(record.time_ns[each] for each in names)


@pytest.mark.parametrize("blocks_in", ["transfer", "item"])
def test_a_busy_device_is_compute_wherever_the_host_waits(rig, blocks_in):
    """The host blocks only in the transfer, or only in .item(): compute is at least 99 %."""
    for _ in rig.batches(fetch_s=0.0001):
        with rig.run.phase("transfer"):
            if blocks_in == "transfer":
                rig.device.block_host()
        with rig.run.iteration():
            rig.clock.advance(0.001)
            rig.device.enqueue(0.1)
            if blocks_in == "item":
                rig.device.block_host()
    record = rig.finish()
    assert _share(record, "compute") >= 0.99
    assert _share(record, "data_wait") <= 0.001
    # The host saw it elsewhere, and that is kept, too.
    assert record.host_ns["transfer" if blocks_in == "transfer" else "compute"] > 5_000_000_000
    assert record.rank.device == "cuda"
    assert record.rank.num_gpus == 1
    assert record.price is not None


def test_starvation_is_booked_as_data_wait(rig):
    """The device works 10 ms and then waits for a fetch of 50 ms."""
    for _ in rig.batches(fetch_s=0.05, count=21):
        with rig.run.iteration():
            rig.device.enqueue(0.01)
    record = rig.finish()
    assert record.time_ns["data_wait"] == 20 * 40_000_000
    assert record.telemetry.iterations_unresolved == 0


def test_a_fetch_behind_a_busy_device_costs_nothing(rig):
    """The same fetch of 50 ms while the device has 100 ms to do: hidden."""
    for _ in rig.batches(fetch_s=0.05):
        with rig.run.iteration():
            rig.device.enqueue(0.1)
            rig.clock.advance(0.001)
        rig.clock.advance(0.049)
    record = rig.finish()
    assert record.time_ns["data_wait"] == 0
    assert record.host_ns["data_wait"] == 59 * 50_000_000


def test_a_model_that_moves_late_leaves_what_was_booked(rig):
    """A device that shows up after the first iteration is not adopted: the books stay."""
    run = Run(Config(summary=False), clock=FakeClock(), exporters=[]).open()
    run.watch(rig.model)
    with run.iteration():
        pass
    run._plain_loop().adopt_device(rig.device, 1)
    assert not run.parts.totals.has_device
    assert run.finish().host_ns is None
