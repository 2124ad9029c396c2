"""Where a Trainer's process stands in its job, where Trainer and launcher see different worlds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from costlens.observe.trainer.facts import place_trainer
from tests.unit.observe.recordings import read_environment


def make_trainer(rank: int, world_size: int) -> SimpleNamespace:
    """Return what is asked of a Trainer."""
    return SimpleNamespace(
        world_size=world_size,
        global_rank=rank,
        local_rank=rank,
        node_rank=0,
        num_nodes=1,
        strategy=SimpleNamespace(
            cluster_environment=SimpleNamespace(main_address="a", main_port=1)
        ),
    )


@pytest.fixture(autouse=True)
def _in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the process into task 1 of a step of two."""
    for name, value in read_environment("slurm_step.env").items():
        monkeypatch.setenv(name, value)


def test_ranks_of_one_trainer_share_launch_and_run() -> None:
    """The Trainer drives both tasks: the job names the run."""
    placement = place_trainer(make_trainer(1, 2))  # type: ignore[arg-type]
    assert (placement.rank, placement.world_size, placement.launcher) == (1, 2, "slurm")
    assert placement.job_id == "1"
    assert placement.launch_key is not None


def test_tasks_that_train_alone_are_runs_of_their_own() -> None:
    """A sweep over the tasks of a step: each Trainer knows of itself alone."""
    placement = place_trainer(make_trainer(0, 1))  # type: ignore[arg-type]
    assert (placement.rank, placement.world_size) == (0, 1)
    assert placement.job_id == "1-1"
    assert placement.launch_key is None, "a key would be shared with the other tasks"
