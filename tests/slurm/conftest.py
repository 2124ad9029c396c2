"""A real Slurm of one node, started once for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integrations.slurm.testbed.cluster import Cluster, find_missing, run_cluster
from tests.slurm.jobs import Jobs


@pytest.fixture(scope="session")
def _cluster() -> Iterator[Cluster | None]:
    if find_missing():
        yield None
        return
    with run_cluster() as cluster:
        yield cluster


@pytest.fixture
def jobs(
    _cluster: Cluster | None, tmp_path: Path, require: Callable[[str, bool, str], None]
) -> Jobs:
    """Return what submits trainings to the cluster, with a run folder of the test's own."""
    missing = ", ".join(find_missing())
    require("slurm", _cluster is not None, f"{missing} not installed (integrations/slurm/testbed)")
    assert _cluster is not None
    return Jobs(_cluster, tmp_path, sys.executable)
