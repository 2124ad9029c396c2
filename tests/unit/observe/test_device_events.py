"""Device gaps: what the host's waits cost the device, found out without waiting for it."""

from __future__ import annotations

import pytest

from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.core.window import Totals
from costlens.observe.device_events import MAX_OUTSTANDING, DeviceGaps
from costlens.testing import FakeClock, FakeDevice


class Loop:
    """A loop on a fake device: the host is cheap, the device computes 100 ms an iteration."""

    def __init__(self):
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock)
        self.timeline = Timeline(self.clock, self.clock())
        self.recorder = Recorder(self.timeline)
        self.totals = Totals(has_device=True)
        self.gaps = DeviceGaps(self.device, self.recorder)

    def iterate(self, *, fetch_s, transfer_s=0.0, blocks_in=None, device_s=0.1):
        """One pass: fetch, transfer, enqueue; the host may block in one of them."""
        self.timeline.enter(Phase.DATA_WAIT)
        self.gaps.begin_wait()
        self.clock.advance(fetch_s)
        self.gaps.end_wait(self.recorder.counters.iterations)
        self.timeline.leave()
        self.timeline.enter(Phase.TRANSFER)
        if blocks_in == "transfer":
            self.device.block_host()
        self.clock.advance(transfer_s)
        self.timeline.leave()
        self.timeline.enter(Phase.COMPUTE)
        self.device.enqueue(device_s)
        self.clock.advance(0.001)
        if blocks_in == "item":
            self.device.block_host()
        self.timeline.leave()
        self.recorder.cut()

    def poll(self):
        """What the pipeline does every second: drain rows, then ask for gaps."""
        for row in self.recorder.drain(10_000):
            self.totals.add(row)
        self.totals.resolve(self.gaps.take_gaps())

    def booked(self):
        """Nanoseconds per phase as they are priced."""
        reading = self.timeline.read()
        booked = self.totals.book(reading.until(self.clock()))
        assert sum(booked) == self.clock() - self.timeline.start_ns
        return dict(zip(Phase, booked, strict=True))


@pytest.mark.parametrize("blocks_in", ["transfer", "item"])
def test_a_busy_device_is_goodput_wherever_the_host_blocks(blocks_in):
    """The device is never idle, so whatever the host's clock says, no data wait is booked."""
    loop = Loop()
    for _ in range(50):
        loop.iterate(fetch_s=0.0005, blocks_in=blocks_in)
        loop.poll()
    loop.device.block_host()
    loop.poll()
    loop.poll()
    booked = loop.booked()
    in_iterations = sum(booked.values()) - booked[Phase.STARTUP]
    assert booked[Phase.COMPUTE] >= 0.99 * in_iterations
    # With .item() the device really idles for the fetch: half a millisecond an iteration.
    assert booked[Phase.DATA_WAIT] == (0 if blocks_in == "transfer" else 49 * 500_000)


def test_a_fetch_hidden_behind_the_device_is_no_wait():
    """The host waits 60 ms for data while the device computes 100 ms: nothing is exposed."""
    loop = Loop()
    for _ in range(20):
        loop.iterate(fetch_s=0.06, blocks_in="transfer")
    loop.poll()
    loop.poll()
    assert loop.booked()[Phase.DATA_WAIT] == 0
    assert loop.totals.num_unresolved == 0


def test_true_starvation_is_booked():
    """The device computes 10 ms and waits for the rest of a 50 ms fetch: that is exposed."""
    loop = Loop()
    for _ in range(11):
        loop.iterate(fetch_s=0.05, device_s=0.01)
    loop.poll()
    loop.poll()
    # Each fetch starts 1 ms after the 10 ms of work were enqueued: 41 of its 50 ms are idle.
    assert loop.booked()[Phase.DATA_WAIT] == 10 * 41_000_000


def test_an_iteration_that_waits_twice_has_both_gaps():
    """Two loaders side by side: the gaps of their fetches add up, the work between is no gap."""
    loop = Loop()
    loop.iterate(fetch_s=0.01)
    loop.device.block_host()
    loop.timeline.enter(Phase.DATA_WAIT)
    loop.gaps.begin_wait()
    loop.clock.advance(0.02)
    loop.gaps.end_wait(1)
    loop.timeline.leave()
    loop.device.enqueue(0.5)
    loop.device.block_host()
    loop.iterate(fetch_s=0.03)
    loop.poll()
    loop.clock.advance(1.0)
    assert loop.gaps.take_gaps() == [(0, 10_000_000), (1, 50_000_000)]


def test_a_gap_waits_until_its_row_was_drained():
    """An iteration that ends between draining and asking is resolved the next time, not lost."""
    loop = Loop()
    loop.iterate(fetch_s=0.01)
    loop.poll()
    loop.iterate(fetch_s=0.01)
    assert loop.gaps.take_gaps() == [(0, 10_000_000)]
    loop.clock.advance(1.0)
    loop.poll()
    assert loop.totals.num_unresolved == 0


def test_an_iteration_without_a_wait_is_resolved_too():
    """An iteration whose batch came from elsewhere is compute; it does not stay open for ever."""
    loop = Loop()
    for _ in range(5):
        loop.timeline.enter(Phase.COMPUTE)
        loop.clock.advance(0.01)
        loop.timeline.leave()
        loop.recorder.cut()
    loop.poll()
    loop.poll()
    assert loop.totals.num_unresolved == 0
    assert loop.booked()[Phase.COMPUTE] == 40_000_000


def test_a_device_that_hangs_is_bounded():
    """1024 pairs may be outstanding; further ones are counted, and all events go back."""
    loop = Loop()
    loop.device.enqueue(1000.0)
    for _ in range(MAX_OUTSTANDING + 200):
        loop.iterate(fetch_s=0.001, device_s=0.0)
    loop.poll()
    assert loop.gaps.num_dropped == 200
    assert loop.gaps.has_pending()
    loop.clock.advance(1000.0)
    assert not loop.gaps.has_pending()
    loop.poll()
    loop.poll()
    assert loop.totals.num_unresolved == 0
    assert loop.device.num_recycled == loop.device.num_recorded == 2 * MAX_OUTSTANDING


def test_settled_time_never_goes_back():
    """Exported counters grow whatever the order in which iterations and events become known."""
    loop = Loop()
    before = (0,) * len(Phase)
    for step in range(60):
        loop.iterate(fetch_s=0.02, device_s=0.01 if step % 3 else 0.3)
        if step % 4 == 0:
            loop.poll()
        host_ns = loop.timeline.read().until(loop.clock())
        settled = loop.totals.settle(host_ns)
        assert all(now >= then for now, then in zip(settled, before, strict=True))
        before = settled
