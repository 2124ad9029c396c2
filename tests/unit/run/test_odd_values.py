"""Counts that are none: refused and counted, never raised into the loop, never in a total."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import costlens
from costlens.core.records import Outcome, RankRecord


def _train(num: int = 3, **counts: Any) -> RankRecord:
    run = costlens.start("odd", summary=False)
    with run.iteration(tokens=7):
        pass
    for _ in range(num):
        with run.iteration(**counts):
            pass
    record = run.finish()
    assert record is not None
    assert record.attempt.outcome is Outcome.COMPLETED
    assert record.telemetry.faults == {}
    return record


@pytest.mark.parametrize(
    "odd", [2**63, 10**400, -5, float("inf"), float("nan"), -1.0, 1e30], ids=repr
)
@pytest.mark.parametrize("is_tensor", [False, True])
def test_a_count_that_is_none_is_refused(odd: float, is_tensor: bool) -> None:
    """A host number or tensor that cannot be a count changes no total and is counted as dropped."""
    if is_tensor and isinstance(odd, int) and odd > 0:
        pytest.skip("no tensor holds it")
    record = _train(tokens=torch.tensor(odd) if is_tensor else odd)
    assert record.progress.tokens == 7
    assert record.progress.iterations == 4
    assert record.telemetry.values_dropped == 3


@pytest.mark.parametrize("odd", [None, "a", 1.5, float("nan"), 2**63, -1, 0], ids=repr)
def test_odd_micro_batches_count_as_one(odd: Any) -> None:
    """An iteration has at least one micro-batch, whatever the argument says."""
    record = _train(micro_batches=odd)
    assert record.progress.micro_batches == 4
    assert record.telemetry.values_dropped == 3


def test_tensor_counts_are_exact_however_fast_the_loop() -> None:
    """Tokens summed by torch lose nothing in a loop of microseconds."""
    record = _train(20_000, tokens=torch.tensor(10))
    assert record.progress.tokens == 200_007
    assert record.telemetry.values_dropped == 0


def test_metrics_may_have_any_name() -> None:
    """A metric called self is a metric."""
    run = costlens.start("names", summary=False)
    with run.iteration() as iteration:
        iteration.log(self=1.0)
    run.log(self=2.0)
    record = run.finish()
    assert record is not None
    assert record.quality["self"].num_values == 2
