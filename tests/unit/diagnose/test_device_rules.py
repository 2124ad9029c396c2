"""What a device stands still for, or computes in vain: judged by its idling, not by the host."""

from __future__ import annotations

import pytest

from costlens.core.loading_records import LoadingPart, LooksPart
from costlens.core.precision_records import PrecisionPart
from costlens.core.torch_records import AllocatorPart, AllReducePart, CompilerPart
from costlens.diagnose.finding import Finding, Severity
from costlens.diagnose.rules import (
    RULES,
    compute_bound,
    fragmentation,
    full_precision,
    hardware_fault,
    memory_creep,
    memory_pressure,
    padding_waste,
    recompilation,
    small_batch,
    sync_points,
    throttling,
    transfer,
)
from tests.unit.diagnose.scenes import (
    GIBIBYTE,
    find,
    make_evidence,
    make_gpu,
    make_host,
    miss,
    on_device,
    since,
)

# Of 120 s the device idles in 20 s of start-up anyway; `idle` is what comes on top, in iterations.


def idling(idle_s: float, **values: object):  # type: ignore[no-untyped-def]
    """Return a device that idles for so many seconds of the 100 in iterations."""
    return make_gpu((100 - idle_s) / 120, 120.0, **values)


def test_copies_from_pageable_memory_that_the_device_waits_for() -> None:
    """30 s of copies in which no kernel runs: pinned memory lets them run beside kernels."""
    evidence = on_device(
        host_s={"transfer": 35.0, "compute": 65.0},
        gpu=idling(30.0),
        loading=LoadingPart(pin_memory=False),
    )
    found = find(transfer.RULE, evidence)
    assert found.saved_share == pytest.approx(30 / 120, rel=0.01)
    assert "pin_memory=True" in found.remedies[0].text
    assert "non_blocking=True" in found.remedies[0].text


def test_a_pinned_copy_still_takes_its_own_time() -> None:
    """125 GB through PCIe take 5 s from pinned memory: so much of 30 s of idling is not saved."""
    gpu = idling(30.0).model_copy(update={"io_bytes": {"pcie_receive": 125 * 10**9}})
    evidence = on_device(host_s={"transfer": 35.0, "compute": 65.0}, gpu=gpu)
    assert find(transfer.RULE, evidence).saved_share == pytest.approx((30 - 5) / 120, rel=0.02)


def test_device_work_that_surfaces_in_the_transfer_is_none() -> None:
    """A host that blocks in the copy while the device computes holds nothing up."""
    evidence = on_device(host_s={"transfer": 90.0, "compute": 10.0}, gpu=idling(1.0))
    assert transfer.RULE.judge(evidence) is None


def test_transfer_needs_the_utilization() -> None:
    """A device that nobody samples (a MIG slice) may idle or not."""
    gpu = make_gpu(0, 0)
    assert "NVML" in miss(transfer.RULE, on_device(host_s={"transfer": 50.0}, gpu=gpu))


def test_waits_for_results_let_host_and_device_take_turns() -> None:
    """Half idle, 60 % of looks in item(): side by side the device's 50 s are the longer ones."""
    evidence = on_device(gpu=idling(50.0), looks=LooksPart(num_iterating=200, in_sync=120))
    found = find(sync_points.RULE, evidence)
    assert found.saved_share == pytest.approx(50 / 120, rel=0.01)
    assert ".item()" in found.remedies[0].text
    assert small_batch.RULE.judge(evidence) is None


def test_a_queue_of_kernels_hides_only_so_much_of_logging() -> None:
    """Host and device take turns for 60 and 40 s; logging takes 40 of the host's.

    Launching takes 30 s: 6000 kernels an iteration at most, so that a queue of 1024 holds work for
    6.8 s, and 33 s of logging show.
    """
    evidence = on_device(
        host_s={"logging": 40.0, "compute": 60.0},
        gpu=idling(60.0),
        looks=LooksPart(num_iterating=200, in_sync=60),
    )
    found = find(sync_points.RULE, evidence)
    assert found.saved_share == pytest.approx((60 - 40 + 6.83) / 120, rel=0.01)


def test_without_waits_for_results_batches_are_made_beside_the_device() -> None:
    """A loop that makes its batches itself, in 20 s: 10 of them would be hidden as well."""
    evidence = on_device(
        {"data_wait": 20.0, "compute": 80.0},
        host_s={"data_wait": 20.0, "compute": 80.0},
        gpu=idling(60.0),
        looks=LooksPart(num_iterating=200, in_sync=150),
        loading=LoadingPart(num_workers=0),
    )
    found = find(sync_points.RULE, evidence)
    assert found.saved_share == pytest.approx((40 + 10.24) / 120, rel=0.01)


