"""Ranks on one machine: each speaks for itself, one of them for the machine."""

from __future__ import annotations

import pytest

from costlens.account.hosts import merge_hosts
from tests.distributed.launching import TORCHRUN, Launcher

pytestmark = pytest.mark.slow


def test_the_machine_of_two_ranks_is_counted_once(launch: Launcher, port: str) -> None:
    """C025: rank 0 alone describes node and container; processes are added up."""
    launch("job_plain.py", "torchrun", prefix=(*TORCHRUN, port))
    (run,) = launch.runs
    records = launch.records(run)
    parts = [records[1, rank].host for rank in (0, 1)]
    assert all(part is not None and part.process is not None for part in parts)
    assert [part is not None and part.node is not None for part in parts] == [True, False]
    assert parts[1] is not None
    assert parts[1].container is None
    (host,) = merge_hosts([*records.values()])
    assert host.num_ranks == 2
    assert host.node is not None
    own = [part.process.memory_bytes for part in parts if part and part.process]
    assert host.process_memory_bytes == sum(own)  # type: ignore[arg-type]
