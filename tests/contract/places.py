"""The kinds of places that everything which keeps objects is tested on.

Another store needs one entry in `PLACES`, and nothing else where it needs no server.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Where a contract test runs.

    Args:
        new_url: Names a fresh place; None where `server` does.
        server: The object store it needs, as in `object_stores.servers`.
        is_seen_by_other_processes: Whether another process finds what this one wrote.
        grain_s: How far apart two writes are whose times surely differ.
    """

    new_url: Callable[[Path], str] | None = None
    server: str | None = None
    is_seen_by_other_processes: bool = True
    grain_s: float = 0.02


PLACES = {
    "local": Place(lambda tmp_path: str(tmp_path / "a b ü" / "runs")),
    "file-url": Place(lambda tmp_path: f"file://{tmp_path}/runs"),
    "memory": Place(
        lambda tmp_path: f"memory://{uuid.uuid4().hex}/runs", is_seen_by_other_processes=False
    ),
    "memory-bucket": Place(
        lambda tmp_path: f"memory://{uuid.uuid4().hex}", is_seen_by_other_processes=False
    ),
    "s3": Place(server="s3", grain_s=1.01),
    "azure": Place(server="azure"),
    "gcs": Place(server="gcs"),
}

SEEN_BY_ALL = [name for name, place in PLACES.items() if place.is_seen_by_other_processes]
