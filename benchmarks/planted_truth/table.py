"""Judges a case: planted pass less base pass, phase by phase, against the plants' own clocks."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass

import torch

from benchmarks.planted_truth.case import EPOCHS, NUM_BATCHES, Case, Result
from benchmarks.planted_truth.lightning_loop import run_lightning
from benchmarks.planted_truth.plain_loop import run_plain
from benchmarks.planted_truth.plants import PHASE_OF, Plants

__all__ = ["Verdict", "find_problems", "judge", "run_case"]

NS_PER_MS = 1_000_000
SHARE_ALLOWED = 0.02
PER_PLANT_ALLOWED_NS = 500_000
OTHER_PER_MICRO_BATCH_NS = 500_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table.

    Args:
        phase: The phase that the plants belong to.
        num: How often they spun.
        truth_ns: What their own clocks say.
        booked_ns: What costlens booked more than in the base pass.
    """

    phase: str
    num: int
    truth_ns: int
    booked_ns: int

    @property
    def error_ns(self) -> int:
        """Return how far off costlens is."""
        return self.booked_ns - self.truth_ns

    @property
    def allowed_ns(self) -> float:
        """Return how far off it may be: 2 % and 0.5 ms an occurrence."""
        return SHARE_ALLOWED * self.truth_ns + PER_PLANT_ALLOWED_NS * max(1, self.num)

    @property
    def is_true(self) -> bool:
        """Return whether costlens booked what was planted."""
        return abs(self.error_ns) <= self.allowed_ns


def run_case(case: Case, places: Collection[str], spin_ns: int) -> Result:
    """Return the result of one pass with delays at ``places``."""
    # On two cores the barriers between torch's threads cost milliseconds when a neighbour is busy.
    torch.set_num_threads(1)
    plants = Plants(places, spin_ns)
    if case.loop == "plain":
        return run_plain(case, plants)
    with tempfile.TemporaryDirectory() as folder:
        return run_lightning(case, plants, folder)


def judge(base: Result, planted: Result) -> list[Verdict]:
    """Return a verdict for every phase that has plants."""
    plants = planted.plants
    truth_ns: dict[str, int] = {}
    num: dict[str, int] = {}
    for place in plants.places - {"dataset", "worker_startup"}:
        phase = PHASE_OF[place]
        truth_ns[phase] = truth_ns.get(phase, 0) + plants.total_ns[place]
        num[phase] = num.get(phase, 0) + plants.num[place]
    if plants.places & {"dataset", "worker_startup"}:
        # Workers hide a part of what they spin: the truth is the wait around the fetch.
        truth_ns["data_wait"] = plants.fetch_ns - base.plants.fetch_ns
        num["data_wait"] = plants.num["worker_startup"]
        if "dataset" in plants.places:
            num["data_wait"] += EPOCHS * (NUM_BATCHES - 1)  # the first batch has none
    return [
        Verdict(
            phase,
            num[phase],
            truth_ns[phase],
            planted.record.time_ns[phase] - base.record.time_ns[phase],
        )
        for phase in sorted(truth_ns)
    ]


def find_problems(base: Result, planted: Result) -> list[str]:
    """Return what is not as it should be: sums, the outside clock, the loop's own bookkeeping."""
    problems = []
    for name, result in (("base", base), ("planted", planted)):
        if sum(result.record.time_ns.values()) != result.record.total_ns:
            problems.append(f"{name}: phases do not sum to the total")
        if abs(result.outside_ns - result.inside_ns) > 0.0005 * result.outside_ns + NS_PER_MS:
            problems.append(
                f"{name}: outside clock {result.outside_ns} ns, phases {result.inside_ns} ns"
            )
    # After a spin the caches are cold and everything is slower: the base pass tells what it takes.
    if base.other_ns > OTHER_PER_MICRO_BATCH_NS:
        problems.append(f"base: other took {base.other_ns:.0f} ns a micro-batch")
    return problems + [f"false: {seen}" for seen in judge(base, planted) if not seen.is_true]
