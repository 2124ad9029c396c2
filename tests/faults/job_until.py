"""A plain loop that goes on until a file appears: `job_until.py FILE`."""

from __future__ import annotations

import atexit
import sys
import time
from pathlib import Path

import costlens

atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
run = costlens.start("until", trace_period_s=0.2)
while not Path(sys.argv[1]).exists():
    with run.iteration(samples=4):
        time.sleep(0.01)
run.finish()
print("ENDING", time.monotonic(), flush=True)
