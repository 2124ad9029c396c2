"""What is counted in real trainings: the cases about samples, steps, tokens and losses."""

from __future__ import annotations

import importlib
import json
import math
from typing import ClassVar

import pytest
import torch
from torch.utils.data import DataLoader

from costlens.lightning import CostLensCallback
from tests.adapters.lightning.jobs import (
    Plant,
    Stream,
    fit,
    make_module,
    make_trainer,
    record_of,
    rows,
)


def test_accumulation_changes_steps_and_not_samples(pl) -> None:
    """C001: 40 batches of 4 are 160 samples; accumulating 4 of them makes 10 steps of 40."""
    for accumulation, steps in ((1, 40), (4, 10)):
        record = fit(
            pl, make_module(pl), rows(160, 4), max_epochs=1, accumulate_grad_batches=accumulation
        )
        progress = record.progress
        assert (progress.samples, progress.optimizer_steps) == (160, steps)
        assert (progress.iterations, progress.micro_batches) == (40, 40)
        assert progress.total_steps == steps == record.attempt.end_step


@pytest.mark.parametrize(("accumulation", "steps_per_s"), [(1, 100), (4, 25)])
def test_accumulation_leaves_the_sample_rate_alone(pl, clock, accumulation, steps_per_s) -> None:
    """C001: at 10 ms a batch of 4 either accumulation makes 400 samples a second."""
    module = make_module(pl, step=Plant(clock, 0.01))
    record = fit(pl, module, rows(164, 4), max_epochs=1, accumulate_grad_batches=accumulation)
    assert record.rates.samples_per_s == pytest.approx(400)
    assert record.rates.iterations_per_s == pytest.approx(100)
    # 41 batches make 11 steps of 4 or less, none of them in the first iteration.
    assert record.rates.steps_per_s == pytest.approx(steps_per_s, rel=0.11)


def test_batches_of_any_size_are_counted_as_they_come(pl) -> None:
    """C005: sizes 1, 2, 1 are 4 samples after running totals of 1 and 3."""
    totals = []
    callback = CostLensCallback("sizes")

    class Reader(pl.Callback):
        def on_train_batch_end(self, *_) -> None:
            totals.append(callback.run.parts.recorder.counters.samples)

    batches = [torch.ones(size, 4) for size in (1, 2, 1)]
    loader = DataLoader(batches, batch_size=None)
    make_trainer(pl, callback, Reader(), max_epochs=1).fit(make_module(pl), loader)
    assert totals == [1, 3, 4]
    assert record_of(callback).progress.samples == 4


@pytest.mark.parametrize(("drop_last", "samples"), [(False, 10), (True, 8)])
def test_a_short_last_batch_counts_what_it_holds(pl, drop_last, samples) -> None:
    """C005: 10 samples in batches of 4 are 10, or 8 where the last is dropped, never 12."""
    record = fit(pl, make_module(pl), rows(10, 4, drop_last=drop_last), max_epochs=1)
    assert record.progress.samples == samples


class CountingTensor(torch.Tensor):
    """Counts reads that would wait for a device."""

    reads: ClassVar[list[str]] = []


def _counting(name: str):
    plain = getattr(torch.Tensor, name)

    def read(self, *args, **kwargs):
        CountingTensor.reads.append(name)
        return plain(self, *args, **kwargs)

    return read


for _name in ("item", "__float__", "__int__", "__bool__", "cpu", "numpy", "tolist"):
    setattr(CountingTensor, _name, _counting(_name))


