"""The checkpoints of several ranks put together: their board, their meetings and their shards.

Every rank makes it at the same point of its program, before the first step; they meet there once,
so that ranks which differ in their settings, or in what they see of the store, are told at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from costlens.agreeing import let_ranks_agree
from costlens.attempt import Parts
from costlens.config import Config
from costlens.core.clock import Clock
from costlens.errors import ConfigError
from costlens.observe.placement.process_group import find_board
from costlens.protect.commit import Committer
from costlens.protect.group_keeper import GroupKeeper
from costlens.protect.group_save import GroupSave
from costlens.protect.meeting import Meeting
from costlens.protect.replicas import Replicas
from costlens.protect.shards import ShardExchange
from costlens.protect.shelf import Shelf
from costlens.storage.identity import Identity
from costlens.storage.store import Store

__all__ = ["join_ranks"]

# A run that is opened again for a second fit meets on a board without the texts of the first.
_turns = itertools.count()


def join_ranks(
    config: Config,
    parts: Parts,
    clock: Clock,
    identity: Identity,
    store: Store,
    describe: Callable[[], dict[str, Any]],
) -> tuple[GroupKeeper, GroupSave]:
    """Return where the ranks keep their checkpoints and how they agree on when; waits for all.

    Args:
        config: The settings.
        parts: The living parts of the run.
        clock: Monotonic nanoseconds.
        identity: The run and its attempt, settled.
        store: Where they go.
        describe: Returns the facts of a manifest.

    Raises:
        CheckpointError: If the ranks differ in their settings, or one does not come.
        ConfigError: If there is no process group.
        StorageError: If the place cannot be written, or cannot create exclusively.
    """
    rank, world_size = parts.state.rank.rank, parts.state.rank.world_size
    purpose = f"{identity.launch_key}/{identity.attempt}"
    agreement = let_ranks_agree(parts, clock, purpose)
    board = find_board(f"{purpose}/checkpoints/{next(_turns)}")
    if agreement is None or board is None:
        raise _tell_no_group(config, world_size)
    meeting = Meeting(board, rank, world_size, clock=clock)
    exchange = ShardExchange(store, identity.run_id, board, rank, world_size, clock=clock)
    keeper = GroupKeeper(
        Committer(store, identity.run_id),
        Shelf(store, identity.run_id),
        config.keep_checkpoints,
        describe,
        meeting=meeting,
        exchange=exchange,
        replicas=Replicas(board, rank, clock=clock),
    )
    keeper.check_place(
        {
            "checkpoint_url": store.shown_url,
            "the run": identity.run_id,
            "the attempt": identity.attempt,
            "resume": config.resume,
        }
    )
    if rank == 0:
        keeper.shelf.sweep(time.time())
    return keeper, GroupSave(parts.boundaries, agreement, meeting, parts.state, clock)


def _tell_no_group(config: Config, world_size: int) -> ConfigError:
    return ConfigError(
        f"checkpoint_url cannot be {config.checkpoint_url!r} (from"
        f" {config.source_of('checkpoint_url')}) in a job of {world_size} ranks without a"
        " process group, for its ranks could not save at one step; call run.checkpoints after"
        " torch.distributed.init_process_group"
    )
