"""Good practice in the console report and in the record: what fails, and what to do."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from costlens.core.run_record import RunRecord
from costlens.diagnose.practice import CHECKS
from costlens.export.console import render
from costlens.export.practice_parts import list_checks
from costlens.export.record import read_run
from tests.made_runs import usual_price, write_run
from tests.unit.account.build import START
from tests.unit.export.samples import make_demo


def _judged(record: RunRecord) -> RunRecord:
    return record.model_copy(update={"practice": list_checks(record)})


def _section(record: RunRecord) -> list[str]:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(record, console, now=START)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    _, title, rest = text.partition("\nGood practice")
    return [line.strip() for line in (title + rest.split("\n\n")[0]).strip().splitlines()]


def test_failures_are_told_with_what_to_do_and_nothing_else() -> None:
    """What passes, or cannot be told, takes no line of the report."""
    record = _judged(make_demo())
    failed = [check for check in record.practice if check.standing == "fail"]
    assert 0 < len(failed) < len(record.practice)
    title, *rows = _section(record)
    assert title == f"Good practice: {len(failed)} of {len(CHECKS)} checks fail"
    assert len(rows) == len(failed)
    for row, check in zip(rows, failed, strict=True):
        assert row.startswith(check.name.replace("_", " "))
        assert check.remedy is not None
        assert row.endswith(check.remedy)


def test_nothing_is_told_twice() -> None:
    """C106: where Money says that there is no price, and what to set, this points there."""
    hint = "no price: set COSTLENS_NODE_HOUR_PRICE to the money a node costs per hour"
    record = _judged(make_demo(price=None, price_unknown=hint))
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(record, console, now=START)
    page = console.file.getvalue()  # type: ignore[attr-defined]
    assert page.count("COSTLENS_NODE_HOUR_PRICE") == 1
    assert "price set                see Money" in _section(record)


def test_where_nothing_fails_or_nobody_looked_there_is_no_section() -> None:
    """Nor for a debug run, which is not meant to be prepared for anything."""
    record = _judged(make_demo())
    passed = [check.model_copy(update={"standing": "pass"}) for check in record.practice]
    assert _section(record.model_copy(update={"practice": passed})) == []
    assert _section(make_demo()) == []
    debug = record.run.model_copy(update={"debug": "fast_dev_run"})
    assert _section(record.model_copy(update={"run": debug})) == []


def test_the_record_of_a_run_holds_every_check(tmp_path: Path) -> None:
    """`costlens report --json` tells all checks with why, in the order in which they are known."""
    record = read_run(write_run(tmp_path, num_windows=3, price=usual_price()), START + 31)
    told = json.loads(record.model_dump_json())["practice"]
    assert [check["name"] for check in told] == [*CHECKS]
    assert {check["standing"] for check in told} <= {"pass", "fail", "unknown"}
    assert all(check["why"] for check in told)
    assert {c["name"]: c["standing"] for c in told}["price_set"] == "pass"
