"""What shows only in all ranks together: who keeps whom waiting, and what nobody uses."""

from __future__ import annotations

from typing import Any

import pytest

from costlens.core.job_records import JobPart
from costlens.core.records import StartupPart
from costlens.core.torch_records import AllReducePart
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, Finding, JobRule, Severity
from costlens.diagnose.job import (
    JOB_RULES,
    communication,
    faulty_node,
    gang_wait,
    idle_devices,
    queue_wait,
    straggler,
    throttling,
)
from costlens.diagnose.job_evidence import JobEvidence
from tests.unit.account.build import START, make_record
from tests.unit.diagnose.scenes import check, make_evidence, make_gpu, on_device


def put(own: Evidence, rank: int, per_node: int = 4, **fields: Any) -> Evidence:
    """Return the evidence as that of a rank of a job."""
    update = {"rank": rank, "host_name": f"node-{rank // per_node}", **fields}
    return Evidence(own.now.model_copy(update={"rank": own.now.rank.model_copy(update=update)}))


def make_job(*ranks: Evidence, per_node: int = 4) -> JobEvidence:
    """Return a job of these ranks."""
    return JobEvidence(tuple(put(own, rank, per_node) for rank, own in enumerate(ranks)))


def find(rule: JobRule, evidence: JobEvidence) -> Finding:
    """Return what a rule finds, and that no other rule about jobs finds anything."""
    for other in JOB_RULES:
        verdict = other.judge(evidence)
        assert other is rule or not isinstance(verdict, Finding), verdict
    return check(rule.name, rule.judge(evidence))


def on_cpu(forward_s: float, backward_s: float, **times: float) -> Evidence:
    """Return a rank that trains on the CPU for 100 s."""
    return make_evidence({"forward": forward_s, "backward": backward_s, "compute": 0.0} | times)


def spinning(tensor: float, busy: float = 1.0, sm: float = 0.8, **values: Any) -> Evidence:
    """Return a rank on a device whose tensor units were active for a share of 120 s."""
    activity = {"tensor": tensor * 120, "sm": sm * 120}
    gpu = make_gpu(
        (20 * 0 + 100 * busy) / 120, 120.0, activity_busy_s=activity, activity_s=120.0, **values
    )
    return on_device(gpu=gpu)


def test_a_slow_rank_on_the_cpu_is_found_by_what_comes_before_its_collectives() -> None:
    """Rank 2 takes 60 s forward and waits for nobody; with 30 + 20 s as the others all save 50."""
    fast, slow = on_cpu(30.0, 70.0), on_cpu(60.0, 40.0)
    found = find(straggler.RULE, make_job(fast, fast, slow, fast))
    assert found.ranks == (2,)
    assert found.saved_share == pytest.approx(50 / 120, rel=0.01)
    assert "rank 2" in found.evidence[0]


def test_a_rank_that_waits_for_data_keeps_the_others_waiting() -> None:
    """Its fetch comes before the collective as well, and is told."""
    fast, slow = on_cpu(30.0, 70.0), on_cpu(30.0, 30.0, data_wait=40.0)
    found = find(straggler.RULE, make_job(fast, fast, slow, fast))
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert any("waits for data" in line for line in found.evidence)


def test_equal_ranks_have_no_straggler() -> None:
    """Some per cent up and down are how machines differ."""
    job = make_job(on_cpu(30.0, 70.0), on_cpu(31.0, 69.0), on_cpu(29.5, 70.5))
    assert straggler.RULE.judge(job) is None


def test_spinning_devices_look_busy_and_are_told_by_their_tensor_units() -> None:
    """Utilization is 100 % everywhere; the slow one's units are active for twice as long."""
    job = make_job(spinning(0.3), spinning(0.3), spinning(0.3), spinning(0.6))
    found = find(straggler.RULE, job)
    assert found.ranks == (3,)
    assert found.saved_share == pytest.approx(50 / 120, rel=0.01)


def test_a_rank_with_a_slow_host_is_the_one_whose_device_idles() -> None:
    """Equal work everywhere: the others spin while it waits for its host, and look busier."""
    job = make_job(spinning(0.5), spinning(0.5), spinning(0.5, busy=0.7), spinning(0.5))
    found = find(straggler.RULE, job)
    assert found.ranks == (2,)
    assert found.saved_share == pytest.approx(30 / 120, rel=0.05)


