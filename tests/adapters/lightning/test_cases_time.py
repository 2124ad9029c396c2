"""Where the time of real trainings goes: the cases about waiting, warming up and validating."""

from __future__ import annotations

import time

import pytest

from costlens.account.ledger import merge
from costlens.core import lifetime
from tests.adapters.lightning.jobs import NS_PER_S, Plant, fit, make_module, rows, seconds


def test_validation_is_no_training_time(pl, clock) -> None:
    """C003: 3 epochs of 5 × 20 ms training and 4 × 50 ms validation are 0.3 s and 0.6 s."""
    module = make_module(pl, step=Plant(clock, 0.02), validation=Plant(clock, 0.05))
    record = fit(pl, module, rows(5), rows(4), max_epochs=3)
    # The first iteration is start-up, so 14 of 15 are left.
    assert seconds(record) == pytest.approx({"forward": 0.28, "validation": 0.6})
    assert record.rates.iterations_per_s == pytest.approx(50)
    assert record.progress.validation_batches == 12


def test_many_short_epochs_add_up(pl, clock) -> None:
    """C003: 200 epochs of one 1 ms step end without an exception, and no step contains another."""
    module = make_module(pl, step=Plant(clock, 0.001), validation=Plant(clock))
    record = fit(pl, module, rows(1), rows(1), max_epochs=200)
    assert seconds(record) == pytest.approx({"forward": 0.199, "validation": 200})
    assert record.progress.iterations == record.progress.validation_batches == 200
    assert record.iteration_time.p99_s == pytest.approx(0.001, rel=0.02)


def test_a_slow_dataset_is_data_wait(pl, clock) -> None:
    """C007: reads of 30 ms and hardly any compute: data wait is over 90 % of the loop's time."""
    loader = rows(21, read=Plant(clock, 0.03))
    record = fit(pl, make_module(pl, step=Plant(clock, 0.001)), loader, max_epochs=1)
    assert seconds(record) == pytest.approx({"data_wait": 0.6, "forward": 0.02})


def test_a_slow_first_step_is_start_up(pl, clock, monkeypatch) -> None:
    """C009: a first step of 2 s, then 50 of 10 ms: 2 s start-up, then 100 steps/s; all paid."""
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "3600")
    lifetime.claim_ordinal()  # the run is not to begin with the test's process
    first, later = Plant(clock, 2), Plant(clock, 0.01)
    module = make_module(pl, step=lambda _, at: later() if at else first())
    record = fit(pl, module, rows(51), max_epochs=1)
    assert seconds(record) == pytest.approx({"forward": 0.5})
    assert record.iteration_time.median_s == pytest.approx(0.01, rel=0.02)
    assert record.rates.steps_per_s == pytest.approx(100)
    assert record.startup.first_iteration_s == 2
    cost = merge([record], now=time.time()).cost
    assert cost.total == "2.50"
    assert cost.by_phase == {"startup": "2.00", "forward": "0.50"}


@pytest.mark.timing
def test_workers_that_keep_up_are_not_waited_for(pl) -> None:
    """C016: two workers of 20 ms an item behind steps of 50 ms: under 5 ms of waiting a step."""
    loader = rows(40, read=lambda _: time.sleep(0.02), num_workers=2)
    module = make_module(pl, step=lambda *_: time.sleep(0.05))
    record = fit(pl, module, loader, max_epochs=1)
    assert record.time_ns["data_wait"] / NS_PER_S / 39 < 0.005
    assert record.iteration_time.count == 39  # the workers' start is in none of them


def _slow_to_start(loader, start):
    """Return the loader, made to call `start` when an iterator is created."""
    plain = type(loader).__iter__

    class Slow(type(loader)):
        def __iter__(self):
            start()
            return plain(self)

    loader.__class__ = Slow
    return loader


def test_starting_workers_again_is_data_wait(pl, clock) -> None:
    """After the first epoch the creation of an iterator is waiting for data, not bookkeeping."""
    record = fit(pl, make_module(pl), _slow_to_start(rows(4), Plant(clock)), max_epochs=3)
    assert seconds(record) == {"data_wait": 2}  # that of the first epoch is start-up


def test_a_loader_built_anew_is_data_wait(pl, clock) -> None:
    """Loaders that are built again each epoch are waited for, the iterator's creation included."""
    build, start = Plant(clock, 10), Plant(clock)

    def train_dataloader():
        build()
        return _slow_to_start(rows(2), start)

    module = make_module(pl, train_dataloader=train_dataloader)
    record = fit(pl, module, None, max_epochs=3, reload_dataloaders_every_n_epochs=1)
    # Lightning makes an iterator when it builds the loader, and another when the epoch begins.
    assert (build.num_calls, start.num_calls) == (3, 5)
    assert seconds(record) == {"data_wait": 24}


def test_what_a_validation_fetches_is_validation(pl, clock) -> None:
    """The dataset of a validation keeps the validation waiting, not the training."""
    loader = _slow_to_start(rows(4, read=Plant(clock)), Plant(clock, 10))
    record = fit(pl, make_module(pl), rows(2), loader, max_epochs=2)
    assert seconds(record) == {"validation": 28}
