"""Run folders as trainings would have left them, for what reads whole folders.

Each window of 10 s holds the phases of ``PHASES_S``; every 30th saves, every 60th evaluates.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.clock import NS_PER_S
from costlens.core.device_records import GpuDriverPart, GpuPart
from costlens.core.host_records import HostPart, LoaderPart, NodePart, ProcessPart
from costlens.core.precision_records import PrecisionPart
from costlens.core.price_records import PricePart
from costlens.core.records import RankRecord, RunPart, StartupPart
from costlens.core.training_records import IterationTimePart, QualityPart, RatesPart, WindowPart
from costlens.core.use_records import UsePart
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import START, make_iteration_time, make_price, make_record

__all__ = ["PHASES_S", "WINDOW_S", "make_window", "usual_price", "write_run"]

WINDOW_S = 10.0
PHASES_S = {
    "data_wait": 1.2,
    "transfer": 0.3,
    "forward": 2.6,
    "backward": 4.0,
    "optimizer": 0.9,
    "logging": 0.4,
    "callbacks": 0.2,
    "other": 0.4,
}
_WINDOWS_A_SEGMENT = 60
_STEPS_A_WINDOW = 100
_TOKENS_A_STEP = 4096


def make_window(index: int, start_s: float, *, has_gpus: bool = True) -> WindowPart:
    """Return the window of that index in an attempt that began at a Unix time."""
    phases_s = dict(PHASES_S)
    if index == 0:
        phases_s = {"startup": 7.0, "forward": 1.0, "backward": 1.5, "optimizer": 0.5}
    elif index % 60 == 59:
        phases_s["validation"] = phases_s.pop("backward")
    elif index % 30 == 29:
        phases_s["checkpoint"] = phases_s.pop("forward")
    wave = math.sin(index / 40)
    use = {"cpu_ratio": round(0.3 + 0.1 * wave, 4), "memory_ratio": 0.42, "loader_cpus": 2.1}
    if has_gpus:
        use |= {
            "gpu_utilization": round(0.84 + 0.1 * wave, 4),
            "gpu_memory_ratio": 0.77,
            "gpu_power_watts": round(520 + 90 * wave, 2),
        }
    loss = 1.6 + 2.8 * math.exp(-index / 900) + 0.05 * math.sin(index * 1.7)
    return WindowPart(
        index=index,
        start_time=start_s + WINDOW_S * index,
        end_time=start_s + WINDOW_S * (index + 1),
        phase_ns={name: round(s * NS_PER_S) for name, s in phases_s.items()},
        counts={
            "iterations": _STEPS_A_WINDOW,
            "optimizer_steps": _STEPS_A_WINDOW,
            "tokens": _STEPS_A_WINDOW * _TOKENS_A_STEP,
        },
        num_iterations=_STEPS_A_WINDOW,
        iteration_mean_s=0.092 + 0.006 * wave,
        iteration_max_s=0.14 + (0.9 if index % 97 == 5 else 0.0),
        quality={"loss": loss} | ({"val_loss": loss + 0.1} if index % 60 == 59 else {}),
        use=UsePart(**use),
    )


def write_run(
    place: Path,
    run_id: str = "gpt-small-1",
    *,
    num_windows: int = 600,
    num_ranks: int = 1,
    num_attempts: int = 1,
    price: PricePart | None = None,
    has_gpus: bool = True,
    outcome: str = "completed",
    end_time: float | None = None,
    names: dict[str, str] | None = None,
    change: Callable[[RankRecord], RankRecord] = lambda record: record,
    **parts: Any,
) -> RunFolder:
    """Write a run and return its folder.

    Args:
        place: Where run folders are.
        run_id: The run.
        num_windows: Windows of each rank in each attempt.
        num_ranks: Ranks.
        num_attempts: Attempts; all but the last have failed, 300 s apart.
        price: The price of a GPU-hour or a node-hour; None is unknown.
        has_gpus: Whether each rank drives a GPU.
        outcome: How the last attempt ended.
        end_time: Unix time at which it ended; by default that follows from START.
        names: Fields of the run to put in place of the usual ones.
        change: Makes of each record the one that is written.
        **parts: Further fields of every record.
    """
    folder = RunFolder(Store(place), run_id)
    length_s = num_windows * WINDOW_S
    span_s = num_attempts * length_s + (num_attempts - 1) * 300
    first_s = START if end_time is None else end_time - span_s
    for attempt in range(1, num_attempts + 1):
        start_s = first_s + (attempt - 1) * (length_s + 300)
        folder.claim_attempt(f"key-{attempt}", {"wall_ns": int(start_s * NS_PER_S)})
        is_last = attempt == num_attempts
        for rank in range(num_ranks):
            windows = [make_window(n, start_s, has_gpus=has_gpus) for n in range(num_windows)]
            ended = outcome if is_last else "failed"
            num_closed = num_windows - (
                num_windows % _WINDOWS_A_SEGMENT if ended == "running" else 0
            )
            for n, lines in enumerate(_segments(windows[:num_closed])):
                folder.append_segment(attempt, rank, n, lines)
            record = _make_record(
                attempt,
                rank,
                windows,
                outcome=ended,
                start_s=start_s,
                num_ranks=num_ranks,
                price=price,
            )
            record = _equip(record, has_gpus=has_gpus, names={"id": run_id, **(names or {})})
            record = change(record.model_copy(update=parts))
            folder.write_record(attempt, rank, record.model_dump_json(exclude_none=True).encode())
    return folder


def _segments(windows: list[WindowPart]) -> Iterator[list[bytes]]:
    for start in range(0, len(windows), _WINDOWS_A_SEGMENT):
        part = windows[start : start + _WINDOWS_A_SEGMENT]
        yield [window.model_dump_json(exclude_defaults=True).encode() for window in part]


@functools.cache
def _durations(slow: float) -> IterationTimePart:
    durations_s = [slow * (0.085 + 0.03 * ((n * 7919) % 101 / 101) ** 3) for n in range(2000)]
    part = make_iteration_time(*durations_s, 0.4, 0.9)
    return part.model_copy(update={"p90_s": 0.108 * slow, "p99_s": 0.116 * slow})


def _make_record(
    attempt: int,
    rank: int,
    windows: list[WindowPart],
    *,
    outcome: str,
    start_s: float,
    num_ranks: int,
    price: PricePart | None,
) -> RankRecord:
    spent: Counter[str] = Counter()
    for window in windows:
        spent.update(window.phase_ns)
    num_steps = len(windows) * _STEPS_A_WINDOW
    start_step = (attempt - 1) * num_steps
    last = windows[-1].quality["loss"] if windows else None
    return make_record(
        attempt,
        rank,
        time_s={name: ns / NS_PER_S for name, ns in spent.items()},
        outcome=outcome,
        start_time=start_s,
        world_size=num_ranks,
        progress={
            "iterations": num_steps,
            "micro_batches": num_steps,
            "optimizer_steps": num_steps,
            "samples": num_steps * 8,
            "tokens": num_steps * _TOKENS_A_STEP,
        },
        price=price,
        price_unknown=None if price else "no price: set COSTLENS_GPU_HOUR_PRICE",
        iteration_time=_durations(1.06 if rank % 16 == 5 else 1.0),
        quality={
            "loss": QualityPart(
                last=last, best=1.58, best_after_s=0.8 * 10 * len(windows), mean=2.0
            ),
            "val_loss": QualityPart(last=1.75, best=1.71, best_after_s=0.9 * 10 * len(windows)),
        },
        rates=RatesPart(
            iterations_per_s=11.2, steps_per_s=11.2, samples_per_s=90.0, tokens_per_s=45_900.0
        ),
        startup=StartupPart(process_s=3.1, setup_s=2.0, first_iteration_s=1.9, first_step_s=7.0),
        windows=windows[-60:],
        attempt_start_step=start_step,
        attempt_end_step=start_step + num_steps,
        attempt_saved_step=start_step + num_steps * 9 // 10,
        attempt_error_type="RuntimeError" if outcome == "failed" else None,
        open_phase="backward" if outcome == "running" else None,
    )


def _equip(record: RankRecord, *, has_gpus: bool, names: dict[str, str]) -> RankRecord:
    run = RunPart(
        **{"name": "gpt-small", "framework": "lightning 2.6.6", "costlens_version": "0.1.0"} | names
    )
    seconds = record.total_ns / NS_PER_S
    node = NodePart(
        id=f"node-{record.rank.rank // 8}",
        cpu_ratio=0.31,
        memory_bytes=2**39,
        memory_available_bytes=2**38,
    )
    host = HostPart(
        sampled_s=seconds,
        process=ProcessPart(cpus_busy=1.1, memory_bytes=2**33, cpu_user_s=seconds),
        loader=LoaderPart(num_alive=4, cpu_s=2 * seconds, cpus_busy=2.1),
        node=node if record.rank.rank % 8 == 0 else None,
    )
    telemetry = record.telemetry.model_copy(update={"num_windows": round(seconds / WINDOW_S)})
    update: dict[str, Any] = {"run": run, "host": host, "telemetry": telemetry}
    if has_gpus:
        rank = record.rank.model_copy(
            update={"device": "cuda", "num_gpus": 1, "local_rank": record.rank.rank % 8}
        )
        update |= {
            "rank": rank,
            "gpus": [_make_gpu(record.rank.rank, seconds)],
            "gpu_driver": GpuDriverPart(state="ok", driver_version="570.1"),
            "precision": PrecisionPart(requested="auto", effective="bf16", reason="the GPU has it"),
            "checkpoints": CheckpointsPart(
                url="s3://bucket/gpt-small",
                num_saved=20,
                num_bytes=10**9,
                stall_s=31.0,
                write_s=200.0,
                last_step=record.attempt.saved_step,
                last_time=record.attempt.heartbeat_time - 60,
            ),
        }
    return record.model_copy(update=update)


def _make_gpu(rank: int, seconds: float) -> GpuPart:
    return GpuPart(
        uuid=f"GPU-{rank:08d}-aaaa-bbbb",
        name="NVIDIA H100 80GB HBM3",
        utilization=0.9,
        memory_used_bytes=62 * 2**30,
        memory_total_bytes=80 * 2**30,
        power_watts=520.0,
        power_limit_watts=700.0,
        sampled_s=seconds,
        busy_s=0.84 * seconds,
        utilization_s=seconds,
        energy_joules=520.0 * seconds,
        energy_source="counter",
        energy_s=seconds,
        throttle_s={"thermal": 0.02 * seconds} if rank == 5 else {},
        errors={},
    )


def usual_price() -> PricePart:
    """Return 2.50 USD a GPU-hour."""
    return make_price("2.50", unit="gpu")
