"""The order and the bookkeeping of a replay, over a sender that says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from costlens.errors import StorageError
from costlens.export.otlp_replay import (
    MAX_TRIES,
    Plan,
    Replay,
    Reply,
    Summary,
    endpoint_key,
    make_plan,
    shown_endpoint,
)
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from costlens.storage.telemetry_folder import Segment, TelemetryFolder
from costlens.testing import FakeClock

URL = "http://collector:4318"
KEY = endpoint_key(URL)
ACCEPTED = Reply("accepted", num_items=1)


def line(time_ns: int) -> bytes:
    """Return a line with one log record."""
    records = [{"timeUnixNano": str(time_ns)}]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()


class Endpoint:
    """Answers as it is told to; keeps what it accepted."""

    def __init__(self) -> None:
        self.accepted: list[tuple[str, bytes]] = []
        self.num_sent = 0
        self.answer: Callable[[int], Reply] = lambda _number: ACCEPTED

    def send(self, signal: str, sent: bytes) -> Reply:
        """Answer the next line."""
        reply = self.answer(self.num_sent)
        self.num_sent += 1
        if reply.state == "accepted":
            self.accepted.append((signal, sent))
        return reply

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> TelemetryFolder:
    return RunFolder(Store(tmp_path), "run").telemetry


@pytest.fixture(name="endpoint")
def _endpoint() -> Endpoint:
    return Endpoint()


def write(folder: TelemetryFolder, segment: Segment, *times_ns: int) -> list[bytes]:
    """Write a segment and return its lines."""
    lines = [line(time_ns) for time_ns in times_ns]
    folder.write(segment, b"".join(one + b"\n" for one in lines))
    return lines


def plan(folder: TelemetryFolder, *, is_live: bool = False) -> Plan:
    """Return what there is to send."""
    return make_plan(
        folder, KEY, signals={"traces", "metrics", "logs"}, is_live=lambda _attempt: is_live
    )


def replay(
    folder: TelemetryFolder,
    endpoint: Endpoint,
    *,
    rate: float = 1e6,
    clock: FakeClock | None = None,
) -> Summary:
    """Make a pass over all that is to be sent."""
    clock = clock or FakeClock()
    segments = [planned.segment for planned in plan(folder).segments]

    def pause(seconds: float) -> None:
        clock.advance(seconds)

    return Replay(folder, endpoint, URL, rate=rate, clock=clock, pause=pause).run(segments)


def test_a_plan_is_in_the_order_of_time(folder: TelemetryFolder) -> None:
    """Oldest first over ranks, attempts and signals, by the first line that can be read."""
    write(folder, Segment("logs", 1, 0, 1), 30)
    write(folder, Segment("logs", 1, 1, 0), 20, 5)
    write(folder, Segment("metrics", 1, 0, 0), 25)
    folder.write(Segment("logs", 1, 0, 0), b"broken\n" + line(10) + b"\n")
    found = plan(folder).segments
    assert [(p.segment.signal, p.first_ns, p.num_lines) for p in found] == [
        ("logs", 10, 2),
        ("logs", 20, 2),
        ("metrics", 25, 1),
        ("logs", 30, 1),
    ]


def test_a_plan_leaves_out_what_was_sent_and_tells_the_living_from_the_dead(
    folder: TelemetryFolder,
) -> None:
    """Marks of this endpoint count, those of others do not; open segments are never in it."""
    mine, others = Segment("logs", 1, 0, 0), Segment("logs", 1, 0, 1)
    write(folder, mine, 1)
    write(folder, others, 2)
    folder.mark_sent(mine, KEY, {})
    folder.mark_sent(others, endpoint_key("http://elsewhere:4318"), {})
    still_open = Segment("logs", 1, 0, 2)
    folder.write_open(still_open, line(3) + b"\n")
    found = plan(folder, is_live=True)
    assert ([p.segment for p in found.segments], found.num_sent) == ([others], 1)
    assert (found.live, found.dead) == ((still_open,), ())
    assert plan(folder).dead == (still_open,)


def test_everything_is_sent_once(folder: TelemetryFolder, endpoint: Endpoint) -> None:
    """A second pass has nothing to do; the mark says where it went and how much it was."""
    lines = write(folder, Segment("logs", 1, 0, 0), 1, 2, 3)
    summary = replay(folder, endpoint)
    assert (summary.is_complete, summary.num_segments, summary.num_requests) == (True, 1, 3)
    assert summary.num_items == {"logs": 3}
    assert replay(folder, endpoint) == Summary()
    assert [sent for _, sent in endpoint.accepted] == lines


@pytest.mark.parametrize("num_before", range(5))
def test_a_replay_goes_on_where_it_stopped(
    folder: TelemetryFolder, endpoint: Endpoint, num_before: int
) -> None:
    """The endpoint goes down after any number of lines: in the end it has each exactly once."""
    lines = write(folder, Segment("logs", 1, 0, 0), 1, 2)
    lines += write(folder, Segment("logs", 1, 0, 1), 3, 4, 5)
    endpoint.answer = lambda number: (
        ACCEPTED if number < num_before else Reply("unavailable", "503")
    )
    stopped = replay(folder, endpoint)
    assert stopped.stopped is not None
    assert stopped.stopped.endswith("503")
    assert not stopped.is_complete
    assert len(endpoint.accepted) == num_before
    endpoint.answer = lambda _number: ACCEPTED
    assert replay(folder, endpoint).is_complete
    assert [sent for _, sent in endpoint.accepted] == lines


@pytest.mark.parametrize("num_before", range(1, 5))
def test_a_kill_sends_one_line_twice_at_most(
    folder: TelemetryFolder,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    num_before: int,
) -> None:
    """Killed after an answer and before it was noted: that line goes out again, no other."""
    lines = write(folder, Segment("logs", 1, 0, 0), 1, 2)
    lines += write(folder, Segment("logs", 1, 0, 1), 3, 4)

    class Killed(BaseException):
        pass

    def die(*_args: object) -> None:
        if endpoint.num_sent == num_before:
            raise Killed

    with monkeypatch.context() as dying:
        for name in ("write_progress", "mark_sent"):
            real = getattr(TelemetryFolder, name)

            def note(*args: object, _real: Callable[..., None] = real) -> None:
                die()
                _real(*args)

            dying.setattr(TelemetryFolder, name, note)
        with pytest.raises(Killed):
            replay(folder, endpoint)
    assert replay(folder, endpoint).is_complete
    sent = [sent for _, sent in endpoint.accepted]
    assert sent == [*lines[:num_before], *lines[num_before - 1 :]]


def test_an_outage_is_waited_out(folder: TelemetryFolder, endpoint: Endpoint) -> None:
    """Pauses double from a second; what the endpoint asks for goes before, up to a minute."""
    write(folder, Segment("logs", 1, 0, 0), 1)
    asked = {0: None, 1: None, 2: 7.0, 3: 1e6}
    endpoint.answer = lambda number: (
        Reply("unavailable", "503", retry_after_s=asked[number]) if number in asked else ACCEPTED
    )
    clock = FakeClock()
    assert replay(folder, endpoint, clock=clock).is_complete
    assert clock.now_ns / 1e9 == pytest.approx(1 + 2 + 7 + 60, abs=0.01)


def test_a_dead_endpoint_ends_the_replay(folder: TelemetryFolder, endpoint: Endpoint) -> None:
    """After some tries of one line it stops, and says at which; the rest is not tried."""
    write(folder, Segment("logs", 1, 0, 0), 1, 2)
    write(folder, Segment("metrics", 1, 0, 0), 3)
    endpoint.answer = lambda _number: Reply("unavailable", "nobody there")
    summary = replay(folder, endpoint)
    assert summary.stopped == "logs-1-0-000000.jsonl line 1: nobody there"
    assert endpoint.num_sent == MAX_TRIES


@pytest.mark.parametrize("state", ["refused", "corrupt"])
def test_a_refused_line_is_named_and_tried_again_next_time(
    folder: TelemetryFolder, endpoint: Endpoint, state: str
) -> None:
    """Its segment is not through, and the next replay sends that line alone."""
    lines = write(folder, Segment("logs", 1, 0, 0), 1, 2, 3)
    endpoint.answer = lambda number: Reply(state, "too old") if number == 1 else ACCEPTED  # type: ignore[arg-type]
    summary = replay(folder, endpoint)
    assert summary.problems == [f"logs-1-0-000000.jsonl line 2: {state}: too old"]
    assert (summary.num_segments, summary.num_requests) == (0, 2)
    endpoint.answer = lambda _number: ACCEPTED
    again = replay(folder, endpoint)
    assert (again.is_complete, again.num_segments, again.num_requests) == (True, 1, 1)
    assert [sent for _, sent in endpoint.accepted] == [lines[0], lines[2], lines[1]]


def test_a_line_taken_in_part_is_never_sent_again(
    folder: TelemetryFolder, endpoint: Endpoint
) -> None:
    """The specification forbids it, for the accepted part would be doubled; it stays named."""
    write(folder, Segment("logs", 1, 0, 0), 1, 2)
    endpoint.answer = lambda number: Reply("partial", "3 too old") if number == 0 else ACCEPTED
    for num_requests in (1, 0):
        summary = replay(folder, endpoint)
        assert summary.problems == ["logs-1-0-000000.jsonl line 1: partial: 3 too old"]
        assert (summary.num_requests, summary.num_segments) == (num_requests, 0)
    assert endpoint.num_sent == 2


def test_a_signal_that_is_denied_is_tried_once(folder: TelemetryFolder, endpoint: Endpoint) -> None:
    """A back-end of another signal, or wrong credentials: said once, other signals go on."""
    for number in range(3):
        write(folder, Segment("traces", 1, 0, number), number, number)
    write(folder, Segment("metrics", 1, 0, 0), 10)
    endpoint.answer = lambda number: Reply("denied", "HTTP 404") if number == 0 else ACCEPTED
    summary = replay(folder, endpoint)
    assert summary.problems == ["traces: HTTP 404"]
    assert [signal for signal, _ in endpoint.accepted] == ["metrics"]
    assert replay(folder, endpoint).num_requests == 6


def test_the_rate_is_kept(folder: TelemetryFolder, endpoint: Endpoint) -> None:
    """100 lines at 20 a second take five seconds, however fast the endpoint is."""
    write(folder, Segment("logs", 1, 0, 0), *range(101))
    clock = FakeClock()
    replay(folder, endpoint, rate=20, clock=clock)
    assert clock.now_ns / 1e9 == pytest.approx(5.0, abs=0.01)


def test_a_segment_that_the_limit_took_is_named(
    folder: TelemetryFolder, endpoint: Endpoint
) -> None:
    """A live rank deleted it after it was planned; the rest is sent."""
    gone, there = Segment("logs", 1, 0, 0), Segment("logs", 1, 0, 1)
    write(folder, gone, 1)
    write(folder, there, 2)
    folder.delete(gone)
    summary = Replay(folder, endpoint, URL, rate=1e6, clock=FakeClock()).run([gone, there])
    assert len(summary.problems) == 1
    assert "logs-1-0-000000.jsonl: gone" in summary.problems[0]
    assert summary.num_segments == 1


def test_progress_that_cannot_be_noted_ends_the_replay(
    folder: TelemetryFolder, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a note the next replay would double lines: a read-only folder is an error."""
    write(folder, Segment("logs", 1, 0, 0), 1, 2)

    def refuse(*_args: object, **_options: object) -> None:
        raise StorageError("read-only")

    monkeypatch.setattr(Store, "put", refuse)
    with pytest.raises(StorageError, match="read-only"):
        replay(folder, endpoint)
    assert endpoint.num_sent == 1


def test_endpoints_are_told_apart_by_address_alone() -> None:
    """Neither credentials nor a slash at the end nor the case of the host make another endpoint."""
    same = ("http://c:4318", "http://c:4318/", "http://user:secret@c:4318", "http://C:4318")
    assert len({endpoint_key(url) for url in same}) == 1
    different = ("http://c:4318", "https://c:4318", "http://c:4319", "http://c:4318/otlp", "c:4317")
    assert len({endpoint_key(url) for url in different}) == 5
    assert shown_endpoint("http://user:secret@c:4318/a?token=x") == "http://c:4318/a"
    assert shown_endpoint("c:4317") == "c:4317"
