"""``costlens demo``: the whole way from a training to the numbers on standard output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from costlens.core.run_record import RunRecord
from tests.unit.cli.conftest import Cli

STEPS = 4


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "costlens", "demo", "--max-steps", str(STEPS), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module", params=[(), ("--plain",)], ids=["lightning", "plain"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Return the demo's result, its folder and its arguments; trained once a loop."""
    cwd = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTLENS_DIR", str(cwd / "runs"))
        return _run(*request.param, "--json", "--price", "36", "--seed", "3", cwd=cwd), cwd


def test_json_alone_is_on_standard_output(trained) -> None:
    """The merged record and the final loss, valid against the schema; progress is elsewhere."""
    done, _ = trained
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout, parse_constant=pytest.fail)
    jsonschema.validate(document, RunRecord.model_json_schema())
    assert 0 < document["final_loss"] < 6
    assert "Traceback" not in done.stderr


def test_the_numbers_add_up(trained) -> None:
    """Counts are those of the training, phases sum to wall time, and money is price × time."""
    document = json.loads(trained[0].stdout)
    progress, time_s, cost = document["progress"], document["time_s"], document["cost"]
    assert progress["optimizer_steps"] == progress["productive_steps"] == STEPS
    assert progress["micro_batches"] == 2 * STEPS
    assert 0 < progress["tokens"] < progress["slots"]
    total_s = time_s.pop("total")
    assert sum(time_s.values()) == pytest.approx(total_s)
    assert float(cost["total"]) == pytest.approx(36 * total_s / 3600, rel=1e-6)
    assert sum(map(Decimal, cost["by_phase"].values())) == Decimal(cost["total"])
    assert time_s["backward"] > 0
    assert time_s["validation"] > 0
    assert document["attempts"][0]["outcome"] == "completed"
    assert document["telemetry"]["faults"] == {}
    assert document["problems"] == []


def test_the_run_stays_in_the_folder(trained, cli: Cli) -> None:
    """What was printed can be asked for again."""
    done, cwd = trained
    run_id = json.loads(done.stdout)["run"]["id"]
    code, out, _ = cli("report", run_id, "--json", "--dir", str(cwd / "runs"))
    assert code == 0
    assert json.loads(out)["time_s"] == json.loads(done.stdout)["time_s"]


def test_the_page_ends_with_the_loss(tmp_path: Path) -> None:
    """Without --json a person gets the report, the loss, and where to find both again."""
    done = _run(cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Where the time went" in done.stdout
    assert "final loss" in done.stdout.splitlines()[-2]
    assert "costlens report demo-" in done.stdout.splitlines()[-1]
    assert "COSTLENS_NODE_HOUR_PRICE" in done.stdout, "the one hint, because no price was given"


def test_unusable_options_are_usage_errors(cli: Cli) -> None:
    """A price that is none, and steps or seeds that cannot be, end with 2 before any training."""
    code, out, err = cli("demo", "--price", "cheap")
    assert (code, out) == (2, "")
    assert "node_hour_price cannot be 'cheap'" in err
    assert cli("demo", "--price", "-1")[0] == 2
    assert cli("demo", "--max-steps", "0")[0] == 2
    assert cli("demo", "--seed", "-1")[0] == 2


def test_a_switched_off_demo_says_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With COSTLENS_ENABLED=0 there would be nothing to show."""
    monkeypatch.setenv("COSTLENS_ENABLED", "0")
    code, _, err = cli("demo")
    assert code == 1
    assert "COSTLENS_ENABLED is 0" in err


def test_a_missing_package_is_named_with_the_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Lightning the demo says what to install."""
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    monkeypatch.delitem(sys.modules, "costlens.cli.demo.lightning_job", raising=False)
    monkeypatch.delattr("costlens.cli.demo.lightning_job", raising=False)
    code, _, err = cli("demo")
    assert code == 1
    assert "pip install 'costlens[lightning]'" in err
