"""``costlens replay`` as a command; what arrives is tested at the real receiver."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from costlens.export import otlp_replay
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from costlens.storage.telemetry_folder import Segment
from tests.unit.cli.conftest import Cli

LINE = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"5"}]}]}]}\n'


@pytest.fixture(name="nowhere")
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an endpoint where nobody listens; a replay tries once."""
    monkeypatch.setattr(otlp_replay, "MAX_TRIES", 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "alpha"), "--endpoint"),
        (("replay",), "RUN"),
        (("replay", "alpha", "--endpoint", "http://c", "--protocol", "http/json"), "http/json"),
        (("replay", "alpha", "--endpoint", "http://c", "--signal", "profiles"), "profiles"),
        (("replay", "alpha", "--endpoint", "http://c", "--backend", "graphite"), "graphite"),
        (("replay", "alpha", "--endpoint", "http://c", "--rate", "0"), "0"),
        (("replay", "alpha", "--endpoint", "collector:4318"), "http://collector:4318"),
    ],
)
def test_a_usage_error_ends_with_2(
    cli: Cli, run_dir: Path, arguments: tuple[str, ...], words: str
) -> None:
    """What is missing or not allowed is said on standard error."""
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_an_unknown_run_ends_with_1(cli: Cli, run_dir: Path) -> None:
    """As with the other commands, the nearest runs are named."""
    code, _, err = cli("replay", "gamma", "--endpoint", "http://127.0.0.1:1")
    assert code == 1
    assert "alpha-1" in err


def test_a_run_without_files_says_how_to_keep_them(cli: Cli, run_dir: Path) -> None:
    """There is nothing to send, which is no failure; the endpoint is not asked."""
    code, out, err = cli("replay", "alpha", "--endpoint", "http://127.0.0.1:1")
    assert (code, err) == (0, "")
    assert "no telemetry files; COSTLENS_OTLP_FILE=1 keeps them" in out


def test_a_dead_endpoint_ends_with_1(cli: Cli, run_dir: Path, nowhere: str) -> None:
    """Where it stopped and how to go on stands on standard output; nothing is marked as sent."""
    folder = RunFolder(Store(run_dir), "alpha-1").telemetry
    folder.write(Segment("logs", 1, 0, 0), LINE)
    code, out, err = cli("replay", "alpha", "--endpoint", nowhere)
    assert (code, err) == (1, "")
    assert "stopped at logs-1-0-000000.jsonl line 1: 127.0.0.1:" in out
    assert "the same command goes on from there" in out
    assert folder.list().sent == frozenset()


def test_where_no_record_says_that_a_rank_is_over_its_open_segments_stay(
    cli: Cli, tmp_path: Path, nowhere: str
) -> None:
    """A folder with telemetry and no record: the rank may be alive, so nothing is closed for it."""
    folder = RunFolder(Store(tmp_path / "costlens-runs"), "odd-1")
    folder.claim_attempt("key", {})
    folder.telemetry.write_open(Segment("logs", 1, 0, 0), LINE)
    code, out, _ = cli("replay", "odd-1", "--endpoint", nowhere)
    assert code == 0
    assert "1 open segment left to the running attempt" in out
    assert folder.telemetry.list().open == {Segment("logs", 1, 0, 0)}


def test_the_folder_can_be_named(cli: Cli, run_dir: Path, nowhere: str, tmp_path: Path) -> None:
    """``--dir`` goes before COSTLENS_DIR."""
    folder = RunFolder(Store(tmp_path / "elsewhere"), "alpha-1")
    folder.claim_attempt("key", {})
    folder.telemetry.write(Segment("logs", 1, 0, 0), LINE)
    arguments = ("replay", "alpha", "--endpoint", nowhere, "--dry-run")
    assert "logs-1-0" not in cli(*arguments)[1]
    assert "logs-1-0" in cli(*arguments, "--dir", str(tmp_path / "elsewhere"))[1]
