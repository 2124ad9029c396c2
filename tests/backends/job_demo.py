"""The demo, scraped or pushing: `job_demo.py scrape|push ARGUMENTS OF COSTLENS DEMO`.

Prints the port of its metrics first (0 where it pushes), and stays until standard input ends.
"""

from __future__ import annotations

import contextlib
import sys

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from costlens.cli import main

if __name__ == "__main__":
    port = 0
    if sys.argv[1] == "scrape":
        reader = PrometheusMetricReader()
        metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
        port = start_http_server(0, addr="127.0.0.1")[0].server_port
    print("PORT", port, flush=True)
    sys.argv = ["costlens", "demo", *sys.argv[2:]]
    with contextlib.suppress(SystemExit):
        main()
    print("DONE", flush=True)
    sys.stdin.read()
