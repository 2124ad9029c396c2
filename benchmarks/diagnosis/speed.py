"""``python -m benchmarks.diagnosis.speed``: all rules over one window of a run of 64 ranks."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from benchmarks.diagnosis.engine import simulate
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.recorder import write_records
from costlens.core.records import RankRecord
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.job_evidence import JobEvidence
from costlens.diagnose.job_judge import judge_job

NUM_RANKS = 64
TARGET_MS = 5.0
_SEED = 7
_NUM_TRIES = 15


def make_windows(num_ranks: int = NUM_RANKS) -> list[tuple[RankRecord, RankRecord]]:
    """Return the last two records of each rank of a run that waits for its data and its saves."""
    sound = Job(
        seed=_SEED,
        duration_s=60.0,
        num_ranks=num_ranks,
        work_s=0.15 / 17_246,
        save_every=12,
        save_s=0.4,
    )
    few = 2 * 1.4 * sound.iteration_s / sound.batch_size
    job = replace(sound, num_workers=2, loader_cpus=4, sample_cpu_s=few)
    records = [write_records(job, trace) for trace in simulate(job)]
    return [(each[-3], each[-2]) for each in records]


def measure_ms(windows: list[tuple[RankRecord, RankRecord]]) -> float:
    """Return the median CPU time of all rules over all ranks, in milliseconds.

    Of this process, so that what else runs on the machine counts as little as it can.
    """
    times = []
    for _ in range(_NUM_TRIES):
        # Evidence remembers what it has worked out, so every try has its own.
        evidence = JobEvidence(tuple(Evidence(now, before) for before, now in windows))
        begin_s = time.process_time()
        judgement = judge_job(evidence)
        times.append(1e3 * (time.process_time() - begin_s))
    if judgement.unjudged is not None or not judgement.findings:
        raise ValueError(f"the rules were not asked: {judgement.unjudged}")
    return statistics.median(times)


def main() -> None:
    """Print the time."""
    taken_ms = measure_ms(make_windows())
    print(
        f"all rules over a window of {NUM_RANKS} ranks: {taken_ms:.2f} ms CPU, target {TARGET_MS}"
    )


if __name__ == "__main__":
    main()