def test_the_loss_is_never_read_on_the_step_path(pl, monkeypatch) -> None:
    """C006: 100 steps with windows of 10 ms read the loss 0 times and wait for no device."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("waited for a device"))
    monkeypatch.setenv("COSTLENS_WINDOW_S", "0.01")
    CountingTensor.reads.clear()
    module = make_module(pl, step=lambda loss, _: loss.as_subclass(CountingTensor))
    record = fit(pl, module, rows(100), max_epochs=1)
    assert CountingTensor.reads == []
    assert record.quality["loss"].num_values == 100


@pytest.mark.parametrize(
    ("mode", "steps"), [("min_size", 4), ("max_size", 8), ("max_size_cycle", 8)]
)
@pytest.mark.parametrize("order", [("long", "short"), ("short", "long")])
def test_combined_loaders_with_empty_members_are_counted(pl, mode, steps, order) -> None:
    """C017: loaders of 8 and 4 batches make 4, 8 and 8 iterations; a None member is no obstacle."""
    combined = importlib.import_module(f"{pl.__name__}.utilities").CombinedLoader
    loaders = {"long": rows(16, 2), "short": rows(8, 2)}
    loader = combined({name: loaders[name] for name in order}, mode)
    record = fit(pl, make_module(pl), loader, max_epochs=1)
    assert record.progress.iterations == steps
    assert record.progress.samples == 2 * steps
    assert (
        record.iteration_time.count == steps - 1
    )  # one duration, so one data wait, per combined batch


def test_a_loader_without_length_has_no_total(pl) -> None:
    """C018: the total is absent, not infinite, and nothing fails on the missing length."""
    loader = DataLoader(Stream(6), batch_size=2)
    callback = CostLensCallback("stream")

    class Stopper(pl.Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            trainer.should_stop = True

    make_trainer(pl, callback, Stopper(), max_epochs=-1).fit(make_module(pl), loader)
    record = record_of(callback)
    assert record.progress.iterations == 3
    assert record.progress.total_steps is None
    text = json.dumps(json.loads(record.model_dump_json()))
    assert "Infinity" not in text
    assert "NaN" not in text


def test_a_limit_of_steps_is_a_total_without_a_length(pl) -> None:
    """C018: where a number of steps is asked for, that is the total."""
    record = fit(pl, make_module(pl), DataLoader(Stream(6), batch_size=2), max_steps=2)
    assert record.progress.total_steps == 2
    assert record.progress.iterations == 2


def test_losses_that_are_no_numbers_are_counted_apart(pl, capsys) -> None:
    """C073: of the losses 1, NaN, inf, 2 two are bad; the first bad iteration is told once."""
    losses = iter((1.0, math.nan, math.inf, 2.0))
    module = make_module(pl, step=lambda loss, _: loss * 0 + next(losses))
    record = fit(pl, module, rows(4), max_epochs=1)
    loss = record.quality["loss"]
    assert (loss.num_nonfinite, loss.first_nonfinite_iteration, loss.num_values) == (2, 1, 2)
    assert (loss.last, loss.best, loss.mean) == (2.0, 1.0, 1.5)
    assert record.progress.samples == 4
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "costlens.nonfinite" in x]
    assert json.loads(line)["iteration"] == 1


def test_the_loss_is_the_users_whatever_lightning_divides_it_by(pl) -> None:
    """Lightning hands hooks the loss divided by the accumulation; the record has the user's own."""
    module = make_module(pl, step=lambda loss, _: loss * 0 + 3.0)
    record = fit(pl, module, rows(8), max_epochs=1, accumulate_grad_batches=4)
    assert record.quality["loss"].mean == pytest.approx(3.0)


def _texts() -> list[dict[str, torch.Tensor]]:
    batches = []
    for lengths in ((8, 3), (6, 5)):
        width = max(lengths)
        mask = torch.tensor([[int(at < length) for at in range(width)] for length in lengths])
        ids = torch.ones(2, width, dtype=torch.long)
        batches.append(
            {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
        )
    return batches


def test_padding_is_no_token(pl) -> None:
    """C109: rows of 8 and 3, then 6 and 5, padded: 22 tokens in 28 slots."""
    record = fit(pl, make_module(pl), DataLoader(_texts(), batch_size=None), max_epochs=1)
    progress = record.progress
    assert (progress.tokens, progress.slots, progress.loss_tokens) == (22, 28, 22)
    assert progress.samples == 4
    assert round(100 * (1 - progress.tokens / progress.slots), 1) == 21.4


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (lambda batch: 7, (14, 28, 4)),
        (lambda batch: batch["attention_mask"].sum(), (22, 28, 4)),
        (lambda batch: {"tokens": 5, "slots": 10, "samples": 3}, (10, 20, 6)),
        (lambda batch: {"samples": 1}, (22, 28, 2)),
    ],
    ids=["number", "tensor", "mapping", "part"],
)
def test_the_users_own_count_comes_first(pl, tokens, expected) -> None:
    """What `tokens=` returns replaces what the batch tells; the rest stays."""
    record = fit(
        pl,
        make_module(pl),
        DataLoader(_texts(), batch_size=None),
        max_epochs=1,
        watch={"tokens": tokens},
    )
    progress = record.progress
    assert (progress.tokens, progress.slots, progress.samples) == expected


