"""A slow rank in a real DDP job over gloo: it is named, once, not the rank that waits for it."""

from __future__ import annotations

import io
import json
import time
from decimal import Decimal

import pytest
from rich.console import Console

from costlens.core.run_record import RunRecord
from costlens.diagnose.causes import COMPUTE_BOUND
from costlens.export.console import render
from costlens.export.record import read_run
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.distributed.launching import TORCHRUN, Launcher

pytestmark = pytest.mark.slow


def train(launch: Launcher, port: str, slow_rank: int) -> RunRecord:
    """Return the merged record of a job in which this rank is slow."""
    launch(
        "job_straggler.py",
        str(slow_rank),
        prefix=(*TORCHRUN, port),
        COSTLENS_NODE_HOUR_PRICE="36",
    )
    (run,) = launch.runs
    return read_run(RunFolder(Store(str(launch.folder)), run.name), time.time())


@pytest.mark.parametrize("slow_rank", [0, 1])
def test_the_slow_rank_is_named(launch: Launcher, port: str, slow_rank: int) -> None:
    """One finding, of the job, that names the rank; what the other waits for costs money."""
    record = train(launch, port, slow_rank)
    found = [part for part in record.findings if part.name != COMPUTE_BOUND]
    assert [part.name for part in found] == ["straggler"], record.undecided
    (part,) = found
    assert (part.scope, part.ranks) == ("job", [slow_rank])
    assert part.money_per_hour is not None
    assert Decimal(part.money_per_hour) > 0
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(record, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    line = text.split("\n\n", 1)[1].splitlines()[1]
    assert line.strip().startswith("1  One rank keeps the others waiting · ")


def test_ranks_that_keep_pace_have_no_finding(launch: Launcher, port: str) -> None:
    """Two equal ranks: nothing is found, and it says so.

    Both have heard from DDP what their hundredth all-reduce took.
    """
    record = train(launch, port, -1)
    assert [part.name for part in record.findings if part.name != COMPUTE_BOUND] == []
    (run,) = launch.runs
    records = [json.loads(path.read_bytes()) for path in sorted(run.glob("record-*-*.json"))]
    assert [each["all_reduce"]["num_sampled"] for each in records] == [1, 1]