def test_clocks_stand_in_where_units_are_not_told() -> None:
    """An A100 tells no activity: a clock at three quarters is a third longer."""
    ranks = [
        on_device(gpu=make_gpu(100 / 120, 120.0, sm_clock_hertz=hertz))
        for hertz in (1.4e9, 1.4e9, 1.05e9, 1.4e9)
    ]
    found = find(straggler.RULE, make_job(*ranks))
    assert found.ranks == (2,)
    assert found.saved_share == pytest.approx(25 / 120, rel=0.01)


def test_devices_that_tell_nothing_leave_it_open() -> None:
    """Neither activity nor clocks: the rule says what it misses."""
    verdict = straggler.RULE.judge(make_job(on_device(), on_device()))
    assert isinstance(verdict, Abstention)
    assert "clocks" in verdict.missing


def test_all_ranks_of_a_node_are_the_nodes_fault() -> None:
    """Both ranks of node-1 are slow, of two and two: the node is named, and to be left out."""
    job = make_job(spinning(0.3), spinning(0.3), spinning(0.6), spinning(0.6), per_node=2)
    found = find(faulty_node.RULE, job)
    assert [place.host_name for place in found.places] == ["node-1"]
    assert found.saved_share == pytest.approx(50 / 120, rel=0.01)
    assert "--exclude=node-1" in found.remedies[0].text


