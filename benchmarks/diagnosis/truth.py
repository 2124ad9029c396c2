"""What mending a cause would really save: the same seed is run again without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.trace import Trace

__all__ = ["Bill", "Saving", "compare", "make_bill"]


@dataclass(frozen=True)
class Bill:
    """What a run has paid for, in seconds of devices, and what it got.

    Args:
        startup_s: Paid up to the end of the first iteration.
        steady_s: Paid after that.
        samples: Samples of steps that counted, after the first iteration.
    """

    startup_s: float
    steady_s: float
    samples: float

    @property
    def total_s(self) -> float:
        """Return all that was paid."""
        return self.startup_s + self.steady_s

    @property
    def sample_s(self) -> float:
        """Return what a sample costs once the run is under way."""
        return self.steady_s / self.samples


@dataclass(frozen=True)
class Saving:
    """What mending a cause saves.

    Args:
        steady: Share (0 to 1) of what is paid once the run is under way.
        whole: Share of what is paid for the whole attempt.
    """

    steady: float
    whole: float


def make_bill(job: Job, traces: Sequence[Trace]) -> Bill:
    """Return what a run has paid for, with devices that no rank drives."""
    devices = (job.num_ranks + job.unowned_gpus * job.num_nodes) / job.num_ranks
    startup_s = sum(trace.cuts[0].end_s - trace.begin_s for trace in traces)
    steady_s = sum(trace.end_s - trace.cuts[0].end_s for trace in traces)
    samples = 0.0
    for trace in traces:
        first, last = trace.cuts[0], trace.cuts[-1]
        steps, skipped = last.steps - first.steps, last.skipped - first.skipped
        samples += (last.samples - first.samples) * steps / (steps + skipped)
    return Bill(devices * startup_s, devices * steady_s, samples)


def compare(sick: Bill, mended: Bill) -> Saving:
    """Return what a run would have saved, had it got the same samples as the mended one does."""
    needed_s = mended.startup_s + sick.samples * mended.sample_s
    return Saving(1 - mended.sample_s / sick.sample_s, 1 - needed_s / sick.total_s)
