"""Proves the device level on a machine with a CUDA GPU, in about a minute, and prints verdicts.

`python benchmarks/gpu_check.py` prints one JSON object: for every check whether it holds and the
numbers behind it. The exit status is 0 if all hold or there is no GPU to check on, which it says.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import nn

from costlens.config import Config
from costlens.core.records import RankRecord
from costlens.observe.precision_watch import tell_scale
from costlens.run import Run

STEP_NAMES = ("data_wait", "transfer", "forward", "backward", "optimizer", "compute", "other")


class Training:
    """A small training on the GPU whose device time can be set.

    Args:
        work_ms: About how long the device computes a step.
    """

    def __init__(self, work_ms: float = 0.0) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 8)
        )
        self.model.to("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.ballast = torch.randn(2048, 2048, device="cuda")
        self.num_products = _count_products(self.ballast, work_ms)

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the loss of one step, still on the device."""
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        for _ in range(self.num_products):
            self.ballast @ self.ballast
        return loss.detach()


def _count_products(ballast: torch.Tensor, work_ms: float) -> int:
    if work_ms == 0:
        return 0
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    ballast @ ballast
    begin.record()
    for _ in range(20):
        ballast @ ballast
    end.record()
    end.synchronize()
    return max(1, round(work_ms / (begin.elapsed_time(end) / 20)))


def _open(**settings: Any) -> Run:
    return Run(Config(summary=False, gpu_hour_price=1, **settings), exporters=[]).open()


def _finish(run: Run) -> RankRecord:
    torch.cuda.synchronize()
    record = run.finish()
    assert record is not None
    assert sum(record.time_ns.values()) == record.total_ns
    return record


def _shares(record: RankRecord) -> dict[str, float]:
    total = sum(record.time_ns[name] for name in STEP_NAMES)
    return {name: round(record.time_ns[name] / total, 4) for name in STEP_NAMES}


def _batches(count: int, fetch_s: float = 0.0) -> Iterator[torch.Tensor]:
    for batch in repeat(torch.randn(32, 64).pin_memory(), count):
        time.sleep(fetch_s)
        yield batch


