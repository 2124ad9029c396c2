"""Starts jobs in processes of their own and tells how they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costlens.core.records import RankRecord

HERE = Path(__file__).parent
MARKS = {"ENDING", "CLOSED"}
LIMIT_S = 90.0  # a job that takes longer hangs


@dataclass(frozen=True)
class Ended:
    """A job that has ended.

    Args:
        code: Its exit code.
        delay_s: Seconds from the line ENDING to the line CLOSED, which is printed at exit after
            costlens has closed: what the interpreter takes to clean up is its own.
        out: Lines of standard output.
        err: Lines of standard error.
        folder: Where its run folders are.
    """

    code: int
    delay_s: float
    out: list[str]
    err: list[str]
    folder: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the events of costlens's log."""
        return [json.loads(line) for line in self.err if line.startswith("{")]

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events of one name."""
        return [event for event in self.events if event["event"] == name]

    @property
    def record(self) -> RankRecord:
        """Return the only record that was written."""
        (path,) = self.folder.glob("*/record-*.json")
        return RankRecord.model_validate_json(path.read_bytes())


def checkout() -> dict[str, str]:
    """Return what leads to the package where it is not installed."""
    return {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


class Job:
    """A job that runs: a script of this folder, with nothing of this process's own settings.

    Args:
        folder: Where its run folders go.
        script: A file of this folder.
        args: Its arguments.
        prefix: A command that starts the interpreter.
        environ: More variables.
    """

    def __init__(
        self,
        folder: Path,
        script: str,
        *args: str,
        prefix: tuple[str, ...] = (),
        **environ: str,
    ) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(HERE / script), *args],
            env={
                "PATH": os.defpath,
                "OMP_NUM_THREADS": "1",
                "COSTLENS_DIR": str(folder),
                "COSTLENS_SUMMARY": "0",
                "COSTLENS_WINDOW_S": "0.1",
                **checkout(),
                **environ,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # A thread each, so that many jobs can be followed at once.
        self._output: tuple[str, str] = ("", "")
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        try:
            self._output = self._process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._output = self._process.communicate()

    def end(self) -> Ended:
        """Wait for the end and return how it was."""
        self._watcher.join()
        out, err = (text.splitlines() for text in self._output)
        times_s = {line.split()[0]: float(line.split()[1]) for line in out if line[:6] in MARKS}
        assert {*times_s} == MARKS, (self._process.returncode, out, err)
        delay_s = times_s["CLOSED"] - times_s["ENDING"]
        return Ended(self._process.returncode, delay_s, out, err, self.folder)
