"""How the ranks of a job come together: who waited for whom, and until when nothing was trained."""

from __future__ import annotations

import pytest

from costlens.account.ledger import merge
from costlens.core.records import RankRecord
from costlens.export.console_gang import describe_gang
from tests.distributed.job_gang import LATE_S
from tests.distributed.launching import TORCHRUN, Launcher
from tests.fixtures_otlp import OtlpReceiver

pytestmark = pytest.mark.slow


def read_ranks(launch: Launcher) -> list[RankRecord]:
    """Return the records of the only attempt by rank."""
    (run,) = launch.runs
    return [*launch.records(run).values()]


def test_the_rank_that_came_first_waited_for_the_late_one(
    launch: Launcher, otlp_receiver: OtlpReceiver, port: str
) -> None:
    """Rank 1 comes two seconds late, and rank 0 alone stood there; both see their first step."""
    launch("job_gang.py", "first", prefix=(*TORCHRUN, port))
    ranks = read_ranks(launch)
    waited_s = [record.startup.gang_wait_s for record in ranks]
    assert waited_s[0] - waited_s[1] > LATE_S / 2
    for record in ranks:
        startup = record.startup
        assert startup.gang_wait_unknown is None
        assert startup.gang_wait_s < startup.setup_s + startup.process_s
        assert 0 < startup.import_s < startup.process_s
        begin_s = startup.process_s + startup.setup_s + startup.first_iteration_s
        assert begin_s + 0.2 <= startup.first_step_s < record.total_ns / 1e9
    run = merge(ranks, now=ranks[0].attempt.heartbeat_time)
    assert run.startup.first_step_s == max(record.startup.first_step_s for record in ranks)
    assert run.attempts[0].first_step_s == run.startup.first_step_s
    assert run.startup.gang_wait_s == waited_s[0]
    line = [str(each) for each in describe_gang(run)][1]
    assert line.startswith("waited for the other ranks: ")
    assert line.index("(rank 0)") < line.index("(rank 1)")
    points = otlp_receiver.points("costlens.startup.gang_wait")
    assert points, "it is a metric, too"


def test_a_wait_before_the_run_is_unknown_and_says_so(launch: Launcher, port: str) -> None:
    """Nothing watched the process then: no number is made up."""
    launch("job_gang.py", "after", prefix=(*TORCHRUN, port))
    for record in read_ranks(launch):
        assert record.startup.gang_wait_s is None
        assert "start the run first" in record.startup.gang_wait_unknown


@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_lightnings_ranks_wait_before_any_hook(launch: Launcher, strategy: str) -> None:
    """The callback sees the group being made; the script's main rank waits for the other's imports.

    Its rank 0 starts the processes of the others only then.
    """
    launch("job_lightning.py", strategy, "1")
    ranks = read_ranks(launch)
    waited_s = [record.startup.gang_wait_s for record in ranks]
    assert all(seconds > 0 for seconds in waited_s)
    for record, seconds in zip(ranks, waited_s, strict=True):
        assert seconds < record.startup.process_s
    if strategy == "ddp":
        assert waited_s[0] > 2 * waited_s[1]
