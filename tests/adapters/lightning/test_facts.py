"""What a Trainer tells about itself and its place in the job."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from costlens.observe.placement import detect_placement
from costlens.observe.trainer import facts, states

ROOT = Path(__file__).parents[3]


def _trainer(**facts_of_it) -> SimpleNamespace:
    cluster = SimpleNamespace(main_address="10.0.0.1", main_port=29500)
    known = {
        "accumulate_grad_batches": 1,
        "callbacks": [],
        "current_epoch": 0,
        "global_rank": 5,
        "global_step": 0,
        "lightning_module": SimpleNamespace(automatic_optimization=True),
        "local_rank": 1,
        "max_epochs": -1,
        "max_steps": -1,
        "node_rank": 1,
        "num_nodes": 2,
        "num_training_batches": 10,
        "should_stop": False,
        "strategy": SimpleNamespace(cluster_environment=cluster),
        "world_size": 8,
    }
    return SimpleNamespace(**{**known, **facts_of_it})


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_the_trainer_places_a_rank_that_no_launcher_told(monkeypatch) -> None:
    """Rank and world are the Trainer's; ranks of a cluster nobody knows share its address."""
    placement = facts.place_trainer(_trainer())
    assert (placement.rank, placement.local_rank, placement.node_rank) == (5, 1, 1)
    assert (placement.world_size, placement.local_world_size) == (8, 4)
    assert placement.launch_key == "10.0.0.1/29500"


def test_a_launchers_key_is_kept(monkeypatch) -> None:
    """Where the environment tells the launch, it is the launch, and the Trainer only refines."""
    for name, value in {"LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    placement = facts.place_trainer(_trainer())
    assert placement.launch_key == detect_placement().launch_key is not None
    assert placement.rank == 5


def test_a_process_alone_shares_no_launch() -> None:
    """One process has no key to share, and no cluster is asked."""
    alone = _trainer(global_rank=0, local_rank=0, node_rank=0, num_nodes=1, world_size=1)
    alone.strategy = None
    assert facts.place_trainer(alone).launch_key is None


@pytest.mark.parametrize(
    ("limits", "total"),
    [
        ({"max_steps": 7}, 7),
        ({"max_epochs": 3}, 30),
        ({"max_epochs": 3, "accumulate_grad_batches": 4}, 9),
        ({"max_epochs": 3, "max_steps": 7}, 7),
        ({"max_epochs": 3, "num_training_batches": math.inf}, None),
        ({"max_epochs": 0}, 0),
        ({}, None),
        (
            {"max_epochs": 3, "lightning_module": SimpleNamespace(automatic_optimization=False)},
            None,
        ),
        ({"max_epochs": 3, "callbacks": [SimpleNamespace(scheduling={0: 1, 4: 2})]}, None),
        ({"max_epochs": 3, "max_steps": 7, "num_training_batches": math.inf}, None),
        ({"max_epochs": 0, "max_steps": 7, "num_training_batches": math.inf}, 0),
    ],
)
def test_the_total_is_known_or_absent(limits, total) -> None:
    """C018: a total needs an end and a regular pace; otherwise there is none, not infinity."""
    assert facts.total_steps(_trainer(**limits)) == total


def _in_batch(number: int) -> SimpleNamespace:
    """Return a fit loop that has come as far as batch ``number`` of its epoch, from 1."""
    batches = SimpleNamespace(is_last_batch=False, current=SimpleNamespace(ready=number))
    return SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=batches))


@pytest.mark.parametrize(
    ("state", "is_early"),
    [
        ({"should_stop": False, "max_steps": 9, "global_step": 4}, False),
        ({"should_stop": True, "max_steps": 9, "global_step": 4}, True),
        ({"should_stop": True, "max_steps": 4, "global_step": 4}, False),
        (
            {"should_stop": True, "max_epochs": 2, "current_epoch": 2, "fit_loop": _in_batch(10)},
            False,
        ),
        (
            {"should_stop": True, "max_epochs": 2, "current_epoch": 2, "fit_loop": _in_batch(9)},
            True,
        ),
        ({"should_stop": True, "max_epochs": 2, "current_epoch": 1}, True),
        ({"should_stop": True}, True),
    ],
)
def test_a_stop_is_early_before_the_limits_only(state, is_early) -> None:
    """C123: asked to stop, and neither limit reached; an epoch that was left is none reached."""
    assert states.is_stopped_early(_trainer(**state)) is is_early


class Base:
    """Stands for Lightning's class of callbacks."""

    def hook(self) -> None:
        return None

    def other(self) -> None:
        return None


Base.__name__ = "Callback"


class Mine(Base):
    def hook(self) -> None:
        return None


def test_a_hook_is_overridden_in_a_class_or_on_an_object() -> None:
    """What is inherited from the base does nothing; what has no such base may do anything."""
    on_object = Base()
    on_object.other = lambda: None
    assert facts.is_overridden(Mine(), "hook", "Callback")
    assert not facts.is_overridden(Mine(), "other", "Callback")
    assert facts.is_overridden(on_object, "other", "Callback")
    assert facts.is_overridden(object(), "hook", "Callback")


@pytest.mark.slow
def test_two_ranks_share_a_run_and_count_their_own(tmp_path, written) -> None:
    """Two processes of Lightning's launcher: one run, one attempt, 10 samples each."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    script = Path(__file__).with_name("ddp_job.py")
    subprocess.run(
        [sys.executable, str(script)], env=environment, cwd=tmp_path, check=True, timeout=100
    )
    records = written()
    assert [each["rank"]["rank"] for each in records] == [0, 1]
    assert len({each["run"]["id"] for each in records}) == 1
    for each in records:
        assert (each["attempt"]["number"], each["attempt"]["outcome"]) == (1, "completed")
        assert (each["progress"]["iterations"], each["progress"]["samples"]) == (5, 10)
        assert (each["rank"]["world_size"], each["rank"]["local_world_size"]) == (2, 2)
        assert sum(each["time_ns"].values()) == each["total_ns"]
