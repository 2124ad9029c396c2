"""Sends the telemetry files of a run later: in the order of time, each line once, resumable.

``cli/replay.py`` makes a plan and runs it over a sender of ``otel_replay``. What an endpoint has is
noted beside the segments, so that the next replay goes on where this one stopped.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import urlsplit, urlunsplit

from costlens.core.clock import NS_PER_S, Clock
from costlens.export.otlp_json import read_facts
from costlens.storage.segments import split_lines
from costlens.storage.telemetry_folder import Segment, TelemetryFolder

__all__ = [
    "Plan",
    "Planned",
    "Replay",
    "Reply",
    "Sender",
    "Summary",
    "endpoint_key",
    "make_plan",
    "shown_endpoint",
]

MAX_TRIES = 6
"""Tries of one line before a replay stops; with their pauses about half a minute."""

_MAX_PAUSE_S = 60.0

ReplyState = Literal["accepted", "partial", "refused", "corrupt", "denied", "unavailable"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a line.

    Args:
        state: accepted; partial: the endpoint dropped some of its items for good; refused: it did
            not want the line; corrupt: the line is not OTLP; denied: it takes nothing of this
            signal from us; unavailable: the same may succeed later.
        reason: Why, for people.
        num_items: Spans, data points or log records in the line.
        retry_after_s: How long the endpoint asks to wait, if it does.
    """

    state: ReplyState
    reason: str = ""
    num_items: int = 0
    retry_after_s: float | None = None


class Sender(Protocol):
    """A connection to an endpoint."""

    def send(self, signal: str, line: bytes) -> Reply:
        """Send one line and return what became of it; one try, blocks for the export timeout."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A segment to be sent.

    Args:
        segment: Which.
        num_lines: Lines it holds.
        first_ns: Unix time of the oldest item in its first readable line; 0 if there is none.
    """

    segment: Segment
    num_lines: int
    first_ns: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replay has to do.

    Args:
        segments: What is to be sent, the oldest first over all ranks and signals: back-ends drop
            what lies too far behind the newest they have.
        num_sent: Segments the endpoint has already.
        dead: Open segments of ranks that are over; ``adopt`` makes them segments to be sent.
        live: Open segments of ranks that may be running; left alone.
    """

    segments: tuple[Planned, ...]
    num_sent: int
    dead: tuple[Segment, ...]
    live: tuple[Segment, ...]


@dataclass(slots=True)
class Summary:
    """What a replay did.

    Attributes:
        num_segments: Segments that the endpoint now has completely.
        num_requests: Lines it accepted.
        num_items: Spans, data points and log records in them, by signal.
        problems: One sentence for each line that it does not have, and why.
        stopped: Why the replay ended early, if it did.
    """

    num_segments: int = 0
    num_requests: int = 0
    num_items: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    stopped: str | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether the endpoint has everything."""
        return not self.problems and self.stopped is None


def endpoint_key(url: str) -> str:
    """Return a hash of an endpoint's address, without user and password, for names of files."""
    return hashlib.sha256(_without_user(url).rstrip("/").encode()).hexdigest()[:16]


def shown_endpoint(url: str) -> str:
    """Return an endpoint's address for people: without user, password and query."""
    return urlunsplit(urlsplit(_without_user(url))._replace(query="", fragment=""))


def make_plan(
    folder: TelemetryFolder,
    key: str,
    *,
    signals: Collection[str],
    is_live: Callable[[int], bool],
) -> Plan:
    """Return what is to be sent; reads every segment that is not sent yet, and changes nothing.

    Args:
        folder: The run's telemetry.
        key: The endpoint's.
        signals: Which signals to send.
        is_live: Whether an attempt may still be running.

    Raises:
        StorageError: If the folder cannot be read.
    """
    listing = folder.list()
    closed = [s for s in listing.closed if s.signal in signals]
    unsent = [s for s in closed if (s, key) not in listing.sent]
    planned = (_look_into(folder, segment) for segment in unsent)
    found = sorted((p for p in planned if p is not None), key=lambda p: (p.first_ns, p.segment))
    left = sorted(s for s in listing.open if s.signal in signals)
    return Plan(
        tuple(found),
        len(closed) - len(unsent),
        dead=tuple(s for s in left if not is_live(s.attempt)),
        live=tuple(s for s in left if is_live(s.attempt)),
    )


