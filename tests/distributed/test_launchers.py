"""Every launcher of two ranks, launched twice: one run, attempts 1 and 2, every rank itself.

The first launch has no id; the second is told the run that the first one made.
"""

from __future__ import annotations

import pytest

from tests.distributed.launching import TORCHRUN, Launcher, check_attempts, check_telemetry
from tests.fixtures_otlp import OtlpReceiver

pytestmark = pytest.mark.slow


def test_lightning_starts_a_script_for_each_rank(
    launch: Launcher, otlp_receiver: OtlpReceiver
) -> None:
    """C025, C026 with `strategy="ddp"`: the main process is rank 0 and starts rank 1."""
    first = launch("job_lightning.py", "ddp", "1")
    (run,) = launch.runs
    second = launch("job_lightning.py", "ddp", "1", COSTLENS_RUN_ID=run.name)
    check_attempts(launch.records(run), first, second)
    for attempt, each in enumerate((first, second), start=1):
        check_telemetry(otlp_receiver, run.name, attempt, each.num_samples)


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_lightning_spawns_or_forks_the_ranks(
    launch: Launcher, otlp_receiver: OtlpReceiver, strategy: str
) -> None:
    """C025, C026: twice from one process, over one port, as a notebook's cell that runs again."""
    both = launch("job_lightning.py", strategy, "2")
    (run,) = launch.runs
    records = launch.records(run)
    first, second = both.split()
    check_attempts(records, first, second)
    for attempt, each in enumerate((first, second), start=1):
        check_telemetry(otlp_receiver, run.name, attempt, each.num_samples)


def test_torchrun(launch: Launcher, otlp_receiver: OtlpReceiver, port: str) -> None:
    """C025, C026: ten steps of four samples on each of two ranks are 80, launch after launch."""
    first = launch("job_plain.py", "torchrun", prefix=(*TORCHRUN, port))
    (run,) = launch.runs
    second = launch("job_plain.py", "torchrun", prefix=(*TORCHRUN, port), COSTLENS_RUN_ID=run.name)
    assert first.num_samples == second.num_samples == 80
    check_attempts(launch.records(run), first, second)
    for attempt in (1, 2):
        check_telemetry(otlp_receiver, run.name, attempt, 80)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_the_users_own_processes(
    launch: Launcher, otlp_receiver: OtlpReceiver, start_method: str, port: str
) -> None:
    """C025, C026: no variable tells rank or world; the process group does, over the same port."""
    first = launch("job_plain.py", start_method, port)
    (run,) = launch.runs
    second = launch("job_plain.py", start_method, port, COSTLENS_RUN_ID=run.name)
    check_attempts(launch.records(run), first, second)
    for attempt in (1, 2):
        check_telemetry(otlp_receiver, run.name, attempt, 80)


def test_launches_without_an_id_never_mix(launch: Launcher, port: str) -> None:
    """Two launches over one port that nothing ties together are two runs of one attempt."""
    launches = [launch("job_plain.py", "fork", port) for _ in range(2)]
    for run, each in zip(launch.runs, launches, strict=True):
        check_attempts(launch.records(run), each)


def test_a_rank_that_is_not_watched_is_not_waited_for(launch: Launcher, port: str) -> None:
    """Only rank 0 opens a run: no collective waits for the other, which trains on."""
    each = launch("job_plain.py", "fork", port, JOB_WATCHED_RANKS="1")
    assert [rank["samples"] for rank in each.counted] == [40, 40]
    (run,) = launch.runs
    records = launch.records(run)
    assert [*records] == [(1, 0)]
    assert (records[1, 0].rank.world_size, records[1, 0].progress.samples) == (2, 40)