def test_idling_that_hooks_explain_is_theirs() -> None:
    """A host that waits for the loss, and then works in hooks for 30 s, is slow in its hooks."""
    looks = LooksPart(num_iterating=200, in_sync=100)
    host_s = {"callbacks": 30.0, "compute": 70.0}
    assert sync_points.RULE.judge(on_device(host_s=host_s, gpu=idling(30.0), looks=looks)) is None


def test_a_slice_without_utilization_is_not_idle() -> None:
    """C076: a MIG device that tells no utilization is unknown, never at 0 %: nothing is found."""
    gpu = make_gpu(0, 0, absent={"utilization": "not_supported"})
    looks = LooksPart(num_iterating=200, in_sync=100)
    evidence = on_device(gpu=gpu, looks=looks)
    found = [rule.judge(evidence) for rule in RULES]
    assert [verdict.name for verdict in found if isinstance(verdict, Finding)] == ["compute_bound"]


def test_rare_waits_for_results_are_no_sync_points() -> None:
    """Logging every 50 steps is seen now and then."""
    evidence = on_device(gpu=idling(50.0), looks=LooksPart(num_iterating=200, in_sync=8))
    assert sync_points.RULE.judge(evidence) is None


def test_sync_points_need_looks() -> None:
    """Idling without a look at the host is not told apart."""
    assert "looks" in miss(sync_points.RULE, on_device(gpu=idling(50.0)))


def test_a_full_device_that_waits_for_results_loses_nothing() -> None:
    """The host stands in item() because the device is busy: nothing idles."""
    evidence = on_device(gpu=idling(1.0), looks=LooksPart(num_iterating=200, in_sync=190))
    assert sync_points.RULE.judge(evidence) is None


def test_small_batches_on_an_empty_device() -> None:
    """A tenth of the memory used and 60 % idle: eight times the batch, limited by the busy 40 %."""
    gpu = idling(60.0, memory_peak_bytes=8 * GIBIBYTE)
    evidence = on_device(gpu=gpu, loading=LoadingPart(batch_size=4))
    found = find(small_batch.RULE, evidence)
    assert found.saved_share == pytest.approx(60 / 120, rel=0.01)
    assert found.is_least, "nobody tells how much of the device its kernels fill"
    assert "batch_size=32 instead of 4" in found.remedies[0].text


def test_small_batches_on_a_device_that_tells_how_full_it_is() -> None:
    """Kernels of 40 s keep half of the units busy that full ones do: 20 s are enough for them."""
    activity = {"activity_busy_s": {"sm": 0.85 * 20.0}, "activity_s": 120.0}
    gpu = idling(60.0, memory_peak_bytes=8 * GIBIBYTE, **activity)
    found = find(small_batch.RULE, on_device(gpu=gpu))
    assert found.saved_share == pytest.approx(80 / 120, rel=0.01)
    assert not found.is_least


def test_a_device_without_free_memory_takes_no_larger_batch() -> None:
    """Idling with 70 of 80 GiB used is not the batch's size."""
    assert small_batch.RULE.judge(on_device(gpu=idling(60.0))) is None


def test_small_batches_need_the_memory() -> None:
    """Without the device's memory nothing says that a larger batch fits."""
    gpu = idling(60.0, memory_total_bytes=None)
    assert "memory" in miss(small_batch.RULE, on_device(gpu=gpu))


def test_what_the_compiler_takes_is_not_the_batch() -> None:
    """Idling that compilations explain is theirs."""
    gpu = idling(40.0, memory_peak_bytes=8 * GIBIBYTE)
    compiler = CompilerPart(num_compilations=20, compile_s=40.0, num_startup=1, startup_s=2.0)
    evidence = on_device(gpu=gpu, compiler=compiler)
    assert small_batch.RULE.judge(evidence) is None
    found = find(recompilation.RULE, evidence)
    assert found.saved_share == pytest.approx(38 / 120, rel=0.01)


def test_the_compilations_of_start_up_are_none() -> None:
    """A model that compiles for a minute at first is no fault."""
    compiler = CompilerPart(num_compilations=9, compile_s=60.0, num_startup=7, startup_s=58.0)
    assert recompilation.RULE.judge(on_device(compiler=compiler)) is None


def test_32_bits_on_tensor_cores() -> None:
    """An H100 that trains in fp32 is worth a third of its computing at least."""
    precision = PrecisionPart(requested="off", effective="fp32", reason="a default")
    rank = {"accelerator": "NVIDIA H100 80GB HBM3"}
    found = find(full_precision.RULE, on_device(precision=precision, rank=rank))
    assert found.saved_share == pytest.approx(100 / 3 / 120, rel=0.01)
    assert found.is_least
    assert "bf16" in found.remedies[0].text


