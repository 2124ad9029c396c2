"""Counts and metrics: what goes in on the training thread comes out on the pipeline's, unread."""

from __future__ import annotations

import math

import pytest
import torch

from costlens.core.guard import faults
from costlens.core.quality import QualityBook
from costlens.observe.device_values import Count, DeviceValues, Metric


class Counting(torch.Tensor):
    """A loss that counts how often it is read on the host."""

    num_reads = 0

    def item(self):
        type(self).num_reads += 1
        return super().item()

    def __float__(self):
        type(self).num_reads += 1
        return super().__float__()

    def cpu(self, *args, **kwargs):
        type(self).num_reads += 1
        return super().cpu(*args, **kwargs)

    def numpy(self, *args, **kwargs):
        type(self).num_reads += 1
        return super().numpy(*args, **kwargs)


@pytest.fixture
def values():
    """Values on a clock that counts its readings."""
    readings = iter(range(100_000))
    return DeviceValues(lambda: next(readings))


def test_a_loss_is_never_read_on_the_training_thread(values):
    """C006: 100 steps log a loss that counts reads; none is made, and all values arrive."""
    Counting.num_reads = 0
    weight = torch.tensor(2.0, requires_grad=True)
    for step in range(100):
        loss = (weight * step).as_subclass(Counting)
        values.add_metric("loss", loss, step)
    assert [seen.value for seen in values.take_metrics()] == [2.0 * step for step in range(100)]
    assert Counting.num_reads == 0


def test_a_logged_tensor_may_be_overwritten(values):
    """The value is what it was when it was logged, as CUDA graphs and in-place metrics need it."""
    loss = torch.tensor(1.0)
    values.add_metric("loss", loss, 0)
    loss.fill_(9.0)
    values.add_metric("loss", loss, 1)
    assert [(seen.value, seen.number) for seen in values.take_metrics()] == [(1.0, 0), (9.0, 1)]


def test_no_graph_is_kept_alive(values):
    """A logged loss carries its graph; the slot it is copied into does not."""
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    values.add_metric("loss", loss, 0)
    assert not any(slot.requires_grad for slot in values._ring._slots)
    loss.backward()
    assert weight.grad is not None


def test_slots_made_in_inference_mode_work_outside_it(values):
    """The first metric may come from a validation under inference mode, the next from training."""
    with torch.inference_mode():
        values.add_metric("val_loss", torch.tensor(3.0), 0)
    values.add_metric("loss", torch.tensor(4.0, requires_grad=True), 1)
    with torch.inference_mode():
        values.add_metric("val_loss", torch.tensor(5.0), 2)
    assert [seen.value for seen in values.take_metrics()] == [3.0, 4.0, 5.0]


def test_counts_of_every_kind_are_integers(values):
    """Numbers, numpy integers and tensors of any integer type add up exactly."""
    values.add_count("tokens", 5, 0)
    values.add_count("tokens", torch.ones(7, dtype=torch.bool).sum(), 1)
    values.add_count("slots", torch.tensor(2**40, dtype=torch.int64), 1)
    values.add_count("loss_tokens", torch.ones(3).sum().numpy(), 2)
    assert sorted(values.take_counts()) == [
        Count("loss_tokens", 2, 3),
        Count("slots", 1, 2**40),
        Count("tokens", 0, 5),
        Count("tokens", 1, 7),
    ]
    assert values.take_counts() == []


def test_a_count_that_is_none_is_refused(values):
    """Unknown is not zero: a negative or NaN count would spoil the total, so it is dropped."""
    values.add_count("tokens", torch.tensor(float("nan")), 0)
    values.add_count("tokens", -3, 1)
    values.add_count("tokens", 4, 2)
    assert values.take_counts() == [Count("tokens", 2, 4)]
    assert values.num_dropped == 2


def test_nan_and_infinity_pass_as_values(values):
    """C073: losses 1, NaN, inf, 2 reach the quality book, which counts two as not finite."""
    book = QualityBook()
    for step, loss in enumerate((1.0, torch.tensor(math.nan), torch.tensor(math.inf), 2.0)):
        values.add_metric("loss", loss, step)
    for seen in values.take_metrics():
        book.add(seen.name, seen.value, seen.number, seen.mono_ns)
    (alarm,) = book.fold()
    summary = book.take().attempt["loss"]
    assert (summary.num_nonfinite, summary.num_values, summary.total) == (2, 2, 3.0)
    assert summary.first_nonfinite_iteration == 1
    assert not math.isfinite(alarm.value)


def test_the_time_of_a_metric_is_when_it_was_logged(values):
    """Cost to reach a loss is measured at the training thread's time, not at the pipeline's."""
    values.add_metric("loss", torch.tensor(1.0), 7)
    (seen,) = values.take_metrics()
    assert seen == Metric("loss", 1.0, 7, 0)


def test_queues_are_bounded_and_drops_are_counted(values):
    """80 000 values nobody takes: some arrive, the others are counted, memory stays as it was."""
    for step in range(40_000):
        values.add_metric("loss", 1.0, step)
        values.add_metric("norm", torch.tensor(1.0), step)
    num_dropped = values.num_dropped
    num_taken = len(values.take_metrics())
    assert 0 < num_taken < 40_000
    assert num_taken + num_dropped == 80_000


def test_what_cannot_be_taken_is_reported_not_raised(values, monkeypatch):
    """A batch of losses or a word is a fault of the call; the training loop does not see it."""
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", {})
    values.add_metric("loss", torch.ones(3), 0)
    values.add_metric("loss", "low", 0)
    values.add_metric("loss", torch.ones(1, 1), 0)
    assert [seen.value for seen in values.take_metrics()] == [1.0]
    assert faults.counts == {"values.add": 2}


def test_meta_tensors_are_dropped(values):
    """A tensor without a value (meta device) is unknown, and unknown is not zero."""
    values.add_metric("loss", torch.ones((), device="meta"), 0)
    assert values.take_metrics() == []
    assert values.num_dropped == 1
