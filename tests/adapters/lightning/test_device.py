"""A rank that drives a GPU: the device's gaps are priced, not where the host happened to block."""

from __future__ import annotations

import pytest
import torch

from costlens.lightning import CostLensCallback
from costlens.observe.trainer import facts
from costlens.testing import FakeDevice
from tests.adapters.lightning.jobs import (
    Plant,
    fit,
    make_module,
    make_trainer,
    record_of,
    rows,
    seconds,
)


@pytest.fixture
def device(clock, monkeypatch) -> FakeDevice:
    """Return the device that a Trainer of this test seems to train on."""
    fake = FakeDevice(clock)
    monkeypatch.setattr(facts, "device_kind", lambda trainer: "cuda")
    monkeypatch.setattr(facts, "open_device", lambda trainer: fake)
    return fake


def test_a_host_that_blocks_in_the_fetch_is_not_waiting_for_data(pl, clock, device) -> None:
    """The device is busy for 4 s a step while the host sits in the fetch: all of it is compute."""
    loader = rows(11, read=lambda _: device.block_host())
    module = make_module(pl, step=lambda *_: device.enqueue(4))
    record = fit(pl, module, loader, max_epochs=1)
    assert record.host_ns is not None
    assert record.host_ns["data_wait"] / 1e9 == 40
    assert seconds(record) == {"compute": 40}
    assert (record.rank.device, record.rank.num_gpus) == ("cuda", 1)


def test_a_device_that_starves_waits_for_data(pl, clock, device) -> None:
    """The device works 1 s of every 4 s that a read takes: 3 s a step are exposed."""

    def read(_) -> None:
        clock.advance(4)

    module = make_module(pl, step=lambda *_: device.enqueue(1))
    record = fit(pl, module, rows(11, read=read), max_epochs=1)
    assert seconds(record) == {"data_wait": 30, "compute": 10}


def test_a_device_that_waits_for_workers_to_start_waits_for_data(pl, clock, device) -> None:
    """Creating the iterator of a later epoch counts as far as the device had nothing to do."""
    loader = rows(1)
    start, plain = Plant(clock, 5), type(loader).__iter__
    loader.__class__ = type(
        "Slow", (type(loader),), {"__iter__": lambda self: (start(), plain(self))[1]}
    )
    module = make_module(pl, step=lambda *_: device.enqueue(2))
    record = fit(pl, module, loader, max_epochs=3)
    # Two seconds of each five are the work of the step before.
    assert seconds(record) == {"data_wait": 6, "compute": 4}


def test_two_fits_measure_one_device(pl, clock, device) -> None:
    """A fit that goes on after another resolves its own iterations, and every one of them."""
    callback = CostLensCallback("device")
    module = make_module(pl, step=lambda *_: (device.enqueue(1), device.block_host())[0])
    trainer = make_trainer(pl, callback, max_epochs=1)
    trainer.fit(module, rows(4))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, rows(4))
    record = record_of(callback)
    assert record.telemetry.iterations_unresolved == 0
    assert seconds(record) == {"compute": 6}


def test_on_the_cpu_cuda_is_never_initialised(pl, monkeypatch) -> None:
    """C080: a CPU training does not ask CUDA for anything."""

    def refuse(*_, **__):
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr(torch.cuda, "init", refuse)
    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    monkeypatch.setattr(torch.cuda, "current_stream", refuse)
    record = fit(pl, make_module(pl), rows(4), rows(2), max_epochs=1)
    assert record.progress.iterations == 4
    assert record.host_ns is None
