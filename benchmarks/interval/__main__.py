"""``python -m benchmarks.interval``: extra total cost over the best fixed interval."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from benchmarks.interval.policies import BASELINES, ORACLE_FACTORS, adaptive, young_s
from benchmarks.interval.scenario import COLD, SCENARIOS, Scenario
from benchmarks.interval.simulate import Jobs, Policy, simulate
from benchmarks.readme import replace_block

NUM_SEEDS = 400


@dataclass(frozen=True)
class Oracle:
    """The best fixed interval, chosen on the very seeds it is judged by.

    Args:
        interval_s: Its useful seconds.
        money: What a job costs with it, on average.
        excess: That over a job that never fails and never saves, as a share.
    """

    interval_s: float
    money: float
    excess: float


def find_oracle(scenario: Scenario, num_seeds: int) -> Oracle:
    """Return the cheapest of 25 fixed intervals around Young's."""
    intervals_s = young_s(scenario) * ORACLE_FACTORS
    each_s = np.repeat(intervals_s, num_seeds)
    jobs = simulate(
        scenario, lambda _jobs, alive: each_s[alive], num_seeds, copies=len(intervals_s)
    )
    money = jobs.money.reshape(len(intervals_s), num_seeds).mean(axis=1)
    best = int(money.argmin())
    late = scenario.late_costs or scenario.costs
    free = scenario.work_s / 2 * sum(c.money_per_s or 0.0 for c in (scenario.costs, late))
    return Oracle(float(intervals_s[best]), float(money[best]), float(money[best] / free - 1))


def regret(scenario: Scenario, policy: Policy, oracle: Oracle, num_seeds: int) -> float:
    """Return the extra total cost of a policy over the oracle, as a share."""
    return float(simulate(scenario, policy, num_seeds).money.mean() / oracle.money - 1)


def regret_of_costlens(scenario: Scenario, num_seeds: int) -> float:
    """Return what the policy of costlens costs over the oracle, as a share."""
    return regret(scenario, adaptive(scenario), find_oracle(scenario, num_seeds), num_seeds)


def run_costlens(scenario: Scenario, num_seeds: int) -> Jobs:
    """Return the jobs as the policy of costlens leads them."""
    return simulate(scenario, adaptive(scenario), num_seeds)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".replace("-0.00", "0.00")


def make_table(num_seeds: int) -> list[str]:
    """Return the lines of the table."""
    lines = [
        f"Extra total cost over the best fixed interval, in per cent; {num_seeds} seeds.",
        "",
        " | ".join(["| scenario (best interval, its cost over a job without failures)", *BASELINES])
        + " |",
        "| --- |" + " ---: |" * len(BASELINES),
    ]
    columns: dict[str, list[float]] = {name: [] for name in BASELINES}
    for scenario in SCENARIOS:
        oracle = find_oracle(scenario, num_seeds)
        for name, make in BASELINES.items():
            columns[name].append(regret(scenario, make(scenario), oracle, num_seeds))
        row = " | ".join(_percent(column[-1]) for column in columns.values())
        lines.append(
            f"| {scenario.key} {scenario.title} ({oracle.interval_s:.0f} s, "
            f"{100 * oracle.excess:.1f} %) | {row} |"
        )
        print(lines[-1], flush=True)
    for title, pick in (("median", np.median), ("worst", np.max)):
        row = " | ".join(f"**{_percent(float(pick(column)))}**" for column in columns.values())
        lines.append(f"| {title} | {row} |")
    cold = [
        f"{scenario.key} {_percent(regret_of_costlens(scenario, num_seeds))}" for scenario in COLD
    ]
    lines += ["", f"From a cold start, scenario B: {'; '.join(cold)}."]
    return lines


def main() -> None:
    """Print the table, or put it into the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    parser.add_argument("--write-readme", action="store_true")
    options = parser.parse_args()
    lines = make_table(options.seeds)
    print("\n".join(lines))
    if options.write_readme:
        replace_block("interval", lines)


if __name__ == "__main__":
    main()
