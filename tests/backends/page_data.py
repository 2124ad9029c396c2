"""Two runs in two real back-ends, for the queries of the dashboards.

The demo with simulated GPUs and a loop that fetches slowly push by OTLP to VictoriaMetrics, from
which Prometheus scrapes what has arrived, as it would from a Collector.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.fixtures_backends import (
    PROGRAMS,
    Backends,
    Prometheus,
    QueryServer,
    VictoriaMetrics,
    ask,
    program,
)

__all__ = ["RUNS", "PageData", "page_data"]

RUNS = ("demo", "fetching")
FETCHING = Path(__file__).parent / "job_fetching.py"
COSTLENS = "from costlens.cli import main; main()"
FETCHING_S = 12
LIMIT_S = 150
_LAST_SCRAPES_S = 3


@dataclass
class PageData:
    """Back-ends that hold the runs.

    Args:
        servers: The back-ends by name.
        start_s: Unix time at which the first run began.
        end_s: Unix time at which both had ended.
    """

    servers: Mapping[str, QueryServer]
    start_s: float
    end_s: float

    def has_data(self, name: str, query: str) -> bool:
        """Return whether a query had a result at any second of the runs."""
        asked = {"query": query, "start": self.start_s, "end": self.end_s, "step": 1}
        url = f"{self.servers[name].url}/api/v1/query_range"
        return bool(json.loads(ask(url, urllib.parse.urlencode(asked).encode()))["data"]["result"])


class Federating(Prometheus):
    """Prometheus that scrapes all series of another server, under their own labels."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = folder / "prometheus.yml"
        config = yaml.safe_load(path.read_text())
        (scraped,) = config["scrape_configs"]
        scraped["metrics_path"] = "/federate"
        scraped["params"] = {"match[]": ['{__name__!=""}']}
        scraped["honor_labels"] = True
        path.write_text(yaml.safe_dump(config))


@pytest.fixture(scope="session")
def page_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageData | None]:
    """Return the runs; None where there are no back-ends, which `backends` tells first."""
    if not all(program(name).exists() for name in PROGRAMS):
        yield None
        return
    folder = tmp_path_factory.mktemp("pages")
    victoria = VictoriaMetrics(folder / "victoria")
    prometheus = Federating(folder / "prometheus")
    with Backends(folder).run(victoria, prometheus):
        prometheus.scrape([victoria.port])
        start_s = time.time()
        endpoint = victoria.otlp_metrics_endpoint
        with ExitStack() as stack:
            demo = ["-c", COSTLENS, "demo", "--fake-gpus", "2"]
            fetching = [str(FETCHING), str(FETCHING_S)]
            for name, arguments in zip(RUNS, (demo, fetching), strict=True):
                stack.enter_context(_run(folder / name, name, arguments, endpoint))
        victoria.flush()
        time.sleep(_LAST_SCRAPES_S)
        servers = {"victoria": victoria, "prometheus": prometheus}
        yield PageData(servers, start_s, time.time())


@contextmanager
def _run(folder: Path, name: str, arguments: list[str], endpoint: str) -> Iterator[None]:
    """Run a training; it has ended when this is left."""
    folder.mkdir()
    checkout = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    now = time.time()
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),  # the simulated driver needs a compiler
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint,
        "COSTLENS_DIR": str(folder / "runs"),
        "COSTLENS_CHECKPOINT_URL": str(folder / "checkpoints"),
        "COSTLENS_MAX_LOSS": "2s",
        "COSTLENS_RUN_ID": name,
        "COSTLENS_WINDOW_S": "0.5",
        "COSTLENS_GPU_HOUR_PRICE" if name == "demo" else "COSTLENS_NODE_HOUR_PRICE": "2.5",
        "COSTLENS_ENERGY_KWH_PRICE": "0.3",
        "COSTLENS_BUDGET": "100",
        "COSTLENS_TEAM": "team-a",
        "COSTLENS_JOB_SUBMIT_TIME": f"{now - 90:.0f}",
        "COSTLENS_JOB_ELIGIBLE_TIME": f"{now - 60:.0f}",
        "COSTLENS_JOB_START_TIME": f"{now - 1:.0f}",
        **checkout,
    }
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environ, stdout=log, stderr=log
    )
    try:
        yield
        code = process.wait(LIMIT_S)
        assert code == 0, (folder / "log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
        log.close()
