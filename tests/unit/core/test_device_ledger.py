"""Booking iterations by what the device did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from costlens.core.clock import NS_PER_S
from costlens.core.device_ledger import DeviceLedger
from costlens.core.phases import ITERATION_PHASES, NUM_PHASES, Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.core.window import Totals
from costlens.testing import FakeClock

ITERATION = [int(phase) for phase in ITERATION_PHASES]


class Job:
    """A loop with a device, whose gaps become known when the test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timeline = Timeline(self.clock, 0)
        self.recorder = Recorder(self.timeline)
        self.totals = Totals(has_device=True)

    def spend(self, phase: Phase, duration_ns: int) -> None:
        """Let time pass in a phase."""
        self.timeline.enter(phase)
        self.clock.advance_ns(duration_ns)
        self.timeline.leave()

    def cut(self) -> int:
        """End an iteration, hand it over, and return its number."""
        number = self.recorder.counters.iterations
        self.recorder.cut()
        for row in self.recorder.drain(100):
            self.totals.add(row)
        return number

    def host(self) -> tuple[int, ...]:
        """Return the host's time up to now."""
        return self.timeline.read().until(self.clock())

    def booked(self) -> dict[Phase, int]:
        """Return what is priced, without zeros."""
        booked = self.totals.book(self.host())
        return {phase: booked[phase] for phase in Phase if booked[phase]}


def test_exposed_wait_is_the_lesser_of_gap_and_host_wait() -> None:
    """A device that idled less than the host waited was fed in time, and the other way round."""
    for wait_ns, gap_ns, exposed_ns in ((300, 100, 100), (300, 900, 300), (300, -5, 0)):
        job = Job()
        job.cut()
        job.spend(Phase.DATA_WAIT, wait_ns)
        job.spend(Phase.TRANSFER, 500)
        number = job.cut()
        job.totals.resolve([(number, gap_ns)])
        expected = {Phase.DATA_WAIT: exposed_ns, Phase.COMPUTE: 500 + wait_ns - exposed_ns}
        assert job.booked() == {phase: value for phase, value in expected.items() if value}


def test_a_host_that_blocks_in_the_transfer_is_not_waiting_for_data() -> None:
    """Device work that surfaces in a copy is compute; no data wait is booked."""
    job = Job()
    job.cut()
    for _ in range(50):
        job.spend(Phase.DATA_WAIT, 1)
        job.spend(Phase.TRANSFER, 1000)
        job.totals.resolve([(job.cut(), 0)])
    assert job.booked() == {Phase.COMPUTE: 50 * 1001}


def test_what_is_not_known_yet_is_compute() -> None:
    """Unresolved iterations and the one under way are compute, so no window turns negative."""
    job = Job()
    job.cut()
    job.spend(Phase.DATA_WAIT, 40)
    number = job.cut()
    job.spend(Phase.FORWARD, 7)
    assert job.booked() == {Phase.COMPUTE: 47}
    assert job.totals.num_unresolved == 1
    job.totals.resolve([(number, 30), (number, 30), (999, 30)])
    assert job.booked() == {Phase.DATA_WAIT: 30, Phase.COMPUTE: 17}
    assert job.totals.num_unresolved == 0


def test_saves_and_start_up_stay_what_they_are() -> None:
    """Only the phases of a step move."""
    job = Job()
    job.spend(Phase.FORWARD, 11)
    job.cut()
    job.spend(Phase.CHECKPOINT, 5)
    job.spend(Phase.VALIDATION, 6)
    job.totals.resolve([(job.cut(), 0)])
    assert job.booked() == {Phase.STARTUP: 11, Phase.CHECKPOINT: 5, Phase.VALIDATION: 6}


def test_the_end_gives_up_what_never_came_and_keeps_what_followed_the_last_iteration() -> None:
    """At the end all is settled: gaps that never came are compute, the tail is the host's."""
    job = Job()
    job.cut()
    job.spend(Phase.DATA_WAIT, 40)
    number = job.cut()
    job.spend(Phase.CALLBACKS, 9)
    job.totals.close(job.host())
    assert job.booked() == {Phase.COMPUTE: 40, Phase.CALLBACKS: 9}
    assert job.totals.settle(job.host()) == job.totals.book(job.host())
    job.totals.resolve([(number, 40)])
    assert job.booked() == {Phase.COMPUTE: 40, Phase.CALLBACKS: 9}
    assert job.totals.num_unresolved == 1, "an iteration that was given up is still not known"


