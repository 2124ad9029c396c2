"""The placement of a process: rank, world and the launch that it shares with the other ranks."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from costlens.core.job_records import JobPart

__all__ = ["Placement", "read_int", "read_master"]

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a process stands in its job.

    Args:
        launcher: Who started it: torchrun, ray, lightning, slurm, process_group (only
            torch.distributed tells) or none.
        launch_key: Text that every rank of one launch shares and no other launch has; None when the
            launcher gives none.
        rank: Rank in the job, from 0.
        local_rank: Rank on its node, from 0.
        node_rank: The node's number, from 0.
        world_size: Ranks of the job.
        local_world_size: Ranks on this node.
        job_id: What the scheduler's job contributes to the identity of the run: the same for all
            ranks and over restarts of the job; None where no scheduler tells one.
        job: The scheduler's job, as far as its variables tell it.
    """

    launcher: str = "none"
    launch_key: str | None = None
    rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    job_id: str | None = None
    job: JobPart | None = None


def read_int(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return a variable that holds an integer >= 0; anything else counts as not set.

    A launcher's typo must not stop training.
    """
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() else default


def read_master(environ: Mapping[str, str]) -> str:
    """Return address and port at which the ranks of a launch meet, told apart over hosts.

    A loopback address is the same on every host, and jobs on several hosts may share a run folder.
    """
    address = environ.get("MASTER_ADDR") or "127.0.0.1"
    host = platform.node() if address in _LOOPBACK else ""
    return f"{host}/{address}/{environ.get('MASTER_PORT', '')}"
