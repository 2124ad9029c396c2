"""A rank that the others wait for, in real jobs over gloo: it is named, once, and no other."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from costlens.core.run_record import RunRecord
from tests.distributed.launching import TORCHRUN, Launcher
from tests.planted.reading import check_named, findings_of, first_line, read_report

pytestmark = pytest.mark.slow

# A rank is paid for while it waits; nobody changes anything for less than ten seconds.
LATE_S = 11
# What is wrongly found is found in all tries; a neighbour on the machine may hold one rank up.
TRIES = 3


def train(launch: Launcher, port: str, *job: str) -> RunRecord:
    """Return the merged record of a job of two ranks."""
    launch(*job, prefix=(*TORCHRUN, port), COSTLENS_NODE_HOUR_PRICE="36")
    return read_report(launch.folder, launch.runs[-1].name)


@pytest.mark.parametrize(("loop", "slow_rank"), [("plain", 0), ("lightning", 1)])
def test_the_slow_rank_is_named(launch: Launcher, port: str, loop: str, slow_rank: int) -> None:
    """One finding, of the job, that names the rank; what the other waits for costs money."""
    record = train(launch, port, "job_straggler.py", loop, str(slow_rank))
    part = check_named(record, "straggler")
    assert (part.scope, part.ranks) == ("job", [slow_rank])
    assert part.money_per_hour is not None
    assert Decimal(part.money_per_hour) > 0


@pytest.mark.parametrize("loop", ["plain", "lightning"])
def test_ranks_that_keep_pace_have_no_finding(launch: Launcher, port: str, loop: str) -> None:
    """Two equal ranks: nothing is found, and it says so.

    In the plain loop both have heard from DDP what their hundredth all-reduce took.
    """
    for _ in range(TRIES):
        record = train(launch, port, "job_straggler.py", loop, "-1")
        if not findings_of(record):
            break
    assert findings_of(record) == []
    assert first_line(record).startswith("nothing to fix")
    paths = launch.runs[-1].glob("record-*-*.json")
    sampled = [json.loads(path.read_bytes()).get("all_reduce") for path in paths]
    assert [part is not None and part["num_sampled"] for part in sampled] == [loop == "plain"] * 2


def test_what_a_rank_waits_for_between_batches_is_not_its_own(launch: Launcher, port: str) -> None:
    """Lightning asks the first rank before each fetch: that the others wait there is no logging."""
    record = train(launch, port, "job_straggler.py", "callback", "0")
    assert "slow_logging" not in {part.name for part in record.findings}
    (run,) = launch.runs
    first, second = (rank.time_ns for rank in launch.records(run).values())
    assert second["communication"] > 0.5 * first["callbacks"] > 5 * second["logging"]


def test_the_rank_that_comes_late_is_named(launch: Launcher, port: str) -> None:
    """The rank that the other waited for at the start, with what that wait has cost."""
    record = train(launch, port, "job_gang.py", "first", str(LATE_S))
    part = check_named(record, "gang_wait")
    assert (part.scope, part.ranks) == ("job", [1])
    assert part.money_so_far is not None
    # Both ranks share the node, and one of them waited.
    assert float(part.money_so_far) == pytest.approx(LATE_S * 36 / 3600 / 2, rel=0.2)
