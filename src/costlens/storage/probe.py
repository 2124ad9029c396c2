"""Tries whether a place can hold runs: a small object is made, refused twice, read and removed.

For whoever asks before a run; a run itself finds out with its first claim.
"""

from __future__ import annotations

import errno
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from costlens.core.clock import clock_offset_s
from costlens.errors import StorageError
from costlens.storage.location import parse_location
from costlens.storage.store import Store

__all__ = ["Probe", "probe_store"]

_CONTENT = b"costlens doctor was here and should have removed this\n"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a place that can hold runs is like.

    Args:
        took_s: Seconds that a create, a refused create, a read and a delete took.
        clock_offset_s: Seconds that its clock is ahead of this machine's at least, negative where
            it is behind; None where it does not tell.
    """

    took_s: float
    clock_offset_s: float | None


def probe_store(url: str) -> Probe:
    """Return what a place is like, after a create, a refused create, a read and a delete.

    Nothing stays: a local folder that did not exist is removed again.

    Args:
        url: A path or an fsspec URL.

    Raises:
        ConfigError: If `url` cannot be understood.
        StorageError: If the place refuses, or creates what is there already.
    """
    store, key = Store(url), f"costlens-doctor-{uuid.uuid4().hex}.probe"
    new_folders = _missing_folders(parse_location(url).path)
    began_s = time.perf_counter()
    try:
        offset_s = _try(store, key)
        return Probe(time.perf_counter() - began_s, offset_s)
    finally:
        # What could be made may be refused to be removed; then that is what is told.
        for folder in new_folders:
            with suppress(OSError):
                folder.rmdir()


def _try(store: Store, key: str) -> float | None:
    before_s = time.time()
    if not store.create(key, _CONTENT):
        raise _refused(store, "says that a new object exists already")
    after_s = time.time()
    try:
        if store.create(key, _CONTENT):
            raise _refused(
                store, "creates an object twice, so two launches could take the same number"
            )
        if store.read(key) != _CONTENT:
            raise _refused(store, "does not return what was written")
        written_s = store.written_s(key)
        return None if written_s is None else clock_offset_s(written_s, before_s, after_s)
    finally:
        store.delete(key)


def _refused(store: Store, what: str) -> StorageError:
    error = StorageError(
        f"{store.shown_url} {what}; choose a place with conditional writes, or a file system "
        "without a write-back cache"
    )
    error.errno = errno.ENOTSUP
    return error


def _missing_folders(path: Path | None) -> list[Path]:
    """Return the folders that a write would make, the innermost first."""
    if path is None:
        return []
    return [folder for folder in (path, *path.parents) if not folder.exists()]
