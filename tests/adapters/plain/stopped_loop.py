"""A plain loop in a process of its own, to be stopped and continued: 20 steps of 50 ms."""

from __future__ import annotations

import json
import sys
import time

import costlens


def main() -> None:
    """Train, say when a step is under way, and print the record."""
    run = costlens.start("stopped", summary=False)
    for step in range(20):
        if step == 10:
            sys.stdout.write("middle\n")
            sys.stdout.flush()
        with run.iteration(samples=1):
            # Sleeps would end early by what the process was stopped; work would go on after it.
            until_ns = time.thread_time_ns() + 50_000_000
            while time.thread_time_ns() < until_ns:
                pass
    record = run.finish()
    json.dump(json.loads(record.model_dump_json()), sys.stdout)


if __name__ == "__main__":
    main()
