"""The windows of a rank in which training had settled: no start-up, no warm-up, not the end.

Money counts all of it; speed is what these windows show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from costlens.core.training_records import WindowPart

__all__ = ["SteadyWindows", "find_steady"]

# What happens once in an attempt. Saves and evaluations repeat, and stay.
_ONCE = ("startup", "restore", "shutdown")
_MIN_FOR_WARMUP = 12
_MAX_WARMUP_SHARE = 0.25
# How much surer the mean of the rest has to be: a rule that drops windows for less follows noise.
_MIN_GAIN = 0.5


@dataclass(frozen=True, slots=True)
class SteadyWindows:
    """Windows of steady training, in the order of time.

    Args:
        windows: Those that are left.
        num_startup: How many had start-up, a restore or the end in them, or no iteration before.
        num_warmup: How many were left out because training was still getting faster.
    """

    windows: tuple[WindowPart, ...] = ()
    num_startup: int = 0
    num_warmup: int = 0


def find_steady(attempts: Iterable[Sequence[WindowPart]]) -> SteadyWindows:
    """Return the steady windows of one rank over some attempts.

    Args:
        attempts: Its windows by attempt, each in the order of time.
    """
    kept: list[WindowPart] = []
    num_startup = num_warmup = 0
    for windows in attempts:
        settled = [window for window in windows if not _is_once(window)]
        while settled and not settled[0].num_iterations:
            settled = settled[1:]
        num_startup += len(windows) - len(settled)
        warmup = _count_warmup(settled)
        num_warmup += warmup
        kept += settled[warmup:]
    return SteadyWindows(tuple(kept), num_startup, num_warmup)


def _is_once(window: WindowPart) -> bool:
    return any(window.phase_ns.get(name) for name in _ONCE)


def _count_warmup(windows: Sequence[WindowPart]) -> int:
    """Return how many first windows are a warm-up, at most a quarter of them.

    The marginal standard error rule (K. P. White, Simulation 69 (1997) 323): as many as make the
    mean of the rest surest, here only where they were slower than the rest.
    """
    timed = [
        (index, window.iteration_mean_s)
        for index, window in enumerate(windows)
        if window.iteration_mean_s is not None and window.num_iterations
    ]
    if len(timed) < _MIN_FOR_WARMUP:
        return 0
    means_s = [mean_s for _, mean_s in timed]
    errors = _rest_errors(means_s, int(len(means_s) * _MAX_WARMUP_SHARE))
    best = min(errors)
    count = errors.index(best)
    is_gain = best < _MIN_GAIN * errors[0]
    if not is_gain or fmean(means_s[:count]) <= fmean(means_s[count:]):
        return 0
    return timed[count][0]


def _rest_errors(values: Sequence[float], most: int) -> list[float]:
    """Return the squared error of the mean of what is left without the first 0, 1, … values.

    One pass: a run of a week has sixty thousand windows.
    """
    centre = fmean(values)
    left = [value - centre for value in values]  # small numbers lose no digits as squares
    total, squares = math.fsum(left), math.fsum(each * each for each in left)
    errors = []
    for count in range(most + 1):
        num = len(left) - count
        errors.append(max(0.0, squares - total * total / num) / num**2)
        total -= left[count]
        squares -= left[count] ** 2
    return errors
