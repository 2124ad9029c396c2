"""The table of what proves each finding, at the end of docs/findings.md, is what is planted."""

from __future__ import annotations

from pathlib import Path

from benchmarks.diagnosis.plants import PLANTS
from costlens.diagnose.causes import CAUSES, COMPUTE_BOUND
from tests.planted import causes, devices

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
LOOPS = {"plain": "plain", "process": "plain", "lightning": "Lightning"}
# tests/distributed/test_straggler.py
JOBS = {"straggler": "two ranks: plain, Lightning", "gang_wait": "two ranks: plain"}


def test_the_page_says_where_each_finding_is_proven() -> None:
    """Every finding has a row, and no row says more, or less, than there is."""
    simulated = {plant.cause for plant in PLANTS}
    loops = {
        name: ", ".join(LOOPS[loop] for loop in plant.loops)
        for name, plant in {**causes.LOSSES, **causes.DANGERS}.items()
    } | JOBS
    beside = {name.split()[0] for name in (*devices.LOSSES, *devices.DANGERS)}
    expected = [
        f"| {name} | {'yes' if name in simulated else ''} | {loops.get(name, '')} |"
        f" {'plain' if name in beside else ''} |"
        for name in CAUSES
        if name != COMPUTE_BOUND
    ]
    table = PAGE.read_text(encoding="utf-8").split("## What proves them", 1)[1]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert rows == expected
