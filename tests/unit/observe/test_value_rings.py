"""Values on an asynchronous device travel to the host in batches, and nobody waits for them."""

from __future__ import annotations

import pytest
import torch

from costlens.core.clock import NS_PER_S
from costlens.observe.device_values import Count, DeviceValues
from costlens.observe.value_rings import BANK_SIZE, DeviceBank
from costlens.testing import FakeClock, FakeDevice


class Rig:
    """A bank on a fake device whose ring lies in host memory."""

    def __init__(self, num_hosts=4):
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock)
        ring = torch.zeros(BANK_SIZE, dtype=torch.float64)
        hosts = [torch.zeros_like(ring) for _ in range(num_hosts)]
        self.bank = DeviceBank(self.device, ring, hosts, self.clock)

    def put(self, value, number=0):
        self.bank.put(torch.tensor(float(value)), (False, "loss", number, self.clock()))

    def take(self):
        self.device.deliver()
        return [value for _, value in self.bank.take()]


@pytest.fixture
def rig():
    """A bank whose device has two seconds of work before it."""
    rig = Rig()
    rig.device.enqueue(2.0)
    return rig


def test_values_arrive_once_the_device_has_come_that_far(rig):
    """64 values are sent together; before the device has done its work nothing is read."""
    for step in range(BANK_SIZE):
        rig.put(step)
    assert rig.take() == []
    rig.clock.advance(2.0)
    assert rig.take() == [float(step) for step in range(BANK_SIZE)]
    assert rig.device.num_recycled == rig.device.num_recorded == 1


def test_few_values_are_sent_after_a_second(rig):
    """A slow loop does not wait for 64 values: what is older than a second goes with the next."""
    rig.put(1)
    rig.clock.advance(0.9)
    rig.put(2)
    assert rig.bank.num_waiting == 0
    rig.clock.advance(0.2)
    rig.put(3)
    assert rig.bank.num_waiting == 1
    rig.clock.advance(1.0)
    assert rig.take() == [1.0, 2.0, 3.0]


def test_the_ring_may_be_filled_again_while_values_travel(rig):
    """The next 64 values do not disturb the first 64, which are still under way."""
    for step in range(2 * BANK_SIZE + 5):
        rig.put(step)
    rig.bank.flush()
    rig.clock.advance(5.0)
    assert rig.take() == [float(step) for step in range(2 * BANK_SIZE + 5)]


def test_a_device_that_hangs_costs_values_not_memory():
    """With all transfers under way further values are dropped and counted; later ones arrive."""
    rig = Rig(num_hosts=2)
    rig.device.enqueue(10.0)
    for step in range(5 * BANK_SIZE):
        rig.put(step)
    assert rig.bank.num_waiting == 2
    assert rig.bank.num_dropped == 3 * BANK_SIZE
    rig.clock.advance(10.0)
    assert len(rig.take()) == 2 * BANK_SIZE
    for step in range(BANK_SIZE):
        rig.put(step)
    assert len(rig.take()) == BANK_SIZE


def test_settling_waits_for_the_device_and_no_longer_than_allowed(rig, monkeypatch):
    """At the end the last values are fetched; a device that never answers is given up in time."""
    values = DeviceValues(rig.clock)
    values._banks[0, 0] = rig.bank
    rig.bank.put(torch.tensor(7), (True, "tokens", 3, 0))

    def pause(_seconds):
        rig.clock.advance(0.5)
        rig.device.deliver()

    monkeypatch.setattr("costlens.observe.device_values.time.sleep", pause)
    values.settle(rig.clock() + 10 * NS_PER_S)
    assert values.take_counts() == [Count("tokens", 3, 7)]
    rig.device.enqueue(1000.0)
    rig.bank.put(torch.tensor(7), (True, "tokens", 4, rig.clock()))
    before_ns = rig.clock()
    values.settle(before_ns + 3 * NS_PER_S)
    assert rig.clock() - before_ns == 3 * NS_PER_S
    assert values.take_counts() == []


def test_settling_ends_though_the_clock_stands_still(rig, monkeypatch):
    """A fake clock that nobody advances does not hang the end of a run."""
    pauses = []
    monkeypatch.setattr("costlens.observe.device_values.time.sleep", pauses.append)
    values = DeviceValues(rig.clock)
    values._banks[0, 0] = rig.bank
    rig.put(1)
    values.settle(rig.clock() + NS_PER_S)
    assert len(pauses) <= 1000
