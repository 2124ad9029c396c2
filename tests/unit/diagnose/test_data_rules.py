"""Waits for data: only exposed ones count, and what a batch is made of says why it is late."""

from __future__ import annotations

import pytest

from costlens.core.host_records import ReadsPart
from costlens.core.loading_records import LoadingPart
from costlens.diagnose.rules import (
    RULES,
    data_preprocessing,
    data_wait,
    epoch_boundary,
    slow_collate,
    storage_read,
    too_few_workers,
    worker_startup,
)
from tests.unit.diagnose.scenes import (
    NUM,
    find,
    make_evidence,
    make_host,
    miss,
    on_device,
    starving,
)

STARVATION = (data_preprocessing, storage_read, too_few_workers, slow_collate, data_wait)


def names_of(evidence: object) -> set[str]:
    """Return which of the starvation rules find something."""
    verdicts = [module.RULE.judge(evidence) for module in STARVATION]  # type: ignore[arg-type]
    return {verdict.name for verdict in verdicts if hasattr(verdict, "evidence")}


def test_workers_on_the_cpu_are_too_few_while_cpus_are_free() -> None:
    """Two workers, always behind: L = 2 × 100 ms, so 4 of them hide it and save all of the wait."""
    evidence = starving(num_workers=2, worker_cpu_s=190.0)
    found = find(too_few_workers.RULE, evidence)
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert "num_workers=4" in found.remedies[0].text
    assert names_of(evidence) == {"too_few_workers"}


def test_more_workers_save_no_more_than_their_cpus_allow() -> None:
    """With 3 CPUs to spare a batch still takes 200 / 3 ms: less than all of the wait is saved."""
    evidence = starving(num_workers=2, worker_cpu_s=190.0, usable_cpus=4.0)
    found = find(too_few_workers.RULE, evidence)
    assert found.saved_share == pytest.approx((100 - 200 / 3) / 120, rel=0.01)
    assert "num_workers=3" in found.remedies[0].text


def test_workers_that_use_up_all_cpus_prepare_too_much() -> None:
    """Where no CPU is left, more workers help nothing: samples have to become cheaper."""
    evidence = starving(num_workers=3, worker_cpu_s=295.0, usable_cpus=4.0)
    found = find(data_preprocessing.RULE, evidence)
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert names_of(evidence) == {"data_preprocessing"}


def test_a_loop_that_makes_its_batches_itself_needs_workers() -> None:
    """Without workers: 40 ms a batch beside 60 ms of compute are hidden by one worker."""
    evidence = starving(num_workers=0, looks={"num_waiting": 80, "in_dataset": 80})
    found = find(data_preprocessing.RULE, evidence)
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert "num_workers=1)" in found.remedies[0].text
    assert names_of(evidence) == {"data_preprocessing"}


def test_a_loop_that_sleeps_for_its_batches_needs_workers_more_than_cpus() -> None:
    """A loop that waits without its CPU (a tenth is used) is helped by workers on two CPUs."""
    evidence = starving(wait_s=95.0, compute_s=5.0, num_workers=0, usable_cpus=2.0, cpus_busy=0.1)
    found = find(data_preprocessing.RULE, evidence)
    assert found.saved_share == pytest.approx((100 - 95 / 18) / 120, rel=0.01)
    assert "num_workers=18" in found.remedies[0].text


def test_a_loop_without_a_cpu_to_spare_needs_cheaper_samples() -> None:
    """All of one CPU goes into samples, and there is no other: workers would save nothing."""
    evidence = starving(wait_s=95.0, compute_s=5.0, num_workers=0, usable_cpus=1.0)
    found = find(data_preprocessing.RULE, evidence)
    assert found.saved_share == pytest.approx(95 / 120, rel=0.01)
    assert "cheaper" in found.remedies[0].text


def test_one_worker_is_too_few_whatever_it_waits_for() -> None:
    """It makes one batch at a time, on the CPU or not; several may wait for one another."""
    assert names_of(starving(num_workers=1, worker_cpu_s=5.0)) == {"too_few_workers"}


