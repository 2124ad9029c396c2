"""Draws sound jobs: bound by what they compute, with all that is normal in a run and looks odd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.diagnosis.job import Job

__all__ = ["Needs", "draw_healthy"]

T = TypeVar("T")
Needs = dict[str, Any]
"""What a job must be for a cause: ``device``, ``min_ranks``, ``max_ranks``, ``min_nodes``,
``min_per_node``,
``accelerator``."""

HOPPER = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""Devices that tell how busy their units are."""

_OTHERS = ("NVIDIA A100-SXM4-80GB", "NVIDIA L40S")
_MEMORY_GIB = {"NVIDIA H200": 141, "NVIDIA L40S": 48}
_SECONDS = 300.0
_DDP_SHARE = 0.75


def pick(rng: np.random.Generator, choices: Sequence[T], odds: Sequence[float] | None = None) -> T:
    """Return one of the choices, the likelier the higher its odds."""
    chances = None if odds is None else np.asarray(odds) / np.sum(odds)
    return choices[int(rng.choice(len(choices), p=chances))]


def draw_healthy(rng: np.random.Generator, seed: int, needs: Needs | None = None) -> Job:
    """Return a job without anything to mend.

    Args:
        rng: Draws it.
        seed: Of what happens while it runs.
        needs: What it must be.
    """
    needs = needs or {}
    device = needs.get("device") or pick(rng, ("cuda", "cpu"), (0.65, 0.35))
    job = _draw_machines(rng, Job(seed=seed, duration_s=_SECONDS, device=device), needs)
    job = _draw_model(rng, job)
    job = _draw_loader(rng, job)
    job = _draw_pauses(rng, job)
    # Others shard, and time nothing.
    is_ddp = float(np.random.default_rng((seed, 3_000_000)).random()) < _DDP_SHARE
    return replace(job, is_ddp=is_ddp and job.num_ranks > 1)


