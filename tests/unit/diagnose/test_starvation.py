"""Late batches of a job: all ranks wait for the latest, and each sees only its own turns of it."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.core.loading_records import LoadingPart
from costlens.core.torch_records import AllReducePart
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Finding
from costlens.diagnose.job import JOB_RULES
from costlens.diagnose.job_evidence import JobEvidence
from tests.unit.diagnose.scenes import NUM, on_device, starving
from tests.unit.diagnose.test_job_rules import make_job

BURSTS = (0.06,) * (NUM // 2) + (0.14,) * (NUM // 2)
"""Iterations of 100 ms on average, of which those with all batches in time take 60."""


def taking_turns(wait_s: float, durations_s: tuple[float, ...] = BURSTS) -> Evidence:
    """Return a rank of 100 s of iterations that waits for its own batches for some of them."""
    return starving(
        wait_s=wait_s, compute_s=100 - wait_s, worker_cpu_s=190.0, durations_s=durations_s
    )


def find_all(job: JobEvidence) -> dict[str, Finding]:
    """Return what rules about jobs find, by name."""
    verdicts = (rule.judge(job) for rule in JOB_RULES)
    return {verdict.name: verdict for verdict in verdicts if isinstance(verdict, Finding)}


def test_ranks_that_are_late_in_turn_lose_more_than_each_waits() -> None:
    """Four ranks wait 12 % each, which meet by chance only: no rank is to blame."""
    job = make_job(*[taking_turns(12.0)] * 4)
    found = find_all(job)
    assert set(found) == {"too_few_workers"}
    expected = 100 * (1 - 0.88**4) / 120
    assert found["too_few_workers"].saved_share == pytest.approx(expected, rel=0.01)
    assert "all 4 ranks wait" in found["too_few_workers"].evidence[0]


def test_no_more_is_lost_than_all_turns_together() -> None:
    """Two ranks of 8 % each lose 16 % at most, whatever else makes iterations uneven."""
    found = find_all(make_job(taking_turns(8.0), taking_turns(8.0)))
    assert found["too_few_workers"].saved_share == pytest.approx(15.4 / 120, rel=0.01)


def test_no_more_is_lost_than_the_shortest_iterations_tell() -> None:
    """Sixteen ranks wait 5 % each, which chance makes 56 %: 60 ms are the least, so it is 40 %."""
    found = find_all(make_job(*[taking_turns(5.0)] * 16))
    assert found["too_few_workers"].saved_share == pytest.approx(40 / 120, rel=0.03)


def test_the_rank_that_waits_longest_sets_the_least() -> None:
    """One rank waits 30 % and even iterations tell nothing: the others wait for it as long."""
    even = (0.1,) * NUM
    job = make_job(taking_turns(30.0, even), taking_turns(0.0, even), taking_turns(0.0, even))
    found = find_all(job)
    assert set(found) == {"too_few_workers"}
    assert found["too_few_workers"].saved_share == pytest.approx(30 / 120, rel=0.03)


def test_where_all_iterations_wait_the_middle_of_what_is_known_counts() -> None:
    """Two ranks wait 30 ms of even 100 each, chance makes that 51: at least 30 are lost.

    With DDP's word that they wait 10 ms more for one another, it is between 40 and 51.
    """
    even = taking_turns(30.0, (0.1,) * NUM)
    found = find_all(make_job(even, even))["too_few_workers"]
    assert found.saved_share == pytest.approx((30 + 51) / 2 / 120, rel=0.01)
    part = AllReducePart(num_sampled=10, exposed_s=0.12, least_exposed_s=0.002)
    timed = Evidence(even.now.model_copy(update={"all_reduce": part}))
    found = find_all(make_job(timed, timed))["too_few_workers"]
    assert found.saved_share == pytest.approx((40 + 51) / 2 / 120, rel=0.01)


def test_short_turns_of_many_ranks_count() -> None:
    """Of 32 ranks none waits for 4 % of the time, which is little for each and 40 % for all."""
    found = find_all(make_job(*[taking_turns(3.9)] * 32))
    assert found["too_few_workers"].saved_share == pytest.approx(40 / 120, rel=0.03)


def test_batches_in_time_starve_nobody() -> None:
    """Uneven iterations alone are no late batches."""
    assert make_job(*[taking_turns(0.5)] * 4).starvation is None


OWN_BATCHES: dict[str, Any] = {
    "num_workers": 0,
    "looks": {"num_waiting": 80, "in_dataset": 80},
}


def test_a_loop_that_makes_its_batches_itself_is_late_on_all_ranks_at_once() -> None:
    """Without workers each rank sees what all lose: 40 s of its own, and not a sum of them."""
    own = starving(**OWN_BATCHES)
    assert make_job(own, own).starvation is None


def test_such_loops_wait_for_the_latest_of_them_in_the_all_reduce() -> None:
    """Each waits 40 ms for its batch and 10 ms for a later rank, of which 4 are the network's."""
    reduce = AllReducePart(num_sampled=10, exposed_s=0.1, least_exposed_s=0.004)
    own = starving(**OWN_BATCHES, all_reduce=reduce)
    found = find_all(make_job(*[own] * 4))
    assert set(found) == {"data_preprocessing"}
    assert found["data_preprocessing"].saved_share == pytest.approx(46 / 120, rel=0.01)


def test_what_hosts_are_late_for_besides_is_not_the_batches() -> None:
    """A device waits 20 ms for its batch and 30 for later ranks; hosts load for 35 at most."""
    reduce = AllReducePart(num_sampled=10, exposed_s=0.3, least_exposed_s=0.0)
    own = on_device(
        {"data_wait": 20.0, "compute": 80.0},
        host_s={"data_wait": 35.0, "callbacks": 15.0, "compute": 50.0},
        loading=LoadingPart(num_workers=0),
        all_reduce=reduce,
    )
    starvation = make_job(*[own] * 4).starvation
    assert starvation is not None
    assert starvation.share == pytest.approx(0.35, rel=0.01)


def test_one_loop_that_makes_its_batches_slowly_is_no_matter_of_all() -> None:
    """Who waits twice as long as another keeps it waiting: that is a straggler."""
    reduce = AllReducePart(num_sampled=10, exposed_s=0.1, least_exposed_s=0.004)
    late, quick = (
        starving(wait_s=s, compute_s=100 - s, **OWN_BATCHES, all_reduce=reduce) for s in (40, 15)
    )
    assert make_job(late, quick).starvation is None
