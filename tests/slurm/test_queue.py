"""A real Slurm: ranks, waits, requeues and arrays, compared with what Slurm itself says.

Times of Slurm are whole seconds, so a second is as near as two readings of one moment come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.slurm.jobs import SCRIPT, Jobs

pytestmark = pytest.mark.slow


def whole_node() -> tuple[str, ...]:
    """Return the options of a job that leaves nobody else room."""
    return ("--exclusive",)


def test_a_wait_behind_a_busy_node_is_told_apart_from_a_begin_time(jobs: Jobs) -> None:
    """C143: --begin is deferral, the busy node the wait; scontrol and the log of ends agree."""
    gate = jobs.folder / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    blocker = jobs.submit(*whole_node(), command=command)
    jobs.cluster.wait(blocker, "RUNNING")
    job = jobs.submit(*whole_node(), "--begin=now+2")
    time.sleep(5)
    gate.touch()
    assert jobs.cluster.wait(job) == "COMPLETED", jobs.outputs()

    queue = jobs.report(f"small-{job}").queue
    submit_s, eligible_s, start_s = jobs.cluster.times(job)
    assert queue.wait_s == pytest.approx(start_s - eligible_s, abs=1)
    assert queue.deferral_s == pytest.approx(eligible_s - submit_s, abs=1)
    assert queue.wait_s >= 1
    assert queue.deferral_s >= 1
    (end,) = jobs.completed(job)
    logged = [datetime.fromisoformat(end[name]) for name in ("EligibleTime", "StartTime")]
    assert queue.wait_s == pytest.approx((logged[1] - logged[0]).total_seconds(), abs=1)
    (wait,) = queue.waits
    assert (wait.job_id, wait.queue, wait.counted_from) == (job, "train", "eligible")


def test_the_allocation_is_paid_for_from_its_start(jobs: Jobs) -> None:
    """What a batch script does before the training is start-up, for the first training only."""
    train = f"{jobs.python} {SCRIPT}"
    job = jobs.submit(command=f"sleep 3; {train} && {train}")
    assert jobs.cluster.wait(job) == "COMPLETED", jobs.outputs()
    first, second = (jobs.records(f"small-{job}{end}")[1, 0] for end in ("", "-2"))
    assert first.attempt.paid_from == "allocation"
    began_s = first.attempt.process_start_time or 0.0
    _, _, start_s = jobs.cluster.times(job)
    assert first.startup.allocation_s == pytest.approx(began_s - start_s, abs=1)
    assert first.startup.allocation_s >= 2.9
    assert first.job is not None
    assert (first.job.times_from, first.job.clock_skew_s) == ("scontrol", None)
    assert sum(first.time_ns.values()) == first.total_ns
    assert (second.attempt.paid_from, second.startup.allocation_s) == ("process_start", None)
    assert jobs.report(f"small-{job}-2").queue.wait_s is None


def test_ranks_of_srun_are_one_attempt_and_each_is_paid_from_the_start(jobs: Jobs) -> None:
    """Two tasks, no launcher: ranks from the step, times from rank 0's question alone."""
    gate = jobs.folder / "gate"
    command = f"sleep 1; srun --ntasks=2 --overcommit {jobs.python} {SCRIPT}"
    job = jobs.submit("--ntasks=2", command=command, WAIT_FOR=str(gate))
    until(lambda: jobs.outputs().count("halfway") == 2, jobs)
    time.sleep(3)  # six windows, in which rank 1 finds what rank 0 was told
    gate.touch()
    assert jobs.cluster.wait(job) == "COMPLETED", jobs.outputs()
    records = jobs.records(f"small-{job}")
    assert sorted(records) == [(1, 0), (1, 1)]
    by_rank = [records[1, rank] for rank in (0, 1)]
    assert [record.rank.world_size for record in by_rank] == [2, 2]
    assert [record.rank.local_world_size for record in by_rank] == [2, 2]
    assert [record.job.step for record in by_rank if record.job] == ["0", "0"]
    assert {record.attempt.paid_from for record in by_rank} == {"allocation"}
    assert [record.job.times_from for record in by_rank if record.job] == ["scontrol", "rank 0"]
    assert len({record.attempt.launch_key for record in by_rank}) == 1
    assert jobs.report(f"small-{job}").queue.num_waits == 1


