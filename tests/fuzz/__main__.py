"""Runs random trainings with costlens and without: ``python -m tests.fuzz --num 1000 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.check import find_problems
from tests.fuzz.draw import draw_plan, minimise
from tests.fuzz.plan import Plan

_MAX_SHOWN = 6


def main() -> int:
    """Return 1 if a plan failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--num", type=int, default=100, help="number of plans")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first plan")
    parser.add_argument("--plain", action="store_true", help="do not make failing plans simpler")
    chosen = parser.parse_args()
    num_failed, start_s = 0, time.monotonic()
    for seed in range(chosen.seed, chosen.seed + chosen.num):
        plan = draw_plan(seed)
        problems = find_problems(plan)
        if problems:
            num_failed += 1
            report(seed, plan, problems, is_plain=chosen.plain)
        if seed % 50 == 0:
            print(f"# seed {seed}, {time.monotonic() - start_s:.0f} s", flush=True)
    print(f"{num_failed} of {chosen.num} plans failed in {time.monotonic() - start_s:.0f} s")
    return int(num_failed > 0)


def report(seed: int, plan: Plan, problems: list[str], *, is_plain: bool) -> None:
    """Print a failing plan, made as simple as it goes while it fails in the same way."""
    if not is_plain:
        kind = problems[0][:40]
        plan = minimise(plan, lambda each: any(p[:40] == kind for p in find_problems(each)))
        problems = find_problems(plan)
    shown = problems[:_MAX_SHOWN]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    print(f"seed {seed}: {plan.describe()}", *shown, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
