"""A training with one planted fault, scraped by Prometheus: `job_faults.py KIND FOLDER`.

Prints the port of its metrics, trains until standard input ends, and goes on answering scrapes for
a while after that, as a job that is watched well does. KINDS says what there is.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

import costlens
from costlens.core import stall

WORK_S = 0.02
SLOW_S = 0.08
"""What a planted delay takes: four times the work of an iteration."""
STARTED = 50
"""Iterations before a fault begins."""
SCRAPED_S = 5.0

stopping = threading.Event()


def expose() -> None:
    """Answer scrapes with the metrics of this process, and say where."""
    metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))
    server, _thread = start_http_server(0, addr="127.0.0.1")
    print("PORT", server.server_port, flush=True)


def until_told() -> Iterator[int]:
    """Yield the numbers of iterations until standard input ends."""

    def watch() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=watch, daemon=True).start()
    number = 0
    while not stopping.is_set():
        yield number
        number += 1


def work(run: costlens.Run, number: int) -> None:
    """Do what any iteration does."""
    time.sleep(WORK_S)


def stand_still(run: costlens.Run, number: int) -> None:
    """Hang in an iteration for ever."""
    if number == STARTED:
        threading.Event().wait()
    time.sleep(WORK_S)


def lose_the_loss(run: costlens.Run, number: int) -> None:
    """Log a loss that turns NaN."""
    time.sleep(WORK_S)
    run.log(loss=float("nan") if number >= STARTED else 1.0)


def train(work_once: Callable[[costlens.Run, int], None], fetch_s: float = 0.0) -> None:
    """Train a loop that does one thing each iteration."""

    def fetch() -> Iterator[int]:
        for number in until_told():
            time.sleep(fetch_s)
            yield number

    with costlens.start(sys.argv[1]) as run:
        for number in run.batches(fetch()):
            with run.iteration(samples=4, tokens=100):
                work_once(run, number)


def train_with_checkpoints(folder: Path) -> None:
    """Train with checkpoints whose store fails after the first ones: a file is in its place."""
    import torch

    store = folder / "store"
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with costlens.start(sys.argv[1], checkpoint_url=str(store), max_loss="3s") as run:
        run.watch(model, optimizer)
        checkpoints = run.checkpoints(model=model, optimizer=optimizer)
        checkpoints.resume()
        for number in run.batches(until_told()):
            with run.iteration(samples=4):
                model(torch.ones(4, 8)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(WORK_S)
            checkpoints.step()
            if number == 5 * STARTED:
                shutil.rmtree(store)
                store.write_text("no folder any more")


def train_in_parallel(folder: Path) -> None:
    """Train data-parallel with an all-reduce in every step; rank 1 is slow in its forward pass."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    torch.set_num_threads(1)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            time.sleep(SLOW_S if dist.get_rank() == 1 else WORK_S)
            return self.layer(features)

    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = costlens.start(sys.argv[1])
    run.watch(model, optimizer)
    for _number in run.batches(until_told()):
        with run.iteration(samples=4):
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    # The ranks are told to end at different steps, and one would wait for the other for ever.
    os._exit(0)


KINDS: dict[str, Callable[[Path], None]] = {
    "healthy": lambda _: train(work),
    "slow_dataset": lambda _: train(work, fetch_s=SLOW_S),
    "stalled": lambda _: train(stand_still),
    "nan_loss": lambda _: train(lose_the_loss),
    "killed": lambda _: train(work),
    "dead_endpoint": lambda _: train(work),
    "over_budget": lambda _: train(work),
    "ended": lambda _: train(work),
    "failing_store": train_with_checkpoints,
    "straggler": train_in_parallel,
}


def main(kind: str, folder: Path) -> None:
    """Train, and stay to be scraped once it is over."""
    # A stall is judged after a minute otherwise.
    stall.LIMITS = stall.StallLimits(floor_s=3.0)
    expose()
    KINDS[kind](folder)
    time.sleep(SCRAPED_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
