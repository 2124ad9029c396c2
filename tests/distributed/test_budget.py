"""A spent budget ends the training of all ranks at the same step, without a hang."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from costlens.account.ledger import merge
from tests.distributed.launching import HERE, TORCHRUN, Launch, Launcher
from tests.fixtures_otlp import OtlpReceiver

pytestmark = pytest.mark.slow

SPENT = {
    "COSTLENS_NODE_HOUR_PRICE": "3600",
    "COSTLENS_BUDGET": "1",
    "COSTLENS_BUDGET_ACTION": "stop",
    "COSTLENS_LOG_FORMAT": "json",
}


def steps_of(launch: Launch) -> list[int]:
    """Return the steps that each rank counted itself."""
    return [line["steps"] for line in launch.counted]


@pytest.mark.parametrize("kind", ["lockstep", "skewed", "lightning"])
def test_all_ranks_stop_at_one_step(
    launch: Launcher, otlp_receiver: OtlpReceiver, port: str, kind: str
) -> None:
    """Ranks that meet every step, ranks that drift apart, and a Trainer that accumulates."""
    prefix = () if kind == "lightning" else (*TORCHRUN, port)
    done = launch("job_budget.py", kind, prefix=prefix, **SPENT)
    one, other = steps_of(done)
    assert one == other
    assert 0 < one < 4000
    (run,) = launch.runs
    records = launch.records(run)
    for record in records.values():
        attempt = record.attempt
        assert (attempt.outcome.value, attempt.end_reason) == ("stopped_early", "budget")
        assert record.telemetry.faults == {}
    assert [rank for (_, rank), record in records.items() if record.budget] == [0]
    budget = records[1, 0].budget
    assert budget.told == [0.5, 0.8, 1.0]
    assert budget.share > 1
    told = [line for line in done.output.splitlines() if '"costlens.budget"' in line]
    assert len(told) == 1, "once, however many windows pass after it"
    assert "100 % of the budget" in json.loads(told[0][told[0].index("{") :])["message"]
    _check_gauges(otlp_receiver)
    merged = merge([*records.values()], now=records[1, 0].attempt.heartbeat_time)
    assert merged.budget.spent == merged.cost.total


def _check_gauges(receiver: OtlpReceiver) -> None:
    """C025: job-level gauges come from one rank only."""
    totals = [point for point in receiver.points() if point.name == "costlens.run.cost"]
    assert {point.resource["costlens.rank"] for point in totals} == {0}
    shares = [point.value for point in receiver.points() if "budget.spent" in point.name]
    assert max(shares) > 1


def test_a_spent_budget_stops_the_next_attempt_too(launch: Launcher, port: str) -> None:
    """The budget is the run's: a restart finds it spent, says nothing twice and stops."""
    launch("job_budget.py", "lockstep", prefix=(*TORCHRUN, port), **SPENT)
    (run,) = launch.runs
    again = launch(
        "job_budget.py", "lockstep", prefix=(*TORCHRUN, port), COSTLENS_RUN_ID=run.name, **SPENT
    )
    one, other = steps_of(again)
    assert one == other < 4000
    records = launch.records(run)
    first, second = records[1, 0].run_totals, records[2, 0].run_totals
    assert second.time_s > first.time_s
    assert second.num_records == 4
    assert '"costlens.budget"' not in again.output, "told by the attempt before"


def test_without_a_group_the_stop_is_refused(launch: Launcher, port: str) -> None:
    """One rank of two cannot stop alone: the start fails and names the way out."""
    code = "import costlens; costlens.start('job')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=launch.environ | SPENT | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
        capture_output=True, text=True, timeout=60, check=False, cwd=HERE,
    )  # fmt: skip
    assert done.returncode != 0
    assert "ConfigError" in done.stderr
    assert "COSTLENS_BUDGET_ACTION=warn" in done.stderr
