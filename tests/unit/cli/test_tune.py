"""``costlens tune`` as a command; a live run that follows it is in tests/backends/test_tune.py."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path

import pytest

from costlens.core.records import RankPart
from costlens.core.telemetry_records import Detail, DetailPart, TelemetryPart
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import make_record
from tests.unit.cli.conftest import Cli

UNTIL = 4_000_000_000.0


def write_ranks(url: str, *details: DetailPart) -> RunFolder:
    """Return the folder of a run whose ranks run in this process, with these details in force."""
    folder = RunFolder(Store(url), "live-1")
    folder.claim_attempt("key", {})
    for rank, detail in enumerate(details):
        record = make_record(
            rank=rank,
            outcome="running",
            world_size=len(details),
            start_time=time.time() - 5,
            heartbeat_time=time.time(),
            telemetry=TelemetryPart(detail=detail),
        )
        record = record.model_copy(
            update={
                "run": record.run.model_copy(update={"id": "live-1"}),
                "rank": RankPart(
                    rank=rank, world_size=len(details), host_name=platform.node(), pid=os.getpid()
                ),
            }
        )
        folder.write_record(1, rank, record.model_dump_json(exclude_none=True).encode())
    return folder


@pytest.fixture(params=["local", "memory"], name="live")
def _live(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunFolder:
    """Return the folder of a run of three ranks, of which the last shows every iteration."""
    is_local = request.param == "local"
    url = str(tmp_path / "live") if is_local else f"memory://{tmp_path.name}-{time.time_ns()}"
    monkeypatch.setenv("COSTLENS_DIR", url)
    normal, steps = DetailPart(name=Detail.NORMAL), DetailPart(name=Detail.STEPS, until=UNTIL)
    return write_ranks(url, normal, normal, steps)


def test_a_request_is_written_and_shown(cli: Cli, live: RunFolder) -> None:
    """What is asked, for whom and until when, beside what each rank has taken over so far."""
    code, out, err = cli("tune", "live", "--detail", "off", "--for", "1.5h", "--rank", "1")
    assert (code, err) == (0, "")
    asked = json.loads(live.read_control() or b"")
    assert asked == {"detail": "off", "until": asked["until"], "ranks": [1]}
    assert asked["until"] == pytest.approx(time.time() + 5400, abs=60)
    assert "asked     off until " in out
    assert ", rank 1\n" in out
    assert "in force  normal, ranks 0, 1\n" in out
    assert "in force  steps until 2096-10-02 07:06:40 UTC" in out
    assert "by its own clock" in out


def test_without_a_request_it_only_shows(cli: Cli, live: RunFolder) -> None:
    """As JSON for scripts, too; a request that is over is none."""
    assert cli("tune", "live")[1].splitlines()[:2] == ["live-1  running", "asked     nothing"]
    live.write_control(b'{"detail": "steps", "until": 5}')
    code, out, _ = cli("tune", "live", "--json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["run_id"], shown["outcome"], shown["asked"]) == ("live-1", "running", None)
    assert shown["ranks"][1:] == [
        {"rank": 1, "name": "normal", "until": None},
        {"rank": 2, "name": "steps", "until": UNTIL},
    ]
    assert live.read_control() == b'{"detail": "steps", "until": 5}'


def test_a_request_can_be_taken_back(cli: Cli, live: RunFolder) -> None:
    """`normal` replaces what was asked, and needs no end; the others last ten minutes."""
    assert cli("tune", "live", "--detail", "steps")[0] == 0
    asked = json.loads(live.read_control() or b"")
    assert asked["until"] == pytest.approx(time.time() + 600, abs=60)
    assert "ranks" not in asked
    assert cli("tune", "live", "--detail", "normal")[0] == 0
    assert live.read_control() == b'{"detail":"normal"}'


def test_a_file_of_somebody_else_is_told_and_replaced(cli: Cli, live: RunFolder) -> None:
    """What cannot be understood is said, and a request goes in its place."""
    live.write_control(b'{"detail": "\x1b[31m')
    code, out, _ = cli("tune", "live")
    assert code == 0
    assert "control.json cannot be understood: it is no JSON" in out
    assert json.loads(cli("tune", "live", "--json")[1])["problem"].startswith("control.json")
    assert cli("tune", "live", "--detail", "off")[0] == 0
    assert b"until" in (live.read_control() or b"")


def test_a_run_that_has_ended_is_refused(cli: Cli, run_dir: Path) -> None:
    """It says how it ended and what the next attempt takes; without a request it is shown."""
    code, out, err = cli("tune", "alpha", "--detail", "steps")
    assert (code, out) == (1, "")
    assert "'alpha-1' has ended (completed)" in err
    assert "COSTLENS_ITERATION_SPAN_EVERY" in err
    assert not (run_dir / "alpha-1" / "control.json").exists()
    assert cli("tune", "alpha")[:2] == (0, "alpha-1  completed\nasked     nothing\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--detail", "all"), "all"),
        (("--detail", "steps", "--for", "10"), "90s, 10m"),
        (("--detail", "steps", "--for", "0s"), "90s, 10m"),
        (("--detail", "steps", "--for", "31d"), "up to 30d"),
        (("--detail", "steps", "--rank", "3"), "ranks 0 to 2"),
        (("--detail", "steps", "--rank", "-1"), "greater than or equal to 0"),
        (("--rank", "1"), "--detail steps"),
        (("--detail", "normal", "--rank", "1"), "--detail steps"),
    ],
)
def test_a_usage_error_ends_with_2_and_asks_nothing(
    cli: Cli, live: RunFolder, arguments: tuple[str, ...], words: str
) -> None:
    """What is not allowed is said on standard error, and nothing is written."""
    code, out, err = cli("tune", "live", *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.replace("│", " ").split())
    assert live.read_control() is None
