"""The process group of torch.distributed: where one exists, it knows ranks better than variables.

A job that its own code launched, with ``multiprocessing`` and ``init_process_group(rank=...)``,
tells nobody else. Asked once, when a run opens; torch is not imported for it.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from costlens.observe.placement.place import Placement, read_int

__all__ = ["GroupBoard", "find_board", "refine_placement", "share_launch_key"]

# A fork copies the group but neither its threads nor a connection of its own: using the copy would
# speak into the parent's sockets. The copy is known by identity, for the child may make a new one.
_inherited: list[object] = []
_state = {"registered": False}
_STORE_TIMEOUT_S = 5


def refine_placement(placement: Placement) -> Placement:
    """Return the placement with the rank and world of the default process group, if there is one.

    Where only the group tells them, all ranks count as one node unless ``LOCAL_WORLD_SIZE`` says
    otherwise.

    Args:
        placement: What the launcher's variables tell.
    """
    group = _find_group()
    if group is None:
        return placement
    rank, world_size = int(group.get_rank()), int(group.get_world_size())
    if (rank, world_size) == (placement.rank, placement.world_size):
        return placement
    local_world_size = max(1, read_int(os.environ, "LOCAL_WORLD_SIZE", world_size))
    return dataclasses.replace(
        placement,
        launcher="process_group",
        rank=rank,
        local_rank=read_int(os.environ, "LOCAL_RANK", rank % local_world_size),
        node_rank=read_int(os.environ, "NODE_RANK", rank // local_world_size),
        world_size=world_size,
        local_world_size=min(local_world_size, world_size),
    )


def share_launch_key(purpose: str) -> str | None:
    """Return a key that the ranks of the process group share and no other launch has.

    It goes through the group's store: whoever comes first sets it, nobody waits for another rank,
    and no collective is involved, so a rank that never asks harms nothing. One request, about
    0.1 ms on one node. None without a group of several ranks, or where its store cannot do it.

    Args:
        purpose: What the key is for; the same on every rank, another for each run of a process.
    """
    group = _find_group()
    if group is None or int(group.get_world_size()) == 1:
        return None
    try:
        store = group.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way to it
        found = store.compare_set(f"costlens/launch/{purpose}", "", uuid.uuid4().hex)
    # A back-end without a store (MPI), a store that cannot compare, or one that is out of reach.
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    return _to_text(found)


class GroupBoard:
    """Texts in the store of the process group, under a prefix of their own.

    Args:
        store: The group's store, or a connection of its own to it.
        purpose: What tells this launch from others that used the same store.
    """

    def __init__(self, store: Any, purpose: str) -> None:  # noqa: ANN401 - torch is not imported
        self._store = store
        self._prefix = f"costlens/agree/{purpose}/"

    def read(self, key: str) -> str | None:
        """Return the text under a key, None while there is none; never waits for one."""
        name = self._prefix + key
        return _to_text(self._store.get(name)) if self._store.check([name]) else None

    def has_all(self, keys: Sequence[str]) -> bool:
        """Return whether there is a text under each of the keys; one request."""
        return bool(self._store.check([self._prefix + key for key in keys]))

    def replace(self, key: str, expected: str, text: str) -> str:
        """Put a text where the expected one stands and return what stands then; one request."""
        return _to_text(self._store.compare_set(self._prefix + key, expected, text))


def find_board(purpose: str) -> GroupBoard | None:
    """Return the board that the ranks of the process group share; None without a group of several.

    It has a connection of its own where torch offers that, so that a training thread that waits for
    the store does not hold it up, nor the other way round; no rank is waited for.

    Args:
        purpose: What tells this launch from others; the same on every rank.
    """
    group = _find_group()
    if group is None or int(group.get_world_size()) == 1:
        return None
    try:
        store = group.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way to it
    except (AttributeError, ValueError, RuntimeError):  # a back-end without a store (MPI)
        return None
    try:
        store = store.clone()
        store.set_timeout(timedelta(seconds=_STORE_TIMEOUT_S))
    except (AttributeError, TypeError, ValueError, RuntimeError):  # an older torch, or no network
        pass
    return GroupBoard(store, purpose)


def _to_text(found: bytes | str) -> str:
    return found.decode() if isinstance(found, bytes) else str(found)


def _find_group() -> Any | None:  # noqa: ANN401 - a module that may not be there
    _watch_forks()
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return None if any(module.group.WORLD is copy for copy in _inherited) else module


def _watch_forks() -> None:
    if not _state["registered"] and hasattr(os, "register_at_fork"):
        _state["registered"] = True
        os.register_at_fork(after_in_child=_note_fork)


def _note_fork() -> None:
    _inherited.clear()
    module = _find_group()
    if module is not None:
        _inherited.append(module.group.WORLD)
