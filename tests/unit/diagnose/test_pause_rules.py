"""What the training stands still for between its batches, and dangers that cost nothing yet."""

from __future__ import annotations

import math

import pytest

from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.loading_records import LoadingPart, LooksPart
from costlens.core.precision_records import PrecisionPart
from costlens.core.price_records import PricePart
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Finding, Severity
from costlens.diagnose.hooks import find_hook
from costlens.diagnose.rules import (
    checkpoint_overhead,
    frequent_validation,
    overflow_skips,
    slow_callbacks,
    slow_logging,
    unprotected_spot,
)
from tests.unit.diagnose.scenes import (
    NUM,
    find,
    make_evidence,
    make_gpu,
    make_host,
    miss,
    on_device,
    since,
)


@pytest.mark.parametrize(
    ("module", "phase"), [(slow_callbacks, "callbacks"), (slow_logging, "logging")]
)
def test_what_runs_between_batches_on_the_cpu(module, phase: str) -> None:  # type: ignore[no-untyped-def]
    """A quarter of each iteration in hooks or loggers is saved when it is gone."""
    found = find(module.RULE, make_evidence({phase: 25.0, "compute": 75.0}))
    assert found.saved_share == pytest.approx(25 / 120, rel=0.05)
    assert module.RULE.judge(make_evidence({phase: 3.0, "compute": 97.0})) is None


@pytest.mark.parametrize(
    ("module", "phase"), [(slow_callbacks, "callbacks"), (slow_logging, "logging")]
)
def test_what_a_device_does_not_wait_for_holds_nothing_up(module, phase: str) -> None:  # type: ignore[no-untyped-def]
    """A hook beside a busy device, or one that waits for it, is no loss; beside an idle one yes."""
    busy = on_device(host_s={phase: 60.0, "compute": 40.0})
    assert module.RULE.judge(busy) is None
    idle = on_device(host_s={phase: 60.0, "compute": 40.0}, gpu=make_gpu(70 / 120, 120.0))
    assert find(module.RULE, idle).saved_share == pytest.approx(30 / 120, rel=0.05)
    unknown = on_device(host_s={phase: 60.0, "compute": 40.0}, gpu=make_gpu(0, 0))
    assert "utilization" in miss(module.RULE, unknown)


def _seen(num: int, **hooks: int) -> LooksPart:
    named = {name.replace("__", "."): count for name, count in hooks.items()}
    return LooksPart(num_iterating=99, in_callbacks=num, hooks=named)


def test_the_slowest_callback_is_named() -> None:
    """By the looks of the evidence: what was seen before it began does not count."""
    time_s = {"callbacks": 25.0, "compute": 75.0}
    looks = _seen(40, Slow__on_train_batch_end=22, Other__on_train_batch_start=18)
    found = find(slow_callbacks.RULE, make_evidence(time_s, looks=looks))
    told = "callbacks, foremost Slow.on_train_batch_end, take 25.0 ms of each iteration, 25% of it"
    assert found.evidence == (told,)
    assert not any("Slow" in remedy.text for remedy in found.remedies), "logs tell the remedy"
    lately = _seen(60, Slow__on_train_batch_end=23, Other__on_train_batch_start=37)
    evidence = make_evidence(time_s, looks=lately)
    later = Evidence(evidence.now, evidence.now.model_copy(update={"looks": looks}))
    assert find_hook(later) == "Other.on_train_batch_start"


@pytest.mark.parametrize(
    "looks",
    [
        None,
        _seen(7, Slow__on_train_batch_end=7),
        _seen(40),
        _seen(40, A__on_train_batch_end=19, B__on_train_batch_end=19),
    ],
)
def test_no_callback_is_named_on_a_guess(looks: LooksPart | None) -> None:
    """Too few looks, hooks that nobody could name, or two that take turns: none stands out."""
    evidence = make_evidence({"callbacks": 25.0, "compute": 75.0}, looks=looks)
    assert find(slow_callbacks.RULE, evidence).evidence[0].startswith("callbacks take 25.0 ms")


