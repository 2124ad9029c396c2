"""Prints what watching costs, in microseconds of CPU a step, as two Markdown tables.

    python -m benchmarks.overhead [--cycles 120] [--stretch-s 10] [--only costlens,wandb]
                                  [--write-readme]

Progress goes to standard error. On a quiet machine it takes under four minutes.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from benchmarks.lightning_overhead import BLOCK
from benchmarks.overhead.otel import StepHistograms, StepSpan
from benchmarks.overhead.peers import describe_release, make_peers
from benchmarks.overhead.plain import measure_plain
from benchmarks.overhead.subject import Subject, make_own
from benchmarks.overhead.table import Row, make_table
from benchmarks.overhead.training import Plan, measure_lightning
from benchmarks.readme import replace_block
from tests.fixtures_otlp import OtlpReceiver


def _compare(plan: Plan, folder: Path, only: list[str]) -> tuple[float, list[Row]]:
    receiver = OtlpReceiver(folder)
    try:
        url = receiver.endpoint
        peers = make_peers(folder)
        subjects = [*make_own(url), StepSpan(url), StepHistograms(url), *peers]
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
    absent = [Row(one.name, None, None, "not installed") for one in subjects if one not in ready]
    return bare_us, [*rows, *absent]


def _describe(plan: Plan, lightning_us: float, plain_us: float) -> str:
    return (
        f"µs of CPU a step. Training thread: added to a bare step of {lightning_us:.0f} µs"
        f" (Lightning) or {plain_us:.0f} µs (plain loop), median ± median absolute deviation of"
        f" {plan.cycles} cycles: in one training the subject changes in random order, and a block"
        f" of {BLOCK} steps is compared with the bare block of its cycle; the median is off by"
        f" {1.86 / plan.cycles**0.5:.2f} deviations. Threads and processes:"
        f" {plan.stretch_s:.0f} s of each alone. torch {torch.__version__}, Python"
        f" {sys.version_info.major}.{sys.version_info.minor}, {os.cpu_count()} cores."
    )


def main() -> None:
    """Read the command line, measure, print, and write the README if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=120)
    parser.add_argument("--stretch-s", type=float, default=10.0, help="background, each subject")
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument("--write-readme", action="store_true", help="replace the README's tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    random.seed(0)
    plan = Plan(options.cycles, options.stretch_s)
    only = [word for word in options.only.split(",") if word]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(COSTLENS_DIR=f"{folder}/runs", COSTLENS_SUMMARY="0")
        os.environ["COSTLENS_LOG_LEVEL"] = "error"  # whoever is off looks stalled
        plain_us, plain_rows = measure_plain(plan.cycles)
        lightning_us, rows = _compare(plan, Path(folder), only)
    lines = [
        _describe(plan, lightning_us, plain_us),
        "",
        *make_table("Lightning", rows),
        "",
        *make_table("plain loop", plain_rows),
    ]
    print("<!-- overhead:begin -->", *lines, "<!-- overhead:end -->", sep="\n")
    if options.write_readme:
        replace_block("overhead", lines)


if __name__ == "__main__":
    main()