def test_a_faster_device_hides_less_of_its_hosts_work() -> None:
    """Callbacks of 15 s run behind the queue: of a queue a third shorter, a third of them shows."""
    precision = PrecisionPart(requested="off", effective="fp32", reason="a default")
    evidence = on_device(
        host_s={"callbacks": 15.0, "compute": 85.0},
        precision=precision,
        rank={"accelerator": "NVIDIA H100 80GB HBM3"},
    )
    found = find(full_precision.RULE, evidence)
    assert found.saved_share == pytest.approx((100 - 15) / 3 / 120, rel=0.01)


@pytest.mark.parametrize(("exposed_s", "reducing_s"), [(0.03, 30.0), (None, 10.0)])
def test_16_bits_make_no_all_reduce_shorter(exposed_s: float | None, reducing_s: float) -> None:
    """The third is of what the device computes: what it waits for gradients stays, as DDP times it.

    A tenth where nobody does.
    """
    precision = PrecisionPart(requested="off", effective="fp32", reason="a default")
    rank = {"accelerator": "NVIDIA H100 80GB HBM3", "world_size": 4}
    part = None
    if exposed_s is not None:
        part = AllReducePart(num_sampled=10, exposed_s=10 * exposed_s)
    evidence = on_device(precision=precision, rank=rank, all_reduce=part)
    found = find(full_precision.RULE, evidence)
    assert found.saved_share == pytest.approx((100 - reducing_s) / 3 / 120, rel=0.01)


@pytest.mark.parametrize(
    ("effective", "accelerator"),
    [("bf16", "NVIDIA H100 80GB HBM3"), ("fp32", "NVIDIA GeForce GTX 1080"), ("fp32", None)],
)
def test_16_bits_or_none_to_have_are_fine(effective: str, accelerator: str | None) -> None:
    """Nothing to find where 16 bits are used, or the hardware has no units for them."""
    precision = PrecisionPart(requested="off", effective=effective, reason="so")
    evidence = on_device(precision=precision, rank={"accelerator": accelerator})
    assert full_precision.RULE.judge(evidence) is None


def test_precision_that_nobody_tells_is_not_judged() -> None:
    """A plain loop without run.autocast() may use its own."""
    evidence = on_device(rank={"accelerator": "NVIDIA A100-SXM4-80GB"})
    assert "run.autocast" in miss(full_precision.RULE, evidence)


def test_heat_that_holds_the_clock_down() -> None:
    """Throttled all the time to 60 % of its clock: 40 % of the computing is lost."""
    throttle = {"thermal_hw": 120.0, "power_cap": 0.0}
    gpu = idling(0.0, throttle_s=throttle, throttle_loss_s=48.0, temperature_celsius=91.0)
    found = find(throttling.RULE, on_device(gpu=gpu))
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert found.places[0].gpu_uuid == "GPU-0"
    assert any("91 °C" in line for line in found.evidence)


def test_a_power_cap_is_how_large_boards_run() -> None:
    """The cap alone is no finding, however long it lasts."""
    gpu = idling(0.0, throttle_s={"power_cap": 120.0, "thermal_hw": 0.0}, throttle_loss_s=0.0)
    assert throttling.RULE.judge(on_device(gpu=gpu)) is None


def test_throttling_needs_the_highest_clock() -> None:
    """What was lost is not known without it."""
    gpu = idling(0.0, throttle_s={"thermal_hw": 100.0})
    assert "clock" in miss(throttling.RULE, on_device(gpu=gpu))


@pytest.mark.parametrize(
    "values",
    [
        {"errors": {"uncorrected": 1}},
        {"errors": {"xid": 1}, "last_xid": 79},
        {"errors": {"row_remap_failure": 1}},
        {"is_lost": True, "num_losses": 1},
        {"is_remap_pending": True},
        {"errors": {"nvlink_crc": 1000}},
    ],
)
def test_faults_of_hardware_name_the_place(values: dict[str, object]) -> None:
    """Node, GPU and PCI address stand in the finding, so that they can be left out."""
    found = find(hardware_fault.RULE, on_device(gpu=idling(0.0, **values)))
    assert found.severity is Severity.CRITICAL
    assert found.saved_share is None
    place = found.places[0]
    assert (place.host_name, place.gpu_uuid, place.pci_id) == (
        *("node-0", "GPU-0", "00000000:17:00.0"),
    )


@pytest.mark.parametrize(
    "values",
    [
        {"errors": {"corrected": 500}},
        {"errors": {"xid": 1}, "last_xid": 31},
        {"errors": {"pcie_replay": 3}},
    ],
)
def test_what_programs_do_is_no_fault_of_hardware(values: dict[str, object]) -> None:
    """Corrected errors, a program's XID and a few replays are ordinary."""
    assert hardware_fault.RULE.judge(on_device(gpu=idling(0.0, **values))) is None


