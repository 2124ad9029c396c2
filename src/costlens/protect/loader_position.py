"""Where a data loader is: told at a save, found again at a resume, without loading a sample twice.

A plain DataLoader over a data set with indices is followed through its sampler
(``index_position.py``); a loader that knows its own state, as torchdata's StatefulDataLoader, is
asked for it (``own_position.py``); of anything else only the passes are counted, and what a resume
cannot restore is named.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.utils.data import IterableDataset

from costlens.protect.index_position import IndexPosition
from costlens.protect.own_position import OwnPosition
from costlens.protect.position import Position

__all__ = ["Position", "follow"]


def follow(
    loader: object, report: Callable[[str], None], *, can_look_back: bool = False
) -> Position:
    """Return the position of a loader, told from now on; training thread, before its next pass.

    Args:
        loader: What the loop iterates, itself and not a wrapper around it.
        report: Takes a sentence on what turns out inexact when a restored pass begins.
        can_look_back: Whether the loop fetches a batch ahead of the one it trains on. A loader
            followed by its indices can tell its place before that batch anyway; one with a state
            of its own is then asked for it before each fetch.
    """
    if all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict")):
        return OwnPosition(loader, report, can_look_back=can_look_back)
    has_indices = callable(getattr(loader, "_get_iterator", None)) and not isinstance(
        getattr(loader, "dataset", None), IterableDataset
    )
    return IndexPosition(loader, report) if has_indices else Position(loader, report)
