"""Prints what watching costs, beside what others cost; progress goes to standard error.

    python -m benchmarks.overhead [PART ...] [--resume] [--write-readme] [--cycles 100]
                                  [--stretch-s 10] [--rounds 3] [--only costlens,ring]

The parts: ``small`` and ``large`` (Lightning, steps of 0.6 and 1.5 ms, a training each), ``plain``
(a loop of 1 ms), ``alone`` (whole processes), ``slow``, ``growth`` and ``pieces``; without a name,
all. Each leaves its figures in ``.overhead/``; ``--resume`` measures only what is missing there. On
a quiet machine all of them take under twelve minutes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.lightning_overhead import BLOCK
from benchmarks.overhead.otel import StepHistograms, StepSpans
from benchmarks.overhead.peers import describe_release, make_peers
from benchmarks.overhead.pieces import measure_pieces, tell_pieces
from benchmarks.overhead.plain import measure_plain
from benchmarks.overhead.process import (
    measure_alone,
    measure_growth,
    measure_slow,
    tell_alone,
    tell_growth,
    tell_slow,
)
from benchmarks.overhead.subject import Subject, make_own
from benchmarks.overhead.table import Added, Row, make_table
from benchmarks.overhead.training import Plan, measure_lightning, say
from benchmarks.readme import replace_block
from tests.fixtures_otlp import OtlpReceiver

KEPT = Path(__file__).parents[2] / ".overhead"
NUM_STEPS = 12_000
NUM_GROWTH_STEPS = 200_000
Figures = dict[str, Any]
Measure = Callable[[argparse.Namespace, Path], Figures]


def _compare(plan: Plan, folder: Path, only: list[str]) -> Figures:
    receiver = OtlpReceiver(folder)
    try:
        url = receiver.endpoint
        raw = [StepSpans(url, 1), StepSpans(url, 5), StepHistograms(url)]
        subjects = [*make_own(url), *raw, *make_peers(folder)]
        if only:
            subjects = [one for one in subjects if any(word in one.name for word in only)]
        for subject in subjects:
            subject.name += f" {describe_release(subject)}".rstrip()
        ready = [subject for subject in subjects if subject.is_installed]
        bare_us, rows = measure_lightning([Subject(), *ready], plan)
        signals = {request.signal for request in receiver.requests if request.accepted}
        assert only or {"metrics", "traces"} <= signals, f"the receiver got {signals} only"
    finally:
        receiver.stop()
    absent = [Row(one.name, None, delivers="not installed") for one in subjects if one not in ready]
    return {"bare_us": bare_us, "rows": [asdict(row) for row in (*rows, *absent)]}


def _small(options: argparse.Namespace, folder: Path) -> Figures:
    return _compare(Plan(options.cycles, options.stretch_s), folder, options.only)


def _large(options: argparse.Namespace, folder: Path) -> Figures:
    plan = Plan(max(2, options.cycles // 2), 0.0, (64, 256, 256, 8), 64)
    return _compare(plan, folder, options.only)


def _plain(options: argparse.Namespace, folder: Path) -> Figures:
    bare_us, rows = measure_plain(options.cycles)
    return {"bare_us": bare_us, "rows": [asdict(row) for row in rows]}


PARTS: dict[str, Measure] = {
    "small": _small,
    "large": _large,
    "plain": _plain,
    "alone": lambda options, folder: measure_alone(folder, options.rounds, options.steps),
    "slow": lambda options, folder: measure_slow(folder, options.rounds, options.steps),
    "growth": lambda options, folder: measure_growth(folder, options.growth_steps),
    "pieces": lambda options, _: {"us": measure_pieces(options.steps // 4)},
}


def _read_row(kept: Figures) -> Row:
    added, wall = (
        None if kept[name] is None else Added(**kept[name]) for name in ("added", "wall")
    )
    behind = None if kept["behind_us"] is None else tuple(kept["behind_us"])
    return Row(kept["name"], added, wall, behind, kept["delivers"])


def _tell(name: str, figures: Figures) -> list[str]:
    if name in {"small", "large", "plain"}:
        kind = "plain loop" if name == "plain" else "Lightning"
        title = f"{kind}, a step of {figures['bare_us'] / 1000:.2f} ms"
        return make_table(title, [_read_row(row) for row in figures["rows"]])
    if name == "pieces":
        return tell_pieces(figures["us"])
    if name == "alone":
        return tell_alone(figures)
    return [tell_slow(figures) if name == "slow" else tell_growth(figures)]


def _describe(cycles: int) -> str:
    return (
        "µs of CPU a step. Training thread and wall: added to a bare step, median ± median absolute"
        f" deviation of {cycles} cycles (half of them for the larger step): in one training the"
        f" subject changes in random order, and a block of {BLOCK} steps is compared with the bare"
        f" block of its cycle; a median is off by {1.86 / cycles**0.5:.2f} deviations. Threads and"
        " processes: each alone. Whole processes: medians of rounds in turn. torch"
        f" {torch.__version__}, Python {sys.version_info.major}.{sys.version_info.minor},"
        f" {os.cpu_count()} cores."
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all, if none is named")
    parser.add_argument("--cycles", type=int, default=100, help="blocks of each subject")
    parser.add_argument("--stretch-s", type=float, default=10.0, help="background, each subject")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="of such a process")
    parser.add_argument("--growth-steps", type=int, default=NUM_GROWTH_STEPS)
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument("--resume", action="store_true", help="keep the parts that are there")
    parser.add_argument("--write-readme", action="store_true", help="replace the README's tables")
    options = parser.parse_args()
    options.only = [word for word in options.only.split(",") if word]
    return options


def _measure(name: str, options: argparse.Namespace) -> Figures:
    kept = KEPT / f"{name}.json"
    if options.resume and kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    say(f"part {name}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COSTLENS_DIR"] = f"{folder}/runs"
        figures = PARTS[name](options, Path(folder))
    KEPT.mkdir(exist_ok=True)
    kept.write_text(json.dumps(figures), encoding="utf-8")
    return figures


def main() -> None:
    """Read the command line, measure, print, and write the README if asked to."""
    options = _read_options()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    random.seed(0)
    os.environ["COSTLENS_SUMMARY"] = "0"
    os.environ["COSTLENS_LOG_LEVEL"] = "error"  # whoever is off looks stalled
    lines = [_describe(options.cycles)]
    for name in options.parts or PARTS:
        lines += ["", *_tell(name, _measure(name, options))]
    print("<!-- overhead:begin -->", *lines, "<!-- overhead:end -->", sep="\n")
    if options.write_readme:
        replace_block("overhead", lines)


if __name__ == "__main__":
    main()
