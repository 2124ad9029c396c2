"""The causal model of training runs by itself: without it nobody could trust its judgement."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks import diagnosis as simulation
from benchmarks.diagnosis.cases import Plan, make_case
from benchmarks.diagnosis.engine import simulate
from benchmarks.diagnosis.healthy import draw_healthy
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.plants import PLANTS
from benchmarks.diagnosis.recorder import write_records
from benchmarks.diagnosis.truth import compare, make_bill
from costlens.core.clock import NS_PER_S
from costlens.core.phases import Phase
from costlens.core.records import RankRecord

QUICK = Job(seed=1, duration_s=60.0, launch_s=0.01)


def wait_share(record: RankRecord) -> float:
    """Return the share of time that is priced as a wait for data."""
    return record.time_ns["data_wait"] / record.total_ns


@pytest.mark.parametrize("seed", range(6))
def test_no_time_is_lost_or_made(seed):
    """Spans follow one another without a gap, and each record's phases add up to its time."""
    job = replace(draw_healthy(np.random.default_rng(seed), seed), duration_s=60.0)
    for trace in simulate(job)[:2]:
        ends_s = [end_s for _, end_s in trace.spans]
        assert ends_s == sorted(ends_s)
        for record in write_records(job, trace):
            assert sum(record.time_ns.values()) == record.total_ns
            assert record.host_ns is None or sum(record.host_ns.values()) == record.total_ns
        assert record.total_ns == pytest.approx((trace.end_s - trace.begin_s) * NS_PER_S, abs=10)


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_a_record_never_go_back(seed):
    """From window to window no sum of a record falls, and every record is one that can be read."""
    job = replace(draw_healthy(np.random.default_rng(seed), seed), duration_s=60.0)
    records = write_records(job, simulate(job)[0])
    assert len(records) >= 6
    for before, now in pairwise(records):
        assert RankRecord.model_validate_json(now.model_dump_json()) == now
        assert now.total_ns > before.total_ns
        assert now.iteration_time.count >= before.iteration_time.count
        assert all(now.time_ns[name] >= before.time_ns[name] - 1 for name in now.time_ns)
        assert now.host.loader is None or now.host.loader.cpu_s >= (
            0.0 if before.host.loader is None else before.host.loader.cpu_s
        )
        for gpu, earlier in zip(now.gpus, before.gpus, strict=True):
            assert gpu.busy_s >= earlier.busy_s
            assert gpu.busy_s <= gpu.utilization_s


def test_a_seed_is_a_run():
    """The same job does the same each time, and another seed does something else."""
    again = simulate(QUICK)[0].spans
    assert simulate(QUICK)[0].spans == again
    assert simulate(replace(QUICK, seed=2))[0].spans != again


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.cause}-{plant.area}")
def test_mending_a_cause_saves(plant):
    """Every plant that is a loss costs at least 8 % of the paid time, and a danger costs none."""
    case = make_case(Plan(300 + PLANTS.index(plant), (plant,)))
    saving = case.savings[plant.cause]
    if plant.is_loss:
        assert 0.08 <= saving.whole < 0.7
    else:
        assert saving is None


@pytest.mark.parametrize(
    ("name", "mild", "bad"),
    [
        ("sample_cpu_s", 0.1, 0.2),
        ("logging_s", 0.4, 0.6),
        ("num_syncs", 500, 1500),
        ("fill", 0.7, 0.5),
        ("compile_s", 2.0, 8.0),
    ],
)
def test_more_of_a_cause_costs_more(name, mild, bad):
    """The more of a cause there is, the more mending it saves."""
    sound = replace(QUICK, compile_every=40, loader_cpus=4)
    bills = [
        make_bill(job, simulate(job))
        for job in (sound, replace(sound, **{name: mild}), replace(sound, **{name: bad}))
    ]
    savings = [compare(bill, bills[0]).steady for bill in bills]
    assert savings[0] == 0
    assert savings[0] < savings[1] < savings[2] < 1


def test_prefetching_hides_the_loading():
    """C016: what workers load beside the computing is not waited for, however long it takes."""
    job = replace(QUICK, device="cpu", num_workers=4, sample_cpu_s=0.02, work_s=0.3 / 17_246)
    assert job.batch_load_s > 2 * job.iteration_s
    assert wait_share(write_records(job, simulate(job)[0])[-1]) < 0.02


