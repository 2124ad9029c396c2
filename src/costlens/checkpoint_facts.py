"""What stands in the manifest of a checkpoint beside its data, and what a start learns from it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from itertools import islice
from typing import Any

from costlens.attempt import Parts
from costlens.config import Config
from costlens.core.records import RankRecord
from costlens.errors import CheckpointError, StorageError
from costlens.protect.shelf import Shelf
from costlens.storage.identity import Identity
from costlens.storage.store import Store

__all__ = ["copy_ledger", "describer", "recall_precision"]

_COUNTS = ("iterations", "micro_batches", "optimizer_steps", "samples", "tokens")
_MAX_CURRENCIES = 4
_MAX_READ = 4


def describer(
    identity: Identity, parts: Parts, look: Callable[[], RankRecord | None]
) -> Callable[[], dict[str, Any]]:
    """Return what returns the facts of a manifest; called on the writer's thread, once a save.

    Args:
        identity: The run and its attempt, settled.
        parts: The living parts of the run.
        look: Returns the record of this rank at its last window, None before the first.
    """

    def describe() -> dict[str, Any]:
        counters, precision = parts.recorder.counters, parts.state.chosen_precision
        return {
            "run_id": identity.run_id,
            "counts": {name: value for name in _COUNTS if (value := getattr(counters, name)) >= 0},
            "precision": None if precision is None else precision.effective,
            "ledger_copy": copy_ledger(look()),
            "costlens_version": version("costlens"),
        }

    return describe


def copy_ledger(record: RankRecord | None) -> dict[str, str]:
    """Return the totals of the run as of a record, at most nine texts; empty where there are none.

    For a person who has nothing but the checkpoint: where the run's records exist, they count.

    Args:
        record: Of rank 0, whose record has the totals.
    """
    totals = None if record is None else record.run_totals
    if record is None or totals is None:
        return {}
    copied = {
        "as_of": f"{record.attempt.heartbeat_time:.3f}",
        "attempt": str(record.attempt.number),
        "time_s": f"{totals.time_s:.3f}",
        "is_partial": str(totals.is_partial).lower(),
    }
    if totals.tokens is not None:
        copied["tokens"] = str(totals.tokens)
    for currency, amount in islice(totals.cost.items(), _MAX_CURRENCIES):
        copied[f"cost_{currency}"] = amount
    return copied


def recall_precision(config: Config, identity: Identity) -> str:
    """Return what the run computed in when it was saved last, "" where nothing tells.

    Start-up; blocks on the store, reads one manifest or a few.

    Args:
        config: The settings; ``checkpoint_url`` says where.
        identity: The run, settled.
    """
    if config.checkpoint_url is None:
        return ""
    shelf = Shelf(Store(config.checkpoint_url), identity.run_id)
    try:
        for name in shelf.current()[:_MAX_READ]:
            try:
                return shelf.read(name).manifest.precision or ""
            except CheckpointError:
                continue  # the resume will say so
    except StorageError:
        return ""  # the checkpoints themselves are opened next, and raise
    return ""
