"""``costlens report``."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from costlens.core.run_record import CostPart, RunRecord
from tests.unit.cli.conftest import Cli

TOP_LEVEL_KEYS = {
    *("run", "attempts", "ranks", "progress", "time_s", "rates", "queue", "gpu", "cost"),
    *("checkpoints", "precision", "quality", "findings", "telemetry"),
}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), "beta-2"),
        (("latest",), "beta-2"),
        (("alpha-1",), "alpha-1"),
        (("al",), "alpha-1"),
        (("beta",), "beta-2"),
    ],
)
def test_a_run_is_found_by_id_prefix_name_or_as_the_latest(
    cli: Cli, run_dir: Path, arguments: tuple[str, ...], shown: str
) -> None:
    """The page of the run that was meant is printed on standard output, nothing else anywhere."""
    code, out, err = cli("report", *arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == shown


def test_json_is_the_merged_record_and_nothing_else(cli: Cli, run_dir: Path) -> None:
    """Standard output parses as one document with the promised keys, valid against the schema."""
    code, out, err = cli("report", "beta", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out, parse_constant=pytest.fail)
    jsonschema.validate(document, RunRecord.model_json_schema())
    assert set(document) >= TOP_LEVEL_KEYS
    assert document["time_s"]["total"] == 10.0
    assert document["cost"]["total"] == "10.00"
    assert document["cost"]["per_1k_tokens"] == "10.00"


def test_an_unknown_cost_is_null_in_the_json(cli: Cli, run_dir: Path) -> None:
    """C106: no price keeps every key, with null, and gives the hint; never 0."""
    document = json.loads(cli("report", "alpha", "--json")[1])
    cost = document["cost"]
    unknown = ("total", "per_1k_tokens", "per_million_tokens", "per_million_productive_tokens")
    assert [cost[name] for name in unknown] == [None] * 4
    assert (cost["by_phase"], cost["by_attempt"]) == ({}, {})
    assert set(document) == set(RunRecord.model_fields)
    assert set(cost) == set(CostPart.model_fields)
    described = RunRecord.model_json_schema(mode="serialization")["description"]
    assert "null means unknown, never zero" in described
    assert cost["unknown"] == "no price: set COSTLENS_NODE_HOUR_PRICE"


def test_no_such_run_is_one_line_with_what_exists(cli: Cli, run_dir: Path) -> None:
    """A typing error costs one line, not a traceback."""
    code, out, err = cli("report", "alpah")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "no run 'alpah'" in err
    assert "alpha-1" in err


def test_no_runs_at_all_says_where_it_looked(cli: Cli, tmp_path: Path) -> None:
    """An empty place names itself and how to choose another."""
    code, _, err = cli("report", "--dir", str(tmp_path / "elsewhere"))
    assert code == 1
    assert str(tmp_path / "elsewhere") in err
    assert "COSTLENS_DIR" in err


def test_a_run_without_a_record_yet_is_no_traceback(cli: Cli, run_dir: Path) -> None:
    """Between launch and first heartbeat there is a claim and nothing to report."""
    (run_dir / "beta-2" / "record-1-0.json").unlink()
    code, _, err = cli("report", "beta")
    assert (code, err.count("\n")) == (1, 1)
    told = "run 'beta-2' has no readable record yet: attempt 1 was launched and left no record; "
    assert err.startswith(f"costlens: {told}")


def test_usage_errors_end_with_two(cli: Cli, run_dir: Path) -> None:
    """An unknown option, and an unusable setting, are the user's to correct."""
    assert cli("report", "--bogus")[0] == 2
    assert cli("frobnicate")[0] == 2


def test_an_unusable_setting_names_itself(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, its value and what is allowed stand in the message; the exit code is 2."""
    monkeypatch.setenv("COSTLENS_WINDOW_S", "0")
    code, _, err = cli("report")
    assert code == 2
    assert "COSTLENS_WINDOW_S" in err
    assert "Traceback" not in err


def test_a_misspelt_variable_is_one_line_beside_the_report(
    cli: Cli, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning goes to standard error without Python's file and line."""
    monkeypatch.setenv("COSTLENS_WINDOWS_S", "5")
    code, out, err = cli("report", "--json")
    assert code == 0
    json.loads(out)
    assert err.startswith("costlens: COSTLENS_WINDOWS_S is not a costlens setting")
