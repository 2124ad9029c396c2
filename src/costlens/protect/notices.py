"""Notices of a cloud that it is about to take this machine, asked for on a thread of its own.

Off unless ``COSTLENS_CLOUD_NOTICES`` names the cloud: a request to the metadata address outside of
it goes nowhere, or to somebody else. What comes is handed to ``preemption.py`` like a signal.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Protocol

from costlens.core.guard import faults
from costlens.core.log import Logger

__all__ = [
    "AwsNotices",
    "AzureNotices",
    "Cloud",
    "GcpNotices",
    "Notice",
    "NoticePoller",
    "NoticeSource",
    "make_source",
]

Cloud = Literal["aws", "gcp", "azure"]

_TIMEOUT_S = 2.0
_MAX_BYTES = 1 << 18
_MAX_PAUSE_S = 60.0
# What a metadata service that is out of reach, or another one, can make of a request.
_FAILURES = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)


@dataclass(frozen=True, slots=True)
class Notice:
    """What a cloud says.

    Args:
        reason: Who says what, such as ``aws:terminate``.
        lead_s: Seconds until it happens; None where it does not say.
    """

    reason: str
    lead_s: float | None = None


class NoticeSource(Protocol):
    """The metadata service of one cloud; one thread."""

    pause_s: float

    def ask(self) -> Notice | None:
        """Return the notice, None while there is none; blocks for a few seconds at most."""


class AwsNotices:
    """Spot interruptions of EC2, by the second version of its metadata service.

    Two minutes of notice for a stop or an end, none for hibernation.

    Args:
        url: Where the service is.
        clock: Returns Unix seconds.
    """

    pause_s = 5.0
    _TTL_S = 21_600

    def __init__(
        self, url: str = "http://169.254.169.254", clock: Callable[[], float] = time.time
    ) -> None:
        self._url = url
        self._clock = clock
        self._token: str | None = None

    def ask(self) -> Notice | None:
        """Return the notice, None while there is none."""
        if self._token is None:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(self._TTL_S)}
            self._token = _fetch(f"{self._url}/latest/api/token", ttl, method="PUT")[0]
        try:
            text, _ = _fetch(
                f"{self._url}/latest/meta-data/spot/instance-action",
                {"X-aws-ec2-metadata-token": self._token},
            )
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
            self._token = None  # it may have expired
            raise
        said = json.loads(text)
        at_s = _unix_s(said.get("time"), datetime.fromisoformat)
        return Notice(f"aws:{_word(said['action'])}", _lead_s(at_s, self._clock()))


class GcpNotices:
    """Preemptions of Compute Engine: the metadata server answers when something changes.

    Thirty seconds of notice.

    Args:
        url: Where the service is.
    """

    pause_s = 0.0
    _WAIT_S = 5

    def __init__(self, url: str = "http://metadata.google.internal") -> None:
        self._url = url
        self._etag = "0"

    def ask(self) -> Notice | None:
        """Return the notice, None if there is none within five seconds."""
        text, headers = _fetch(
            f"{self._url}/computeMetadata/v1/instance/preempted?wait_for_change=true"
            f"&timeout_sec={self._WAIT_S}&last_etag={self._etag}",
            {"Metadata-Flavor": "Google"},
            timeout_s=_TIMEOUT_S + self._WAIT_S,
        )
        self._etag = headers.get("ETag") or "0"
        return Notice("gcp:preempted") if text.strip().upper() == "TRUE" else None


class AzureNotices:
    """Scheduled events of Azure that take this machine; at least half a minute of notice.

    Args:
        url: Where the service is.
        clock: Returns Unix seconds.
    """

    pause_s = 1.0
    _KINDS = frozenset({"Preempt", "Terminate"})

    def __init__(
        self, url: str = "http://169.254.169.254", clock: Callable[[], float] = time.time
    ) -> None:
        self._url = url
        self._clock = clock
        self._name: str | None = None

    def ask(self) -> Notice | None:
        """Return the notice, None while there is none."""
        headers = {"Metadata": "true"}
        if self._name is None:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            self._name = _fetch(self._url + path, headers)[0].strip()
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        for event in json.loads(_fetch(self._url + path, headers)[0])["Events"]:
            # A scale set tells each machine of the events of all.
            if event["EventType"] in self._KINDS and self._name in event["Resources"]:
                at_s = _unix_s(event.get("NotBefore"), parsedate_to_datetime)
                reason = f"azure:{_word(event['EventType']).lower()}"
                return Notice(reason, _lead_s(at_s, self._clock()))
        return None


class NoticePoller:
    """Asks a cloud until it has a notice, on a daemon thread; the training pays nothing.

    Args:
        source: Whom to ask.
        on_notice: Called with the notice, once, on the poller's thread.
        logger: Told once where the service is out of reach.
    """

    def __init__(
        self, source: NoticeSource, on_notice: Callable[[Notice], None], logger: Logger
    ) -> None:
        self._source = source
        self._on_notice = on_notice
        self._logger = logger
        self._closed = threading.Event()
        self._num_failures = 0
        self.thread = threading.Thread(target=self._run, name="costlens-notices", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self.thread.start()

    def close(self) -> None:
        """Ask no more; a request that is under way is left to its time-out."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            notice = faults.call("protect.notices", self._ask)
            if notice is not None:
                if not self._closed.is_set():
                    faults.call("protect.notices", self._on_notice, notice)
                return
            self._closed.wait(self._pause_s)

    def _ask(self) -> Notice | None:
        try:
            notice = self._source.ask()
        except _FAILURES as error:
            self._num_failures += 1
            if self._num_failures == 1:
                self._logger.warning(
                    "costlens.notices.unreachable",
                    error_type=type(error).__name__,
                    message="the metadata service of the cloud does not answer as it should; is"
                    " COSTLENS_CLOUD_NOTICES that of this machine? It is asked on",
                )
            return None
        self._num_failures = 0
        return notice

    @property
    def _pause_s(self) -> float:
        if self._num_failures == 0:
            return self._source.pause_s
        return min(
            _MAX_PAUSE_S, max(1.0, self._source.pause_s) * 2.0 ** min(10, self._num_failures)
        )


def make_source(cloud: Cloud) -> NoticeSource:
    """Return what asks a cloud.

    Args:
        cloud: Which one.
    """
    if cloud == "aws":
        return AwsNotices()
    return GcpNotices() if cloud == "gcp" else AzureNotices()


def _fetch(
    url: str, headers: Mapping[str, str], *, method: str = "GET", timeout_s: float = _TIMEOUT_S
) -> tuple[str, Mapping[str, str]]:
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310 - http
    # Through a proxy another machine's metadata would answer.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout_s) as reply:
        return reply.read(_MAX_BYTES).decode("utf-8"), reply.headers


def _unix_s(text: object, parse: Callable[[str], datetime]) -> float | None:
    if not isinstance(text, str) or not text:
        return None
    moment = parse(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _lead_s(at_s: float | None, now_s: float) -> float | None:
    # A moment that is over tells of a clock that is wrong, or of a notice that came late.
    return None if at_s is None or at_s <= now_s else at_s - now_s


def _word(text: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    return "".join(letter for letter in str(text)[:40] if letter.isalnum() or letter in "_-")
