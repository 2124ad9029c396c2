"""Phases as ranges: on a fake clock they are the timeline's own times, however a loop goes."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import groupby
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import costlens
from costlens.core.guard import faults
from costlens.core.phases import NAMES, Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.observe import torch_ranges
from costlens.observe.ranges import ITERATION, RangedRecorder, RangedTimeline
from costlens.observe.torch_ranges import NvtxRanges
from costlens.testing import FakeClock
from tests.unit.observe.ranges_ledger import Ledger

Move = tuple[str, int, int]
MOVES = st.tuples(
    st.sampled_from(["enter", "enter", "enter", "leave", "leave", "unwind", "rebase", "cut"]),
    st.integers(0, len(Phase) - 1),
    st.integers(0, 1000),
)


def make_moves(recorder: Recorder, clock: FakeClock, moves: list[Move]) -> None:
    """Do what a loop might do, with time between."""
    timeline = recorder.timeline
    for move, phase, pause_ns in moves:
        clock.advance_ns(pause_ns)
        if move == "enter":
            timeline.enter(phase)
        elif move == "leave":
            timeline.leave()
        elif move == "unwind":
            timeline.unwind(phase % 4 - 1)
        elif move == "rebase":
            timeline.rebase(Phase(phase))
        else:
            recorder.cut()


@given(st.lists(MOVES, max_size=60))
def test_whatever_a_loop_does_ranges_are_its_phases(moves: list[Move]) -> None:
    """The open ranges are the open phases at any time, properly nested, and all close at the end.

    A phase that the one around it keeps the time of has no range of its own.

    A phase's time in ranges is the timeline's, but for what was spent at the bottom of the stack;
    the timeline itself is the same as without ranges.
    """
    clock, plain_clock = FakeClock(1000), FakeClock(1000)
    ledger = Ledger(clock)
    timeline = RangedTimeline(clock, 1000, ledger)
    recorder = RangedRecorder(timeline)
    plain = Recorder(Timeline(plain_clock, 1000))
    bottom_ns = [0] * len(NAMES)
    for move in moves:
        base, is_bottom = timeline.base, timeline.depth == 0
        make_moves(recorder, clock, [move])
        make_moves(plain, plain_clock, [move])
        bottom_ns[base] += move[2] if is_bottom else 0
        phases = [phase for phase, _ in groupby(phase for _, phase in timeline.levels[1:])]
        names = [f"costlens.{NAMES[phase]}" for phase in phases]
        assert [name for name in ledger.open_names if name != ITERATION] == names
        assert ITERATION not in ledger.open_names[1:]
    timeline.unwind(0)
    timeline.rebase(Phase.SHUTDOWN)
    plain.timeline.unwind(0)
    plain.timeline.rebase(Phase.SHUTDOWN)
    assert ledger.open_names == []
    assert (timeline.phase_ns, timeline.levels) == (plain.timeline.phase_ns, plain.timeline.levels)
    assert recorder.start_ns == plain.start_ns
    assert [*recorder.drain(100)] == [*plain.drain(100)]
    own_ns = ledger.own_ns()
    in_ranges = [own_ns[f"costlens.{name}"] for name in NAMES]
    assert in_ranges == [
        total - bottom for total, bottom in zip(timeline.phase_ns, bottom_ns, strict=True)
    ]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Return the books of runs with `ranges`, on a clock that the test advances."""
    ledger = Ledger(FakeClock(10**12))
    monkeypatch.setattr(torch_ranges, "make_ranges", lambda kind: ledger)
    return ledger


def start(ledger: Ledger) -> costlens.Run:
    """Return an open run on the ledger's clock."""
    config = costlens.Config(summary=False, ranges="nvtx")
    return costlens.Run(config, clock=ledger.clock, exporters=[]).open()


def test_an_iteration_lies_around_its_phases(ledger: Ledger) -> None:
    """One range an iteration, from its fetch to its end; what is between two is in none."""
    run, clock = start(ledger), ledger.clock
    assert isinstance(clock, FakeClock)
    clock.advance(1)  # setting up takes time, and no loop begins in the instant of its start
    for batch in run.batches(range(4)):
        with run.iteration():
            clock.advance(1)
            with run.phase("communication"):
                clock.advance(0.5)
        if batch == 2:
            with run.phase("validation"):
                clock.advance(8)
    run.finish()
    iterations = [book for book in ledger.books if book.name == ITERATION]
    took_ns = [book.end_ns - book.start_ns for book in iterations if book.end_ns]
    # The last fetch finds nothing: an iteration that was begun and is none.
    assert took_ns == [1_500_000_000] * 4 + [0]
    inside = {book.name for book in ledger.books if book.above in iterations}
    assert inside == {"costlens.startup", "costlens.data_wait", "costlens.compute"}
    (validation,) = [book for book in ledger.books if book.name == "costlens.validation"]
    assert validation.above is None


def test_what_breaks_a_loop_leaves_no_range_open(ledger: Ledger) -> None:
    """C063: exceptions in phases, in a pass of a watched model, and abandoned generators."""
    run = start(ledger)
    net = torch.nn.Linear(2, 2)
    run.watch(net, torch.optim.SGD(net.parameters(), 0.1))

    def generate() -> Any:
        with run.phase("data_wait"):
            yield 1
            yield 2

    def explode(*_args: object) -> None:
        raise ValueError("planted")

    for _ in run.batches(range(2)):
        net(torch.ones(2)).sum().backward()
    handle = net.register_forward_pre_hook(explode)
    with pytest.raises(ValueError, match="planted"), run.phase("transfer"), run.iteration():
        net(torch.ones(2))
    handle.remove()
    abandoned = generate()
    with run.phase("callbacks"):
        assert next(abandoned) == 1
    assert [name for name in ledger.open_names if name != ITERATION] == []
    abandoned.close()
    assert [name for name in ledger.open_names if name != ITERATION] == []
    with pytest.raises(ValueError, match="planted"), run.phase("validation"):
        explode(run.parts.timeline.enter(Phase.DATA_WAIT))
    run.parts.timeline.enter(Phase.BACKWARD)
    run.finish()
    assert ledger.open_names == []
    assert faults.num_total == 0


