"""Runs for tests of comparing: records and windows of trainings whose noise the test chooses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from costlens.account.ledger import merge
from costlens.account.run_summary import choose_leads, summarize_run
from costlens.core.clock import NS_PER_S
from costlens.core.comparison_records import RunSummary
from costlens.core.records import RankRecord
from costlens.core.training_records import RatesPart, WindowPart
from tests.unit.account.build import START, make_iteration_time, make_price, make_record

WINDOW_S = 10.0
NUM_STEPS = 100
TOKENS_PER_STEP = 1000


def make_windows(
    step_times_s: Sequence[float], *, startup_s: float = 5.0, evaluation_s: float = 0.0
) -> list[WindowPart]:
    """Return windows of 100 steps each, with a first one that also holds the start-up.

    A fifth of a step is a wait for data, the rest computes.
    """
    windows, start = [], START
    for index, step_s in enumerate(step_times_s):
        phases = {
            "startup": startup_s if index == 0 else 0.0,
            "data_wait": 0.2 * step_s * NUM_STEPS,
            "compute": 0.8 * step_s * NUM_STEPS,
            "validation": evaluation_s,
        }
        length_s = sum(phases.values())
        windows.append(
            WindowPart(
                index=index,
                start_time=start,
                end_time=start + length_s,
                phase_ns={name: round(s * NS_PER_S) for name, s in phases.items() if s},
                counts={
                    "iterations": NUM_STEPS,
                    "optimizer_steps": NUM_STEPS,
                    "tokens": NUM_STEPS * TOKENS_PER_STEP,
                    "samples": NUM_STEPS * 4,
                },
                num_iterations=NUM_STEPS,
                iteration_mean_s=step_s,
                iteration_max_s=step_s,
            )
        )
        start += length_s
    return windows


def make_rank(windows: Sequence[WindowPart], **parts: Any) -> RankRecord:
    """Return the record of the rank that had these windows, at 3600 an hour unless told."""
    time_s: dict[str, float] = {}
    for window in windows:
        for name, ns in window.phase_ns.items():
            time_s[name] = time_s.get(name, 0.0) + ns / NS_PER_S
    counts = {
        name: sum(window.counts[name] for window in windows)
        for name in ("iterations", "optimizer_steps", "tokens", "samples")
    }
    times_s = [window.iteration_mean_s or 0.0 for window in windows for _ in range(NUM_STEPS)]
    step_s = sum(times_s) / len(times_s)
    fields: dict[str, Any] = {
        "time_s": time_s,
        "progress": counts,
        "price": make_price("3600"),
        "iteration_time": make_iteration_time(*times_s[:: max(1, len(times_s) // 200)]),
        "rates": RatesPart(
            iterations_per_s=1 / step_s,
            steps_per_s=1 / step_s,
            samples_per_s=4 / step_s,
            tokens_per_s=TOKENS_PER_STEP / step_s,
        ),
        "attempt_start_step": 0,
        "attempt_end_step": counts["optimizer_steps"],
    }
    return make_record(**{**fields, **parts})


def summarize(windows: Sequence[WindowPart], **parts: Any) -> RunSummary:
    """Return what a run of one rank with these windows is compared by."""
    run = parts.pop("run", {})
    record = make_rank(windows, **parts)
    record = record.model_copy(update={"run": record.run.model_copy(update=run)})
    merged = merge([record], now=START + 1e6)
    return summarize_run(merged, [record], [windows] * len(choose_leads([record])))


def noisy_times(
    seed: int, num: int, *, mean_s: float = 0.1, share: float = 0.03, memory: float = 0.0
) -> list[float]:
    """Return step times of windows that vary by a share, each leaning on the one before.

    Args:
        seed: Of the noise.
        num: Windows.
        mean_s: Seconds of a step on average.
        share: Standard deviation over the mean.
        memory: Correlation of a window with the next, 0 to 1.
    """
    source = random.Random(seed)
    state = source.gauss(0, 1)
    times = []
    for _ in range(num):
        times.append(mean_s * max(0.05, 1 + share * state))
        state = memory * state + (1 - memory**2) ** 0.5 * source.gauss(0, 1)
    return times
