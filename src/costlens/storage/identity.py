"""Which run and attempt this process belongs to, settled by exclusive creates.

Runs on the pipeline thread. Ranks never wait for one another: whoever comes first claims a number
for the launch key that all of them share, and the others find the claim.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from costlens.storage.json_object import decode_object
from costlens.storage.names import new_run_id, safe_name
from costlens.storage.run_folder import RunFolder, claim_run_id
from costlens.storage.store import Store

__all__ = ["Claimant", "Identity", "propose_run_id", "settle_identity"]

_MAX_LAUNCHES = 1000
_MAX_RUNS = 1000
_MAX_REPEATS = 10
_OVER = frozenset({"completed", "stopped_early"})


@dataclass(frozen=True, slots=True)
class Claimant:
    """The process that asks which run and attempt it belongs to.

    Args:
        rank: Its rank.
        host_name: Its host.
        pid: Its process id.
        wall_ns: Unix time at which it opened its run, in nanoseconds.
        born_s: Unix time at which the process started, where the system tells.
        patience_s: Seconds without a heartbeat after which another rank counts as gone.
        job_start: Which start of the scheduler's job this is, where the run is named by the job.
        process: What tells this process from all others of its machine, for claims; see ``lives``.
        lives: Returns whether the process that made a claim lives on this machine, and is not this
            one. None where several ranks have to come to the same answer.
    """

    rank: int
    host_name: str
    pid: int
    wall_ns: int
    born_s: float | None = None
    patience_s: float = 60.0
    job_start: str | None = None
    process: Mapping[str, str | int] = field(default_factory=dict)
    lives: Callable[[Mapping[str, object]], bool] | None = None

    @property
    def details(self) -> dict[str, str | int]:
        """Return what a claim says about who made it."""
        told: dict[str, str | int] = {
            "rank": self.rank,
            "host_name": self.host_name,
            "pid": self.pid,
            "wall_ns": self.wall_ns,
        }
        if self.job_start is None:
            return told
        return {**told, **self.process, "job_start": self.job_start}


@dataclass(frozen=True, slots=True)
class Identity:
    """The settled identity.

    Args:
        run_id: Identity of the run, safe as a path.
        attempt: Number of the attempt, from 1.
        launch_key: Hash of what all ranks of the launch share.
        folder: Where its records go.
    """

    run_id: str
    attempt: int
    launch_key: str
    folder: RunFolder


def propose_run_id(
    *,
    run_id: str | None,
    job_id: str | None,
    name: str,
    launch_key: str,
    shared: bool,
    wall_ns: int,
) -> str:
    """Return the id a run gets unless its checkpoint URL says otherwise.

    Args:
        run_id: What the user asked for, by argument or variable.
        job_id: The scheduler's job id.
        name: Name of the run.
        launch_key: What all ranks of the launch share.
        shared: Whether other ranks must arrive at the same id, so that neither time nor chance may
            enter it.
        wall_ns: Unix time in nanoseconds.
    """
    if run_id is not None:
        return safe_name(run_id)
    if job_id is not None:
        return safe_name(f"{name}-{job_id}")
    digest = hash_key(launch_key)
    return safe_name(f"{name}-{digest}") if shared else new_run_id(name, wall_ns, digest)


def hash_key(launch_key: str) -> str:
    """Return 16 hexadecimal digits that stand for a launch key, which may hold host names."""
    return hashlib.blake2b(launch_key.encode(), digest_size=8).hexdigest()


def settle_identity(
    store: Store,
    checkpoint_store: Store | None,
    proposed: str,
    launch_key: str,
    claimant: Claimant,
) -> Identity:
    """Return the identity of this process, claiming what is not claimed yet.

    Args:
        store: Holds the run folders.
        checkpoint_store: The checkpoint URL, whose ``run.json`` ties restarts to one run.
        proposed: The id from :func:`propose_run_id`.
        launch_key: What all ranks of this launch share.
        claimant: This process.

    Raises:
        StorageError: If a store refuses.
    """
    run_id = proposed
    if checkpoint_store is not None:
        run_id = claim_run_id(checkpoint_store, proposed)
        # The checkpoints are the run, whichever job goes on with it.
        claimant = replace(claimant, job_start=None, lives=None)
    for _ in range(_MAX_RUNS):
        folder = _find_folder(store, run_id, launch_key, claimant)
        key, attempt = _claim_attempt(folder, launch_key, claimant)
        if not _is_beside_another(folder, attempt, claimant):
            break
        folder.release_attempt(attempt)  # both came at once; the folder now shows the other
    return Identity(folder.run_id, attempt, key, folder)


def _claim_attempt(folder: RunFolder, launch_key: str, claimant: Claimant) -> tuple[str, int]:
    """Return the key and the number of this launch's attempt in a folder."""
    for launch in range(_MAX_LAUNCHES):
        # A launcher may repeat its key (same port, same shell). Every rank finds out alone that the
        # attempt under a key is another launch's, and arrives at the same next key.
        key = _repeat_key(launch_key, launch)
        attempt = folder.claim_attempt(key, claimant.details)
        if not _is_taken(folder, attempt, claimant):
            break
    return key, attempt


