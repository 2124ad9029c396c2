"""A loop of some five iterations a second, until standard input ends: `tuned_loop.py`."""

from __future__ import annotations

import select
import sys

import costlens

run = costlens.start("tuned", trace_period_s=0.5, summary=False)
while not select.select([sys.stdin], [], [], 0)[0]:
    with run.iteration(samples=4):
        select.select([sys.stdin], [], [], 0.2)
run.finish()
