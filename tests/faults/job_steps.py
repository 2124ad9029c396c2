"""A plain loop that times its steps: `job_steps.py CONTROL_URL NUM_BLOCKS NUM_STEPS`.

In every second block the receiver, told over its control port, answers after 3 s. It prints the
milliseconds of each step, by kind of block.
"""

from __future__ import annotations

import atexit
import json
import sys
import time
import urllib.request

import costlens

atexit.register(lambda: print("CLOSED", time.monotonic(), flush=True))


def be_slow(control: str, delay_s: float) -> None:
    """Let the receiver wait before each answer from now on."""
    request = urllib.request.Request(f"{control}/fault", json.dumps({"delay_s": delay_s}).encode())
    urllib.request.urlopen(request, timeout=10).close()


def main(control: str, num_blocks: int, num_steps: int) -> None:
    """Time the blocks in turn."""
    steps_ms: dict[str, list[float]] = {"undisturbed": [], "slow": []}
    run = costlens.start("steps")
    for block in range(num_blocks):
        kind = ("undisturbed", "slow")[block % 2]
        be_slow(control, 3.0 if kind == "slow" else 0.0)
        for _ in range(num_steps):
            start_s = time.perf_counter()
            with run.iteration(samples=4):
                time.sleep(0.01)
            steps_ms[kind].append((time.perf_counter() - start_s) * 1e3)
    be_slow(control, 0.0)
    print(json.dumps(steps_ms))
    print("ENDING", time.monotonic(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