def test_a_device_with_work_waits_for_nobody():
    """A host that waits for a batch while its device is behind exposes no wait."""
    job = replace(QUICK, num_workers=0, sample_cpu_s=0.003)
    last = write_records(job, simulate(job)[0])[-1]
    assert last.host_ns["data_wait"] / last.total_ns > 0.1
    assert wait_share(last) < 0.02


def test_device_work_surfaces_in_the_transfer():
    """A copy from pageable memory waits for all that is enqueued, and the device is busy then."""
    job = replace(QUICK, pin_memory=False, copy_bytes=1e6)
    last = write_records(job, simulate(job)[0])[-1]
    assert last.host_ns["transfer"] / last.total_ns > 0.4
    assert last.gpus[0].busy_s / last.gpus[0].utilization_s > 0.7


def test_a_stopped_process_is_one_long_iteration():
    """C011: a stop of 20 s is paid for and stands in one iteration; the median does not move."""
    stopped = replace(QUICK, stop_at_s=30.0, stop_s=20.0)
    last = write_records(stopped, simulate(stopped)[0])[-1]
    usual = write_records(QUICK, simulate(QUICK)[0])[-1]
    assert last.iteration_time.median_s == pytest.approx(usual.iteration_time.median_s, rel=0.02)
    assert last.iteration_time.buckets[-6] + sum(last.iteration_time.buckets[-5:]) == 1


def test_ranks_wait_for_the_slowest():
    """All ranks take as long as the slowest; on the CPU the others wait in the backward pass."""
    job = replace(QUICK, device="cpu", num_ranks=3, clocks=((1, 0.6),))
    ends = [trace.cuts[-1].end_s for trace in simulate(job)]
    assert max(ends) - min(ends) < 0.05
    shares = [
        write_records(job, trace)[-1].time_ns["forward"] / NS_PER_S for trace in simulate(job)
    ]
    assert shares[1] > 1.4 * max(shares[0], shares[2])


def test_waiting_devices_spin():
    """A device that waits in the all-reduce is as busy as one that computes, but its units rest."""
    job = replace(QUICK, num_ranks=2, clocks=((1, 0.6),))
    fast, slow = (write_records(job, trace)[-1].gpus[0] for trace in simulate(job))
    assert fast.busy_s / fast.utilization_s > 0.9 * slow.busy_s / slow.utilization_s
    assert fast.activity_busy_s["sm"] < 0.8 * slow.activity_busy_s["sm"]


def test_ddp_times_what_ranks_wait_for_their_gradients() -> None:
    """In one pass of a hundred: the slow rank waits for the all-reduce, the fast one for both."""
    job = replace(QUICK, duration_s=120.0, num_ranks=2, comm_s=0.5, clocks=((1, 0.6),))
    parts = [write_records(job, trace)[-1].all_reduce for trace in simulate(job)]
    own_s = job.exposed_comm_s
    assert all(part is not None and part.num_sampled == 1 for part in parts)
    assert parts[1].exposed_s == pytest.approx(own_s, rel=0.01)
    assert parts[0].exposed_s > own_s + 0.1
    other = replace(job, is_ddp=False)
    assert write_records(other, simulate(other)[0])[-1].all_reduce is None


def test_saves_and_validations_are_no_iterations():
    """What training stands still for is in its own phase, and not in the speed."""
    job = replace(QUICK, save_every=40, save_s=3.0, validate_every=60, validation_s=5.0)
    trace = simulate(job)[0]
    last = write_records(job, trace)[-1]
    assert last.time_ns["checkpoint"] >= 3.0 * len(trace.saves) * NS_PER_S
    assert last.time_ns["validation"] >= 5.0 * len(trace.validations) * NS_PER_S
    assert len(trace.saves) > 1
    assert last.iteration_time.p99_s < 1.0
    assert int(Phase.CHECKPOINT) in {phase for phase, _ in trace.spans}


def test_the_simulator_knows_no_rule() -> None:
    """What is judged by it cannot leak into it: only those who ask the rules import them."""
    asking = {"judging.py", "speed.py"}
    folder = Path(simulation.__file__).parent
    knowing = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
        )
        if name.startswith("costlens.diagnose")
    }
    assert knowing == asking
