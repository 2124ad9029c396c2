"""The checkpoints of a run put together: its store, its past, its price and its limits.

Doors call :func:`make_manager` once, before the first step; it may read the run folder and writes a
probe object, so that a place that cannot be written is told now and not hours later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from costlens.attempt import Parts
from costlens.checkpoint_facts import describer
from costlens.checkpoint_group import join_ranks
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import Clock
from costlens.core.records import RankRecord
from costlens.errors import ConfigError
from costlens.export.record import read_ranks
from costlens.observe.loader import unwatch
from costlens.protect.cadence import Cadence
from costlens.protect.checkpoints import Checkpoints
from costlens.protect.commit import Committer
from costlens.protect.failures import ON_DEMAND, SPOT, failure_rate_per_s
from costlens.protect.group_save import LEAD_S, GroupSave
from costlens.protect.history import carried_costs, exposure_of
from costlens.protect.interval import Rails
from costlens.protect.keeper import Keeper
from costlens.protect.manager import CheckpointManager
from costlens.protect.shelf import Shelf
from costlens.protect.state import TrainingState
from costlens.protect.state_port import StatePort
from costlens.storage.identity import Identity
from costlens.storage.store import Store

__all__ = ["make_manager", "open_checkpoints", "warn_of_untied"]

# A save costs files and requests beside its stall; nothing is won by several a second.
_MIN_INTERVAL_S = 1.0


def open_checkpoints(
    config: Config,
    parts: Parts,
    clock: Clock,
    identity: Identity,
    look: Callable[[], RankRecord | None],
    state: dict[str, Any],
) -> Checkpoints:
    """Return the checkpoints of a plain loop; start-up, blocks on the stores.

    Args:
        config: The settings; ``checkpoint_url`` says where.
        parts: The living parts of the run.
        clock: Monotonic nanoseconds.
        identity: The run and its folder, settled.
        look: Returns the record of this rank at its last window, None before the first.
        state: What is saved, as :class:`TrainingState` takes it.

    Raises:
        CheckpointError: If a part has no state.
        ConfigError: If no URL is set, or this job cannot be saved.
        StorageError: If the place cannot be written, or cannot create exclusively.
    """
    loader = _unwatch_each(state.get("loader"))
    source = TrainingState(**{"model": None, **state, "loader": loader})
    manager = make_manager(config, parts, clock, identity, source, look)
    return Checkpoints(
        manager, config.resume, lambda: source.num_passes, boundaries=parts.boundaries
    )


def warn_of_untied(state: AttemptState, config: Config) -> None:
    """Say it where a restart would be another run, and find none of this one's checkpoints.

    Args:
        state: The attempt, whose place for checkpoints was not known when its run was named.
        config: The settings that named it.
    """
    if config.run_id is None and state.rank.job_id is None and config.resume != "never":
        state.log.warning(
            "costlens.checkpoint.untied",
            message="nothing ties a restart to this run, so it would not find these checkpoints:"
            " set COSTLENS_CHECKPOINT_URL or COSTLENS_RUN_ID, or pass checkpoint_url to"
            " costlens.start instead of a url to run.checkpoints",
        )


def _unwatch_each(loaders: Any) -> Any:  # noqa: ANN401 - one, several, or named
    if isinstance(loaders, Mapping):
        return {name: unwatch(loader) for name, loader in loaders.items()}
    if isinstance(loaders, (list, tuple)):
        return [unwatch(loader) for loader in loaders]
    return unwatch(loaders)


def make_manager(
    config: Config,
    parts: Parts,
    clock: Clock,
    identity: Identity,
    source: StatePort,
    look: Callable[[], RankRecord | None],
) -> CheckpointManager:
    """Return the manager of a run's checkpoints; start-up, blocks on the stores.

    Args:
        config: The settings; ``checkpoint_url`` says where.
        parts: The living parts of the run.
        clock: Monotonic nanoseconds.
        identity: The run and its folder, settled.
        source: What is saved.
        look: Returns the record of this rank at its last window, None before the first.

    Raises:
        ConfigError: If no URL is set, or a job of several ranks has no process group.
        CheckpointError: If its ranks differ in their settings, or one does not come.
        StorageError: If the place cannot be written, or cannot create exclusively.
    """
    if config.checkpoint_url is None:
        raise ConfigError(
            "there is no place for checkpoints: set COSTLENS_CHECKPOINT_URL, or pass a url, to a"
            " folder or any fsspec URL"
        )
    rank = parts.state.rank
    store = Store(config.checkpoint_url)
    keeper, group = _make_keeper(config, parts, clock, identity, store, look)
    past = _read_past(identity)
    lead_s = 0.0 if group is None else LEAD_S
    cadence = Cadence(
        Rails(max_loss_s=config.max_loss, min_s=_MIN_INTERVAL_S + lead_s),
        _rate_of_failures(config, parts, past, clock),
        money_per_s=lambda: _money_per_s(look(), rank.world_size),
        carried=carried_costs(past),
        lead_s=lead_s,
    )
    return CheckpointManager(parts.state, parts.timeline, clock, keeper, cadence, source, group)


def _make_keeper(
    config: Config,
    parts: Parts,
    clock: Clock,
    identity: Identity,
    store: Store,
    look: Callable[[], RankRecord | None],
) -> tuple[Keeper, GroupSave | None]:
    """Return where checkpoints are kept and, for several ranks, how they save at one step."""
    describe = describer(identity, parts, look)
    if parts.state.rank.world_size > 1:
        return join_ranks(config, parts, clock, identity, store, describe)
    committer, shelf = Committer(store, identity.run_id), Shelf(store, identity.run_id)
    committer.check()
    shelf.sweep(time.time())
    return Keeper(committer, shelf, config.keep_checkpoints, describe), None


def _read_past(identity: Identity) -> list[RankRecord]:
    records, _ = read_ranks(identity.folder, time.time())
    return [record for record in records if record.attempt.number < identity.attempt]


def _rate_of_failures(
    config: Config, parts: Parts, past: list[RankRecord], clock: Clock
) -> Callable[[], float]:
    if (mtbf_s := config.mtbf) is not None:
        return lambda: 1 / mtbf_s
    prior = SPOT if config.capacity_type == "spot" else ON_DEMAND
    rank, start_ns = parts.state.rank, parts.state.start_ns
    num_nodes = max(1, rank.world_size // max(1, rank.local_world_size))
    before = exposure_of(past)

    def rate_per_s() -> float:
        seen = before.add((clock() - start_ns) / 1e9, num_nodes, failed=False)
        return failure_rate_per_s(prior, seen, num_nodes)

    return rate_per_s


def _money_per_s(record: RankRecord | None, world_size: int) -> float | None:
    price = None if record is None else record.price
    if price is None:
        return None
    per_hour = float(price.amount) * float(price.share) * world_size
    return per_hour / 3600 if per_hour > 0 else None