class Replay:
    """One pass over a plan; stops when the endpoint does not answer any more.

    Killed at any moment, the next pass sends at most the one line that was on its way once more.

    Args:
        folder: The run's telemetry.
        sender: The connection.
        url: The endpoint.
        rate: Most lines a second, > 0.
        clock: Monotonic nanoseconds.
        pause: Waits the given seconds.
        on_line: Called after every line, for a progress bar.
    """

    def __init__(  # noqa: PLR0913 - clock and pause are there for tests
        self,
        folder: TelemetryFolder,
        sender: Sender,
        url: str,
        *,
        rate: float,
        clock: Clock = time.monotonic_ns,
        pause: Callable[[float], None] = time.sleep,
        on_line: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._sender = sender
        self._url = url
        self._key = endpoint_key(url)
        self._interval_ns = int(NS_PER_S / rate)
        self._clock = clock
        self._pause = pause
        self._on_line = on_line
        self._next_ns = clock()
        self._summary = Summary()
        self._denied: set[str] = set()

    def run(self, segments: Iterable[Segment]) -> Summary:
        """Send the segments in their order and return what became of them.

        Raises:
            StorageError: If the folder cannot be read, or what was sent cannot be noted.
        """
        for segment in segments:
            if segment.signal not in self._denied:
                self._send_segment(segment)
            if self._summary.stopped is not None:
                break
        return self._summary

    def _send_segment(self, segment: Segment) -> None:
        data = self._folder.read(segment)
        if data is None:
            self._tell(f"{segment.name}: gone, probably because of its rank's size limit")
            return
        lines = split_lines(data)
        progress = _Progress(self._folder.read_progress(segment, self._key))
        for number in progress.left(len(lines)):
            reply = self._deliver(segment.signal, lines[number])
            if reply.state == "denied":
                self._denied.add(segment.signal)
                self._tell(f"{segment.signal}: {reply.reason}")
                return
            if reply.state == "unavailable":
                self._summary.stopped = f"{segment.name} line {number + 1}: {reply.reason}"
                return
            progress.note(number, reply)
            if reply.state == "accepted":
                self._summary.num_requests += 1
                self._summary.num_items[segment.signal] += reply.num_items
            if not progress.is_through(len(lines)):
                self._folder.write_progress(segment, self._key, progress.to_note())
            self._on_line()
        self._finish(segment, lines, progress)

    def _finish(self, segment: Segment, lines: list[bytes], progress: _Progress) -> None:
        for number, why in sorted(progress.problems.items()):
            self._tell(f"{segment.name} line {number + 1}: {why}")
        if progress.is_through(len(lines)):
            details = {"endpoint": shown_endpoint(self._url), "lines": len(lines)}
            self._folder.mark_sent(segment, self._key, details)
            self._summary.num_segments += 1

    def _deliver(self, signal: str, line: bytes) -> Reply:
        """Send a line, again after a pause while the endpoint cannot take it."""
        pause_s = 1.0
        for last_try in (False,) * (MAX_TRIES - 1) + (True,):
            wait_ns = self._next_ns - self._clock()
            if wait_ns > 0:
                self._pause(wait_ns / NS_PER_S)
            self._next_ns = self._clock() + self._interval_ns
            reply = self._sender.send(signal, line)
            if reply.state != "unavailable" or last_try:
                break
            asked_s = pause_s if reply.retry_after_s is None else reply.retry_after_s
            self._pause(min(asked_s, _MAX_PAUSE_S))
            pause_s *= 2
        return reply

    def _tell(self, problem: str) -> None:
        self._summary.problems.append(problem)


class _Progress:
    """How far a segment was sent: all lines before ``next_line`` but those with a problem."""

    def __init__(self, note: dict[str, object]) -> None:
        problems, next_line = note.get("problems"), note.get("next_line")
        self.next_line = next_line if isinstance(next_line, int) else 0
        self.problems = (
            {int(number): str(why) for number, why in problems.items()}
            if isinstance(problems, dict)
            else {}
        )

    def left(self, num_lines: int) -> list[int]:
        """Return the lines to send: those refused before, then those never tried."""
        again = [n for n, why in self.problems.items() if not why.startswith("partial")]
        return [*sorted(again), *range(self.next_line, num_lines)]

    def note(self, number: int, reply: Reply) -> None:
        """Take a line's fate into account."""
        self.next_line = max(self.next_line, number + 1)
        self.problems.pop(number, None)
        if reply.state != "accepted":
            self.problems[number] = f"{reply.state}: {reply.reason}"

    def is_through(self, num_lines: int) -> bool:
        """Return whether every line was accepted."""
        return not self.problems and self.next_line >= num_lines

    def to_note(self) -> dict[str, object]:
        """Return what the next replay has to know."""
        return {
            "next_line": self.next_line,
            "problems": {str(number): why for number, why in self.problems.items()},
        }


def _look_into(folder: TelemetryFolder, segment: Segment) -> Planned | None:
    data = folder.read(segment)
    if data is None:  # deleted since it was listed
        return None
    lines = split_lines(data)
    for line in lines:
        with suppress(ValueError):
            return Planned(segment, len(lines), read_facts(line).first_ns)
    return Planned(segment, len(lines), 0)


def _without_user(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"//{url}")
    netloc = parts.netloc.rpartition("@")[2].lower()
    return urlunsplit(parts._replace(netloc=netloc)).removeprefix("//")
