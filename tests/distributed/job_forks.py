"""A run that goes on while its process forks: `job_forks.py idle|calls|trains NUM_CHILDREN`.

The children do nothing, call everything a run has, or train a run of their own. The job prints how
long the slowest child took, and fails if one does not end.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import costlens

PATIENCE_S = 20.0  # a child that takes longer hangs


def do_nothing(run: costlens.Run, number: int) -> None:
    """Leave as multiprocessing does; each tenth with every clean-up that the interpreter does."""
    if number % 10 == 0:
        sys.exit(0)  # the clean-up of all modules takes a tenth of a second
    os._exit(0)


def call_everything(run: costlens.Run, number: int) -> None:
    """Use the parent's run, which is inert here."""
    with run.iteration(samples=1, tokens=1) as iteration, run.phase("validation"):
        iteration.log(loss=1.0)
    run.log(loss=1.0)
    assert list(run.batches([1, 2])) == [1, 2]
    assert (run.id, run.attempt, run.snapshot is None) is not None
    with run:
        pass
    assert run.finish() is None
    assert not run.is_active
    os._exit(0)


def train(run: costlens.Run, number: int) -> None:
    """Record three steps of a run of the child's own."""
    own = costlens.start("child")
    assert own is not run
    for _ in range(3):
        with own.iteration(samples=1):
            time.sleep(0.01)
    sys.exit(0)


CHILDREN = {"idle": do_nothing, "calls": call_everything, "trains": train}


def wait(pid: int) -> float:
    """Return how many seconds a child took to end well, from now on."""
    start_s = time.monotonic()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"a child ended with status {status}"
            return time.monotonic() - start_s
        if time.monotonic() - start_s > PATIENCE_S:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise TimeoutError("a child hangs")
        time.sleep(0.001)


def main(kind: str, num_children: int) -> None:
    """Train one iteration before each fork and three after the last."""
    run = costlens.start("forks")
    slowest_s = 0.0
    for number in range(num_children):
        with run.iteration(samples=1):
            time.sleep(0.001)
        pid = os.fork()
        if pid == 0:
            CHILDREN[kind](run, number)
        slowest_s = max(slowest_s, wait(pid))
    for _ in range(3):
        with run.iteration(samples=1):
            pass
    run.finish()
    print("slowest", slowest_s)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
