"""Cases from the real world, in a plain loop on a fake clock, with their right values."""

from __future__ import annotations

import gc
import math
import time

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from costlens.account.ledger import merge
from costlens.core.clock import NS_PER_S
from tests.adapters.plain.timed import Rig, TimedSet


def test_samples_are_what_the_batches_held(rig):
    """C005: batch sizes 1, 2, 1 give running totals 1, 3, 4."""
    totals = []
    for size in (1, 2, 1):
        with rig.run.iteration(samples=size):
            pass
        totals.append(rig.counters.samples)
    assert totals == [1, 3, 4]


@pytest.mark.parametrize(("drop_last", "expected"), [(False, 10), (True, 8)])
def test_a_short_last_batch_counts_what_it_holds(rig, drop_last, expected):
    """C005: ten samples in batches of four are ten, or eight when the rest is dropped."""
    loader = DataLoader(TensorDataset(torch.ones(10, 1)), batch_size=4, drop_last=drop_last)
    for (batch,) in rig.run.batches(loader):
        with rig.run.iteration(samples=len(batch)):
            pass
    assert rig.finish().progress.samples == expected


def test_no_loss_is_read_on_the_step_path(rig, monkeypatch):
    """C006: 100 watched steps log a loss that counts host reads; the SDK makes none."""
    reads = []

    class Loss(torch.Tensor):
        def item(self):
            reads.append("item")
            return super().item()

        __float__ = cpu = numpy = tolist = item

    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: reads.append("synchronize"))
    rig.run.watch(rig.net, rig.optimizer)
    for batch in rig.run.batches([torch.ones(2, 4)] * 100):
        with rig.run.iteration(tokens=torch.tensor(3)) as iteration:
            loss = rig.train(batch)
            iteration.log(loss=loss.as_subclass(Loss))
            rig.run.log(norm=loss.detach().as_subclass(Loss))
    record = rig.finish()
    assert reads == []
    assert record.quality["loss"].num_values == record.quality["norm"].num_values == 100
    assert record.progress.tokens == 300


def test_warm_up_does_not_drag_the_rate(rig):
    """C009: a first step of 2 s, then 50 of 10 ms: start-up 2 s, median 10 ms, 100 steps/s."""
    before_ns = rig.timeline.read().until(rig.clock())[0]
    for step in range(51):
        with rig.run.iteration(samples=1):
            rig.clock.advance(2.0 if step == 0 else 0.01)
    record = rig.finish()
    assert record.iteration_time.median_s == pytest.approx(0.01, rel=0.01)
    assert record.rates.samples_per_s == pytest.approx(100)
    assert record.time_ns["startup"] - before_ns == 2 * NS_PER_S
    assert record.time_ns["compute"] == NS_PER_S // 2


def test_warm_up_is_paid_for(rig):
    """C009: a first step of 2 s and 50 of 10 ms cost 2.5 s, 2 of them as start-up."""
    rig.run.finish()  # the next run does not begin with the process
    rig = Rig(node_hour_price=3600)
    for step in range(51):
        with rig.run.iteration(samples=1):
            rig.clock.advance(2.0 if step == 0 else 0.01)
    cost = merge([rig.finish()], now=time.time()).cost
    assert cost.total == "2.50"
    assert cost.by_phase == {"startup": "2.00", "compute": "0.50"}


def test_window_rate_and_run_rate_agree(rig):
    """C012: ten steps of 100 tokens in 0.1 s each are 1000 tokens/s over the run and a window."""
    for _ in range(11):
        with rig.run.iteration(tokens=100):
            rig.clock.advance(0.1)
    record = rig.finish()
    assert record.rates.tokens_per_s == pytest.approx(1000)
    window = rig.exporter.snapshots[-1].window
    assert (window.num_iterations, window.iteration_sum_ns) == (10, NS_PER_S)
    assert window.rates.tokens_per_s == pytest.approx(1000)