def test_lightning_under_srun_is_one_attempt_of_two_ranks(jobs: Jobs) -> None:
    """C025: ranks from Slurm's own variables, a series for each, and one of them tells the wait."""
    script = SCRIPT.with_name("train_lightning.py")
    job = jobs.submit(
        "--ntasks-per-node=2",
        command=f"srun {jobs.python} {script}",
        OMP_NUM_THREADS="1",
        COSTLENS_WINDOW_S="0.2",
    )
    assert jobs.cluster.wait(job) == "COMPLETED", jobs.outputs()
    records = jobs.records(f"small-{job}")
    assert sorted(records) == [(1, 0), (1, 1)]
    for rank in (0, 1):
        record = records[1, rank]
        assert (record.rank.world_size, record.rank.local_world_size) == (2, 2)
        assert record.progress.optimizer_steps == 4
        assert record.attempt.paid_from == "allocation"
        assert record.job is not None
        assert record.job.is_allocation_owner
    assert jobs.report(f"small-{job}").queue.num_waits == 1


def test_a_requeue_is_the_next_attempt_of_the_run_and_waits_are_summed(jobs: Jobs) -> None:
    """C026, C010: one run over two starts of the job; the wait is that of both allocations."""
    gate = jobs.folder / "gate"
    job = jobs.submit("--requeue", WAIT_FOR=str(gate))
    jobs.cluster.wait(job, "RUNNING")
    until(lambda: "halfway" in jobs.outputs(), jobs)
    first_times = jobs.cluster.times(job)
    jobs.cluster.run("scontrol", "requeue", job)
    jobs.cluster.wait(job, "PENDING")
    time.sleep(1)
    # Slurm would hold it back for two minutes.
    jobs.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    gate.touch()
    assert jobs.cluster.wait(job) == "COMPLETED", jobs.outputs()
    second_times = jobs.cluster.times(job)

    records = jobs.records(f"small-{job}")
    assert sorted(records) == [(1, 0), (2, 0)]
    counts = [record.job.restart_count for record in records.values() if record.job]
    assert sorted(counts) == [0, 1]
    report = jobs.report(f"small-{job}")
    assert [attempt.outcome.value for attempt in report.attempts] == ["preempted", "completed"]
    waits = [start_s - eligible_s for _, eligible_s, start_s in (first_times, second_times)]
    held = [eligible_s - submit_s for submit_s, eligible_s, _ in (first_times, second_times)]
    assert report.queue.num_waits == 2
    assert report.queue.wait_s == pytest.approx(sum(waits), abs=2)
    assert report.queue.deferral_s == pytest.approx(sum(held), abs=2)
    assert {record.attempt.paid_from for record in records.values()} == {"allocation"}
    assert all(rate is None or rate >= 0 for rate in report.time_s.values())
    assert not [line for line in report.problems if "clock" in line or "backwards" in line]


def test_tasks_of_an_array_are_runs_of_their_own(jobs: Jobs) -> None:
    """The last task has the array's own id, and scontrol shows them all for it."""
    array = jobs.submit("--array=0-1", "--ntasks=1")
    until(lambda: len(list(Path(jobs.folder / "runs").glob("small-*/record-*"))) == 2, jobs)
    jobs.cluster.wait(array)
    runs = sorted(path.name for path in (jobs.folder / "runs").glob("small-*"))
    tasks = {}
    for run in runs:
        record = jobs.records(run)[1, 0]
        assert record.job is not None
        tasks[record.job.task] = record.job
        assert record.attempt.paid_from == "allocation"
    assert sorted(tasks) == ["0", "1"]
    assert len({task.job_id for task in tasks.values()}) == 2


@pytest.mark.parametrize(
    ("template", "command"),
    [("train.sbatch", ["{python}", "{script}"]), ("train_torchrun.sbatch", ["{script}"])],
)
def test_the_templates_run_as_they_are(jobs: Jobs, template: str, command: list[str]) -> None:
    """Slurm takes their options, and they pass times that need no scontrol inside."""
    words = [word.format(python=jobs.python, script=SCRIPT) for word in command]
    path = Path(__file__).parents[2] / "integrations" / "slurm" / template
    scripts = Path(jobs.python).parent
    job = jobs.cluster.submit(
        *("--ntasks=1", f"--output={jobs.folder}/%j.out", path, *words),
        **jobs.environ,
        PATH=f"{scripts}:{jobs.cluster.environ['PATH']}",
    )
    assert jobs.cluster.wait(job) == "COMPLETED", jobs.outputs()
    record = jobs.records(f"small-{job}")[1, 0]
    assert record.job is not None
    assert record.job.times_from == "settings"
    told = (record.job.submit_time, record.job.eligible_time, record.job.start_time)
    assert told == jobs.cluster.times(job)
    assert record.attempt.paid_from == "allocation"


def until(is_true: Callable[[], bool], jobs: Jobs, timeout_s: float = 90.0) -> None:
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s, jobs.outputs()
        time.sleep(0.2)
