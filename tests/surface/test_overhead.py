"""The comparison of overheads runs and measures what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.overhead.table import Added, Row, compare, make_table


def test_added_cost_is_paired_by_cycle() -> None:
    """A machine that gets slower from cycle to cycle changes nothing; one odd cycle does not."""
    bare = [100.0, 200.0, 300.0, 400.0, 500.0]
    added = compare([110.0, 212.0, 308.0, 410.0, 900.0], bare)
    assert (added.median_us, added.mad_us) == (10.0, 2.0)


def test_what_was_not_measured_has_no_figure() -> None:
    """A peer that is not installed has a row that says so, and no zeros."""
    rows = [
        Row("ours", Added(4.0, 1.0), behind_us=(3.04, 0.0), delivers="phases"),
        Row("peer", None, delivers="not installed"),
    ]
    assert make_table("Lightning", rows)[2:] == [
        "| ours | +4.0 ± 1.0 | 3.0 | – | phases |",
        "| peer |  |  |  | not installed |",
    ]


def _run(*parts: str) -> str:
    short = ("--cycles", "2", "--stretch-s", "0.3", "--rounds", "1", "--steps", "40")
    options = (*short, "--growth-steps", "60", "--only", "costlens,ring,SimpleProfiler")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overhead", *parts, *options],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_comparison_prints_its_tables() -> None:
    """Every subject of costlens trains, is seen to have worked and gets its figures."""
    told = _run("small", "plain", "pieces")
    rows = re.findall(r"^\| (.+?) \| [+-]\d+\.\d ± \d+\.\d \|", told, flags=re.MULTILINE)
    ours = ["**costlens**", "**costlens**, OTLP", "**costlens** and SimpleProfiler"]
    watched = ["batches + iteration", "hooks", "all"]
    assert rows == ["ring floor", *ours[:2], "Lightning SimpleProfiler", ours[2], *watched]
    assert "| all of it |" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("alone", "| costlens, OTLP |"),
        ("slow", "3 s for every answer"),
        ("growth", "Memory over 60 steps"),
    ],
)
def test_whole_processes_are_measured(part: str, word: str) -> None:
    """Each part starts its trainings and tells what it saw of them."""
    assert word in _run(part)
