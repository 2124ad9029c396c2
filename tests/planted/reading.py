"""What the report says of a training: its findings, and the first line under its header."""

from __future__ import annotations

import io
import time
from pathlib import Path

from rich.console import Console

from costlens.core.finding_records import FindingPart
from costlens.core.run_record import RunRecord
from costlens.diagnose.causes import COMPUTE_BOUND, find_cause
from costlens.export.console import render
from costlens.export.record import read_run
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store


def read_report(run_dir: str | Path, run_id: str | None) -> RunRecord:
    """Return the merged record of a run, read from its folder as the report does."""
    assert run_id is not None
    return read_run(RunFolder(Store(str(run_dir)), run_id), time.time())


def findings_of(record: RunRecord) -> list[FindingPart]:
    """Return what is to be mended."""
    return [part for part in record.findings if part.name != COMPUTE_BOUND]


def first_line(record: RunRecord) -> str:
    """Return the first line under the header of the report, which is that of the findings."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(record, console)
    body = console.file.getvalue().split("\n\n", 1)[1].splitlines()  # type: ignore[attr-defined]
    assert body[0] == "What to fix first"
    return body[1].strip()


def check_named(record: RunRecord, name: str) -> FindingPart:
    """Return the only finding of a report, which is this one and is what it opens with."""
    found = findings_of(record)
    assert [part.name for part in found] == [name], record.undecided
    title = find_cause(name).title
    line = first_line(record)
    assert line.startswith(f"1  {title[0].upper()}{title[1:]}")
    assert line.endswith(" USD/h") == (found[0].money_per_hour is not None)
    assert found[0].remedies
    return found[0]
