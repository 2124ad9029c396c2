"""What a process group tells about ranks and launches, and to whom it does not belong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from costlens.observe.placement import detect_placement
from costlens.observe.placement.place import Placement
from costlens.observe.placement.process_group import share_launch_key


@contextmanager
def group(rank: int, world_size: int, store: dist.Store | None = None) -> Iterator[None]:
    """Make this process a rank of a group whose other ranks are not there."""
    store = dist.HashStore() if store is None else store
    dist.init_process_group("fake", store=store, rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_a_group_tells_rank_and_world_where_no_variable_does() -> None:
    """A rank that only `init_process_group` was told of is that rank."""
    with group(2, 4):
        placement = detect_placement()
    assert placement == Placement(
        "process_group", None, rank=2, local_rank=2, world_size=4, local_world_size=4
    )
    assert detect_placement() == Placement()


def test_a_group_knows_better_than_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job inside a job has a group of its own; what the launcher of the outer one says is old."""
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with group(3, 4):
        placement = detect_placement()
    assert (placement.rank, placement.world_size) == (3, 4)
    assert (placement.node_rank, placement.local_rank, placement.local_world_size) == (1, 1, 2)
    assert detect_placement().rank == 5


def test_variables_stand_where_the_group_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchrun's own words on nodes and local ranks are kept."""
    environ = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    alone = detect_placement()
    with group(3, 4):
        assert detect_placement() == alone
    assert (alone.launcher, alone.local_rank) == ("torchrun", 1)


def test_ranks_find_the_key_of_whoever_came_first() -> None:
    """Each purpose has one key in a store, another store has another."""
    store, keys = dist.HashStore(), []
    for rank in (1, 0):
        with group(rank, 2, store):
            keys.append([share_launch_key("job#0"), share_launch_key("job#1")])
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[0][1]
    with group(0, 2):
        assert share_launch_key("job#0") not in keys[0]


def test_without_a_store_that_can_compare_there_is_no_key() -> None:
    """The variables have to do then; so they have in a group of one rank, and without a group."""
    with group(0, 2, FakeStore()):
        assert share_launch_key("job#0") is None
    with group(0, 1):
        assert share_launch_key("job#0") is None
    assert share_launch_key("job#0") is None


def test_a_forked_child_keeps_away_from_its_parents_group() -> None:
    """The child has neither the group's threads nor sockets of its own, until it makes a group."""
    script = """
import os, torch.distributed as dist
from costlens.observe.placement import detect_placement
def join(rank):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=rank, world_size=1)
join(0)
assert detect_placement().launcher == "none", "the group agrees with what is known anyway"
os.environ.update(RANK="1", WORLD_SIZE="2")
assert detect_placement().rank == 0
pid = os.fork()
if pid == 0:
    try:
        assert detect_placement().rank == 1
        dist.destroy_process_group()
        join(0)
        assert detect_placement().rank == 0
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
assert detect_placement().rank == 0
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
