"""How long a job waited in its scheduler's queue: deferral apart from the wait, each once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from costlens.account.ledger import merge
from costlens.account.queue import measure_wait
from costlens.core.job_records import MAX_WAITS, JobPart, QueuePart
from costlens.core.records import RankRecord
from tests.unit.account.build import START, make_record

TIMES = st.one_of(st.none(), st.integers(0, 10_000).map(float))


def make_job(
    submit: float | None, eligible: float | None, start: float | None, **facts: Any
) -> Any:
    """Return a Slurm job with these times."""
    times = {"submit_time": submit, "eligible_time": eligible, "start_time": start}
    return JobPart.model_validate({"scheduler": "slurm", "job_id": "7", **times, **facts})


def queue_of(*records: RankRecord) -> tuple[QueuePart, list[str]]:
    """Return the waits of a run and what is flagged."""
    merged = merge(records, now=START + 1_000_000)
    return merged.queue, [line for line in merged.problems if "scheduler" in line]


def test_deferral_is_not_waiting() -> None:
    """C143: submitted 1000, eligible 1600, started 1900: a wait of 300 after a deferral of 600."""
    queue, flags = queue_of(make_record(job=make_job(1000, 1600, 1900)))
    assert (queue.wait_s, queue.deferral_s, queue.num_waits, flags) == (300, 600, 1, [])
    assert queue.waits[0].counted_from == "eligible"


def test_outside_a_scheduler_the_wait_is_absent() -> None:
    """C143: no scheduler, no wait, and no zero either."""
    queue, _ = queue_of(make_record())
    assert queue == QueuePart()
    assert (queue.wait_s, queue.deferral_s) == (None, None)


def test_a_start_before_the_submission_is_clamped_and_flagged() -> None:
    """C143: two clocks, or a repaired one: 0 and a line, never a negative wait."""
    queue, flags = queue_of(make_record(job=make_job(1000, 1600, 900)))
    assert (queue.wait_s, queue.deferral_s) == (0, 0)
    assert queue.waits[0].is_contradictory
    assert len(flags) == 1
    assert "go backwards" in flags[0]


@given(TIMES, TIMES, TIMES)
def test_no_wait_is_negative_or_longer_than_it_can_be(
    submit: float | None, eligible: float | None, start: float | None
) -> None:
    """Whatever the times: parts are >= 0, and in order they add up to submission until start."""
    wait = measure_wait(submit, eligible, start)
    if wait is None:
        assert start is None or (submit is None and eligible is None)
        return
    assert wait.wait_s >= 0
    assert wait.deferral_s is None or wait.deferral_s >= 0
    if submit is not None and eligible is not None and start is not None:
        is_ordered = submit <= eligible <= start
        assert wait.is_contradictory is not is_ordered
        if is_ordered:
            assert wait.wait_s + (wait.deferral_s or 0) == start - submit


def test_without_the_time_of_eligibility_deferral_is_unknown() -> None:
    """The wait then counts from the submission, and says so."""
    queue, _ = queue_of(make_record(job=make_job(1000, None, 1900)))
    assert (queue.wait_s, queue.deferral_s) == (900, None)
    assert queue.waits[0].counted_from == "submit"


def test_times_that_nobody_tells_leave_the_wait_absent_with_the_reason() -> None:
    """A job without submission has no wait of 0."""
    job = make_job(None, None, START, times_unknown="scontrol is not installed")
    queue, _ = queue_of(make_record(job=job))
    assert (queue.wait_s, queue.num_waits) == (None, 0)
    assert queue.unknown == "attempt 1: scontrol is not installed"


def test_a_job_that_is_queued_again_waits_again() -> None:
    """C010: waits of two allocations are summed; each has its own submission."""
    first = make_record(1, job=make_job(START - 500, START - 400, START, restart_count=0))
    again = START + 1000
    second = make_record(2, job=make_job(again - 150, again - 30, again, restart_count=1))
    queue, flags = queue_of(first, second)
    assert (queue.wait_s, queue.deferral_s, queue.num_waits, flags) == (430, 220, 2, [])
    assert [wait.attempt for wait in queue.waits] == [1, 2]


def test_a_job_that_is_queued_again_within_a_second_of_its_start_waits_again() -> None:
    """Slurm cuts its times to whole seconds: a submission at START + 0.9 is told as START."""
    first = make_record(1, job=make_job(START - 500, START - 400, START), start_time=START + 0.4)
    second = make_record(2, job=make_job(START, START + 120, START + 150, restart_count=1))
    queue, _ = queue_of(first, second)
    assert (queue.wait_s, queue.num_waits, queue.unknown) == (430, 2, None)


def test_launches_of_one_allocation_waited_once() -> None:
    """A script that starts the training again inside its job does not wait again."""
    job = make_job(START - 500, START - 400, START)
    known = job.model_copy(update={"is_allocation_owner": False})
    for second in (job, known):
        queue, _ = queue_of(make_record(1, job=job), make_record(2, job=second))
        assert (queue.wait_s, queue.num_waits) == (400, 1)


def test_a_submission_that_was_handed_on_is_not_taken_for_a_new_one() -> None:
    """A template's variable stays the same when a pod is made again: that wait is unknown."""
    first = make_record(1, job=make_job(START - 500, None, START, pod_uid="a", job_id=None))
    second = make_record(2, job=make_job(START - 500, None, START + 1000, pod_uid="b", job_id=None))
    queue, _ = queue_of(first, second)
    assert (queue.wait_s, queue.num_waits) == (500, 1)
    assert "attempt 2" in (queue.unknown or "")


def test_ranks_of_a_launch_waited_together() -> None:
    """C025: the wait is the job's, told by one rank, not a sum over ranks."""
    job = make_job(1000, 1600, 1900)
    unknown = make_job(None, None, None)
    records = [make_record(1, rank, world_size=3, job=job) for rank in (1, 2)]
    queue, _ = queue_of(make_record(1, 0, world_size=3, job=unknown), *records)
    assert (queue.wait_s, queue.num_waits) == (300, 1)


def test_many_waits_are_summed_and_the_newest_listed() -> None:
    """The merged record stays small over a thousand restarts."""
    records = [
        make_record(number, job=make_job(at - 20, at - 10, at, restart_count=number), start_time=at)
        for number in range(1, 101)
        if (at := START + 1000.0 * number)
    ]
    queue, _ = queue_of(*records)
    assert (queue.wait_s, queue.num_waits, len(queue.waits)) == (1000, 100, MAX_WAITS)
    assert queue.waits[-1].attempt == 100


def test_clocks_that_differ_are_flagged() -> None:
    """The host's and the scheduler's clocks are compared once, and the difference is told."""
    _, flags = queue_of(make_record(job=make_job(1000, 1600, 1900, clock_skew_s=90.0)))
    assert any("90 s apart" in line for line in flags)