def test_what_a_batch_does_not_tell_is_absent(pl) -> None:
    """A batch of plain numbers has samples, and no tokens rather than 0 of them."""
    progress = fit(pl, make_module(pl), rows(4), max_epochs=1).progress
    assert (progress.samples, progress.tokens, progress.slots) == (4, None, None)


def test_every_optimizer_counts_its_own_steps(pl) -> None:
    """C120: two manual optimizers over 8 batches make 8 iterations and 16 steps."""
    record = fit(pl, make_module(pl, num_manual=2), rows(8), max_epochs=1)
    progress = record.progress
    assert (progress.iterations, progress.micro_batches, progress.samples) == (8, 8, 8)
    assert progress.optimizer_steps == 16 == record.attempt.end_step
    assert progress.total_steps is None  # nobody knows how often a module will step


def test_a_limit_counts_the_steps_of_all_optimizers(pl) -> None:
    """C120: with two optimizers a limit of 10 steps is reached after 5 iterations."""
    progress = fit(pl, make_module(pl, num_manual=2), rows(8), max_steps=10).progress
    assert (progress.iterations, progress.optimizer_steps, progress.total_steps) == (5, 10, 10)


def test_a_step_that_the_scaler_skips_is_not_an_update(pl) -> None:
    """C071: an infinite gradient in iteration 2 of 5: 4 updates, 1 skipped, 5 micro-batches."""
    plugin = importlib.import_module(f"{pl.__name__}.plugins").MixedPrecision(
        "16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=4.0)
    )
    module = make_module(pl, step=lambda loss, at: loss * math.inf if at == 2 else None)
    progress = fit(pl, module, rows(5), max_epochs=1, plugins=[plugin]).progress
    assert (progress.optimizer_steps, progress.skipped_steps, progress.micro_batches) == (4, 1, 5)


def test_an_update_left_out_on_purpose_is_not_skipped(pl) -> None:
    """A module may step every second time only; without a scaler that is no skipped step."""

    def optimizer_step(epoch, batch_idx, optimizer, closure) -> None:
        closure()
        if batch_idx % 2:
            optimizer.step()

    progress = fit(
        pl, make_module(pl, optimizer_step=optimizer_step), rows(6), max_epochs=1
    ).progress
    assert (progress.optimizer_steps, progress.skipped_steps) == (3, 0)


def test_values_that_were_logged_are_kept_by_name(pl, monkeypatch) -> None:
    """Logged names that match the globs are quality, once a value; others are not."""
    monkeypatch.setenv("COSTLENS_QUALITY", "val_*")
    record = fit(pl, make_module(pl), rows(6), rows(2), max_epochs=2)
    assert set(record.quality) == {"loss", "learning_rate", "val_loss"}
    assert record.quality["val_loss"].num_values == 2
    assert record.quality["val_loss"].last_iteration == 11
    assert record.quality["learning_rate"].last == pytest.approx(0.01)


def test_a_logged_gradient_norm_is_read_once_a_window(pl, clock) -> None:
    """Of 30 norms logged a second apart three are read, in windows of 10 s."""
    second = Plant(clock)
    module = make_module(pl, step=lambda *_: (module.log("grad_norm", 2.0), second())[0])
    record = fit(pl, module, rows(30), max_epochs=1)
    norm = record.quality["grad_norm"]
    assert (norm.last, norm.num_values, norm.last_iteration) == (2.0, 3, 29)
