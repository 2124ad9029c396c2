"""A plain loop: `job_loop.py NUM_STEPS`; it leaves by `sys.exit(7)` and never finishes its run."""

from __future__ import annotations

import atexit
import sys
import time

import costlens

# Registered first and so run last: what costlens does at exit is over by then.
atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
run = costlens.start("loop")
for _ in range(int(sys.argv[1])):
    with run.iteration(samples=4):
        time.sleep(0.01)
print("ENDING", time.monotonic(), flush=True)
sys.exit(7)
