"""The causes: how each is planted into a sound job, so that to mend it is to take it out again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from benchmarks.diagnosis.healthy import HOPPER, Needs, pick
from benchmarks.diagnosis.job import Job
from benchmarks.diagnosis.loader_plants import (
    Changes,
    data_preprocessing,
    data_wait,
    epoch_boundary,
    hidden_loader,
    light_loader,
    slow_collate,
    storage_read,
    too_few_workers,
    worker_startup,
)

__all__ = ["PLANTS", "Changes", "Plant"]

_WEIGHTS_SHARE = 0.06
_CUDA: Needs = {"device": "cuda"}
_HOPPER: Needs = {"device": "cuda", "accelerator": HOPPER[0]}


@dataclass(frozen=True)
class Plant:
    """One cause.

    Args:
        cause: Its name.
        draw: Returns what the sound job must be besides (what stays when it is mended), and what
            is broken in it, for a job and the share of time that is to be lost.
        needs: What the job must be.
        area: What part of a run it touches; two plants of one area do not go together.
        is_loss: Whether it loses time, rather than being a danger.
        losses: Least and most share to lose.
    """

    cause: str
    draw: Callable[[Job, np.random.Generator, float], tuple[Changes, Changes]]
    needs: Needs = field(default_factory=dict)
    area: str = ""
    is_loss: bool = True
    losses: tuple[float, float] = (0.15, 0.55)


# The host and the device.


def _transfer(job: Job, rng: np.random.Generator, loss: float):
    copy_s = job.iteration_s * loss / (1 - loss)
    return {"copy_bytes": 4e9 * copy_s, "pin_memory": True}, {"pin_memory": False}


def _sync_points(job: Job, rng: np.random.Generator, loss: float):
    lost_s = job.iteration_s * loss / (1 - loss)
    each_s = float(rng.uniform(0.0002, 0.0015))
    base = {"sync_s": each_s, "num_syncs": 0, "precision": "bf16", "skip_share": 0.0}
    return base | hidden_loader(job), {"num_syncs": max(4, round(lost_s / each_s))}


def _small_batch(job: Job, rng: np.random.Generator, loss: float):
    # So few samples that the device is through with the kernels before the host has launched more.
    times = int(pick(rng, (4, 8)))
    small = max(1, job.batch_size // times)
    work_s = job.work_s * job.sample_tokens / job.fill * small
    launch_s = 1.15 * work_s / (1 - loss)
    base = {
        "batch_size": small * times,
        "launch_s": launch_s,
        "floor_s": 0.1 * work_s,
        "optimizer_s": 0.05 * work_s,
        "comm_s": 0.1 * work_s,
        "copy_bytes": 1e5,
        "num_workers": 4,
        "loader_cpus": 8,
        # Pauses were drawn for iterations of another length.
        "save_every": 0,
        "validate_every": 0,
    } | dict.fromkeys(("host_step_s", "logging_s", "callbacks_s"), 0.01 * launch_s)
    base |= light_loader(replace(job, **(base | {"batch_size": small})), 4)
    # Weights stay as they are, and what the samples take shrinks with them.
    used = _WEIGHTS_SHARE + (job.memory_used - _WEIGHTS_SHARE) / times
    return base, {"batch_size": small, "memory_used": used}


def _communication(job: Job, rng: np.random.Generator, loss: float):
    hidden_s = job.comm_overlap * 2 / 3 * (job.device_s - job.optimizer_s)
    return {}, {"comm_s": hidden_s + job.iteration_s * loss / (1 - loss)}


def _straggler(job: Job, rng: np.random.Generator, loss: float):
    return {}, {"clocks": ((int(rng.integers(job.num_ranks)), 1 - loss),)}


def _faulty_node(job: Job, rng: np.random.Generator, loss: float):
    first = int(rng.integers(job.num_nodes)) * job.ranks_per_node
    ranks = range(first, min(first + job.ranks_per_node, job.num_ranks))
    return {}, {"clocks": tuple((rank, 1 - loss) for rank in ranks)}


def _throttling(job: Job, rng: np.random.Generator, loss: float):
    every = rng.random() < 0.5
    ranks = range(job.num_ranks) if every else [int(rng.integers(job.num_ranks))]
    reason = pick(rng, ("thermal_hw", "thermal_sw", "hw_brake"))
    clocks = tuple((rank, 1 - loss) for rank in ranks)
    return {}, {"clocks": clocks, "throttle_reason": reason}


def _full_precision(job: Job, rng: np.random.Generator, loss: float):
    return {"precision": "bf16", "skip_share": 0.0}, {
        "precision": "fp32",
        "precision_factor": 1 / (1 - loss),
    }


def _quiet_host(job: Job) -> Changes:
    names = ("host_step_s", "logging_s", "callbacks_s")
    return dict.fromkeys(names, 0.003 * job.device_s)


def _padding_waste(job: Job, rng: np.random.Generator, loss: float):
    # Mended, texts are packed into full rows.
    return {"fill": 1.0}, {"fill": 1 - loss}


def _overflow_skips(job: Job, rng: np.random.Generator, loss: float):
    base = {"precision": "fp16"} | hidden_loader(job) | _quiet_host(job)
    return base, {"skip_share": loss}


def _memory(job: Job, rng: np.random.Generator, loss: float, held: float):
    retry_s = float(rng.uniform(0.2, 0.6))
    share = job.iteration_s * loss / (1 - loss) / retry_s
    share, retry_s = (share, retry_s) if share < 0.9 else (0.9, retry_s * share / 0.9)
    return {"retry_s": retry_s}, {
        "retry_share": share,
        "memory_used": float(rng.uniform(0.965, 0.995)),
        "memory_held": held,
    }


def _memory_creep(job: Job, rng: np.random.Generator, loss: float):
    return {"memory_used": 0.5}, {"memory_growth": float(rng.uniform(1.5, 4.0))}


def _recompilation(job: Job, rng: np.random.Generator, loss: float):
    compile_s = float(rng.uniform(3, 12))
    every_s = compile_s * (1 - loss) / loss
    return {}, {"compile_every": max(3, round(every_s / job.iteration_s)), "compile_s": compile_s}


def _host_work(job: Job, rng: np.random.Generator, loss: float, name: str):
    idle_s = max(0.0, job.hidden_s - job.own_s)
    lost_s = loss / (1 - loss) * job.iteration_s
    return {}, {name: getattr(job, name) + idle_s + lost_s}


# What training stands still for, and what is around it.


def _checkpoint_overhead(job: Job, rng: np.random.Generator, loss: float):
    save_s = float(rng.uniform(2, 10))
    every = max(2, round(save_s * (1 - loss) / loss / job.iteration_s))
    return {"save_every": 0, "saves_itself": False}, {"save_every": every, "save_s": save_s}


def _frequent_validation(job: Job, rng: np.random.Generator, loss: float):
    val_s = float(rng.uniform(2, 12))
    every = max(2, round(val_s * (1 - loss) / loss / job.iteration_s))
    # Mended it takes as much as in a job that evaluates a lot, and not nothing.
    share = float(rng.uniform(0.08, 0.1))
    seldom = round(val_s * (1 - share) / share / job.iteration_s)
    return {"validate_every": seldom, "validation_s": val_s}, {"validate_every": every}


def _idle_devices(job: Job, rng: np.random.Generator, loss: float):
    driven = min(job.num_ranks, job.ranks_per_node)
    return {}, {"unowned_gpus": max(1, round(driven * loss / (1 - loss)))}


def _gang_wait(job: Job, rng: np.random.Generator, loss: float):
    return {}, {"gang_wait_s": (job.duration_s + job.startup_s) * loss / (1 - loss)}


def _queue_wait(job: Job, rng: np.random.Generator, loss: float):
    return {}, {"queue_s": float(rng.uniform(3, 24)) * 3600}


def _hardware_fault(job: Job, rng: np.random.Generator, loss: float):
    kind = pick(rng, ("num_xids", "num_uncorrected"))
    return {}, {kind: int(rng.integers(1, 4))}


def _unprotected_spot(job: Job, rng: np.random.Generator, loss: float):
    # Long enough to lose much.
    base = {"saves_itself": False, "save_every": 0, "duration_s": 2400.0}
    return base, {"capacity_type": "spot"}


_PAIR: Needs = {"min_ranks": 2, "min_per_node": 2}
_NODES: Needs = _CUDA | {"min_ranks": 4, "min_nodes": 2, "min_per_node": 2}

PLANTS: tuple[Plant, ...] = (
    Plant("data_preprocessing", data_preprocessing, area="loader"),
    Plant("storage_read", storage_read, area="loader"),
    Plant("too_few_workers", too_few_workers, area="loader"),
    Plant("data_wait", data_wait, area="loader"),
    Plant("slow_collate", slow_collate, area="loader"),
    Plant("worker_startup", worker_startup, area="loader"),
    Plant("epoch_boundary", epoch_boundary, area="loader"),
    Plant("transfer", _transfer, _CUDA, "device"),
    Plant("sync_points", _sync_points, _CUDA, "device"),
    Plant("small_batch", _small_batch, _CUDA, "device", losses=(0.25, 0.6)),
    Plant("communication", _communication, _PAIR | _HOPPER, "ranks"),
    Plant("straggler", _straggler, _PAIR | _HOPPER, "ranks"),
    Plant("straggler", _straggler, _PAIR | {"device": "cpu"}, "ranks"),
    Plant("faulty_node", _faulty_node, _NODES | _HOPPER, "ranks"),
    Plant("throttling", _throttling, _CUDA, "ranks"),
    Plant("full_precision", _full_precision, _CUDA, "device", losses=(0.34, 0.6)),
    Plant("padding_waste", _padding_waste, area="data"),
    Plant("overflow_skips", _overflow_skips, _CUDA, "precision"),
    Plant("memory_pressure", partial(_memory, held=0.97), _CUDA, "memory"),
    Plant("fragmentation", partial(_memory, held=0.6), _CUDA, "memory"),
    Plant("memory_creep", _memory_creep, _CUDA, "memory", is_loss=False),
    Plant("recompilation", _recompilation, area="compiler"),
    Plant("slow_logging", partial(_host_work, name="logging_s"), area="host"),
    Plant("slow_callbacks", partial(_host_work, name="callbacks_s"), area="host"),
    Plant("checkpoint_overhead", _checkpoint_overhead, area="saves"),
    Plant("frequent_validation", _frequent_validation, area="validation", losses=(0.25, 0.6)),
    Plant("idle_devices", _idle_devices, _CUDA, "job"),
    Plant("gang_wait", _gang_wait, _NODES, "job"),
    Plant("queue_wait", _queue_wait, area="job", is_loss=False),
    Plant("hardware_fault", _hardware_fault, _CUDA, "job", is_loss=False),
    Plant("unprotected_spot", _unprotected_spot, {"max_ranks": 4}, "saves", is_loss=False),
)
"""Every cause that can be found but that there is nothing to mend."""
