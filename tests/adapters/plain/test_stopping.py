"""How a plain loop ends where all ranks have agreed to stop."""

from __future__ import annotations

import pytest
import torch

import costlens
from costlens.run import Run


class StopAt:
    """Agrees to stop at a boundary."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.num_boundaries = 0

    def reach_boundary(self) -> str | None:
        """Count, and say why to stop."""
        self.num_boundaries += 1
        return "stop:budget" if self.num_boundaries == self.number else None

    def poll(self) -> None:
        """Have nothing to learn."""

    def close(self) -> None:
        """Have nothing to call off."""


@pytest.fixture
def run() -> Run:
    """Return an open run that writes and prints nothing."""
    run = costlens.start("stopping", summary=False)
    yield run
    run.finish()


def stop_at(run: Run, number: int) -> StopAt:
    """Let the ranks of a run agree."""
    agreement = run.parts.boundaries.agreement = StopAt(number)
    return agreement


def test_batches_end_where_all_ranks_stop(run: Run) -> None:
    """Seven of a hundred iterations, no batch of the next epoch, and the outcome says why."""
    stop_at(run, 7)
    seen = []
    for _ in range(3):
        for number in run.batches(range(100)):
            with run.iteration():
                seen.append(number)
    assert seen == [*range(7)]
    assert run.should_stop
    record = run.finish()
    assert (record.attempt.outcome.value, record.attempt.end_reason) == ("stopped_early", "budget")


def test_a_loop_of_its_own_asks_after_each_iteration(run: Run) -> None:
    """`run.should_stop` turns true at the boundary and stays so."""
    stop_at(run, 3)
    num = 0
    while not run.should_stop:
        with run.iteration():
            num += 1
    assert num == 3


@pytest.mark.parametrize("has_iterations", [True, False])
def test_a_boundary_is_a_step_where_optimizers_are_watched(run: Run, has_iterations: bool) -> None:
    """Accumulation of two: the stop comes after a step and never between two halves of one."""
    agreement = stop_at(run, 3)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.watch(model, optimizer)
    num_steps = num_batches = 0
    for batch in run.batches([torch.ones(2, 4)] * 40):
        num_batches += 1
        with run.iteration() if has_iterations else run.phase("compute"):
            model(batch).mean().backward()
            if num_batches % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
                num_steps += 1
    assert (num_steps, num_batches, agreement.num_boundaries) == (3, 6, 3)


def test_evaluation_after_the_stop_is_whole(run: Run) -> None:
    """The loop that stopped still evaluates: the models say that this is no training."""
    stop_at(run, 1)
    model = torch.nn.Linear(4, 1)
    run.watch(model)
    for batch in run.batches([torch.ones(2, 4)] * 5):
        with run.iteration():
            model(batch).mean().backward()
    model.eval()
    assert sum(1 for _ in run.batches(range(8))) == 8
    model.train()
    assert [*run.batches(range(8))] == []


def test_without_an_agreement_nothing_stops(run: Run) -> None:
    """The usual run counts no boundaries."""
    assert run.parts.boundaries.agreement is None
    assert sum(1 for _ in run.batches(range(8))) == 8
    assert not run.should_stop


def test_a_loop_that_tells_its_steps_has_no_other_boundaries(run: Run) -> None:
    """Told steps count, iterations do not: ranks of one program count alike, whichever it does."""
    agreement = stop_at(run, 100)
    for number in run.batches(range(6)):
        with run.iteration():
            if number % 2:
                run.parts.boundaries.tell_step()
    assert agreement.num_boundaries == 1 + 3, "the first iteration came before the first step"
