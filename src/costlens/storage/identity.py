"""Which run and attempt this process belongs to, settled by exclusive creates.

Runs on the pipeline thread. Ranks never wait for one another: whoever comes first claims a number
for the launch key that all of them share, and the others find the claim.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from costlens.storage.names import new_run_id, safe_name
from costlens.storage.run_folder import RunFolder, claim_run_id
from costlens.storage.store import Store

__all__ = ["Identity", "propose_run_id", "settle_identity"]

_MAX_LAUNCHES = 1000


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
    *,
    rank: int,
    process: dict[str, str | int | float],
) -> Identity:
    """Return the identity of this process, claiming what is not claimed yet.

    Args:
        store: Holds the run folders.
        checkpoint_store: The checkpoint URL, whose ``run.json`` ties restarts to one run.
        proposed: The id from :func:`propose_run_id`.
        launch_key: What all ranks of this launch share.
        rank: This process's rank.
        process: What tells this process from another that had the same rank: host, pid and start
            time.

    Raises:
        StorageError: If a store refuses.
    """
    run_id = proposed if checkpoint_store is None else claim_run_id(checkpoint_store, proposed)
    folder = RunFolder(store, run_id)
    for launch in range(_MAX_LAUNCHES):
        # A launcher may repeat its key (same port, same shell): where this rank has a record of
        # another process already, it is a new launch. Every rank finds that out alone and arrives
        # at the same next key.
        key = hash_key(launch_key if launch == 0 else f"{launch_key}#{launch}")
        attempt = folder.claim_attempt(key, dict(process))
        earlier = folder.read_record(attempt, rank)
        if earlier is None or _is_same_process(earlier, process):
            break
    return Identity(run_id, attempt, key, folder)


def _is_same_process(record: bytes, process: dict[str, str | int | float]) -> bool:
    try:
        seen = json.loads(record)["rank"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(seen.get("host_name") == process["host_name"] and seen.get("pid") == process["pid"])
