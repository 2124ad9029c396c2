"""The demo's two training loops, with few steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
import pytorch_lightning as pl
import torch

from costlens.cli.demo import lightning_job, plain_job
from costlens.cli.demo.recipe import Batch, LossTrail, Trained


class RecordingRun:
    """Writes down what the plain loop says to its run, and refuses brackets inside brackets."""

    def __init__(self) -> None:
        self.watched: list[object] = []
        self.iterations: list[tuple[int, int, int]] = []
        self.phases: list[tuple[str, int]] = []
        self.num_fetched = 0
        self.logged: list[str] = []
        self._open = False

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.watched.append((model, optimizer))

    def batches(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        run = self

        class Batches:
            def __iter__(self) -> Iterator[Batch]:
                for batch in loader:
                    assert not run._open, "fetched inside a bracket"
                    run.num_fetched += 1
                    yield batch

        return Batches()

    @contextmanager
    def _bracket(self) -> Iterator[RecordingRun]:
        assert not self._open, "a bracket inside a bracket"
        self._open = True
        yield self
        self._open = False

    def log(self, **metrics: float | torch.Tensor) -> None:
        self.logged += metrics

    def iteration(self, *, tokens: int | torch.Tensor, slots: int, samples: int):
        self.iterations.append((int(tokens), slots, samples))
        return self._bracket()

    def phase(self, name: str):
        self.phases.append((name, len(self.iterations)))
        return self._bracket()


class StepCounter(pl.Callback):
    """Counts what the Lightning job makes its trainer do."""

    def __init__(self) -> None:
        self.num_batches = 0
        self.validated_at: list[int] = []
        self.num_steps = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        self.num_batches += 1
        self.num_steps = trainer.global_step

    def on_validation_end(self, trainer: pl.Trainer, *_: object) -> None:
        self.validated_at.append(trainer.global_step)


def _plain(seed: int = 0, max_steps: int = 4) -> Trained:
    return plain_job.train(RecordingRun(), seed, max_steps=max_steps)


def _lightning(seed: int = 0, max_steps: int = 4, callbacks: Iterable[pl.Callback] = ()) -> Trained:
    return lightning_job.train(list(callbacks), seed, max_steps=max_steps, show_progress=False)


@pytest.mark.parametrize("train", [_plain, _lightning])
def test_the_same_seed_gives_the_same_losses_bit_for_bit(train) -> None:
    """Whatever happened in the process before, one seed gives one result, and another another."""
    first = train()
    torch.rand(7)  # someone else draws from the global generator
    assert train() == first
    other = train(seed=1)
    assert (other.final, other.weights_digest) != (first.final, first.weights_digest)


def test_both_loops_train_the_same_model_in_the_same_way() -> None:
    """Losses and weights agree bit for bit; the validation mean is summed in another order."""
    plain, lightning = _plain(max_steps=6), _lightning(max_steps=6)
    assert (plain.first, plain.final) == (lightning.first, lightning.final)
    assert plain.weights_digest == lightning.weights_digest
    assert plain.validation == pytest.approx(lightning.validation, rel=1e-6)


def test_the_model_learns() -> None:
    """The first loss is that of a guess among 256 bytes, and thirty steps take off a third."""
    losses = _plain(max_steps=30)
    assert losses.first == pytest.approx(math.log(256), abs=0.2)
    assert losses.final < losses.first * 2 / 3
    assert losses.validation < losses.first * 2 / 3


def test_the_plain_loop_tells_its_run_about_every_micro_batch_and_validation() -> None:
    """Two micro-batches a step, tokens without padding, and validations outside iterations."""
    run = RecordingRun()
    plain_job.train(run, max_steps=8)
    assert len(run.watched) == 1
    assert len(run.iterations) == 16
    assert run.num_fetched == 16  # nothing is fetched that is not trained on
    assert run.phases == [("validation", at) for at in (4, 8, 12, 16)]
    assert run.logged == [*["loss"] * 4, "val_loss"] * 4
    assert {(slots, samples) for _, slots, samples in run.iterations} == {(8 * 96, 8)}
    assert all(0 < tokens < slots for tokens, slots, _ in run.iterations)


def test_the_lightning_job_runs_the_callbacks_it_is_given() -> None:
    """A callback sees two batches a step and four validations, the last after the last step."""
    counter = StepCounter()
    _lightning(max_steps=8, callbacks=[counter])
    assert (counter.num_batches, counter.num_steps) == (16, 8)
    assert counter.validated_at == [2, 4, 6, 8]


def test_the_lightning_job_leaves_no_files(in_tmp_path) -> None:
    """Checkpoints and logs belong to those who watch, so the job itself writes nothing."""
    _lightning(max_steps=1)
    assert list(in_tmp_path.iterdir()) == []


def test_losses_go_on_from_where_they_were_saved() -> None:
    """A trail that was saved and loaded tells of the first, the last 20 and the validation."""
    model, whole, trail = torch.nn.Linear(1, 1), LossTrail(), LossTrail()
    for number in range(30):
        whole.add(torch.tensor(float(number)))
        trail.add(torch.tensor(float(number)))
        if number == 25:
            state, trail = trail.state_dict(), LossTrail()
            trail.load_state_dict(state)
    whole.validation = trail.validation = 0.5
    assert trail.summarise(model) == whole.summarise(model)
    assert (whole.summarise(model).first, whole.summarise(model).final) == (0.0, 19.5)


def test_a_training_without_a_batch_has_nothing_to_tell() -> None:
    """Loud, rather than a loss of zero."""
    with pytest.raises(ValueError, match="nothing to summarise"):
        LossTrail().summarise(torch.nn.Linear(1, 1))