def test_attempts_that_keep_failing_on_one_node() -> None:
    """Three attempts whose first failure was on the same of two nodes each time."""
    earlier = [
        make_record(number, rank, world_size=16, outcome=outcome)
        for number in (1, 2, 3)
        for rank, outcome in ((0, "interrupted"), (8, "failed"))
    ]
    ranks = tuple(put(make_evidence(), rank, per_node=8) for rank in (0, 8))
    found = faulty_node.RULE.judge(JobEvidence(ranks, tuple(earlier)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL
    assert [place.host_name for place in found.places] == ["node-1"]
    assert faulty_node.RULE.judge(JobEvidence(ranks, tuple(earlier[:4]))) is None


def test_a_slow_rank_that_is_held_down_is_throttled() -> None:
    """The heat is the cause and the straggling its effect: what it costs is that of all ranks."""
    hot = spinning(0.6, throttle_s={"thermal_hw": 100.0})
    found = find(throttling.RULE, make_job(spinning(0.3), hot, spinning(0.3), spinning(0.3)))
    assert found.ranks == (1,)
    assert found.places[0].gpu_uuid == "GPU-0"
    assert found.saved_share == pytest.approx(50 / 120, rel=0.01)


def test_devices_that_all_spin_spend_their_time_in_collectives() -> None:
    """Kernels run all the time, a quarter of the units is active on all: half and more is talk."""
    ranks = [spinning(0.2, sm=0.3) for _ in range(4)]
    found = find(communication.RULE, make_job(*ranks))
    expected = (0.85 - 0.3 * 120 / 100) / 0.75
    assert found.saved_share == pytest.approx(expected * 100 / 120, rel=0.01)


def reducing(own: Evidence, exposed_s: float, least_s: float = 0.0) -> Evidence:
    """Return a rank that waits so long for its gradients in each of ten passes that DDP times."""
    part = AllReducePart(num_sampled=10, exposed_s=10 * exposed_s, least_exposed_s=least_s)
    return Evidence(own.now.model_copy(update={"all_reduce": part}))


def test_what_ddp_times_goes_before_what_units_tell() -> None:
    """Units that are active do not hide it: 30 ms of 100 on the rank that waits least."""
    ranks = [reducing(spinning(0.5, sm=0.7), s) for s in (0.03, 0.034, 0.031, 0.035)]
    found = find(communication.RULE, make_job(*ranks))
    assert found.saved_share == pytest.approx(30 / 120, rel=0.01)


def test_an_all_reduce_that_computing_hides_is_fine() -> None:
    """Units at rest are small kernels, where DDP says that nobody waits for gradients."""
    ranks = [reducing(spinning(0.2, sm=0.3), 0.008)] * 4
    assert communication.RULE.judge(make_job(*ranks)) is None


def test_cpus_tell_their_collectives_where_ddp_times_them() -> None:
    """Of 100 s in 1000 iterations, 20 ms each."""
    ranks = [reducing(on_cpu(30.0, 70.0), 0.02)] * 2
    found = find(communication.RULE, make_job(*ranks))
    assert found.saved_share == pytest.approx(20 / 120, rel=0.05)


def test_ranks_late_in_turn_wait_for_more_than_the_all_reduce() -> None:
    """Without their batches, only the shortest pass is the network's alone: 2 ms, which is fine."""
    late = reducing(on_device({"data_wait": 30.0, "compute": 70.0}), 0.03, 0.002)
    assert communication.RULE.judge(make_job(*[late] * 4)) is None


def test_ranks_that_wait_for_late_batches_talk_no_more_than_else() -> None:
    """Devices that spin for a rank without its batch look the same: it is left open."""
    activity = {"tensor": 24.0, "sm": 36.0}
    gpu = make_gpu(70 / 120, 120.0, activity_busy_s=activity, activity_s=120.0)
    late = on_device({"data_wait": 30.0, "compute": 70.0}, gpu=gpu)
    verdict = communication.RULE.judge(make_job(*[late] * 4))
    assert isinstance(verdict, Abstention)
    assert "batches in time" in verdict.missing


def test_active_devices_talk_little() -> None:
    """Units that are active most of the time are no communication."""
    assert communication.RULE.judge(make_job(*[spinning(0.5, sm=0.7)] * 4)) is None


def test_cpus_do_not_tell_their_collectives() -> None:
    """There they are a part of the backward pass."""
    verdict = communication.RULE.judge(make_job(on_cpu(30.0, 70.0), on_cpu(30.0, 70.0)))
    assert isinstance(verdict, Abstention)


def test_who_waits_longer_between_batches_waits_for_a_rank_and_not_for_the_exchange() -> None:
    """Time that is booked as communication counts as far as every rank has it."""
    ahead = on_cpu(40.0, 40.0, communication=20.0)
    behind = on_cpu(40.0, 40.0, communication=1.0, callbacks=19.0)
    assert not isinstance(communication.RULE.judge(make_job(ahead, behind)), Finding)
    found = find(communication.RULE, make_job(ahead, ahead))
    assert found.saved_share == pytest.approx(20 / 120, rel=0.01)


@pytest.mark.parametrize(("exposed_s", "reduced_s"), [(0.02, 20), (0.008, 0)])
def test_what_is_booked_comes_on_top_of_the_all_reduce(exposed_s: float, reduced_s: int) -> None:
    """Two exchanges of one iteration: 10 s booked between batches, and 20 that DDP times.

    An all-reduce that is left alone by itself is left alone beside what is booked, too.
    """
    ranks = [reducing(on_cpu(40.0, 50.0, communication=10.0), exposed_s)] * 2
    found = find(communication.RULE, make_job(*ranks))
    assert found.saved_share == pytest.approx((10 + reduced_s) / 120, rel=0.05)


def test_devices_that_nobody_drives() -> None:
    """Two of eight: a quarter of all that is paid for."""
    ranks = [put(on_device(), n, 8, num_gpus=1, unowned_gpus=None if n else 2) for n in range(6)]
    found = idle_devices.RULE.judge(JobEvidence(tuple(ranks)))
    assert check("idle_devices", found).saved_share == pytest.approx(2 / 8)
    alone = JobEvidence((put(on_device(), 0, num_gpus=1, unowned_gpus=0),))
    assert idle_devices.RULE.judge(alone) is None


def test_ranks_that_wait_for_the_last_to_start() -> None:
    """Three waited for 60 s and the fourth for 1: it came last."""
    ranks = [make_evidence(startup=StartupPart(gang_wait_s=s)) for s in (60.0, 60.0, 1.0, 60.0)]
    found = find(gang_wait.RULE, make_job(*ranks))
    assert found.ranks == (2,)
    assert found.saved_share == pytest.approx(3 * 59 / (4 * 120), rel=0.01)


def test_ranks_that_connect_slowly_wait_for_nobody() -> None:
    """All took as long: there is no one to hurry."""
    ranks = [make_evidence(startup=StartupPart(gang_wait_s=60.0)) for _ in range(4)]
    assert gang_wait.RULE.judge(make_job(*ranks)) is None


@pytest.mark.parametrize(("hours", "is_found"), [(5.0, True), (0.5, False)])
def test_long_waits_in_the_queue(hours: float, is_found: bool) -> None:
    """Five hours are told, half an hour is not; it has no price."""
    job = JobPart(scheduler="slurm", eligible_time=START - hours * 3600, start_time=START)
    found = queue_wait.RULE.judge(make_job(make_evidence(job=job)))
    assert (found is not None) is is_found
    if isinstance(found, Finding):
        assert found.saved_share is None


def test_one_rank_alone_waits_for_nobody() -> None:
    """No rule about all ranks finds anything in a job of one."""
    verdicts = [rule.judge(make_job(on_device())) for rule in JOB_RULES]
    assert verdicts == [None] * len(JOB_RULES)
