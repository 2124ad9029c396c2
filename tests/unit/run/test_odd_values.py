"""Counts that are none: refused and counted, never raised into the loop, never in a total."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import costlens
from costlens.core.records import Outcome, RankRecord
from costlens.errors import ConfigError
from costlens.testing import MemoryExporter


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


def test_steps_are_unknown_where_no_optimizer_is_watched() -> None:
    """Unknown is absent: 0 steps is said only of a watched optimizer."""
    assert _train().progress.optimizer_steps is None
    run = costlens.start("watched", summary=False)
    model = torch.nn.Linear(2, 1)
    run.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
    record = run.finish()
    assert record is not None
    assert (record.progress.optimizer_steps, record.progress.skipped_steps) == (0, 0)


def test_an_ending_that_is_none_is_refused_and_the_run_goes_on() -> None:
    """A misspelt outcome is the user's slip: it is named, and can be put right."""
    run = costlens.start("ends", summary=False)
    with pytest.raises(ConfigError, match=r"'nonsense'.*completed"):
        run.finish("nonsense")
    with pytest.raises(ConfigError, match="exit_code"):
        run.finish(exit_code=1.5)  # type: ignore[arg-type]
    assert run.is_active
    record = run.finish("stopped_early", exit_code=0)
    assert record is not None
    assert record.attempt.outcome is Outcome.STOPPED_EARLY


def test_the_flush_is_shutdown_and_counts() -> None:
    """What a slow exporter takes at the end is in the record, in the phase that names it."""

    class Slow(MemoryExporter):
        def finish(self, deadline_ns: int) -> None:
            time.sleep(0.2)

    run = costlens.Run(costlens.Config(name="slow", summary=False), exporters=[Slow()])
    run.open()
    record = run.finish()
    assert record is not None
    assert record.time_ns["shutdown"] >= 200_000_000
    assert sum(record.time_ns.values()) == record.total_ns