def test_c007_data_that_takes_nearly_all_time_is_named() -> None:
    """C007: a loop that waits for more than 90 % of its time is the loader's."""
    evidence = starving(wait_s=95.0, compute_s=5.0, num_workers=0, usable_cpus=64.0)
    found = find(data_preprocessing.RULE, evidence)
    assert found.saved_share == pytest.approx(95 / 120, rel=0.01)


def test_reads_that_fill_the_workers_time_are_storage() -> None:
    """Four workers, 320 of whose 400 ms a batch are reads: from a copy a batch takes 20 ms."""
    reads = ReadsPart(num_reads=NUM, num_bytes=NUM * 1000, read_s=300.0, open_s=20.0)
    evidence = starving(num_workers=4, worker_cpu_s=60.0, reads=reads)
    found = find(storage_read.RULE, evidence)
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert names_of(evidence) == {"storage_read"}
    assert any("latency" in line for line in found.evidence)
    assert any("shards" in remedy.text for remedy in found.remedies)


def test_large_reads_are_a_matter_of_throughput() -> None:
    """Reads of megabytes are told with their rate, and what helps is less to read."""
    reads = ReadsPart(num_reads=NUM, num_bytes=NUM * 8_000_000, read_s=150.0)
    found = find(storage_read.RULE, starving(num_workers=2, worker_cpu_s=20.0, reads=reads))
    assert any("53.3 MB/s: throughput" in line for line in found.evidence)


def test_a_loop_that_reads_itself_saves_its_reads() -> None:
    """Without workers reads are the wait's part that a copy takes away."""
    reads = ReadsPart(num_reads=NUM, num_bytes=NUM * 1000, read_s=30.0)
    found = find(storage_read.RULE, starving(num_workers=0, reads=reads))
    assert found.saved_share == pytest.approx(30 / 120, rel=0.01)


def test_workers_that_neither_compute_nor_read_wait_for_something_unknown() -> None:
    """Nothing counted explains them: the wait is told as such, and what would tell more."""
    evidence = starving(num_workers=4, worker_cpu_s=20.0)
    found = find(data_wait.RULE, evidence)
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    told = " ".join(remedy.text for remedy in found.remedies)
    assert "num_workers than 4" in told
    assert "num_workers > 0" not in told, "it has workers"
    assert "run.filesystem" in miss(storage_read.RULE, evidence)
    assert names_of(evidence) == {"data_wait"}


def test_an_unknown_loader_is_a_wait_of_unknown_cause() -> None:
    """Batches from a generator: the wait stands, and each rule says what it lacks."""
    evidence = starving(num_workers=None)
    assert names_of(evidence) == {"data_wait"}
    assert "run.batches" in miss(too_few_workers.RULE, evidence)


def test_collating_is_told_by_looks_at_the_waiting_loop() -> None:
    """Of the waits, the share of looks that found the loop in collate_fn is saved."""
    looks = {"num_waiting": 100, "in_collate": 80, "in_dataset": 20}
    evidence = starving(num_workers=0, looks=looks)
    found = find(slow_collate.RULE, evidence)
    assert found.saved_share == pytest.approx(0.8 * 40 / 120, rel=0.3)
    assert names_of(evidence) == {"slow_collate"}


def test_workers_that_mostly_collate_are_told_by_their_own_time() -> None:
    """Two workers, 160 of whose 200 ms a batch are collating: without, nobody waits for them."""
    host = make_host(num_workers=2, worker_cpu_s=190.0)
    loading = LoadingPart(num_workers=2, collate_s=160.0)
    times = {"data_wait": 40.0, "compute": 60.0}
    evidence = make_evidence(times, host=host, loading=loading)
    found = find(slow_collate.RULE, evidence)
    assert found.saved_share == pytest.approx(40 / 120, rel=0.01)
    assert names_of(evidence) == {"slow_collate"}


def test_nobody_looks_into_workers_collating() -> None:
    """With workers the rule says which signal it has not."""
    assert "collate_fn" in miss(slow_collate.RULE, starving(num_workers=2, worker_cpu_s=190.0))


