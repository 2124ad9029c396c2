"""The plain loop's part of the comparison: costlens beside the bare loop, without peers."""

from __future__ import annotations

import random
import statistics
import sys

from benchmarks.overhead.table import Row, compare
from benchmarks.plain_overhead import WARM_UP_CYCLES, make_subjects
from costlens.config import Config
from costlens.run import Run

DELIVERS = {
    "batches + iteration": "`run.batches`, `run.iteration`: data waits, iterations, counts",
    "hooks": "`run.watch`: forward, backward, optimizer, steps",
    "all": "all of it",
}


def measure_plain(cycles: int, width: int = 320) -> tuple[float, list[Row]]:
    """Return the bare step in microseconds of CPU, and a row for each way of watching.

    Args:
        cycles: Blocks of each subject that count.
        width: Of the model's layers; decides how long a step takes (320: about 1 ms).
    """
    with Run(Config(summary=False), exporters=[]) as run:
        subjects = make_subjects(run, width)
        cost_us: dict[str, list[float]] = {name: [] for name in subjects}
        order = list(subjects)
        for cycle in range(-WARM_UP_CYCLES, cycles):
            random.shuffle(order)
            for name in order:
                spent_us = subjects[name]()
                if cycle >= 0:
                    cost_us[name].append(spent_us)
    print(f"plain loop: {cycles} cycles", file=sys.stderr)
    bare = cost_us.pop("bare")
    rows = [
        Row(name, compare(costs, bare), delivers=DELIVERS.get(name, ""))
        for name, costs in cost_us.items()
    ]
    return statistics.median(bare), rows
