"""A replay cut off by the endpoint or by a kill goes on without loss and without doubles."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from costlens.export.otel_lines import decode_line
from costlens.export.otel_replay import make_sender
from costlens.export.otlp_replay import Replay, Summary, endpoint_key, make_plan
from costlens.storage.segments import split_lines
from tests.backends.offline_run import RUN, OfflineRun, requests
from tests.fixtures_otlp import OtlpReceiver
from tests.unit.cli.conftest import Cli, cli
from tests.unit.export.rehearsal import Rehearsal

__all__ = ["cli"]


@pytest.fixture(name="run_dir")
def _run_dir(tmp_path: Path) -> str:
    return str(tmp_path / "costlens-runs")


@pytest.fixture(name="run")
def _run(run_dir: str) -> OfflineRun:
    run = OfflineRun(run_dir, Rehearsal())
    run.windows(14)
    run.end()
    return run


def expected(run: OfflineRun) -> list[bytes]:
    """Return the requests that the files hold, sorted."""
    folder = run.folder.telemetry
    return sorted(
        decode_line(segment.signal, line).SerializeToString()
        for segment in folder.list().closed
        for line in split_lines(folder.read(segment) or b"")
    )


def replay(run: OfflineRun, receiver: OtlpReceiver, fail_after: int | None = None) -> Summary:
    """Make a pass without pauses; the receiver begins to answer 503 after some lines."""
    folder, url, num_lines = run.folder.telemetry, receiver.endpoint, 0

    def on_line() -> None:
        nonlocal num_lines
        num_lines += 1
        if num_lines == fail_after:
            receiver.fault(status=503)

    signals = {"traces", "metrics", "logs"}
    plan = make_plan(folder, endpoint_key(url), signals=signals, is_live=lambda _attempt: False)
    sender = make_sender(url, "http/protobuf")
    pass_ = Replay(folder, sender, url, rate=1e6, pause=lambda _seconds: None, on_line=on_line)
    try:
        return pass_.run(planned.segment for planned in plan.segments)
    finally:
        sender.close()


@pytest.mark.parametrize("fail_after", [1, 4, 16, 20])
def test_an_outage_in_the_middle(
    otlp_receiver: OtlpReceiver, run: OfflineRun, fail_after: int
) -> None:
    """The endpoint answers 503 from some line on; the next replay brings exactly the rest."""
    fail_after = min(fail_after, len(expected(run)) - 1)  # a busy machine closes fewer windows
    stopped = replay(run, otlp_receiver, fail_after)
    assert stopped.stopped is not None
    assert "HTTP 503" in stopped.stopped
    assert len(requests(otlp_receiver)) == fail_after
    otlp_receiver.fault()
    assert replay(run, otlp_receiver).is_complete
    assert requests(otlp_receiver) == expected(run)


def test_a_short_outage_is_waited_out(otlp_receiver: OtlpReceiver, run: OfflineRun) -> None:
    """Two answers of 503 and a limit on the rate (429) do not end a replay."""
    otlp_receiver.fault(status=503, times=2)
    assert replay(run, otlp_receiver).is_complete
    assert requests(otlp_receiver) == expected(run)


def test_a_refused_request_is_named_and_the_rest_arrives(
    otlp_receiver: OtlpReceiver, run: OfflineRun, run_dir: str, cli: Cli
) -> None:
    """A 400 for one line costs that line only; the next replay brings it alone."""
    otlp_receiver.fault(status=400, times=1)
    arguments = ("replay", RUN, "--endpoint", otlp_receiver.endpoint, "--rate", "10000")
    code, out, _ = cli(*arguments)
    assert code == 1
    assert "line 1: refused: HTTP 400" in out
    assert len(requests(otlp_receiver)) == len(expected(run)) - 1
    assert cli(*arguments)[0] == 0
    assert requests(otlp_receiver) == expected(run)


def test_a_killed_replay_goes_on(
    otlp_receiver: OtlpReceiver, run: OfflineRun, run_dir: str, cli: Cli
) -> None:
    """Killed (-9) in the middle: everything arrives, and at most the line on its way twice."""
    arguments = ("replay", RUN, "--endpoint", otlp_receiver.endpoint)
    command = [sys.executable, "-m", "costlens", *arguments, "--rate", "5"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    try:
        otlp_receiver.wait_for(lambda receiver: len(receiver.requests) >= 3, timeout_s=60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    num_before = len(requests(otlp_receiver))
    wanted = Counter(expected(run))
    assert num_before < wanted.total()
    assert cli(*arguments, "--rate", "10000")[0] == 0
    arrived = Counter(requests(otlp_receiver))
    assert not wanted - arrived
    assert (arrived - wanted).total() <= 1
