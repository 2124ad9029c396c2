"""How the ranks of a job come together: who waited for whom, and until when nothing was trained."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from costlens.account.ledger import merge
from costlens.core.records import RankRecord
from costlens.export.console_gang import describe_gang, describe_missing
from costlens.export.record import read_run
from costlens.observe.last_words import witness_end
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
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
        assert seconds < record.startup.process_s < record.startup.first_step_s
    if strategy == "ddp":
        assert waited_s[0] > 2 * waited_s[1]


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_killed_rank_is_missed_while_the_others_train(
    launch: Launcher, otlp_receiver: OtlpReceiver, port: str, world_size: int
) -> None:
    """Rank 0 sees it while it runs: in its record, its log and its metrics; readers see it, too."""
    last = world_size - 1
    done = launch("job_missing.py", port, str(world_size))
    ranks = read_ranks(launch)
    assert [record.rank.rank for record in ranks] == [*range(world_size)]
    assert [record.gang is None for record in ranks] == [False] + [True] * last
    assert ranks[0].gang.missing_ranks == [last]
    assert ranks[0].gang.num_reporting == last
    events = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    (told,) = [event for event in events if event["event"] == "costlens.ranks.missing"]
    assert (told["rank"], told["ranks"]) == (0, [last])
    seen = [point.value for point in otlp_receiver.points("costlens.run.ranks.reporting")]
    assert world_size in seen
    assert seen[-1] == last
    (run,) = launch.runs
    merged = read_run(RunFolder(Store(run.parent), run.name), time.time(), witness_end)
    assert merged.attempts[0].num_reporting == last
    assert merged.attempts[0].missing_ranks == [last]
    (line,) = map(str, describe_missing(merged))
    assert line == f"{last} of {world_size} ranks reported to the end; missing: rank {last}"


CRASHING = """
import sys, time, torch, costlens
run = costlens.start("loop")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run.watch(model, optimizer)
for number in range(30):
    with run.iteration(samples=1):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    if number == 4 and sys.argv[1] == "crashes":
        raise ValueError("always here")
    time.sleep(0.02)
"""


def test_a_job_that_crashes_at_the_same_step_is_in_a_restart_loop(
    launch: Launcher, otlp_receiver: OtlpReceiver
) -> None:
    """Three crashes after five steps; the fourth launch begins under alarm and ends it."""

    def run_script(how: str) -> subprocess.CompletedProcess[str]:
        environ = {**launch.environ, "COSTLENS_RUN_ID": "loop", "COSTLENS_NODE_HOUR_PRICE": "36"}
        command = [sys.executable, "-c", CRASHING, how]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    crashed = [run_script("crashes") for _ in range(3)]
    assert [done.returncode for done in crashed] == [1, 1, 1]
    assert "restart loop: attempts 1 to 3 got 5 steps and no further (ValueError)" in " ".join(
        crashed[-1].stderr.split()
    )
    folder = RunFolder(Store(launch.folder), "loop")
    loop = read_run(folder, time.time()).restart_loop
    assert (loop.num_attempts, loop.num_steps, loop.error_type) == (3, 5, "ValueError")
    assert float(loop.money) > 0
    otlp_receiver.clear()
    recovered = run_script("goes on")
    assert recovered.returncode == 0
    assert "costlens.restart_loop" in recovered.stderr
    assert read_run(folder, time.time()).restart_loop is None
    lengths = [point.value for point in otlp_receiver.points("costlens.restart_loop")]
    assert lengths[0] == 3
    assert lengths[-1] == 0
    assert {point.value for point in otlp_receiver.points("costlens.restarts")} == {3}