def test_one_slow_callback_is_an_event() -> None:
    """A hook that took 10 s once, such as a slow save between batches, is not how the loop runs."""
    durations = (0.1,) * (NUM - 1) + (10.1,)
    evidence = make_evidence({"callbacks": 10.0, "compute": 100.0}, durations_s=durations)
    assert slow_callbacks.RULE.judge(evidence) is None


def test_slow_hooks_of_a_loop_that_makes_its_batches_itself() -> None:
    """The device stands still for 30 s and waits 15 s for batches: 40 s of hooks explain both."""
    evidence = on_device(
        {"data_wait": 15.0, "compute": 85.0},
        host_s={"data_wait": 15.0, "callbacks": 40.0, "compute": 45.0},
        gpu=make_gpu((100 - 45) / 120, 120.0),
        loading=LoadingPart(num_workers=0),
    )
    assert find(slow_callbacks.RULE, evidence).saved_share == pytest.approx(40 / 120, rel=0.01)


def test_slow_hooks_behind_a_starving_loader_save_nothing() -> None:
    """Workers set the pace: without the hook the loop would wait for as long."""
    evidence = make_evidence(
        {"data_wait": 30.0, "callbacks": 20.0, "compute": 50.0},
        loading=LoadingPart(num_workers=2),
        host=make_host(num_workers=2, worker_cpu_s=190.0),
    )
    assert slow_callbacks.RULE.judge(evidence) is None


def saving(num: int | None, stall_s: float = 40.0, **parts: object) -> Evidence:
    """Return a training of 100 s with so many saves."""
    return make_evidence({"checkpoint": stall_s}, attempt_num_saves=num, **parts)  # type: ignore[arg-type]


def test_saves_that_come_too_often() -> None:
    """20 saves of 2 s in 100 s: with a failure a day one every sqrt(2 × 2 × 86400) s is best."""
    found = find(checkpoint_overhead.RULE, saving(20))
    best_s = math.sqrt(2 * 2 * 86_400)
    assert found.saved_share == pytest.approx((40 - 2 * 100 / best_s) / 160, rel=0.01)
    assert f"every_n_train_steps={round(best_s / 0.1)}" in found.remedies[0].text


@pytest.mark.parametrize(("prefetch_factor", "caught_up_s"), [(2, 9.6), (50, 20.0)])
def test_saves_in_which_the_loader_catches_up_cost_less(
    prefetch_factor: int, caught_up_s: float
) -> None:
    """Two workers need 120 ms a batch, and iterations take 100: pauses bring the rest.

    In each of 20 they fill a queue of 4 batches in 0.48 s; of 100, all that is missing, 20 s.
    """
    evidence = make_evidence(
        {"data_wait": 5.0, "compute": 95.0, "checkpoint": 40.0},
        host=make_host(num_workers=2, worker_cpu_s=240.0),
        loading=LoadingPart(num_workers=2, prefetch_factor=prefetch_factor),
        attempt_num_saves=20,
    )
    found = find(checkpoint_overhead.RULE, evidence)
    spared = 1 - 5 / math.sqrt(2 * 2 * 86_400)
    assert found.saved_share == pytest.approx(spared * (40 - caught_up_s) / 160, rel=0.01)


def test_the_failure_rate_that_was_learnt_goes_before() -> None:
    """With a failure every 200 s the saves are worth their time."""
    interval = {
        "interval_s": 5.0, "optimum_s": 5.0, "rail": "optimum", "worst_loss_s": 5.0,
        "is_loss_kept": True, "failure_rate_per_s": 0.2, "stall_s": 2.0, "write_s": 2.0,
        "slowdown": 0.0,
    }  # fmt: skip
    part = CheckpointsPart.model_validate({"url": "s3://x", "num_saved": 20, "interval": interval})
    assert checkpoint_overhead.RULE.judge(saving(20, checkpoints=part)) is None


@pytest.mark.parametrize("num", [None, 0, 1])
def test_one_slow_save_is_not_too_many(num: int | None) -> None:
    """One save, however long, says nothing of how often they come; nor does an unknown number."""
    assert checkpoint_overhead.RULE.judge(saving(num)) is None


def test_saves_are_judged_by_the_whole_attempt() -> None:
    """Two saves in one minute say nothing where there were two in an hour."""
    before = make_evidence({"compute": 3600.0}, attempt_num_saves=0).now
    now = make_evidence({"compute": 3650.0, "checkpoint": 10.0}, attempt_num_saves=2).now
    assert checkpoint_overhead.RULE.judge(since(before, now)) is None


