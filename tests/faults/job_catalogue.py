"""A plain loop in which one entry of the metric catalogue raises on each read."""

from __future__ import annotations

import atexit
import time

import costlens
from costlens.export.catalog import METRICS

atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))


def fail(snapshot):
    """Raise, as a device that has gone does."""
    raise OSError("planted: the device is gone")


(gauge,) = (metric for metric in METRICS if metric.name == "costlens.run.info")
object.__setattr__(gauge, "read", fail)
run = costlens.start("catalogue", node_hour_price=3)
for _ in range(30):
    with run.iteration(samples=4, tokens=100):
        time.sleep(0.01)
run.finish()
print("ENDING", time.monotonic(), flush=True)
