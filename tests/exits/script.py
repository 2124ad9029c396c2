"""Runs a script that trains in a process of its own and tells how that process ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costlens.core.records import RankRecord
from costlens.core.run_record import AttemptSummary, RunRecord
from costlens.export.record import read_run
from costlens.observe.last_words import witness_end
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store

EXIT_LIMIT_S = 5.0
FLUSH_S = "0.5"

# Registered first and so run last: whatever costlens does at exit is over by then.
_PREAMBLE = """
import atexit, glob, os, signal, sys, threading, time
def _survivors():
    # An export that waits for the collector is left behind; its thread holds nothing up.
    others = [t for t in threading.enumerate() if not t.name.startswith("costlens-export")]
    alive = [t.name for t in others if t is not threading.main_thread()]
    print("SURVIVORS", alive, [t.name for t in threading.enumerate()[1:] if not t.daemon])
    print("OVER", time.monotonic())
atexit.register(_survivors)
def ending():
    print("ENDING", time.monotonic(), flush=True)
def ready():
    while not glob.glob(os.environ["COSTLENS_DIR"] + "/*/record-*.json"):
        time.sleep(0.01)
    print("READY", flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """A process that has ended.

    Args:
        code: Its exit code; negative is a signal.
        delay_s: Seconds from its ``ending()`` or from the signal until nothing of costlens is left
            to do; what the interpreter and torch need to go away is their own.
        out: Lines of standard output.
        err: Text of standard error.
        folder: Where its run folders are.
    """

    code: int
    delay_s: float
    out: list[str]
    err: str
    folder: Path

    @property
    def record(self) -> RankRecord:
        """Return the one record that the process has written."""
        return read_record(self.folder)

    @property
    def merged(self) -> RunRecord:
        """Return what a reader on this machine makes of it now."""
        store = Store(str(self.folder))
        (run_id,) = [path.name for path in self.folder.iterdir()]
        return read_run(RunFolder(store, run_id), time.time(), witness_end)

    @property
    def attempt(self) -> AttemptSummary:
        """Return the newest attempt as a reader sees it."""
        return self.merged.attempts[-1]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log events of one name."""
        lines = [line for line in self.err.splitlines() if line.startswith("{")]
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    def check_closed(self) -> None:
        """Demand a closed record, an end in time, and nothing left of costlens in the process."""
        record = self.record
        assert record.attempt.end_time is not None, self.err
        assert sum(record.time_ns.values()) == record.total_ns
        assert record.telemetry.faults == {}
        assert self.delay_s <= EXIT_LIMIT_S, self.err
        survivors = [line for line in self.out if line.startswith("SURVIVORS")]
        assert survivors in ([], ["SURVIVORS [] []"])


def read_record(folder: Path) -> RankRecord:
    """Return the one record in a folder of runs, as it stands."""
    (path,) = folder.glob("*/record-*.json")
    return RankRecord.model_validate_json(path.read_bytes())


class Script:
    """Launches scripts.

    Args:
        folder: A folder for their files.
        endpoint: The collector they send to.
    """

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.runs = folder / "runs"
        self._path = folder / "train.py"
        self.environ = {
            **os.environ,
            "COSTLENS_DIR": str(self.runs),
            "COSTLENS_SUMMARY": "0",
            "COSTLENS_FLUSH_TIMEOUT_S": FLUSH_S,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        }
        self.environ.pop("PYTEST_CURRENT_TEST", None)  # faults are contained, as they are for users

    def start(
        self, body: str, *, stdin: int | None = None, **environ: str
    ) -> subprocess.Popen[str]:
        """Start a script; it knows ``ending()``, to be called right before it ends."""
        self._path.write_text(_PREAMBLE + textwrap.dedent(body), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, str(self._path)],
            env={**self.environ, **environ},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, body: str, **environ: str) -> Ended:
        """Run a script to its end."""
        return self.wait(self.start(body, **environ))

    def send(self, body: str, signum: signal.Signals, **environ: str) -> Ended:
        """Send a signal once the script prints ``READY``, and wait for its end."""
        process = self.start(body, **environ)
        lines = wait_ready(process)
        process.send_signal(signum)
        return self.wait(process, time.monotonic(), lines)

    def wait(
        self,
        process: subprocess.Popen[str],
        ending_s: float | None = None,
        lines: list[str] | None = None,
    ) -> Ended:
        """Wait for the end of a script."""
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        died_s = time.monotonic()
        said = [*(lines or []), *out.splitlines()]
        begun_s = ending_s if ending_s is not None else _last_mark(said, "ENDING", died_s)
        delay_s = _last_mark(said, "OVER", died_s) - begun_s
        return Ended(process.returncode, delay_s, said, err, self.runs)


def _last_mark(lines: list[str], name: str, otherwise: float) -> float:
    marks = [float(line.split()[1]) for line in lines if line.startswith(f"{name} ")]
    return (marks or [otherwise])[-1]


def wait_until(happened: Callable[[], object], limit_s: float = 30.0) -> None:
    """Return once something has happened; fail after ``limit_s`` seconds."""
    deadline_s = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline_s, "it has not happened in time"
        time.sleep(0.02)


def wait_ready(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that a script prints up to ``READY``."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if lines[-1] == "READY":
            return lines
    _, err = process.communicate()
    raise AssertionError(f"the script ended before it was ready:\n{err}")