def check_no_synchronisation() -> dict[str, object]:
    """Watching, counting and logging device tensors never synchronises; all values arrive."""
    run, training = _open(), Training()
    run.watch(training.model, training.optimizer)
    wanted = 0.0
    mask = torch.ones(7, dtype=torch.bool, device="cuda")
    losses = []
    training.step(torch.randn(32, 64, device="cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in run.batches(_batches(200), device="cuda"):
            with run.iteration(tokens=mask.sum()) as iteration:
                losses.append(training.step(batch))
                iteration.log(loss=losses[-1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    record = _finish(run)
    wanted = torch.stack(losses).double().mean().item()
    quality = record.quality["loss"]
    return {
        "ok": record.progress.tokens == 1400
        and quality.num_values == 200
        and abs((quality.mean or 0) - wanted) < 1e-9
        and record.telemetry.iterations_unresolved == 0
        and not record.telemetry.faults,
        "tokens": record.progress.tokens,
        "losses": quality.num_values,
        "unresolved": record.telemetry.iterations_unresolved,
        "faults": record.telemetry.faults,
    }


def check_goodput(blocks_in: str) -> dict[str, object]:
    """The device is always busy; the host blocks in one place: compute is at least 99 %."""
    run, training = _open(), Training(work_ms=10)
    run.watch(training.model, training.optimizer)
    pageable = torch.randn(32, 64)
    loss = torch.zeros(())
    for _ in run.batches(range(150)):
        with run.iteration():
            # A pageable copy makes the host wait for the device; a pinned one does not.
            with run.phase("transfer"):
                batch = pageable.to("cuda") if blocks_in == "transfer" else pageable.pin_memory()
                batch = batch.to("cuda", non_blocking=True)
            loss = training.step(batch)
            if blocks_in == "item":
                loss.item()
    record = _finish(run)
    shares = _shares(record)
    return {"ok": shares["compute"] >= 0.99 and shares["data_wait"] <= 0.005, "shares": shares}


def check_starvation() -> dict[str, object]:
    """The device works 2 ms and waits for a fetch of 20 ms: about nine tenths are data wait."""
    run, training = _open(), Training(work_ms=2)
    run.watch(training.model, training.optimizer)
    for batch in run.batches(_batches(60, fetch_s=0.02), device="cuda"):
        with run.iteration():
            training.step(batch)
    shares = _shares(_finish(run))
    return {"ok": 0.75 <= shares["data_wait"] <= 0.97, "shares": shares}


def check_graph_replays() -> dict[str, object]:
    """A loss that a CUDA graph overwrites at every replay is kept as it was when it was logged."""
    run = _open()
    counter = torch.zeros((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter += 1
    counter.zero_()
    for _ in range(300):
        with run.iteration() as iteration:
            graph.replay()
            iteration.log(loss=counter)
    quality = _finish(run).quality["loss"]
    return {"ok": quality.num_values == 300 and quality.mean == 150.5, "mean": quality.mean}


def check_numerics() -> dict[str, object]:
    """Fifty steps with dropout are bitwise those of the unwatched training."""

    def train(run: Run | None) -> torch.Tensor:
        training = Training()
        if run is not None:
            run.watch(training.model, training.optimizer)
        torch.manual_seed(1)
        batches = [torch.randn(32, 64, device="cuda") for _ in range(50)]
        source = batches if run is None else run.batches(batches)
        return torch.stack([training.step(batch) for batch in source])

    plain = train(None)
    with _open() as run:
        watched = train(run)
    return {"ok": torch.equal(plain, watched)}


def check_overhead() -> dict[str, object]:
    """What watching adds to the host's time of a step, microseconds; paired within one process."""
    run, plain, watched = _open(), Training(), Training()
    run.watch(watched.model, watched.optimizer)
    batches = [torch.randn(32, 64, device="cuda")] * 20
    source = run.batches(batches)
    added_us = []
    for _ in range(60):
        torch.cuda.synchronize()
        start_ns = time.thread_time_ns()
        for batch in batches:
            plain.step(batch)
        middle_ns = time.thread_time_ns()
        torch.cuda.synchronize()
        resume_ns = time.thread_time_ns()
        for batch in source:
            with run.iteration(samples=32):
                watched.step(batch)
        end_ns = time.thread_time_ns()
        added_us.append(((end_ns - resume_ns) - (middle_ns - start_ns)) / len(batches) / 1000)
    _finish(run)
    added = statistics.median(added_us)
    return {"ok": added < 200, "added_us_per_step": round(added, 1)}


def check_driver() -> dict[str, object]:
    """The driver tells of exactly the device that torch trains on, and what it does adds up."""
    run, training = _open(), Training(work_ms=20)
    run.watch(training.model, training.optimizer)
    for batch in run.batches(_batches(400), device="cuda"):
        with run.iteration():
            training.step(batch)
    record = _finish(run)
    gpu, own = record.gpus[0], torch.cuda.get_device_properties(torch.cuda.current_device())
    driver = record.gpu_driver
    mean_watts = (gpu.energy_joules or 0.0) / max(gpu.energy_s, 1e-9)
    return {
        "ok": len(record.gpus) == 1
        and gpu.uuid.endswith(str(getattr(own, "uuid", "")))
        and driver is not None
        and driver.order == "torch"
        and (gpu.power_limit_watts is None or 0 < mean_watts < 1.2 * gpu.power_limit_watts)
        and gpu.busy_s > 0.5 * gpu.utilization_s > 0
        and not record.telemetry.faults,
        "driver": None if driver is None else driver.model_dump(exclude_none=True),
        "mean_watts": round(mean_watts, 1),
        "gpu": gpu.model_dump(exclude_none=True, exclude={"uuid", "serial"}),
    }


def _train_in(precision: str) -> tuple[str, RankRecord]:
    """Train five steps, the third of which overflows, and return the type and the record."""
    run, training = _open(precision=precision), Training()
    run.watch(training.model, training.optimizer)
    batch, kind = torch.randn(32, 64, device="cuda"), ""
    for number in range(5):
        with run.iteration():
            with run.autocast():
                output = training.model(batch)
            kind = str(output.dtype).removeprefix("torch.")
            loss = output.float().square().mean() * (float("inf") if number == 2 else 1e-3)
            training.optimizer.zero_grad()
            run.scaler.scale(loss).backward()
            if run.scaler.is_enabled() or number != 2:
                run.scaler.step(training.optimizer)
            run.scaler.update()
    torch.cuda.set_sync_debug_mode("error")
    try:
        tell_scale(run.parts.values, run.scaler, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return kind, _finish(run)


def check_precision() -> dict[str, object]:
    """Auto takes what the device computes in; fp16 skips the overflow; the scale costs no sync."""
    wanted = "bfloat16" if torch.cuda.get_device_capability() >= (8, 0) else "float16"
    auto, _ = _train_in("auto")
    fp16, record = _train_in("fp16")
    part = record.precision
    return {
        "ok": (auto, fp16) == (wanted, "float16")
        and part is not None
        and (part.skipped_steps, part.loss_scale) == (1, 32_768.0)
        and not record.telemetry.faults,
        "auto": auto,
        "precision": None if part is None else part.model_dump(),
    }


CHECKS: dict[str, Callable[[], dict[str, object]]] = {
    "no_synchronisation": check_no_synchronisation,
    "goodput_host_blocks_in_transfer": lambda: check_goodput("transfer"),
    "goodput_host_blocks_in_item": lambda: check_goodput("item"),
    "starvation": check_starvation,
    "graph_replays": check_graph_replays,
    "numerics": check_numerics,
    "overhead": check_overhead,
    "driver": check_driver,
    "precision": check_precision,
}


def main() -> int:
    """Print the verdicts; return 1 if a check does not hold."""
    if not torch.cuda.is_available():
        print(json.dumps({"checked": False, "reason": "no CUDA device: nothing was checked"}))
        return 0
    warnings.simplefilter("ignore")
    verdicts = {}
    for name, check in CHECKS.items():
        try:
            verdicts[name] = check()
        except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
            verdicts[name] = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    is_good = all(verdict["ok"] for verdict in verdicts.values())
    head = {"checked": True, "ok": is_good, "device": torch.cuda.get_device_name()}
    print(json.dumps({**head, "torch": torch.__version__, "checks": verdicts}, indent=1))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
