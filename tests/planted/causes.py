"""The table of plants: trainings with one cause of slowness each, and some without any.

A step takes some milliseconds and the plant ten times as long, so that it stays the greatest part
on a machine that others use as well. What it is planted into, a plain loop and a Lightning fit of a
small net, stands in ``plain.py`` and ``trainer.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from costlens.config import Config, resolve_config
from costlens.core.clock import Clock
from costlens.observe.cgroup import find_cgroups

PLANT_S = 0.05
COMPUTE_S = 0.005
TOKENS = 10
PRICE_PER_HOUR = 36
WINDOW_S = 0.25
LOOPS = ("plain", "lightning")


@dataclass(frozen=True)
class Plant:
    """Where a training is slow; what is not named takes no time.

    Args:
        sample_s: Making one sample.
        read_s: Reading one sample from a counted store.
        collate_s: Putting a batch together.
        transfer_s: Moving a batch to the device.
        turn_s: The beginning of each pass: workers start, or samples are put in order.
        compute_s: The step itself.
        result_s: Waiting for a result of the device.
        compile_s: Compiling a piece of the net for one more shape.
        is_in_pieces: Whether the compiler makes several pieces of the net.
        callback_s: A hook of another callback.
        logger_s: One line of a logger.
        validation_s: A batch of a validation.
        save_s: A save.
        every: Steps from one validation, or save, to the next.
        padding: Share of token positions that are padding.
        is_overflowing: Whether the gradients of every second step overflow.
        kept_bytes: What each step leaves in memory.
        shape_every: Steps after which a batch has another shape; 0 for never.
        is_uneven: Whether some steps take six times as long as others.
        warm_up_s: What each of the first five steps takes longer.
        is_bare: Whether the batches come from a generator that nobody can look into.
        num_workers: Workers of the loader.
        num_steps: Steps of a pass.
        num_passes: Passes over the data.
        speed: Seconds that pass on the run's clock in a second, for what takes minutes.
        settings: Further settings of the run.
        loops: Where it is planted.
    """

    sample_s: float = 0.0
    read_s: float = 0.0
    collate_s: float = 0.0
    transfer_s: float = 0.0
    turn_s: float = 0.0
    compute_s: float = COMPUTE_S
    result_s: float = 0.0
    compile_s: float = 0.0
    is_in_pieces: bool = False
    callback_s: float = 0.0
    logger_s: float = 0.0
    validation_s: float = 0.0
    save_s: float = 0.0
    every: int = 2
    padding: float = 0.0
    is_overflowing: bool = False
    kept_bytes: int = 0
    shape_every: int = 0
    is_uneven: bool = False
    warm_up_s: float = 0.0
    is_bare: bool = False
    num_workers: int = 0
    num_steps: int = 60
    num_passes: int = 1
    speed: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    loops: tuple[str, ...] = LOOPS

    def shape_of(self, number: int) -> int:
        """Return which of its shapes a batch has."""
        return number // self.shape_every if self.shape_every else 0

    def step_s(self, number: int) -> float:
        """Return what the step of a batch takes."""
        uneven = (0.4, 2.4, 0.9, 1.5)[number % 4] if self.is_uneven else 1.0
        return self.compute_s * uneven + (self.warm_up_s if number < 5 else 0.0)

    @property
    def clock(self) -> Clock:
        """Return the run's clock."""
        return lambda: time.perf_counter_ns() * self.speed

    def config(self, **more: Any) -> Config:
        """Return settings of a priced run with short windows that prints nothing."""
        return resolve_config(
            summary=False,
            log_level="error",
            window_s=WINDOW_S * self.speed,
            **{"node_hour_price": str(PRICE_PER_HOUR), **self.settings, **more},
        )

    def counts(self) -> dict[str, int]:
        """Return what a batch of one sample counts."""
        return {"samples": 1, "slots": TOKENS, "tokens": round(TOKENS * (1 - self.padding))}


def _memory_left_bytes() -> int:
    """Return what is left of the container's memory, or of the machine's where it has no limit."""
    own = find_cgroups().read_memory()
    left = None if own is None else own.available_bytes
    return psutil.virtual_memory().available if left is None else left


_QUEUED = {"job_submit_time": "2026-01-01T08:00Z", "job_start_time": "2026-01-01T10:00Z"}
QUIET = Plant(compute_s=PLANT_S, num_steps=50)

LOSSES: dict[str, Plant] = {
    "data_preprocessing": Plant(sample_s=PLANT_S),
    "storage_read": Plant(read_s=PLANT_S),
    "too_few_workers": Plant(sample_s=PLANT_S, num_workers=1),
    "slow_collate": Plant(collate_s=PLANT_S),
    "data_wait": Plant(sample_s=PLANT_S, is_bare=True, loops=("plain",)),
    "worker_startup": Plant(turn_s=0.2, num_workers=1, num_steps=6, num_passes=12),
    "epoch_boundary": Plant(turn_s=0.2, num_steps=6, num_passes=14, loops=("plain",)),
    "slow_callbacks": Plant(callback_s=PLANT_S),
    "slow_logging": Plant(logger_s=PLANT_S),
    "frequent_validation": Plant(validation_s=2 * PLANT_S),
    "checkpoint_overhead": Plant(save_s=2 * PLANT_S),
    "padding_waste": Plant(compute_s=PLANT_S, padding=0.6),
    "overflow_skips": Plant(compute_s=0.02, is_overflowing=True, num_steps=130),
    "recompilation": Plant(
        compute_s=0.02, compile_s=0.2, shape_every=5, num_steps=75, loops=("plain",)
    ),
}
"""What costs money at once, by the finding that it is."""

DANGERS: dict[str, Plant] = {
    # Told once, by the first run of a process.
    "queue_wait": replace(QUIET, settings=_QUEUED, loops=("process",)),
    "unprotected_spot": replace(
        QUIET, settings={"capacity_type": "spot"}, speed=120, loops=("plain",)
    ),
    # Of any machine's memory so much that it is gone in two hours of the run's clock.
    "memory_creep": Plant(
        compute_s=PLANT_S,
        kept_bytes=max(4 * 2**20, _memory_left_bytes() // 9600),
        num_steps=160,
        speed=15,
        loops=("plain",),
    ),
}
"""What costs nothing yet."""

HEALTHY: dict[str, Plant] = {
    "in the process": QUIET,
    # Its items take 20 ms, and two workers make one every 10 ms for a step of 50 ms.
    "prefetched": Plant(sample_s=0.02, compute_s=PLANT_S, num_workers=2, num_steps=60),
    "a slow save and a slow validation": replace(QUIET, validation_s=0.4, save_s=0.4, every=30),
    "variable lengths": replace(QUIET, is_uneven=True, loops=("plain",)),
    "compiled once": replace(QUIET, compile_s=0.2, is_in_pieces=True, loops=("plain",)),
    "warm-up": replace(QUIET, warm_up_s=0.3, loops=("plain",)),
}
"""What looks like a cause and is none."""
