"""Real back-ends on loopback for any test: VictoriaMetrics, Prometheus, Alertmanager, a webhook.

`make backends` puts the programs where they are looked for (tests/backends/install.sh). A conftest
makes the fixture `backends` known with `from tests.fixtures_backends import backends`.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.http_servers import LoopbackServer

# Read when this file is imported: tests see a cleaned environment.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
UNPACKED = _CACHE / "costlens-tests" / "backends"
PROGRAMS = ("victoria-metrics", "prometheus", "promtool", "prometheus-alertmanager", "amtool")
START_LIMIT_S = 60.0
END_LIMIT_S = 20.0


def program(name: str) -> Path:
    """Return where a program is, unpacked by tests/backends/install.sh."""
    return UNPACKED / "usr" / "bin" / name


def free_port() -> int:
    """Return a port of loopback that was free a moment ago."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def ask(url: str, data: bytes | None = None, timeout_s: float = 30.0) -> bytes:
    """Return what a URL answers."""
    try:
        with urllib.request.urlopen(url, data, timeout=timeout_s) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{url}: {error.code} {error.read().decode()[:800]}") from None


@dataclass(frozen=True)
class Sample:
    """One series of an answer."""

    labels: Mapping[str, str]
    value: float


class Server:
    """A program that serves HTTP on a free port of loopback, with a folder of its own.

    Args:
        folder: Where its data and its log go; made here.
        arguments: Returns its command line for a port.
        ready: Path that answers once it is ready.
    """

    def __init__(
        self, folder: Path, arguments: Callable[[int], Sequence[str | Path]], ready: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._arguments = arguments
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Return what it has printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it and wait until it is ready; a port that was taken meanwhile is given up."""
        for _ in range(3):
            self.port = free_port()
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [str(part) for part in self._arguments(self.port)],
                    env={"PATH": os.defpath, "HOME": str(self.folder), "GOMAXPROCS": "1"},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if self._wait():
                return
            self.stop()
        raise AssertionError(f"it does not start:\n{self.log[-3000:]}")

    def _wait(self) -> bool:
        deadline = time.monotonic() + START_LIMIT_S
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(self.url + self._ready, timeout=2).close()
                return True
            except OSError:
                time.sleep(0.05)
        return False

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class QueryServer(Server):
    """A server that answers PromQL."""

    def query(self, expr: str, at_s: float | None = None) -> list[Sample]:
        """Return the result of an instant query; a scalar is one sample without labels.

        Args:
            expr: PromQL.
            at_s: Unix time, now by default.
        """
        # Said in milliseconds, for VictoriaMetrics takes whole seconds where nothing is said.
        asked = {"query": expr, "time": f"{time.time() if at_s is None else at_s:.3f}"}
        data = urllib.parse.urlencode(asked).encode()
        result = json.loads(ask(f"{self.url}/api/v1/query", data))["data"]
        if result["resultType"] in {"scalar", "string"}:
            return [Sample({}, float(result["result"][1]))]
        return [Sample(each["metric"], float(each["value"][1])) for each in result["result"]]

    def value(self, expr: str) -> float:
        """Return the only number that a query gives, NaN if it gives none."""
        samples = self.query(expr)
        assert len(samples) <= 1, samples
        return samples[0].value if samples else math.nan

    def names(self) -> set[str]:
        """Return the names of all series."""
        return set(json.loads(ask(f"{self.url}/api/v1/label/__name__/values"))["data"])


class VictoriaMetrics(QueryServer):
    """VictoriaMetrics: takes metrics over OTLP, under the names that Prometheus gives them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._command, "/health")

    def _command(self, port: int) -> list[str | Path]:
        return [
            program("victoria-metrics"),
            f"-httpListenAddr=127.0.0.1:{port}",
            f"-storageDataPath={self.folder / 'data'}",
            "-opentelemetry.usePrometheusNaming",
            "-retentionPeriod=2d",
            "-search.latencyOffset=0s",
            "-search.disableCache",
            "-memory.allowedBytes=128MB",
            "-loggerLevel=WARN",
        ]

    @property
    def otlp_metrics_endpoint(self) -> str:
        """Return what OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set to."""
        return f"{self.url}/opentelemetry/v1/metrics"

    def flush(self) -> None:
        """Make what it has taken visible to queries at once."""
        ask(f"{self.url}/internal/force_flush")

    def take(self, lines: Sequence[str]) -> None:
        """Take samples in Prometheus's text format."""
        ask(f"{self.url}/api/v1/import/prometheus", "\n".join(lines).encode() + b"\n")


