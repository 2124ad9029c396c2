"""What a person sees of the checkpoints in a place: each with its state, and which one is next.

Judges as a resume does (`shelf.Shelf.load_newest`) and changes nothing. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from costlens.errors import CheckpointError, StorageError
from costlens.protect.commit import manifest_key
from costlens.protect.manifest import CheckpointName, Manifest
from costlens.protect.shelf import Shelf
from costlens.storage.names import safe_name
from costlens.storage.store import Store

__all__ = ["Entry", "Health", "choose", "find_shelves", "look_through"]

Health = Literal["whole", "broken", "rejected", "unreachable"]
"""As it should be; not what its manifest says; marked by an earlier start; not readable now."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A checkpoint as it stands in the store.

    Args:
        name: Its name.
        health: Whether it can be used.
        reason: Why not; None where it can.
        manifest: None where it cannot be read, or was not looked at.
        is_verified: Whether every byte was read and compared, rather than sizes alone.
        is_left: Whether a later start has begun anew, so that no resume takes it.
    """

    name: CheckpointName
    health: Health
    reason: str | None = None
    manifest: Manifest | None = None
    is_verified: bool = False
    is_left: bool = False


def find_shelves(store: Store) -> list[Shelf]:
    """Return the runs that have manifests in a place, sorted by id.

    Raises:
        StorageError: If the store cannot be listed.
    """
    folders = [each.rstrip("/") for each in store.children() if each.endswith("/")]
    found = [Shelf(store, folder) for folder in folders if safe_name(folder) == folder]
    return [Shelf(store, _run_id(shelf, names)) for shelf in found if (names := shelf.names())]


def look_through(shelf: Shelf, *, verify: bool) -> Iterator[Entry]:
    """Yield the checkpoints of a run, newest first.

    Args:
        shelf: The run.
        verify: Read every byte of them, rather than compare sizes.

    Raises:
        StorageError: If the store cannot be listed.
    """
    names, marked = shelf.names(), shelf.marked()
    since = shelf.find_lineage(names)
    for name in names:
        is_left = name.stamp < since
        if (reason := marked.get(str(name))) is not None:
            reason = f"an earlier start found that {reason}"
            yield Entry(name, "rejected", reason, is_left=is_left)
            continue
        try:
            found = shelf.verify(name) if verify else shelf.check(name)
        except CheckpointError as error:
            yield Entry(name, "broken", str(error), is_left=is_left)
        except StorageError as error:
            yield Entry(name, "unreachable", str(error), is_left=is_left)
        else:
            yield Entry(name, "whole", None, found.manifest, verify, is_left)


def choose(entries: list[Entry]) -> tuple[Entry | None, str]:
    """Return what a resume would use, and why that one.

    Args:
        entries: Of one run, newest first.
    """
    entries = [entry for entry in entries if not entry.is_left]
    for position, entry in enumerate(entries):
        if entry.health == "whole":
            passed = f"{position} newer {'one is' if position == 1 else 'ones are'} passed over"
            why = "it is the newest" if position == 0 else f"{passed}: {entries[0].reason}"
            checked = "every byte verified" if entry.is_verified else "sizes right, bytes not read"
            return entry, f"{why}; {checked}"
    return None, "none of them can be used, so training would start afresh"


def _run_id(shelf: Shelf, names: list[CheckpointName]) -> str:
    """Return the id that a run's manifests give, whose safe form its folder is."""
    for name in names:
        try:
            data = shelf.store.read(manifest_key(shelf.run_id, name))
            run_id = Manifest.parse(data or b"").run_id
        except (CheckpointError, StorageError):
            continue
        if safe_name(run_id) == shelf.run_id:
            return run_id
    return shelf.run_id
