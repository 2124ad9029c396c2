"""A plain loop under a root logger at DEBUG: `job_log.py SECONDS`; it logs one line of its own."""

from __future__ import annotations

import atexit
import logging
import sys
import time

import costlens

atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
run = costlens.start("log")
logging.getLogger("user").warning("the line of the user")
until_s = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until_s:
    with run.iteration(samples=1):
        time.sleep(0.01)
print("ENDING", time.monotonic(), flush=True)
