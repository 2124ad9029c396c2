"""The ring of rows between the training thread and the pipeline."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.phases import Phase
from costlens.core.recorder import UNKNOWN, Counters, Recorder, Row
from costlens.core.timeline import Timeline
from costlens.testing import FakeClock


def make_recorder(capacity: int = 8) -> tuple[FakeClock, Recorder]:
    """Return a recorder and its clock."""
    clock = FakeClock(1000)
    recorder = Recorder(Timeline(clock, 0), capacity)
    recorder.counters.watch_steps()
    return clock, recorder


def write(recorder: Recorder, num: int) -> None:
    """Cut iterations whose every count follows from their number."""
    for _ in range(num):
        recorder.counters.micro_batches = 3 * recorder.counters.iterations + 1
        recorder.cut()


def is_whole(row: Row) -> bool:
    """Return whether a row is one that `write` made."""
    return row.micro_batches == 3 * row.number + 1


def test_a_row_holds_what_happened_up_to_the_cut() -> None:
    """Times, counts, context and phases of an iteration come back as they were."""
    clock, recorder = make_recorder()
    recorder.counters.add_tokens(30)
    recorder.context = 7
    clock.advance_ns(500)
    assert recorder.cut() == 1500
    recorder.timeline.enter(Phase.FORWARD)
    clock.advance_ns(20)
    recorder.timeline.leave()
    recorder.counters.add_tokens(12)
    recorder.counters.optimizer_steps += 1
    recorder.cut()
    first, second = recorder.drain(10)
    assert (first.number, first.start_ns, first.end_ns) == (0, 0, 1500)
    assert (first.tokens, first.samples, first.context) == (30, UNKNOWN, 7)
    assert (second.number, second.start_ns, second.end_ns) == (1, 1500, 1520)
    assert (second.tokens, second.optimizer_steps) == (42, 1)
    assert second.phase_ns[Phase.FORWARD] == 20
    assert sum(second.phase_ns) == 1520


def test_the_first_iteration_is_start_up_and_ends_it() -> None:
    """Whatever the first iteration does is start-up; the second one's time is its own."""
    clock, recorder = make_recorder()
    for _ in range(2):
        recorder.timeline.enter(Phase.COMPUTE)
        clock.advance_ns(100)
        recorder.timeline.leave()
        recorder.cut()
    first, second = recorder.drain(10)
    assert first.is_startup
    assert first.phase_ns[Phase.STARTUP] == 1100
    assert first.phase_ns[Phase.COMPUTE] == 0
    assert not second.is_startup
    assert second.phase_ns[Phase.COMPUTE] == 100
    assert recorder.timeline.base == Phase.OTHER


def test_a_second_start_is_start_up_as_well() -> None:
    """A run that starts again has an iteration of start-up again; idle time is not ended by it."""
    _, recorder = make_recorder()
    write(recorder, 2)
    recorder.timeline.rebase(Phase.STARTUP)
    write(recorder, 2)
    assert [bool(row.is_startup) for row in recorder.drain(10)] == [True, False, True, False]


def test_a_counter_nobody_reports_stays_unknown() -> None:
    """Absent is not zero: the first report begins at 0, and 0 itself is a report."""
    counters = Counters()
    assert counters.samples == counters.slots == counters.tokens == counters.loss_tokens == UNKNOWN
    counters.add_samples(0)
    counters.add_slots(5)
    counters.add_slots(6)
    assert (counters.samples, counters.slots, counters.tokens) == (0, 11, UNKNOWN)


def test_unread_rows_beyond_the_ring_are_lost_and_counted() -> None:
    """The oldest rows go, the newest and the first stay, and the sum of both is what was cut."""
    _, recorder = make_recorder(capacity=4)
    write(recorder, 10)
    rows = list(recorder.drain(100))
    assert [row.number for row in rows] == [0, 7, 8, 9]
    assert recorder.num_dropped == 6
    assert all(map(is_whole, rows))


def test_draining_stops_after_the_rows_asked_for() -> None:
    """A slice is a slice; the rest comes next time."""
    _, recorder = make_recorder()
    write(recorder, 5)
    assert [row.number for row in recorder.drain(2)] == [0, 1]
    assert [row.number for row in recorder.drain(2)] == [2, 3]
    assert [row.number for row in recorder.drain(2)] == [4]
    assert list(recorder.drain(2)) == []


@given(
    capacity=st.integers(2, 6),
    program=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4))),
)
def test_whatever_the_writer_does_meanwhile_rows_come_once_in_order_and_whole(
    capacity: int, program: list[tuple[int, int, int]]
) -> None:
    """Even when the writer laps a drain that is under way, every row handed out is its own."""
    _, recorder = make_recorder(capacity)
    rows: list[Row] = []
    for num_before, num_drained, num_within in program:
        write(recorder, num_before)
        for row in recorder.drain(num_drained):
            rows.append(row)
            write(recorder, num_within)
    rows.extend(recorder.drain(10**6))
    numbers = [row.number for row in rows]
    assert numbers == sorted(set(numbers))
    assert all(map(is_whole, rows))
    assert len(rows) + recorder.num_dropped == recorder.counters.iterations
    assert not rows or numbers[0] == 0


@pytest.mark.parametrize("capacity", [2, 5, 64])
def test_rows_stay_whole_beside_a_writer_that_does_not_wait(capacity: int) -> None:
    """A second thread that fills the ring faster than it is read never makes a torn row."""
    recorder = Recorder(Timeline(time.perf_counter_ns, time.perf_counter_ns()), capacity)
    writer = threading.Thread(target=write, args=(recorder, 30_000))
    writer.start()
    rows: list[Row] = []
    while writer.is_alive():
        rows.extend(recorder.drain(10))
    writer.join()
    rows.extend(recorder.drain(capacity))
    assert all(map(is_whole, rows))
    assert [row.number for row in rows] == sorted({row.number for row in rows})
    assert len(rows) + recorder.num_dropped == 30_000


def test_a_recorder_at_rest_gives_its_memory_back_and_goes_on_afterwards() -> None:
    """Rows before and after are whole; one that comes in between is counted as dropped."""
    _, recorder = make_recorder(capacity=4096)
    full_bytes = sys.getsizeof(recorder._ring)
    for _ in range(10):
        recorder.cut()
    assert [row.number for row in recorder.drain(100)] == [*range(10)]
    recorder.rest()
    assert sys.getsizeof(recorder._ring) < full_bytes / 1000
    recorder.cut()
    recorder.wake()
    recorder.wake()
    assert sys.getsizeof(recorder._ring) == full_bytes
    for _ in range(3):
        recorder.cut()
    assert [row.number for row in recorder.drain(100)] == [11, 12, 13]
    assert recorder.num_dropped == 1
