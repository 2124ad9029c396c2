"""What the clouds say of a machine they are about to take, from a server that speaks as they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from costlens.core.log import log
from costlens.protect.notices import (
    AwsNotices,
    AzureNotices,
    GcpNotices,
    Notice,
    NoticePoller,
    make_source,
)
from tests.log_events import capture_events
from tests.unit.protect.metadata_server import MetadataServer

NOON = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


@pytest.fixture(name="server")
def _server() -> Iterator[MetadataServer]:
    with MetadataServer() as server:
        yield server


def test_aws_tells_what_happens_and_when(server: MetadataServer) -> None:
    """Nothing is planned is a 404; a plan has its time."""
    source = AwsNotices(server.url, lambda: NOON)
    assert source.ask() is None
    server.action = {"action": "terminate", "time": "2026-09-21T14:15:20Z"}
    assert source.ask() == Notice("aws:terminate", 120.0)


def test_aws_gets_a_new_token_when_the_old_one_has_expired(server: MetadataServer) -> None:
    """The refused request is a failure; the one after it works."""
    source = AwsNotices(server.url, lambda: NOON)
    assert source.ask() is None
    server.token = "token-2"
    with pytest.raises(OSError, match="401"):
        source.ask()
    assert source.ask() is None


def test_gcp_answers_when_it_happens(server: MetadataServer) -> None:
    """The second request hangs until there is something to say: 5 s would pass otherwise."""
    source = GcpNotices(server.url)
    assert source.ask() is None
    answers: list[Notice | None] = []
    asking = threading.Thread(target=lambda: answers.append(source.ask()))
    asking.start()
    server.preempted.set()
    asking.join(4)
    assert answers == [Notice("gcp:preempted")]


@pytest.mark.parametrize(
    ("event", "notice"),
    [
        (
            {"EventType": "Preempt", "NotBefore": "Mon, 21 Sep 2026 14:13:50 GMT"},
            Notice("azure:preempt", 30.0),
        ),
        ({"EventType": "Terminate", "NotBefore": ""}, Notice("azure:terminate")),
        ({"EventType": "Freeze", "NotBefore": ""}, None),
        ({"EventType": "Preempt", "Resources": ["node-8"]}, None),
    ],
)
def test_azure_tells_of_this_machine_only(
    server: MetadataServer, event: dict[str, Any], notice: Notice | None
) -> None:
    """A scale set's list holds the events of all its machines, and such as take none."""
    server.events = [{"Resources": ["node-7"], **event}]
    assert AzureNotices(server.url, lambda: NOON).ask() == notice


def test_a_time_that_is_over_is_no_time(server: MetadataServer) -> None:
    """A clock is wrong, or the notice late: the grace of the settings is taken."""
    server.action = {"action": "stop", "time": "2020-01-01T00:00:00Z"}
    assert AwsNotices(server.url, lambda: NOON).ask() == Notice("aws:stop")


def test_a_poller_tells_once_and_ends(server: MetadataServer) -> None:
    """The thread is gone after the notice."""
    server.events = [{"EventType": "Preempt", "Resources": ["node-7"]}]
    told: list[Notice] = []
    poller = NoticePoller(AzureNotices(server.url), told.append, log)
    poller.start()
    poller.thread.join(20)
    assert not poller.thread.is_alive()
    assert told == [Notice("azure:preempt")]


def test_a_service_that_fails_is_told_once_and_asked_on(server: MetadataServer) -> None:
    """One warning however long it lasts, longer and longer pauses, and no end of the thread."""
    source = AzureNotices(server.url)
    source.pause_s = 0.0
    server.is_broken = True
    poller = NoticePoller(source, lambda _: None, log)
    pauses = []
    with capture_events() as events:
        for _ in range(8):
            assert poller._ask() is None
            pauses.append(poller._pause_s)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    server.is_broken = False
    assert poller._ask() is None
    assert poller._pause_s == 0.0
    assert [event["event"] for event in events] == ["costlens.notices.unreachable"]


def test_nobody_there_is_a_failure_and_no_error(server: MetadataServer) -> None:
    """A cloud that this machine is not in: refused, unresolved, or somebody else's answer."""
    for source in (AwsNotices("http://127.0.0.1:1"), GcpNotices(server.url + "/nothing")):
        poller = NoticePoller(source, lambda _: None, log)
        assert poller._ask() is None
        assert poller._num_failures == 1


def test_a_proxy_is_not_asked(server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it is another machine's metadata."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert AwsNotices(server.url).ask() is None


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_each_cloud_has_a_source(cloud: Any) -> None:
    """Named as the setting names it; making one asks nobody."""
    assert make_source(cloud).pause_s >= 0