class Prometheus(QueryServer):
    """Prometheus: scrapes, evaluates rules, tells an Alertmanager.

    Args:
        folder: Its folder.
        rules: Rule files by name.
        targets: Ports of loopback to scrape; `scrape` changes them later.
        alertmanager: Where alerts go.
        interval_s: How often it scrapes, and evaluates groups that say nothing else.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rules: Mapping[str, str] | None = None,
        targets: Sequence[int] = (),
        alertmanager: Alertmanager | None = None,
        interval_s: float = 1.0,
    ) -> None:
        super().__init__(folder, self._command, "/-/ready")
        every = f"{interval_s * 1000:.0f}ms"
        for name, text in (rules or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        config: dict[str, Any] = {
            "global": {
                "scrape_interval": every,
                "scrape_timeout": every,
                "evaluation_interval": every,
            },
            "rule_files": sorted(rules or {}),
            "scrape_configs": [
                {
                    "job_name": "costlens",
                    "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
                }
            ],
        }
        if alertmanager is not None:
            place = {"targets": [f"127.0.0.1:{alertmanager.port}"]}
            config["alerting"] = {"alertmanagers": [{"static_configs": [place]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.scrape(targets)

    def _command(self, port: int) -> list[str | Path]:
        return [
            program("prometheus"),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            # An alert that is resolved is told again for a while; nobody here waits for that.
            "--rules.alert.resend-delay=1s",
        ]

    def scrape(self, ports: Sequence[int]) -> None:
        """Scrape these ports of loopback from now on."""
        place = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
        written = self.folder / "targets.new"
        written.write_text(json.dumps(place), encoding="utf-8")
        written.replace(self.folder / "targets.json")

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are pending or firing."""
        return list(json.loads(ask(f"{self.url}/api/v1/alerts"))["data"]["alerts"])

    def rule_errors(self) -> dict[str, str]:
        """Return the rules that could not be evaluated the last time, with the error."""
        groups = json.loads(ask(f"{self.url}/api/v1/rules"))["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["name"]: rule["lastError"] for rule in rules if rule["health"] == "err"}


class Alertmanager(Server):
    """Alertmanager.

    Args:
        folder: Its folder.
        config: Its configuration.
    """

    def __init__(self, folder: Path, config: str) -> None:
        super().__init__(folder, self._command, "/-/ready")
        (folder / "alertmanager.yml").write_text(config, encoding="utf-8")

    def _command(self, port: int) -> list[str | Path]:
        # Debian's reads its own templates at the place where the package would have put them: it
        # sees the unpacked folder there, in a mount namespace of its own, which needs no root.
        share = UNPACKED / "usr" / "share"
        return [
            *("unshare", "--map-root-user", "--mount", "sh", "-c"),
            *('mount --bind "$0" /usr/share && exec "$@"', share),
            program("prometheus-alertmanager"),
            f"--config.file={self.folder / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]


class Webhook:
    """Receives what Alertmanager tells, like a pager."""

    def __init__(self) -> None:
        told: list[tuple[str, dict[str, Any]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                told.append((self.path.strip("/"), json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return None

        self._told = told
        self._server = LoopbackServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def alerts(self) -> list[tuple[str, dict[str, Any]]]:
        """Return every alert that was told as firing, with the receiver it was told to."""
        return [
            (receiver, alert)
            for receiver, message in list(self._told)
            for alert in message["alerts"]
            if alert["status"] == "firing"
        ]


@dataclass
class Backends:
    """Starts back-ends in a folder, each once or several times."""

    folder: Path

    def promtool(self, *arguments: str | Path) -> str:
        """Return what promtool prints; it must succeed."""
        return self._run("promtool", *arguments)

    def amtool(self, *arguments: str | Path) -> str:
        """Return what amtool prints; it must succeed."""
        return self._run("amtool", *arguments)

    def _run(self, name: str, *arguments: str | Path) -> str:
        done = subprocess.run(
            [program(name), *arguments],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == 0, f"{name}:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
        return done.stdout + done.stderr

    @contextmanager
    def run(self, *servers: Server) -> Iterator[None]:
        """Run servers in this order, and end them in the other one."""
        started: list[Server] = []
        try:
            for server in servers:
                server.start()
                started.append(server)
            yield
        finally:
            for server in reversed(started):
                server.stop()


def with_address(config: str, url: str) -> str:
    """Return a configuration of Alertmanager whose webhooks go to another address."""
    return re.sub(r"http://127\.0\.0\.1:\d+", url, config)


@cache
def _can_unshare() -> bool:
    command = ["unshare", "--map-root-user", "--mount", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def backends(require: Callable[[str, bool, str], None], tmp_path: Path) -> Backends:
    """Return what starts the back-ends, where `make backends` has unpacked them."""
    missing = [name for name in PROGRAMS if not program(name).exists()]
    require("backends", not missing, f"`make backends` has not unpacked {', '.join(missing)}")
    require("backends", _can_unshare(), "no process may have a mount namespace of its own here")
    return Backends(tmp_path)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Return a receiver of alerts."""
    receiver = Webhook()
    yield receiver
    receiver.stop()
