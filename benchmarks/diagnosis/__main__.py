"""Judges the diagnosis on simulated runs: ``python -m benchmarks.diagnosis``.

Prints what each planted cause was taken for, and returns 1 where a bar is missed: the dominant
cause first in 95 % of the runs, a finding in 1 % of the sound ones, 15 % of error in the middle of
the money. The share of findings within 15 % is in the table, and apart from them, how many of
those that state the least do not exceed what is true.
``--write-readme`` puts the table into README.md as well.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context

from benchmarks.diagnosis.cases import Plan, plan_cases
from benchmarks.diagnosis.judging import MAX_MONEY_ERROR, Result, judge_plan
from benchmarks.diagnosis.table import MAX_FALSE, MIN_TOP_1, make_table, score
from benchmarks.readme import replace_block

_BLOCK = "diagnosis"


def judge_all(plans: Sequence[Plan], num_processes: int = 1) -> Iterator[Result]:
    """Yield what is said of every planned case, in their order."""
    if num_processes == 1:
        yield from map(judge_plan, plans)
        return
    with get_context("spawn").Pool(num_processes) as pool:
        yield from pool.imap(judge_plan, plans)


def describe(result: Result) -> str:
    """Return a line about a run that was judged wrongly."""
    found = ("at least " if result.is_least else "") + ", ".join(
        name if share is None else f"{name} {share:.0%}"
        for name, share in zip(result.found, result.shares, strict=True)
    )
    truth = ", ".join(
        name if saving is None else f"{name} {saving[0]:.0%}/{saving[1]:.0%}"
        for name, saving in zip(result.truth, result.savings, strict=True)
    )
    return (
        f"seed {result.seed} ({result.device}, {result.num_ranks} ranks): "
        f"planted {truth or 'nothing'}; found {found or 'nothing'}"
        + (f"; not judged: {result.unjudged}" if result.unjudged else "")
    )


def main() -> int:
    """Print the table; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="runs with a cause")
    parser.add_argument("--healthy", type=int, default=200, help="runs without")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write-readme", action="store_true", help="replace the README's table")
    options = parser.parse_args()
    begin_s = time.perf_counter()
    plans = plan_cases(options.runs, options.healthy, options.first_seed)
    results = []
    for result in judge_all(plans, options.processes):
        results.append(result)
        if not result.is_right or result.is_close is False:
            print(describe(result), file=sys.stderr, flush=True)
    table = make_table(results)
    print("\n".join(table))
    print(f"{time.perf_counter() - begin_s:.0f} s", file=sys.stderr)
    if options.write_readme:
        replace_block(_BLOCK, table)
    total = score(results)
    is_good = total.top_1 >= MIN_TOP_1 and total.false_share <= MAX_FALSE
    return 0 if is_good and total.median_error <= MAX_MONEY_ERROR else 1


if __name__ == "__main__":
    raise SystemExit(main())
