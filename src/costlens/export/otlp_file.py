"""Lines of telemetry into closed segments in the run folder, bounded in size and in loss by a kill.

``otel_file`` encodes batches and calls this on the thread of the ``files`` worker; ``costlens
replay`` sends the segments later. OpenTelemetry is not needed here.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.log import log
from costlens.errors import StorageError
from costlens.export.otel_settings import ExportSettings
from costlens.export.otlp_json import read_facts
from costlens.storage.identity import Identity
from costlens.storage.segments import join_lines, split_lines
from costlens.storage.telemetry_folder import Segment, TelemetryFolder

__all__ = ["SegmentWriter", "wants_files"]

SEGMENT_BYTES = 1024 * 1024
SEGMENT_S = 600.0
SAVE_S = 60.0
"""Seconds between two writes of a segment's open form: what a kill can cost."""

_MAX_TRIES = 100


@dataclass(slots=True)
class _Part:
    """A segment in the making."""

    segment: Segment
    opened_ns: int
    saved_ns: int
    lines: list[bytes] = field(default_factory=list)
    num_bytes: int = 0
    num_saved: int = 0


def wants_files(settings: ExportSettings, *, asked: bool | None) -> bool:
    """Return whether telemetry goes to files.

    Args:
        settings: What goes out over OTLP.
        asked: The setting ``otlp_file``; None leaves it to whether anything goes out.
    """
    if asked is not None:
        return asked
    return not (settings.signals or settings.is_disabled)


class SegmentWriter:
    """Gathers the lines of one rank; a segment is closed at 1 MiB or after ten minutes.

    Once a minute the open segments are written as they are, so that a killed rank loses a minute;
    the rank's next attempt, or a replay, closes them. Above ``max_bytes`` the oldest segments go,
    those of the signal first that takes most, so that metrics do not displace a run's few traces.
    One thread at a time; in memory are at most 1 MiB a signal.

    Args:
        find_identity: Returns the identity of the run, or None while it is not settled.
        rank: This process's rank, from 0.
        max_bytes: Most bytes of this rank's closed segments over all attempts of the run, > 0; a
            segment in the making comes on top.
        clock: Monotonic nanoseconds.

    Attributes:
        num_items_deleted: Items in segments that went because of ``max_bytes``.
    """

    def __init__(
        self,
        find_identity: Callable[[], Identity | None],
        rank: int,
        *,
        max_bytes: int,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self.num_items_deleted = 0
        self._find_identity = find_identity
        self._rank = rank
        self._max_bytes = max_bytes
        self._clock = clock
        self._folder: TelemetryFolder | None = None
        self._attempt = 0
        self._parts: dict[str, _Part] = {}
        self._next_numbers: Counter[str] = Counter()
        self._sizes: dict[Segment, int] = {}

    def add(self, signal: str, line: bytes) -> None:
        """Take a line; writes what is due before, so that a line is taken or the call has failed.

        Args:
            signal: traces, metrics or logs.
            line: OTLP JSON without line breaks.

        Raises:
            StorageError: If the run folder refuses; the line was not taken and may be given again.
        """
        folder = self._opened()
        now_ns = self._clock()
        for part in list(self._parts.values()):
            if now_ns - part.opened_ns >= SEGMENT_S * NS_PER_S:
                self._close(folder, part)
            elif now_ns - part.saved_ns >= SAVE_S * NS_PER_S:
                _save(folder, part, now_ns)
        open_part = self._parts.get(signal)
        if open_part is not None and open_part.num_bytes + len(line) >= SEGMENT_BYTES:
            self._close(folder, open_part)
        if signal not in self._parts:
            segment = Segment(signal, self._attempt, self._rank, self._next_numbers[signal])
            self._parts[signal] = _Part(segment, opened_ns=now_ns, saved_ns=now_ns)
        part = self._parts[signal]
        part.lines.append(line)
        part.num_bytes += len(line) + 1

    def close(self) -> None:
        """Close all segments; lines given afterwards make new ones.

        Raises:
            StorageError: If the run folder refuses; may be called again.
        """
        for part in list(self._parts.values()):
            self._close(self._opened(), part)

    def count_unsaved(self) -> int:
        """Return how many items no file holds; after ``close`` those that could not be written."""
        parts = list(self._parts.values())
        return sum(_count_items(part.lines[part.num_saved :]) for part in parts)

    def _opened(self) -> TelemetryFolder:
        if self._folder is None:
            identity = self._find_identity()
            if identity is None:
                raise StorageError("the run has no folder: its identity could not be settled")
            folder, self._attempt = identity.folder.telemetry, identity.attempt
            self._take_over(folder)
            self._folder = folder
        return self._folder

    def _take_over(self, folder: TelemetryFolder) -> None:
        """Learn what this rank wrote before, and close what its earlier lives left open."""
        listing = folder.list()
        for segment in sorted(listing.open):
            if segment.rank == self._rank:
                folder.adopt(segment)
        own = folder.list() if listing.open else listing
        self._sizes = {s: size for s, size in own.closed.items() if s.rank == self._rank}
        for segment in self._sizes:
            if segment.attempt == self._attempt:
                after = segment.number + 1
                self._next_numbers[segment.signal] = max(self._next_numbers[segment.signal], after)

    def _close(self, folder: TelemetryFolder, part: _Part) -> None:
        saved_as = part.segment
        data = _write(folder, part)
        self._next_numbers[part.segment.signal] = part.segment.number + 1
        if data:
            self._sizes[part.segment] = len(data)
        if part.num_saved:
            with suppress(StorageError):  # beside a closed segment its open form counts for nothing
                folder.remove_open(saved_as)
        self._shrink(folder)
        del self._parts[part.segment.signal]

    def _shrink(self, folder: TelemetryFolder) -> None:
        while sum(self._sizes.values()) > self._max_bytes and len(self._sizes) > 1:
            by_signal: Counter[str] = Counter()
            for segment, num_bytes in self._sizes.items():
                by_signal[segment.signal] += num_bytes
            biggest = by_signal.most_common(1)[0][0]
            oldest = min(segment for segment in self._sizes if segment.signal == biggest)
            if not self.num_items_deleted:
                log.warning(
                    "costlens.telemetry.limit",
                    message="telemetry files have reached their limit, from now on the oldest go; "
                    "COSTLENS_OTLP_FILE_MAX_MB raises it",
                )
            self.num_items_deleted += _count_items(split_lines(folder.read(oldest) or b""))
            folder.delete(oldest)
            del self._sizes[oldest]


def _save(folder: TelemetryFolder, part: _Part, now_ns: int) -> None:
    if part.num_saved < len(part.lines):
        folder.write_open(part.segment, join_lines(part.lines))
        part.num_saved = len(part.lines)
    part.saved_ns = now_ns


def _write(folder: TelemetryFolder, part: _Part) -> bytes:
    """Write a part under the first free number and return what was written.

    A number can be taken where this rank was held for dead and its open segment closed for it; then
    only the lines that came later are left to write.
    """
    for _ in range(_MAX_TRIES):
        data = join_lines(part.lines)
        if not data:
            break
        try:
            folder.write(part.segment, data)
        except StorageError as error:
            if error.errno != errno.EEXIST:
                raise
            taken = folder.read(part.segment) or b""
            if taken and data.startswith(taken):
                part.lines = split_lines(data[len(taken) :])
            part.segment = replace(part.segment, number=part.segment.number + 1)
        else:
            return data
    return b""


def _count_items(lines: Sequence[bytes]) -> int:
    num_items = 0
    for line in lines:
        with suppress(ValueError):  # a line that somebody damaged
            num_items += read_facts(line).num_items
    return num_items