def test_few_looks_tell_nothing() -> None:
    """Three looks are chance: the general cause of a loop without workers stands."""
    looks = {"num_waiting": 3, "in_collate": 3}
    assert names_of(starving(num_workers=0, looks=looks)) == {"data_preprocessing"}


def test_c016_what_prefetching_hides_is_no_wait() -> None:
    """C016: workers keep up, the first batch was start-up, 5 ms of 105 are exposed: no finding."""
    evidence = starving(wait_s=5.0, compute_s=100.0, num_workers=2, worker_cpu_s=40.0)
    assert names_of(evidence) == set()


def test_host_waits_of_a_device_are_not_judged() -> None:
    """The host may wait all the time while the device works: only what is exposed counts."""
    evidence = on_device(
        host_s={"data_wait": 90.0, "compute": 10.0}, loading=LoadingPart(num_workers=2)
    )
    assert names_of(evidence) == set()


def test_c011_a_stopped_process_is_no_starvation() -> None:
    """C011: 10 s in one single iteration, in the midst of a fetch, are an event and no cause."""
    durations = (0.06,) * (NUM - 1) + (10.06,)
    evidence = make_evidence(
        {"data_wait": 10.0, "compute": 60.0},
        durations_s=durations,
        loading=LoadingPart(num_workers=2),
        host=make_host(num_workers=2, worker_cpu_s=100.0),
    )
    assert names_of(evidence) == set()


def test_bursts_of_workers_are_starvation() -> None:
    """Eight workers that come at once make every eighth wait long: that is how the loop runs."""
    durations = ((0.01,) * 7 + (0.33,)) * (NUM // 8)
    wait_s = 0.32 * (NUM // 8)
    evidence = make_evidence(
        {"data_wait": wait_s, "compute": 0.01 * NUM},
        durations_s=durations,
        loading=LoadingPart(num_workers=8),
        host=make_host(num_workers=8, worker_cpu_s=380.0, usable_cpus=64.0),
    )
    assert names_of(evidence) == {"too_few_workers"}


def test_workers_that_start_with_every_pass_are_named() -> None:
    """Ten later passes of 3 s each: persistent workers save them, less what any batch waits."""
    loading = LoadingPart(num_workers=4, persistent_workers=False, num_passes=11, first_wait_s=30.0)
    evidence = make_evidence(
        {"data_wait": 31.0, "compute": 100.0},
        loading=loading,
        host=make_host(num_workers=4, worker_cpu_s=100.0),
    )
    found = find(worker_startup.RULE, evidence)
    assert found.saved_share == pytest.approx((30 - 10 * 0.001) / 151, rel=0.01)
    assert "persistent_workers=True" in found.remedies[0].text
    assert names_of(evidence) == set()
    assert epoch_boundary.RULE.judge(evidence) is None


def test_passes_that_begin_slowly_without_workers_are_the_epochs() -> None:
    """The same wait, with no worker to start: the turn of the epoch."""
    loading = LoadingPart(num_workers=0, num_passes=11, first_wait_s=30.0)
    evidence = make_evidence({"data_wait": 31.0, "compute": 100.0}, loading=loading)
    found = find(epoch_boundary.RULE, evidence)
    assert found.saved_share == pytest.approx(30 / 151, rel=0.01)
    assert worker_startup.RULE.judge(evidence) is None


def test_one_long_pass_says_nothing_of_passes() -> None:
    """One later pass only: not how the loop runs."""
    loading = LoadingPart(num_workers=4, persistent_workers=False, num_passes=2, first_wait_s=30.0)
    evidence = make_evidence({"data_wait": 31.0}, loading=loading)
    assert worker_startup.RULE.judge(evidence) is None


def test_every_rule_has_its_own_name() -> None:
    """One word for one cause: no two rules make the same finding, and no healthy loop has any."""
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    healthy = make_evidence({"forward": 40.0, "backward": 55.0, "compute": 5.0})
    found = [verdict for rule in RULES if (verdict := rule.judge(healthy))]
    assert [verdict.name for verdict in found] == ["compute_bound"]