def _draw_machines(rng: np.random.Generator, job: Job, needs: Needs) -> Job:
    least, most = needs.get("min_ranks", 1), needs.get("max_ranks", 64)
    sizes = (1, 2, 4, 8, 16, 64) if job.is_cuda else (1, 2, 4)
    odds = (40, 14, 14, 18, 10, 4) if job.is_cuda else (60, 25, 15)
    allowed = [(size, odd) for size, odd in zip(sizes, odds, strict=True) if least <= size <= most]
    num_ranks = pick(rng, [size for size, _ in allowed], [odd for _, odd in allowed])
    per_node = min(8, num_ranks)
    if needs.get("min_nodes", 1) > 1 or rng.random() < 0.2:
        per_node = max(needs.get("min_per_node", 1), min(per_node, num_ranks // 2))
    accelerator = needs.get("accelerator") or pick(rng, HOPPER + _OTHERS, (50, 15, 25, 10))
    precision = pick(rng, ("bf16", "fp16"), (85, 15)) if job.is_cuda else "fp32"
    return replace(
        job,
        num_ranks=num_ranks,
        ranks_per_node=per_node,
        accelerator=accelerator if job.is_cuda else "cpu",
        memory_bytes=_MEMORY_GIB.get(accelerator, 80) * 2.0**30,
        memory_used=float(rng.uniform(0.45, 0.92)),
        memory_held=float(rng.uniform(0.88, 0.97)),
        precision=precision,
        skip_share=0.001 if precision == "fp16" else 0.0,
        has_power_cap=job.is_cuda and bool(rng.random() < 0.4),
        queue_s=float(rng.uniform(0, 400)),
        capacity_type=pick(rng, ("on_demand", "reserved"), (70, 30)),
        startup_s=float(rng.uniform(4, 15)),
        first_iteration_s=float(rng.uniform(0.2, 10)),
        cold_iterations=int(rng.integers(1, 15)),
    )


def _draw_model(rng: np.random.Generator, job: Job) -> Job:
    is_large = job.num_ranks >= 16
    low_s, high_s = (0.5, 1.0) if is_large else (0.12, 0.7)
    compute_s = float(np.exp(rng.uniform(np.log(low_s), np.log(high_s))))
    batch_size = int(pick(rng, (8, 16, 32, 64, 128)))
    fill = float(rng.uniform(0.88, 1.0))
    tokens = float(pick(rng, (128, 256, 512, 1024)))
    num_syncs = int(pick(rng, (0, 1, 2), (70, 15, 15))) if job.is_cuda else 0
    job = replace(job, num_syncs=num_syncs)
    # What the host does while the device computes costs nothing; where they wait for one another
    # a sound loop does little else.
    host_share = rng.uniform(0.05, 0.25) if job.is_cuda else rng.uniform(0.001, 0.01)
    launch_s = float(np.exp(rng.uniform(np.log(0.02), np.log(0.5)))) * compute_s
    widest = 0.25 if job.num_ranks == 1 else 0.01 if is_large else 0.03
    spread = rng.uniform(0.0, widest)
    job = replace(
        job,
        batch_size=batch_size,
        sample_tokens=tokens,
        fill=fill,
        length_spread=float(spread),
        work_s=0.93 * compute_s / (batch_size * tokens / fill),
        floor_s=0.03 * compute_s,
        optimizer_s=0.04 * compute_s,
        launch_s=launch_s,
        sm_active=float(rng.uniform(0.8, 0.95)),
        comm_s=float(rng.uniform(0.05, 0.3)) * compute_s,
        sync_s=0.00005,
        log_every=int(pick(rng, (10, 50, 100))),
    )
    # What the host does while the device computes costs nothing; where that is little, a sound
    # loop does little else.
    own_s = max(0.005 * compute_s, min(float(host_share) * compute_s, 0.6 * job.hidden_s))
    if not job.is_cuda:
        own_s = float(host_share) * compute_s
    return replace(job, host_step_s=0.2 * own_s, logging_s=0.4 * own_s, callbacks_s=0.4 * own_s)


def _draw_loader(rng: np.random.Generator, job: Job) -> Job:
    period_s = job.iteration_s
    num_workers = int(pick(rng, (0, 1, 2, 4, 8, 12), (15, 10, 20, 25, 20, 10)))
    if num_workers:
        load_s = float(rng.uniform(0.05, 0.65)) * num_workers * period_s
    else:  # nothing but what a queue on the device hides
        left_s = 0.8 * job.hidden_s - job.own_s
        load_s = max(0.005 * period_s, min(float(rng.uniform(0.05, 0.25)) * period_s, left_s))
    pipe_s = float(rng.uniform(0.01, 0.25)) * load_s / max(1, num_workers)
    sample_bytes = float(10 ** rng.uniform(3, 5.5))
    is_persistent = bool(rng.random() < 0.5)
    start_s = float(rng.uniform(0.3, 1.5))
    # The turn of an epoch costs the start of the workers, or the time of one batch, at least.
    turn_s = max(load_s, 0.0 if is_persistent or not num_workers else start_s) + 0.02
    epoch_s = float(rng.uniform(1.0, 3.0)) * 120 * turn_s
    copy_share = rng.uniform(0.001, 0.01)
    return replace(
        job,
        num_workers=num_workers,
        prefetch_factor=int(pick(rng, (2, 2, 3, 4))),
        is_persistent=is_persistent,
        pin_memory=bool(rng.random() < 0.75),
        loader_cpus=max(num_workers, 1) + int(rng.integers(0, 9)),
        sample_cpu_s=0.7 * load_s / job.batch_size,
        sample_read_s=max(0.0, 0.25 * load_s - pipe_s) / job.batch_size,
        sample_bytes=sample_bytes,
        storage_bytes_per_s=job.batch_size * sample_bytes / pipe_s,
        collate_s=0.05 * load_s,
        worker_start_s=start_s,
        epoch_setup_s=0.01,
        epoch_batches=max(30, round(epoch_s / period_s)),
        is_lightning=bool(rng.random() < 0.5),
        counts_reads=bool(rng.random() < 0.7),
        copy_bytes=4e9 * float(copy_share) * period_s,
    )


def _draw_pauses(rng: np.random.Generator, job: Job) -> Job:
    period_s, changes = job.iteration_s, dict[str, Any]()
    in_run = job.duration_s / period_s
    kind = pick(rng, ("none", "rare", "often"), (45, 35, 20))
    if kind == "rare":  # one slow save in the whole run
        changes |= {
            "save_every": round(float(rng.uniform(0.55, 0.9)) * in_run),
            "save_s": float(rng.uniform(0.5, 5)),
        }
    elif kind == "often":
        changes |= {
            "save_every": round(float(rng.uniform(0.15, 0.4)) * in_run),
            "save_s": float(rng.uniform(0.05, 0.4)),
            "saves_itself": True,
            "capacity_type": pick(rng, ("on_demand", "spot")),
        }
    kind = pick(rng, ("none", "rare", "often"), (50, 30, 20))
    if kind == "rare":  # one long validation
        changes |= {
            "validate_every": round(float(rng.uniform(0.55, 0.8)) * in_run),
            "validation_s": float(rng.uniform(5, 25)),
        }
    elif kind == "often":
        share, every = float(rng.uniform(0.005, 0.04)), float(rng.uniform(0.1, 0.4)) * in_run
        changes |= {"validate_every": round(every), "validation_s": share * every * period_s}
    if rng.random() < 0.08:
        changes |= {
            "stop_at_s": job.startup_s + float(rng.uniform(0.2, 0.8)) * job.duration_s,
            "stop_s": float(rng.uniform(5, 60)),
            "stops_in_wait": bool(rng.random() < 0.5),
        }
    return replace(job, **changes)
