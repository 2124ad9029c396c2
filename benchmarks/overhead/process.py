"""Whole trainings in processes of their own: what a step inside one training cannot show.

Threads, memory, the slowest steps, start and exit, growth over many steps, and a back-end that
takes three seconds for every answer. Rounds alternate, and each figure is the median of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.overhead.training import say
from tests.fixtures_otlp import OtlpReceiver

Figures = dict[str, float]
SLOW_S = 3.0
MIB = 2**20


def run_job(kind: str, num: int, folder: Path, endpoint: str | None = None) -> Figures:
    """Return what one training measured, with the seconds from its last step to its end.

    Args:
        kind: ``bare`` or ``costlens``.
        num: Steps.
        folder: Takes its run folders.
        endpoint: Where OTLP goes, None for nowhere.
    """
    settings = {"COSTLENS_DIR": str(folder / "runs"), "COSTLENS_SUMMARY": "0"}
    if endpoint is not None:
        settings["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overhead.job", kind, str(num)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    ended_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    if done.returncode:
        raise RuntimeError(f"the training of {kind} failed:\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    figures["exit_s"] = ended_s - figures.pop("left_s")
    say(f"{kind}, {num} steps: {json.dumps({name: round(at, 2) for name, at in figures.items()})}")
    return figures


def _median(rounds: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def measure_alone(folder: Path, num_rounds: int, num: int) -> dict[str, Figures]:
    """Return the figures of a bare training, and of watched ones with and without an endpoint."""
    receiver = OtlpReceiver(folder)
    rounds: dict[str, list[Figures]] = {"bare": [], "costlens": [], "costlens, OTLP": []}
    try:
        for _ in range(num_rounds):
            rounds["bare"].append(run_job("bare", num, folder))
            rounds["costlens"].append(run_job("costlens", num, folder))
            live = run_job("costlens", num, folder, receiver.endpoint)
            rounds["costlens, OTLP"].append(live)
    finally:
        receiver.stop()
    return {name: _median(figures) for name, figures in rounds.items()}


def measure_slow(folder: Path, num_rounds: int, num: int) -> dict[str, Figures]:
    """Return the figures with a back-end that answers at once, and with one that takes 3 s."""
    receiver = OtlpReceiver(folder)
    rounds: dict[str, list[Figures]] = {"live": [], "slow": []}
    try:
        for _ in range(num_rounds):
            receiver.fault()
            rounds["live"].append(run_job("costlens", num, folder, receiver.endpoint))
            receiver.fault(delay_s=SLOW_S)
            rounds["slow"].append(run_job("costlens", num, folder, receiver.endpoint))
    finally:
        receiver.stop()
    return {name: _median(figures) for name, figures in rounds.items()}


def measure_growth(folder: Path, num: int) -> dict[str, Figures]:
    """Return the figures of one long training, and of a bare one of a tenth of its length."""
    receiver = OtlpReceiver(folder)
    try:
        return {
            "bare": run_job("bare", num // 10, folder),
            "costlens, OTLP": run_job("costlens", num, folder, receiver.endpoint),
        }
    finally:
        receiver.stop()


def tell_alone(figures: dict[str, Figures]) -> list[str]:
    """Return a table of whole trainings."""
    heads = ["whole process", "its threads, µs a step", "p99.9 step, ms", "longest step, ms"]
    heads += ["full collections", "peak memory, MiB", "ready after, s", "last step to exit, s"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for name, seen in figures.items():
        cells = [name, f"{seen['threads_us']:.1f}", f"{seen['p999_us'] / 1000:.2f}"]
        cells += [f"{seen['max_us'] / 1000:.1f}", f"{seen['num_full_collections']:.0f}"]
        cells += [f"{seen['peak_bytes'] / MIB:.0f}", f"{seen['ready_s']:.2f}"]
        lines.append([*cells, f"{seen['exit_s']:.2f}"])
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def tell_slow(figures: dict[str, Figures]) -> str:
    """Return a line on a slow back-end."""
    live, slow = figures["live"], figures["slow"]
    change = slow["p99_us"] / live["p99_us"] - 1
    return (
        f"A back-end that takes {SLOW_S:.0f} s for every answer: the p99 step is"
        f" {slow['p99_us'] / 1000:.3f} ms instead of {live['p99_us'] / 1000:.3f} ({change:+.1%})."
    )


def tell_growth(figures: dict[str, Figures]) -> str:
    """Return a line on memory."""
    watched, bare = figures["costlens, OTLP"], figures["bare"]
    return (
        f"Memory over {watched['num_steps']:,.0f} steps: {watched['growth_bytes'] / MIB:+.1f} MiB,"
        f" the ring of {watched['ring_bytes'] / MIB:.1f} included (bare, over"
        f" {bare['num_steps']:,.0f}: {bare['growth_bytes'] / MIB:+.1f})."
    )
