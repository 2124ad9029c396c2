"""The phase stack: exclusive nanoseconds that add up, for the training thread and for readers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.phases import NAMES, NUM_PHASES, Phase
from costlens.core.timeline import Bracket, Timeline, TimelineReading
from costlens.testing import FakeClock
from tests.unit.core.test_phases import nest

PHASES = st.sampled_from(NAMES)
OPS = st.one_of(
    st.tuples(st.sampled_from(["enter", "open", "replace"]), PHASES),
    st.tuples(st.just("rebase"), PHASES),
    st.tuples(st.just("unwind"), st.integers(-1, 6)),
    st.tuples(st.sampled_from(["leave", "close", "mark"]), st.none()),
)
PROGRAMS = st.lists(st.tuples(OPS, st.integers(0, 10**10)), max_size=60)


class Reference:
    """What a timeline means, said slowly: what was asked for is nested anew each time."""

    def __init__(self, base: str) -> None:
        self.asked = [base]
        self.booked = dict.fromkeys(NAMES, 0)

    @property
    def phase(self) -> str:
        """Return the phase that gets the time now."""
        outer = self.asked[0]
        for inner in self.asked[1:]:
            outer = nest(outer, inner)
        return outer

    def do(self, name: str, argument: object) -> None:
        """Do one operation."""
        if name in {"leave", "close", "replace"}:
            del self.asked[max(1, len(self.asked) - 1) :]
        if name in {"enter", "open", "replace"}:
            self.asked.append(str(argument))
        elif name == "rebase":
            self.asked[0] = str(argument)
        elif name == "unwind":
            assert isinstance(argument, int)
            del self.asked[max(1, argument + 1) :]


def play(timeline: Timeline, name: str, argument: object) -> int:
    """Do one operation on a real timeline."""
    if name == "replace":
        timeline.mark()
        timeline.replace(Phase[str(argument).upper()])
        return timeline.since_ns
    if name in {"open", "close"}:
        bracket = Bracket(timeline, Phase[str(argument or "other").upper()])
        bracket.__enter__() if name == "open" else bracket.__exit__()
        return timeline.since_ns
    if name in {"enter", "rebase"}:
        return int(getattr(timeline, name)(Phase[str(argument).upper()]))
    if name == "unwind":
        assert isinstance(argument, int)
        return timeline.unwind(argument)
    return int(getattr(timeline, name)())


@given(program=PROGRAMS, base=PHASES, start_ns=st.integers(-(10**12), 10**18))
def test_any_program_of_phases_sums_exactly_and_books_as_the_table_says(
    program: list[tuple[tuple[str, object], int]], base: str, start_ns: int
) -> None:
    """Every nanosecond is in one phase, the same that an independent interpreter books it to."""
    clock = FakeClock(start_ns)
    timeline = Timeline(clock, start_ns, Phase[base.upper()])
    reference = Reference(base)
    for (name, argument), elapsed_ns in program:
        clock.advance_ns(elapsed_ns)
        reference.booked[reference.phase] += elapsed_ns
        assert play(timeline, name, argument) == clock()
        reference.do(name, argument)
        assert dict(zip(NAMES, timeline.phase_ns, strict=True)) == reference.booked
        assert NAMES[timeline.phase] == reference.phase
        assert timeline.depth == len(reference.asked) - 1
        reading = timeline.read()
        assert sum(reading.phase_ns) == reading.since_ns - start_ns == clock() - start_ns


def test_time_before_the_first_switch_belongs_to_the_base() -> None:
    """A timeline that began before it was made books the time up to then to its first phase."""
    clock = FakeClock(100)
    timeline = Timeline(clock, 40)
    clock.advance_ns(5)
    timeline.enter(Phase.VALIDATION)
    assert timeline.phase_ns[Phase.STARTUP] == 65


def test_a_phase_that_start_up_swallowed_comes_out_when_start_up_ends() -> None:
    """What is open when the bottom changes is nested anew, from then on."""
    clock = FakeClock()
    timeline = Timeline(clock, 0)
    timeline.enter(Phase.CALLBACKS)
    timeline.enter(Phase.DATA_WAIT)
    clock.advance_ns(7)
    timeline.rebase(Phase.OTHER)
    clock.advance_ns(3)
    timeline.leave()
    assert timeline.phase_ns[Phase.STARTUP] == 7
    assert timeline.phase_ns[Phase.CALLBACKS] == 3


def test_leaving_the_bottom_leaves_nothing() -> None:
    """An extra leave books the time and keeps the base."""
    clock = FakeClock()
    timeline = Timeline(clock, 0, Phase.OTHER)
    clock.advance_ns(4)
    assert timeline.leave() == 4
    assert timeline.depth == 0
    assert timeline.phase_ns[Phase.OTHER] == 4


def test_until_books_the_open_phase_and_never_takes_time_back() -> None:
    """A reading can be carried on to a later time; an earlier one changes nothing."""
    reading = TimelineReading((0,) * NUM_PHASES, int(Phase.FORWARD), 10)
    assert reading.until(25)[Phase.FORWARD] == 15
    assert reading.until(3) == reading.phase_ns


def test_a_reading_in_the_middle_of_a_switch_is_taken_again() -> None:
    """A reader that sees a half-done switch waits for its end."""
    timeline = Timeline(FakeClock(50), 0, Phase.OTHER)
    timeline.phase_ns[Phase.OTHER] += 50  # the first of the writer's three writes

    def finish_switch() -> None:
        timeline.phase = int(Phase.FORWARD)
        timeline.since_ns = 50

    assert timeline.read(pause=finish_switch) == TimelineReading(
        tuple(50 if phase is Phase.OTHER else 0 for phase in Phase), int(Phase.FORWARD), 50
    )


def test_a_writer_that_stops_in_the_middle_of_a_switch_is_still_read_exactly() -> None:
    """A writer that gets no processor does not hold a reader for ever, nor make it lie."""
    timeline = Timeline(FakeClock(50), 0, Phase.OTHER)
    timeline.phase_ns[Phase.OTHER] += 50
    pauses = []
    reading = timeline.read(pause=lambda: pauses.append(1))
    assert sum(reading.phase_ns) == reading.since_ns == 50
    assert len(pauses) == 1000


@pytest.fixture
def hasty_interpreter() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


def test_every_reading_beside_a_hammering_writer_adds_up(hasty_interpreter: None) -> None:
    """While another thread switches phases without pause, no reading is torn or goes back."""
    timeline = Timeline(time.perf_counter_ns, time.perf_counter_ns())
    is_over = threading.Event()

    def hammer() -> None:
        while not is_over.is_set():
            timeline.enter(Phase.FORWARD)
            timeline.enter(Phase.CHECKPOINT)
            timeline.mark()
            timeline.leave()
            timeline.unwind(0)
            timeline.rebase(Phase.OTHER)

    writer = threading.Thread(target=hammer)
    writer.start()
    try:
        before = timeline.read()
        num_moved = 0
        while num_moved < 3_000:
            reading = timeline.read()
            assert sum(reading.phase_ns) == reading.since_ns - timeline.start_ns
            assert all(a <= b for a, b in zip(before.phase_ns, reading.phase_ns, strict=True))
            num_moved += reading.since_ns > before.since_ns
            before = reading
            time.sleep(0)
    finally:
        is_over.set()
        writer.join()