def test_a_profiler_that_fails_harms_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges that cannot be opened or closed are faults of ours: counted, and training goes on."""
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", {})

    def refuse(*_args: object, **_options: object) -> None:
        raise RuntimeError("planted")

    run = start(ledger)
    with run.iteration():
        pass
    monkeypatch.setattr(ledger, "open", refuse)
    with run.iteration():
        pass
    monkeypatch.setattr(ledger, "open", lambda name, is_elsewhere: refuse)
    with run.iteration():
        pass
    record = run.finish()
    assert record is None or record.progress.iterations == 3
    assert run.parts.recorder.counters.iterations == 3
    assert faults.counts == {"observe.ranges": 4}


def test_a_run_that_did_not_ask_pays_nothing() -> None:
    """Its timeline and recorder are the plain ones, and nothing of torch is loaded for it."""
    script = """
import sys, costlens
with costlens.start("plain", summary=False) as run:
    print(type(run.parts.timeline).__name__, type(run.parts.recorder).__name__)
print("torch" in sys.modules, "costlens.observe.ranges" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["Timeline", "Recorder", "False", "False"]


def test_without_torch_the_setting_is_refused() -> None:
    """Who asks for ranges of torch where there is none is told how to get it."""
    script = """
import sys
sys.modules["torch"] = None
import costlens
costlens.start("plain", summary=False, ranges="record_function")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install 'costlens[torch]'" in done.stderr
    assert "ranges=record_function (from argument ranges)" in done.stderr


class Nvtx:
    """The functions of `torch.cuda.nvtx`, with the stack that each thread has."""

    def __init__(self) -> None:
        self.stacks: dict[int, list[str]] = {}
        self.started: dict[int, str] = {}
        self.seen: list[str] = []

    def range_push(self, name: str) -> None:
        self.stacks.setdefault(threading.get_ident(), []).append(name)
        self.seen.append(name)

    def range_pop(self) -> None:
        self.stacks[threading.get_ident()].pop()

    def range_start(self, name: str) -> int:
        self.started[len(self.seen)] = name
        self.seen.append(name)
        return len(self.seen) - 1

    def range_end(self, number: int) -> None:
        del self.started[number]

    @property
    def open_names(self) -> list[str]:
        return [*self.started.values(), *(name for s in self.stacks.values() for name in s)]


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Nvtx:
    """Return an NVTX that this machine need not have, where CUDA is initialised."""
    nvtx = Nvtx()
    monkeypatch.setattr(torch_ranges, "_nvtx", nvtx)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    return nvtx


def test_nvtx_waits_for_the_training_to_initialise_cuda(
    nvtx: Nvtx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that there are no ranges, phases that are open then included; then there are."""
    is_initialized = False
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
    timeline = RangedTimeline(FakeClock(), 0, NvtxRanges())
    timeline.enter(Phase.VALIDATION)
    is_initialized = True
    timeline.enter(Phase.CHECKPOINT)
    assert nvtx.open_names == ["costlens.checkpoint"]
    timeline.leave()
    timeline.leave()
    timeline.enter(Phase.VALIDATION)
    assert nvtx.open_names == ["costlens.validation"]
    timeline.leave()
    assert nvtx.open_names == []


@pytest.mark.parametrize("is_closed_there", [True, False])
def test_a_backward_pass_on_a_device_is_entered_on_a_thread_of_its_own(
    nvtx: Nvtx, is_closed_there: bool
) -> None:
    """Ranges that push and pop belong to a thread: that one is started and ended by its number."""
    timeline = RangedTimeline(FakeClock(), 0, NvtxRanges())
    timeline.rebase(Phase.OTHER)
    timeline.enter(Phase.COMPUTE)

    def there() -> None:
        timeline.enter(Phase.BACKWARD)
        if is_closed_there:
            timeline.leave()

    thread = threading.Thread(target=there)
    thread.start()
    thread.join()
    if not is_closed_there:
        assert nvtx.open_names == ["costlens.backward", ITERATION, "costlens.compute"]
        timeline.leave()
    assert nvtx.open_names == [ITERATION, "costlens.compute"]
    assert nvtx.seen == [ITERATION, "costlens.compute", "costlens.backward"]
    timeline.leave()
    timeline.rebase(Phase.SHUTDOWN)
    assert nvtx.open_names == []


def test_a_range_that_another_thread_closes_goes_with_its_own_next_step(nvtx: Nvtx) -> None:
    """A backward pass that began on the training thread may end on the device's: nothing stays."""
    timeline = RangedTimeline(FakeClock(), 0, NvtxRanges())
    timeline.enter(Phase.VALIDATION)
    thread = threading.Thread(target=timeline.leave)
    thread.start()
    thread.join()
    timeline.enter(Phase.CHECKPOINT)
    assert nvtx.open_names == ["costlens.checkpoint"]
    timeline.leave()
    assert nvtx.open_names == []


def test_a_torch_without_cuda_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for NVTX there gets one line instead of silence; the ranges are none."""
    if torch.backends.cuda.is_built():
        pytest.skip("cuda: this torch has it")
    ranges = torch_ranges.make_ranges("nvtx")
    assert "built without CUDA" in capsys.readouterr().err
    assert ranges.open("costlens.forward", is_elsewhere=False) is None
