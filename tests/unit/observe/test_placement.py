"""Where a process stands in its job, as its launcher tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from costlens.observe.placement import detect_placement
from costlens.observe.placement.place import Placement, read_int


def torchrun(rank: int, **more: str) -> dict[str, str]:
    """Return the environment that torchrun gives a worker of 4 on one node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        **more,
    }


def key_seen_by_child(environ: Mapping[str, str]) -> str:
    """Return the launch key that another process with this environment finds."""
    script = "from costlens.observe.placement import detect_placement as d; print(d().launch_key)"
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.defpath, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()


def test_without_a_launcher_there_is_one_rank_and_no_launch_to_share() -> None:
    """A plain process is rank 0 of 1."""
    assert detect_placement({}) == Placement()
    assert Placement().launch_key is None


def test_torchrun_tells_rank_and_world() -> None:
    """Rank, local rank, node and sizes are torchrun's."""
    environ = torchrun(5, LOCAL_RANK="1", GROUP_RANK="1", WORLD_SIZE="8")
    placement = detect_placement(environ)
    assert placement.launcher == "torchrun"
    assert (placement.rank, placement.local_rank, placement.node_rank) == (5, 1, 1)
    assert (placement.world_size, placement.local_world_size) == (8, 4)


def test_workers_of_one_agent_share_a_key_that_another_launch_has_not() -> None:
    """On one node the agent's process tells two launches with equal variables apart."""
    first, second = (key_seen_by_child(torchrun(rank)) for rank in (0, 3))
    assert first == second
    assert detect_placement(torchrun(0)).launch_key != first, "we have another parent"


def test_a_restart_by_the_agent_is_a_new_launch() -> None:
    """The restart count is the agent's own, and on one node every worker sees the same."""
    again = torchrun(0, TORCHELASTIC_RESTART_COUNT="1")
    assert detect_placement(again).launch_key != detect_placement(torchrun(0)).launch_key


def test_ranks_on_different_nodes_share_a_key() -> None:
    """Neither the agent's process nor its own restart count may split a launch over nodes."""
    two_nodes = {"WORLD_SIZE": "8", "MASTER_ADDR": "node-0", "TORCHELASTIC_RUN_ID": "job"}
    here = detect_placement(torchrun(0, **two_nodes)).launch_key
    there = torchrun(7, **two_nodes, GROUP_RANK="1", TORCHELASTIC_RESTART_COUNT="3")
    assert key_seen_by_child(there) == here
    new_round = detect_placement(torchrun(0, **two_nodes | {"MASTER_PORT": "4242"}))
    assert new_round.launch_key != here


def test_ranks_that_a_script_started_share_their_parent() -> None:
    """RANK and WORLD_SIZE alone: processes of one parent belong together, others do not."""
    environ = {"RANK": "0", "WORLD_SIZE": "2"}
    child = key_seen_by_child(environ)
    assert child == key_seen_by_child(environ | {"RANK": "1"})
    assert child != detect_placement(environ).launch_key


def lightning(local_rank: int, **more: str) -> dict[str, str]:
    """Return the environment that Lightning's launcher leaves in the main process and its own."""
    return {
        "LOCAL_RANK": str(local_rank),
        "NODE_RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "41321",
        **more,
    }


def test_lightning_tells_rank_and_world() -> None:
    """The main process is rank 0; the one it starts is rank 1."""
    placements = [detect_placement(lightning(rank)) for rank in (0, 1)]
    assert [placement.rank for placement in placements] == [0, 1]
    assert {placement.launcher for placement in placements} == {"lightning"}
    assert {placement.world_size for placement in placements} == {2}


def test_lightnings_main_process_and_its_children_share_a_key() -> None:
    """The main process is the parent of the others, and still all belong to one launch."""
    main = detect_placement(lightning(0)).launch_key
    assert key_seen_by_child(lightning(1)) == main
    assert detect_placement(lightning(0, MASTER_PORT="41322")).launch_key != main


def test_torchrun_goes_before_lightning() -> None:
    """Under torchrun Lightning starts no processes, so torchrun's variables are the truth."""
    assert detect_placement(torchrun(1)).launcher == "torchrun"


@pytest.mark.parametrize("broken", ["", "x", "-1", "1.5", "²"])
def test_a_launchers_typo_stops_no_training(broken: str) -> None:
    """A variable that is no number counts as not set."""
    assert read_int({"RANK": broken}, "RANK", 7) == 7
    placement = detect_placement(torchrun(0, RANK=broken, WORLD_SIZE=broken, LOCAL_RANK=broken))
    assert (placement.rank, placement.world_size, placement.local_rank) == (0, 1, 0)


def test_a_node_has_no_more_ranks_than_the_job() -> None:
    """A stale LOCAL_WORLD_SIZE cannot make a node larger than the world."""
    assert detect_placement(torchrun(0, WORLD_SIZE="1")).local_world_size == 1


def test_the_own_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument it is this process's."""
    for name, value in torchrun(2).items():
        monkeypatch.setenv(name, value)
    assert detect_placement().rank == 2
