"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.cli.conftest import Cli

COMMANDS = ("report", "runs", "config", "demo")


def test_help_names_every_command(cli: Cli) -> None:
    """Who calls for help sees what there is."""
    code, out, _ = cli("--help")
    assert code == 0
    assert all(f" {command} " in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    """Each has a help text and ends well."""
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert "--json" in out


def test_help_is_light() -> None:
    """Asking for help, through ``python -m`` too, loads neither torch nor telemetry nor storage."""
    code = (
        "import sys, runpy\n"
        "sys.argv = ['costlens', '--help']\n"
        "try: runpy.run_module('costlens', run_name='__main__')\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "heavy = {'torch', 'opentelemetry', 'fsspec', 'pynvml', 'pydantic', 'lightning'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: " in done.stdout


@pytest.mark.parametrize(
    "command",
    [("report",), ("runs",), ("compare", "a", "b"), ("export",), ("config",), ("prices",)],
    ids=" ".join,
)
def test_a_place_that_cannot_be_one_is_told_with_where_it_is_from(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A URL that lost a slash is a usage error of the variable or the option that holds it."""
    monkeypatch.setenv("COSTLENS_DIR", "s3:/bucket/runs")
    code, out, err = cli(*command)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("costlens: COSTLENS_DIR: 's3:/bucket/runs' is neither a path nor a URL")


def test_a_folder_beside_checkpoints_is_told_with_the_variable_of_those(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only a place for checkpoints is set, nobody has a COSTLENS_DIR to mend."""
    monkeypatch.delenv("COSTLENS_DIR", raising=False)
    monkeypatch.setenv("COSTLENS_CHECKPOINT_URL", "s3:/bucket/runs")
    code, _, err = cli("runs")
    assert code == 2
    assert err.startswith("costlens: COSTLENS_CHECKPOINT_URL: 's3:/bucket/runs/.costlens' is")