def test_saves_that_hardly_take_time_are_fine() -> None:
    """Twenty quick ones."""
    assert checkpoint_overhead.RULE.judge(saving(20, stall_s=2.0)) is None


def test_evaluation_that_takes_half_of_the_time() -> None:
    """100 s beside 100 s: every tenth of them takes a tenth of the time."""
    evidence = make_evidence({"validation": 100.0}, attempt_num_evaluations=50)
    found = find(frequent_validation.RULE, evidence)
    assert found.saved_share == pytest.approx(90 / 220, rel=0.05)
    assert "every_n_epoch" in found.remedies[0].text


@pytest.mark.parametrize(("seconds", "num"), [(10.0, 50), (100.0, 1)])
def test_evaluation_that_is_normal(seconds: float, num: int) -> None:
    """A tenth of the time, or one long evaluation, is nothing to mend."""
    evidence = make_evidence({"validation": seconds}, attempt_num_evaluations=num)
    assert frequent_validation.RULE.judge(evidence) is None


def test_steps_that_overflow_all_the_time() -> None:
    """A fifth of the steps and of their time."""
    precision = PrecisionPart(requested="off", reason="", skipped_steps=200, skipped_s=20.0)
    progress = {"optimizer_steps": 800, "skipped_steps": 200}
    found = find(overflow_skips.RULE, make_evidence(progress=progress, precision=precision))
    assert found.saved_share == pytest.approx(20 / 120, rel=0.01)
    assert "bf16" in found.remedies[0].text


def test_a_scaler_that_finds_its_scale_is_no_finding() -> None:
    """Some steps at the start overflow in every fp16 training."""
    progress = {"optimizer_steps": 985, "skipped_steps": 15}
    assert overflow_skips.RULE.judge(make_evidence(progress=progress)) is None


@pytest.mark.parametrize(("skipped", "is_found"), [(10, True), (1, False)])
def test_the_overflows_of_slow_steps_are_seen_while_they_last(skipped: int, is_found: bool) -> None:
    """The newest minute may hold twenty steps; there were enough of them in the whole attempt."""
    before = make_evidence({"compute": 80.0}, progress={"optimizer_steps": 70, "skipped_steps": 30})
    progress = {"optimizer_steps": 90 - skipped, "skipped_steps": 30 + skipped}
    evidence = Evidence(make_evidence(progress=progress).now, before.now)
    verdict = overflow_skips.RULE.judge(evidence)
    assert (verdict is not None) is is_found
    if isinstance(verdict, Finding):
        assert verdict.saved_share == pytest.approx(0.5)


def make_spot(capacity: str = "spot") -> PricePart:
    """Return a price of capacity of some kind."""
    return PricePart.model_validate(
        {"amount": "1", "unit": "gpu", "share": "1", "currency": "USD", "source": "x"}
        | {"capacity_type": capacity}
    )


def test_spot_capacity_without_a_save() -> None:
    """An hour of work that nobody has saved."""
    evidence = make_evidence({"compute": 3600.0}, price=make_spot())
    found = find(unprotected_spot.RULE, evidence)
    assert found.severity is Severity.CRITICAL
    assert found.saved_share is None


def test_the_first_minutes_without_a_save_are_a_warning() -> None:
    """Whoever saves shows it early; ten minutes are no disaster yet."""
    evidence = make_evidence({"compute": 600.0}, price=make_spot())
    assert find(unprotected_spot.RULE, evidence).severity is Severity.WARNING


def test_spot_capacity_with_saves_is_protected() -> None:
    """Somebody saves, whoever it is; other capacity and short runs need none."""
    for evidence in (
        make_evidence({"compute": 3600.0, "checkpoint": 5.0}, price=make_spot()),
        make_evidence({"compute": 3600.0}, price=make_spot(), attempt_num_saves=3),
        make_evidence({"compute": 3600.0}, price=make_spot("on_demand")),
        make_evidence({"compute": 100.0}, price=make_spot()),
    ):
        assert unprotected_spot.RULE.judge(evidence) is None
