"""Where runs and checkpoints are kept: the only room that knows fsspec.

`store.Store` writes and reads whole objects under a local folder or a URL;
`run_folder.RunFolder` lays one run out in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Backend"]


class Backend(Protocol):
    """What `Store` needs of a place to keep objects in; keys are relative, checked and use ``/``.

    Attributes:
        num_parallel: How many objects of some MiB it is worth to write or read side by side, >= 1.

    Every method may block on disk or network. Failures are the backend's own exceptions: `Store`
    turns them into `StorageError`.
    """

    num_parallel: int

    def put(self, key: str, data: bytes | memoryview, *, durable: bool) -> None:
        """Replace the object so that a reader sees the old bytes or the new ones, never a part."""

    def put_many(self, objects: Mapping[str, bytes | memoryview], *, durable: bool) -> None:
        """Replace several objects, side by side where the place gains by it."""

    def create(self, key: str, data: bytes, *, durable: bool) -> bool:
        """Return whether this call made the object; False leaves the existing one alone."""

    def read(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes, no more than `max_bytes`, or None where there is no such object."""

    def read_into(self, key: str, target: memoryview) -> int | None:
        """Fill `target` from the object; return the object's bytes, or None where there is none."""

    def read_many_into(self, targets: Mapping[str, memoryview]) -> dict[str, int]:
        """Do as `read_into` for several, side by side where the place gains by it.

        Absent ones are left out.
        """

    def read_many(self, keys: list[str]) -> dict[str, bytes | Exception]:
        """Return bytes or the failure by key; absent objects are left out."""

    def walk(self, prefix: str) -> list[str]:
        """Return the keys of all objects at any depth under the folder `prefix`."""

    def children(self, prefix: str) -> list[str]:
        """Return the names directly under the folder `prefix`, those of folders ending in ``/``."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of each object directly under the folder `prefix`, by its name."""

    def versions(self, prefix: str) -> dict[str, str]:
        """Return what changes with each object directly under the folder, by its name.

        Empty for an object of which the place tells nothing that must change.
        """

    def written_s(self, key: str) -> float | None:
        """Return when the object was written, Unix seconds by the place's own clock.

        None where the place does not tell.
        """

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is fine."""

    def clear(self, prefix: str) -> None:
        """Remove the folder `prefix` and whatever is in it, temporaries too; absent is fine."""

    def remove_temporaries(self, prefix: str, older_than_s: float) -> int:
        """Return how many files, left directly in `prefix` by killed writers, were removed."""
