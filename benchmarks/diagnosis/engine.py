"""Lets the ranks of a job train until its time is over: they meet in every all-reduce."""

from __future__ import annotations

import numpy as np

from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.rank import Rank
from benchmarks.diagnosis.trace import Trace
from costlens.core.phases import Phase

__all__ = ["simulate"]

_CONNECT_S = 0.4
_VALIDATION_BUSY = 0.85
_MIN_ITERATIONS = 4


def simulate(job: Job, num_iterations: int | None = None) -> list[Trace]:
    """Return what every rank did; a job is the same whenever it is simulated.

    Args:
        job: The job.
        num_iterations: After how many iterations it ends; None for the end of its time.
    """
    ranks = [Rank(job, number) for number in range(job.num_ranks)]
    _start(job, ranks)
    end_s = ranks[0].host_s + job.duration_s
    iteration, is_stopped = 0, False
    exposed_comm_s = job.exposed_comm_s
    while (
        iteration < num_iterations
        if num_iterations is not None
        else ranks[0].host_s < end_s or iteration < _MIN_ITERATIONS
    ):
        stop_s = 0.0
        if job.stop_at_s is not None and not is_stopped and ranks[0].host_s > job.stop_at_s:
            stop_s, is_stopped = job.stop_s, True
        arrived_s = [rank.run_to_reduce(stop_s) for rank in ranks]
        reduced_s = max(arrived_s) + exposed_comm_s
        for rank in ranks:
            rank.finish(reduced_s)
        iteration += 1
        _stand_still(job, ranks, iteration)
    for rank in ranks:
        rank.stand_still(Phase.SHUTDOWN, 0.2, 0.0)
    return [rank.trace for rank in ranks]


def _start(job: Job, ranks: list[Rank]) -> None:
    """Let the ranks meet: those of one node come last, and wait for nobody."""
    rng = np.random.default_rng((job.seed, 1_000_000))
    connect_s = _CONNECT_S if job.num_ranks > 1 else 0.0
    first_fetch_s = job.gang_wait_s + 1.05 * job.startup_s + connect_s
    latest_node = int(rng.integers(job.num_nodes))
    for number, rank in enumerate(ranks):
        own_s = job.startup_s * float(rng.uniform(0.98, 1.02))
        is_late = number // job.ranks_per_node == latest_node and job.num_nodes > 1
        lead_s = float(rng.uniform(0.9, 1.0)) * job.gang_wait_s
        begin_s = job.gang_wait_s if is_late else job.gang_wait_s - lead_s
        wait_s = first_fetch_s - begin_s - own_s if job.num_ranks > 1 else None
        rank.start(begin_s, first_fetch_s, wait_s)


def _stand_still(job: Job, ranks: list[Rank], iteration: int) -> None:
    if job.save_every and iteration % job.save_every == 0:
        begin_s = max(max(rank.host_s, rank.device_s) for rank in ranks)
        for rank in ranks:
            ready_s = max(rank.host_s, rank.device_s)
            rank.stand_still(Phase.CHECKPOINT, begin_s - ready_s + job.save_s, 0.0)
            rank.trace.saves.append(rank.host_s)
    if job.validate_every and iteration % job.validate_every == 0:
        for rank in ranks:
            rank.stand_still(Phase.VALIDATION, job.validation_s, _VALIDATION_BUSY)
            rank.trace.validations.append(rank.host_s)
