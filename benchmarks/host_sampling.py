"""What sampling the host costs: its own thread, the hooks of the training thread, a counted read.

    python -m benchmarks.host_sampling [--pairs 150] [--workers 8]

The first table is the CPU of a sample. The second compares hooks with and without a sample taken
meanwhile by another thread, ten to twenty times as often as a run does; blocks of both kinds come
in random order, and the differences of pairs give the interval.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from fsspec.implementations.local import LocalFileSystem

from costlens.config import Config
from costlens.core.probe import Probe
from costlens.observe.host_probe import HostProbe
from costlens.run import Run

NUM_SAMPLES = 200
NUM_HOOKS = 20_000
NUM_READS = 1_000
WARM_UP_PAIRS = 5


@contextmanager
def idle_workers(num: int) -> Iterator[SimpleNamespace]:
    """Yield what looks like an iterator of torch with workers that do nothing."""
    wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    workers = [subprocess.Popen(wait, stdin=subprocess.PIPE) for _ in range(num)]
    try:
        yield SimpleNamespace(_workers=workers, _workers_status=[True] * num)
    finally:
        for worker in workers:
            worker.communicate()


def measure_samples(probe: HostProbe) -> tuple[float, float]:
    """Return the CPU of a sample in µs: median and 95th percentile."""
    spent_us = []
    for _ in range(NUM_SAMPLES):
        begin_ns = time.thread_time_ns()
        probe.sample(time.perf_counter_ns())
        spent_us.append((time.thread_time_ns() - begin_ns) / 1000)
    return statistics.median(spent_us), statistics.quantiles(spent_us, n=20)[-1]


def run_hooks(run: Run) -> tuple[float, float]:
    """Return µs of CPU and of time that a pass through the hooks takes."""
    cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
    for _ in range(NUM_HOOKS):
        with run.iteration(samples=8, tokens=64):
            pass
    cpu_ns, wall_ns = time.thread_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
    return cpu_ns / NUM_HOOKS / 1000, wall_ns / NUM_HOOKS / 1000


def run_beside(work: Callable[[], tuple[float, float]], probe: Probe) -> tuple[float, float]:
    """Return what ``work`` returns while another thread takes one sample."""
    thread = threading.Thread(target=lambda: probe.sample(time.perf_counter_ns()))
    thread.start()
    spent = work()
    thread.join()
    return spent


def run_alone(work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Return what ``work`` returns while another thread does nothing."""
    thread = threading.Thread(target=int)
    thread.start()
    spent = work()
    thread.join()
    return spent


def compare(run: Run, probe: Probe, num_pairs: int) -> dict[str, list[float]]:
    """Return the added µs a hook of each pair, in CPU and in time."""
    added: dict[str, list[float]] = {"CPU": [], "time": []}
    for pair in range(num_pairs + WARM_UP_PAIRS):
        is_first = random.random() < 0.5
        spent = {}
        for with_sample in (is_first, not is_first):
            work = lambda: run_hooks(run)  # noqa: E731
            spent[with_sample] = run_beside(work, probe) if with_sample else run_alone(work)
        if pair >= WARM_UP_PAIRS:
            for index, values in enumerate(added.values()):
                values.append(spent[True][index] - spent[False][index])
    return added


def measure_reads(run: Run, folder: str) -> tuple[float, float]:
    """Return the CPU that a counted read takes longer, in µs: median and 95th percentile."""
    path = f"{folder}/data"
    Path(path).write_bytes(bytes(1_000_000))
    plain, counted = LocalFileSystem(), run.filesystem(folder)
    added_us = []
    for _ in range(NUM_SAMPLES):
        spent_us = []
        for filesystem in (plain, counted):
            with filesystem.open(path) as file:
                begin_ns = time.thread_time_ns()
                for _ in range(NUM_READS):
                    file.read(100)
                spent_us.append((time.thread_time_ns() - begin_ns) / NUM_READS / 1000)
        added_us.append(spent_us[1] - spent_us[0])
    return statistics.median(added_us), statistics.quantiles(added_us, n=20)[-1]


def describe(name: str, differences: list[float]) -> str:
    """Return the mean of the differences with its 95 % interval."""
    mean = statistics.fmean(differences)
    half = 1.96 * statistics.stdev(differences) / len(differences) ** 0.5
    holds = "includes 0" if abs(mean) <= half else "does not include 0"
    return (
        f"{name:6s} {mean:+8.3f} µs a hook, 95 % interval {mean - half:+.3f} … {mean + half:+.3f} "
        f"({2 * half:.3f} µs wide, {holds})"
    )


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COSTLENS_DIR"] = folder
        with (
            idle_workers(options.workers) as workers,  # end after the run, as unwanted ones do
            Run(Config(summary=False), exporters=[]) as run,
        ):
            probe = HostProbe(run.parts.state, run.parts.host)
            probe.start()
            print("CPU of a sample, µs              median    95 %")
            print("the host alone               {:10.0f} {:7.0f}".format(*measure_samples(probe)))
            run.parts.host.workers.add(workers)
            run.filesystem(folder).exists(folder)
            name = f"with {options.workers} workers and reads"
            print("{:28s} {:10.0f} {:7.0f}".format(name, *measure_samples(probe)))
            name = "added to a read"
            print("{:28s} {:10.2f} {:7.2f}".format(name, *measure_reads(run, folder)))
            print("\nadded to the hooks of the training thread")
            for kind, differences in compare(run, probe, options.pairs).items():
                print(describe(kind, differences))


if __name__ == "__main__":
    main()
