"""The rules about one rank, in one table; a new rule is one file here and one line in it."""

from __future__ import annotations

from costlens.diagnose.finding import Rule
from costlens.diagnose.rules import (
    checkpoint_overhead,
    compute_bound,
    data_preprocessing,
    data_wait,
    epoch_boundary,
    fragmentation,
    frequent_validation,
    full_precision,
    hardware_fault,
    memory_creep,
    memory_pressure,
    overflow_skips,
    padding_waste,
    recompilation,
    slow_callbacks,
    slow_collate,
    slow_logging,
    small_batch,
    storage_read,
    sync_points,
    throttling,
    too_few_workers,
    transfer,
    unprotected_spot,
    worker_startup,
)

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    data_preprocessing.RULE,
    storage_read.RULE,
    too_few_workers.RULE,
    slow_collate.RULE,
    data_wait.RULE,
    worker_startup.RULE,
    epoch_boundary.RULE,
    transfer.RULE,
    sync_points.RULE,
    small_batch.RULE,
    slow_callbacks.RULE,
    slow_logging.RULE,
    checkpoint_overhead.RULE,
    frequent_validation.RULE,
    padding_waste.RULE,
    overflow_skips.RULE,
    full_precision.RULE,
    recompilation.RULE,
    throttling.RULE,
    hardware_fault.RULE,
    memory_pressure.RULE,
    fragmentation.RULE,
    memory_creep.RULE,
    unprotected_spot.RULE,
    compute_bound.RULE,
)