def test_an_old_fault_is_not_found_again() -> None:
    """Counters that stood before the evidence began are not in it."""
    gpu = idling(0.0, errors={"uncorrected": 2}, num_losses=1)
    before = on_device(gpu=gpu).now
    assert hardware_fault.RULE.judge(since(before, before)) is None


def test_an_allocator_that_runs_out_again_and_again() -> None:
    """A fifth of the iterations take 150 ms longer, for they empty the cache: that is saved."""
    allocator = AllocatorPart(
        reserved_bytes=78 * GIBIBYTE, peak_allocated_bytes=77 * GIBIBYTE, num_alloc_retries=200
    )
    durations = (0.22,) * 200 + (0.07,) * 800
    evidence = on_device(gpu=idling(30.0), allocator=allocator, durations_s=durations)
    found = find(memory_pressure.RULE, evidence)
    assert found.saved_share == pytest.approx(30 / 120, rel=0.03)
    assert small_batch.RULE.judge(evidence) is None
    assert fragmentation.RULE.judge(on_device(allocator=allocator)) is None


def test_long_waits_for_batches_are_not_the_allocators() -> None:
    """Twenty iterations waited for their batches: retries that idle no device cost nothing."""
    allocator = AllocatorPart(reserved_bytes=78 * GIBIBYTE, num_alloc_retries=20)
    durations = (1.07,) * 20 + (0.08,) * 980
    times = {"data_wait": 20.0, "compute": 80.0}
    gpu = make_gpu(79.5 / 120, 120.0)
    evidence = on_device(times, gpu=gpu, allocator=allocator, durations_s=durations)
    found = find(memory_pressure.RULE, evidence)
    assert found.saved_share is None


def test_memory_in_pieces_is_fragmentation() -> None:
    """Much is free and the allocator runs out all the same: segments that can grow help."""
    allocator = AllocatorPart(
        reserved_bytes=78 * GIBIBYTE,
        peak_allocated_bytes=50 * GIBIBYTE,
        inactive_split_bytes=25 * GIBIBYTE,
        num_alloc_retries=40,
    )
    evidence = on_device(allocator=allocator)
    found = find(fragmentation.RULE, evidence)
    assert "expandable_segments" in found.remedies[0].text
    assert memory_pressure.RULE.judge(evidence) is None


def test_a_full_device_is_no_pressure() -> None:
    """Torch keeps what it took: only retries say that it is not enough."""
    allocator = AllocatorPart(reserved_bytes=79 * GIBIBYTE, num_alloc_retries=1)
    assert memory_pressure.RULE.judge(on_device(allocator=allocator)) is None


def test_memory_that_grows_until_it_is_gone() -> None:
    """2 GiB in 100 s with 20 left lasts for a quarter of an hour."""
    gpu = idling(0.0, memory_total_bytes=80 * GIBIBYTE)
    parts = [AllocatorPart(peak_allocated_bytes=n * GIBIBYTE) for n in (58, 60)]
    before = make_evidence({"startup": 20.0, "compute": 0.0}, gpus=[gpu], allocator=parts[0]).now
    now = on_device(gpu=gpu, allocator=parts[1]).now
    found = find(memory_creep.RULE, since(before, now))
    assert any("17 min" in line for line in found.evidence)
    assert memory_creep.RULE.judge(since(before, before)) is None


def test_padding_is_computed_in_vain() -> None:
    """A tenth of padding is left by sorting, too; half of the slots is half of the computing."""
    progress = {"slots": 1000, "tokens": 500}
    found = find(padding_waste.RULE, make_evidence(progress=progress))
    assert found.saved_share == pytest.approx(50 / 120, rel=0.01)
    assert padding_waste.RULE.judge(make_evidence(progress={"slots": 28, "tokens": 25})) is None


def test_padding_needs_tokens() -> None:
    """Slots alone say nothing; no slots mean no texts."""
    assert "tokens" in miss(padding_waste.RULE, make_evidence(progress={"slots": 1000}))
    assert padding_waste.RULE.judge(make_evidence()) is None


def test_a_faster_iteration_saves_nothing_behind_a_starving_loader() -> None:
    """Workers set the pace: less padding would only make the loop wait longer."""
    evidence = make_evidence(
        {"data_wait": 40.0, "compute": 60.0},
        progress={"slots": 1000, "tokens": 500},
        loading=LoadingPart(num_workers=2),
        host=make_host(num_workers=2, worker_cpu_s=190.0),
    )
    assert padding_waste.RULE.judge(evidence) is None


def test_a_well_fed_device_is_compute_bound() -> None:
    """Said so, without a saving."""
    found = compute_bound.RULE.judge(on_device())
    assert found is not None
    assert getattr(found, "severity", None) is Severity.INFO
    assert compute_bound.RULE.judge(on_device(gpu=idling(40.0))) is None
