"""The demo with simulated GPUs, by OTLP in VictoriaMetrics and by scrape in Prometheus.

Tests ask both whether an expression has data. Rules and ranges use the windows of `SHORT`: a demo
is over before five minutes are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from grafana.alerts.catalogue import RECORDINGS
from grafana.alerts.render import fill, render_rules
from tests.backends import short_windows
from tests.backends.short_windows import WINDOW_S
from tests.fixtures_backends import (
    PROGRAMS,
    Backends,
    Prometheus,
    QueryServer,
    Sample,
    VictoriaMetrics,
    program,
)
from tests.http_servers import LoopbackServer

SCRIPT = Path(__file__).parent / "job_demo.py"
# Even two minutes are too long for what compares now with an hour ago.
SHORT = replace(
    short_windows.SHORT,
    windows=replace(short_windows.SHORT.windows, hour_s=4.0, day_s=60.0),
)
RUN_ID = "demo"
LIMIT_S = 220.0
_EVERY_S = 1
_LAST_SCRAPES_S = 2.5
_NUM_RECORDED = 15

# What dcgm-exporter shows of the demo's two simulated GPUs.
_DCGM = "".join(
    f'{name}{{UUID="GPU-{number:08x}-51a0-4f1a-8000-000000000000",gpu="{number}",'
    f'Hostname="node"}} {value}\n'
    for number in range(2)
    for name, value in (
        ("DCGM_FI_DEV_GPU_UTIL", 82),
        ("DCGM_FI_DEV_FB_USED", 50_000),
        ("DCGM_FI_DEV_FB_FREE", 30_000),
        ("DCGM_FI_DEV_POWER_USAGE", 500),
        ("DCGM_FI_DEV_GPU_TEMP", 60),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1_000_000),
        ("DCGM_FI_DEV_XID_ERRORS", 0),
    )
)


@dataclass
class Demo:
    """A back-end that holds a demo.

    Args:
        server: The back-end.
        at_s: Unix time at which the demo trained.
        after_s: Unix time at which it was over.
    """

    server: QueryServer
    at_s: float
    after_s: float

    def query(self, expr: str) -> list[Sample]:
        """Return what a query gave while the demo trained; `$name` stands for a window or limit."""
        return self.server.query(fill(expr, SHORT), self.at_s)

    def has_data(self, expr: str) -> bool:
        """Return whether a query gave anything in the last seconds of the demo, or after it.

        Not at one moment alone: a machine that is busy exports late.
        """
        times_s = [self.at_s - back_s for back_s in range(_NUM_RECORDED)]
        filled = fill(expr, SHORT)
        return any(self.server.query(filled, at_s) for at_s in (*times_s, self.after_s))


@dataclass
class Demos:
    """The same demo in both back-ends."""

    victoria: Demo
    prometheus: Demo


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demos | None]:
    """Return the demos; None where there are no back-ends, which `backends` tells first."""
    if not all(program(name).exists() for name in PROGRAMS):
        yield None
        return
    folder = tmp_path_factory.mktemp("demos")
    backends = Backends(folder)
    victoria = VictoriaMetrics(folder / "victoria")
    prometheus = Prometheus(folder / "prometheus", rules=render_rules(SHORT))
    with _dcgm() as dcgm_port, backends.run(victoria, prometheus):
        with _demo(folder / "scraped", "scrape") as scraped:
            prometheus.scrape([_port(scraped), dcgm_port])
            scraped_s = _follow(scraped, prometheus, "scraped")
        with _demo(
            folder / "pushed",
            "push",
            OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=victoria.otlp_metrics_endpoint,
        ) as pushed:
            _port(pushed)
            pushed_s = _follow(pushed, victoria, "pushed", dcgm=victoria)
        _record(victoria, pushed_s[0])
        yield Demos(Demo(victoria, *pushed_s), Demo(prometheus, *scraped_s))


@contextmanager
def _demo(folder: Path, path: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    checkout = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    now = time.time()
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), path, "--fake-gpus", "2", "--max-steps", "250"],
        env={
            "PATH": os.environ.get("PATH", os.defpath),  # the simulated driver needs a compiler
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "COSTLENS_DIR": str(folder / "runs"),
            "COSTLENS_CHECKPOINT_URL": str(folder / "checkpoints"),
            "COSTLENS_RUN_ID": RUN_ID,
            "COSTLENS_WINDOW_S": str(WINDOW_S),
            "COSTLENS_GPU_HOUR_PRICE": "2.5",
            "COSTLENS_ENERGY_KWH_PRICE": "0.3",
            "COSTLENS_BUDGET": "100",
            "COSTLENS_TEAM": "demo",
            "COSTLENS_ESTIMATE_FLOPS": "1",
            "COSTLENS_JOB_SUBMIT_TIME": f"{now - 90:.0f}",
            "COSTLENS_JOB_ELIGIBLE_TIME": f"{now - 60:.0f}",
            "COSTLENS_JOB_START_TIME": f"{now - 1:.0f}",
            **checkout,
            **environ,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    word, number = process.stdout.readline().split()
    assert word == "PORT"
    return int(number)


def _follow(
    process: subprocess.Popen[str],
    server: QueryServer,
    name: str,
    dcgm: VictoriaMetrics | None = None,
) -> tuple[float, float]:
    """Wait for the end of a demo; return when it was last seen to train, and when it was over."""
    done = threading.Event()

    def wait_for_the_end() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("DONE"):
                break
        done.set()

    watcher = threading.Thread(target=wait_for_the_end, daemon=True)
    watcher.start()
    deadline, at_s = time.monotonic() + LIMIT_S, 0.0
    while not done.is_set():
        assert time.monotonic() < deadline, f"the {name} demo does not end"
        if dcgm is not None:
            dcgm.take(_DCGM.splitlines())
        if server.query('costlens_run_state{costlens_state="running"} == 1'):
            at_s = time.time()
        time.sleep(0.5)
    watcher.join()
    assert at_s, f"the {name} demo was never seen to train"
    time.sleep(_LAST_SCRAPES_S)  # they find how it ended
    return at_s, time.time()


def _record(victoria: VictoriaMetrics, at_s: float) -> None:
    """Evaluate the recording rules, which VictoriaMetrics alone does not."""
    victoria.flush()
    for back in reversed(range(_NUM_RECORDED)):
        when_s = at_s - back * _EVERY_S
        for recording in RECORDINGS:
            lines = [
                _line(recording.name, sample, when_s)
                for sample in victoria.query(fill(recording.expr, SHORT), when_s)
                if sample.value == sample.value  # not NaN
            ]
            if lines:
                victoria.take(lines)
        victoria.flush()


def _line(name: str, sample: Sample, when_s: float) -> str:
    labels = ",".join(
        f'{key}="{value}"' for key, value in sample.labels.items() if key != "__name__"
    )
    return f"{name}{{{labels}}} {sample.value!r} {when_s * 1000:.0f}"


@contextmanager
def _dcgm() -> Iterator[int]:
    """Serve what dcgm-exporter would, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(_DCGM.encode())

        def log_message(self, *_: object) -> None:
            return None

    server = LoopbackServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
