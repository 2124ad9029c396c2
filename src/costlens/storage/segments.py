"""Closed segments: files of lines that are written once and never changed.

What ``run_folder`` and ``telemetry_folder`` have in common; calls block on the store.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from costlens.errors import StorageError
from costlens.storage.store import Store

__all__ = ["join_lines", "split_lines", "write_closed"]


def join_lines(lines: Sequence[bytes]) -> bytes:
    """Return the content of a segment.

    Args:
        lines: One JSON text each, without line breaks.

    Raises:
        ValueError: If a line holds a line break.
    """
    if any(b"\n" in line for line in lines):
        raise ValueError("a line of a segment must not hold a line break")
    return b"".join(line + b"\n" for line in lines)


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a segment; one that was cut off counts as a line."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def write_closed(store: Store, key: str, data: bytes) -> None:
    """Write a file that is never changed again.

    Writing the same once more is fine, so a write whose answer was lost may be repeated.

    Args:
        store: Where to.
        key: Relative path.
        data: The whole content.

    Raises:
        StorageError: If the store refuses, or has other content under this key (``EEXIST``).
    """
    if store.create(key, data) or store.read(key) == data:
        return
    error = StorageError(
        f"{key!r} in {store.shown_url} exists with other content; a closed segment is never "
        "rewritten: use the next number"
    )
    error.errno = errno.EEXIST
    raise error