def _repeat_key(launch_key: str, launch: int) -> str:
    return hash_key(launch_key if launch == 0 else f"{launch_key}#{launch}")


def _find_folder(store: Store, run_id: str, launch_key: str, claimant: Claimant) -> RunFolder:
    """Return the folder of the run, or of the next one where a job has finished it already.

    A job may hold several trainings of one name, one after the other or side by side. A launch that
    finds the run completed by an earlier one in the same start of the job, or being trained by
    another process of its machine, does not go on with it; one that the scheduler started again
    does its trainings in the same order again.
    """
    folder = RunFolder(store, run_id)
    if claimant.job_start is None:
        return folder
    keys = {_repeat_key(launch_key, launch) for launch in range(_MAX_REPEATS)}
    for number in range(2, _MAX_RUNS):
        newest = max(folder.attempts(), default=0)
        claim = folder.read_claim(newest) if newest else {}
        is_own = claim.get("launch_key") in keys and not _is_taken(folder, newest, claimant)
        is_same_start = claim.get("job_start") == claimant.job_start
        if not newest or is_own or not is_same_start:
            break
        if not _is_over(folder, newest, claim) and not _lives(claimant, claim):
            break
        folder = RunFolder(store, f"{run_id}-{number}")
    return folder


def _is_beside_another(folder: RunFolder, attempt: int, claimant: Claimant) -> bool:
    """Return whether another process of this start of the job came into the folder before."""
    if claimant.lives is None or attempt == 1:
        return False
    claims, _ = folder.read_claims()
    return any(_lives(claimant, claim) for number, claim in claims.items() if number < attempt)


def _lives(claimant: Claimant, claim: Mapping[str, object]) -> bool:
    is_same_start = claim.get("job_start") == claimant.job_start
    return claimant.lives is not None and is_same_start and claimant.lives(claim)


def _is_over(folder: RunFolder, attempt: int, claim: dict[str, object]) -> bool:
    """Return whether the rank that claimed an attempt has said that its training is done."""
    rank = claim.get("rank")
    record = folder.read_record(attempt, rank) if isinstance(rank, int) else None
    if record is None:
        return False
    with suppress(ValueError, KeyError, TypeError):
        return decode_object(record)["attempt"]["outcome"] in _OVER  # type: ignore[index]
    return False


def _is_taken(folder: RunFolder, attempt: int, claimant: Claimant) -> bool:
    """Return whether an attempt belongs to an earlier launch that had the same key."""
    # Nothing writes records before it knows its attempt, so a record of this rank is another's.
    if folder.read_record(attempt, claimant.rank) is not None:
        return True
    claim = folder.read_claim(attempt)
    if claimant.born_s is None or claim.items() >= claimant.details.items():
        return False
    # This rank never wrote in that launch, if there was one. All ranks then ask the same witness:
    # the one that made the claim, which is gone if it had fallen silent before this process began.
    return _last_seen_s(folder, attempt, claim) < claimant.born_s - claimant.patience_s


def _last_seen_s(folder: RunFolder, attempt: int, claim: dict[str, object]) -> float:
    """Return the last sign of life of the rank that made a claim; now, where it tells none."""
    rank, wall_ns = claim.get("rank"), claim.get("wall_ns")
    record = folder.read_record(attempt, rank) if isinstance(rank, int) else None
    if record is not None:
        with suppress(ValueError, KeyError, TypeError):
            return float(decode_object(record)["attempt"]["heartbeat_time"])  # type: ignore[index]
    return wall_ns / 1e9 if isinstance(wall_ns, int) else math.inf
