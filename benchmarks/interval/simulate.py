"""Runs a policy through a scenario, many seeds side by side; knows no formula of an interval.

Bills every second until the work is done: useful steps, stalls, steps slowed by a write, restarts,
and work done again from the last durable snapshot. One write is in flight at a time; a save that
comes too early waits for it. The same seed fails at the same up-times under every policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gamma

import numpy as np

from benchmarks.interval.scenario import Scenario

__all__ = ["Jobs", "Policy", "simulate"]

JITTER = 0.15

Array = np.ndarray


@dataclass
class Jobs:
    """The state of all simulated jobs; an array element each.

    Attributes:
        clock_s: Paid seconds so far.
        live_s: Useful seconds done and not lost.
        durable_s: Progress of the newest durable snapshot.
        up_s: Seconds since the last restart.
        exposed_s: Seconds up, over all attempts.
        num_failures: Failures so far.
        num_saves: Saves so far.
        money: Money so far.
        max_lost_s: The most useful seconds that a failure has lost.
    """

    clock_s: Array
    live_s: Array
    durable_s: Array
    up_s: Array
    exposed_s: Array
    num_failures: Array
    num_saves: Array
    money: Array
    max_lost_s: Array

    @classmethod
    def fresh(cls, num_jobs: int) -> Jobs:
        """Return jobs that have not begun."""
        return cls(*(np.zeros(num_jobs) for _ in range(9)))


Policy = Callable[[Jobs, Array], Array]
"""Returns the useful seconds until the next save, for the jobs with the given indices."""


class _Failures:
    """Up-times until the next failure: the hazard that a seed draws, spent faster when it rises."""

    def __init__(self, scenario: Scenario, num_seeds: int) -> None:
        self._scenario = scenario
        self._random = np.random.default_rng(20_260_729)
        self._num_seeds = num_seeds
        self._drawn: list[Array] = []

    def next_s(self, jobs: Array, number: Array) -> Array:
        """Return the up-time at which each job fails for the ``number``-th time.

        In seconds at the rate of the first half, of a Weibull with the scenario's mean.
        """
        while len(self._drawn) <= number.max(initial=0):
            self._drawn.append(self._random.exponential(size=self._num_seeds))
        hazard = np.stack(self._drawn)[number.astype(int), jobs % self._num_seeds]
        shape = self._scenario.shape
        return self._scenario.mtbf_s / gamma(1 + 1 / shape) * hazard ** (1 / shape)


def simulate(scenario: Scenario, policy: Policy, num_seeds: int, copies: int = 1) -> Jobs:
    """Return the finished jobs, ``copies`` for each seed one after the other.

    Args:
        scenario: The job.
        policy: Says when the next save is due.
        num_seeds: Seeds to run.
        copies: How often each seed is run, for policies that treat the copies differently.
    """
    num_jobs = num_seeds * copies
    jobs = Jobs.fresh(num_jobs)
    failures = _Failures(scenario, num_seeds)
    noise = np.random.default_rng(7)
    fails_at_s = failures.next_s(np.arange(num_jobs), jobs.num_failures)
    writing_s, written_s = np.zeros(num_jobs), np.zeros(num_jobs)  # left of a write; its progress
    alive = np.arange(num_jobs)
    while alive.size:
        jitter = np.clip(noise.normal(1, JITTER, size=num_seeds), 0.4, None)
        now = _Prices.of(scenario, jobs, alive, np.tile(jitter, copies)[alive])
        left_s = scenario.work_s - jobs.live_s[alive]
        useful_s = np.minimum(np.maximum(policy(jobs, alive), scenario.step_s), left_s)
        ends = useful_s >= left_s
        segment_s = _segment_s(scenario, useful_s, writing_s[alive], np.where(ends, 0, now.stall_s))
        segment_s += np.where(ends, 0, np.maximum(0, writing_s[alive] - segment_s))
        up_left_s = (fails_at_s[alive] - jobs.up_s[alive]) / now.hazard
        fails = up_left_s < segment_s
        passed_s = np.where(fails, up_left_s, segment_s)

        _finish_writes(jobs, alive, writing_s, written_s, passed_s)
        jobs.clock_s[alive] += passed_s
        jobs.exposed_s[alive] += passed_s
        jobs.up_s[alive] += passed_s * now.hazard
        jobs.money[alive] += passed_s * now.money_per_s
        jobs.live_s[alive[~fails]] += useful_s[~fails]
        saves = ~fails & ~ends
        jobs.money[alive[saves]] += now.money_per_save[saves]
        _begin_writes(jobs, alive[saves], writing_s, written_s, now.write_s[saves])

        failed = alive[fails]
        _restart(scenario, jobs, failed, np.minimum(useful_s, passed_s)[fails])
        writing_s[failed] = 0.0
        fails_at_s[failed] = failures.next_s(failed, jobs.num_failures[failed])
        alive = alive[~(ends & ~fails)]
    return jobs


@dataclass
class _Prices:
    """What holds for each job at the moment: its first half's figures or its second's."""

    stall_s: Array
    write_s: Array
    money_per_s: Array
    money_per_save: Array
    hazard: Array

    @classmethod
    def of(cls, scenario: Scenario, jobs: Jobs, alive: Array, jitter: Array) -> _Prices:
        is_late = jobs.live_s[alive] > scenario.work_s / 2
        early, late = scenario.costs, scenario.late_costs or scenario.costs
        return cls(
            np.where(is_late, late.stall_s, early.stall_s) * jitter,
            np.where(is_late, late.write_s, early.write_s) * jitter,
            np.where(is_late, late.money_per_s, early.money_per_s).astype(float),
            np.where(is_late, late.money_per_save, early.money_per_save),
            np.where(is_late, scenario.late_rate_factor, 1.0),
        )


def _segment_s(scenario: Scenario, useful_s: Array, writing_s: Array, stall_s: Array) -> Array:
    """Return the seconds of useful steps, slower beside a write, and the stall after them."""
    slowdown = scenario.costs.slowdown
    beside_s = np.minimum(writing_s, useful_s * (1 + slowdown))
    return useful_s + beside_s * slowdown / (1 + slowdown) + stall_s


def _finish_writes(
    jobs: Jobs, alive: Array, writing_s: Array, written_s: Array, passed_s: Array
) -> None:
    was_writing = writing_s[alive] > 0
    writing_s[alive] = np.maximum(0.0, writing_s[alive] - passed_s)
    done = alive[was_writing & (writing_s[alive] == 0)]
    jobs.durable_s[done] = written_s[done]


def _begin_writes(
    jobs: Jobs, saved: Array, writing_s: Array, written_s: Array, write_s: Array
) -> None:
    jobs.num_saves[saved] += 1
    writing_s[saved] = write_s
    written_s[saved] = jobs.live_s[saved]
    at_once = saved[write_s == 0]
    jobs.durable_s[at_once] = jobs.live_s[at_once]


def _restart(scenario: Scenario, jobs: Jobs, failed: Array, undone_s: Array) -> None:
    lost_s = jobs.live_s[failed] - jobs.durable_s[failed] + undone_s
    jobs.max_lost_s[failed] = np.maximum(jobs.max_lost_s[failed], lost_s)
    is_late = jobs.live_s[failed] > scenario.work_s / 2
    late = scenario.late_costs or scenario.costs
    price = np.where(is_late, late.money_per_s, scenario.costs.money_per_s).astype(float)
    jobs.num_failures[failed] += 1
    jobs.clock_s[failed] += scenario.costs.restart_s
    jobs.money[failed] += scenario.costs.restart_s * price + scenario.costs.money_per_failure
    jobs.live_s[failed] = jobs.durable_s[failed]
    jobs.up_s[failed] = 0.0
