"""What the core costs a step: microseconds per call on the training thread and per row off it.

Run ``python benchmarks/hot_path.py``; each figure is the best of several repeats, which on a busy
machine is the one least disturbed. ``--json`` prints the same numbers for a script.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from costlens.core.phases import Phase
from costlens.core.quality import QualityBook
from costlens.core.recorder import Recorder
from costlens.core.scopes import IterationScope, PhaseScope
from costlens.core.timeline import Timeline
from costlens.core.window import Totals

REPEATS = 9
ROWS = 10_000
VALUES = 4_000  # fewer than the quality book's inbox holds


class NoValues:
    """Takes nothing: the iterations below pass integers only."""

    def add_count(self, name: str, value: object, number: int) -> None:
        """Take nothing."""

    def add_metric(self, name: str, value: object, number: int) -> None:
        """Take nothing."""


@dataclass(frozen=True)
class Measured:
    """One line of the table.

    Args:
        name: What was called.
        thread: Which thread pays for it.
        us: Microseconds per call.
    """

    name: str
    thread: str
    us: float


def best_us(run: Callable[[], int]) -> float:
    """Return microseconds per call of the best repeat; ``run`` returns how many calls it made."""
    best = float("inf")
    for _ in range(REPEATS):
        began_ns = time.perf_counter_ns()
        calls = run()
        best = min(best, (time.perf_counter_ns() - began_ns) / calls / 1000)
    return best


def make_recorder() -> Recorder:
    """Return a recorder on the real clock that is past its start-up."""
    recorder = Recorder(Timeline(time.perf_counter_ns, time.perf_counter_ns()))
    recorder.cut()
    return recorder


def time_loop(num: int = 20_000) -> int:
    """Make the loop that every other figure contains, too."""
    for _ in range(num):
        pass
    return num


def measure_timeline() -> list[Measured]:
    """Return the costs of a phase: entering and leaving it, marking and reading."""
    timeline = make_recorder().timeline
    forward = int(Phase.FORWARD)

    def pair() -> int:
        enter, leave = timeline.enter, timeline.leave
        for _ in range(20_000):
            enter(forward)
            leave()
        return 20_000

    def mark() -> int:
        for _ in range(20_000):
            timeline.mark()
        return 20_000

    def read() -> int:
        for _ in range(5_000):
            timeline.read()
        return 5_000

    return [
        Measured("enter + leave", "training", best_us(pair)),
        Measured("mark", "training", best_us(mark)),
        Measured("read", "pipeline", best_us(read)),
    ]


def measure_scopes() -> list[Measured]:
    """Return the costs of ``with`` blocks and of ending an iteration."""
    recorder = make_recorder()
    phase = PhaseScope(recorder.timeline, Phase.CALLBACKS)
    iteration = IterationScope(recorder, NoValues())

    def cut() -> int:
        for _ in range(ROWS):
            recorder.cut()
        return ROWS

    def scope() -> int:
        for _ in range(ROWS):
            with phase:
                pass
        return ROWS

    def whole() -> int:
        for _ in range(ROWS):
            with iteration.prepare(4, 512, 400, None, 1):
                pass
        return ROWS

    return [
        Measured("cut", "training", best_us(cut)),
        Measured("phase scope", "training", best_us(scope)),
        Measured("iteration scope, cut included", "training", best_us(whole)),
    ]


def best_drain_us(take: Callable[[Recorder], None]) -> float:
    """Return microseconds per row that ``take`` needs for a ring of rows."""
    best = float("inf")
    for _ in range(REPEATS):
        recorder = make_recorder()
        for _ in range(ROWS - 1):
            recorder.timeline.enter(Phase.FORWARD)
            recorder.timeline.leave()
            recorder.cut()
        began_ns = time.perf_counter_ns()
        take(recorder)
        best = min(best, (time.perf_counter_ns() - began_ns) / ROWS / 1000)
    return best


def measure_pipeline() -> list[Measured]:
    """Return the costs of a row and of a quality value on the pipeline thread."""

    def unpack(recorder: Recorder) -> None:
        for _ in recorder.drain(ROWS):
            pass

    def add(recorder: Recorder) -> None:
        totals = Totals()
        for row in recorder.drain(ROWS):
            totals.add(row)

    def hold(recorder: Recorder) -> None:
        totals = Totals(has_device=True)
        for row in recorder.drain(ROWS):
            totals.add(row)
            totals.resolve(((row.number, 1000),))

    book = QualityBook()

    def fold() -> int:
        for number in range(VALUES):
            book.add("loss", 2.0, number, number)
        book.fold()
        return VALUES

    return [
        Measured("drain a row", "pipeline", best_drain_us(unpack)),
        Measured("drain and total a row", "pipeline", best_drain_us(add)),
        Measured("the same with a device", "pipeline", best_drain_us(hold)),
        Measured("add and fold a quality value", "both", best_us(fold)),
    ]


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    empty_us = best_us(time_loop)
    lines = [*measure_timeline(), *measure_scopes(), *measure_pipeline()]
    if as_json:
        print(json.dumps({line.name: round(line.us, 3) for line in lines}))
        return
    print(f"{'call':<32}{'thread':<10}{'µs':>8}   (an empty loop: {empty_us:.3f})")
    for line in lines:
        print(f"{line.name:<32}{line.thread:<10}{line.us:>8.2f}")


if __name__ == "__main__":
    main()
