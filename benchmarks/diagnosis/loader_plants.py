"""How the causes of the loader are planted: what stays when one is mended, and what is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.diagnosis.healthy import pick
from benchmarks.diagnosis.job import Job

__all__ = [
    "Changes",
    "data_preprocessing",
    "data_wait",
    "epoch_boundary",
    "hidden_loader",
    "light_loader",
    "slow_collate",
    "slow_period_s",
    "storage_read",
    "too_few_workers",
    "worker_startup",
]

Changes = dict[str, Any]


def slow_period_s(job: Job, loss: float) -> float:
    """Return what an iteration takes when a share of its time is lost."""
    return job.iteration_s / (1 - loss)


def _inline_s(job: Job, loss: float) -> float:
    """Return what the training process may load for in an iteration for the same loss."""
    return job.hidden_s + loss / (1 - loss) * job.iteration_s - min(job.own_s, job.hidden_s)


def data_preprocessing(job: Job, rng: np.random.Generator, loss: float):
    """Samples take more CPU than there is; or the training process makes its batches itself."""
    kind = pick(rng, ("samples", "collate", "inline"), (40, 25, 35))
    if kind == "inline":
        return _no_workers(job, rng, loss)
    cpus = int(rng.integers(2, 9))
    workers = cpus + int(rng.integers(0, 3))
    base = {"num_workers": workers, "loader_cpus": cpus}
    sound = light_loader(replace(job, **base), cpus)
    batch_s = cpus * slow_period_s(job, loss) - sound["collate_s"]
    if kind == "collate":  # in a Trainer's workers nobody sees the one from the other
        rest_s = job.batch_size * (sound["sample_cpu_s"] + sound["sample_read_s"])
        base["is_lightning"] = True
        return base | sound, {"collate_s": batch_s + sound["collate_s"] - rest_s}
    return base | sound, {"sample_cpu_s": batch_s / job.batch_size}


def _no_workers(job: Job, rng: np.random.Generator, loss: float):
    """The training process prepares its batches itself: named by what it does, not by a number."""
    load_s = _inline_s(job, loss)
    return _heavy_loader(job, rng, load_s), {"num_workers": 0}


def too_few_workers(job: Job, rng: np.random.Generator, loss: float):
    """A loader has CPUs for workers that it does not start."""
    few = int(rng.integers(1, 4))
    return _heavy_loader(job, rng, few * slow_period_s(job, loss)), {"num_workers": few}


def _heavy_loader(job: Job, rng: np.random.Generator, load_s: float) -> Changes:
    """Return a loader with as many workers as it takes, where a batch takes one ``load_s``."""
    enough = max(2, int(np.ceil(load_s / (0.6 * job.iteration_s))) + 1)
    reads = float(rng.uniform(0.0, 0.2))
    return {
        "num_workers": enough,
        "loader_cpus": enough + int(rng.integers(0, 5)),
        "sample_cpu_s": (0.95 - reads) * load_s / job.batch_size,
        "sample_read_s": reads * load_s / job.batch_size,
        "sample_bytes": 1e3,
        "storage_bytes_per_s": 1e9,
        "collate_s": 0.05 * load_s,
    } | _long_epochs(job, load_s)


def storage_read(job: Job, rng: np.random.Generator, loss: float):
    """Reads take long each, or the storage gives too little to all workers together."""
    workers = int(pick(rng, (0, 2, 4, 6, 8)))
    base = {"num_workers": workers, "loader_cpus": workers + 4, "counts_reads": True}
    sound = light_loader(replace(job, **base), workers)
    batch_s = slow_period_s(job, loss)
    if workers == 0:
        rest_s = job.batch_size * sound["sample_cpu_s"] + sound["collate_s"]
        read_s = _inline_s(job, loss) - rest_s
        return base | sound, {"sample_read_s": max(0.0, read_s) / job.batch_size}
    if rng.random() < 0.5:  # latency: every worker waits for itself
        rest_s = 1.1 * job.batch_size * sound["sample_cpu_s"] + sound["collate_s"]
        read_s = (workers * batch_s - rest_s) / job.batch_size
        return base | sound, {"sample_read_s": read_s}
    rate = job.batch_size * sound["sample_bytes"] / batch_s
    return base | sound, {"storage_bytes_per_s": rate}


def data_wait(job: Job, rng: np.random.Generator, loss: float):
    """Workers queue for a service that costlens knows nothing of."""
    workers = int(rng.integers(2, 9))
    base = {"num_workers": workers, "loader_cpus": workers + 4}
    base["counts_reads"] = bool(rng.random() < 0.5)
    sound = light_loader(replace(job, **base), workers)
    # More workers would only queue where these do.
    return base | sound, {"sample_wait_s": slow_period_s(job, loss) / job.batch_size}


def slow_collate(job: Job, rng: np.random.Generator, loss: float):
    """Making a batch of its samples takes long, in the training process or in watched workers."""
    workers = int(pick(rng, (0, 1, 2, 4)))
    base = {"num_workers": workers, "loader_cpus": max(1, workers), "is_lightning": workers == 0}
    sound = light_loader(replace(job, **base), max(1, workers))
    load_s = job.batch_size * (sound["sample_cpu_s"] + sound["sample_read_s"])
    slow_s = workers * slow_period_s(job, loss) if workers else _inline_s(job, loss)
    return base | sound, {"collate_s": max(0.0, slow_s - load_s)}


def light_loader(job: Job, cpus: int) -> Changes:
    """Return a loader that is idle for most of the time, with epochs beyond the run."""
    share = 0.25 * job.iteration_s * min(cpus, max(1, job.num_workers))
    if job.num_workers == 0:
        share = 0.01 * job.iteration_s
    return {
        "sample_cpu_s": 0.6 * share / job.batch_size,
        "sample_read_s": 0.2 * share / job.batch_size,
        "sample_bytes": 1e5,
        "storage_bytes_per_s": job.batch_size * 1e5 / (0.1 * share),
        "collate_s": 0.1 * share,
    } | _long_epochs(job, share)


def _long_epochs(job: Job, load_s: float) -> Changes:
    epoch_s = max(2 * job.duration_s, 100 * load_s)
    return {"epoch_batches": round(epoch_s / job.iteration_s), "is_persistent": True}


def hidden_loader(job: Job) -> Changes:
    """Return a loader whose work stays beside the training, even if the host waits more."""
    base = {"num_workers": max(2, job.num_workers), "loader_cpus": max(4, job.loader_cpus)}
    return base | light_loader(replace(job, **base), 2)


def worker_startup(job: Job, rng: np.random.Generator, loss: float):
    """Workers end with each of many short epochs."""
    workers = int(rng.integers(2, 9))
    base = {"num_workers": workers, "loader_cpus": workers + 4, "is_persistent": True}
    base |= light_loader(replace(job, **base), workers)
    start_s = float(rng.uniform(3, 10))
    epoch_s = start_s * (1 - loss) / loss
    base |= {"worker_start_s": start_s, "epoch_batches": max(4, round(epoch_s / job.iteration_s))}
    return base, {"is_persistent": False}


def epoch_boundary(job: Job, rng: np.random.Generator, loss: float):
    """The main process has work to do before each of many short epochs."""
    workers = int(pick(rng, (0, 2, 4, 8)))
    base = {"num_workers": workers, "loader_cpus": workers + 2, "is_persistent": True}
    base |= light_loader(replace(job, **base), workers)
    setup_s = float(rng.uniform(3, 12))
    epoch_s = setup_s * (1 - loss) / loss
    base |= {"epoch_batches": max(4, round(epoch_s / job.iteration_s))}
    return base, {"epoch_setup_s": setup_s}