def test_a_loader_without_length_stays_without(rig):
    """C018: an unsized loader is watched; no length, no total, and no TypeError for the user."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.ones(6, 4))

    loader = DataLoader(Stream(), batch_size=2)
    watched = rig.run.batches(loader)
    rig.run.watch(rig.net, rig.optimizer, loader=loader)
    assert len(list(watched)) == 3
    with pytest.raises(TypeError, match="has no len"):
        len(watched)
    for batch in watched:
        rig.train(batch)
    generator = rig.run.batches(batch for batch in [torch.ones(2, 4)] * 2)
    assert not hasattr(generator, "__len__")
    assert len(list(generator)) == 2
    record = rig.finish()
    assert record.progress.iterations == 3
    assert record.progress.total_steps is None


@pytest.mark.parametrize("is_explicit", [True, False])
def test_fast_forwarding_is_no_training(rig, is_explicit):
    """C019: 50 batches of 10 ms are skipped, ten are trained on: 0.5 s restore, ten iterations."""
    loader = DataLoader(TimedSet(rig.clock, 60, read_s=0.01))
    rig.run.watch(rig.net, rig.optimizer)
    for number, batch in enumerate(rig.run.batches(loader)):
        if number < 50:
            continue
        if is_explicit:
            with rig.run.iteration(tokens=4):
                rig.train(batch)
        else:
            rig.train(batch)
    phases = rig.phases_ms()
    assert phases["restore"] == pytest.approx(500)
    assert phases["data_wait"] == pytest.approx(9 * 10)
    assert "compute" not in phases
    record = rig.finish()
    assert record.progress.iterations == 10
    if is_explicit:
        assert record.progress.tokens == 40
        assert record.rates.tokens_per_s == pytest.approx(4 / 0.07)


def test_fast_forwarding_under_a_phase_of_the_user(rig):
    """C019: the same inside run.phase("restore"): all of it is restore."""
    batches = iter(rig.run.batches(DataLoader(TimedSet(rig.clock, 60, read_s=0.01))))
    with rig.run.phase("restore"):
        for _ in range(50):
            next(batches)
    for batch in batches:
        with rig.run.iteration():
            rig.train(batch)
    phases = rig.phases_ms()
    assert phases["restore"] == pytest.approx(500)
    assert phases["data_wait"] == pytest.approx(90)
    assert phases["compute"] == pytest.approx(9 * 60)
    assert rig.finish().progress.iterations == 10


@pytest.mark.parametrize("is_fused", [False, True])
def test_steps_that_a_scaler_skips_are_no_steps(rig, is_fused):
    """C071: five iterations with an infinite gradient in the second: 4 steps, 1 skipped, 5 passes.

    A fused optimizer is called each time and skips by itself.
    """
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=is_fused or None)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    rig.run.watch(model, optimizer, scaler=scaler)
    for number in range(5):
        with rig.run.iteration():
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).sum()
            scaler.scale(loss * (math.inf if number == 1 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() == 512.0
    progress = rig.finish().progress
    assert progress.optimizer_steps == 4
    assert progress.skipped_steps == 1
    assert progress.micro_batches == progress.iterations == 5


def test_the_time_of_a_skipped_step_is_the_optimizers(rig):
    """C071: looking for infinities is part of the update, also when it then does not happen."""
    scaler = torch.amp.GradScaler("cpu")

    def unscale(*_args, **_kwargs):
        rig.clock.advance(0.004)
        return {torch.device("cpu"): torch.ones(())}

    scaler._unscale_grads_ = unscale
    rig.run.watch(rig.net, rig.optimizer, scaler=scaler)
    for _ in range(3):
        with rig.run.iteration():
            scaler.scale(rig.net(torch.ones(2, 4)).sum()).backward()
            scaler.step(rig.optimizer)
            scaler.update()
    assert rig.phases_ms()["optimizer"] == pytest.approx(2 * 4)
    assert rig.counters.skipped_steps == 3


def test_nan_losses_are_counted_and_poison_nothing(rig, capsys):
    """C073: losses 1, NaN, inf, 2: two bad values, one event with the first of them."""
    for loss in (1.0, math.nan, math.inf, 2.0):
        with rig.run.iteration(tokens=10) as iteration:
            rig.clock.advance(0.1)
            iteration.log(loss=torch.tensor(loss))
    record = rig.finish()
    quality = record.quality["loss"]
    assert (quality.num_nonfinite, quality.first_nonfinite_iteration) == (2, 1)
    assert (quality.num_values, quality.mean, quality.last) == (2, 1.5, 2.0)
    assert record.progress.tokens == 40
    events = [line for line in capsys.readouterr().err.splitlines() if "costlens.nonfinite" in line]
    assert len(events) == 1
    assert '"iteration": 1' in events[0]


def test_cuda_is_never_initialised_on_a_cpu(rig, monkeypatch):
    """C080: torch's CUDA initialisation raises; watching, training and logging do not touch it."""

    def refuse():
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    loader = DataLoader(TimedSet(rig.clock))
    scaler = torch.amp.GradScaler("cpu")
    rig.run.watch(rig.net, rig.optimizer, loader=loader, scaler=scaler)
    for batch in rig.run.batches(loader, device="cpu"):
        with rig.run.iteration(tokens=batch.sum()):
            rig.run.log(loss=rig.train(batch))
    record = rig.finish()
    assert record.host_ns is None
    assert record.rank.num_gpus == 0


def test_padding_is_no_token(rig):
    """C109: rows of 8 and 3 padded to 8, then 6 and 5 padded to 6: 22 tokens in 28 slots."""
    for lengths, width in (((8, 3), 8), ((6, 5), 6)):
        mask = torch.arange(width) < torch.tensor(lengths)[:, None]
        with rig.run.iteration(tokens=mask.sum(), slots=mask.numel(), samples=len(mask)):
            rig.clock.advance(0.1)
    progress = rig.finish().progress
    assert (progress.tokens, progress.slots, progress.samples) == (22, 28, 4)
    assert 1 - progress.tokens / progress.slots == pytest.approx(0.214, abs=0.001)


def test_the_model_can_be_freed_while_the_run_goes_on(rig):
    """Watching keeps neither a model nor an optimizer nor a loader alive."""
    import weakref

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TimedSet(rig.clock))
    rig.run.watch(model, optimizer, loader=loader)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    graves = [weakref.ref(model), weakref.ref(optimizer), weakref.ref(loader)]
    del model, optimizer, loader, batch
    gc.collect()
    assert [grave() for grave in graves] == [None] * 3
