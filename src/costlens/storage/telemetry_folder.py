"""The telemetry of a run as files: closed segments, the open ones, and what was replayed where.

Every rank writes its own segments (``export/otlp_file.py``), ``costlens replay`` reads them and
leaves marks beside them. Exclusive creates and whole replacements are enough: nothing is locked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from costlens.errors import StorageError
from costlens.storage.json_object import decode_object
from costlens.storage.segments import write_closed
from costlens.storage.store import Store

__all__ = ["Listing", "Segment", "TelemetryFolder"]

_FOLDER = "telemetry"
_OPEN = ".open"
_NAME = re.compile(
    r"(traces|metrics|logs)-(\d+)-(\d+)-(\d{6,})\.jsonl(?:(\.open)|\.sent-([0-9a-f]+))?"
)


@dataclass(frozen=True, order=True, slots=True)
class Segment:
    """One file of telemetry.

    Args:
        signal: traces, metrics or logs.
        attempt: Number of the attempt, from 1.
        rank: The rank, from 0.
        number: From 0, in the order of time.
    """

    signal: str
    attempt: int
    rank: int
    number: int

    @property
    def name(self) -> str:
        """Return the file's name."""
        return f"{self.signal}-{self.attempt}-{self.rank}-{self.number:06d}.jsonl"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a run's telemetry folder holds.

    Args:
        closed: Bytes by closed segment.
        open: Segments that a rank was writing when it last saved them.
        sent: Segments with the endpoint keys that have all of them.
    """

    closed: Mapping[Segment, int]
    open: frozenset[Segment]
    sent: frozenset[tuple[Segment, str]]


class TelemetryFolder:
    """The telemetry files of one run; every call is a request or two to the store.

    Args:
        store: What holds the folders of all runs.
        run_id: The run, safe as a path.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._folder = f"{run_id}/{_FOLDER}"

    def list(self) -> Listing:
        """Return what is there; files of other kinds are not looked at.

        Raises:
            StorageError: If the store cannot be listed.
        """
        closed, is_open, sent = {}, set(), set()
        for name, num_bytes in self._store.sizes(self._folder).items():
            if match := _NAME.fullmatch(name):
                segment = Segment(match[1], int(match[2]), int(match[3]), int(match[4]))
                if match[5]:
                    is_open.add(segment)
                elif match[6]:
                    sent.add((segment, match[6]))
                else:
                    closed[segment] = num_bytes
        # A rank that was killed between closing a segment and removing its open form left both.
        return Listing(closed, frozenset(is_open - closed.keys()), frozenset(sent))

    def read(self, segment: Segment) -> bytes | None:
        """Return a closed segment, or None where it is gone.

        Raises:
            StorageError: If it cannot be read.
        """
        return self._store.read(self._key(segment))

    def write(self, segment: Segment, data: bytes) -> None:
        """Write a closed segment, which is never changed again; twice the same is fine.

        Raises:
            StorageError: If the store refuses, or has another segment there (``EEXIST``).
        """
        write_closed(self._store, self._key(segment), data)

    def write_open(self, segment: Segment, data: bytes) -> None:
        """Replace the open form of a segment, for the case that its rank is killed.

        Raises:
            StorageError: If the store refuses.
        """
        self._store.put(self._key(segment) + _OPEN, data)

    def remove_open(self, segment: Segment) -> None:
        """Remove the open form of a segment.

        Raises:
            StorageError: If it is still there.
        """
        self._store.delete(self._key(segment) + _OPEN)

    def adopt(self, segment: Segment) -> None:
        """Close a segment that a dead rank left open; the lines it saved are whole.

        Raises:
            StorageError: If the store refuses.
        """
        data = self._store.read(self._key(segment) + _OPEN)
        if data:
            # Whoever was faster, another replay or the rank itself, has closed it.
            self._store.create(self._key(segment), data)
        self.remove_open(segment)

    def delete(self, segment: Segment) -> None:
        """Remove a closed segment.

        Raises:
            StorageError: If it is still there.
        """
        self._store.delete(self._key(segment))

    def mark_sent(self, segment: Segment, endpoint_key: str, details: Mapping[str, object]) -> None:
        """Note that an endpoint has all of a segment, once and for good.

        Args:
            segment: The segment.
            endpoint_key: Hexadecimal hash of the endpoint.
            details: JSON values for people.

        Raises:
            StorageError: If the store refuses.
        """
        self._store.create(f"{self._key(segment)}.sent-{endpoint_key}", _to_json(details))
        self._store.delete(self._progress_key(segment, endpoint_key))

    def write_progress(
        self, segment: Segment, endpoint_key: str, progress: Mapping[str, object]
    ) -> None:
        """Replace the note of how far a replay has come in a segment.

        Raises:
            StorageError: If the store refuses.
        """
        self._store.put(self._progress_key(segment, endpoint_key), _to_json(progress))

    def read_progress(self, segment: Segment, endpoint_key: str) -> dict[str, object]:
        """Return the note of how far a replay has come, empty where there is none.

        Raises:
            StorageError: If it cannot be read, or is not such a note.
        """
        key = self._progress_key(segment, endpoint_key)
        data = self._store.read(key)
        try:
            return decode_object(data or b"{}")
        except ValueError:
            raise StorageError(
                f"{key!r} in {self._store.shown_url} does not say how far a replay has come; "
                "remove it to send that segment again from its first line"
            ) from None

    def _key(self, segment: Segment) -> str:
        return f"{self._folder}/{segment.name}"

    def _progress_key(self, segment: Segment, endpoint_key: str) -> str:
        return f"{self._key(segment)}.progress-{endpoint_key}"


def _to_json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()
