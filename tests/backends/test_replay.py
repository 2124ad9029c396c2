"""Telemetry kept in files arrives later as it would have arrived at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from costlens.core.clock import NS_PER_S
from costlens.export.otlp_replay import endpoint_key
from costlens.storage.telemetry_folder import Segment
from tests.backends.offline_run import RUN, OfflineRun, num_lines, received, requests
from tests.fixtures_otlp import OtlpReceiver
from tests.unit.cli.conftest import Cli, cli
from tests.unit.export.rehearsal import Rehearsal

__all__ = ["cli"]

FAST = ("--rate", "10000")


@pytest.fixture(name="run_dir")
def _run_dir(tmp_path: Path) -> str:
    return str(tmp_path / "costlens-runs")


def finished(run_dir: str, num_windows: int = 8, **where: int) -> OfflineRun:
    """Return a rank that has ended after some windows."""
    run = OfflineRun(run_dir, Rehearsal(**where))  # type: ignore[arg-type]
    run.windows(num_windows)
    run.end()
    return run


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_replay_equals_a_direct_export(
    otlp_receiver: OtlpReceiver,
    run_dir: str,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
) -> None:
    """A run that is both sent and filed: its files, replayed, are the very same requests.

    Every span, data point and log record with its ids, times and resource, over either protocol.
    """
    with monkeypatch.context() as direct:
        direct.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
        direct.setenv("OTEL_LOGS_EXPORTER", "otlp")
        for rank in (0, 1):
            finished(run_dir, rank=rank, world_size=2)
    sent, items = requests(otlp_receiver), received(otlp_receiver)
    assert {r.signal for r in otlp_receiver.requests} == {"traces", "metrics", "logs"}
    otlp_receiver.clear()
    endpoint = otlp_receiver.endpoint
    if protocol == "grpc":
        endpoint = f"http://127.0.0.1:{otlp_receiver.grpc_port}"
    code, out, err = cli("replay", RUN, "--endpoint", endpoint, "--protocol", protocol, *FAST)
    assert (code, err) == (0, "")
    assert requests(otlp_receiver) == sent
    assert received(otlp_receiver) == items
    assert out.startswith("sent 6 segments: ")
    assert f"{len(otlp_receiver.spans()):,} spans" in out
    assert f"{len(otlp_receiver.points()):,} data points" in out


def test_what_was_sent_is_not_sent_again(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli
) -> None:
    """A second replay to the same endpoint sends nothing; another endpoint gets everything.

    What came in between (another attempt) is sent alone.
    """
    finished(run_dir)
    here = ("replay", RUN, *FAST, "--endpoint")
    assert cli(*here, otlp_receiver.endpoint)[0] == 0
    first = requests(otlp_receiver)
    otlp_receiver.clear()
    code, out, _ = cli(*here, otlp_receiver.endpoint + "/")
    assert (code, requests(otlp_receiver)) == (0, [])
    assert "3 segments had been sent there before" in out
    elsewhere = otlp_receiver.endpoint.replace("127.0.0.1", "localhost")
    assert cli(*here, elsewhere)[0] == 0
    assert requests(otlp_receiver) == first
    otlp_receiver.clear()
    finished(run_dir, attempt=2)
    assert cli(*here, otlp_receiver.endpoint)[0] == 0
    attempts = {item.resource["costlens.attempt"] for item in otlp_receiver.metrics()}
    assert attempts == {2}


def test_signals_can_be_chosen(otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli) -> None:
    """``--signal`` sends those kinds only and leaves the others for another time."""
    finished(run_dir)
    arguments = ("replay", RUN, "--endpoint", otlp_receiver.endpoint, *FAST)
    assert cli(*arguments, "--signal", "traces", "--signal", "logs")[0] == 0
    assert {r.signal for r in otlp_receiver.requests} == {"traces", "logs"}
    assert cli(*arguments)[0] == 0
    assert {r.signal for r in otlp_receiver.requests} == {"traces", "logs", "metrics"}


def test_ranks_are_sent_in_the_order_of_time(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli
) -> None:
    """Prometheus drops what lies an hour behind its newest: no rank's day goes before another's.

    Segments go out by the time they begin with, whatever rank they are of.
    """
    runs = [OfflineRun(run_dir, Rehearsal(rank, 2)) for rank in (0, 1)]
    for _ in range(4):
        for run in runs:
            run.windows(31)
            run.run.now_ns += 300 * NS_PER_S
    for run in runs:
        run.end()
    assert len([s for s in runs[0].folder.telemetry.list().closed if s.signal == "metrics"]) >= 6
    arguments = ("replay", RUN, "--endpoint", otlp_receiver.endpoint, *FAST)
    assert cli(*arguments, "--signal", "metrics")[0] == 0
    times_s = [p.proto.time_unix_nano / 1e9 for p in otlp_receiver.points("costlens.iterations")]
    newest_s, behind_s = 0.0, 0.0
    for time_s in times_s:
        newest_s = max(newest_s, time_s)
        behind_s = max(behind_s, newest_s - time_s)
    assert behind_s <= 900  # at most a segment, where one rank after the other would be 2400
    assert max(times_s) - min(times_s) >= 2000


def test_a_running_attempts_open_segments_are_left_alone(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli
) -> None:
    """Of a live run only closed segments are sent; it goes on, and its rest is sent later, once."""
    live = OfflineRun(run_dir, Rehearsal(wall_ns=time.time_ns()))
    live.windows(7)  # a minute: the open segments have been saved
    folder = live.folder.telemetry
    opened = folder.list().open
    assert opened
    arguments = ("replay", RUN, "--endpoint", otlp_receiver.endpoint, *FAST)
    code, out, _ = cli(*arguments)
    assert (code, otlp_receiver.requests) == (0, [])
    assert "left to the running attempt" in out
    assert folder.list().open == opened
    live.windows(1)
    live.end()
    assert cli(*arguments)[0] == 0
    assert len(requests(otlp_receiver)) == num_lines([live])


def test_a_killed_ranks_open_segments_are_sent(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli
) -> None:
    """A rank that was killed long ago has lost its last minute, the rest is closed and sent."""
    killed = OfflineRun(run_dir, Rehearsal())
    killed.windows(20)
    killed.crash()
    assert killed.folder.telemetry.list().closed == {}
    code, _, _ = cli("replay", RUN, "--endpoint", otlp_receiver.endpoint, *FAST)
    assert code == 0
    iterations = [p.value for p in otlp_receiver.points("costlens.iterations")]
    assert iterations[:13] == [0, *range(10, 130, 10)]
    assert killed.folder.telemetry.list().open == frozenset()


def test_a_corrupt_line_is_skipped_and_named(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli
) -> None:
    """All other lines arrive, once; the command says which line it is and ends with 1."""
    run = finished(run_dir)
    path = Path(run_dir, RUN, "telemetry", "metrics-1-0-000000.jsonl")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:-7], *lines[2:]]))
    arguments = ("replay", RUN, "--endpoint", otlp_receiver.endpoint, *FAST)
    for _ in range(2):
        code, out, _ = cli(*arguments)
        assert code == 1
        assert "not sent: metrics-1-0-000000.jsonl line 2: corrupt: the line is not OTLP" in out
    assert len(requests(otlp_receiver)) == num_lines([run]) - 1
    segment = Segment("metrics", 1, 0, 0)
    assert (segment, endpoint_key(otlp_receiver.endpoint)) not in run.folder.telemetry.list().sent


def test_a_dry_run_sends_and_changes_nothing(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli
) -> None:
    """It names the segments with their lines and begin; open ones of the dead stay open."""
    killed = OfflineRun(run_dir, Rehearsal())
    killed.windows(8)
    killed.workers.close(30.0)
    killed.crash()
    killed.folder.telemetry.write_open(Segment("logs", 1, 0, 7), b"{}\n")
    before = sorted(path.name for path in Path(run_dir, RUN, "telemetry").iterdir())
    code, out, err = cli("replay", RUN, "--endpoint", otlp_receiver.endpoint, "--dry-run")
    assert (code, err) == (0, "")
    assert "metrics-1-0-000000.jsonl: 9 lines, from 2023-11-14 22:13 UTC" in out
    assert "would send 4 segments" in out
    assert otlp_receiver.requests == []
    assert sorted(path.name for path in Path(run_dir, RUN, "telemetry").iterdir()) == before


@pytest.mark.parametrize(
    ("backend", "age_s", "words"),
    [
        ("tempo", 60, None),
        ("tempo", 600, "finds them by id"),
        ("prometheus", 1800, None),
        ("prometheus", 7200, "out_of_order_time_window"),
        ("mimir", 7200, "limits.out_of_order_time_window"),
        ("victoriametrics", 30 * 86400, None),
        ("victoriametrics", 32 * 86400, "-retentionPeriod"),
        ("loki", 6 * 86400, None),
        ("loki", 8 * 86400, "reject_old_samples_max_age"),
    ],
)
def test_a_named_backend_warns_of_old_telemetry(
    otlp_receiver: OtlpReceiver, run_dir: str, cli: Cli, backend: str, age_s: int, words: str | None
) -> None:
    """Standard error says how old it is, what will happen and what to set; it is sent anyway.

    A back-end for one signal is sent that signal only.
    """
    run = OfflineRun(run_dir, Rehearsal(wall_ns=time.time_ns() - age_s * NS_PER_S))
    run.windows(1)
    run.end()
    code, _, err = cli(
        "replay", RUN, "--endpoint", otlp_receiver.endpoint, "--backend", backend, *FAST
    )
    assert code == 0
    assert (words in err) if words else (err == "")
    assert len({request.signal for request in otlp_receiver.requests}) == 1
