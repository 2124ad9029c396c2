"""Phases of a Lightning training in the real ``torch.profiler``."""

from __future__ import annotations

import time
from types import ModuleType

import pytest

from costlens.config import Config
from costlens.core.records import RankRecord
from costlens.lightning import CostLensCallback
from costlens.observe.ranges import ITERATION
from tests.adapters.lightning.jobs import make_module, make_trainer, record_of, rows
from tests.adapters.profiled import Ranges, profile


def train(pl: ModuleType) -> tuple[Ranges, RankRecord]:
    """Return the ranges and the record of ten iterations in two epochs with validation."""
    module = make_module(pl, step=lambda *_: time.sleep(0.02))
    callback = CostLensCallback(config=Config(ranges="record_function"))
    trainer = make_trainer(pl, callback, max_epochs=2, limit_val_batches=2, num_sanity_val_steps=2)
    with profile() as profiler:
        trainer.fit(module, rows(10, 2), rows(4, 2))
    return Ranges.of(profiler), record_of(callback)


def test_the_profiler_shows_our_phases(each_pl: ModuleType) -> None:
    """A range an iteration with its phases inside, and none for the sanity check's batches."""
    ranges, record = train(each_pl)
    own_ns = ranges.own_ns()
    assert len(ranges.named(ITERATION)) == record.progress.iterations == 10
    assert len(ranges.named("costlens.optimizer")) == 9, "the first is start-up"
    assert len(ranges.named("costlens.validation")) == 2
    for name in ("forward", "backward", "optimizer", "validation", "startup"):
        assert own_ns[name] > 0


@pytest.mark.timing
def test_ranges_take_what_phases_take(pl: ModuleType) -> None:
    """Nearly all of the time of a phase that takes any is in its ranges."""
    ranges, record = train(pl)
    assert ranges.own_ns()["forward"] == pytest.approx(record.time_ns["forward"], rel=0.1)


def test_an_exception_leaves_no_range_open(pl: ModuleType) -> None:
    """A step that fails in the middle of a profile: every range has ended when the fit has."""

    def explode(*_: object) -> None:
        if len(calls) == 3:
            raise ValueError("planted")
        calls.append(1)

    calls: list[int] = []
    callback = CostLensCallback(config=Config(ranges="record_function"))
    trainer = make_trainer(pl, callback, max_epochs=1)
    with profile() as profiler:
        with pytest.raises(ValueError, match="planted"):
            trainer.fit(make_module(pl, step=explode), rows(10, 2))
        timeline = callback.run.parts.timeline
        assert (timeline._closers, timeline._iteration) == ([], [])
    assert Ranges.of(profiler).own_ns()["startup"] > 0
    assert record_of(callback).attempt.outcome.value == "failed"