def test_gaps_that_never_come_do_not_pile_up() -> None:
    """Of 5000 iterations without a gap 4096 are held; the others are compute for good."""
    ledger = DeviceLedger()
    for number in range(5000):
        ledger.hold(number, 1, 2)
    assert (ledger.num_unresolved, ledger.num_given_up) == (4096, 904)
    ledger.resolve([(0, 1), (4999, 1)])
    settled = ledger.settle((0,) * NUM_PHASES)
    assert (settled[Phase.DATA_WAIT], settled[Phase.COMPUTE]) == (1, 904 * 2 + 1)


def test_a_device_that_is_found_later_moves_nothing_that_was_before() -> None:
    """A run learns of its device when the model is watched: earlier iterations stay as they are."""
    job = Job()
    job.totals.has_device = False
    for _ in range(3):
        job.spend(Phase.DATA_WAIT, 40)
        job.spend(Phase.FORWARD, 2)
        job.cut()
    job.totals.has_device = True
    before = job.totals.settle(job.host())
    job.spend(Phase.DATA_WAIT, 30)
    job.totals.resolve([(job.cut(), 0)])
    assert job.booked() == {
        Phase.STARTUP: 42, Phase.DATA_WAIT: 80, Phase.FORWARD: 4, Phase.COMPUTE: 30
    }  # fmt: skip
    after = job.totals.settle(job.host())
    assert all(a <= b for a, b in zip(before, after, strict=True))


@given(data=st.data())
def test_sums_never_change_and_settled_time_never_goes_back(data: st.DataObject) -> None:
    """In whatever order gaps come, nanoseconds are moved, not made, and counters only grow."""
    job = Job()
    unresolved: list[int] = []
    waits: dict[int, int] = {}
    exposed_ns = 0
    settled = (0,) * NUM_PHASES
    for _ in range(data.draw(st.integers(1, 12))):
        wait_ns = data.draw(st.integers(0, NS_PER_S))
        job.spend(Phase.DATA_WAIT, wait_ns)
        for phase in data.draw(st.lists(st.sampled_from(list(Phase)), max_size=4)):
            job.spend(phase, data.draw(st.integers(0, NS_PER_S)))
        number = job.cut()
        if number:
            unresolved.append(number)
            booked = job.timeline.phase_ns[Phase.DATA_WAIT]
            waits[number] = booked - sum(waits.values())
        for known in data.draw(st.permutations(unresolved))[: data.draw(st.integers(0, 3))]:
            gap_ns = data.draw(st.integers(-5, 2 * NS_PER_S))
            job.totals.resolve([(known, gap_ns)])
            unresolved.remove(known)
            exposed_ns += min(max(0, gap_ns), waits[known])
        host = job.host()
        booked_ns, now_settled = job.totals.book(host), job.totals.settle(host)
        assert sum(booked_ns) == sum(host)
        assert booked_ns[Phase.DATA_WAIT] == exposed_ns
        assert all(before <= now for before, now in zip(settled, now_settled, strict=True))
        assert all(part <= whole for part, whole in zip(now_settled, booked_ns, strict=True))
        settled = now_settled
    job.totals.close(job.host())
    host = job.host()
    assert job.totals.settle(host) == job.totals.book(host)
    assert sum(job.totals.book(host)) == sum(host)
    assert all(a <= b for a, b in zip(settled, job.totals.settle(host), strict=True))


def test_first_waits_of_passes_are_what_was_exposed() -> None:
    """A pass begins with a long wait of the host, of which the device noticed a part only."""
    job = Job()
    job.cut()  # start-up
    for turn in range(4):
        if turn in (0, 2):
            job.totals.pass_waits.begin(job.recorder.counters.iterations)
        job.spend(Phase.DATA_WAIT, 5 * NS_PER_S)
        job.spend(Phase.COMPUTE, NS_PER_S)
        number = job.cut()
        job.totals.resolve([(number, 2 * NS_PER_S)])
    assert job.totals.pass_waits.wait_ns == 2 * NS_PER_S
